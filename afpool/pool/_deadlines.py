"""Deadlines of all calls in one heap, so that a call in time costs two list operations and no scope.

An entry that is done stays in the heap until it comes up or until more than half of the heap is done.
"""

from __future__ import annotations

import heapq
from typing import Protocol, final

import trio


class Timed(Protocol):
    """What the heap wakes."""

    def on_deadline(self) -> None:
        """The deadline has passed. Synchronous; must not raise."""
        ...


@final
class Entry:
    """One deadline; `done` takes it out."""

    __slots__ = ("at", "target")

    def __init__(self, at: float, target: Timed) -> None:
        self.at = at
        self.target: Timed | None = target

    def __lt__(self, other: Entry) -> bool:
        return self.at < other.at


@final
class Deadlines:
    """The heap and the task that serves it."""

    __slots__ = ("_done", "_heap", "_task", "_wake_at")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._done = 0
        self._task: trio.lowlevel.Task | None = None
        self._wake_at = float("inf")

    def add(self, at: float, target: Timed) -> Entry:
        """Wake `target` at `at` unless the entry is done before."""
        entry = Entry(at, target)
        heapq.heappush(self._heap, entry)
        if at < self._wake_at and self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)
        return entry

    def done(self, entry: Entry) -> None:
        """Take an entry out; safe to repeat."""
        if entry.target is not None:
            entry.target = None
            self._done += 1
            if self._done > 1024 and self._done * 2 > len(self._heap):
                self._heap = [other for other in self._heap if other.target is not None]
                heapq.heapify(self._heap)
                self._done = 0

    async def run(self) -> None:
        """Serve the heap until cancelled."""
        while True:
            self._wake_due(trio.current_time())
            await self._sleep(self._heap[0].at if self._heap else float("inf"))

    def _wake_due(self, now: float) -> None:
        """Wake whose time has come. Not in `run`, whose frame would hold the last one and with it its key."""
        # `done` may put another list in place while a target is woken
        while self._heap and (self._heap[0].target is None or self._heap[0].at <= now):
            entry = heapq.heappop(self._heap)
            if entry.target is None:
                self._done -= 1
            else:
                target, entry.target = entry.target, None
                target.on_deadline()

    async def _sleep(self, until: float) -> None:
        self._wake_at = until

        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        with trio.CancelScope(deadline=until):
            self._task = trio.lowlevel.current_task()
            # whoever ends this wait, `add` or `abort`, has taken the task away in the same step
            await trio.lowlevel.wait_task_rescheduled(abort)

    def __len__(self) -> int:
        return len(self._heap) - self._done
