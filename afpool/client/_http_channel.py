"""Requests as HTTP exchanges: one POST each, the answer as JSON or as an event stream.

Answers are correlated by exchange, not by id: servers put wrong ids, and none, on errors. An event stream
that ends early may be taken up again: `_resume.py`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import ANSWERED, TooLarge
from .._base.model import Progress
from ..protocol import (
    BodyKind,
    EventTooLarge,
    MalformedMessage,
    Message,
    SseParser,
    body_kind,
    decode_json,
    decode_messages,
    encode_notification,
    encode_request,
)
from ..transports import HttpLink, HttpRequest, Truncated, WireClosed, Woken
from ._header_rules import merged
from ._resume import Resumption, event_id_header
from ._trip import Answer, Rpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..protocol import SseEvent
    from ..transports import Headers, HttpExchange, HttpxExchange, HttpxLink, Origin
    from ._client import Client
    from ._trip import Caller

    Link: TypeAlias = HttpLink | HttpxLink

HINT_BYTES: Final = 2048
IDS_KEPT: Final = 10_000
SMALL_PIECE: Final = 1024


@final
class Draft:
    """A request that is whole but for its signature.

    Attributes:
        request: Every byte of it, as it will be sent.
        request_id: The id that its body holds.
        rpc: What it was made from.
    """

    __slots__ = ("request", "request_id", "rpc")

    def __init__(self, request: HttpRequest, request_id: int, rpc: Rpc) -> None:
        self.request = request
        self.request_id = request_id
        self.rpc = rpc


@final
class HttpChannel:
    """One client's way to one HTTP endpoint.

    Attributes:
        target: Path and query; a redirect to the same origin changes it.
        headers: Sent with every request, lower-case pairs.
        on_message: Told of notifications and requests that come on any stream.
        movable: Whether `http` may become `https` where the server says so.
        resumes: The client whose answers may be asked for again where their stream ends early; `None` where
            its protocol version knows no such thing, and while it is being opened.
    """

    __slots__ = (
        "_before", "_next", "headers", "link", "max_message", "movable", "on_message", "resumes", "target",
    )  # fmt: skip

    def __init__(
        self, link: Link, target: bytes, headers: Headers, max_message: int, *, movable: bool = True
    ) -> None:
        self.link = link
        self.target = target
        self.headers = headers
        self.max_message = max_message
        self.movable = movable
        self.on_message: Callable[[Message], None] = _ignore
        self.resumes: Client | None = None
        self._before: Link | None = None
        self._next = 0

    def next_id(self) -> int:
        """Count one more request of this client."""
        self._next += 1
        return self._next

    def trip(self, rpc: Rpc, headers: Headers) -> HttpTrip:
        """Make a trip; nothing happens before its `run`."""
        return HttpTrip(self, self._request(rpc, headers), rpc, self._next)

    def draft(self, rpc: Rpc, headers: Headers) -> Draft:
        """Make a request that lacks nothing but its signature; `signed_trip` sends it."""
        return Draft(self._request(rpc, headers), self._next, rpc)

    def _request(self, rpc: Rpc, headers: Headers) -> HttpRequest:
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
        pairs = [*self.headers, *rpc.headers]
        if headers:
            pairs = merged(pairs, headers)
        return HttpRequest(b"POST", self.target, pairs, body)

    def signed_trip(self, draft: Draft, signature: Headers) -> HttpTrip:
        """Make a trip of a draft: nothing of it changes, the signature is added."""
        return HttpTrip(self, with_headers(draft.request, signature), draft.rpc, draft.request_id)

    def move(self, origin: Origin) -> None:
        """Use connections to another origin from now on; what is on the way on the old ones ends there."""
        assert isinstance(self.link, HttpLink)
        self._before = self.link
        self.link = self.link.moved(origin)

    def url(self) -> str:
        """Where requests go, whole."""
        origin = self.link.origin
        return f"{origin.scheme}://{origin.authority.decode()}{self.target.decode()}"

    def kill(self) -> None:
        """Close every connection at once."""
        self.link.close()
        if self._before is not None:
            self._before.close()


def with_headers(request: HttpRequest, headers: Headers) -> HttpRequest:
    """The same request with further headers, which replace those of the same name."""
    if not headers:
        return request
    return HttpRequest(request.method, request.target, merged([*request.headers], headers), request.body)


@final
class HttpTrip:
    """One POST and its answer."""

    __slots__ = ("_channel", "_exchange", "_lane", "_rest", "_sink", "request_id", "size")

    def __init__(self, channel: HttpChannel, request: HttpRequest, rpc: Rpc, request_id: int) -> None:
        self.request_id = request_id
        self.size = len(request.body)
        self._channel = channel
        self._lane = rpc.lane
        self._rest: Resumption | None = None
        on_message = channel.on_message if rpc.on_message is None else rpc.on_message
        self._sink = AnswerSink(channel.max_message, on_message, rpc.on_progress)
        self._exchange: HttpExchange | HttpxExchange = channel.link.exchange(request, self._sink, rpc.lane)

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._exchange.begun

    @property
    def answered(self) -> bool:
        """Its answer has come; one without a JSON-RPC message is a sign of life all the same."""
        return self._sink.message is not None or (self._rest is None and self._exchange.complete)

    @property
    def over(self) -> bool:
        """Nothing more is to come."""
        return not self._exchange.held if self._rest is None else self._rest.over

    async def run(self, gate: Caller, deadline: float) -> Answer:
        """Send under the gate and wait for the answer; raises what the exchange raises.

        Raises:
            ResumeFailed: The answer's stream ended early, and the rest of it cannot be had.
        """
        try:
            await self._exchange.run(gate, deadline)
        except (Truncated, WireClosed) as error:
            if (isinstance(error, WireClosed) and error.local) or not self._may_go_on():
                raise
        else:
            if self._sink.message is not None or not self._may_go_on():
                return self._sink.answer()
        self._rest = Resumption(self._channel, self._sink, self.request_id, self._lane, gate)
        try:
            await self._rest.run(deadline)
        except (Woken, trio.Cancelled):
            raise  # handed over: a cancel notice is still to be sent
        except BaseException:
            self._rest.over = True
            raise
        return self._sink.answer()

    def _may_go_on(self) -> bool:
        parser = self._sink.parser
        return (
            parser is not None
            and self._sink.status == 200
            and self._channel.resumes is not None
            and event_id_header(parser.last_event_id) is not None
        )

    async def finish(self) -> Answer:
        """Wait on after a hand-over."""
        self._sink.on_progress = None
        if self._rest is None:
            await self._exchange.finish()
        else:
            await self._rest.finish()
        return self._sink.answer()

    def wake(self) -> None:
        """Make the task that waits raise `Woken`."""
        if self._rest is None:
            self._exchange.wake()
        else:
            self._rest.wake()

    def close(self) -> None:
        """Close the connection: the end of the response stream, if there was one."""
        if self._rest is None:
            self._exchange.close()
        else:
            self._rest.close()


@final
class AnswerSink:
    """Collects one answer: a JSON body up to the cap, or an event stream up to the response in it."""

    __slots__ = (
        "_chunks",
        "_ids",
        "_max",
        "_on_message",
        "headers",
        "kind",
        "message",
        "on_progress",
        "parser",
        "size",
        "status",
    )

    def __init__(
        self,
        max_message: int,
        on_message: Callable[[Message], None],
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        self._max = max_message
        self._on_message = on_message
        self.on_progress = on_progress
        self._chunks: list[bytes | bytearray] = []
        self._ids: set[str] | None = None  # of the events seen, for a server that replays too much
        self.parser: SseParser | None = None
        self.status = 0
        self.headers: Headers = []
        self.kind = BodyKind.EMPTY
        self.size = 0
        self.message: Message | None = None

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        content_type = None
        for name, value in headers:
            if name == b"content-type":
                content_type = value
                break
        self.kind = body_kind(content_type)
        if self.kind is BodyKind.SSE:
            self.parser = SseParser(self._max)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece of the body.

        Raises:
            TooLarge: The answer, or one event of its stream, is larger than the cap.
        """
        self.size += len(chunk)
        if self.parser is None:
            if self.size > self._max:
                raise self.too_large()
            self._keep(chunk)
            return False
        try:
            events = self.parser.feed(chunk)
        except EventTooLarge as error:
            if self._take_events(error.events):
                return True
            raise self.too_large() from None
        return self._take_events(events)

    def _keep(self, chunk: bytes) -> None:
        # Pieces of a byte or two would take many times their size.
        chunks = self._chunks
        if chunks and len(chunk) < SMALL_PIECE:
            last = chunks[-1]
            if type(last) is not bytearray:
                last = bytearray(last)
                chunks[-1] = last
            last += chunk
        else:
            chunks.append(chunk)

    def _take_events(self, events: list[SseEvent]) -> bool:
        for event in events:
            if event.id:
                self._seen(event.id)
            for message in _messages(event):
                self._take(message)
        return self.message is not None

    def _seen(self, event_id: str) -> None:
        if self._ids is None:
            self._ids = set()
        if len(self._ids) < IDS_KEPT:
            self._ids.add(event_id)

    def take_rest(self, events: list[SseEvent], request_id: int) -> tuple[bool, bool]:
        """Take events of a further stream of the same answer.

        Args:
            events: As they came.
            request_id: The only one whose response is taken.

        Returns:
            Whether an event was new, and whether the response has come.
        """
        fresh = False
        for event in events:
            replayed = bool(event.id) and self._ids is not None and event.id in self._ids
            fresh = fresh or not replayed
            if event.id:
                self._seen(event.id)
            for message in _messages(event):
                if not message.is_response:
                    if not replayed:
                        self._take(message)
                elif message.response_id == request_id:
                    self._take(message)
        return fresh, self.message is not None

    def _take(self, message: Message) -> None:
        if message.is_response:
            if self.message is None:
                self.message = message
        elif message.method == "notifications/progress":
            if self.on_progress is not None and (read := read_progress(message)) is not None:
                self.on_progress(read[1])
        else:
            self._on_message(message)

    def answer(self) -> Answer:
        """What has come, once the exchange is complete."""
        body = b""
        if self.parser is None and self._chunks:
            first = self._chunks[0]
            # most answers come in one piece, which is not copied
            body = first if len(self._chunks) == 1 and type(first) is bytes else b"".join(self._chunks)
            self._chunks = []
            if body and self.kind is not BodyKind.SSE:
                self._read(body)
        if not self.size and self.kind is not BodyKind.SSE:
            self.kind = BodyKind.EMPTY  # whatever its head says of the type of nothing
        return Answer(self.message, self.status, self.headers, self.kind, body[:HINT_BYTES], self.size)

    def _read(self, body: bytes) -> None:
        try:
            for message in decode_messages(body):
                self._take(message)
        except MalformedMessage:
            return

    def too_large(self) -> TooLarge:
        """Make the error of an answer over the cap."""
        return TooLarge(
            f"the answer is larger than {self._max} bytes and was not read; the tool may have run",
            delivery=ANSWERED,
            http_status=self.status,
        )


def _messages(event: SseEvent) -> list[Message]:
    if not event.data or event.event not in ("message", ""):
        return []
    try:
        return decode_messages(event.data)
    except MalformedMessage:
        return []  # one unreadable event is no reason to lose the response behind it


def read_progress(message: Message) -> tuple[object, Progress] | None:
    """Read token and content of a progress notification; `None` where it is not one that can be read."""
    try:
        params = decode_json(message.params)
    except MalformedMessage:
        return None
    if not isinstance(params, dict):
        return None
    step = _number(params.get("progress"))
    if step is None:
        return None
    text = params.get("message")
    progress = Progress(step, _number(params.get("total")), text if isinstance(text, str) else None)
    return params.get("progressToken"), progress


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # JSON's integers have no bounds
            return float(value)
    return None


def _ignore(_: Message) -> None:
    """Take a message that nobody waits for."""
