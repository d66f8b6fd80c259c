"""One tool list and whether it is still true.

Rules and invariants:

* L1 The generation counts the *different* lists received: it moves when a list differs from the one before
  by the digest of its definitions, and never otherwise.
* L2 A list is settled only if no change notice came after its first page was asked for.
* L3 Only a change notice closes a gate. An expired time to live, a lost notification stream or a forced
  refresh make the next list or call ask again, and close nothing.
* L4 A list that is dead (its client replaced, its entry dissolved) never lives again; ids are never reused.
* L5 One client may list under one name and then under another. What it received last counts for it, wherever
  that was filed: a list that is shown otherwise is asked for again, and closes its gate until then.

Everything here is synchronous; a key's own list changes in turns of its actor only, a shared one in the
turns of its entry.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from .._base.definition import Catalog, Definition
    from .._base.use import Use
    from ..client._carried import Carried
    from ._events import Event
    from ._shares import Entry

RELIST_INTERVAL: Final = 1.0
RELIST_INTERVAL_MAX: Final = 30.0
LISTENER_GONE: Final = "its listener has gone"
STREAM_LOST: Final = "notification stream lost"
SHOWN_OTHERWISE: Final = "its client received another list"

_NO_CHANGE: Final = frozenset({LISTENER_GONE, STREAM_LOST})
"""Doubts that say nothing of how often the server changes its list: an eviction of ours, or the network."""


_receipts = itertools.count(1)


@final
class Shown:
    """The last list that a client received.

    Attributes:
        receipt: Its number: lists that were filed later have greater ones.
        catalog: What it showed.
        filed: Where it was filed.
    """

    __slots__ = ("catalog", "filed", "receipt")

    def __init__(self, catalog: Catalog, filed: ListState) -> None:
        self.receipt = next(_receipts)
        self.catalog = catalog
        self.filed = filed


@final
class ListState:
    """A list of one incarnation, or of one shared entry.

    Attributes:
        id: Process-wide, never used twice.
        entry: The shared entry that it belongs to, if any.
        alive: Whether its owner still stands behind it.
        catalog: What was received last; `None` before the first answer.
        generation: See L1; 0 before the first answer.
        noticed: A change was announced after `catalog` was asked for (closes gates).
        doubt: Why it is unsettled otherwise, or `None`.
        notices: How many changes were announced.
        notices_asked: How many when it was last asked for.
        expires_at: When its time to live ends, on the runtime's clock.
        receipt: The number of what was received last; see `Shown`.
        next_at: Not asked for again before this time.
        asked_at: When it was last asked for.
        asked_before: Whether it was asked for at all; the first asking counts for nothing.
        event: The last event that touched it.
        curious: Uses that a change refused which had been announced and not looked at, and the definition
            that each was listed under, and what its client carried: told what has become of it when the
            list is there.
    """

    __slots__ = (
        "__weakref__",
        "alive",
        "asked_at",
        "asked_before",
        "catalog",
        "curious",
        "doubt",
        "doubts",
        "doubts_asked",
        "entry",
        "event",
        "expires_at",
        "flight",
        "generation",
        "id",
        "interval",
        "next_at",
        "noticed",
        "notices",
        "notices_asked",
        "receipt",
    )  # fmt: skip

    def __init__(self, list_id: int, *, entry: Entry | None = None) -> None:
        self.id = list_id
        self.entry = entry
        self.alive = True
        self.catalog: Catalog | None = None
        self.generation = 0
        self.noticed = False
        self.doubt: str | None = None
        self.doubts = 0  # how often it was doubted, and how often when it was last asked for
        self.doubts_asked = 0
        self.notices = 0
        self.notices_asked = 0
        self.receipt = 0
        self.expires_at = 0.0
        self.next_at = 0.0
        self.interval = RELIST_INTERVAL
        self.asked_at = 0.0
        self.asked_before = False
        self.event: Event | None = None
        self.flight: object = None
        self.curious: list[tuple[Use, Definition, Carried | None]] | None = None

    @property
    def shared(self) -> bool:
        """Whether it is an entry's, not one incarnation's own."""
        return self.entry is not None

    def settled(self, now: float) -> bool:
        """Whether it may be believed without asking again."""
        return self.catalog is not None and not self.noticed and self.doubt is None and now < self.expires_at

    def received(self, catalog: Catalog, notices: int, expires_at: float) -> bool:
        """Take a fresh list; return whether the generation moved (L1, L2)."""
        moved = self.catalog is None or self.catalog.digest != catalog.digest
        if moved:
            self.generation += 1
            self.catalog = catalog
        self.receipt = next(_receipts)
        self.noticed = self.notices != notices
        if self.doubts == self.doubts_asked:  # what came while it was on its way is not answered by it
            self.doubt = None
        self.expires_at = expires_at
        return moved

    def unsettle(self, why: str) -> None:
        """Doubt it: `notice` closes gates, anything else only makes it asked for again (L3)."""
        if why == "notice":
            self.notices += 1
            self.noticed = True
        else:
            self.doubts += 1
            self.doubt = why

    def contradicted(self, shown: Shown | None) -> bool:
        """Whether a client has received another list since this one was (L5)."""
        return (
            shown is not None
            and shown.receipt > self.receipt
            and self.catalog is not None
            and self.catalog.digest != shown.catalog.digest
        )

    def look_at(self, shown: Shown | None) -> None:
        """Doubt it where the client that it would be used through has received another list since."""
        if self.contradicted(shown):
            self.unsettle(SHOWN_OTHERWISE)

    def is_news(self, why: str) -> bool:
        """Whether being unsettled would say anything that has not been said since it was last asked for."""
        return why != "notice" or not self.noticed or self.notices == self.notices_asked

    def end(self) -> None:
        """Its owner no longer stands behind it (L4)."""
        self.alive = False

    def find(self, tool: str) -> Definition | None:
        """The definition that it shows for a name."""
        return None if self.catalog is None else self.catalog.get(tool)

    def shows(self, tool: str, digest: str) -> bool:
        """Whether it shows exactly this definition under this name."""
        return self.catalog is not None and self.catalog.shows(tool, digest)

    def asked(self, now: float) -> None:
        """Space askings: from the second on at most one a second, backing off to one in 30 seconds."""
        self.asked_at = now
        self.doubts_asked = self.doubts
        self.notices_asked = self.notices
        if not self.asked_before:
            self.asked_before = True
            return
        if now >= self.next_at + self.interval:  # it was quiet for longer than it had to be
            self.interval = RELIST_INTERVAL
        if self.doubt in _NO_CHANGE and not self.noticed:
            # no reason to be ever slower: calls wait for this, and lost streams are spaced by themselves
            self.next_at = now + RELIST_INTERVAL
            return
        self.next_at = now + self.interval
        self.interval = min(self.interval * 2, RELIST_INTERVAL_MAX)

    def unanswered(self) -> None:
        """Its connection broke while it was asked for: that says nothing of how often it changes.

        Whoever asks next would otherwise wait for up to half a minute after a network that is well again.
        """
        self.next_at = min(self.next_at, self.asked_at + RELIST_INTERVAL)
        self.interval = RELIST_INTERVAL

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "noticed" if self.noticed else self.doubt or "settled"
        return f"<ListState {self.id} generation {self.generation} {state}>"
