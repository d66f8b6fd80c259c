"""What a host offers to answer when a server asks: roots, samples, forms and addresses for a user.

An offer is part of a plan: what it declares is sent when a client is opened (in `initialize`, or in the
`_meta` of every stateless request) and belongs to the plan's context. The callables do not: a client keeps
those of the plan that it was opened from.

Whose request one is, is decided by the law in `afpool/protocol/_server_requests.py`; a handler is told by
`ServerRequest.operation` and must not guess where it is `None`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, final

import attrs

from ..protocol import (
    ELICITATION_CREATE,
    SAMPLING_CREATE,
    Capabilities,
    InvalidAnswer,
    check_answer,
    encode_json,
    with_defaults,
)

if TYPE_CHECKING:
    from .._base.identity import CallerIdentity, Identity
    from .._base.model import JsonObject

Action: TypeAlias = Literal["accept", "decline", "cancel"]

_MODES = ("form", "url")


@final
@attrs.frozen(kw_only=True)
class Operation:
    """The call that a server's request belongs to.

    Attributes:
        call_id: Of the call, stable over its attempts and rounds.
        name: The tool that was called.
        identity: The caller identity as the call was given it.
        deadline: Of the call, absolute, on trio's clock; its handlers end with it.
        chain: Tickets of the call and of those around it. A handler that calls a tool passes them on, so that
            its call does not wait for the place that this one holds.
    """

    call_id: str
    name: str
    identity: CallerIdentity = attrs.field(repr=False)
    deadline: float
    chain: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class ServerRequest:
    """One request of a server, as a handler gets it.

    Attributes:
        method: Such as `roots/list`.
        params: Its parameters as they came. They are the server's words.
        server: The server's name in the pool.
        projection: Whom the client acts for.
        operation: The call that it belongs to, or `None`: then it belongs to the key and to no call.
        key: The server's own word for it in an `input_required` result; `None` for a request of its own.
    """

    method: str
    params: JsonObject = attrs.field(repr=False)
    server: str
    projection: Identity
    operation: Operation | None = None
    key: str | None = None


@final
@attrs.frozen(kw_only=True)
class SampleRequest(ServerRequest):
    """`sampling/createMessage`: a server wants a model to answer."""

    @property
    def messages(self) -> list[Any]:
        """The conversation."""
        return list(self.params["messages"])

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that the server wants back."""
        value = self.params.get("maxTokens")
        return value if isinstance(value, int) else None

    @property
    def system_prompt(self) -> str | None:
        """What the server wants the model to be told first."""
        value = self.params.get("systemPrompt")
        return value if isinstance(value, str) else None


@final
@attrs.frozen(kw_only=True)
class ElicitRequest(ServerRequest):
    """`elicitation/create`: a server wants something of the user."""

    @property
    def mode(self) -> Literal["form", "url"]:
        """`form`: fill in `schema`. `url`: visit `url`."""
        return "url" if self.params.get("mode") == "url" else "form"

    @property
    def message(self) -> str:
        """The server's words for the user."""
        return str(self.params["message"])

    @property
    def schema(self) -> JsonObject:
        """The flat schema of a form; empty for an address."""
        return self.params.get("requestedSchema") or {}

    @property
    def url(self) -> str | None:
        """The address, `http` or `https`, to be shown in full.

        afpool never opens it, and nor should a host without its user's word.
        """
        return str(self.params["url"]) if self.mode == "url" else None

    @property
    def elicitation_id(self) -> str | None:
        """The server's name for it, where it has one."""
        value = self.params.get("elicitationId")
        return value if isinstance(value, str) else None

    def accept(self, content: JsonObject | None = None, *, defaults: bool = True) -> ElicitAnswer:
        """Answer for a user who agreed.

        Args:
            content: What the user filled in; none for an address.
            defaults: Complete it by the defaults of the schema (SEP-1034). Not where the user saw them and
                took one out.

        Raises:
            ValueError: The content does not fit the schema. Names the property, never its value.
        """
        if self.mode == "url":
            if content:
                raise InvalidAnswer("an address is accepted without content")
            return ElicitAnswer("accept")
        completed = with_defaults(self.schema, content) if defaults else dict(content or {})
        check_answer(self.schema, completed)
        return ElicitAnswer("accept", completed)

    def decline(self) -> ElicitAnswer:
        """Answer for a user who said no."""
        return ElicitAnswer("decline")

    def cancel(self) -> ElicitAnswer:
        """Answer for a user who went away without a choice."""
        return ElicitAnswer("cancel")


@final
@attrs.frozen
class ElicitAnswer:
    """What the user did.

    Attributes:
        action: `accept`, `decline` or `cancel`.
        content: The accepted form; never shown.
    """

    action: Action = attrs.field(validator=attrs.validators.in_(("accept", "decline", "cancel")))
    content: JsonObject | None = attrs.field(default=None, repr=False)


@final
@attrs.frozen(kw_only=True)
class SampleAnswer:
    """What the model said.

    Attributes:
        content: A content block, or a list of them.
        model: The model's name.
        role: Who speaks.
        stop_reason: Why it stopped, such as `endTurn`.
    """

    content: JsonObject | Sequence[JsonObject] = attrs.field(repr=False)
    model: str
    role: Literal["assistant", "user"] = "assistant"
    stop_reason: str | None = None


def _file_uri(_: object, __: object, value: str) -> None:
    if not isinstance(value, str) or not value.startswith("file://"):
        raise ValueError("a root is a file:// URI")


@final
@attrs.frozen
class Root:
    """A place that the server may work in.

    Attributes:
        uri: `file://...`.
        name: For people.
    """

    uri: str = attrs.field(validator=_file_uri)
    name: str | None = None


RootsHandler: TypeAlias = Callable[[ServerRequest], Awaitable[Sequence[Root]]]
SampleHandler: TypeAlias = Callable[[SampleRequest], Awaitable["SampleAnswer | JsonObject | None"]]
ElicitHandler: TypeAlias = Callable[[ElicitRequest], Awaitable["ElicitAnswer | JsonObject"]]


def _roots(value: Any) -> Any:
    if value is None or callable(value):
        return value
    return tuple(root if isinstance(root, Root) else Root(root) for root in value)


def _known_modes(_: object, __: object, value: tuple[str, ...]) -> None:
    if not value or any(mode not in _MODES for mode in value):
        raise ValueError(f"elicitation modes are of {_MODES}, not {value!r}")


def _above_zero(_: object, field: attrs.Attribute[Any], value: float) -> None:
    if not value > 0:
        raise ValueError(f"{field.name} must be positive, not {value!r}")


@final
@attrs.frozen(kw_only=True)
class ServerRequests:
    """What a host answers for one identity at one server. What is absent is not declared, and refused.

    Handlers of the handshake era run in tasks of the runtime, at most `max_handlers` at once per client; what
    comes beyond is answered with an error. Those of an `input_required` result run one after the other in the
    task of their call. Each is cancelled with its call or its client. One that raises costs its server an
    error without a text, and is logged by the type of what it raised.

    Attributes:
        roots: Places, as `Root` or URI, or a callable that is asked each time.
        sample: Answers `sampling/createMessage`; `None` says that the user rejected it.
        elicit: Answers `elicitation/create`.
        elicitation_modes: Of `form` and `url`.
        on_elicitation_complete: Told the `elicitation_id` of an address when the server says that what its
            user was sent there for is done, once each; a call that wanted it first may be made again. Of
            addresses that the same client was shown; called in a task of the runtime.
        sampling_tools: Whether `sample` understands tools.
        max_handlers: How many run at once per client.
        timeout: Seconds that a handler may take whose request belongs to no operation.
    """

    roots: Sequence[Root] | RootsHandler | None = attrs.field(default=None, converter=_roots)
    sample: SampleHandler | None = None
    elicit: ElicitHandler | None = None
    elicitation_modes: tuple[str, ...] = attrs.field(
        default=("form",), converter=tuple, validator=_known_modes
    )
    on_elicitation_complete: Callable[[str], object] | None = None
    sampling_tools: bool = False
    max_handlers: int = attrs.field(default=8, validator=_above_zero)
    timeout: float = attrs.field(default=60.0, validator=_above_zero)

    @property
    def capabilities(self) -> Capabilities:
        """What is declared."""
        return Capabilities(
            roots=self.roots is not None,
            sampling=self.sample is not None,
            sampling_tools=self.sample is not None and self.sampling_tools,
            elicitation=tuple(self.elicitation_modes) if self.elicit is not None else (),
        )

    async def answer(self, request: ServerRequest) -> bytes | None:
        """Let the handler of a request that `capabilities` allows answer it.

        Returns:
            The result, raw JSON; `None` where the user rejected it.

        Raises:
            Exception: What the handler raised, or what is wrong with its answer.
        """
        if isinstance(request, ElicitRequest):
            assert self.elicit is not None
            return _elicited(request, await self.elicit(request))
        if isinstance(request, SampleRequest):
            assert self.sample is not None
            return _sampled(await self.sample(request))
        roots: Any = self.roots
        if callable(roots):
            ask = cast("Callable[[ServerRequest], Awaitable[Any]]", roots)
            roots = _roots(await ask(request))
        return encode_json({"roots": [_without_none({"uri": root.uri, "name": root.name}) for root in roots]})


def make_request(
    method: str,
    params: Mapping[str, Any],
    server: str,
    projection: Identity,
    operation: Operation | None,
    key: str | None = None,
) -> ServerRequest:
    """Make the typed request of a method."""
    kind = {SAMPLING_CREATE: SampleRequest, ELICITATION_CREATE: ElicitRequest}.get(method, ServerRequest)
    return kind(
        method=method, params=params, server=server, projection=projection, operation=operation, key=key
    )


def _elicited(request: ElicitRequest, given: object) -> bytes:
    if isinstance(given, Mapping):
        given = ElicitAnswer(given.get("action"), given.get("content"))  # type: ignore[arg-type]  # validated
    if not isinstance(given, ElicitAnswer):
        raise TypeError(f"an elicitation is answered by an ElicitAnswer, not {type(given).__name__}")
    if given.action != "accept" or request.mode == "url":
        return encode_json({"action": given.action})
    content = dict(given.content or {})
    check_answer(request.schema, content)
    return encode_json({"action": "accept", "content": content})


def _sampled(given: object) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, SampleAnswer):
        given = _without_none(
            {
                "role": given.role,
                "content": given.content,
                "model": given.model,
                "stopReason": given.stop_reason,
            }
        )
    if not isinstance(given, Mapping) or not {"role", "content", "model"} <= given.keys():
        raise TypeError("a sample has a role, content and model")
    return encode_json(dict(given))


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
