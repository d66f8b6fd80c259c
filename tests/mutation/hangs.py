"""Whether a child hangs, whatever else the machine does.

Rules:

* What is measured is the child's own time: how long it worked, and how long it had nothing to do. What it
  waited for a processor is nobody's. So on a busy machine a verdict comes later, and is the same.
* A test may work `TIMES` as long as it does on the unbroken code, and be idle `TIMES` as long, and
  `AT_LEAST` seconds of each.
* Where the system does not say so (it has no `/proc`), a child is taken to be idle all the time.
* `BACKSTOP` seconds by the clock end a child in any case: one whose own children work, or whose threads wait.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

TIMES = 12.0
AT_LEAST = 8.0
BACKSTOP = 900.0
QUIET = 2.0  # seconds with nothing to do, after which another child may have the processor

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds of one process, since it began."""

    clock: float
    worked: float
    waited: float  # for a processor

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def idle(self) -> float:
        return max(0.0, self.clock - self.worked - self.waited)


def spent(pid: int) -> Spent:
    """What a process has spent, with its children that have ended."""
    now = time.monotonic()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        worked = sum(map(int, fields[11:15])) * _TICK
    except OSError:
        return Spent(now, 0.0, 0.0)
    try:
        waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        waited = 0.0
    return Spent(now, worked, waited)


class Limit:
    """How long a child may take from now on until it says its next word."""

    def __init__(self, pid: int, *, work: float, idle: float) -> None:
        """
        Args:
            pid: The child.
            work: Seconds that it may work.
            idle: Seconds that it may have nothing to do.
        """
        self.pid, self.work, self.idle = pid, work, idle
        self.began = spent(pid)

    @classmethod
    def of_test(cls, pid: int, work: float, seconds: float) -> Limit:
        """For one test, by what it takes on the unbroken code: its work, and all of its seconds."""
        idle = AT_LEAST + TIMES * max(0.0, seconds - work)
        return cls(pid, work=AT_LEAST + TIMES * work, idle=idle)

    def over(self) -> bool:
        now = self.took()
        return now.worked > self.work or now.idle > self.idle or now.clock > BACKSTOP

    def quiet(self) -> bool:
        """Whether the child leaves the processor to others."""
        return self.took().idle > QUIET

    def took(self) -> Spent:
        """What the child has spent since then."""
        return spent(self.pid).since(self.began)
