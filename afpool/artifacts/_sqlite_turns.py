"""What the writer of a SQLite store does inside one transaction, and the statements of its readers.

Invariants:

* A scope's `count` and `bytes`, where they are known, are those of its rows whenever a transaction ends: they
  are changed with the rows and by nobody else. A store without limits makes them unknown; one with limits
  counts once, and from then on makes room without counting.
* A put is newer than everything in its scope, whatever the clock does, in whichever process.
* A turn that refuses has written nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from .._base.identity import Identity, decode_field
from ._minting import stored_ticket
from ._naming import checked_ref
from ._types import Swept, UnknownParentRefError, UnreadableArtifactError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from ._minting import Draft, Ticket
    from ._retention import Retention
    from ._types import SweepReason

AT_A_TIME: Final = 64
"""Expired artifacts of other scopes that one transaction clears away."""

_COLUMNS: Final = (
    "ref, kind, media_type, bytes, shape, created, label, digest, expires, run_id, call_id, parents"
)
_OF_SCOPE: Final = " FROM artifacts WHERE scope = (SELECT id FROM scopes WHERE name = ?)"
HEAD: Final = "SELECT " + _COLUMNS + _OF_SCOPE + " AND ref = ?"
_SCOPE: Final = (
    "SELECT id, (SELECT created FROM artifacts WHERE scope = scopes.id ORDER BY created DESC LIMIT 1), "
    "count, bytes, soonest FROM scopes WHERE name = ?"
)
_VICTIM: Final = "SELECT id, ref, kind, bytes FROM artifacts WHERE scope = ? "
_LEAST_USED: Final = (
    "SELECT artifacts.id, ref, kind, bytes FROM uses JOIN artifacts USING (id) WHERE uses.scope = ? "
    "ORDER BY uses.used, uses.id LIMIT ?"
)
GET: Final = "SELECT " + _COLUMNS + ", data" + _OF_SCOPE + " AND ref = ?"


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
        statement += " AND created < ?"
        parameters.append(after[0])
    statement += " AND (expires IS NULL OR expires > ?) ORDER BY created DESC LIMIT ?"
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
        raise UnreadableArtifactError(asked) from None
    return stored_ticket(
        asked, ref=ref, kind=kind, media_type=media_type, bytes=size, shape=shape, created=created,
        label=label, digest=digest, expires=expires, run_id=run_id, call_id=call_id, parents=known,
    )  # fmt: skip


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

    def start_after(self, connection: sqlite3.Connection) -> None:
        """Start later than everything that the file knows of, whatever the clock says."""
        (last,) = connection.execute(
            "SELECT max((SELECT max(used) FROM uses WHERE scope = scopes.id)) FROM scopes"
        ).fetchone()
        self._last = last or 0

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
class _Scope:
    """What a transaction knows of a scope, and what the file does."""

    id: int
    newest: int
    in_file: tuple[int | None, int | None, int | None]
    count: int | None
    bytes: int | None
    soonest: int | None
    lost_some: bool = False

    def add(self, count: int, size: int) -> None:
        if self.count is not None and self.bytes is not None:
            self.count += count
            self.bytes += size


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

    __slots__ = ("_book", "_connection", "_retention", "_scopes", "given_up")

    def __init__(self, connection: sqlite3.Connection, retention: Retention, book: Uses) -> None:
        self._connection = connection
        self._retention = retention
        self._book = book
        self._scopes: dict[str, _Scope] = {}
        self.given_up: list[tuple[Identity, Swept]] = []

    def put(self, name: str, made: Draft, now: int) -> tuple[Ticket, list[Swept]]:
        """Write an artifact and make room for it.

        Raises:
            InvalidArtifactError: It would be born expired.
            UnknownParentRefError: A parent is not there.
        """
        made.check_ahead(now)
        scope = self._scope_of(name)
        self._check_parents(made, scope, now)
        if scope is None:
            scope = self._new_scope(name)
        ticket = made.stamped(now, scope.newest, self._retention)
        swept = self._make_room(name, scope, ticket.bytes, now)
        self._insert(scope, ticket, made.data)
        return ticket, swept

    def _insert(self, scope: _Scope, ticket: Ticket, data: bytes) -> None:
        parents = json.dumps(ticket.parents) if ticket.parents else None
        inserted = self._connection.execute(
            "INSERT INTO artifacts (scope, ref, kind, media_type, bytes, shape, created, expires, label, "
            "digest, run_id, call_id, parents, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                scope.id, ticket.ref, ticket.kind, ticket.media_type, ticket.bytes, ticket.shape,
                ticket.created, ticket.expires, ticket.label, ticket.digest, ticket.run_id, ticket.call_id,
                parents, data,
            ),
        )  # fmt: skip
        if self._retention.by_use:
            self._connection.execute(
                "INSERT INTO uses (id, scope, used) VALUES (?, ?, ?)",
                (inserted.lastrowid, scope.id, self._book.tick(ticket.created)),
            )
        scope.add(1, ticket.bytes)
        scope.newest = ticket.created
        if ticket.expires is not None:
            scope.soonest = min(ticket.expires, scope.soonest or ticket.expires)

    def _scope_of(self, name: str) -> _Scope | None:
        known = self._scopes.get(name)
        if known is None:
            row = self._connection.execute(_SCOPE, (name,)).fetchone()
            if row is None:
                return None
            number, newest, *in_file = row
            known = self._scopes[name] = _Scope(number, newest or 0, tuple(in_file), *in_file)
            if not self._retention.by_use:
                known.count = known.bytes = None
            elif known.count is None:
                self._count(known)
        return known

    def _count(self, scope: _Scope) -> None:
        """Take up what a store without limits has left."""
        counted = "SELECT count(*), coalesce(sum(bytes), 0) FROM artifacts WHERE scope = ?"
        scope.count, scope.bytes = self._connection.execute(counted, (scope.id,)).fetchone()
        self._connection.execute(
            "INSERT OR IGNORE INTO uses (id, scope, used) SELECT id, scope, created FROM artifacts "
            "WHERE scope = ?",
            (scope.id,),
        )

    def _new_scope(self, name: str) -> _Scope:
        total = 0 if self._retention.by_use else None
        made = self._connection.execute(
            "INSERT INTO scopes (name, count, bytes) VALUES (?, ?, ?)", (name, total, total)
        )
        scope = _Scope(made.lastrowid or 0, 0, (total, total, None), total, total, None)
        self._scopes[name] = scope
        return scope

    def _check_parents(self, made: Draft, scope: _Scope | None, now: int) -> None:
        def there(ref: str) -> bool:
            if scope is None or checked_ref(ref) is None:
                return False
            found = self._connection.execute(
                "SELECT 1 FROM artifacts WHERE scope = ? AND ref = ? AND (expires IS NULL OR expires > ?)",
                (scope.id, ref, now),
            )
            return found.fetchone() is not None

        unresolved = [ref for ref in made.ticket.parents if not there(ref)]
        if unresolved:
            raise UnknownParentRefError(unresolved)

    def _make_room(self, name: str, scope: _Scope, size: int, now: int) -> list[Swept]:
        swept = self._clear_expired(scope, now, -1)
        most, budget = self._retention.max_count_per_scope, self._retention.max_bytes_per_scope

        def excess() -> tuple[SweepReason, int] | None:
            if scope.count is None or scope.bytes is None or not scope.count:
                return None
            if most is not None and scope.count + 1 > most:
                return "max-count", scope.count + 1 - most
            if budget is not None and scope.bytes + size > budget:
                return "max-bytes", 1
            return None

        if excess() is not None:
            self.write_uses(name)
        while (found := excess()) is not None:
            reason, wanted = found
            rows = self._connection.execute(_LEAST_USED, (scope.id, wanted)).fetchall()
            swept += self._remove(scope, rows, reason)
        return swept

    def _clear_expired(self, scope: _Scope, now: int, most: int) -> list[Swept]:
        if scope.soonest is None or scope.soonest > now:
            return []
        rows = self._connection.execute(
            _VICTIM + "AND expires <= ? ORDER BY expires, created LIMIT ?",
            (scope.id, now, most),
        ).fetchall()
        swept = self._remove(scope, rows, "ttl")
        (scope.soonest,) = self._connection.execute(
            "SELECT min(expires) FROM artifacts WHERE scope = ? AND expires IS NOT NULL", (scope.id,)
        ).fetchone()
        return swept

    def _remove(
        self, scope: _Scope, rows: Iterable[tuple[int, str, str, int]], reason: SweepReason
    ) -> list[Swept]:
        swept: list[Swept] = []
        for row, ref, kind, size in rows:
            self._connection.execute("DELETE FROM artifacts WHERE id = ?", (row,))
            self._connection.execute("DELETE FROM uses WHERE id = ?", (row,))
            scope.add(-1, -size)
            scope.lost_some = True
            swept.append(Swept(ref, reason, kind, size))
        return swept

    def delete(self, name: str, ref: str) -> None:
        """Take an artifact away, if it is there."""
        scope = self._scope_of(name)
        if scope is not None:
            rows = self._connection.execute(_VICTIM + "AND ref = ?", (scope.id, ref)).fetchall()
            self._remove(scope, rows, "ttl")

    def write_uses(self, name: str) -> None:
        """Write down when the artifacts of a scope were used last."""
        scope = self._scope_of(name)
        noted = self._book.take(name)
        if scope is not None and noted:
            self._connection.executemany(
                "UPDATE uses SET used = ?1 WHERE used < ?1 "
                "AND id = (SELECT id FROM artifacts WHERE scope = ?2 AND ref = ?3)",
                [(used, scope.id, ref) for ref, used in noted],
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
            scope = self._scope_of(name)
            if scope is not None:
                swept = self._clear_expired(scope, now, AT_A_TIME)
                self.given_up += [(identity_of(name), one) for one in swept]

    def finish(self) -> None:
        """Write what changed of the scopes; the last thing before the commit. An empty one is forgotten."""
        for scope in self._scopes.values():
            if scope.lost_some and self._is_empty(scope):
                self._connection.execute("DELETE FROM scopes WHERE id = ?", (scope.id,))
                continue
            now = (scope.count, scope.bytes, scope.soonest)
            if now != scope.in_file:
                self._connection.execute(
                    "UPDATE scopes SET count = ?, bytes = ?, soonest = ? WHERE id = ?", (*now, scope.id)
                )

    def _is_empty(self, scope: _Scope) -> bool:
        found = self._connection.execute("SELECT 1 FROM artifacts WHERE scope = ? LIMIT 1", (scope.id,))
        return found.fetchone() is None
