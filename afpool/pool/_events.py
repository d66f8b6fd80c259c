"""The last events of a pool, in columns that are allocated once.

An event outlives the key that it is about. Kept as an object among objects it would hold a page of memory
for a few bytes, and a thousand of them hold what a hundred thousand forgotten keys had used; so the ring
holds numbers in arrays and makes `Event` objects when it is read.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS_KEPT: Final = 1024
_NUMBERS: Final = ("client", "list", "generation")
_ABSENT: Final = -1
_OF_ALL: Final = 1 << 63  # beyond any digest


@attrs.frozen
class Event:
    """Something that happened to a key, a client or a list; numbered, so that a refusal can name it.

    Attributes:
        number: Counts from 1 for each pool.
        at: On the runtime's clock.
        kind: `opened`, `closed`, `evicted`, `list`, `list-changed`, `revoked`, `reconfigured` and others.
        key: Digest that stands for the key; empty where it is about the whole pool.
        facts: `client`, `list`, `generation` and `why`, where there are such.
    """

    number: int
    at: float
    kind: str
    key: str
    facts: dict[str, object]


@final
class EventRing:
    """The newest `EVENTS_KEPT` events, oldest first when iterated."""

    __slots__ = ("_at", "_columns", "_filed", "_keys", "_kinds", "_whys")

    def __init__(self) -> None:
        self._filed = 0
        self._at = array("d", bytes(8 * EVENTS_KEPT))
        self._keys = array("Q", bytes(8 * EVENTS_KEPT))
        self._columns = {name: array("q", bytes(8 * EVENTS_KEPT)) for name in _NUMBERS}
        # words: nearly all of them constants of the code
        self._kinds: list[str] = [""] * EVENTS_KEPT
        self._whys: list[str | None] = [None] * EVENTS_KEPT

    def file(
        self,
        at: float,
        kind: str,
        key: str,
        *,
        client: int = _ABSENT,
        list: int = _ABSENT,  # noqa: A002 -- the name of the fact
        generation: int = _ABSENT,
        why: str | None = None,
    ) -> int:
        """File one event and return its number; `key` is a digest as `KeyDigest.show` makes it, or empty."""
        slot = self._filed % EVENTS_KEPT
        self._filed += 1
        self._at[slot] = at
        self._keys[slot] = int(key.rpartition(":")[2], 16) if key else _OF_ALL
        self._kinds[slot] = kind
        self._whys[slot] = why
        columns = self._columns
        columns["client"][slot] = client
        columns["list"][slot] = list
        columns["generation"][slot] = generation
        return self._filed

    def __len__(self) -> int:
        return min(self._filed, EVENTS_KEPT)

    def __iter__(self) -> Iterator[Event]:
        for number in range(self._filed - len(self) + 1, self._filed + 1):
            slot = (number - 1) % EVENTS_KEPT
            facts: dict[str, object] = {
                name: column[slot] for name, column in self._columns.items() if column[slot] != _ABSENT
            }
            if self._whys[slot] is not None:
                facts["why"] = self._whys[slot]
            key = "" if self._keys[slot] == _OF_ALL else f"k:{self._keys[slot]:012x}"
            yield Event(number, self._at[slot], self._kinds[slot], key, facts)
