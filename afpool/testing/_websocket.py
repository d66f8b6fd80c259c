"""One connection of the WebSocket front: trio-websocket's server over a trio stream.

Rules and invariants:

* The upgrade request is filed as an arrival named `GET` before anything is decided, so rules for `GET` say
  what becomes of it: `Status` refuses it, `Drop` ends the connection, `Hang` never answers.
* Messages are handled as `_front.py` says. Text only: a binary message ends the connection, as it does on
  servers in use.
* The session is the connection: what runs for it ends with it.
* What is queued goes out in order, whole frames each; only scripted bytes are something else.
"""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio

from ._actions import Answering, CloseFrame, Drop, Hang, RawBytes, Status, Truncate
from ._front import StreamFront

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trio_websocket import WebSocketConnection, WebSocketRequest

    from ._line import Line
    from ._server import FakeServer

MAX_MESSAGE: Final = 64 * 1024 * 1024
_PONG: Final = 0x8A
_TEXT: Final = 0x81
_FLOOD_AHEAD: Final = 4


@attrs.define
class WebSocketManners:
    """How a server treats WebSockets. May be changed at any time; counts for what comes after.

    Attributes:
        subprotocol: What is chosen, offered or not; None chooses none.
        pongs: Whether pings are answered.
    """

    subprotocol: str | None = "mcp"
    pongs: bool = True


class WsConnection(StreamFront):
    """One connection, from accept to close."""

    def __init__(self, server: FakeServer, line: Line, number: int) -> None:
        super().__init__(server.engine, f"ws-{number}", connection=number)
        self.server = server
        self.gone = False
        self.idle = True
        self._line = line
        self._stream = _Stream(self, line.stream)
        self._outbox, self._queue = trio.open_memory_channel[bytes](math.inf)
        self._written = trio.lowlevel.ParkingLot()  # who waits for less to be queued
        self._scope = trio.CancelScope()
        self._socket: WebSocketConnection | None = None

    # Life

    async def run(self) -> None:
        """Serve until either side closes. Raises nothing but what is wrong with the fake itself."""
        from trio_websocket import ConnectionClosed, wrap_server_stream
        from wsproto.utilities import LocalProtocolError

        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed):
                    request = await wrap_server_stream(
                        nursery,
                        cast("trio.SocketStream", self._stream),
                        max_message_size=MAX_MESSAGE,
                    )
                    await self._serve(request, nursery)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # the library answers pings behind a close frame of its own, which is an error
            rest = group.split(LocalProtocolError)[1]
            if rest is not None:
                raise rest from None
        finally:
            self.forget_streams()
            self.close()

    async def _serve(self, request: WebSocketRequest, nursery: trio.Nursery) -> None:
        manners = self.server.websocket
        assert manners is not None
        self.headers = _headers(request)
        arrival = self.engine.ledger.arrive(
            None,
            b"",
            connection=self.number,
            http_method="GET",
            target=request.path,
            headers=self.headers,
        )
        action = await self.engine.rules.decide(arrival)
        if action is None and request.path.partition("?")[0] != self.server.path:
            action = Status(404)
        if isinstance(action, Status):
            pairs = [
                (name.encode("latin-1"), text.encode("latin-1")) for name, text in action.headers.items()
            ]
            await request.reject(action.code, extra_headers=pairs, body=action.body or None)
            return
        if isinstance(action, Hang):
            await trio.sleep_forever()
        if action is not None:
            await self.misbehave(action, b"")
            return
        chosen = manners.subprotocol
        extra: list[tuple[bytes, bytes]] = []
        if chosen is not None and chosen not in request.proposed_subprotocols:
            # As servers in use do; the library would rather not.
            extra = [(b"sec-websocket-protocol", chosen.encode("ascii"))]
            chosen = None
        self._socket = await request.accept(subprotocol=chosen, extra_headers=extra)
        self.engine.ledger.wake()
        nursery.start_soon(self._write_all, self._socket)
        while True:
            message = await self._socket.get_message()
            if isinstance(message, bytes):
                return
            self.take(*self.file(message.encode()), nursery)

    def close(self, *, reset: bool = False) -> None:
        """Close the connection now, without a close frame; `reset` makes the client see a reset."""
        self._line.close(reset)
        self.lost()

    def kill(self) -> None:
        """Close the connection and end whatever still runs for this connection."""
        self.close()
        self._scope.cancel()

    def lost(self) -> None:
        """Either side has closed."""
        if not self.gone:
            self.gone = True
            self._written.unpark_all()
            self.server.connection_lost(self)
            if self._socket is None:
                # The library waits for the rest of an upgrade request that will never come.
                self._scope.cancel()

    # Messages

    def queue(self, data: bytes, kind: str) -> None:
        del kind
        self._outbox.send_nowait(data)

    async def drained(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.gone and self._outbox.statistics().current_buffer_used > _FLOOD_AHEAD:
            await self._written.park()

    async def _write_all(self, connection: WebSocketConnection) -> None:
        from trio_websocket import ConnectionClosed

        with suppress(ConnectionClosed):
            async for data in self._queue:
                await connection.send_message(data.decode(errors="replace"))
                self._written.unpark_all()

    async def _send_raw(self, data: bytes) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the client has gone meanwhile
            await self._stream.send_all(data)

    async def misbehave(self, action: Answering, usual: bytes) -> None:
        connection = self._socket
        match action:
            case Drop():
                self.close(reset=action.reset)
                self._scope.cancel()
            case Truncate():
                end = len(usual) // 2 if action.at is None else action.at
                await self._send_raw(_frame_head(len(usual)) + usual[:end])
                self.kill()
            case RawBytes():
                await self._send_raw(action.data)
                if action.close:
                    self.kill()
            case CloseFrame() if connection is not None:
                await connection.aclose(action.code, action.reason or None)
            case _:
                raise TypeError(f"{type(action).__name__} is no answer on a WebSocket")


class _Stream(trio.abc.Stream):
    """What the library writes to: scripted bytes go out between frames, pongs may be held back."""

    def __init__(self, connection: WsConnection, below: trio.abc.Stream) -> None:
        self._connection = connection
        self._below = below
        self._lock = trio.Lock()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        manners = self._connection.server.websocket
        if manners is not None and not manners.pongs and bytes(data[:1]) == bytes([_PONG]):
            return
        async with self._lock:
            await self._below.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._below.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._below.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._connection.lost()
            raise
        if not data:
            self._connection.lost()
        return data

    async def aclose(self) -> None:
        await self._below.aclose()
        self._connection.lost()


def _headers(request: WebSocketRequest) -> Mapping[str, str]:
    found: dict[str, str] = {}
    pairs: list[tuple[bytes, bytes]] = list(cast("Any", request.headers))
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    if request.proposed_subprotocols:
        found["sec-websocket-protocol"] = ", ".join(request.proposed_subprotocols)
    return found


def _frame_head(size: int) -> bytes:
    """How a text message of a server begins, which masks nothing (RFC 6455, section 5.2)."""
    if size < 126:
        return bytes([_TEXT, size])
    if size < 65536:
        return bytes([_TEXT, 126]) + struct.pack("!H", size)
    return bytes([_TEXT, 127]) + struct.pack("!Q", size)
