"""Reading the usual answer at one glance: whole in one piece, of a stated length, and nothing unusual.

Everything else is h11's to read, and so is whatever is only slightly odd: this reader takes an answer whole
or not at all, and what it takes h11 would read the same (a test holds the two together). Rules: one status
line, fields that are a token, a colon and visible text, no folding; exactly one `content-length`; no
`transfer-encoding`, `connection`, `upgrade` or `trailer`; not a byte more or less than the length says.
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
_UNUSUAL: Final = frozenset({b"transfer-encoding", b"connection", b"upgrade", b"trailer"})
_WITHOUT_BODY: Final = frozenset({204, 205, 304})
_MAX_HEAD: Final = 16 * 1024


class Plain(NamedTuple):
    """An answer that was read whole. Names are in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def read_plain(data: bytes) -> Plain | None:
    """Read an answer that is plain in every respect and stands whole in `data`; otherwise `None`."""
    found = _HEAD.match(data, 0, _MAX_HEAD)
    if found is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    length = -1
    for line in found[2].split(b"\r\n"):
        if not line:
            continue
        name, _, value = line.partition(b":")
        name = name.lower()
        value = value.strip(b" \t")
        if name == b"content-length":
            if length >= 0 or _LENGTH.fullmatch(value) is None:
                return None
            length = int(value)
        elif name in _UNUSUAL:
            return None
        headers.append((name, value))
    status = int(found[1])
    start = found.end()
    if length < 0 or len(data) - start != length or status in _WITHOUT_BODY:
        return None
    return Plain(status, headers, data[start:])
