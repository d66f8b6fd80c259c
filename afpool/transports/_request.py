"""The head of an HTTP/1.1 request: what may be in it, and its bytes.

Header values may be credentials, so nothing here quotes one, and none is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

# RFC 9110, sections 5.1, 5.5 and 9.1; RFC 9112, section 3.2
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# What the layer says itself, or what would change how the connection is used.
_OURS: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"te"})
MAX_VALUES: Final = 64 * 1024
"""The most bytes that the values of one request's headers may have together."""

_NAMES_KEPT: Final = 1024
_LINES_KEPT: Final = 1024

_names: set[bytes] = set()
_lines: dict[tuple[bytes, bytes, bytes], bytes] = {}


class Unsendable(ValueError):
    """The request cannot be said in HTTP/1.1. Nothing was sent; the text quotes nothing of it."""


@attrs.frozen
class HttpRequest:
    """One request. `host` and `content-length` are added by the layer.

    Attributes:
        method: Such as `POST`.
        target: Path and query.
        headers: Name and value pairs, names in lower case.
        body: The whole body.
    """

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]] = attrs.field(repr=False)
    body: bytes = attrs.field(default=b"", repr=False)


def encode_head(request: HttpRequest, host: bytes) -> bytes:
    """The bytes of a request up to its body.

    Raises:
        Unsendable: It cannot be said in HTTP/1.1, such as for a line break in a header's value, it sets a
            header that is the layer's own, or its headers are larger than `MAX_VALUES`.
    """
    line = _lines.get((request.method, request.target, host)) or _first_lines(request, host)
    parts = [line]
    values = []
    for name, value in request.headers:
        if name not in _names:
            _check_name(name)
        parts += (name, b": ", value, b"\r\n")
        values.append(value)
    # one search over all values: a control character in any of them would begin another header
    joined = b"".join(values)
    if _CONTROL.search(joined):
        raise _unspeakable()
    if len(joined) > MAX_VALUES:
        raise Unsendable(f"the request's headers are larger than {MAX_VALUES} bytes")
    body = request.body
    if body or request.method == b"POST":
        parts.append(b"content-length: %d\r\n\r\n" % len(body))
    else:
        parts.append(b"\r\n")
    return b"".join(parts)


def _first_lines(request: HttpRequest, host: bytes) -> bytes:
    if not (
        _TOKEN.fullmatch(request.method) and _TARGET.fullmatch(request.target) and _TARGET.fullmatch(host)
    ):
        raise _unspeakable()
    line = b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (request.method, request.target, host)
    if len(_lines) >= _LINES_KEPT:
        _lines.clear()
    _lines[request.method, request.target, host] = line
    return line


def _check_name(name: bytes) -> None:
    if name in _OURS or not _TOKEN.fullmatch(name):
        raise _unspeakable()
    if len(_names) >= _NAMES_KEPT:
        _names.clear()
    _names.add(name)


def _unspeakable() -> Unsendable:
    return Unsendable("the request holds a header, method or target that HTTP/1.1 cannot carry")
