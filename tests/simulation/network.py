"""The network of a simulated world: names, listeners, connections, and what befalls them.

`connect`, `resolve` and `spawn` are seams of a pool. Nothing here touches a kernel; time is trio's clock and
chance is the world's. Rules:

* One task serves a heap of what is due (bytes that arrive, faults that end). What is due at the same time
  happens in the order in which it was asked for.
* `observers` are told in the step in which the client's write took bytes (`to-server`), and in the step in
  which the client read some (`to-client`): what they see is what left, and what was received.
* A client's end is a `Wire`, so the gate and the write are one step exactly as on a socket.
"""

from __future__ import annotations

import errno
import heapq
import math
import os
import random
import re
import socket
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from afpool.testing._memory import WireStream
from afpool.transports import Wire, WireClosed, Woken
from afpool.transports._wire import READING, closed_here
from tests.simulation.children import Children
from tests.simulation.pipe import Direction, Link, Towards
from tests.simulation.world import Weather

if TYPE_CHECKING:
    from collections.abc import Callable

Handler: TypeAlias = "Callable[[SimStream], None]"
Observer: TypeAlias = "Callable[[Link, Towards, bytes, float], None]"

FILLER: Final = re.compile(rb"@filler-(\d+)@")
PIECE: Final = b"x" * 65536

GIVEN_UP: Final = 127.0
"""Seconds after which a kernel gives up connecting."""


class SimWire(Wire):
    """The client's end of a link."""

    __slots__ = ("_in", "_out", "_write_closed", "link")

    def __init__(self, link: Link) -> None:
        super().__init__()
        self.link = link
        self._in = link.to_client
        self._out = link.to_server
        self._write_closed = False

    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        """See `Wire.receive_nowait`."""
        if self._closed:
            raise closed_here()
        channel, link = self._in, self.link
        if not channel.arrived and link.broken["to-client"]:
            raise _broken(link.broken["to-client"])
        data = channel.take(max_bytes)
        if data:
            link.network.saw(link, "to-client", data)
        elif data is not None:
            link.network.log(link, "client reads the end")
        return data

    def alive(self) -> bool:
        """See `Wire.alive`: on a socket any byte or end is a fault, on a pipe unread bytes are none."""
        if self._closed or self._write_closed or self.link.broken["to-client"]:
            return False
        if self.link.kernel:
            return self.link.server_closed is None and (bool(self._in.arrived) or not self._in.ended)
        return not self._in.readable

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        link = self.link
        if self._write_closed:
            raise closed_here()
        if link.broken["to-client"]:
            raise _broken(link.broken["to-client"])
        if link.kernel and link.server_closed is not None:
            raise _broken(errno.EPIPE)
        taken = self._out.write(data)
        if taken:
            link.network.saw(link, "to-server", bytes(data[:taken]))
        return taken

    def close_write(self) -> None:
        """End our direction; reading goes on. A second call does nothing."""
        if not self._write_closed and not self._closed:
            self._write_closed = True
            self._out.end()
            self._out.wake()

    async def _park(self, fd: int, side: int) -> None:
        del fd
        if self._parked & side:
            raise trio.BusyResourceError("another task already waits here")
        self._parked |= side
        try:
            if self._over(side):
                await trio.lowlevel.checkpoint()
            else:
                channel = self._in if side == READING else self._out
                while True:
                    await (channel.until_readable() if side == READING else channel.until_writable())
                    if self._over(side):
                        break
        finally:
            self._parked &= ~side
            woken = self._woken & side
            self._woken &= ~side
        if self._closed or (side != READING and self._write_closed):
            raise closed_here()
        if woken:
            raise Woken

    def _over(self, side: int) -> bool:
        """Whether there is a reason to come back."""
        if self._closed or self._woken & side or self.link.broken["to-client"]:
            return True
        if side == READING:
            return self._in.readable
        return self._write_closed or self._out.room() > 0

    def _read_fd(self) -> int:
        if self._closed:
            raise closed_here()
        return -1

    def _write_fd(self) -> int:
        if self._closed or self._write_closed:
            raise closed_here()
        return -1

    def _unpark(self) -> None:
        self._in.wake()
        self._out.wake()

    def _close_fds(self) -> None:
        self.link.close("client")


def filler(size: int) -> bytes:
    """What a server writes for `size` bytes of filler, which are made only as they leave."""
    return b"@filler-%d@" % size


class SimStream(trio.abc.Stream):
    """The server's end of a link, for a fake server. Fillers in what it writes are filled, see `filler`."""

    __slots__ = ("_in", "_out", "_write_closed", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        self._in = link.to_server
        self._out = link.to_client
        self._write_closed = False

    @property
    def closed(self) -> bool:
        """Whether this end is closed."""
        return self.link.server_closed is not None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream`."""
        found = FILLER.search(data)
        if found is None:
            await self._send(data)
            return
        await self._send(data[: found.start()])
        left = int(found[1])
        while left:
            await self._send(PIECE[:left])
            left -= min(left, len(PIECE))
        await self._send(data[found.end() :])

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        sent = 0
        with memoryview(data) as view:
            while sent < len(view):
                self._check_writable()
                taken = self._out.write(view[sent:])
                sent += taken
                if not taken:
                    await self._out.until_writable()

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        await trio.lowlevel.checkpoint()
        self._check_writable()
        while self._out.room() <= 0:
            await self._out.until_writable()
            self._check_writable()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See `trio.abc.ReceiveStream`."""
        link, channel = self.link, self._in
        if channel.readable:
            await trio.lowlevel.checkpoint()
        while True:
            if link.server_closed is not None:
                raise trio.ClosedResourceError
            if not channel.arrived and link.broken["to-server"]:
                raise trio.BrokenResourceError(os.strerror(link.broken["to-server"]))
            data = channel.take(max_bytes)
            if data is not None:
                return data
            await channel.until_readable()

    def _check_writable(self) -> None:
        link = self.link
        if link.server_closed is not None or self._write_closed:
            raise trio.ClosedResourceError
        if link.broken["to-server"]:
            raise trio.BrokenResourceError(os.strerror(link.broken["to-server"]))
        if link.kernel and link.client_closed is not None:
            raise trio.BrokenResourceError(os.strerror(errno.EPIPE))

    def close(self) -> None:
        """Close this end at once."""
        self.link.close("server")

    def reset(self) -> None:
        """Close this end so that the client sees a reset."""
        self.link.close("server", reset=True)

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        self.close()
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class Listening:
    """Somebody who listens at a name.

    Attributes:
        name: The host's name, or the path of a Unix socket.
        port: 0 at a path.
        address: The host's numeric address.
        handler: Is given each new connection; a `ConnectionRefusedError` refuses it.
        weather: Of new links; None is the network's.
        how: `accept`, or what befalls who connects: `refuse`, `hang`, `delay` (for `seconds` more).
        seconds: See `how`.
        resolvable: Whether the name is known.
    """

    name: str
    port: int
    address: str
    handler: Handler
    weather: Weather | None = None
    how: str = "accept"
    seconds: float = 0.0
    resolvable: bool = True


class Network:
    """Names, listeners and links.

    Attributes:
        weather: Of links whose listener has none of its own.
        observers: See the module.
        watchers: Told what else happens to a link, as the trace has it: it begins with `opens`, `client
            closes`, `server closes`, `broken to-client`, `broken to-server`, `cut`, ...
        links: All links, oldest first.
        listening: Who listens, by name and port.
        children: Programs, and the children that were started of them.
        trace: Lines are appended here.
        keeps_bytes: Whether what the client writes and reads goes into the trace.
    """

    def __init__(self, seed: str, trace: list[str], now: Callable[[], float] = trio.current_time) -> None:
        self.random = random.Random(seed)
        self.now = now
        self.weather = Weather()
        self.observers: list[Observer] = []
        self.watchers: list[Callable[[Link, str], None]] = []
        self.links: list[Link] = []
        self.listening: dict[tuple[str, int], Listening] = {}
        self.trace = trace
        self.keeps_bytes = True
        self.children = Children(self)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._task: trio.lowlevel.Task | None = None
        self.wakes_at = math.inf

    # ------------------------------------------------------------------ time

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have `what`, which must not block or raise, called then. Never where `when` is infinite."""
        if when == math.inf:
            return
        self._number += 1
        heapq.heappush(self._due, (when, self._number, what))
        if when < self.wakes_at:
            self.rouse()

    def rouse(self) -> None:
        """Let the task look what is due: called by the clock when `wakes_at` has come."""
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the heap until cancelled."""
        task_status.started()
        due = self._due
        while True:
            now = self.now()
            while due and due[0][0] <= now:
                heapq.heappop(due)[2]()
            await self._sleep(due[0][0] if due else math.inf)

    async def _sleep(self, until: float) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        self.wakes_at = until
        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._task = None
            self.wakes_at = math.inf

    # ------------------------------------------------------------------ who is there

    def listen(
        self, name: str, handler: Handler, *, port: int = 80, weather: Weather | None = None
    ) -> Listening:
        """Have somebody listen at a name, or (port 0) at a path.

        Args:
            name: The host.
            handler: Given each new connection; `FakeServer.serve_stream` is one.
            port: The port.
            weather: Of its links, instead of the network's.
        """
        addresses = {each.name: each.address for each in self.listening.values()}
        count = len(addresses) + 1
        address = addresses.get(name) or f"10.0.{count // 250}.{count % 250 + 1}"
        entry = self.listening[name, port] = Listening(name, port, address, handler, weather)
        return entry

    def resolve(self, host: str, port: int) -> list[tuple[int, Any]]:
        """The seam: the addresses of a name."""
        for entry in self.listening.values():
            if entry.name == host and entry.resolvable:
                return [(int(socket.AF_INET), (entry.address, port))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def connect(self, family: int, address: Any) -> SimWire:
        """The seam: connect to an address."""
        entry = self._listener(family, address)
        weather = (entry.weather if entry is not None else None) or self.weather
        how = "refuse" if entry is None else entry.how
        if how == "hang":
            await trio.sleep(GIVEN_UP)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        waits = self.random.random() * weather.connect if weather.connect else 0.0
        if how == "delay" and entry is not None:
            waits += entry.seconds
        await trio.sleep(waits)
        if entry is None or entry.how == "refuse":
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        link, wire, stream = self.make_link(entry.name, weather)
        try:
            entry.handler(stream)
        except ConnectionRefusedError:
            self.forget(link)
            raise
        self.log(link, f"opens to {entry.name}")
        return wire

    async def dial(self, host: str, port: int) -> trio.abc.Stream:
        """Connect on behalf of somebody who is not the pool, such as a proxy."""
        wire = await self.connect(socket.AF_INET, (host, port))
        wire.link.own = False
        return WireStream(wire)

    def _listener(self, family: int, address: Any) -> Listening | None:
        if family == socket.AF_UNIX:
            return self.listening.get((address, 0))
        host, port = address[0], address[1]
        for entry in self.listening.values():
            if entry.port == port and host in {entry.address, entry.name}:
                return entry
        return None

    def make_link(
        self, name: str, weather: Weather | None = None, *, kernel: bool = False
    ) -> tuple[Link, SimWire, SimStream]:
        """Make a link and both of its ends."""
        link = Link(self, len(self.links) + 1, name, weather or self.weather, kernel=kernel)
        self.links.append(link)
        return link, SimWire(link), SimStream(link)

    def forget(self, link: Link) -> None:
        """Count a link out that never came about."""
        self.links.remove(link)

    def links_to(self, name: str) -> list[Link]:
        """The pool's links to a name that it has not closed, oldest first."""
        return [link for link in self.links if link.name == name and link.client_closed is None and link.own]

    def open_client_ends(self) -> list[Link]:
        """The pool's links whose client's end is not closed."""
        return [link for link in self.links if link.client_closed is None and link.own]

    # ------------------------------------------------------------------ what is seen

    def saw(self, link: Link, towards: Towards, data: bytes) -> None:
        """The client has written or read bytes."""
        if not link.own:
            return
        now = self.now()
        if self.keeps_bytes:
            self.trace.append(f"{now:.6f} {link.number} {'>' if towards == 'to-server' else '<'} {data!r}")
        for observer in self.observers:
            observer(link, towards, data, now)

    def log(self, link: Link, what: str) -> None:
        """Something else has happened to a link."""
        self.trace.append(f"{self.now():.6f} {link.number} {what}")
        for watcher in self.watchers:
            watcher(link, what)


def _broken(number: int) -> WireClosed:
    return WireClosed(os.strerror(number), local=False)


__all__ = ["Direction", "Link", "Listening", "Network", "SimStream", "SimWire", "Towards", "Weather"]
