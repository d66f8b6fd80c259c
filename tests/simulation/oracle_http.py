"""HTTP/1.1, event streams, lines and WebSocket frames as a bystander reads them: bytes in, pieces out.

Nothing here is afpool's. What cannot be read makes a reader give up (`lost`); what it gave before that
stands.

Each reader takes bytes in pieces of any size and calls back in the piece in which something became complete.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NO_BODY: Final = frozenset({204, 304})


@attrs.define
class Head:
    """First line and headers; names in lower case, values of a repeated one joined by `, `."""

    first: list[str]
    headers: dict[str, str]

    @property
    def status(self) -> int:
        """Of a response."""
        return int(self.first[1])


def read_head(data: bytes) -> Head:
    """Take a head apart, without the blank line. Raises ValueError."""
    first, *lines = data.decode("latin-1").replace("\r\n", "\n").split("\n")
    headers: dict[str, str] = {}
    for one in lines:
        name, colon, value = one.partition(":")
        if not colon:
            raise ValueError("a header without a colon")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    words = first.split(" ", 2)
    if len(words) < 2:
        raise ValueError("no first line")
    return Head(words, headers)


def read_json(data: bytes) -> list[Any]:
    """The JSON-RPC messages in a body, a line or an event; none if there is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return []
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def is_response(message: Mapping[str, Any]) -> bool:
    """Whether a message is an answer: a result or an error and no method."""
    return not isinstance(message.get("method"), str) and ("result" in message or "error" in message)


class Events:
    """An event stream (`text/event-stream`) up to complete events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._kind = b""
        self._after_cr = False

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """Event type and data of each event that is complete now."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        if not data:
            return
        self._after_cr = data.endswith(b"\r")
        text = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = text.split(b"\n")
        for one in lines:
            if not one:
                if self._data:
                    yield self._kind.decode("latin-1"), b"\n".join(self._data)
                self._data, self._kind = [], b""
                continue
            name, _, value = one.partition(b":")
            value = value.removeprefix(b" ")
            if name.lstrip(b"\xef\xbb\xbf") == b"data":
                self._data.append(value)
            elif name == b"event":
                self._kind = value


class Lines:
    """Lines, each without its end."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def inside(self) -> bool:
        """Whether a line has begun."""
        return bool(self._rest)

    @property
    def rest(self) -> bytes:
        """What has come of a line."""
        return self._rest

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines


class Frames:
    """WebSocket frames of either side; `messages` of several frames are put together."""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: list[bytes] = []

    @property
    def inside(self) -> bool:
        """Whether a frame has begun."""
        return bool(self._rest)

    @property
    def rest(self) -> bytes:
        """What has come of a frame, unmasked as far as that goes."""
        head = self._head()
        if head is None:
            return b""
        size, mask, start = head
        return unmasked(self._rest[start : start + size], mask)

    def _head(self) -> tuple[int, bytes, int] | None:
        data = self._rest
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(data) < at + width:
                return None
            size, at = int.from_bytes(data[at : at + width], "big"), at + width
        mask = b""
        if data[1] & 0x80:
            if len(data) < at + 4:
                return None
            mask, at = data[at : at + 4], at + 4
        return size, mask, at

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes | None, int]]:
        """Opcode, payload and size of each frame that is complete now.

        The payload of a text message comes with its last frame; None with those before it.
        """
        self._rest += data
        while (head := self._head()) is not None:
            size, mask, start = head
            if len(self._rest) < start + size:
                return
            first = self._rest[0]
            payload = unmasked(self._rest[start : start + size], mask)
            self._rest = self._rest[start + size :]
            code = first & 0x0F
            if code > 2:
                yield code, payload, start + size
                continue
            self._parts.append(payload)
            if first & 0x80:
                whole, self._parts = b"".join(self._parts), []
                yield 1, whole, start + size
            else:
                yield 1, None, start + size


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """A frame's payload in clear."""
    if not mask or not payload:
        return payload
    times = len(payload) // 4 + 1
    number = int.from_bytes(payload, "big") ^ int.from_bytes((mask * times)[: len(payload)], "big")
    return number.to_bytes(len(payload), "big")


class Body:
    """How a body is framed: by a length, in chunks, or by the end of the connection.

    Attributes:
        over: It is complete.
        lost: Its framing cannot be read.
    """

    def __init__(self, headers: Mapping[str, str], *, request: bool, nothing: bool = False) -> None:
        self.over = False
        self.lost = False
        self._left: int | None = None
        self._chunks = "chunked" in headers.get("transfer-encoding", "").lower()
        self._rest = b""
        self._chunk = -1  # bytes left of the chunk, with its line end; -1: a size comes
        self._trailer = False
        if nothing:
            self.over = True
        elif not self._chunks:
            length = headers.get("content-length")
            if length is not None and length.isdigit():
                self._left = int(length)
            elif length is not None:
                self.lost = True
            elif request:
                self._left = 0
            self.over = self._left == 0

    @property
    def to_the_end(self) -> bool:
        """Whether the end of the connection is the end of it."""
        return not self._chunks and self._left is None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` is of the body, and what comes after it."""
        if self.lost:
            return b"", b""
        if not self._chunks:
            if self._left is None:
                return data, b""
            mine, after = data[: self._left], data[self._left :]
            self._left -= len(mine)
            self.over = self._left == 0
            return mine, after
        self._rest += data
        parts = []
        while not self.over and not self.lost and (part := self._in_chunks()) is not None:
            parts.append(part)
        after = b""
        if self.over:
            after, self._rest = self._rest, b""
        return b"".join(parts), after

    def _in_chunks(self) -> bytes | None:
        if self._chunk >= 0:
            part = self._rest[: self._chunk]
            self._rest = self._rest[len(part) :]
            self._chunk -= len(part)
            if self._chunk == 0:
                self._chunk = -2
            return part or None
        end = self._rest.find(b"\n")
        if end < 0:
            return None
        one, self._rest = self._rest[:end].rstrip(b"\r"), self._rest[end + 1 :]
        if self._chunk == -2:  # the line end behind a chunk
            self._chunk = -1
            self.lost = bool(one)
        elif self._trailer:
            self.over = not one
        else:
            try:
                size = int(one.partition(b";")[0], 16)
            except ValueError:
                self.lost = True
                return b""
            self._chunk = size or -1
            self._trailer = size == 0
        return b""


class Messages:
    """HTTP messages of one direction, one after the other.

    Args:
        on_head: Told of each head; says how its body is framed.
        on_body: Told of each piece of a body.
        on_end: Told of the end of each message.

    Attributes:
        lost: What comes cannot be read (any more).
        upgraded: What came after a head that `on_head` answered with None, from where on this is no HTTP.
    """

    def __init__(
        self,
        on_head: Callable[[Head], Body | None],
        on_body: Callable[[bytes], object],
        on_end: Callable[[], object],
    ) -> None:
        self.lost = False
        self.upgraded: bytes | None = None
        self._on_head = on_head
        self._on_body = on_body
        self._on_end = on_end
        self._head = b""
        self._body: Body | None = None

    @property
    def inside(self) -> bool:
        """Whether a message has begun and is not complete."""
        return bool(self._head) or self._body is not None

    @property
    def rest(self) -> bytes:
        """What has come of a head that is not complete."""
        return self._head

    @property
    def body_to_the_end(self) -> bool:
        """Whether the end of the connection would be an orderly end now."""
        return self._body is not None and self._body.to_the_end

    def feed(self, data: bytes) -> None:
        """Take bytes, and go on until they are used up."""
        while data and not self.lost:
            if self.upgraded is not None:
                self.upgraded += data
                return
            if self._body is None:
                data = self._feed_head(data)
            else:
                mine, data = self._body.feed(data)
                if mine:
                    self._on_body(mine)
                self._ended()

    def _feed_head(self, data: bytes) -> bytes:
        self._head += data
        for blank in (b"\r\n\r\n", b"\n\n"):
            head, found, after = self._head.partition(blank)
            if found:
                break
        else:
            return b""
        self._head = b""
        try:
            read = read_head(head)
            self._body = self._on_head(read)
        except ValueError:
            self.lost = True
            return b""
        if self._body is None:
            self.upgraded = b""
        else:
            self._ended()
        return after

    def _ended(self) -> None:
        body = self._body
        assert body is not None
        if body.lost:
            self.lost = True
        elif body.over:
            self._body = None
            self._on_end()
