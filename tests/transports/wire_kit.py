"""What the tests of wires share: gates that can be closed, pairs of wires and peers, a look at the kernel."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Any

import attrs
import trio
import trustme

from afpool._base.errors import StaleTools
from afpool.transports._tls import TlsWire
from afpool.transports._wire import PipeWire, SocketWire, Wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

CA = trustme.CA()
SERVER_CONTEXT = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
CA.issue_cert("localhost").configure_cert(SERVER_CONTEXT)
CLIENT_CONTEXT = ssl.create_default_context()
CA.configure_trust(CLIENT_CONTEXT)

KINDS = ("socket", "tls", "pipe")


class SwitchGate:
    """A gate that can be closed, and remembers what it was asked and told."""

    def __init__(self, *, closed: bool = False) -> None:
        self.closed = closed
        self.asked: list[str] = []
        self.begun = 0

    def ask(self, stage: str, /) -> None:
        self.asked.append(stage)
        if self.closed:
            raise StaleTools("the list changed. Nothing was sent.")

    def began(self) -> None:
        self.begun += 1


@attrs.define
class Pair:
    """A wire and its peer's side: how the peer reads and writes, and goes away.

    `write_now` writes without a checkpoint; under TLS it does not exist.
    """

    wire: Wire
    read: Callable[[], Awaitable[bytes]]
    write: Callable[[bytes], Awaitable[None]]
    close_peer: Callable[[], Awaitable[None]]
    write_now: Callable[[bytes], object] | None = None

    async def read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await self.read()
            assert more, "the stream ended early"
            data += more
        return data


def small_buffers(*socks: socket.socket) -> None:
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


def theirs_send(stream: trio.SocketStream) -> Callable[[bytes], object]:
    fd = stream.socket.fileno()
    return lambda data: os.write(fd, data)


async def make_pair(kind: str) -> Pair:
    if kind == "pipe":
        child_in, out = os.pipe2(os.O_CLOEXEC)
        inp, child_out = os.pipe2(os.O_CLOEXEC)
        reader, writer = trio.lowlevel.FdStream(child_in), trio.lowlevel.FdStream(child_out)

        async def close_both() -> None:
            await reader.aclose()
            await writer.aclose()

        return Pair(
            PipeWire(out, inp),
            lambda: reader.receive_some(65536),
            writer.send_all,
            close_both,
            lambda data: os.write(child_out, data),
        )
    ours, theirs = socket.socketpair()
    small_buffers(ours, theirs)
    stream: Any = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    wire = SocketWire(ours)
    if kind == "socket":
        return Pair(
            wire, lambda: stream.receive_some(65536), stream.send_all, stream.aclose, theirs_send(stream)
        )
    server = trio.SSLStream(stream, SERVER_CONTEXT, server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        wire = await TlsWire.handshake(wire, CLIENT_CONTEXT, "localhost")
    return Pair(wire, lambda: server.receive_some(65536), server.send_all, stream.aclose)


class KernelSpy:
    """Sees every write to the kernel in the instant in which it is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Callable[[], None] | None = None
        real_write = os.write

        def send(sock: socket.socket, data: Any, *flags: int) -> int:
            if self.seen is not None:
                self.seen()
            return super(socket.socket, sock).send(data, *flags)

        def write(fd: int, data: Any) -> int:
            if self.seen is not None:
                self.seen()
            return real_write(fd, data)

        monkeypatch.setattr(socket.socket, "send", send, raising=False)
        monkeypatch.setattr(os, "write", write)


async def fill(wire: Wire) -> int:
    """Fill the kernel's buffer until it takes nothing more; says how much went in."""
    from afpool._base.gate import OpenGate
    from afpool.transports._wire import Outgoing

    total = 0
    blob = b"f" * 65536
    while True:
        message = Outgoing(blob, OpenGate())
        if wire.push([message]) == 0:
            return total
        total += message.sent
