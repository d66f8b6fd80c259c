"""A WebSocket link of ours, opened against a server end that the test holds."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, cast

import attrs
import trio
from trio_websocket import WebSocketConnection, wrap_server_stream

from afpool._base.seams import Seams
from afpool.transports._tls import TlsWire
from afpool.transports._websocket import WebSocketLink
from afpool.transports._wire import Outgoing, SocketWire, Wire
from tests.transports.wire_kit import CLIENT_CONTEXT, SERVER_CONTEXT, small_buffers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX = 100_000


@attrs.define
class Held:
    """Both ends.

    Attributes:
        link: Ours, open.
        server: The peer's end, as the library sees it.
        raw: The stream under it.
        wire: What the link writes to.
        lines: What the link handed over.
        lost: Why it ended, once it has.
        gone: The messages whose gate refused.
    """

    link: WebSocketLink
    server: WebSocketConnection
    raw: trio.abc.Stream
    wire: Wire
    lines: list[bytes]
    lost: list[str]
    gone: list[Outgoing]
    nursery: trio.Nursery

    def submit(self, data: bytes, gate: Any, context: Any = None) -> Outgoing:
        return self.link.submit(data, gate, context, self.gone.append)


def new_link(lines: list[bytes], lost: list[str], max_message: int = MAX) -> WebSocketLink:
    return WebSocketLink(on_line=lines.append, on_lost=lost.append, max_message=max_message, seams=Seams())


@contextlib.asynccontextmanager
async def held(
    *,
    tls: bool = False,
    small: bool = False,
    subprotocol: str | None = "mcp",
    make_wire: Callable[[socket.socket], Wire] = SocketWire,
    max_message: int = MAX,
    seconds: float = 20,
) -> AsyncIterator[Held]:
    """An open link; everything ends with the block."""
    ours, theirs = socket.socketpair()
    if small:
        small_buffers(ours, theirs)
    raw: trio.abc.Stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    lines: list[bytes] = []
    lost: list[str] = []
    try:
        with trio.fail_after(seconds):
            async with trio.open_nursery() as nursery:
                wire = make_wire(ours)
                if tls:
                    secure = trio.SSLStream(raw, SERVER_CONTEXT, server_side=True)
                    nursery.start_soon(secure.do_handshake)
                    assert isinstance(wire, SocketWire)
                    wire = await TlsWire.handshake(wire, CLIENT_CONTEXT, "localhost")
                    raw = secure
                link = new_link(lines, lost, max_message)
                accepted: list[WebSocketConnection] = []

                async def accept() -> None:
                    request = await wrap_server_stream(nursery, cast("trio.SocketStream", raw))
                    accepted.append(await request.accept(subprotocol=subprotocol))

                nursery.start_soon(accept)
                await link.open(
                    wire,
                    authority="localhost",
                    target="/mcp",
                    headers=[],
                    subprotocols=("mcp",),
                    spawn=nursery.start_soon,
                )
                await trio.testing.wait_all_tasks_blocked()
                yield Held(link, accepted[0], raw, wire, lines, lost, [], nursery)
                link.close()
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
    finally:
        ours.close()
        theirs.close()
    assert len(lost) == 1, "the end is told once"
