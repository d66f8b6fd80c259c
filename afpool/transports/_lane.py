"""Places on a link's connections, taken in the order in which they were asked for.

A place has one owner. It is handed over in the step that gives it back, so it is never free while
somebody waits; and since trio never aborts a task that was rescheduled, a place that was handed over
is never lost to a cancellation that came in the same instant.
"""

from __future__ import annotations

from typing import Any

import trio


class Lane:
    """So many places, first come first served.

    Args:
        places: How many exchanges may hold one at once.
    """

    __slots__ = ("_places", "_waiting", "used")

    def __init__(self, places: int) -> None:
        self._places = places
        self._waiting: list[trio.lowlevel.Task] = []
        self.used = 0

    @property
    def waiting(self) -> int:
        """How many tasks wait for a place."""
        return len(self._waiting)

    def take(self) -> bool:
        """Take a place if one is free."""
        if self.used < self._places:
            self.used += 1
            return True
        return False

    async def wait(self) -> None:
        """Wait for a place that is handed over; cancelled, none was taken."""
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def give_back(self) -> None:
        """Give a place back, to whoever waits longest."""
        if self._waiting:
            trio.lowlevel.reschedule(self._waiting.pop(0))
        else:
            self.used -= 1
