"""One connection below a front: the stream that it speaks on, and how that is closed at once.

A front closes in the middle of a step (a rule drops the connection, a test closes all of them), so closing
must not wait, whatever stands below: a socket, or any stream of bytes that somebody handed over.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

import attrs
import trio

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


@attrs.frozen(eq=False)
class Line:
    """A stream and the way to end it.

    Attributes:
        stream: What is read and written.
        close: Close it in this step; told whether the peer is to see a reset, where the stream can show one.
    """

    stream: trio.abc.Stream
    close: Callable[[bool], None]


def socket_line(sock: trio.socket.SocketType, ssl_context: ssl.SSLContext | None) -> Line:
    """A connected socket, with TLS where there is a context."""

    def close(reset: bool) -> None:
        if reset and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    return Line(_secured(trio.SocketStream(sock), ssl_context), close)


def stream_line(
    stream: trio.abc.Stream,
    ssl_context: ssl.SSLContext | None,
    start_soon: Callable[..., None],
) -> Line:
    """Any stream. One that has a `close` is closed in the same step, others as soon as the loop goes on."""
    halves = (
        (stream.send_stream, stream.receive_stream) if isinstance(stream, trio.StapledStream) else (stream,)
    )
    closers: list[Any] = [getattr(half, "close", None) for half in halves]
    resets = getattr(stream, "reset", None)

    def close(reset: bool) -> None:
        if reset and resets is not None:
            resets()
        elif None in closers:
            start_soon(trio.aclose_forcefully, stream)
        else:
            for closer in closers:
                closer()

    return Line(_secured(stream, ssl_context), close)


def _secured(stream: Any, ssl_context: ssl.SSLContext | None) -> trio.abc.Stream:
    if ssl_context is None:
        return stream  # type: ignore[no-any-return]
    return trio.SSLStream(stream, ssl_context, server_side=True, https_compatible=True)
