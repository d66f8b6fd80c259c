"""Reading the usual answer without h11: a plain head, and a body of a stated length or in plain chunks.

Everything else is h11's to read, and so is whatever is only slightly odd: this reader takes a head whole or
not at all, and leaves a body from any place on, with what h11 needs to go on from there. What it takes h11
would read the same (a test holds the two together). Rules:

* One status line, fields that are a token, a colon and visible text, no folding; all of it in one piece.
* Exactly one `content-length`, or exactly one `transfer-encoding` that is `chunked`; no `upgrade`, no
  `trailer`, and no `connection` but `keep-alive`.
* The size of a chunk stands whole in what came, is of few digits and has no extension; no trailers.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# RFC 9112, sections 4 and 5; narrower than they are
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\t\x20-\x7e]*\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)+)\r\n"
)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
_UNUSUAL: Final = frozenset({b"upgrade", b"trailer"})
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
_MAX_HEAD: Final = 16 * 1024
_CRLF: Final = b"\r\n"
_NO_CHUNK: Final = b"?\r\n"


class Head(NamedTuple):
    """The head of an answer. Names are in lower case.

    Attributes:
        end: Where in the bytes its body begins.
        length: Of its body; `None` where that comes in chunks.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    end: int
    length: int | None


def read_head(data: bytes) -> Head | None:
    """Read a head that is plain in every respect and stands whole in `data`; otherwise `None`."""
    found = _HEAD.match(data, 0, _MAX_HEAD)
    if found is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    length = -1
    chunked = False
    lines = found[2].split(_CRLF)
    del lines[-1]  # what stands behind the last line's end
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        value = value.strip(b" \t")
        if name == b"content-length":
            if length >= 0 or _LENGTH.fullmatch(value) is None:
                return None
            length = int(value)
        elif name == b"transfer-encoding":
            if chunked or value.lower() != b"chunked":
                return None
            chunked = True
        elif name in _UNUSUAL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        headers.append((name, value))
    status = int(found[1])
    if chunked == (length >= 0) or status in _WITHOUT_BODY:
        return None
    return Head(status, headers, found.end(), None if chunked else length)


class Body:
    """The body behind a plain head, taken as it comes.

    Args:
        head: The bytes of the head, for h11, where the body comes in chunks.
        length: Of the body; `None` where it comes in chunks.

    Attributes:
        ended: All of it came.
        excess: More came than belongs to it.
        odd: What it leaves to h11, behind the head; `None` where it has left nothing.
    """

    __slots__ = ("_chunked", "_footer", "_head", "_left", "ended", "excess", "odd")

    def __init__(self, head: bytes, length: int | None) -> None:
        self._chunked = length is None
        self._head = head
        self._left = length or 0  # of the body, or of the present chunk
        self._footer = b""  # what is still to come of the end of the present chunk
        self.ended = length == 0
        self.excess = False
        self.odd: bytes | None = None

    def take(self, data: bytes) -> list[bytes]:
        """The pieces of content in what came, none of them empty."""
        if self._chunked:
            return self._chunks(data)
        left = self._left
        if len(data) < left:
            self._left = left - len(data)
            return [data]
        self.excess = len(data) > left
        self._left = 0
        self.ended = True
        if not left:
            return []
        return [data[:left] if self.excess else data]

    def for_h11(self) -> bytes:
        """The head and the rest of the body from where this reader left it, as one answer."""
        assert self.odd is not None
        return self._head + self.odd

    def _chunks(self, data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            left = self._left
            if left:
                end = at + left
                pieces.append(data[at:end])
                if end > size:
                    self._left = end - size
                    return pieces
                self._left = 0
                self._footer = _CRLF
                at = end
            footer = self._footer
            if footer:
                came = data[at : at + len(footer)]
                if footer[: len(came)] != came:
                    return self._leave(pieces, _NO_CHUNK)  # whatever comes, the body is none
                self._footer = footer[len(came) :]
                at += len(came)
                continue
            found = _CHUNK.match(data, at)
            if found is None:
                return self._leave(pieces, data[at:])
            self._left = int(found[1], 16)
            if not self._left:
                if data[found.end() :] != _CRLF:
                    return self._leave(pieces, data[at:])
                self.ended = True
                return pieces
            at = found.end()
        return pieces

    def _leave(self, pieces: list[bytes], rest: bytes) -> list[bytes]:
        self.odd = rest
        return pieces
