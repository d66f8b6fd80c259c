"""`FakeProxy`: an HTTP proxy, over loopback or streams, that tunnels by CONNECT or refuses as scripted."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import h11
import trio

from ._door import Door, MemoryDoor
from ._line import Line, socket_line, stream_line
from ._service import Service

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

_READ = 65536


@attrs.frozen
class Tunnel:
    """One CONNECT that came.

    Attributes:
        target: `host:port`, as it was asked for.
        headers: Of the CONNECT, names in lower case.
        status: What it was answered; 0 for none.
    """

    target: str
    headers: Mapping[str, str]
    status: int


class FakeProxy(Service):
    """An HTTP proxy for tests of agents behind one. Enter it (`async with`) or run it in a nursery.

    Everything may be changed while it runs; a change counts from the next CONNECT on.

    Args:
        credential: The `Proxy-Authorization` that it wants; 407 without.
        ssl_context: Speak TLS with the client.
        hosts: Where a name is to be found in truth, as `{"mcp.example:443": ("127.0.0.1", 8443)}`; other
            targets are connected to as they are, by numeric address.
        memory: Open no socket; connections come by `serve_stream`, and go on by `connect`.
        host: The name that it is reached at then.
        port: The port.
        connect: How it gets to a host and port; by a socket if not told. `OSError` is answered 502.

    Attributes:
        tunnels: Every CONNECT, in order.
        refuse: Answer this status instead of connecting.
        raw: Answer these bytes instead, and close.
        bytes_in: What clients sent inside tunnels, all of it; what a proxy could read.
    """

    def __init__(
        self,
        *,
        credential: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        hosts: Mapping[str, tuple[str, int]] | None = None,
        memory: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        connect: Callable[[str, int], Awaitable[trio.abc.Stream]] | None = None,
    ) -> None:
        super().__init__()
        self.credential = credential
        self.ssl_context = ssl_context
        self.hosts = dict(hosts or {})
        self.tunnels: list[Tunnel] = []
        self.refuse: int | None = None
        self.raw: bytes | None = None
        self.bytes_in = b""
        self._connect = _connect if connect is None else connect
        self._door: Door | MemoryDoor = MemoryDoor(host, port) if memory else Door(host, port)
        self._served: trio.Nursery | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "http" if self.ssl_context is None else "https"
        return f"{scheme}://{self._door.host}:{self._door.port}"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports started when it listens."""
        await self._door.open()
        try:
            async with trio.open_nursery() as nursery:
                self._served = nursery
                task_status.started()
                while True:
                    line = socket_line(await self._door.accept(), self.ssl_context)
                    nursery.start_soon(self._serve, line)
        finally:
            self._door.shut()

    def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Take one more connection, on any stream; see `FakeServer.serve_stream`.

        Raises:
            ConnectionRefusedError: The proxy does not run.
        """
        if self._served is None or not self._door.is_open:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the proxy takes no connections")
        start_soon = self._served.start_soon
        start_soon(self._serve, stream_line(stream, self.ssl_context, start_soon))

    async def _serve(self, line: Line) -> None:
        stream = line.stream
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError, OSError):
            try:
                await self._tunnel(stream)
            finally:
                await trio.aclose_forcefully(stream)

    async def _tunnel(self, stream: trio.abc.Stream) -> None:
        reader = h11.Connection(h11.SERVER)
        request = reader.next_event()
        while request is h11.NEED_DATA:
            reader.receive_data(bytes(await stream.receive_some(_READ)))
            request = reader.next_event()
        if not isinstance(request, h11.Request):
            return
        target = request.target.decode("latin-1")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        status = self._judge(request.method, headers)
        if self.raw is not None:
            self.tunnels.append(Tunnel(target, headers, 0))
            await stream.send_all(self.raw)
            return
        host, _, port = target.rpartition(":")
        place = self.hosts.get(target, (host.strip("[]"), int(port)))
        there: trio.abc.Stream | None = None
        if status == 200:
            try:
                there = await self._connect(*place)
            except OSError:
                status = 502
        self.tunnels.append(Tunnel(target, headers, status))
        answer = b"HTTP/1.1 %d %s\r\n\r\n" % (status, b"OK" if there else b"Refused")
        if there is None:
            await stream.send_all(answer)
            return
        async with there:
            await stream.send_all(answer)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, stream, there, nursery, True)
                nursery.start_soon(self._pump, there, stream, nursery, False)

    def _judge(self, method: bytes, headers: Mapping[str, str]) -> int:
        if method != b"CONNECT":
            return 405
        if self.credential is not None and headers.get("proxy-authorization") != self.credential:
            return 407
        return 200 if self.refuse is None else self.refuse

    async def _pump(
        self, source: trio.abc.Stream, drain: trio.abc.Stream, nursery: trio.Nursery, inward: bool
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some(_READ):
                if inward:
                    self.bytes_in += bytes(data)
                await drain.send_all(data)
        nursery.cancel_scope.cancel()


async def _connect(host: str, port: int) -> trio.abc.Stream:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        await sock.connect((host, port))
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(sock)
