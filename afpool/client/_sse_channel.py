"""HTTP+SSE (2024-11-05): one event stream for all answers, one POST for each message.

* A GET opens the stream; its first event, `endpoint`, says where messages are posted: a reference that must
  stay within the origin. Nothing is posted before.
* The POST carries the request, so its first byte is the request's, under the gate. A 2xx says that the
  message was taken and nothing more; the answer comes on the stream, told by its id. It may overtake its own
  202: it is then the caller's at once, and the POST is read to its end in the background.
* A POST that is refused ends the request there. One that breaks leaves it in doubt, though its answer may
  still come: nobody says that it will.
* The loss of the stream is the loss of the incarnation and of every answer that is out.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import PoolClosed
from ..protocol import (
    BodyKind,
    EventTooLarge,
    MalformedMessage,
    Message,
    SseParser,
    body_kind,
    decode_messages,
    encode_notification,
    encode_request,
    same_origin_redirect,
)
from ..transports import BadHttp, HttpRequest, Truncated, WireClosed, Woken, origin_of
from ._http_channel import AnswerSink, Draft, read_progress, with_headers
from ._resume import stream_request
from ._trip import Answer, Rpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.gate import Gate
    from .._base.model import Progress
    from ..protocol import SseEvent
    from ..transports import Headers, HttpExchange, HttpxExchange
    from ._http_channel import Link

HINT_BYTES: Final = 2048
PROGRESS_KEPT: Final = 32
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
        self.on_message: Callable[[Message], None] = _ignore
        self.on_lost: Callable[[str], None] = _ignore_reason
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
        if not event.data or event.event != "message":
            return False
        try:
            messages = decode_messages(event.data)
        except MalformedMessage:
            return False
        for message in messages:
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


@final
class SseOpening:
    """The GET that opens the stream: over when the server has said where messages go, or will not."""

    __slots__ = ("_channel", "_exchange", "_passed", "_sink", "request_id", "size")

    def __init__(self, channel: SseChannel, request: HttpRequest) -> None:
        self.request_id = 0
        self.size = 0
        self._channel = channel
        self._passed = False
        self._sink = _StreamSink(channel)
        self._exchange = channel.link.exchange(request, self._sink, "stream")
        self._sink.exchange = self._exchange

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._exchange.begun

    @property
    def answered(self) -> bool:
        """Its answer has come."""
        return self._sink.status != 0

    @property
    def over(self) -> bool:
        """Nothing more is to come of the opening itself."""
        return self._passed or not self._exchange.held

    async def run(self, gate: Gate, deadline: float) -> Answer:
        """Open; `channel.open` says whether it is. Raises what an exchange raises."""
        try:
            await self._exchange.run(gate, deadline)
        except Woken:
            if not self._channel.open:
                raise
            self._passed = True
            self._channel.read_on(self._exchange)
            return self._sink.answer()
        self._channel.open = False  # it ended as soon as it was opened
        return self._sink.answer()

    async def finish(self) -> Answer:
        """An opening is not handed over; it is closed."""
        raise RuntimeError("the opening of a stream cannot be taken over")

    def wake(self) -> None:
        """Make the task that waits raise `Woken`."""
        self._exchange.wake()

    def close(self) -> None:
        """Close the connection, unless the stream is open."""
        if not self._passed:
            self._exchange.close()


@final
class _StreamSink:
    """Reads the stream into its channel, or the refusal of one into an answer."""

    __slots__ = ("_channel", "_headers", "_hint", "_kind", "_parser", "_told", "exchange", "status")

    def __init__(self, channel: SseChannel) -> None:
        self._channel = channel
        self._parser: SseParser | None = None
        self._headers: Headers = []
        self._hint = bytearray()
        self._kind = BodyKind.EMPTY
        self._told = False
        self.exchange: HttpExchange | HttpxExchange | None = None
        self.status = 0

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        self.status = status
        self._headers = headers
        self._kind = body_kind(next((value for name, value in headers if name == b"content-type"), None))
        if status == 200 and self._kind is BodyKind.SSE:
            self._parser = SseParser(self._channel.max_message)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece; what is no event stream, or none that can be used, is not read on.

        Raises:
            EventTooLarge: The stream cannot be read on.
        """
        if self._parser is None:
            self._hint += chunk[: HINT_BYTES - len(self._hint)]
            return len(self._hint) >= HINT_BYTES
        for event in self._parser.feed(chunk):
            if self._channel.event(event):
                return True
        if self._channel.open and not self._told:
            self._told = True
            assert self.exchange is not None
            self.exchange.wake()  # whoever opened it may go; the rest is read in the background
        return False

    def answer(self) -> Answer:
        """What has come, as an opening sees it."""
        return Answer(None, self.status, self._headers, self._kind, bytes(self._hint))


@final
class SseTrip:
    """One message, posted, and unless it is a notification, its answer on the stream."""

    __slots__ = (
        "_answer", "_channel", "_error", "_exchange", "_gone", "_news", "_notification", "_on_progress",
        "_progress", "_sink", "_woken", "request_id", "size",
    )  # fmt: skip

    def __init__(self, channel: SseChannel, request: HttpRequest, rpc: Rpc, request_id: int) -> None:
        self.request_id = request_id
        self.size = len(request.body)
        self._channel = channel
        self._notification = rpc.notification
        self._on_progress = rpc.on_progress
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_KEPT)
        self._sink = AnswerSink(channel.max_message, channel.on_message, None)
        self._exchange: HttpExchange | HttpxExchange = channel.link.exchange(request, self._sink, rpc.lane)
        self._news = trio.Event()
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._woken = False
        self._gone = False

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._exchange.begun

    @property
    def answered(self) -> bool:
        """Its answer has come."""
        return self._answer is not None

    @property
    def over(self) -> bool:
        """Nothing more is to come."""
        return self._gone or self._answer is not None or self._error is not None

    async def run(self, gate: Gate, deadline: float) -> Answer:
        """Post under the gate and wait for the answer; raises what an exchange raises."""
        if not self._notification:
            self._channel.expect(self)
        try:
            await self._posted(lambda: self._exchange.run(gate, deadline))
            return await self._wait()
        except (Woken, trio.Cancelled):
            if not self._exchange.begun:
                self._give_up()
            raise
        except BaseException:
            self._give_up()
            raise

    async def finish(self) -> Answer:
        """Wait on after a hand-over."""
        self._on_progress = None
        if self._exchange.held:
            await self._posted(self._exchange.finish)
        return await self._wait()

    async def _posted(self, go: Callable[[], Awaitable[None]]) -> None:
        """Have the POST answered, unless the answer to the request itself comes first."""
        try:
            await go()
        except Woken:
            if self._answer is None and self._error is None:
                self._woken = False
                raise
            if self._exchange.held:
                self._channel.read_out(self._exchange)
            return
        answer = self._sink.answer()
        taken = answer.status is not None and 200 <= answer.status < 300
        if self._notification or not taken or answer.message is not None:
            self._channel.forget(self)
            self._answer = answer

    async def _wait(self) -> Answer:
        while True:
            while self._progress and self._on_progress is not None:
                self._on_progress(self._progress.popleft())
            if self._answer is not None:
                return self._answer
            if self._error is not None:
                raise self._error
            if self._woken:
                self._woken = False
                raise Woken
            self._news = trio.Event()
            await self._news.wait()

    def wake(self) -> None:
        """Make the task that waits raise `Woken`; an answer that came goes first."""
        self._woken = True
        self._tell()

    def close(self) -> None:
        """Give up on the answer; the id is not used again."""
        self._give_up()
        if self._answer is None:
            self._exchange.close()

    def _give_up(self) -> None:
        self._gone = True
        self._channel.forget(self)

    def _tell(self) -> None:
        self._exchange.wake()
        self._news.set()

    # ------------------------------------------------------------------ told by the channel

    def answer_came(self, answer: Answer) -> None:
        """Its answer."""
        self._answer = answer
        self._tell()

    def failed(self, error: BaseException) -> None:
        """No answer will come."""
        self._error = error
        self._tell()

    def progress_came(self, progress: Progress) -> None:
        """Keep it; the callback runs in the task of the caller."""
        if self._on_progress is not None:
            self._progress.append(progress)
            self._news.set()


async def _read_out(exchange: HttpExchange | HttpxExchange) -> None:
    # Its request is answered; how the POST ends says nothing.
    with trio.move_on_after(POST_LEFT), contextlib.suppress(Exception):
        await exchange.finish()
    exchange.close()


def _ignore(_: Message) -> None:
    """Take a message that nobody waits for."""


def _ignore_reason(_: str) -> None:
    """Take a reason that nobody waits for."""
