"""What is on its way to one console, and what all streams together may cost.

Rules:

* An outbox is bounded in bytes. Whoever has something to say waits for room, in order; so a stream makes
  nothing for a console that does not read, and the memory that an answer takes is bounded by how many may be
  under way. One thing larger than the bound goes out alone.
* Nobody who is recorded ever waits here: streams keep a bounded number of things that happened, and drop and
  count the rest (`_stream.py`).
* Streams of all consoles pay for what they cost from one purse: a frame that took the loop a millisecond is
  followed by so long a pause that they never take more than their part of its time. What others do between
  two slices is not theirs to pay; and a process that was stopped within a frame goes on telling soon.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

T = TypeVar("T")

DEAREST: Final = 0.05
"""Seconds that are paid for one frame at most: what took longer was not its work."""


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
class Timed(Generic[T]):
    """Awaits something, and measures how long the loop is held by it.

    Args:
        work: What is awaited, once.
        clock: Seconds of real time: on a busy machine, what is done costs the loop more of its time.

    Attributes:
        spent: Seconds so far.
    """

    __slots__ = ("_clock", "_work", "spent")

    def __init__(self, work: Coroutine[Any, Any, T], clock: Callable[[], float] = time.perf_counter) -> None:
        self._work = work
        self._clock = clock
        self.spent = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        # it is what a coroutine is while it is awaited; what comes of it no checker can see
        return cast("Generator[Any, Any, T]", self)

    def __iter__(self) -> Timed[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on with it to its next wait."""
        began = self._clock()
        try:
            return self._work.send(value)
        finally:
            self.spent += self._clock() - began

    def throw(self, error: Any, value: Any = None, _: Any = None) -> Any:
        """Raise something where it waits, and go on with it to its next wait."""
        began = self._clock()
        try:
            return self._work.throw(error if value is None else value)
        finally:
            self.spent += self._clock() - began

    def close(self) -> None:
        """End it where it waits."""
        self._work.close()

    # whoever walks down a task finds what is awaited, as if nobody measured it

    @property
    def cr_code(self) -> Any:
        """See `inspect`."""
        return getattr(self._work, "cr_code", None)

    @property
    def cr_frame(self) -> Any:
        """See `inspect`."""
        return getattr(self._work, "cr_frame", None)

    @property
    def cr_await(self) -> Any:
        """See `inspect`."""
        return getattr(self._work, "cr_await", None)


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

    def owe(self, seconds: float) -> None:
        """Have whoever pays next pay for this as well. Synchronous."""
        seconds = min(seconds, DEAREST)
        self.spent += seconds
        self._free_at = max(self._free_at, self._now()) + seconds / self._part

    async def pay(self, seconds: float) -> None:
        """Pay for a frame, in line with the others; waits until it is paid off. A checkpoint."""
        async with self._turn:
            self.owe(seconds)
            await trio.sleep_until(self._free_at)
