"""Ends what is idle or old.

A client that nobody has used for `idle_timeout`, counted from the end of the last place, is closed; one that
is older than `max_age` is replaced; a kept connection past its time is closed. A key whose actor crashed for
good is forgotten when it has refused for `idle_timeout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from . import _messages as m

if TYPE_CHECKING:
    from ._pool import Pool


ROUND: Final = 1.0


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
            # no more than one round a second, however many clients end at different times
            await trio.sleep(ROUND)
            with trio.CancelScope(deadline=due):
                await self._news.wait()

    def _sweep(self) -> float:
        pool = self._pool
        now = pool.seams.now()
        due = float("inf")
        pool.background.bury_stopped()
        for actor in list(pool.kept):
            machine = actor.machine
            if actor.phase == "crashed":
                due = min(due, pool.background.forget_stopped(actor, now))
                continue
            if machine.client is None:
                continue
            client = machine.client.handle
            patience = pool.limits.max_age / 10
            if client.ends_at <= now and (machine.idle or client.ends_at + patience <= now):
                # what runs on it goes on; the next call or list opens its successor
                client.ended = event = pool.event("aged", actor, client=client.id)
                actor.ended = event.number
                client.retire("aged")  # whoever holds a place on it and has sent nothing is told why
                actor.tell(m.ClientLost(client.id, "aged"))
                continue
            ends = actor.last_used + pool.limits.idle_timeout
            if machine.paused or not pool.openings.may_evict(actor):
                ends = max(ends, now + pool.limits.idle_timeout)
            elif ends <= now:
                pool.openings.evict(actor, why="idle")
                continue
            due = min(due, ends, max(client.ends_at, now + ROUND), client.prune(now))
        return due
