"""The runtime's admission: how many calls run at once, in all and per server, fair between tenants.

A call that cannot run waits with its tenant's others. Places that become free go round robin over the
tenants, then over the tenant's keys, then first come first served, so that neither a busy tenant nor a
busy key starves another. A waiter whose server is full is passed over, not waited for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from actors import Reply

from .._base.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._base.identity import PoolKey


@final
class Seat:
    """One waiter."""

    __slots__ = ("chain", "granted", "key", "reply", "server", "tenant")

    def __init__(self, server: str, tenant: str | None, key: PoolKey, chain: tuple[int, ...] = ()) -> None:
        self.server = server
        self.tenant = tenant
        self.key = key
        self.chain = chain
        self.reply: Reply[None] = Reply()
        self.granted = False


@final
class RuntimeAdmission:
    """Counts what runs; queues what must wait.

    Args:
        limit: Calls that may run at once, in all.
        per_server: Calls of one server that may run at once; `limit` when absent.
        max_waiting: Waiters, before further ones are refused; no bound when absent.

    Attributes:
        in_flight: Calls that run now.
        waiting: Calls that wait here now.
    """

    __slots__ = (
        "_limit", "_limit_per_server", "_max_waiting", "_per_server", "_tenants", "in_flight", "waiting",
    )  # fmt: skip

    def __init__(self, limit: int, per_server: int | None = None, *, max_waiting: int | None = None) -> None:
        self._limit = limit
        self._limit_per_server = limit if per_server is None else per_server
        self._max_waiting = max_waiting
        self._per_server: dict[str, int] = {}
        # tenant -> key -> waiters; dicts keep the round robin order: who was served moves to the end
        self._tenants: dict[str | None, dict[PoolKey, deque[Seat]]] = {}
        self.in_flight = 0
        self.waiting = 0

    def try_enter(self, server: str) -> bool:
        """Take a place if there is one and nobody waits before."""
        if self.waiting or not self._room(server):
            return False
        self._take(server)
        return True

    def wait(self, server: str, tenant: str | None, key: PoolKey, chain: tuple[int, ...] = ()) -> Seat:
        """Queue up; the seat's reply is set when the place is taken for it.

        `chain` are the tickets of the calls that wait for this one to end.

        Raises:
            Overloaded: So many wait already.
        """
        if self._max_waiting is not None and self.waiting >= self._max_waiting:
            raise Overloaded(
                f"{self.in_flight} calls run (max_in_flight {self._limit}) and {self.waiting} wait for a "
                f"place of the runtime (max_waiting_total {self._max_waiting}); nothing was sent"
            )
        seat = Seat(server, tenant, key, chain)
        self._tenants.setdefault(tenant, {}).setdefault(key, deque()).append(seat)
        self.waiting += 1
        self._serve()
        return seat

    def withdraw(self, seat: Seat) -> bool:
        """Stop waiting; return False when the place had been given already."""
        keys = self._tenants.get(seat.tenant)
        queue = keys.get(seat.key) if keys is not None else None
        if keys is None or queue is None or seat not in queue:
            return False
        queue.remove(seat)
        self._tidy(seat.tenant, seat.key)
        self.waiting -= 1
        return True

    def leave(self, server: str) -> None:
        """Give a place back."""
        self.in_flight -= 1
        left = self._per_server[server] - 1
        if left:
            self._per_server[server] = left
        else:
            del self._per_server[server]
        if self.waiting:
            self._serve()

    def waited_for(self) -> set[int]:
        """Tickets of the calls that wait for one which waits here."""
        seats = (seat for keys in self._tenants.values() for queue in keys.values() for seat in queue)
        return {ticket for seat in seats for ticket in seat.chain}

    def count(self, server: str) -> int:
        """Calls of one server that run now."""
        return self._per_server.get(server, 0)

    def _room(self, server: str) -> bool:
        return self.in_flight < self._limit and self._per_server.get(server, 0) < self._limit_per_server

    def _take(self, server: str) -> None:
        self.in_flight += 1
        self._per_server[server] = self._per_server.get(server, 0) + 1

    def _serve(self) -> None:
        while self.in_flight < self._limit:
            seat = next(self._eligible(), None)
            if seat is None:
                return
            keys = self._tenants[seat.tenant]
            keys[seat.key].popleft()
            self.waiting -= 1
            seat.granted = seat.reply.set(None)
            if seat.granted:  # else its asker is gone: no place is taken, and its tenant keeps its turn
                self._take(seat.server)
                keys[seat.key] = keys.pop(seat.key)  # served: to the end of both rounds
                self._tenants[seat.tenant] = self._tenants.pop(seat.tenant)
            self._tidy(seat.tenant, seat.key)

    def _eligible(self) -> Iterator[Seat]:
        for keys in self._tenants.values():
            for queue in keys.values():
                if self._room(queue[0].server):
                    yield queue[0]

    def _tidy(self, tenant: str | None, key: PoolKey) -> None:
        keys = self._tenants[tenant]
        if not keys[key]:
            del keys[key]
            if not keys:
                del self._tenants[tenant]
