"""A network of socket pairs, a server that the test plays itself, and a sink that keeps what it got."""

from __future__ import annotations

import math
import socket
from typing import Any, Self

import trio

from afpool._base.seams import Seams
from afpool.transports._connect import Connector
from afpool.transports._http import HttpExchange, HttpLink, HttpRequest, LaneName
from afpool.transports._origin import Origin
from tests.transports.wire_kit import SwitchGate

ORIGIN = Origin("http", "127.0.0.1", 8080)
POST = HttpRequest(b"POST", b"/mcp?x=1", [(b"content-type", b"application/json")], b'{"id":1}')


def answer(body: bytes = b'{"ok":true}', *headers: bytes, status: bytes = b"200 OK") -> bytes:
    head = [
        b"HTTP/1.1 " + status,
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


class Keeper:
    """A sink. Says that the answer is complete when `enough` bytes came."""

    def __init__(self, enough: float = math.inf) -> None:
        self.enough = enough
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""

    def head(self, status: int, headers: list[tuple[bytes, bytes]], /) -> None:
        assert not self.status, "one answer has one head"
        self.status = status
        self.headers = headers

    def data(self, chunk: bytes, /) -> bool:
        assert self.status
        assert type(chunk) is bytes
        self.body += chunk
        return len(self.body) >= self.enough


class Peer:
    """The server's side of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._buffer = b""

    async def request(self) -> bytes:
        """The next whole request, head and body."""
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        head, _, _ = self._buffer.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        size = len(head) + 4 + length
        while len(self._buffer) < size:
            await self._more()
        request, self._buffer = self._buffer[:size], self._buffer[size:]
        return request

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        assert data, "the client closed the connection"
        self._buffer += data

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def serve(self, *answers: bytes) -> None:
        """One request per answer."""
        for each in answers:
            await self.request()
            await self.send(each)

    async def close(self) -> None:
        await self.stream.aclose()

    async def closed_by_client(self) -> bool:
        """Whether the client closes the connection, without another byte, before everybody is idle."""
        try:
            return await self.stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True


class Net:
    """Connects nothing but socket pairs, and hands the other ends out in order."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.ours: list[socket.socket] = []
        self.fail: OSError | None = None
        self.hang = False
        self.hold: trio.Event | None = None
        self.new = trio.Event()

    async def connect(self, _family: int, _address: Any) -> socket.socket:
        if self.hang:
            await trio.sleep_forever()
        if self.hold is not None:
            await self.hold.wait()
        else:
            await trio.lowlevel.checkpoint()
        if self.fail is not None:
            raise self.fail
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.peers.append(Peer(theirs))
        self.ours.append(ours)
        self.new.set()
        return ours

    async def peer(self, number: int = 0) -> Peer:
        while len(self.peers) <= number:
            self.new = trio.Event()
            await self.new.wait()
        return self.peers[number]

    async def close(self) -> None:
        for peer in self.peers:
            await trio.aclose_forcefully(peer.stream)


class Rig:
    """A link over a net, and the ordinary way to use it."""

    def __init__(self, *, limit: int = 2, keepalive_expiry: float = 4.0) -> None:
        self.net = Net()
        seams = Seams(connect=self.net.connect)
        self.link = HttpLink(
            ORIGIN, Connector(seams), seams=seams, limit=limit, keepalive_expiry=keepalive_expiry
        )

    def exchange(
        self, request: HttpRequest = POST, sink: Any = None, lane: LaneName = "call"
    ) -> tuple[HttpExchange, Keeper]:
        sink = Keeper() if sink is None else sink
        return self.link.exchange(request, sink, lane), sink

    async def call(
        self, request: HttpRequest = POST, sink: Any = None, lane: LaneName = "call", gate: Any = None
    ) -> Keeper:
        exchange, sink = self.exchange(request, sink, lane)
        await exchange.run(SwitchGate() if gate is None else gate, trio.current_time() + 60)
        assert exchange.complete
        return sink

    async def answered(self, *answers: bytes, number: int = 0, sink: Any = None) -> list[Keeper]:
        """One call after another, each with its answer, all on the connection `number`."""
        got = []
        for each in answers:
            async with trio.open_nursery() as nursery:

                async def serve(each: bytes = each) -> None:
                    await (await self.net.peer(number)).serve(each)

                nursery.start_soon(serve)
                got.append(await self.call(sink=sink))
        return got

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.link.close()
        statistics = self.link.statistics()
        assert (statistics.active, statistics.idle, statistics.waiting) == (0, 0, 0)
        await self.net.close()
