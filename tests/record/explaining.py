"""Uses made by hand, and a record made by hand to explain them by."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from afpool import Definition, Event, Use

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

KEY = "k:00000000beef"


def a_use(*marks: tuple[str, float], ended: float | None = None, **facts: Any) -> Use:
    """A call of `search` on `crm` that began at 100, with marks at seconds since then."""
    use = Use("c-1", "crm", "search", 100.0)
    use.key = "the whole key"
    use.client_id = 7
    for stage, at in marks:
        use.marks += (stage, 100.0 + at)
    if ended is not None:
        use.ended_at = 100.0 + ended
    for name, value in facts.items():
        setattr(use, name, value)
    return use


def refused(code: str, *marks: tuple[str, float], ended: float, **facts: Any) -> Use:
    """One that was refused before anything left."""
    facts = {"outcome": "refused", "code": code, "delivery": "not-sent", **facts}
    return a_use(*marks, ended=ended, **facts)


def definition(name: str = "search", **members: Any) -> Definition:
    """A definition as it is listed."""
    raw = json.dumps({"name": name, **members}).encode()
    digest = hashlib.sha256(raw).hexdigest()
    return Definition(name, digest, raw, digest)


def an_event(number: int, kind: str, after: float, key: str = KEY, **facts: object) -> Event:
    """An event at seconds after the call began."""
    return Event(number, 100.0 + after, kind, key, facts)


class Given:
    """What a record knows, given by hand."""

    def __init__(
        self,
        *uses: Use,
        events: Iterable[Event] = (),
        now: float = 101.0,
        without: Collection[str] = (),
        holding: Iterable[Event] = (),
        opening: tuple[str | None, str, float] | None = None,
    ) -> None:
        self.uses = uses
        self.events = {event.number: event for event in events}
        self.now = now
        self._without = without
        self._holding = list(holding)
        self._opening = opening

    def calls(self, call_id: str) -> list[Use]:
        return [use for use in self.uses if use.call_id == call_id]

    def holders(self, use: Use) -> dict[str, Use]:
        return {each.call_id: each for each in self.uses if each.call_id in use.held_by}

    def event(self, number: int) -> Event | None:
        return self.events.get(number)

    def events_between(self, key: str, server: str, since: float, until: float) -> list[Event]:
        return [
            event for event in self.events.values() if event.key in (key, "") and since < event.at <= until
        ]

    def show(self, key: object) -> str:
        return KEY if key is not None else ""

    def without(self, server: str) -> Collection[str]:
        return self._without

    def holding(self, use: Use) -> list[Event]:
        return self._holding

    def opening(self, use: Use) -> tuple[str | None, str, float] | None:
        return self._opening
