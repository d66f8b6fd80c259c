"""Places that many share, given so that nobody's neighbour costs him his.

Rules:

* Who holds fewest goes first: among tenants, then among the tenant's keys; of equals who was served longest
  ago, then first come, first served. What is counted is places and not turns, so that a tenant whose calls
  take ten times as long gets a tenth of the turns.
* A place is never taken back from who holds it. So one tenant may have no more than its share of them, and
  one server no more than its own: what hangs there leaves the rest to the others. `None` is no tenant, and
  has no such bound: where nobody names tenants, nobody is anybody's neighbour.
* A waiter who cannot be served now (its server or its tenant has its share) is passed over, and holds up
  nobody.
* Where a server has its share it is a queue of its own: there the tenant goes first that holds fewest of
  that server's. Else one that holds many elsewhere would never come to it.
* Nobody waits who could be served. So whoever finds room may take it, and overtakes nobody.

Everything here is synchronous and belongs to one thread. Choosing the next one takes a look at those who
hold something, at those who cannot be served now, and at one more.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, TypeVar, final

from actors import Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

C = TypeVar("C")


@final
class Seat:
    """One waiter.

    Attributes:
        reply: Set when the place was taken for it.
        granted: It owns a place.
        chain: Tickets of the calls that wait for this one to end.
    """

    __slots__ = ("chain", "granted", "key", "reply", "server", "tenant")

    def __init__(self, server: str, tenant: str | None, key: str, chain: tuple[int, ...] = ()) -> None:
        self.server = server
        self.tenant = tenant
        self.key = key
        self.chain = chain
        self.reply: Reply[None] = Reply()
        self.granted = False


@final
class FairPlaces:
    """So many places, and who waits for one.

    Args:
        limit: How many there are.
        per_tenant: How many of them one tenant may hold; `limit` when absent.
        per_server: How many of them may be one server's; where it is absent `limit`, for good.

    Attributes:
        used: Places that are held.
        waiting: Seats that wait.
    """

    __slots__ = (
        "_at", "_by_server", "_keys", "_limit", "_per_server", "_per_tenant", "_queue", "_servers",
        "_tenants", "used", "waiting",
    )  # fmt: skip

    def __init__(self, limit: int, *, per_tenant: int | None = None, per_server: int | None = None) -> None:
        self._limit = limit
        self._per_tenant = limit if per_tenant is None else per_tenant
        self._per_server = limit if per_server is None else per_server
        self._by_server = per_server is not None
        # Who holds how many. What has come to nothing is left out: a forgotten key costs nothing.
        self._tenants: dict[str | None, int] = {}
        self._keys: dict[str, int] = {}
        self._servers: dict[str, int] = {}
        self._at: dict[tuple[str, str | None], int] = {}
        # tenant -> key -> waiters; dicts keep the order: who was served moves to the end
        self._queue: dict[str | None, dict[str, deque[Seat]]] = {}
        self.used = 0
        self.waiting = 0

    # ------------------------------------------------------------------ who wants a place

    def try_enter(self, server: str, tenant: str | None, key: str) -> bool:
        """Take a place if there is room."""
        if (
            self.used >= self._limit
            or (tenant is not None and self._tenants.get(tenant, 0) >= self._per_tenant)
            or self._servers.get(server, 0) >= self._per_server
        ):
            return False
        self._take(server, tenant, key)
        return True

    def wait(self, server: str, tenant: str | None, key: str, chain: tuple[int, ...] = ()) -> Seat:
        """Queue up; the seat's reply is set when a place was taken for it, perhaps at once.

        `chain` are the tickets of the calls that wait for this one to end.
        """
        seat = Seat(server, tenant, key, chain)
        self._queue.setdefault(tenant, {}).setdefault(key, deque()).append(seat)
        self.waiting += 1
        self._serve()
        return seat

    def withdraw(self, seat: Seat) -> bool:
        """Stop waiting; return False when the place had been given already."""
        keys = self._queue.get(seat.tenant)
        queue = keys.get(seat.key) if keys is not None else None
        if queue is None or seat not in queue:
            return False
        queue.remove(seat)
        self._tidy(seat.tenant, seat.key)
        self.waiting -= 1
        return True

    def give_up(self, seat: Seat) -> None:
        """Stop waiting, and give the place back if it was given already."""
        if not self.withdraw(seat) and seat.granted:
            self.leave(seat.server, seat.tenant, seat.key)

    def leave(self, server: str, tenant: str | None, key: str) -> None:
        """Give a place back."""
        self.used -= 1
        _drop(self._tenants, tenant)
        _drop(self._keys, key)
        _drop(self._servers, server)
        if self._by_server:
            _drop(self._at, (server, tenant))
        if self.waiting:
            self._serve()

    def divide(self, per_server: int) -> None:
        """Let one server have as many from now on; what it has beyond that is given back in its time."""
        assert self._by_server
        self._per_server = per_server
        self._serve()

    @contextlib.asynccontextmanager
    async def place(self, server: str, tenant: str | None, key: str) -> AsyncIterator[None]:
        """Hold a place for the time of a block; waits where there is none. Cancelled, nothing is held."""
        await self.enter(server, tenant, key)
        try:
            yield
        finally:
            self.leave(server, tenant, key)

    async def enter(self, server: str, tenant: str | None, key: str) -> None:
        """Take a place; waits where there is none. Cancelled, nothing is held."""
        if self.try_enter(server, tenant, key):
            return
        seat = self.wait(server, tenant, key)
        try:
            await seat.reply.wait()
        except BaseException:
            self.give_up(seat)
            raise

    # ------------------------------------------------------------------ what may be asked

    def held(self, tenant: str | None) -> int:
        """Places that a tenant holds."""
        return self._tenants.get(tenant, 0)

    def held_at(self, server: str) -> int:
        """Places of a server that are held."""
        return self._servers.get(server, 0)

    def has_share(self, tenant: str | None) -> bool:
        """Whether a tenant holds as many as it may: it gets another only for one of its own."""
        return tenant is not None and self._tenants.get(tenant, 0) >= self._per_tenant

    def has_share_at(self, server: str) -> bool:
        """Whether a server has as many as it may."""
        return self._servers.get(server, 0) >= self._per_server

    def wanted_of(self, tenant: str | None) -> bool:
        """Whether somebody waits who would be served if this tenant gave a place back."""
        return any(waiter == tenant or not self.has_share(waiter) for waiter in self._queue)

    def waited_for(self) -> set[int]:
        """Tickets of the calls that wait for one which waits here."""
        seats = (seat for keys in self._queue.values() for queue in keys.values() for seat in queue)
        return {ticket for seat in seats for ticket in seat.chain}

    # ------------------------------------------------------------------ inside

    def _take(self, server: str, tenant: str | None, key: str) -> None:
        self.used += 1
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        self._keys[key] = self._keys.get(key, 0) + 1
        self._servers[server] = self._servers.get(server, 0) + 1
        if self._by_server:
            at = (server, tenant)
            self._at[at] = self._at.get(at, 0) + 1

    def _serve(self) -> None:
        while self.used < self._limit:
            seat = self._next()
            if seat is None:
                return
            keys = self._queue[seat.tenant]
            keys[seat.key].popleft()
            self.waiting -= 1
            seat.granted = seat.reply.set(None)
            if seat.granted:  # else its asker is gone: no place is taken, and its tenant keeps its turn
                self._take(seat.server, seat.tenant, seat.key)
                keys[seat.key] = keys.pop(seat.key)  # served: behind all who hold as many
                self._queue[seat.tenant] = self._queue.pop(seat.tenant)
            self._tidy(seat.tenant, seat.key)

    def _next(self) -> Seat | None:
        seat = _least(self._eligible(None), lambda seat: self._tenants.get(seat.tenant, 0))
        if seat is None or self._per_server == self._limit:
            return seat
        if self._servers.get(seat.server, 0) < self._per_server - 1:
            return seat
        # It is the last of that server's: whose it is, is settled among those who want one there.
        return _least(self._eligible(seat.server), lambda seat: self._at.get((seat.server, seat.tenant), 0))

    def _eligible(self, server: str | None) -> Iterator[Seat]:
        """Of each tenant who can be served (at this server, or at any) the seat that comes first."""
        for tenant, keys in self._queue.items():
            if not self.has_share(tenant):
                seat = _least(self._fronts(keys, server), lambda seat: self._keys.get(seat.key, 0))
                if seat is not None:
                    yield seat

    def _fronts(self, keys: dict[str, deque[Seat]], server: str | None) -> Iterator[Seat]:
        for queue in keys.values():
            seat = queue[0]
            if server in (None, seat.server) and self._servers.get(seat.server, 0) < self._per_server:
                yield seat

    def _tidy(self, tenant: str | None, key: str) -> None:
        keys = self._queue[tenant]
        if not keys[key]:
            del keys[key]
            if not keys:
                del self._queue[tenant]


def _least(seats: Iterable[Seat], held: Callable[[Seat], int]) -> Seat | None:
    """The first of those who hold fewest; nobody holds less than nothing, so that one ends the search."""
    found: Seat | None = None
    fewest = 0
    for seat in seats:
        count = held(seat)
        if not count:
            return seat
        if found is None or count < fewest:
            found, fewest = seat, count
    return found


def _drop(counts: dict[C, int], name: C) -> None:
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]
