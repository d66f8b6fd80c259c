"""Two wires that are joined in memory: for tests, and for a server that lives in the same process.

The gate step is `Wire.push` itself, so a message is asked and taken exactly as on a kernel's wire. What is
replaced is the kernel: a bounded buffer per direction. `script` says how much each of the next writes takes,
so that short writes and full buffers happen where a test wants them; nothing here depends on time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable  # noqa: TC003  (callers resolve the annotations)
from typing import Final

import trio

from afpool.transports._wire import READING, Wire, WireClosed, Woken, closed_here

DEFAULT_CAPACITY: Final = 64 * 1024
"""Bytes that one direction holds before a write takes nothing: what a Linux pipe holds."""


class _Channel:
    """One direction: what was written and not yet read, and who waits for it."""

    __slots__ = ("buffer", "capacity", "reader_gone", "readers", "writer_gone", "writers")

    def __init__(self, capacity: int) -> None:
        self.buffer = bytearray()
        self.capacity = capacity
        self.reader_gone = False
        self.writer_gone = False
        self.readers = trio.lowlevel.ParkingLot()
        self.writers = trio.lowlevel.ParkingLot()


class MemoryWire(Wire):
    """One end of a pair; made by `memory_link_pair`.

    Attributes:
        writes: How many writes took at least one byte.
    """

    __slots__ = ("_incoming", "_outgoing", "_script", "_write_closed", "writes")

    def __init__(self, incoming: _Channel, outgoing: _Channel) -> None:
        super().__init__()
        self._incoming = incoming
        self._outgoing = outgoing
        self._script: deque[int] = deque()
        self._write_closed = False
        self.writes = 0

    def script(self, takes: Iterable[int]) -> None:
        """Let each of the next writes take at most so many bytes; 0 takes nothing once.

        Once the script is used up, only the capacity limits.
        """
        self._script.extend(takes)

    def close_write(self) -> None:
        """End our direction: the other end reads what is left and then `b""`. Reading goes on."""
        if not self._write_closed:
            self._write_closed = True
            self._outgoing.writer_gone = True
            self._outgoing.readers.unpark_all()
            self._outgoing.writers.unpark_all()

    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        """Read what is there; see `Wire.receive_nowait`."""
        if self._closed:
            raise closed_here()
        channel = self._incoming
        if channel.buffer:
            data = bytes(channel.buffer[:max_bytes])
            del channel.buffer[:max_bytes]
            channel.writers.unpark_all()
            return data
        return b"" if channel.writer_gone else None

    def alive(self) -> bool:
        """Whether both directions still have their peer. Unread bytes are no fault."""
        if self._closed or self._write_closed or self._outgoing.reader_gone:
            return False
        return bool(self._incoming.buffer) or not self._incoming.writer_gone

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        channel = self._outgoing
        if self._write_closed:
            raise closed_here()
        if channel.reader_gone:
            raise WireClosed("the other end is closed", local=False)
        room = channel.capacity - len(channel.buffer)
        if self._script:
            room = min(room, self._script.popleft())
        taken = min(room, len(data))
        if taken > 0:
            channel.buffer += data[:taken]
            channel.readers.unpark_all()
            self.writes += 1
        return taken

    async def _park(self, fd: int, side: int) -> None:
        del fd
        if self._parked & side:
            raise trio.BusyResourceError("another task already waits here")
        self._parked |= side
        lot = self._incoming.readers if side == READING else self._outgoing.writers
        try:
            await trio.lowlevel.checkpoint()
            while not (self._closed or self._woken & side or self._ready(side)):
                await lot.park()
        finally:
            self._parked &= ~side
            woken = self._woken & side
            self._woken &= ~side
        if woken and not self._closed:
            raise Woken
        if self._closed or (side != READING and self._write_closed):
            raise closed_here()

    def _ready(self, side: int) -> bool:
        if side == READING:
            return bool(self._incoming.buffer) or self._incoming.writer_gone
        channel = self._outgoing
        return self._write_closed or channel.reader_gone or len(channel.buffer) < channel.capacity

    def _read_fd(self) -> int:
        if self._closed:
            raise closed_here()
        return -1

    def _write_fd(self) -> int:
        if self._closed or self._write_closed:
            raise closed_here()
        return -1

    def _unpark(self) -> None:
        self._incoming.readers.unpark_all()
        self._outgoing.writers.unpark_all()

    def _close_fds(self) -> None:
        self.close_write()
        self._incoming.reader_gone = True
        self._incoming.buffer.clear()
        self._incoming.writers.unpark_all()


def memory_link_pair(*, capacity: int = DEFAULT_CAPACITY) -> tuple[MemoryWire, MemoryWire]:
    """Make two wires, each reading what the other writes.

    Args:
        capacity: Bytes that each direction holds before a write takes nothing.
    """
    if capacity < 1:
        raise ValueError("capacity must be at least one byte")
    there, back = _Channel(capacity), _Channel(capacity)
    return MemoryWire(back, there), MemoryWire(there, back)
