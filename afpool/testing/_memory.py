"""Reaching fake servers without a kernel: connections and children that are pairs of wires in memory.

What is replaced is the kernel and the process, no more: the bytes, the gate in front of them, and the order
in which a child is ended are the real ones. Nothing here waits for real time, so that a mock clock may jump.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from .._base.gate import OpenGate
from .._base.seams import Seams
from ..transports import Child, SpawnFailed, WireClosed, memory_link_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..transports import StdioConfig, Wire
    from ._server import FakeServer

STDERR_ROOM: Final = 64 * 1024
"""Bytes of stderr that wait to be read before a child has to wait: what a pipe holds."""


def in_memory(*servers: FakeServer, seams: Seams | None = None) -> Seams:
    """Seams through which a pool reaches these servers, and nobody else, without sockets and processes.

    A server of `FakeServer.http` or `FakeServer.ws` (best made with `memory=True`) is found by its host and
    port, one of `FakeServer.stdio` by its `command`. Names of hosts are resolved without a thread. TLS is not
    spoken: it needs a socket.

    Args:
        servers: They have to run when they are reached.
        seams: What the other seams are; the real ones by default.
    """
    numbers = itertools.count(1)
    by_address = {(server.host, server.port): server for server in servers if server.child is None}
    hosts = {host: f"127.1.0.{number}" for number, (host, _) in enumerate(by_address, 1)}
    names = {address: host for host, address in hosts.items()}
    programs = {server.command[0]: server for server in servers if server.child is not None}

    async def connect(family: int, address: Any) -> Wire:
        await trio.lowlevel.checkpoint()
        found = None
        if family in {socket.AF_INET, socket.AF_INET6}:
            host: str = address[0]
            found = by_address.get((names.get(host, host), address[1]))
        if found is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        ours, theirs = memory_link_pair()
        found.serve_stream(WireStream(theirs))
        return ours

    def resolve(host: str, port: int) -> list[tuple[int, Any]]:
        if host not in hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(int(socket.AF_INET), (hosts[host], port))]

    async def at_once(function: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
        del limiter
        await trio.lowlevel.checkpoint()
        return function()

    async def spawn(config: StdioConfig) -> Child:
        await trio.lowlevel.checkpoint()
        server = programs.get(config.command[0])
        if server is None or not server.accepting:
            raise SpawnFailed(f"command {config.name!r} was not found")
        ours, theirs = memory_link_pair()
        child = FakeChild(server, config, ours, WireStream(theirs), next(numbers))
        server.start_soon(child.run)
        return child

    return attrs.evolve(
        Seams() if seams is None else seams, connect=connect, resolve=resolve, in_thread=at_once, spawn=spawn
    )


class WireStream(trio.abc.Stream):
    """One end of a link as a stream, for a server's side."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream`."""
        await trio.lowlevel.checkpoint()
        try:
            await self._wire.send(bytes(data), OpenGate())
        except WireClosed as error:
            raise _as_trio(error) from None

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        try:
            await self._wire.writable()
        except WireClosed as error:
            raise _as_trio(error) from None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See `trio.abc.ReceiveStream`."""
        try:
            return await self._wire.receive(65536 if max_bytes is None else max_bytes)
        except WireClosed as error:
            raise _as_trio(error) from None

    def close(self) -> None:
        """Close both directions at once."""
        self._wire.close()

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        self._wire.close()
        await trio.lowlevel.checkpoint()


def _as_trio(error: WireClosed) -> Exception:
    return trio.ClosedResourceError() if error.local else trio.BrokenResourceError(str(error))


class FakeChild(Child):
    """A child of a `FakeServer.stdio` without a process: a task that speaks on a stream.

    Attributes:
        server: Whose child it is.
        config: What it was started with.
        number: Its connection number at the server, once it runs.
        exit_code: How it has ended; `None` while it runs. A negative number is a signal's.

    Args:
        wire: The parent's end of stdin and stdout.
        inside: The child's end; has a synchronous `close`.
        pid: What it calls itself.
    """

    __slots__ = (
        "_gone", "_inside", "_reaped", "_scope", "_stderr", "config", "exit_code", "number", "pid",
        "server", "wire",
    )  # fmt: skip

    wire: Any  # a wire whose own direction can be ended: there is no name for that

    def __init__(self, server: FakeServer, config: StdioConfig, wire: Wire, inside: Any, pid: int) -> None:
        self.server = server
        self.config = config
        self.number = 0
        self.pid = pid
        self.wire = wire
        self._inside = inside
        self._stderr = _Stderr()
        self._scope = trio.CancelScope()
        self._gone = trio.Event()
        self.exit_code: int | None = None
        self._reaped = False

    async def run(self) -> None:
        """Be the child until it exits or is killed. Whoever starts it runs this in a task."""
        names = {name.lower(): value for name, value in (self.config.env or {}).items()}
        self.number = self.server.connections_total + 1  # counted in before the first wait
        try:
            with self._scope:
                code = await self.server.serve_child(
                    self._inside, self._inside, self._stderr, environment=names
                )
                self.exit(code)
        except ConnectionRefusedError:
            self.exit(1)
        finally:
            self.exit(-signal.SIGKILL)

    def exit(self, code: int) -> None:
        """End it in this step; a second call does nothing. A negative code is a signal's number."""
        if self.exit_code is None:
            self.exit_code = code
            self._scope.cancel()
            self._inside.close()
            self._stderr.end()
            self._gone.set()

    @property
    def returncode(self) -> int | None:
        """See `Child.returncode`."""
        return self.exit_code if self._reaped else None

    def close_stdin(self) -> None:
        """See `Child.close_stdin`."""
        self.wire.close_write()

    def signal(self, number: signal.Signals) -> None:
        """See `Child.signal`."""
        script = self.server.child
        if number == signal.SIGKILL or script is None or not script.ignore_sigterm:
            self.exit(-number)

    def reap(self) -> bool:
        """See `Child.reap`."""
        self._reaped = self.exit_code is not None
        return self._reaped

    async def exited(self) -> None:
        """See `Child.exited`."""
        await self._gone.wait()

    async def stderr_readable(self) -> None:
        """See `Child.stderr_readable`."""
        await self._stderr.readable()

    def read_stderr(self, max_bytes: int) -> bytes | None:
        """See `Child.read_stderr`."""
        return self._stderr.read(max_bytes)

    def close(self) -> None:
        """See `Child.close`."""
        self.wire.close()
        self._stderr.close()


class _Stderr(trio.abc.SendStream):
    """A child's stderr: a pipe whose reader looks without waiting."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._ended = False
        self._closed = False
        self._lot = trio.lowlevel.ParkingLot()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream`."""
        await trio.lowlevel.checkpoint()
        left = bytes(data)
        while left:
            if self._closed or self._ended:
                raise trio.BrokenResourceError("nobody reads it")
            room = STDERR_ROOM - len(self._held)
            if room > 0:
                self._held += left[:room]
                left = left[room:]
                self._lot.unpark_all()
            else:
                await self._lot.park()

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        self.end()
        await trio.lowlevel.checkpoint()

    def end(self) -> None:
        """The child writes no more."""
        self._ended = True
        self._lot.unpark_all()

    def close(self) -> None:
        """The parent reads no more."""
        self._closed = True
        self._held.clear()
        self._lot.unpark_all()

    async def readable(self) -> None:
        """Wait until `read` would not say None."""
        await trio.lowlevel.checkpoint()
        while not (self._held or self._ended or self._closed):
            await self._lot.park()
        if self._closed:
            raise trio.ClosedResourceError

    def read(self, max_bytes: int) -> bytes | None:
        """Take what is there: None when nothing is, `b""` at the end."""
        if self._held:
            data = bytes(self._held[:max_bytes])
            del self._held[:max_bytes]
            self._lot.unpark_all()
            return data
        return b"" if self._ended or self._closed else None
