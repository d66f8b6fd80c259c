"""How late the event loop is: a task that sleeps for a short while and sees how much longer it was.

Rules:

* Time is the machine's own (`perf_counter`), also where a simulation has another clock: what is measured is
  how long the loop was kept, and no simulated second keeps it.
* A loop that hangs says nothing; so when it ticked last is one float, which any thread may read.
* A beat costs microseconds, 20 times a second. Percentiles are counted when somebody asks.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Final, NamedTuple, final

import trio

INTERVAL: Final = 0.05
"""Seconds between two beats."""

WINDOW: Final = 60.0
"""Seconds that are looked back."""


class Lag(NamedTuple):
    """How late the loop was over the last minute, in seconds.

    Attributes:
        now: At the last beat.
        p50: Half of the beats were less late.
        p99: 99 of 100 were.
        max: The latest.
        samples: How many beats there were.
    """

    now: float
    p50: float
    p99: float
    max: float
    samples: int


@final
class LoopLag:
    """Measures how late the loop of the task that runs `run` is.

    Args:
        interval: Seconds between two beats.

    Attributes:
        ticked_at: When it last ticked, by `time.perf_counter`; any thread may read it.
    """

    __slots__ = ("_interval", "_samples", "ticked_at")

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._samples: deque[float] = deque(maxlen=max(1, math.ceil(WINDOW / interval)))
        self.ticked_at = time.perf_counter()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.perf_counter()
            await trio.sleep(self._interval)
            self.beat(time.perf_counter() - before - self._interval)

    def beat(self, late: float) -> None:
        """Note one beat and how late it came. Synchronous."""
        self.ticked_at = time.perf_counter()
        self._samples.append(max(late, 0.0))

    def ticked_ago(self) -> float:
        """Give how many seconds ago the loop ticked last. From any thread."""
        return max(0.0, time.perf_counter() - self.ticked_at)

    def numbers(self) -> Lag:
        """Count the numbers of the last minute. Synchronous, a fraction of a millisecond."""
        samples = sorted(self._samples)
        if not samples:
            return Lag(0.0, 0.0, 0.0, 0.0, 0)
        return Lag(self._samples[-1], _rank(samples, 0.5), _rank(samples, 0.99), samples[-1], len(samples))


def _rank(samples: list[float], part: float) -> float:
    """Give the least sample that so large a part of all is no greater than."""
    return samples[max(0, math.ceil(part * len(samples)) - 1)]
