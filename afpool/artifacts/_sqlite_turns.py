"""What the writer of a SQLite store does inside one transaction, and the statements of its readers.

Invariants:

* A scope's `count` and `bytes` are those of its rows whenever a transaction ends: they are changed with the
  rows and by nobody else. So room is made without counting.
* `newest` of a scope only grows: a later put is newer, whatever the clock does, in whichever process.
* A turn that refuses has written nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from .._base.identity import Identity, decode_field
from ._minting import Ticket
from ._naming import checked_ref
from ._payload import SHAPES
from ._types import Swept, UnknownParentRefError, UnreadableArtifactError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from ._minting import Draft
    from ._retention import Retention
    from ._types import SweepReason

AT_A_TIME: Final = 64
"""Expired artifacts of other scopes that one transaction clears away."""

_COLUMNS: Final = (
    "ref, kind, media_type, bytes, shape, created, label, digest, expires, run_id, call_id, parents"
)
_OF_SCOPE: Final = " FROM artifacts WHERE scope = (SELECT id FROM scopes WHERE name = ?)"
HEAD: Final = "SELECT " + _COLUMNS + _OF_SCOPE + " AND ref = ?"
_DATA: Final = ", (SELECT data FROM payloads WHERE payloads.id = artifacts.id)"
GET: Final = "SELECT " + _COLUMNS + _DATA + _OF_SCOPE + " AND ref = ?"


def listing(
    name: str, kind: str | None, after: tuple[int, str] | None, most: int, now: int
) -> tuple[str, list[Any]]:
    """Give the statement for a page of tickets, and its parameters."""
    statement = "SELECT " + _COLUMNS + _OF_SCOPE
    parameters: list[Any] = [name]
    if kind is not None:
        statement += " AND kind = ?"
        parameters.append(kind)
    if after is not None:
        statement += " AND created <= ? AND (created < ? OR ref > ?)"
        parameters += [after[0], after[0], after[1]]
    statement += " AND (expires IS NULL OR expires > ?) ORDER BY created DESC, ref LIMIT ?"
    return statement, [*parameters, now, most]


def ticket_of(row: tuple[Any, ...], asked: str) -> Ticket:
    """Read a row of `_COLUMNS`.

    Raises:
        UnreadableArtifactError: It is nothing that a put writes.
    """
    ref, kind, media_type, size, shape, created, label, digest, expires, run_id, call_id, parents = row
    try:
        known = tuple(json.loads(parents)) if parents else ()
    except (TypeError, ValueError):
        known = (None,)
    texts = (ref, kind, media_type, *known)
    maybe = (label, digest, run_id, call_id)
    if (
        shape in SHAPES
        and all(isinstance(text, str) for text in texts)
        and all(text is None or isinstance(text, str) for text in maybe)
        and isinstance(size, int)
        and isinstance(created, int)
        and isinstance(expires, int | None)
    ):
        return Ticket(
            ref=ref, kind=kind, media_type=media_type, bytes=size, shape=shape, created=created, label=label,
            digest=digest, expires=expires, run_id=run_id, call_id=call_id, parents=known,
        )  # fmt: skip
    raise UnreadableArtifactError(asked)


def identity_of(name: str) -> Identity:
    """Undo `identity_namespace`."""
    return Identity(*map(decode_field, name.split("/")))


@final
class Uses:
    """Which artifacts were used since that was written down: by the loop's thread, for the writer's.

    A use costs no write of its own. It is written down when its scope has to give something up, when many are
    waiting, and at the end; so another process learns of it late.

    Attributes:
        waiting: How many are not written down.
    """

    __slots__ = ("_by_scope", "_last", "waiting")

    def __init__(self) -> None:
        self._by_scope: dict[str, dict[str, int]] = {}
        self._last = 0
        self.waiting = 0

    def tick(self, now: int) -> int:
        """Give a moment later than every one before, if need be a little later than `now`."""
        self._last = max(now, self._last + 1)
        return self._last

    def note(self, name: str, ref: str, now: int) -> None:
        """Note a use."""
        self._by_scope.setdefault(name, {})[ref] = self.tick(now)
        self.waiting += 1

    def take(self, name: str) -> list[tuple[str, int]]:
        """Take what was noted of a scope."""
        noted = self._by_scope.pop(name, None)
        # in one step of the interpreter: the loop's thread may be adding to it
        taken = [] if noted is None else list(noted.items())
        self.waiting = max(0, self.waiting - len(taken))
        return taken

    def names(self) -> list[str]:
        """Give the scopes that something was noted of."""
        self.waiting = 0
        return list(self._by_scope)


@attrs.define(eq=False)
class _Totals:
    id: int
    count: int
    bytes: int
    newest: int
    soonest: int | None
    known_soonest: int | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.known_soonest = self.soonest


@final
class Turns:
    """The turns of one transaction. Made for it, and gone with it.

    Args:
        connection: In a transaction that writes.
        retention: The store's limits.
        book: Ticks, and the uses that are not written down yet.

    Attributes:
        given_up: What other scopes gave up, with whose it was.
    """

    __slots__ = ("_book", "_connection", "_retention", "_totals", "given_up")

    def __init__(self, connection: sqlite3.Connection, retention: Retention, book: Uses) -> None:
        self._connection = connection
        self._retention = retention
        self._book = book
        self._totals: dict[str, _Totals] = {}
        self.given_up: list[tuple[Identity, Swept]] = []

    def put(self, name: str, made: Draft, now: int) -> tuple[Ticket, list[Swept]]:
        """Write an artifact and make room for it.

        Raises:
            InvalidArtifactError: It would be born expired.
            UnknownParentRefError: A parent is not there.
        """
        made.check_ahead(now)
        totals = self._totals_of(name)
        self._check_parents(made, totals, now)
        if totals is None:
            totals = self._new_scope(name)
        ticket = made.stamped(max(now, totals.newest + 1), self._retention)
        swept = self._make_room(name, totals, ticket.bytes, now)
        self._insert(totals, ticket, made.data)
        return ticket, swept

    def _insert(self, totals: _Totals, ticket: Ticket, data: bytes) -> None:
        parents = json.dumps(ticket.parents) if ticket.parents else None
        inserted = self._connection.execute(
            "INSERT INTO artifacts (scope, ref, kind, media_type, bytes, shape, created, used, expires, "
            "label, digest, run_id, call_id, parents) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                totals.id, ticket.ref, ticket.kind, ticket.media_type, ticket.bytes, ticket.shape,
                ticket.created, self._book.tick(ticket.created), ticket.expires, ticket.label, ticket.digest,
                ticket.run_id, ticket.call_id, parents,
            ),
        )  # fmt: skip
        self._connection.execute("INSERT INTO payloads (id, data) VALUES (?, ?)", (inserted.lastrowid, data))
        totals.count += 1
        totals.bytes += ticket.bytes
        totals.newest = ticket.created
        if ticket.expires is not None:
            totals.soonest = min(ticket.expires, totals.soonest or ticket.expires)

    def _totals_of(self, name: str) -> _Totals | None:
        known = self._totals.get(name)
        if known is None:
            row = self._connection.execute(
                "SELECT id, count, bytes, newest, soonest FROM scopes WHERE name = ?", (name,)
            ).fetchone()
            if row is None:
                return None
            known = self._totals[name] = _Totals(*row)
        return known

    def _new_scope(self, name: str) -> _Totals:
        made = self._connection.execute(
            "INSERT INTO scopes (name, count, bytes, newest) VALUES (?, 0, 0, 0)", (name,)
        )
        totals = self._totals[name] = _Totals(made.lastrowid or 0, 0, 0, 0, None)
        return totals

    def _check_parents(self, made: Draft, totals: _Totals | None, now: int) -> None:
        def there(ref: str) -> bool:
            if totals is None or checked_ref(ref) is None:
                return False
            found = self._connection.execute(
                "SELECT 1 FROM artifacts WHERE scope = ? AND ref = ? AND (expires IS NULL OR expires > ?)",
                (totals.id, ref, now),
            )
            return found.fetchone() is not None

        unresolved = [ref for ref in made.ticket.parents if not there(ref)]
        if unresolved:
            raise UnknownParentRefError(unresolved)

    def _make_room(self, name: str, totals: _Totals, size: int, now: int) -> list[Swept]:
        swept = self._clear_expired(totals, now, -1)
        most, budget = self._retention.max_count_per_scope, self._retention.max_bytes_per_scope
        if not (
            (most is not None and totals.count + 1 > most)
            or (budget is not None and totals.bytes + size > budget)
        ):
            return swept
        self.write_uses(name)
        while totals.count:
            if most is not None and totals.count + 1 > most:
                reason: SweepReason = "max-count"
                wanted = totals.count + 1 - most
            elif budget is not None and totals.bytes + size > budget:
                reason, wanted = "max-bytes", 1
            else:
                break
            swept += self._remove(
                totals,
                self._connection.execute(
                    "SELECT id, ref, kind, bytes FROM artifacts WHERE scope = ? ORDER BY used, ref LIMIT ?",
                    (totals.id, wanted),
                ).fetchall(),
                reason,
            )
        return swept

    def _clear_expired(self, totals: _Totals, now: int, most: int) -> list[Swept]:
        if totals.soonest is None or totals.soonest > now:
            return []
        rows = self._connection.execute(
            "SELECT id, ref, kind, bytes FROM artifacts WHERE scope = ? AND expires <= ? "
            "ORDER BY expires, ref LIMIT ?",
            (totals.id, now, most),
        ).fetchall()
        swept = self._remove(totals, rows, "ttl")
        (totals.soonest,) = self._connection.execute(
            "SELECT min(expires) FROM artifacts WHERE scope = ? AND expires IS NOT NULL", (totals.id,)
        ).fetchone()
        return swept

    def _remove(
        self, totals: _Totals, rows: Iterable[tuple[int, str, str, int]], reason: SweepReason
    ) -> list[Swept]:
        swept: list[Swept] = []
        for row, ref, kind, size in rows:
            self._connection.execute("DELETE FROM artifacts WHERE id = ?", (row,))
            self._connection.execute("DELETE FROM payloads WHERE id = ?", (row,))
            totals.count -= 1
            totals.bytes -= size
            swept.append(Swept(ref, reason, kind, size))
        return swept

    def delete(self, name: str, ref: str) -> None:
        """Take an artifact away, if it is there."""
        totals = self._totals_of(name)
        if totals is not None:
            rows = self._connection.execute(
                "SELECT id, ref, kind, bytes FROM artifacts WHERE scope = ? AND ref = ?", (totals.id, ref)
            ).fetchall()
            self._remove(totals, rows, "ttl")

    def write_uses(self, name: str) -> None:
        """Write down when the artifacts of a scope were used last."""
        totals = self._totals_of(name)
        noted = self._book.take(name)
        if totals is not None and noted:
            self._connection.executemany(
                "UPDATE artifacts SET used = ?1 WHERE scope = ?2 AND ref = ?3 AND used < ?1",
                [(used, totals.id, ref) for ref, used in noted],
            )

    def write_all_uses(self) -> None:
        """Do so for all scopes."""
        for name in self._book.names():
            self.write_uses(name)

    def clear_one_scope(self, now: int) -> None:
        """Clear away what has expired in some other scope, a little at a time."""
        found = self._connection.execute(
            "SELECT name FROM scopes WHERE soonest <= ? ORDER BY soonest LIMIT 1", (now,)
        ).fetchone()
        if found is not None:
            (name,) = found
            totals = self._totals_of(name)
            if totals is not None:
                swept = self._clear_expired(totals, now, AT_A_TIME)
                self.given_up += [(identity_of(name), one) for one in swept]

    def finish(self) -> None:
        """Write the totals; the last thing before the commit. A scope that holds nothing is forgotten."""
        for totals in self._totals.values():
            if not totals.count:
                self._connection.execute("DELETE FROM scopes WHERE id = ?", (totals.id,))
                continue
            self._connection.execute(
                "UPDATE scopes SET count = ?, bytes = ?, newest = ? WHERE id = ?",
                (totals.count, totals.bytes, totals.newest, totals.id),
            )
            if totals.soonest != totals.known_soonest:
                self._connection.execute(
                    "UPDATE scopes SET soonest = ? WHERE id = ?", (totals.soonest, totals.id)
                )
