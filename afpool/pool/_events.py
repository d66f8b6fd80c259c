"""The last events of a pool, in columns that are allocated once.

An event outlives the key that it is about. Kept as an object among objects it would hold a page of memory
for a few bytes, and a thousand of them hold what a hundred thousand forgotten keys had used; so the ring
holds numbers in arrays and makes `Event` objects when it is read. What an event says is in `FACTS`.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import TYPE_CHECKING, Any, Final, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS_KEPT: Final = 1024
NUMBERS: Final = ("client", "list", "generation", "after")
SECONDS: Final = ("took", "plan", "room", "connect", "credential", "sign", "initialize")
WORDS: Final = ("why", "by")
FACTS: Final = frozenset({*NUMBERS, *SECONDS, *WORDS, "call", "room_for"})
WORD_KEPT: Final = 200
CALL_KEPT: Final = 64
_ABSENT: Final = -1
_OF_ALL: Final = 1 << 63  # beyond any digest


@attrs.frozen
class Event:
    """Something that happened to a key, a client or a list; numbered, so that a refusal can name it.

    Facts, where there are such:

    * `client`, `list`, `generation`: ids, and how many different lists there were
    * `why`: a word or a sentence; of what failed its code
    * `by`: who asked for it, as he was named (`pause`, `kill` and others)
    * `call`: the id of the call that it was begun for
    * `after`: of `opened` and `open-failed`, the number of the event that ended the key's client before
    * `room_for`: of `evicted`, the digest of the key that waited for room
    * `took`: seconds from begin to end; of an opening, what it spent on `plan`, `room`, `connect`,
      `credential`, `sign` and `initialize`

    Attributes:
        number: Counts from 1 for each pool.
        at: On the runtime's clock.
        kind: `opened`, `closed`, `evicted`, `list`, `list-changed`, `revoked`, `reconfigured` and others.
        key: Digest that stands for the key; empty where it is about more than one.
        facts: See above.
        server: The server's name; empty where it is about the whole pool.
    """

    number: int
    at: float
    kind: str
    key: str
    facts: dict[str, object]
    server: str = ""


@final
class EventRing:
    """The newest `EVENTS_KEPT` events, oldest first when iterated."""

    __slots__ = (
        "_at", "_calls", "_filed", "_keys", "_kinds", "_numbers", "_room_for", "_seconds", "_servers",
        "_words",
    )  # fmt: skip

    def __init__(self) -> None:
        self._filed = 0
        self._at = array("d", bytes(8 * EVENTS_KEPT))
        self._keys = array("Q", bytes(8 * EVENTS_KEPT))
        self._room_for = array("Q", bytes(8 * EVENTS_KEPT))
        self._numbers = {name: array("q", bytes(8 * EVENTS_KEPT)) for name in NUMBERS}
        self._seconds = {name: array("d", bytes(8 * EVENTS_KEPT)) for name in SECONDS}
        self._calls = bytearray(CALL_KEPT * EVENTS_KEPT)
        # words: nearly all of them constants of the code, and names of servers
        self._kinds: list[str] = [""] * EVENTS_KEPT
        self._servers: list[str] = [""] * EVENTS_KEPT
        self._words: dict[str, list[str | None]] = {name: [None] * EVENTS_KEPT for name in WORDS}

    @property
    def filed(self) -> int:
        """How many were filed since the pool was opened; the number of the newest."""
        return self._filed

    def file(self, at: float, kind: str, key: str, server: str = "", **facts: Any) -> Event:
        """File one event and return it.

        Args:
            at: On the runtime's clock.
            kind: One word.
            key: A digest as `KeyDigest.show` makes it, or empty.
            server: The server's name, or empty.
            facts: See `Event`; `None` stands for an absent one. A word is cut at 200 characters, and a call
                id that is longer than 64 bytes is left out.
        """
        facts = {name: fact for name, fact in facts.items() if fact is not None}
        if not facts.keys() <= FACTS:
            raise TypeError(f"an event has no such facts: {sorted(facts.keys() - FACTS)}")
        for name in WORDS:
            if name in facts:
                facts[name] = str(facts[name])[:WORD_KEPT]
        call = str(facts.get("call", "")).encode("utf-8", "replace")
        if len(call) > CALL_KEPT or b"\0" in call:
            call = b""
            del facts["call"]
        slot = self._filed % EVENTS_KEPT
        self._filed += 1
        self._at[slot] = at
        self._keys[slot] = _number_of(key)
        self._room_for[slot] = _number_of(str(facts.get("room_for", "")))
        self._kinds[slot] = kind
        self._servers[slot] = server
        self._calls[slot * CALL_KEPT : (slot + 1) * CALL_KEPT] = call.ljust(CALL_KEPT, b"\0")
        for name, words in self._words.items():
            words[slot] = facts.get(name)
        for name, numbers in self._numbers.items():
            numbers[slot] = facts.get(name, _ABSENT)
        for name, seconds in self._seconds.items():
            seconds[slot] = facts.get(name, nan)
        return Event(self._filed, at, kind, key, facts, server)

    def get(self, number: int) -> Event | None:
        """The event of that number; `None` where it was never filed, or is not kept any more."""
        if not self._filed - len(self) < number <= self._filed:
            return None
        slot = (number - 1) % EVENTS_KEPT
        facts: dict[str, object] = {
            name: numbers[slot] for name, numbers in self._numbers.items() if numbers[slot] != _ABSENT
        }
        facts |= {name: found[slot] for name, found in self._seconds.items() if not isnan(found[slot])}
        facts |= {name: words[slot] for name, words in self._words.items() if words[slot] is not None}
        call = bytes(self._calls[slot * CALL_KEPT : (slot + 1) * CALL_KEPT]).rstrip(b"\0")
        if call:
            facts["call"] = call.decode()
        if self._room_for[slot] != _OF_ALL:
            facts["room_for"] = _shown(self._room_for[slot])
        kind, server = self._kinds[slot], self._servers[slot]
        return Event(number, self._at[slot], kind, _shown(self._keys[slot]), facts, server)

    def since(self, number: int) -> Iterator[Event]:
        """Those that came after the one of that number and are kept, oldest first."""
        for each in range(max(number, self._filed - len(self)) + 1, self._filed + 1):
            event = self.get(each)
            if event is not None:
                yield event

    def __len__(self) -> int:
        return min(self._filed, EVENTS_KEPT)

    def __iter__(self) -> Iterator[Event]:
        return self.since(0)


def _number_of(key: str) -> int:
    return int(key.rpartition(":")[2], 16) if key else _OF_ALL


def _shown(number: int) -> str:
    return "" if number == _OF_ALL else f"k:{number:012x}"
