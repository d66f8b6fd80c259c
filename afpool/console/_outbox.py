"""What is on its way to one console, and what all streams together may cost.

Rules:

* An outbox is bounded in bytes. Whoever has something to say waits for room, in order; so a stream makes
  nothing for a console that does not read, and the memory that an answer takes is bounded by how many may be
  under way. One thing larger than the bound goes out alone.
* Nobody who is recorded ever waits here: streams keep a bounded number of things that happened, and drop and
  count the rest (`_stream.py`).
* Streams of all consoles pay for what they cost from one purse: a frame that took the loop a millisecond is
  followed by so long a pause that they never take more than their part of its time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Outbox:
    """A queue of messages, bounded in bytes.

    Args:
        limit: Bytes.

    Attributes:
        size: Bytes that wait.
        most: The most that ever waited.
    """

    __slots__ = ("_limit", "_news", "_queue", "_room", "_turn", "most", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[bytes] = deque()
        self._turn = trio.StrictFIFOLock()
        self._news = trio.Event()
        self._room = trio.Event()
        self.size = 0
        self.most = 0

    async def put(self, data: bytes) -> None:
        """Have something sent, after what was put before. Waits for room. A checkpoint.

        Cancelled, it was not put.
        """
        async with self._turn:
            while self.size and self.size + len(data) > self._limit:
                self._room = trio.Event()
                await self._room.wait()
            self._queue.append(data)
            self.size += len(data)
            self.most = max(self.most, self.size)
            self._news.set()

    async def take(self) -> bytes:
        """Take what is to be sent next; waits for it. It takes up room until `sent`."""
        while not self._queue:
            self._news = trio.Event()
            await self._news.wait()
        return self._queue.popleft()

    def sent(self, data: bytes) -> None:
        """It has left. Synchronous."""
        self.size -= len(data)
        self._room.set()


@final
class Purse:
    """What streams may cost, all together.

    Args:
        part: Of the loop's time.
        now: The clock that is waited by.

    Attributes:
        spent: Seconds that they have cost so far.
    """

    __slots__ = ("_free_at", "_now", "_part", "_turn", "spent")

    def __init__(self, part: float, now: Callable[[], float] = trio.current_time) -> None:
        self._part = part
        self._now = now
        self._turn = trio.StrictFIFOLock()
        self._free_at = float("-inf")
        self.spent = 0.0

    async def pay(self, seconds: float) -> None:
        """Pay for a frame, in line with the others; waits until it is paid off. A checkpoint."""
        self.spent += seconds
        async with self._turn:
            self._free_at = max(self._free_at, self._now()) + seconds / self._part
            await trio.sleep_until(self._free_at)
