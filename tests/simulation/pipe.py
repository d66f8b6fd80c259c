"""One link of the simulated network: two directions of bytes, and the two ends that use them.

What a kernel and a network do to bytes is done here in simulated time: they are on their way for a while,
arrive in pieces, wait for room, stall, vanish. Rules:

* A write takes what fits into the direction's buffer, or a part of it, and never waits. What was taken is
  gone for the writer; nothing tells it what becomes of it.
* Pieces stay in order. What an end says last (its end, or a reset) travels behind its bytes; a reset
  overtakes them.
* As on Linux: an end that is closed with bytes unread resets; bytes that reach a closed end are answered
  with a reset; bytes that had arrived before a reset can still be read, and after them reading fails.
* A pipe (`kernel=True`) has no way between its ends: a writer whose reader is gone is told at once.
* Everything is synchronous. Whoever waits is parked in a lot and looks again when woken.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.network import Network
    from tests.simulation.world import Weather

Towards: TypeAlias = Literal["to-server", "to-client"]

UNNOTICED: Final = 30.0
"""Seconds after which a kernel gives a connection up that acknowledges nothing (`TCP_USER_TIMEOUT`)."""

_END: Final = b""
"""Behind the last bytes of a direction. No piece is empty."""


class Direction:
    """Bytes on their way from one end to the other.

    Attributes:
        towards: Which way.
        arrived: What the reader can read.
        taken: Bytes that writes have taken.
        delivered: Bytes that have arrived.
        read: Bytes that the reader has read.
        ended: Nothing comes after what has arrived.
        held: Nothing arrives before that time.
    """

    __slots__ = (
        "_cut_at", "_cut_resets", "_due", "_flight", "_in_flight", "_reading", "_writing", "arrived",
        "delivered", "ended", "held", "link", "lost", "read", "silent", "taken", "towards",
    )  # fmt: skip

    def __init__(self, link: Link, towards: Towards) -> None:
        self.link = link
        self.towards: Towards = towards
        self.arrived = bytearray()
        self.taken = 0
        self.delivered = 0
        self.read = 0
        self.ended = False
        self.lost = False  # what is written goes nowhere
        self.silent = False  # and nobody is told
        self._flight: deque[tuple[float, bytes]] = deque()
        self._in_flight = 0
        self._due = -math.inf  # when the last piece arrives
        self.held = -math.inf
        self._cut_at: int | None = None
        self._cut_resets = False
        self._reading = trio.lowlevel.ParkingLot()
        self._writing = trio.lowlevel.ParkingLot()

    # What writers do

    def room(self) -> int:
        """How many bytes the next write would be given room for."""
        return self.link.weather.buffer - self._in_flight - len(self.arrived)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take what there is room for, or a part of it."""
        link, weather = self.link, self.link.weather
        size = len(data)
        taken = min(size, weather.buffer - self._in_flight - len(self.arrived))
        if taken <= 0:
            return 0
        if weather.short_writes and taken > 1 and link.random.random() < weather.short_writes:
            taken = link.random.randrange(1, taken)
        data = bytes(data) if taken == size else bytes(data[:taken])
        self.taken += taken
        if self.lost:
            if not self.silent:
                link.answer_lost(self)
            return taken
        if weather.piece and taken > weather.piece:
            start = 0
            while start < taken:
                step = link.random.randint(1, weather.piece)
                self._depart(data[start : start + step])
                start += step
        else:
            self._depart(data)
        return taken

    def end(self) -> None:
        """Say that no bytes follow."""
        if not self.lost:
            self._depart(_END)

    def _depart(self, piece: bytes) -> None:
        if self.lost:
            return  # an earlier piece of the same write was the last that came through
        link, weather = self.link, self.link.weather
        now = link.network.now()
        due = now if link.kernel else now + weather.latency
        if weather.jitter and not link.kernel:
            due += weather.jitter * link.random.random()
        due = max(due, self._due)
        self._due = due
        if not self._flight and due <= now and self.held <= now:
            self._arrive(piece)
            return
        self._flight.append((due, piece))
        self._in_flight += len(piece)
        if len(self._flight) == 1:
            link.network.at(max(due, self.held), self._arrivals)

    def _arrivals(self) -> None:
        """Some time has come: let arrive what is due."""
        now = self.link.network.now()
        if self.held > now:
            if self.held < math.inf and self._flight:
                self.link.network.at(self.held, self._arrivals)
            return
        flight = self._flight
        while flight and flight[0][0] <= now:
            _, piece = flight.popleft()
            self._in_flight -= len(piece)
            self._arrive(piece)
        if flight:
            self.link.network.at(flight[0][0], self._arrivals)

    def _arrive(self, piece: bytes) -> None:
        link = self.link
        if piece is _END or not piece:
            self.ended = True
            self._reading.unpark_all()
            return
        cut = self._cut_at
        if cut is not None and self.delivered + len(piece) >= cut:
            piece = piece[: cut - self.delivered]
        if piece:
            self.delivered += len(piece)
            if link.reader_gone(self):
                link.answer_lost(self)
            else:
                self.arrived += piece
                self._reading.unpark_all()
        if cut is not None and self.delivered >= cut:
            self._cut_at = None
            link.cut(reset=self._cut_resets)

    # What readers do

    def take(self, max_bytes: int | None) -> bytes | None:
        """What has arrived: None when nothing has, `b""` at the end."""
        arrived = self.arrived
        if arrived:
            if max_bytes is None or len(arrived) <= max_bytes:
                data = bytes(arrived)
                arrived.clear()
            else:
                data = bytes(arrived[:max_bytes])
                del arrived[:max_bytes]
            self.read += len(data)
            if self._writing:
                self._writing.unpark_all()
            return data
        return b"" if self.ended else None

    @property
    def readable(self) -> bool:
        """Whether reading would not wait."""
        return bool(self.arrived) or self.ended

    async def until_readable(self) -> None:
        """Wait until something has happened here; a checkpoint."""
        await self._reading.park()

    async def until_writable(self) -> None:
        """Wait until something has happened here; a checkpoint."""
        await self._writing.park()

    def wake(self) -> None:
        """Let all who wait here look again."""
        self._reading.unpark_all()
        self._writing.unpark_all()

    # What befalls it

    def hold(self, seconds: float) -> None:
        """Let nothing arrive for so long; bytes stay on their way."""
        self.held = max(self.held, self.link.network.now() + seconds)

    def cut_after(self, count: int, *, reset: bool) -> None:
        """End the link when so many more bytes have arrived."""
        self._cut_at = self.delivered + count
        self._cut_resets = reset

    def drop(self) -> None:
        """Lose what is on its way, and all that will be written."""
        self.lost = True
        self._flight.clear()
        self._in_flight = 0
        self._writing.unpark_all()


class Link:
    """Two directions between a client's end and a server's.

    Attributes:
        number: Of the network's links, from 1.
        name: Whom the client wanted: a host, a path, or a command.
        opened: When it was made.
        kernel: Both ends are on one machine: a pipe.
        marks: What a child was started with, or a connection in memory: its environment.
        own: The pool's; else somebody else's, such as a proxy's, whom nobody watches.
        weather: How bytes travel; may be changed.
        client_closed: When the client closed its end, or None.
        server_closed: When the server did.
        broken: An error number once it was reset, else 0: of the client's end, and of the server's.
    """

    __slots__ = (
        "broken", "client_closed", "kernel", "marks", "name", "network", "number", "opened", "own", "random",
        "server_closed",
        "to_client", "to_server", "weather",
    )  # fmt: skip

    def __init__(
        self, network: Network, number: int, name: str, weather: Weather, *, kernel: bool = False
    ) -> None:
        self.network = network
        self.number = number
        self.name = name
        self.weather = weather
        self.kernel = kernel
        self.marks: Mapping[str, str] = {}
        self.own = True
        self.random = network.random
        self.opened = network.now()
        self.client_closed: float | None = None
        self.server_closed: float | None = None
        self.broken: dict[Towards, int] = {"to-server": 0, "to-client": 0}
        self.to_server = Direction(self, "to-server")
        self.to_client = Direction(self, "to-client")

    def __repr__(self) -> str:
        return f"<link {self.number} to {self.name}>"

    def direction(self, towards: Towards) -> Direction:
        """One of the two."""
        return self.to_server if towards == "to-server" else self.to_client

    # What the ends do

    def reader_gone(self, direction: Direction) -> bool:
        """Whether the end that would read this is closed."""
        closed = self.server_closed if direction is self.to_server else self.client_closed
        return closed is not None

    def close(self, end: Literal["client", "server"], *, reset: bool = False) -> None:
        """Close one end, for reading and writing. A second call does nothing."""
        mine = self.to_server if end == "client" else self.to_client
        other = self.to_client if end == "client" else self.to_server
        if (self.client_closed if end == "client" else self.server_closed) is not None:
            return
        now = self.network.now()
        if end == "client":
            self.client_closed = now
        else:
            self.server_closed = now
        self.network.log(self, f"{end} closes{' with a reset' if reset else ''}")
        unread = bool(other.arrived)
        other.arrived.clear()
        if reset or (unread and not self.kernel):
            mine.drop()
            self.break_end(mine)
        else:
            mine.end()
        mine.wake()
        other.wake()

    def answer_lost(self, direction: Direction) -> None:
        """Bytes have come where nobody is: their writer is told, a while later."""
        self.break_end(self.to_client if direction is self.to_server else self.to_server)

    def break_end(self, back: Direction, why: int = errno.ECONNRESET) -> None:
        """A reset travels this way; the end that it reaches has a broken connection."""
        self.network.at(self.network.now() + self._lag(back), lambda: self._broken(back, why))

    def _broken(self, back: Direction, why: int) -> None:
        if not self.broken[back.towards]:
            self.broken[back.towards] = why
            self.network.log(self, f"broken {back.towards}")
            back.ended = True
            self.to_server.wake()
            self.to_client.wake()

    def _lag(self, direction: Direction) -> float:
        return 0.0 if self.kernel else max(self.weather.latency, direction.held - self.network.now())

    # What befalls it

    def cut(self, *, reset: bool = False, towards: Towards | None = None, after: int | None = None) -> None:
        """End the link in the middle: both ends see the end of the stream, or a reset.

        Args:
            reset: Both ends have a broken connection at once.
            towards: The direction whose bytes `after` counts.
            after: Not yet: only when so many more bytes have arrived.
        """
        if after is not None:
            self.direction(towards or "to-client").cut_after(after, reset=reset)
            if after > 0:
                return
        self.network.log(self, f"cut{' with a reset' if reset else ''}")
        for direction in (self.to_server, self.to_client):
            direction.drop()
            if reset:
                self._broken(direction, errno.ECONNRESET)
            else:
                direction.ended = True
                direction.wake()

    def half_close(self, towards: Towards) -> None:
        """End one direction in the middle: its reader sees the end, what its writer writes is lost."""
        self.network.log(self, f"half closed {towards}")
        direction = self.direction(towards)
        direction.drop()
        direction.ended = True
        direction.wake()

    def stall(self, towards: Towards, seconds: float) -> None:
        """Let nothing arrive in that direction for so long."""
        self.network.log(self, f"stalls {towards} for {seconds:g}s")
        self.direction(towards).hold(seconds)

    def blackhole(self, towards: Towards, *, notice: float | None = UNNOTICED) -> None:
        """Lose all bytes of a direction; nobody is told, until the kernels give up after `notice` seconds."""
        self.network.log(self, f"blackholed {towards}")
        direction = self.direction(towards)
        direction.drop()
        direction.silent = True
        direction.hold(math.inf)
        if notice is not None:
            self.network.at(self.network.now() + notice, self._unnoticed)

    def _unnoticed(self) -> None:
        self._broken(self.to_client, errno.ETIMEDOUT)
        self._broken(self.to_server, errno.ETIMEDOUT)
