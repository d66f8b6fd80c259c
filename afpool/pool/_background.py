"""A pool's background work, and how a pool is left.

* One nursery holds all of it. It is shielded, so that what was sent can settle when the app's block is
  cancelled, and nothing but leaving ends it: a task in it that raises is filed and logged.
* Its tasks run in the context that the pool was opened in, whoever asked for them, and protected from
  KeyboardInterrupt: half a settlement is worse than a late ^C, which is the main task's to take.
* Leaving: whoever has sent nothing is refused, what was sent may settle, clients close as they become free,
  all at once and within `close_timeout`. What is left then is ended. Nothing is polled.
* A key that has fallen (`_fallen`) says no more what to end: its openings are cancelled from here, and its
  clients closed once nothing runs on them. It refuses for `idle_timeout`, and is then forgotten, so that it
  may begin anew. Not before all of it has ended, or that would be nobody's; nor while an operator holds it.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .._base.errors import IN_DOUBT, NOT_SENT, PoolClosed
from . import _messages as m
from ._records import logger
from ._refusals import pool_closing
from ._statistics import CloseReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..client import Client
    from ._actor import KeyActor
    from ._pool import Pool

CLOSE_SLACK: Final = 0.25  # seconds between asking what is left to end and ending it


@final
class Background:
    """The nursery of one pool.

    Attributes:
        closed: Set when the pool has been left and no task of it runs any more.
    """

    __slots__ = (
        "_before", "_began", "_context", "_deadline", "_leaving", "_nursery", "_patience", "_pool", "_quiet",
        "_report", "_served", "closed",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._context = contextvars.copy_context()
        self._nursery: trio.Nursery | None = None
        self._served = False
        self._began = trio.Event()
        self._leaving = trio.Event()
        self._quiet = trio.Event()  # while leaving: nothing is left to wait for
        self._patience = trio.CancelScope()
        self._deadline = float("inf")
        self._before = attrs.evolve(pool.openings.counts)  # when leaving began
        self._report = CloseReport(closed=0, killed=0, abandoned=0, calls_left=0)
        self.closed = trio.Event()

    # ------------------------------------------------------------------ tasks

    @property
    def running(self) -> bool:
        """Whether it still takes tasks."""
        return self._nursery is not None

    def spawn(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task. Synchronous.

        Raises:
            PoolClosed: The pool has been left; nothing was started.
        """
        nursery = self._nursery
        if nursery is None:
            raise PoolClosed("the pool is closed")
        self._context.copy().run(nursery.start_soon, self._guarded, fn, args)

    @trio.lowlevel.enable_ki_protection
    async def _guarded(self, fn: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        pool = self._pool
        try:
            await fn(*args)
        except Exception:  # noqa: BLE001 -- told to the record; nothing but leaving ends the nursery
            pool.records.failures += 1
            logger.exception("a background task failed: %s", getattr(fn, "__qualname__", "task"))
        finally:
            if pool.closing:
                self.look()

    @trio.lowlevel.enable_ki_protection
    async def begin(self, nursery: trio.Nursery) -> None:
        """Hold the pool's nursery in a task of whoever opens the pool, and wait until it is there.

        Not `nursery.start`: interrupted while it waits, that cancels its task and waits for it, and this one
        is shielded.
        """
        self._served = True
        nursery.start_soon(self._serve)
        with trio.CancelScope(shield=True):
            await self._began.wait()

    @trio.lowlevel.enable_ki_protection
    async def _serve(self) -> None:
        """Hold the nursery until the pool has been left."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.shield = True
                self._nursery = nursery
                self.spawn(self._pool.deadlines.run)
                self.spawn(self._pool.janitor.run)
                self._began.set()
                await self._leaving.wait()
                try:
                    self._report = await self._leave()
                finally:
                    self._nursery = None
                    nursery.cancel_scope.cancel()
        finally:
            self.closed.set()

    # ------------------------------------------------------------------ leaving

    @trio.lowlevel.enable_ki_protection
    async def leave(self) -> CloseReport:
        """See `Pool.aclose`."""
        interrupted: KeyboardInterrupt | None = None
        self._refuse()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.cancel_shielded_checkpoint()
            while not self.closed.is_set():
                try:
                    await self.closed.wait()
                except KeyboardInterrupt as error:
                    interrupted = error
                    self._patience.cancel()
        if interrupted is not None:
            raise interrupted
        return self._report

    def _refuse(self) -> None:
        """Begin to leave: refuse whoever has sent nothing, close what is idle. Safe to repeat."""
        pool = self._pool
        if pool.closing:
            return
        pool.closing = True
        pool.closed_by = pool.event("closing", None)
        self._before = attrs.evolve(pool.openings.counts)
        self._deadline = pool.seams.now() + pool.limits.close_timeout
        for call in list(pool.running.values()):
            if not call.begun:
                call.interrupt(pool_closing(pool))
        for actor in list(pool.kept):
            actor.tell(m.Close(pool.closed_by))
        self._leaving.set()
        self.look()
        if not self._served:
            self.closed.set()

    def look(self) -> None:
        """While leaving: see whether anything is left to wait for. Called whenever something has ended."""
        self.bury_stopped()
        pool = self._pool
        if not pool.running and not pool.settling and not pool.openings.clients:
            self._quiet.set()

    async def _leave(self) -> CloseReport:
        """Wait for what was sent and for clients to close; end at the deadline what is left."""
        pool = self._pool
        with self._patience as patience:
            patience.deadline = self._deadline - min(CLOSE_SLACK, pool.limits.close_timeout / 4)
            await self._quiet.wait()
        for call in list(pool.running.values()):
            delivery = IN_DOUBT if call.begun else NOT_SENT
            what = "while the server worked; it may take effect" if call.begun else "before anything was sent"
            call.interrupt(PoolClosed(f"the pool was closed {what}", delivery=delivery))
        counts = pool.openings.counts
        left = list(pool.openings.clients.values())
        report = CloseReport(
            closed=counts.closed - self._before.closed,
            killed=counts.killed - self._before.killed,
            abandoned=len(left),
            calls_left=pool.settling + len(pool.running),
        )
        counts.abandoned += len(left)
        for client in left:
            client.kill()
            if client.process is not None:
                self.spawn(client.process.aclose, self._deadline)  # it was killed: only to be reaped
        return report

    # ------------------------------------------------------------------ crashes

    def after_crash(self, actor: KeyActor) -> None:
        """Kick the successor once it is in place: what it was left with is to be ended."""
        if self.running:
            self.spawn(self._kick, actor)

    async def _kick(self, actor: KeyActor) -> None:
        actor.tell(m.Evict())
        if actor.phase == "crashed":
            self.bury(actor)

    def bury_stopped(self) -> None:
        """Close the clients of keys whose actor does not come back."""
        for actor in list(self._pool.kept):
            if actor.phase == "crashed":
                self.bury(actor)

    def bury(self, actor: KeyActor) -> None:
        """End the openings of this key, and its clients on which no call runs.

        What runs keeps its own answer.
        """
        pool = self._pool
        if not pool.knows(actor):
            return  # forgotten: the key's clients are another actor's
        pool.keep(actor, keep=True)
        pool.openings.cancel_all(actor)
        busy = {call.client for call in pool.running.values()}
        for client in self._clients_of(actor):
            if client not in busy:
                pool.openings.start_closing(actor, client, "its actor crashed for good")
        if actor.refuses_until is None:
            actor.refuses_until = pool.seams.now() + pool.limits.idle_timeout
            pool.janitor.wake()

    def _clients_of(self, actor: KeyActor) -> list[Client]:
        return [
            client
            for client in self._pool.openings.clients.values()
            if client.server == actor.server.name and client.projection == actor.projection
        ]

    def forget_stopped(self, actor: KeyActor, now: float) -> float:
        """Forget a key whose actor does not come back, when it has refused long enough and nothing is left.

        Returns:
            When to look again.
        """
        pool = self._pool
        until = now if actor.refuses_until is None else actor.refuses_until
        if until > now:
            return until
        left = self._clients_of(actor) or pool.openings.opens(actor) or actor.machine.paused
        if left or any(call.actor is actor for call in pool.running.values()):
            return now + pool.limits.close_timeout
        pool.forget(actor)
        return float("inf")
