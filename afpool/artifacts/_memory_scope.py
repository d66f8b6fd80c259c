"""One scope's artifacts in three orders: of use, of age (all, and by kind), of expiry."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._minting import Ticket
    from ._types import ArtifactMeta, ArtifactScope

_TICKET: Final = 1024  # what a ticket and its places in the orders take, beside its longer texts


@attrs.define(eq=False)
class Row:
    """An artifact as it is held.

    Attributes:
        ticket: Its ticket.
        data: Its canonical payload.
        meta: The ticket as it is shown; it never changes, so all who ask get the same.
    """

    ticket: Ticket
    data: bytes
    meta: ArtifactMeta = attrs.field(init=False)

    @property
    def cost(self) -> int:
        """About how many bytes of memory it takes."""
        ticket = self.ticket
        texts = len(ticket.kind) + len(ticket.media_type) + len(ticket.label or "")
        return _TICKET + len(self.data) + texts + 80 * len(ticket.parents)


@final
class Scope:
    """The rows of one scope.

    Attributes:
        identity: Whose they are.
        rows: By ref, least recently used first.
        bytes: Of their payloads.
        newest: When the latest one was created.
    """

    __slots__ = (
        "_ages",
        "_expiries",
        "_kinds",
        "_last_expiry",
        "_lasting",
        "bytes",
        "identity",
        "newest",
        "rows",
    )

    def __init__(self, identity: ArtifactScope) -> None:
        self.identity = identity
        self.rows: OrderedDict[str, Row] = OrderedDict()
        self.bytes = 0
        self.newest = 0
        self._ages: list[tuple[int, str]] = []  # oldest first
        self._kinds: dict[str, list[tuple[int, str]]] = {}
        self._expiries: list[tuple[int, int, str]] = []  # a heap; what it names may be gone
        self._lasting = 0  # rows without an expiry
        self._last_expiry = 0

    def add(self, row: Row) -> None:
        """Take a row in; it must be newer than all others."""
        ticket = row.ticket
        self.rows[ticket.ref] = row
        self.bytes += ticket.bytes
        self.newest = ticket.created
        self._ages.append((ticket.created, ticket.ref))
        self._kinds.setdefault(ticket.kind, []).append((ticket.created, ticket.ref))
        if ticket.expires is None:
            self._lasting += 1
            return
        if len(self._expiries) > 2 * len(self.rows) + 16:
            self._expiries = [entry for entry in self._expiries if entry[2] in self.rows]
            heapq.heapify(self._expiries)
        heapq.heappush(self._expiries, (ticket.expires, ticket.created, ticket.ref))
        self._last_expiry = max(self._last_expiry, ticket.expires)

    def remove(self, ref: str) -> Row:
        """Take a row out."""
        row = self.rows.pop(ref)
        ticket = row.ticket
        self.bytes -= ticket.bytes
        self._lasting -= ticket.expires is None
        of_kind = self._kinds[ticket.kind]
        for ages in (self._ages, of_kind):
            del ages[bisect_left(ages, (ticket.created, ref))]
        if not of_kind:
            del self._kinds[ticket.kind]
        return row

    def expired(self, now: int) -> Iterator[str]:
        """Give what has expired, the earliest first; each has to be removed before the next is asked for."""
        while self._expiries and self._expiries[0][0] <= now:
            *_, ref = heapq.heappop(self._expiries)
            if ref in self.rows:
                yield ref

    def wholly_expired(self, now: int) -> bool:
        """Whether nothing in it is alive."""
        return self._lasting == 0 and self._last_expiry <= now

    def oldest_used(self) -> str:
        """Give the ref of what was used least recently."""
        return next(iter(self.rows))

    def newest_first(
        self, kind: str | None, after: tuple[int, str] | None, most: int, now: int
    ) -> list[Ticket]:
        """Give up to `most` tickets that are alive, newest first, from the position `after` on."""
        ages = self._ages if kind is None else self._kinds.get(kind, [])
        at = len(ages) if after is None else bisect_left(ages, (after[0], ""))
        found: list[Ticket] = []
        while at > 0 and len(found) < most:
            at -= 1
            ticket = self.rows[ages[at][1]].ticket
            if ticket.live(now):
                found.append(ticket)
        return found
