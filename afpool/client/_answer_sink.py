"""What is read of one HTTP answer: a JSON body up to the cap, or an event stream up to the response in it.

* The first response is the answer, under whatever id: the exchange says whose it is. Only in a further stream
  of the same answer (`take_rest`) does the request's own id count, since that is no exchange of its own.
* But a result under the id of another request of this client is that one's (a copy, or one that somebody on
  the way has kept), and is passed over. Where nothing else comes the call fails, and no kept connection is
  used again: what comes next on it may be one answer behind as well.
* Notifications and requests of the server that come before the response are passed on in the order in which
  they came; what a further stream replays is passed on once.
* What cannot be read costs itself alone: one unreadable event is no reason to lose the response behind it.
* Memory is bounded by the cap, not by how finely the server cuts its body.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Protocol, final

from .._base.errors import ANSWERED, ServerFailed, TooLarge
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
)
from ._trip import HINT_BYTES, Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import SseEvent
    from ..transports import Headers

IDS_KEPT: Final = 10_000
SMALL_PIECE: Final = 1024
OF_MESSAGES: Final = ("message", "")  # types of events that hold any


class Counted(Protocol):
    """Whoever counts a client's requests."""

    @property
    def last_id(self) -> int:
        """The id of the latest one."""
        ...


@final
class AnswerSink:
    """Collects one answer; see the module."""

    __slots__ = (
        "_chunks",
        "_counted",
        "_ids",
        "_max",
        "_on_message",
        "_passed_over",
        "headers",
        "kind",
        "message",
        "on_progress",
        "own_id",
        "parser",
        "size",
        "status",
    )

    def __init__(
        self,
        max_message: int,
        on_message: Callable[[Message], None],
        on_progress: Callable[[Progress], object] | None,
        own_id: int | None = None,
        counted: Counted | None = None,
    ) -> None:
        self.own_id = own_id
        self._counted = counted
        self._passed_over = False
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
            if event.event in OF_MESSAGES:
                for message in messages_of(event):
                    self._take(message)
        return self.message is not None

    def _seen(self, event_id: str) -> None:
        if self._ids is None:
            self._ids = set()
        if len(self._ids) < IDS_KEPT and len(event_id) <= HINT_BYTES:  # a longer one is not gone on from
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
            for message in messages_of(event) if event.event in OF_MESSAGES else ():
                if not message.is_response:
                    if not replayed:
                        self._take(message)
                elif message.response_id == request_id:
                    self._take(message)
        return fresh, self.message is not None

    def _take(self, message: Message) -> None:
        if message.is_response:
            if self.message is None:
                if self._is_anothers(message):
                    self._passed_over = True
                else:
                    self.message = message
        elif message.method == "notifications/progress":
            if self.on_progress is not None and (read := read_progress(message)) is not None:
                self.on_progress(read[1])
        else:
            self._on_message(message)

    def _is_anothers(self, message: Message) -> bool:
        counted, found = self._counted, message.response_id
        if counted is None or found == self.own_id or found is None or message.is_error:
            return False  # servers put wrong ids on errors
        return 0 < found <= counted.last_id

    def answer(self) -> Answer:
        """What has come, once the exchange is complete.

        Raises:
            ServerFailed: It is the answer to another request.
        """
        body = b""
        if self.parser is None and self._chunks:
            first = self._chunks[0]
            # most answers come in one piece, which is not copied
            body = first if len(self._chunks) == 1 and type(first) is bytes else b"".join(self._chunks)
            self._chunks = []
            if body and self.kind is not BodyKind.SSE:
                self._read(body)
        if self._passed_over and self.message is None:
            raise ServerFailed(
                "the answer is that of another request; whether this one ran is not known",
                http_status=self.status,
            )
        if not self.size and self.kind is not BodyKind.SSE:
            self.kind = BodyKind.EMPTY  # whatever its head says of the type of nothing
        return Answer(self.message, self.status, self.headers, self.kind, body[:HINT_BYTES], self.size)

    def _read(self, body: bytes) -> None:
        try:
            messages = decode_messages(body)
        except MalformedMessage:
            return
        for message in messages:
            self._take(message)

    def too_large(self) -> TooLarge:
        """Make the error of an answer over the cap."""
        return TooLarge(
            f"the answer is larger than {self._max} bytes and was not read; the tool may have run",
            delivery=ANSWERED,
            http_status=self.status,
        )


def messages_of(event: SseEvent) -> list[Message]:
    """The messages of an event; none where it holds nothing that can be read."""
    if not event.data:
        return []
    try:
        return decode_messages(event.data)
    except MalformedMessage:
        return []


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
