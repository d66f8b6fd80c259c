"""A bound server: what is asked of a server beside its tools, under the same five steps as a tool call.

Nothing here stands on a tool list: a replaced client serves it as well, if plan context, authorization name
and epoch are those that it was bound under, and if that client's server has negotiated what is asked for.
Lists and contents are not cached; they say for how long the server lets the host keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, final

import attrs
import trio

from .._base.answers import CacheScope, Completion, Items, PromptResult, ResourceResult
from .._base.errors import AfpoolError, InvalidArguments
from .._base.model import ToolContext
from ..client import Errand
from ..client._errand import SUBSCRIBE, UNSUBSCRIBE
from ..protocol import (
    LOG_LEVELS,
    NotJson,
    completion_members,
    level_members,
    prompt_members,
    uri_members,
)
from ._asking import check_identity
from ._causes import file_refused
from ._flights import client_for
from ._listing import Asker
from ._operation import execute
from ._subscriptions import (
    Subscription,
    forget,
    keep,
    made,
    of,
    subscribe_errand,
    unsubscribe_errand,
)

if TYPE_CHECKING:
    from .._base.identity import CallerIdentity
    from .._base.model import ProgressCallback
    from ..client import Received
    from ._actor import KeyActor
    from ._call import Call

T = TypeVar("T")


class Asking(TypedDict, total=False):
    """How an operation is asked for.

    `deadline` is absolute, seconds on trio's clock, the pool's default from now when absent; `call_id` is
    stable across attempts and made up when absent; `on_progress` is called in the asker's task; `chain` are
    the tickets of the calls that it is made from inside of.
    """

    deadline: float | None
    call_id: str | None
    on_progress: ProgressCallback | None
    chain: tuple[int, ...]


@final
@attrs.frozen(eq=False, repr=False)
class ServerBinding:
    """What a server was bound under. Nothing in it changes.

    Attributes:
        actor: The actor of the key that it was bound for.
        epoch: The key's epoch then.
        keyed_on: The identity fields that the server was keyed on then.
        context: The plan context, `pc:...`.
        authorization: The name that `share` gave; never shown.
        client_id: The incarnation that was the key's then.
    """

    actor: KeyActor
    epoch: int
    keyed_on: tuple[str, ...]
    context: str
    authorization: str | None
    client_id: int
    list: None = None
    generation: int = 0
    definition: None = None

    def __repr__(self) -> str:
        return f"<ServerBinding of {self.actor.server.name} under {self.context}>"


@final
class BoundServer:
    """Resources, prompts, completions and the log level of one server, for one identity.

    Every operation names its caller and raises as a tool call does: `AfpoolError` with `code` and
    `delivery`, `not-offered` where the server has not negotiated what it needs. A failure of a list that has
    several pages has the verdict of the page that it ended at. Every operation passes at least one
    checkpoint, takes one place of its key, and when it is cancelled is back within 50 ms.

    Attributes:
        binding: What it was bound under.
        capabilities: What the server had negotiated then, raw; empty where it was not asked.
        instructions: The server's text for the model, untrusted.
    """

    __slots__ = ("__weakref__", "binding", "capabilities", "instructions")

    def __init__(
        self, binding: ServerBinding, capabilities: Mapping[str, Any], instructions: str | None
    ) -> None:
        self.binding = binding
        self.capabilities = capabilities
        self.instructions = instructions

    @property
    def name(self) -> str:
        """The server's name in the pool."""
        return self.binding.actor.server.name

    async def resources(self, *, identity: CallerIdentity, **how: Unpack[Asking]) -> Items:
        """List all resources, page by page (`resources/list`).

        Raises:
            AfpoolError: See the class; `protocol-error` for a list without end, `too-large` above
                `max_message` in all.
        """
        errand = Errand("resources/list", ("resources",), items="resources")
        return await self._run(errand.method, lambda: errand, _items, identity, how)

    async def resource_templates(self, *, identity: CallerIdentity, **how: Unpack[Asking]) -> Items:
        """List all resource templates (`resources/templates/list`); raises as `resources`."""
        errand = Errand("resources/templates/list", ("resources",), items="resourceTemplates")
        return await self._run(errand.method, lambda: errand, _items, identity, how)

    async def prompts(self, *, identity: CallerIdentity, **how: Unpack[Asking]) -> Items:
        """List all prompts (`prompts/list`); raises as `resources`."""
        errand = Errand("prompts/list", ("prompts",), items="prompts")
        return await self._run(errand.method, lambda: errand, _items, identity, how)

    async def read_resource(
        self, uri: str, *, identity: CallerIdentity, **how: Unpack[Asking]
    ) -> ResourceResult:
        """Read a resource (`resources/read`).

        Args:
            uri: Of the resource; it is sent as it is, and is not part of the record.
            identity: Who asks.
            how: See `Asking`.

        Raises:
            AfpoolError: See the class.
        """

        def make() -> Errand:
            _text(uri, "a URI")
            return Errand("resources/read", ("resources",), uri_members(uri), routed=uri)

        return await self._run("resources/read", make, _resource, identity, how)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        identity: CallerIdentity,
        **how: Unpack[Asking],
    ) -> PromptResult:
        """Fill a prompt (`prompts/get`).

        Args:
            name: As listed.
            arguments: Texts by name.
            identity: Who asks.
            how: See `Asking`.

        Raises:
            AfpoolError: See the class.
        """

        def make() -> Errand:
            _text(name, "a prompt's name")
            _texts(arguments, "a prompt's arguments")
            return Errand(
                "prompts/get", ("prompts",), prompt_members(name, arguments), routed=name, named=name
            )

        return await self._run("prompts/get", make, _prompt, identity, how)

    async def complete(
        self,
        ref: Mapping[str, Any],
        argument: tuple[str, str],
        context: Mapping[str, str] | None = None,
        *,
        identity: CallerIdentity,
        **how: Unpack[Asking],
    ) -> Completion:
        """Ask for completions of an argument (`completion/complete`).

        Args:
            ref: `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
            argument: Its name, and what there is of its value.
            context: Arguments that are decided already.
            identity: Who asks.
            how: See `Asking`.

        Raises:
            AfpoolError: See the class.
        """

        def make() -> Errand:
            _reference(ref)
            name, value = _pair(argument)
            _text(name, "an argument's name")
            _text(value, "an argument's value")
            _texts(context, "decided arguments")
            members = completion_members(ref, {"name": name, "value": value}, context)
            return Errand("completion/complete", ("completions",), members)

        return await self._run("completion/complete", make, _completion, identity, how)

    async def set_log_level(self, level: str, *, identity: CallerIdentity, **how: Unpack[Asking]) -> None:
        """Say from which level on the server shall log to the pool's `on_log`.

        It counts for the key and is said again to each client that replaces this one. In the handshake era it
        is a request (`logging/setLevel`); in 2026-07-28 every request says so from now on, and none is sent
        for it.

        Args:
            level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
            identity: Who asks.
            how: See `Asking`.

        Raises:
            AfpoolError: See the class.
        """

        def make() -> Errand:
            if level not in LOG_LEVELS:
                raise InvalidArguments(f"a log level is one of {', '.join(LOG_LEVELS)}; nothing was sent")
            return Errand("logging/setLevel", ("logging",), level_members(level), subject=level)

        def read(_: Received, call: Call) -> None:
            if call.actor.machine.epoch == call.binding.epoch:  # else nobody stands behind it any more
                call.actor.log_level = level

        await self._run("logging/setLevel", make, read, identity, how)

    async def subscribe(self, uri: str, *, identity: CallerIdentity, **how: Unpack[Asking]) -> Subscription:
        """Subscribe to a resource; iterate over what is returned to hear of its changes.

        In the handshake era it is a request (`resources/subscribe`); in 2026-07-28 the URI becomes part of
        the client's `subscriptions/listen` stream, which is asked for anew, and this returns when the server
        has acknowledged it. It is made again whenever the key's client is replaced. See `Subscription`.

        Args:
            uri: Of the resource.
            identity: Who subscribes; asked again before each update.
            how: See `Asking`.

        Raises:
            AfpoolError: See the class; `server-refused` where the stream does not grant it, `overloaded`
                above `max_subscriptions` of the key.
        """

        def make() -> Errand:
            _text(uri, "a URI")
            keep(subscription)
            return subscribe_errand(uri)

        def read(_: Received, call: Call) -> Subscription:
            made(subscription, call)
            return subscription

        subscription = Subscription(self.binding, uri, identity)
        try:
            return await self._run(SUBSCRIBE, make, read, identity, how)
        except BaseException:
            subscription.close()
            raise

    async def unsubscribe(self, uri: str, *, identity: CallerIdentity, **how: Unpack[Asking]) -> None:
        """Close every subscription to a resource that was made by this bound server, and tell the server.

        The server is asked (`resources/unsubscribe`) only if nobody else of the key waits for the resource,
        and if the client that subscribed is still there. The subscriptions are closed in any case.

        Raises:
            AfpoolError: See the class.
        """
        actor = self.binding.actor
        await trio.lowlevel.checkpoint()
        try:
            check_identity(actor, identity, self.binding.keyed_on)
        except AfpoolError as error:
            file_refused(self.binding, UNSUBSCRIBE, how.get("call_id"), error)
            raise
        current = actor.machine.client
        mine = [entry for entry in of(actor, uri) if entry.binding is self.binding]
        there = any(current is not None and entry.client_id == current.id for entry in mine)
        last = False
        for entry in mine:
            entry.drop()
            last = forget(entry)
        if last and there:
            await self._run(UNSUBSCRIBE, lambda: unsubscribe_errand(uri), _nothing, identity, how)

    async def _run(
        self,
        method: str,
        make: Callable[[], Errand],
        read: Callable[[Received, Call], T],
        identity: CallerIdentity,
        how: Asking,
    ) -> T:
        try:
            errand = self._made(method, make, how)
        except BaseException:
            await trio.lowlevel.checkpoint()
            raise
        result: T = await execute(self.binding, {}, ToolContext(identity=identity, **how), errand, read)
        return result

    def _made(self, method: str, make: Callable[[], Errand], how: Asking) -> Errand:
        """Make what is asked; a refusal of it is on the record as any other."""
        try:
            try:
                return make()
            except NotJson as error:
                raise InvalidArguments(f"{error}; nothing was sent") from None
        except AfpoolError as error:
            file_refused(self.binding, method, how.get("call_id"), error)
            raise

    def __repr__(self) -> str:
        return f"<BoundServer {self.name}>"


async def bind_server(actor: KeyActor, identity: CallerIdentity, deadline: float) -> BoundServer:
    """Bind a server for an identity; see `Pool.bind`."""
    with actor.pool.openings.using(actor):
        asker = Asker(actor, identity, deadline)
        client = await asker.through(client_for(actor))
        negotiated = client.negotiated
        assert negotiated is not None
        binding = ServerBinding(
            actor, asker.epoch, asker.keyed_on, client.context, asker.authorization, client.id
        )
        return BoundServer(binding, negotiated.capabilities, negotiated.instructions)


# ---------------------------------------------------------------------------- reading what came


def _scope(received: Received) -> CacheScope:
    return "public" if received.cache_scope == "public" else "private"


def _items(received: Received, call: Call) -> Items:
    return Items(received.payloads, call.use.call_id, received.ttl, _scope(received))


def _resource(received: Received, call: Call) -> ResourceResult:
    return ResourceResult(received.payloads[0], call.use.call_id, received.ttl, _scope(received))


def _prompt(received: Received, call: Call) -> PromptResult:
    return PromptResult(received.payloads[0], call.use.call_id)


def _completion(received: Received, call: Call) -> Completion:
    return Completion(received.payloads[0], call.use.call_id)


def _nothing(_: Received, __: Call) -> None:
    """An acknowledgement holds nothing."""


# ---------------------------------------------------------------------------- what is given


def _text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} is a text, not {type(value).__name__}; nothing was sent")


def _pair(argument: object) -> tuple[object, object]:
    if not isinstance(argument, tuple | list) or len(argument) != 2:
        raise InvalidArguments("an argument is its name and its value so far; nothing was sent")
    return argument[0], argument[1]


def _reference(ref: object) -> None:
    if not isinstance(ref, Mapping):
        raise InvalidArguments(
            f"what is completed for is named by an object, not {type(ref).__name__}; nothing was sent"
        )


def _texts(values: object, what: str) -> None:
    if values is None:
        return
    if not isinstance(values, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in values.items()
    ):
        raise InvalidArguments(f"{what} are texts by name; nothing was sent")
