"""Lines of a byte stream (stdio): one message each, as they come.

Any split into chunks gives the same lines, in linear work: a line that is not finished waits in a
buffer that is only appended to (`Pieces`) and never searched again.
A line over the cap costs itself and not the stream: it is skipped to its end and reported once.
"""

from __future__ import annotations

from typing import Final

import attrs

from ._pieces import Pieces

HEAD_BYTES: Final = 256


@attrs.frozen
class LineTooLong:
    """Stands in the place of a line that was longer than `limit` bytes.

    `head` is how it began, at most 256 bytes, so that the request behind it can be found. It is the peer's
    and not shown.
    """

    limit: int
    head: bytes = attrs.field(default=b"", repr=False)


class LineSplitter:
    """Bytes in, lines out, without their line ends.

    Empty lines are dropped: they carry nothing.

    Args:
        max_line_bytes: Cap on one line, in bytes before its newline.
    """

    __slots__ = ("_skipping", "_tail", "max_line_bytes")

    def __init__(self, max_line_bytes: int) -> None:
        self.max_line_bytes = max_line_bytes
        self._tail = Pieces()  # a line without its end
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Take a chunk and return the lines that it completed."""
        found: list[bytes | LineTooLong] = []
        limit = self.max_line_bytes
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if len(lines) > 1:
            # Only the first can end a line that has begun; empty ones behind it cost next to nothing.
            lines[1:] = filter(None, lines[1:])
        for piece in lines:
            if self._skipping:
                self._skipping = False
                continue
            line = piece
            if self._tail.size + len(piece) > limit:
                found.append(self._too_long(piece))
                self._tail.clear()
                continue
            if self._tail.size:
                self._tail.add(piece)
                line = self._tail.take()
            if line.endswith(b"\r"):
                line = line[:-1]
            if line:
                found.append(line)
        if rest and not self._skipping:
            if self._tail.size + len(rest) > limit:
                found.append(self._too_long(rest))
                self._tail.clear()
                self._skipping = True
            else:
                self._tail.add(rest)
        return found

    def _too_long(self, piece: bytes) -> LineTooLong:
        # No more than the cap, so that the head does not depend on how the bytes were split.
        size = min(HEAD_BYTES, self.max_line_bytes)
        head = self._tail.head(size)
        return LineTooLong(self.max_line_bytes, head + piece[: size - len(head)])

    def drop(self) -> None:
        """Forget a line that has not ended, as no more of it is wanted."""
        self._tail.clear()

    def at_eof(self) -> list[bytes | LineTooLong]:
        """Return what stood after the last newline, as the stream has ended: one line or none."""
        line = self._tail.take()
        self._skipping = False
        if line.endswith(b"\r"):
            line = line[:-1]
        return [line] if line else []
