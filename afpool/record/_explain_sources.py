"""Where an explanation finds the facts that are not the call's own."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, final

from .._base.identity import PoolKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .._base.use import Use
    from ..pool import Event
    from ._record import Record

EVENTS_LOOKED_AT: Final = 300
"""Events of all keys that are gone through for one explanation: about 2 ms."""
USES_LOOKED_AT: Final = 5_000
"""Calls that are gone through for those that held places: about 1 ms."""


class Sources(Protocol):
    """Where facts stand that are not the call's own. Every method is synchronous and quick."""

    @property
    def now(self) -> float:
        """The runtime's clock."""
        ...

    def calls(self, call_id: str) -> list[Use]:
        """Give every use under an id, newest first, running ones too."""
        ...

    def holders(self, use: Use) -> dict[str, Use]:
        """Give the uses of the calls that held what a call waited for, by id, as far as they are kept."""
        ...

    def event(self, number: int) -> Event | None:
        """Give an event; `None` once it has left the record."""
        ...

    def events_between(self, key: str, server: str, since: float, until: float) -> Iterable[Event]:
        """Give what happened to a key, by its digest, to its server, and to the whole pool, after `since`."""
        ...

    def show(self, key: object) -> str:
        """Give the digest that stands for a key; empty where there is none."""
        ...

    def without(self, server: str) -> Collection[str]:
        """Give the pointers that a server's definitions are compared without."""
        ...

    def holding(self, use: Use) -> list[Event]:
        """Give what holds admission to the key of a call now: pauses and drains, each by its event."""
        ...

    def opening(self, use: Use) -> tuple[str | None, str, float] | None:
        """Tell of the opening that is under way for the key of a call.

        Returns:
            The id of the call that it was begun for, the stage that it is at, and when it began on the clock.
        """
        ...


@final
class PoolSources:
    """The record of a pool, as an explanation asks it. Made anew for each explanation.

    Args:
        record: The record.
    """

    __slots__ = ("_pool", "_record", "now")

    def __init__(self, record: Record) -> None:
        self._record = record
        self._pool = record.pool
        self.now = record.pool.seams.now()

    def calls(self, call_id: str) -> list[Use]:
        """See `Sources`."""
        return self._record.call(call_id)

    def holders(self, use: Use) -> dict[str, Use]:
        """See `Sources`; looks at `USES_LOOKED_AT` of those that ended after the call began."""
        wanted = set(use.held_by)
        found = {each.call_id: each for each in self._record.running() if each.call_id in wanted}
        uses = self._pool.records.uses
        first, last = 0, len(uses)
        while first < last:  # uses are filed as they end: the first that ended after the call began
            middle = (first + last) // 2
            if (uses[middle].ended_at or 0.0) < use.began_at:
                first = middle + 1
            else:
                last = middle
        for each in islice(uses, first, first + USES_LOOKED_AT):
            if each.call_id in wanted:
                found[each.call_id] = each
                if len(found) == len(wanted):
                    break
        return found

    def event(self, number: int) -> Event | None:
        """See `Sources`."""
        return self._pool.records.events.get(number)

    def events_between(self, key: str, server: str, since: float, until: float) -> Iterable[Event]:
        """See `Sources`; looks at the newest `EVENTS_LOOKED_AT` of those that were filed until then."""
        events = self._pool.records.events
        first, last = events.filed - len(events) + 1, events.filed
        while first <= last:  # numbers rise with time: the last one that is not later
            middle = (first + last) // 2
            event = events.get(middle)
            if event is not None and event.at > until:
                last = middle - 1
            else:
                first = middle + 1
        found = []
        for number in range(last, max(last - EVENTS_LOOKED_AT, 0), -1):
            event = events.get(number)
            if event is None or event.at <= since:
                break
            if event.key == key or (not event.key and event.server in (server, "")):
                found.append(event)
        return reversed(found)

    def show(self, key: object) -> str:
        """See `Sources`."""
        return self._record.digests.show(key) if isinstance(key, str) else ""

    def without(self, server: str) -> Collection[str]:
        """See `Sources`."""
        known = self._pool.servers.get(server)
        return () if known is None else known.compare_without

    def holding(self, use: Use) -> list[Event]:
        """See `Sources`."""
        actor = self._pool.actor_of(PoolKey(use.key)) if isinstance(use.key, str) else None
        events = [self._pool.held_servers.get(use.server)]
        if actor is not None:
            machine = actor.machine
            events.append(actor.held_since if machine.paused else None)
            events.append(actor.drained_since if machine.draining is not None else None)
        return [event for event in events if event is not None]

    def opening(self, use: Use) -> tuple[str | None, str, float] | None:
        """See `Sources`."""
        for each in self._pool.openings.under_way.values():
            if each.actor.key == use.key:
                return each.call_id, each.stages.stage or "plan", each.stages.began
        return None
