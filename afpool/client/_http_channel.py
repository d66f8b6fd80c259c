"""Requests as HTTP exchanges: one POST each, the answer as JSON or as an event stream.

Answers are correlated by exchange, not by id: servers put wrong ids, and none, on errors.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, final

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
from ..transports import HttpLink, HttpRequest
from ._header_rules import merged
from ._trip import Answer, Rpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from .._base.gate import Gate
    from ..transports import Headers, HttpExchange, HttpxExchange, HttpxLink, Origin

    Link: TypeAlias = HttpLink | HttpxLink

HINT_BYTES: Final = 2048
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
        next_id: Ids of this client's requests.
        movable: Whether `http` may become `https` where the server says so.
    """

    __slots__ = ("_before", "_next", "headers", "link", "max_message", "movable", "on_message", "target")

    def __init__(
        self, link: Link, target: bytes, headers: Headers, max_message: int, *, movable: bool = True
    ) -> None:
        self.link = link
        self.target = target
        self.headers = headers
        self.max_message = max_message
        self.movable = movable
        self.on_message: Callable[[Message], None] = _ignore
        self._before: Link | None = None
        self._next = 0

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

    __slots__ = ("_exchange", "_sink", "request_id", "size")

    def __init__(self, channel: HttpChannel, request: HttpRequest, rpc: Rpc, request_id: int) -> None:
        self.request_id = request_id
        self.size = len(request.body)
        on_message = channel.on_message if rpc.on_message is None else rpc.on_message
        self._sink = AnswerSink(channel.max_message, on_message, rpc.on_progress)
        self._exchange: HttpExchange | HttpxExchange = channel.link.exchange(request, self._sink, rpc.lane)

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._exchange.begun

    @property
    def answered(self) -> bool:
        """Its answer has come; one without a JSON-RPC message in it is a sign of life all the same."""
        return self._sink.message is not None or self._exchange.complete

    @property
    def over(self) -> bool:
        """Nothing more is to come."""
        return not self._exchange.held

    async def run(self, gate: Gate, deadline: float) -> Answer:
        """Send under the gate and wait for the answer; raises what the exchange raises."""
        await self._exchange.run(gate, deadline)
        return self._sink.answer()

    async def finish(self) -> Answer:
        """Wait on after a hand-over."""
        self._sink.on_progress = None
        await self._exchange.finish()
        return self._sink.answer()

    def wake(self) -> None:
        """Make the task that waits raise `Woken`."""
        self._exchange.wake()

    def close(self) -> None:
        """Close the connection: the end of the response stream, if there was one."""
        self._exchange.close()


@final
class AnswerSink:
    """Collects one answer: a JSON body up to the cap, or an event stream up to the response in it."""

    __slots__ = (
        "_chunks",
        "_max",
        "_on_message",
        "_parser",
        "headers",
        "kind",
        "message",
        "on_progress",
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
        self._parser: SseParser | None = None
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
            self._parser = SseParser(self._max)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece of the body.

        Raises:
            TooLarge: The answer, or one event of its stream, is larger than the cap.
        """
        self.size += len(chunk)
        if self._parser is None:
            if self.size > self._max:
                raise self._too_large()
            self._keep(chunk)
            return False
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as error:
            if self._take_events(error.events):
                return True
            raise self._too_large() from None
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

    def _take_events(self, events: list[Any]) -> bool:
        for event in events:
            if not event.data or event.event not in ("message", ""):
                continue
            try:
                messages = decode_messages(event.data)
            except MalformedMessage:
                continue  # one unreadable event is no reason to lose the response behind it
            for message in messages:
                self._take(message)
        return self.message is not None

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
        if self._parser is None and self._chunks:
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

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the answer is larger than {self._max} bytes and was not read; the tool may have run",
            delivery=ANSWERED,
            http_status=self.status,
        )


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
