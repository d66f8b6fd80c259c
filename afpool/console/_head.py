"""The head of a request, read with h11; then either replayed to the WebSocket library, or answered here.

Rules:

* What was read of a connection before it was an upgrade is what the library reads first: it parses the same
  bytes with the same parser, so that no two readers understand a head differently.
* A head has a bound in bytes; the time that it may take is its caller's.
* Whatever is answered here ends the connection.
* A peer that takes no byte for a while is gone, whatever it was being told.
"""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import h11
import trio

from ._door import Refused
from ._words import SUBPROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK: Final = 16 * 1024
_PIECE: Final = 64 * 1024
_REST: Final = 4 * 1024 * 1024
_LINGER: Final = 1.0


@final
class Head:
    """The head of a request that came in.

    Attributes:
        method: As it was written.
        path: Without a query.
        headers: Names in lower case.
        upgrade: Whether it asks for another protocol.
    """

    __slots__ = ("_connection", "headers", "method", "path", "raw", "upgrade")

    def __init__(self, connection: h11.Connection, request: h11.Request, raw: bytes) -> None:
        self._connection = connection
        self.raw = raw
        self.method = request.method.decode("latin-1")
        self.path = request.target.decode("latin-1").partition("?")[0]
        self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        self.upgrade = any(name == "upgrade" for name, _ in self.headers)

    def get(self, name: str) -> str | None:
        """Give the first header of a name."""
        return next((value for found, value in self.headers if found == name), None)

    def _tokens(self, name: str) -> list[str]:
        values = ",".join(value for found, value in self.headers if found == name)
        return [token.strip(" \t") for token in values.split(",")]

    def upgrade_problem(self) -> Refused | None:
        """Say why it is no upgrade that the library would take up, or none of this protocol."""
        if self.method != "GET" or "websocket" not in map(str.lower, self._tokens("upgrade")):
            return Refused(400, "malformed-upgrade", "an upgrade is a GET to websocket")
        if self.get("content-length") not in (None, "0") or self.get("transfer-encoding") is not None:
            return Refused(400, "malformed-upgrade", "an upgrade has no body")
        if "upgrade" not in map(str.lower, self._tokens("connection")):
            return Refused(400, "malformed-upgrade", "an upgrade says so in `Connection`")
        if self.get("sec-websocket-version") != "13":
            words = "this console speaks version 13 of WebSocket"
            return Refused(
                426, "wrong-version", words, (("sec-websocket-version", "13"), ("upgrade", "websocket"))
            )
        if not _is_key(self.get("sec-websocket-key") or ""):
            return Refused(400, "malformed-upgrade", "an upgrade has one key of 16 bytes")
        if SUBPROTOCOL not in self._tokens("sec-websocket-protocol"):
            words = f"this console speaks the subprotocol {SUBPROTOCOL}, which was not asked for"
            return Refused(400, "wrong-protocol", words)
        return None

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
        """Give the bytes of an answer; after it the connection is at its end."""
        return _answered(self._connection, status, headers, b"" if self.method == "HEAD" else body, len(body))


def _answered(
    connection: h11.Connection,
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    length: int,
) -> bytes:
    said = [*headers, (b"content-length", str(length).encode()), (b"connection", b"close")]
    parts = [
        connection.send(h11.Response(status_code=status, reason=_reason(status), headers=said)),
        connection.send(h11.Data(data=body)) if body else b"",
        connection.send(h11.EndOfMessage()),
    ]
    return b"".join(part for part in parts if part is not None)


def _reason(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


async def read_head(stream: trio.abc.ReceiveStream, most: int) -> Head | Refused | None:
    """Read the head of a request.

    Args:
        stream: Where it comes from.
        most: Bytes that it may have.

    Returns:
        The head; why there is none; or `None` where the peer has gone. No deadline of its own.
    """
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=most)
    raw = bytearray()
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == 431:
                return Refused(431, "head-too-large", f"the head of a request has at most {most} bytes")
            return Refused(400, "malformed-request", "this is no request of HTTP/1.1")
        if isinstance(event, h11.Request):
            if len(raw) - len(connection.trailing_data[0]) > most:  # it came in one piece, which h11 takes
                return Refused(431, "head-too-large", f"the head of a request has at most {most} bytes")
            return Head(connection, event, bytes(raw))
        if event is not h11.NEED_DATA:
            return None
        try:
            data = await stream.receive_some(_CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        raw += data
        connection.receive_data(bytes(data))


def refusal(refused: Refused, head: Head | None) -> bytes:
    """Give the bytes that refuse a request, by a plain status and a sentence."""
    body = f"{refused.sentence}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        *((name.encode(), value.encode()) for name, value in refused.headers),
    ]
    if head is not None:
        return head.answer(refused.status, headers, body)
    return _answered(h11.Connection(h11.SERVER), refused.status, headers, body, len(body))


async def say_last(stream: trio.abc.HalfCloseableStream, data: bytes) -> None:
    """Send an answer and end the connection so that the peer gets to read it. No error if it has gone."""
    try:
        await stream.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
    await linger(stream)


async def linger(stream: trio.abc.HalfCloseableStream) -> None:
    """Let a peer read what was sent last: closing with bytes unread would reset the connection.

    A little is read of what still comes, for a moment.
    """
    try:
        await stream.send_eof()
        with trio.move_on_after(_LINGER):
            left = _REST
            while left > 0 and (more := await stream.receive_some(_CHUNK)):
                left -= len(more)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


@final
class Peer(trio.abc.HalfCloseableStream):
    """A connection below the library: it gives what was read before, and ends where nothing is taken.

    Args:
        below: The connection.
        stalled: Seconds that the peer may take no byte.

    Attributes:
        replay: What `receive_some` gives first.
        sent: Bytes that left.
    """

    def __init__(self, below: trio.SocketStream, stalled: float) -> None:
        self.below = below
        self.replay = b""
        self.sent = 0
        self._stalled = stalled

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As the stream below, in pieces; `trio.BrokenResourceError` where one is not taken in time."""
        view = memoryview(data)
        for at in range(0, len(view), _PIECE):
            piece = view[at : at + _PIECE]
            with trio.move_on_after(self._stalled) as scope:
                await self.below.send_all(piece)
            if scope.cancelled_caught:
                raise trio.BrokenResourceError("the console takes no more")
            self.sent += len(piece)

    async def wait_send_all_might_not_block(self) -> None:
        """As the stream below."""
        await self.below.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As the stream below."""
        await self.below.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As the stream below, after what was read before."""
        if self.replay:
            replay, self.replay = self.replay, b""
            await trio.lowlevel.checkpoint()
            return replay
        return await self.below.receive_some(max_bytes)

    async def aclose(self) -> None:
        """Close the connection. Synchronous but for a checkpoint."""
        await self.below.aclose()
