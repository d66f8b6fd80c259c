"""What a rule makes the server do instead of answering as usual.

An action is data: a small frozen object that says what happens, and nothing about how. The fronts for HTTP,
for WebSocket and for a stdio child each carry it out in their own way; where an action means nothing on
stdio (an HTTP status), the child refuses the script that names it.

`Delay` and `Hold` wait and then let the next matching rule decide, or the server answer as usual. All
others decide the answer. Of those, `after_execution=True` means: do first what the request asks for
(run the tool, open the session), then answer as scripted. That is how a call that ran and whose answer
got lost is made.
"""

from __future__ import annotations

import enum
import json
import math
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import trio


class _Same(enum.Enum):
    SAME_ID = "same"

    def __repr__(self) -> str:
        return "SAME_ID"


SAME_ID: Final = _Same.SAME_ID
"""Answer under the id of the request (the default); any other value makes the answer's id wrong."""

REQUEST_ID: Final = b"@request-id@"
"""Where it stands in the bytes of a `Body` or of `RawBytes`, the id of the request is sent, as JSON."""

AnswerId: TypeAlias = str | int | Literal[_Same.SAME_ID] | None


@attrs.frozen
class Action:
    """Root of all actions."""

    # False for what has no meaning on a line of stdout.
    on_stdio: ClassVar[bool] = True


@attrs.frozen
class Wait(Action):
    """Root of the actions that wait and then go on."""


@attrs.frozen
class Answering(Action):
    """Root of the actions that decide the answer."""

    after_execution: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Delay(Wait):
    """Wait for `seconds` on trio's clock, then go on with the next rule or as usual."""

    seconds: float


@attrs.frozen(eq=False)
class Hold(Wait):
    """Wait until the test sets `event`, then go on with the next rule or as usual."""

    event: trio.Event


@attrs.frozen
class Drop(Answering):
    """End the connection without an answer; on stdio the child exits.

    Args:
        reset: End it by a TCP reset instead of an orderly close.
        exit_code: What the child exits with (stdio).
    """

    reset: bool = False
    exit_code: int = 1


@attrs.frozen
class Truncate(Answering):
    """Announce the usual answer in full, send its first `at` bytes (None: half), end the connection.

    On a WebSocket the frame is cut.

    The request is always executed: this cuts a real answer.
    """

    at: int | None = None


@attrs.frozen
class Hang(Answering):
    """Never answer. The connection stays open until the client closes it."""


@attrs.frozen
class Status(Answering):
    """Answer with an HTTP status.

    Args:
        code: The status.
        headers: Response headers besides the content type and length.
        body: Sent as text unless `headers` names another content type.
        json: Sent instead of `body`, as `application/json`.
    """

    on_stdio: ClassVar[bool] = False
    code: int
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    json: Any = None


@attrs.frozen
class RawBytes(Answering):
    """Send bytes as they are, in place of an HTTP response, a line on stdout or a WebSocket frame.

    See `REQUEST_ID`.

    Args:
        data: The bytes.
        close: End the connection afterwards. False leaves it open and silent until the client closes it;
            on stdio the child lives on in both cases.
    """

    data: bytes
    close: bool = True


@attrs.frozen
class CloseFrame(Answering):
    """Close the WebSocket with a code instead of answering; it means nothing elsewhere.

    Args:
        code: Such as 1000 (done), 1001 (going away), 1011 (failed inside).
        reason: Text beside it.
    """

    on_stdio: ClassVar[bool] = False
    code: int = 1000
    reason: str = ""


@attrs.frozen
class JsonRpcError(Answering):
    """Answer with a JSON-RPC error.

    Args:
        code: JSON-RPC error code.
        message: Its text.
        data: Its `data` member; None leaves it out.
        status: The HTTP status around it.
        headers: Further response headers.
        id: The id of the answer.
    """

    code: int
    message: str = "scripted error"
    data: Any = None
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    id: AnswerId = SAME_ID


@attrs.frozen
class Result(Answering):
    """Answer with this result object, whatever the method asks for."""

    result: Any
    id: AnswerId = SAME_ID


@attrs.frozen
class Body(Answering):
    """Answer with these bytes as the body of a 200; on stdio as one line, on a WebSocket as one message.

    See `REQUEST_ID`.
    """

    data: bytes
    content_type: str = "application/json"
    status: int = 200


@attrs.frozen
class HoldStream(Answering):
    """Open an event stream as the answer, send `first` on it, and keep it open without an answer."""

    first: Sequence[Mapping[str, Any]] = ()


@attrs.frozen
class Sse(Answering):
    """Answer as usual, as an event stream in an unusual spelling.

    The request is always executed. On stdio this changes nothing.

    Args:
        before: Raw bytes ahead of the answer's event: comments, priming events, half a blank line.
        after: Raw bytes behind it.
        newline: How lines end.
        split: Size in bytes of the pieces that the stream is written in; None writes it at once.
        event_id: The `id` field of the answer's event.
        close: End the connection afterwards instead of ending the chunked body.
    """

    before: bytes = b""
    after: bytes = b""
    newline: str = "\n"
    split: int | None = None
    event_id: str | None = None
    close: bool = False


@attrs.frozen
class BreakOff(Answering):
    """Execute as usual, but end the event stream of the answer early; the rest is kept for who asks for it.

    The stream opens with a priming event. A GET with `Last-Event-ID` that names it (or any other event of the
    same answer) is answered by what follows. On stdio this changes nothing.

    Args:
        event_id: Id of the priming event; further ones are `<event_id>.1`, `.2`, ... Of further ones in the
            same session it is `<event_id>-2`, `-3`, ...
        retry: Milliseconds after which the server wants to be asked; None names none.
        times: How many GETs are ended early as well, after one more priming event each.
        replay: Each GET repeats all that was sent before, whatever it asks for.
        before: Raw bytes on the first stream, behind the priming event.
        cut: Break the connection instead of ending the stream in order.
    """

    event_id: str = "1"
    retry: int | None = None
    times: int = 0
    replay: bool = False
    before: bytes = b""
    cut: bool = False


@attrs.frozen
class Flood(Answering):
    """Send the same bytes over and over.

    In an event stream over HTTP, as they are on stdio, as one message each on a WebSocket.

    Args:
        data: What is sent each time: whole events or lines, most usefully. See `REQUEST_ID`.
        times: How often, and then answer as usual. None floods until the client closes; on stdio the child
            goes on serving beside it.
    """

    data: bytes
    times: int | None = None


_BY_NAME: Final[Mapping[str, type[Action]]] = {
    kind.__name__: kind
    for kind in (
        Delay, Drop, Truncate, Hang, Status, RawBytes, CloseFrame, JsonRpcError, Result, Body, HoldStream,
        Sse, BreakOff, Flood,
    )
}  # fmt: skip

_BYTES: Final = frozenset(
    {
        ("RawBytes", "data"),
        ("Body", "data"),
        ("Status", "body"),
        ("Sse", "before"),
        ("Sse", "after"),
        ("BreakOff", "before"),
        ("Flood", "data"),
    }
)


def with_id(data: bytes, rpc_id: object) -> bytes:
    """Put the request's id where `REQUEST_ID` stands."""
    return data.replace(REQUEST_ID, json.dumps(rpc_id).encode()) if REQUEST_ID in data else data


def flooded(action: Flood, rpc_id: object, *, joined: bool = True) -> Iterator[bytes]:
    """What a flood sends, one by one or joined to pieces of about 64 KB."""
    data = with_id(action.data, rpc_id)
    left = math.inf if action.times is None else action.times
    at_once = max(1, 65536 // max(1, len(data))) if joined else 1
    while left > 0:
        yield data * int(min(left, at_once))
        left -= at_once


def action_from_json(spec: Mapping[str, Any]) -> Action:
    """Build an action from `{"do": <class name>, <argument>: <value>, ...}`.

    Bytes are given as text. `Hold` has no such form: an event of the test's own process cannot be sent.

    Raises:
        ValueError: The name is unknown, or the arguments do not fit it.
    """
    arguments = dict(spec)
    name = arguments.pop("do", None)
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"unknown action {name!r}; there are {', '.join(sorted(_BY_NAME))}")
    for argument, value in arguments.items():
        if (kind.__name__, argument) in _BYTES and isinstance(value, str):
            arguments[argument] = value.encode()
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"action {name}: {error}") from None
