"""HTTP+SSE (2024-11-05): one event stream for all answers, one POST for each message.

* A GET opens the stream; its first event, `endpoint`, says where messages are posted: a reference that must
  stay within the origin. Nothing is posted before.
* The stream is read by a task of its own, from its opening (`_sse_opening.py`) to its end. Each answer is
  told by its id to the trip that waits for it (`_sse_trip.py`); one for nobody is dropped and counted.
* An id is used once per client, and an answer to a request that has not begun to leave is nobody's: ids can
  be guessed.
* The loss of the stream is the loss of the incarnation and of every answer that is out.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar, Final, final

import trio

from .._base.errors import PoolClosed
from ..protocol import (
    EventTooLarge,
    Message,
    encode_notification,
    encode_request,
    same_origin_redirect,
)
from ..transports import BadHttp, HttpRequest, Truncated, WireClosed, origin_of
from ._answer_sink import messages_of, read_progress
from ._http_channel import Draft, with_headers
from ._resume import stream_request
from ._sse_opening import SseOpening
from ._sse_trip import SseTrip
from ._trip import Answer, Rpc, ignore_message, ignore_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import SseEvent
    from ..transports import Headers, HttpExchange, HttpxExchange
    from ._http_channel import Link

POST_LEFT: Final = 5.0


@final
class SseChannel:
    """One client's way to one HTTP+SSE server.

    Attributes:
        target: Path and query of the stream, and once it is open, of where messages are posted.
        headers: Sent with every request, lower-case pairs.
        on_message: Told of notifications and requests of the server.
        on_lost: Told once when the stream has ended.
        open: The server has said where messages go.
        foreign: It named a place of another origin, or none that can be read.
        dropped: Late answers and answers to nobody.
    """

    first_wait: ClassVar[str] = "connect"  # what a request waits for before it leaves

    __slots__ = (
        "_lost", "_next", "_pending", "_spawn", "dropped", "foreign", "headers", "link", "max_message",
        "movable", "on_lost", "on_message", "open", "target",
    )  # fmt: skip

    def __init__(
        self,
        link: Link,
        target: bytes,
        headers: Headers,
        max_message: int,
        spawn: Callable[..., None],
    ) -> None:
        self.link = link
        self.target = target
        self.headers = headers
        self.max_message = max_message
        self.movable = False
        self.on_message: Callable[[Message], None] = ignore_message
        self.on_lost: Callable[[str], None] = ignore_reason
        self.open = False
        self.foreign = False
        self.dropped = 0
        self._next = 0
        self._lost: str | None = None
        self._pending: dict[int, SseTrip] = {}
        self._spawn = spawn

    def trip(self, rpc: Rpc, headers: Headers) -> SseTrip | SseOpening:
        """Make a trip; nothing happens before its `run`. On the stream lane it opens the stream."""
        return self.signed_trip(self.draft(rpc, headers), [])

    def draft(self, rpc: Rpc, headers: Headers) -> Draft:
        """Make a request that lacks nothing but its signature; `signed_trip` sends it."""
        if rpc.lane == "stream":
            return Draft(with_headers(stream_request(self, []), headers), 0, rpc)
        self._next += 1
        request_id = self._next
        params = rpc.params
        if callable(params):
            params = params(request_id)
        body = (
            encode_notification(rpc.method, params)
            if rpc.notification
            else encode_request(request_id, rpc.method, params)
        )
        request = HttpRequest(b"POST", self.target, [*self.headers, *rpc.headers], body)
        return Draft(with_headers(request, headers), request_id, rpc)

    def signed_trip(self, draft: Draft, signature: Headers) -> SseTrip | SseOpening:
        """Make a trip of a draft: nothing of it changes, the signature is added."""
        request = with_headers(draft.request, signature)
        if draft.rpc.lane == "stream":
            return SseOpening(self, request)
        return SseTrip(self, request, draft.rpc, draft.request_id)

    def url(self) -> str:
        """Where requests go, whole."""
        return f"{self.link.origin.scheme}://{self.link.origin.authority.decode()}{self.target.decode()}"

    def kill(self) -> None:
        """Close every connection at once."""
        self.link.close()

    # ------------------------------------------------------------------ used by trips

    def expect(self, trip: SseTrip) -> None:
        """Wait for the answer of a trip's id.

        Raises:
            WireClosed: The stream has ended.
        """
        if self._lost is not None:
            raise WireClosed(self._lost, local=False)
        self._pending[trip.request_id] = trip

    def forget(self, trip: SseTrip) -> None:
        """Its answer is not waited for any more."""
        if self._pending.get(trip.request_id) is trip:
            del self._pending[trip.request_id]

    def read_on(self, exchange: HttpExchange | HttpxExchange) -> None:
        """Read an opened stream in the background, until it ends."""
        self._spawn(self._read, exchange)

    async def _read(self, exchange: HttpExchange | HttpxExchange) -> None:
        reason = "the event stream ended"
        try:
            if exchange.held:  # else its client was ended before this task had its first turn
                await exchange.finish()
        except (WireClosed, Truncated, BadHttp, EventTooLarge) as error:
            reason = f"the event stream was lost ({error})"
        finally:
            exchange.close()
            self._ended(reason)

    def read_out(self, exchange: HttpExchange | HttpxExchange) -> None:
        """Read a POST to its end whose answer has come already, so that its connection can serve again."""
        try:
            self._spawn(_read_out, exchange)
        except PoolClosed:
            exchange.close()

    # ------------------------------------------------------------------ told by the stream

    def event(self, event: SseEvent) -> bool:
        """Take an event of the stream; return whether the stream is of no use."""
        if event.event == "endpoint":
            if not self.open:
                self._endpoint(event.data)
            return self.foreign
        if event.event == "message":
            for message in messages_of(event):
                self._message(message)
        return False

    def _endpoint(self, data: bytes) -> None:
        address = same_origin_redirect(self.url(), data.strip())
        if address is None or origin_of(address)[0] != self.link.origin:
            self.foreign = True
            return
        self.target = origin_of(address)[1]
        self.open = True

    def _message(self, message: Message) -> None:
        if message.is_response:
            request_id = message.response_id
            trip = None if request_id is None else self._pending.get(request_id)
            if trip is None or not trip.begun:  # an id can be guessed before its request has left
                self.dropped += 1
            else:
                del self._pending[trip.request_id]
                trip.answer_came(Answer(message))
        elif message.method == "notifications/progress":
            read = read_progress(message)
            if read is not None and type(read[0]) is int and (trip := self._pending.get(read[0])):
                trip.progress_came(read[1])
        else:
            self.on_message(message)

    def _ended(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            pending, self._pending = self._pending, {}
            for trip in pending.values():
                trip.failed(WireClosed(reason, local=False))
            self.on_lost(reason)


async def _read_out(exchange: HttpExchange | HttpxExchange) -> None:
    # Its request is answered; how the POST ends says nothing.
    with trio.move_on_after(POST_LEFT), contextlib.suppress(Exception):
        await exchange.finish()
    exchange.close()
