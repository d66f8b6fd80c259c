"""What a request is answered with that is no upgrade: the page, or a plain status.

The page holds no data: all that it shows comes over the WebSocket, behind a token or the socket's own user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._door import Refused
from ._head import refusal
from ._words import PATH

if TYPE_CHECKING:
    from ._head import Head

_READS = ("GET", "HEAD")


def answer(head: Head) -> bytes:
    """Answer a request that was let in. Synchronous; gives the bytes that end the connection."""
    path = head.path
    if path == PATH:
        words = f"{PATH} is a WebSocket; the page is at /"
        return refusal(Refused(426, "upgrade-required", words, (("upgrade", "websocket"),)), head)
    if path != "/":
        return refusal(Refused(404, "not-found", "there is the page at / and nothing else"), head)
    if head.method not in _READS:
        words = "the page is only read"
        return refusal(Refused(405, "method-not-allowed", words, (("allow", ", ".join(_READS)),)), head)
    from .page import headers as page_headers
    from .page import page

    return head.answer(200, page_headers(), page())
