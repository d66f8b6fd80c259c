"""The GET that opens an HTTP+SSE stream, and what reads that stream from then on.

The opening is over when the server has said where messages go (`endpoint`), or will not; the same exchange is
then read on in the background by its channel, to which each event is told. What comes before `endpoint`, and
is no event stream, is the refusal that the opening ends with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..protocol import CONTENT_TYPE, BodyKind, SseParser, body_kind
from ..transports import Woken
from ._trip import HINT_BYTES, Answer, first_of

if TYPE_CHECKING:
    from .._base.gate import Gate
    from ..transports import Headers, HttpExchange, HttpRequest, HttpxExchange
    from ._sse_channel import SseChannel


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
        self._kind = body_kind(first_of(headers, CONTENT_TYPE))
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
