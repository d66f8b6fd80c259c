"""Work in a thread that leaves the interpreter to the loop.

There is one interpreter. A thread that computes is made to let go of it only after 5 ms
(`sys.getswitchinterval`), and the loop lets go at every system call: a call that makes six of them would wait
for up to 30 ms, for work that is none of its own. So long work in a thread rests, often and shortly.
"""

from __future__ import annotations

import time
from typing import Final, final

import trio

WORK: Final = 0.0003
"""Seconds between two rests: what the loop waits for the interpreter, unless a single item takes longer."""

REST: Final = 0.0005
"""Seconds of a rest. Longer than the loop needs to wake up: else nothing is given."""


@final
class GivingWay:
    """Rests between the items of a long work. Made in the thread that does the work.

    In a loop's own thread (a simulation has no other) it does nothing.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = float("inf") if trio.lowlevel.in_trio_run() else time.perf_counter() + WORK

    def look(self) -> None:
        """Rest, where it is time for it. Blocks for `REST` seconds then."""
        if time.perf_counter() >= self._until:
            time.sleep(REST)
            self._until = time.perf_counter() + WORK
