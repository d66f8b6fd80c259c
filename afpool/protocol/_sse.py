"""Server-sent events, parsed as they come.

Rules:

* Any split of the bytes into chunks gives the same events.
* The work is linear in the bytes: a line that is not finished waits in pieces, which are joined once.
* An event that only names an id or a retry time (a priming event) is surfaced, with empty data.
* What is not finished when the stream ends is no event.
"""

from __future__ import annotations

from typing import NamedTuple

from ._pieces import Pieces

_BOM = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS = 9


class SseEvent(NamedTuple):
    """One event.

    `id` is `None` where this event named none (the last one named stays in force, see
    `SseParser.last_event_id`) and `""` where it was reset; `retry` is in milliseconds.
    """

    event: str
    data: bytes
    id: str | None
    retry: int | None


class EventTooLarge(ValueError):
    """An event or a line is larger than the cap. The stream cannot be read on.

    Args:
        limit: The cap, bytes.
        events: What was complete before it, in the chunk that went over.
    """

    def __init__(self, limit: int, events: list[SseEvent]) -> None:
        super().__init__(f"a server-sent event is larger than {limit} bytes")
        self.limit = limit
        self.events = events


class SseParser:
    """Bytes in, events out.

    Args:
        max_event_bytes: Cap on the lines of one event, and on any one line, in bytes.

    Attributes:
        last_event_id: The id to resume from (`Last-Event-ID`), `None` before the first.
        retry: Milliseconds that the server asked to wait before reconnecting, `None` before the first.
        comments: How many comment lines came.
    """

    __slots__ = (
        "_after_cr",
        "_begun",
        "_data",
        "_event",
        "_head",
        "_id",
        "_retry",
        "_size",
        "_tail",
        "comments",
        "last_event_id",
        "max_event_bytes",
        "retry",
    )

    def __init__(self, max_event_bytes: int) -> None:
        self.max_event_bytes = max_event_bytes
        self.last_event_id: str | None = None
        self.retry: int | None = None
        self.comments = 0
        self._head: bytes | None = b""  # until it is known whether a byte order mark leads
        self._after_cr = False
        self._tail = Pieces()  # a line without its end
        self._reset()

    def _reset(self) -> None:
        self._event = ""
        self._data: list[bytes] = []
        self._id: str | None = None
        self._retry: int | None = None
        self._begun = False
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take a chunk and return the events that it completed.

        Raises:
            EventTooLarge: Over the cap; the parser is of no further use.
        """
        if self._head is not None:
            chunk = self._head + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._head = chunk
                return []
            self._head = None
            chunk = chunk.removeprefix(_BOM)
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            if not chunk:
                self._after_cr = False
                return []
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[SseEvent] = []
        lines = chunk.split(b"\n")
        rest = lines.pop()
        for piece in lines:
            line = piece
            if self._tail.size:
                self._tail.add(piece)
                line = self._tail.take()
            if self._size + len(line) > self.max_event_bytes:
                raise EventTooLarge(self.max_event_bytes, events)
            if line:
                self._line(line)
            elif self._begun:
                events.append(self._complete())
        if rest:
            self._tail.add(rest)
            if self._size + self._tail.size > self.max_event_bytes:
                raise EventTooLarge(self.max_event_bytes, events)
        return events

    def _line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if not name:
            self.comments += 1
            return
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" in value:
                return
            self._id = self.last_event_id = value.decode("utf-8", "replace")
        elif name == b"retry":
            if not value.isdigit() or len(value) > _MAX_RETRY_DIGITS:
                return
            self._retry = self.retry = int(value)
        else:
            return
        self._begun = True
        self._size += len(line)

    def _complete(self) -> SseEvent:
        data = self._data
        event = SseEvent(
            self._event or "message",
            data[0] if len(data) == 1 else b"\n".join(data),
            self._id,
            self._retry,
        )
        self._reset()
        return event
