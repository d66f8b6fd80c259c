"""One notification stream over HTTP: the request that opens it, what is read of it, what its refusal says.

* In the handshake era it is a GET, which names the last event that was seen (`Last-Event-ID`) unless the
  server has refused it for that. In 2026-07-28 it is a POST of `subscriptions/listen`, whose answer stays
  open; it is there when it is acknowledged, and over when it is answered.
* A refusal is read for two things: whether the server has such a stream at all, and when it wants to be asked
  again. A server that says it has none is believed; an outage says nothing of that. A 409 says that somebody
  else has the stream: half a minute.
* A 404 to the GET of a session whose stream was there before ends the session: the server no longer knows it.
* However a stream ends, it is lost and asked for again: nothing of it is raised.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

from ..protocol import (
    CONTENT_TYPE,
    LAST_EVENT_ID,
    METHOD,
    RETRY_AFTER,
    BodyKind,
    EventTooLarge,
    MalformedMessage,
    SseParser,
    body_kind,
    decode_error,
    decode_message,
    encode_request,
    parse_retry_after,
)
from ..transports import HttpRequest
from ._answer_sink import messages_of
from ._attempt import new_credential
from ._control import Control
from ._own import send_own
from ._resume import TOLD_MAX, event_id_header, stream_request
from ._trip import Answer, first_of

if TYPE_CHECKING:
    from ..protocol import Message, SseEvent
    from ..transports import Headers
    from ._attempt import Tries
    from ._http_channel import HttpChannel
    from ._listen import Listener

CONFLICT: Final = 409
CONFLICT_WAIT: Final = 30.0
BODY_BYTES: Final = 16 * 1024


async def listen_over_http(listener: Listener, channel: HttpChannel, tries: Tries) -> float:
    """Listen until the stream ends; return the seconds after which the server wants to be asked again.

    Args:
        listener: Told of what comes.
        channel: The client's.
        tries: What the credential provider is to know of the stream's last answer.
    """
    client = listener.client
    sink = _StreamSink(listener, channel)
    if client.stateless:
        listener.subscription = channel.next_id()
        body = encode_request(listener.subscription, "subscriptions/listen", listener.params())
        headers: Headers = [*channel.headers, (METHOD, b"subscriptions/listen")]
        request = HttpRequest(b"POST", channel.target, headers, body)
    else:
        resume = [] if listener.last_event_id is None else [(LAST_EVENT_ID, listener.last_event_id)]
        request = stream_request(channel, resume)
    gate = Control(client, float("inf"))
    with contextlib.suppress(Exception):  # however it ends, it is lost and asked for again
        await send_own(
            client, request.method, [*request.headers], sink,
            lane="stream", gate=gate, deadline=float("inf"), body=request.body, tries=tries,
        )  # fmt: skip
    if sink.status == 401:
        new_credential(Answer(None, 401, sink.headers), tries)
    if not sink.good and sink.status:
        return _refused(listener, sink, resumed=listener.last_event_id is not None)
    return listener.retry


def _refused(listener: Listener, sink: _StreamSink, *, resumed: bool) -> float:
    """Read an answer that is no event stream; return the seconds to leave the server alone for."""
    status, client = sink.status, listener.client
    if client.stateless:
        message = sink.message()
        if status not in (200, 400, 404, 405, 406, 415, 501):
            pass  # an outage, or a credential: it may listen later
        elif message is not None and message.is_error:
            listener.failed(decode_error(message.error).code)
        else:
            listener.became("unsupported")
    elif status == 404 and listener.was_there and client.has_session:
        client.lose("session expired")
    elif status == 400 and resumed:
        listener.last_event_id = None  # it knows nothing of that event any more; without one it may listen
    elif status in (404, 405, 406, 415, 501):
        listener.became("unsupported")
    if status == CONFLICT:
        return CONFLICT_WAIT
    wait = parse_retry_after(sink.retry_after, client.settings.seams.unix_now())
    return 0.0 if wait is None else min(wait, TOLD_MAX)


@final
class _StreamSink:
    """Reads the events of a notification stream, or the refusal of one.

    Attributes:
        good: It is an event stream.
    """

    __slots__ = ("_body", "_channel", "_listener", "_parser", "good", "headers", "retry_after", "status")

    def __init__(self, listener: Listener, channel: HttpChannel) -> None:
        self._listener = listener
        self._channel = channel
        self._parser = SseParser(channel.max_message)
        self._body = bytearray()
        self.good = False
        self.headers: Headers = []
        self.retry_after: bytes | None = None
        self.status = 0

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        self.retry_after = first_of(headers, RETRY_AFTER)
        self.good = status == 200 and body_kind(first_of(headers, CONTENT_TYPE)) is BodyKind.SSE
        if self.good:
            self._listener.streaming()

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece; of a body that is no event stream, only its first bytes are of use."""
        if not self.good:
            self._body += chunk[: BODY_BYTES - len(self._body)]
            return len(self._body) >= BODY_BYTES
        events: list[SseEvent]
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as error:
            events = error.events
            over = True
        else:
            over = False
        listener = self._listener
        for event in events:
            if event.retry is not None:
                listener.retry = min(event.retry / 1000, TOLD_MAX)
            if event.id is not None and not listener.client.stateless:
                listener.last_event_id = event_id_header(event.id)
            if self._take(event):
                return True  # the subscription has ended in order
        return over

    def _take(self, event: SseEvent) -> bool:
        for message in messages_of(event):
            if message.is_response:
                return True
            if self._listener.belongs(message):
                self._channel.on_message(message)
        return False

    def message(self) -> Message | None:
        """The JSON-RPC message of a refusal, if it holds one."""
        try:
            return decode_message(bytes(self._body))
        except MalformedMessage:
            return None
