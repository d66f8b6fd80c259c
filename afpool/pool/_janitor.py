"""Closes clients that nobody has used for `idle_timeout`, counted from the end of the last place."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from ._pool import Pool


@final
class Janitor:
    """Sleeps until the earliest client could be idle for too long; without clients it just sleeps."""

    __slots__ = ("_news", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._news = trio.Event()

    def wake(self) -> None:
        """A client was opened."""
        self._news.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            due = self._sweep()
            self._news = trio.Event()
            with trio.CancelScope(deadline=due):
                await self._news.wait()

    def _sweep(self) -> float:
        pool = self._pool
        now = pool.seams.now()
        due = float("inf")
        for actor in list(pool.kept):
            machine = actor.machine
            if machine.client is None:
                continue
            ends = actor.last_used + pool.limits.idle_timeout
            if not machine.idle or machine.paused:
                ends = max(ends, now + pool.limits.idle_timeout)
            elif ends <= now:
                pool.openings.evict(actor)
                continue
            due = min(due, ends)
        return due
