"""HTTP replies of the fake, before they become bytes, and the refusals that real servers send.

The spellings are those of servers in use: they name the wrong id, or none, and one of them sends a
session id along with a refusal. A client that trusts either is wrong, and meets it here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs
import trio

from ._actions import SAME_ID, AnswerId, Answering, Body, JsonRpcError, Result, Status, with_id
from ._envelope import INVALID_REQUEST, Dialect, Message, RpcId, encode, error_message, result_message
from ._exchange import Listener, LostSpelling, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SSE_TYPE: Final = "text/event-stream"
JSON_TYPE: Final = "application/json"


@attrs.frozen(eq=False)
class Reply:
    """One HTTP response.

    Attributes:
        status: HTTP status.
        body: Its body; of a reply with a `message`, that message in JSON.
        content_type: None for a response without a body.
        headers: Further headers.
        message: A JSON-RPC message that may as well be sent as an event.
        stream: Makes the response an event stream that starts with `message` and stays open.
    """

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    message: Message | None = None
    stream: EventStream | None = None


@attrs.frozen(eq=False)
class EventStream:
    """An open event stream: its place among the listeners, and the queue of what is to be sent.

    An item of the queue is a message and whether it is the last; the message of the last may be absent.
    """

    listener: Listener
    queue: trio.MemoryReceiveChannel[tuple[Message | None, bool]]


def json_reply(message: Message, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON-RPC message as the body."""
    return Reply(status, encode(message), JSON_TYPE, headers or {}, message)


def text_reply(status: int, text: str, headers: Mapping[str, str] | None = None) -> Reply:
    """Plain text as the body."""
    return Reply(status, text.encode(), "text/plain; charset=utf-8", headers or {})


def empty_reply(status: int, headers: Mapping[str, str] | None = None) -> Reply:
    """No body."""
    return Reply(status, headers=headers or {})


def missing_session(dialect: Dialect, new_id: Callable[[], str]) -> Reply:
    """The answer to a request that should have named a session, a stateless probe for one."""
    if dialect == "typescript":
        return json_reply(error_message(None, -32000, "Bad Request: Server not initialized"), 400)
    refusal = error_message("server-error", INVALID_REQUEST, "Bad Request: Missing session ID")
    return json_reply(refusal, 400, {"mcp-session-id": new_id()})


def lost_session(spelling: LostSpelling) -> Reply:
    """The answer to a request that names a session which is not known, or no longer."""
    if spelling == "404":
        return json_reply(error_message(None, INVALID_REQUEST, "Session not found"), 404)
    if spelling == "404-text":
        return text_reply(404, "Session not found")
    if spelling == "400-json":
        refusal = error_message(None, -32000, "Bad Request: No valid session ID provided")
        del refusal["id"]
        return json_reply(refusal, 400)
    return text_reply(400, "Bad Request: No valid session ID provided")


def event(message: Message, *, newline: str = "\n", event_id: str | None = None) -> bytes:
    """A JSON-RPC message as one server-sent event."""
    lines = [b"event: message"]
    if event_id is not None:
        lines.append(b"id: " + event_id.encode())
    lines.append(b"data: " + encode(message))
    end = newline.encode()
    return end.join(lines) + end + end


@attrs.define(eq=False)
class Kept:
    """What is left of an answer whose stream was ended early (see `BreakOff`).

    Attributes:
        session: Whose it is; nobody else gets it.
        sent: What has been sent of it.
        primed: How many priming events are among that.
        answer: Its last event.
        times: How many further streams are to be ended early.
        ids: Of the events that it may be asked for by.
    """

    session: Session | None
    event_id: str
    retry: int | None
    answer: bytes
    times: int
    replay: bool
    sent: bytes = b""
    primed: int = 0
    ids: set[str] = attrs.field(factory=set)

    def prime(self) -> bytes:
        """Make the next priming event."""
        event_id = f"{self.event_id}.{self.primed}" if self.primed else self.event_id
        self.primed += 1
        self.ids.add(event_id)
        retry = b"" if self.retry is None else b"retry: %d\n" % self.retry
        return b"id: %b\n%bdata:\n\n" % (event_id.encode(), retry)

    def rest(self) -> bytes:
        """What a GET is answered by now."""
        before = self.sent if self.replay else b""
        if self.times == 0:
            return before + self.answer
        self.times -= 1
        primed = self.prime()
        self.sent += primed
        return before + primed


def open_event_stream(*, subscription_id: RpcId = None, methods: frozenset[str] | None = None) -> EventStream:
    """A listener whose messages are queued until its connection has sent them."""
    send, receive = trio.open_memory_channel[tuple[Message | None, bool]](math.inf)
    listener = Listener(
        lambda message: send.send_nowait((message, False)),
        lambda final: send.send_nowait((final, True)),
        subscription_id=subscription_id,
        methods=methods,
    )
    return EventStream(listener, receive)


def scripted_reply(action: Answering, rpc_id: RpcId) -> Reply:
    """The reply of an action that names its whole answer."""
    if isinstance(action, Status):
        if action.json is not None:
            return Reply(action.code, encode(action.json), JSON_TYPE, action.headers)
        content_type = "text/plain; charset=utf-8" if action.body else None
        return Reply(action.code, action.body, content_type, action.headers)
    if isinstance(action, JsonRpcError):
        message = error_message(_answer_id(action.id, rpc_id), action.code, action.message, action.data)
        return json_reply(message, action.status, action.headers)
    if isinstance(action, Result):
        return json_reply(result_message(_answer_id(action.id, rpc_id), action.result))
    if isinstance(action, Body):
        return Reply(action.status, with_id(action.data, rpc_id), action.content_type)
    raise TypeError(f"{type(action).__name__} is no answer over HTTP")


def _answer_id(wanted: AnswerId, rpc_id: RpcId) -> RpcId:
    return rpc_id if wanted is SAME_ID else wanted
