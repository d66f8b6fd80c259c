"""Resource subscriptions: who is told that a resource has changed, and what a replaced client does to them.

Rules and invariants:

* An update says that a resource may have changed, and nothing else; so updates that wait are one per URI, and
  a subscription holds at most `URIS_KEPT` of them. Beyond that it says once that everything may have changed.
* A subscription stands on a binding and a caller identity, as a call does. Both are checked again before each
  update is handed out; what no longer holds ends it with the refusal.
* A client that is gone takes the server's side of a subscription with it. It is made again on the key's next
  client, by the same five steps, opened if need be, backing off while that fails. A refusal ends it.
* Whatever may have been missed (another client, another notification stream) is told as an update with
  `gap` set.
* A key with a subscription is not idle: its client is not evicted. It takes no place.
* At the server a URI is subscribed to once per key, however many wait for it here; the last one to go
  unsubscribes.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Self, final

import attrs
import trio

from .._base.errors import NOT_SENT, AfpoolError, BindingChanged, Overloaded, PoolClosed
from .._base.model import ToolContext
from ..client import Errand, Rpc
from ..protocol import read_updated, request_params, uri_members
from ._asking import ask_share, check_identity, in_this_context
from ._operation import execute
from ._refusals import copy_error, epoch_over

if TYPE_CHECKING:
    from types import TracebackType

    from .._base.identity import CallerIdentity
    from ..client import Client, Received
    from ..protocol import Message
    from ._actor import KeyActor
    from ._bound_server import ServerBinding
    from ._call import Call

URIS_KEPT: Final = 64
RETRY: Final = 0.5
RETRY_MAX: Final = 30.0
# What may be over the next time; anything else is a refusal, and ends the subscription.
PASSING: Final = frozenset(
    {
        "actor-crashed", "client-closed", "connection-lost", "deadline-exceeded", "open-backoff",
        "open-failed", "overloaded", "server-failed", "session-expired", "session-handle-lost",
    }
)  # fmt: skip


@final
@attrs.frozen
class ResourceUpdate:
    """A resource may have changed: read it again.

    Attributes:
        uri: Which one; may be one below the resource that was subscribed to.
        gap: Whether updates may have been missed before this one.
    """

    uri: str
    gap: bool = False


@final
class Subscription(AsyncIterator[ResourceUpdate]):
    """Updates of one resource, for one caller: `async for update in subscription`.

    For one task at a time. As a context manager it is closed at the end of the block.

    Attributes:
        uri: The resource.
        binding: What it was bound under.
    """

    __slots__ = (
        "__weakref__",
        "_ended",
        "_identity",
        "_news",
        "_pending",
        "_reading",
        "binding",
        "client_id",
        "uri",
    )

    def __init__(self, binding: ServerBinding, uri: str, identity: CallerIdentity) -> None:
        self.binding = binding
        self.uri = uri
        self.client_id: int | None = None
        self._identity = in_this_context(identity)
        self._pending: dict[str, bool] = {}
        self._news = trio.Event()
        self._ended: AfpoolError | bool = False  # why it ended; `True`: it was closed
        self._reading = False

    @property
    def open(self) -> bool:
        """Whether updates may still come."""
        return self._ended is False

    async def __anext__(self) -> ResourceUpdate:
        """Wait for the next update.

        Raises:
            StopAsyncIteration: It was closed.
            AfpoolError: What it stands on no longer holds, or the pool is closed. Nothing more comes.
            trio.BusyResourceError: Another task waits already.

        A checkpoint. Cancelled, it loses no update.
        """
        await trio.lowlevel.checkpoint()
        if self._reading:
            raise trio.BusyResourceError("another task waits for this subscription already")
        self._reading = True
        try:
            while True:
                if self._ended is False:
                    self._check()
                if self._ended is True:
                    raise StopAsyncIteration
                if isinstance(self._ended, AfpoolError):
                    raise copy_error(self._ended)
                if self._pending:
                    uri = next(iter(self._pending))
                    return ResourceUpdate(uri, self._pending.pop(uri))
                await self._news.wait()
        finally:
            self._reading = False

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """End it; the server is told in the background. Synchronous, idempotent."""
        if self._ended is False:
            self._end(True)
            _let_go(self)

    # ------------------------------------------------------------------ for the pool

    def refuse(self, error: AfpoolError) -> None:
        """End it with an error, and let the server know where its client lives on."""
        if self._ended is False:
            self._end(error)
            _let_go(self)

    def drop(self) -> None:
        """End it without a word to the server."""
        if self._ended is False:
            self._end(True)

    def context(self) -> ToolContext:
        """Who asks, for making it again."""
        return ToolContext(identity=self._identity)

    def push(self, uri: str, *, gap: bool = False) -> None:
        """Take an update."""
        pending = self._pending
        if uri not in pending and len(pending) >= URIS_KEPT:
            pending.clear()
            uri, gap = self.uri, True
        pending[uri] = pending.get(uri, False) or gap
        self._wake()

    def fail(self, error: AfpoolError) -> None:
        """End it with an error."""
        if self._ended is False:
            self._end(error)
            forget(self)

    def _end(self, why: AfpoolError | bool) -> None:
        self._ended = why
        self._pending.clear()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    def _check(self) -> None:
        """End it if what it stands on no longer holds."""
        actor = self.binding.actor
        try:
            if actor.pool.closing or actor.machine.closed:
                raise PoolClosed("the pool is closing; no further update comes", delivery=NOT_SENT)
            if actor.machine.epoch != self.binding.epoch:
                raise epoch_over(actor.machine, self.binding.epoch)
            check_identity(actor, self._identity, self.binding.keyed_on)
            if ask_share(actor) != self.binding.authorization:
                raise BindingChanged(
                    "the authorization name of this identity has changed; bind the server again"
                )
        except AfpoolError as error:
            self.refuse(error)

    def __repr__(self) -> str:
        return f"<Subscription at {self.binding.actor.server.name}{'' if self.open else ', ended'}>"


# ---------------------------------------------------------------------------- the books of a key


def subscribe_errand(uri: str) -> Errand:
    """The request that subscribes."""
    return Errand("resources/subscribe", ("resources", "subscribe"), uri_members(uri), subject=uri)


def unsubscribe_errand(uri: str) -> Errand:
    """The request that unsubscribes."""
    return Errand("resources/unsubscribe", ("resources", "subscribe"), uri_members(uri), subject=uri)


def keep(subscription: Subscription) -> None:
    """Enter it into its key's books, before it is asked for: an update may come with the answer.

    Raises:
        Overloaded: The key has as many as it may.
    """
    actor = subscription.binding.actor
    watchers = actor.watchers
    if watchers is None:
        watchers = actor.watchers = {}
    limit = actor.pool.limits.max_subscriptions
    if sum(map(len, watchers.values())) >= limit:
        raise Overloaded(
            f"the key has {limit} subscriptions already (max_subscriptions); nothing was sent"
        ).saying("limit", "max_subscriptions")
    watchers.setdefault(subscription.uri, []).append(subscription)


def forget(subscription: Subscription) -> bool:
    """Take it out of the books; return whether it was the last one of its URI."""
    actor = subscription.binding.actor
    watchers = actor.watchers or {}
    same = watchers.get(subscription.uri, [])
    if subscription in same:
        same.remove(subscription)
    if same:
        return False
    watchers.pop(subscription.uri, None)
    if not watchers:
        actor.watchers = None
        if actor.machine.client is not None:
            actor.last_used = actor.pool.seams.now()
            actor.pool.janitor.wake()  # the client may be idle from now on
    return True


def of(actor: KeyActor, uri: str) -> list[Subscription]:
    """The subscriptions of a key to a URI."""
    return list((actor.watchers or {}).get(uri, ()))


def made(subscription: Subscription, call: Call) -> None:
    """The server has it. Called in the same step in which the answer is taken."""
    client = call.client
    assert client is not None
    subscription.client_id = client.id
    if client.id not in call.actor.pool.openings.clients:
        client_gone(call.actor, client)  # it went while it answered
    elif not subscription.open and client.retired is None:
        _let_go(subscription)  # it was ended while the server took it


def _let_go(subscription: Subscription) -> None:
    """Unsubscribe in the background if nobody else of the key waits for the URI."""
    pool = subscription.binding.actor.pool
    current = subscription.binding.actor.machine.client
    client = pool.openings.clients.get(subscription.client_id or (0 if current is None else current.id))
    if not forget(subscription) or client is None or client.lost is not None:
        return
    if client.stateless:
        client.listener.unwatch(subscription.uri)  # also one that was asked for and not granted yet
    elif pool.can_spawn and subscription.client_id is not None:
        pool.spawn(_unsubscribe, client, subscription.uri)


async def _unsubscribe(client: Client, uri: str) -> None:
    rpc = Rpc("resources/unsubscribe", request_params(uri_members(uri), meta=client.meta))
    with contextlib.suppress(AfpoolError):  # updates that nobody waits for are dropped
        await client.control(rpc, client.settings.control_timeout)


# ---------------------------------------------------------------------------- what clients tell


def updated(actor: KeyActor, client: Client, message: Message) -> None:
    """A `resources/updated` came. Synchronous; calls nobody."""
    if not actor.watchers:
        return
    uri = read_updated(message.params)
    if uri is None:
        return
    for watched, subscriptions in actor.watchers.items():
        if uri == watched or uri.startswith(watched):  # the specification lets it be a part of the resource
            for subscription in subscriptions:
                if subscription.client_id in (None, client.id):
                    subscription.push(uri)


def missed(actor: KeyActor, client: Client) -> None:
    """Updates may have been missed on a client that lives on."""
    for subscriptions in (actor.watchers or {}).values():
        for subscription in subscriptions:
            if subscription.client_id == client.id:
                subscription.push(subscription.uri, gap=True)


def client_gone(actor: KeyActor, client: Client) -> None:
    """A client is closed: its subscriptions are made again on the key's next one."""
    pool = actor.pool
    for uri in list(actor.watchers or ()):
        for subscription in of(actor, uri):
            if subscription.client_id != client.id:
                continue
            subscription.client_id = None
            if pool.closing or not pool.can_spawn:
                subscription.fail(
                    PoolClosed("the pool is closed; no further update comes", delivery=NOT_SENT)
                )
            else:
                pool.spawn(_make_again, subscription)


async def _make_again(subscription: Subscription) -> None:
    pool = subscription.binding.actor.pool
    delay = RETRY
    why: AfpoolError = PoolClosed("the pool is closed; no further update comes", delivery=NOT_SENT)

    def read(_: Received, call: Call) -> None:
        made(subscription, call)
        subscription.push(subscription.uri, gap=True)

    try:
        while subscription.open:
            try:
                await execute(
                    subscription.binding,
                    {},
                    subscription.context(),
                    subscribe_errand(subscription.uri),
                    read,
                )
            except AfpoolError as error:
                if error.code not in PASSING:
                    why = error
                    return
                wait = max(
                    delay * (1 + pool.seams.random.random()) / 2, min(error.retry_after or 0, RETRY_MAX)
                )
                delay = min(delay * 2, RETRY_MAX)
            else:
                return
            await trio.sleep(wait)
    finally:
        if subscription.client_id is None:
            subscription.fail(why)
