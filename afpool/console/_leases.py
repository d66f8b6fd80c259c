"""Pauses that end by themselves: who holds something up from a console holds it for a time.

Rules:

* A pause has a lease: it ends when its time is up, and `GRACE` seconds after the console that asked for it
  has gone, whichever comes first. So a console that is killed in the middle of something leaves nothing held
  for good. `hold` gives it none, and says so.
* A lease ends what it began and nothing else: where somebody else has resumed meanwhile, or has paused anew,
  it does nothing. What it goes by is the event that its own pause has filed.
* Asking again for what is leased renews the lease, whoever asks; asking with `hold` drops it.
* When the console of the process closes, what is leased ends at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from ._ask import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import PoolKey
    from ..pool import Event, Pool
    from ._ask import Asker
    from ._registry import Registry

GRACE: Final = 5.0


@final
class Lease:
    """One pause that ends.

    Attributes:
        event: What the pause has filed.
        until: When its time is up, on the pool's clock.
        asker: Who asked last.
    """

    __slots__ = ("asker", "event", "gone", "scope", "take_back", "until")

    def __init__(self, event: Event, until: float, asker: Asker) -> None:
        self.event = event
        self.until = until
        self.asker = asker
        self.gone = trio.Event()
        self.scope = trio.CancelScope()
        self.take_back: Callable[[], None] = lambda: None


@final
class Leases:
    """The pauses of one pool that end by themselves.

    Args:
        pool: The pool.
        registry: Runs what waits for their end.
    """

    def __init__(self, pool: Pool, registry: Registry) -> None:
        self._pool = pool
        self._registry = registry
        self._leases: dict[PoolKey | tuple[str], Lease] = {}
        registry.at_end(self.end_all)

    def find(self, what: PoolKey | tuple[str]) -> Lease | None:
        """The lease that is in force for a key, or for the server whose name is in the tuple."""
        lease = self._leases.get(what)
        if lease is None or lease.event is not self.held_by(what):
            return None
        return lease

    def held_by(self, what: PoolKey | tuple[str]) -> Event | None:
        """The event of the pause that is in force."""
        if isinstance(what, tuple):
            return self._pool.held_servers.get(what[0])
        actor = self._pool.actor_of(what)
        return None if actor is None else actor.held_since

    def begin(self, what: PoolKey | tuple[str], asker: Asker, seconds: float) -> Lease:
        """Let the pause in force end after so long, or soon after its asker has gone.

        Raises:
            CommandError: The console is closing: the pause has ended.
        """
        self.drop(what)
        event = self.held_by(what)
        assert event is not None
        lease = Lease(event, self._pool.seams.now() + seconds, asker)
        self._leases[what] = lease
        try:
            self._registry.spawn(self._watch, what, lease)
        except CommandError:  # nobody would end it any more
            self._end(what, "its console was closed")
            raise
        lease.take_back = asker.at_end(lease.gone.set)
        return lease

    def drop(self, what: PoolKey | tuple[str]) -> None:
        """Have no lease for it; the pause, if there is one, stays."""
        lease = self._leases.pop(what, None)
        if lease is not None:
            lease.take_back()
            lease.scope.cancel()

    def end_all(self) -> None:
        """End every pause that has a lease. Synchronous."""
        for what in list(self._leases):
            self._end(what, "its console was closed")

    async def _watch(self, what: PoolKey | tuple[str], lease: Lease) -> None:
        with lease.scope:
            with trio.CancelScope(deadline=lease.until):
                await lease.gone.wait()
                await trio.sleep(GRACE)
            self._end(what, "its console has gone" if lease.gone.is_set() else "its time is up")

    def _end(self, what: PoolKey | tuple[str], why: str) -> None:
        lease = self._leases.pop(what, None)
        if lease is None:
            return
        lease.take_back()
        if lease.event is not self.held_by(what):
            return
        by = f"{lease.asker.who} ({why})"
        if isinstance(what, tuple):
            self._pool.resume_server(what[0], by=by)
        else:
            self._pool.resume(what, by=by)
