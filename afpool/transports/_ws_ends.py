"""How it is known that a WebSocket has ended, and in what words.

* A close with 1000 or 1001 is an orderly end, everything else a loss. The peer's own words are not repeated.
* A peer may be gone without a close: every `PING_EVERY` seconds it is sent a ping, and one that does not
  answer it within `PONG_WITHIN` is lost. Its own pings are answered by the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

    from afpool._base.seams import Seams

PING_EVERY: Final = 20.0
"""Seconds between two pings."""

PONG_WITHIN: Final = 20.0
"""Seconds that the peer has to answer a ping, or to let it out."""

TOO_BIG: Final = 1009
"""The close code for a message that is too long."""

_ORDERLY: Final = frozenset({1000, 1001})


async def until_unanswered(connection: WebSocketConnection, seams: Seams) -> str:
    """Send pings until the peer does not answer one; return what happened.

    Raises:
        ConnectionClosed: The connection has ended meanwhile.
    """
    while True:
        await trio.sleep_until(seams.now() + PING_EVERY)
        with trio.move_on_at(seams.now() + PONG_WITHIN) as scope:
            await connection.ping()
        if scope.cancelled_caught:
            return f"the peer did not answer a ping within {PONG_WITHIN:g} s"


def why_closed(code: int | None, max_message: int) -> str:
    """Say how a WebSocket ended."""
    if code in _ORDERLY:
        return f"the peer closed the WebSocket ({code})"
    if code == TOO_BIG:
        return f"a message was longer than {max_message} bytes, or the peer says so of ours (close code 1009)"
    return f"the WebSocket was lost (close code {code or 1006})"
