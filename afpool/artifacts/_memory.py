"""The store in memory: the default, bounded in all directions, gone with its process.

Invariants:

* A verb does its work in one step without a checkpoint, so two verbs never see each other half done.
* A scope's `created` only grow, also where the clock stands still or goes back: a later put is newer.
* `bytes` of a scope is the sum of its payloads; `_cost` of the store is that plus what the tickets take, over
  all scopes. Neither exceeds its limit after a put.
* A put names to its caller what its own scope gave up. What another scope gives up, only the host is told.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Self, final

import trio

from .._base.identity import identity_namespace
from .._base.seams import Seams
from ._memory_scope import Row, Scope
from ._minting import draft
from ._naming import checked_ref, checked_scope
from ._paging import page_of, page_size, read_cursor
from ._payload import LARGE, Payload, Work, open_payload
from ._retention import Retention, check_count, microseconds
from ._telling import tell
from ._types import (
    DEFAULT_PAGE,
    Artifact,
    ArtifactMeta,
    ArtifactPage,
    ArtifactStoreClosedError,
    InvalidArtifactError,
    NewArtifact,
    Swept,
    UnknownParentRefError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._minting import Draft
    from ._types import ArtifactScope, SweepReason, SweepSink

BYTES_PER_SCOPE: Final = 32 * 1024 * 1024
COUNT_PER_SCOPE: Final = 256
BYTES: Final = 512 * 1024 * 1024


@final
class MemoryArtifacts:
    """Artifacts in this process's memory; always bounded, per scope and in all.

    Where a scope would hold too much, what it used least recently goes. Where all scopes together would, the
    scope that was used least recently gives up artifacts first.

    Args:
        ttl: Seconds that an artifact lives at most; `None` for as long as there is room.
        max_bytes_per_scope: Payload bytes that a scope holds at most.
        max_count_per_scope: Artifacts that a scope holds at most.
        max_bytes: Bytes that all scopes hold at most, tickets included.
        on_given_up: Called with a scope and a `Swept` for what goes by a put of another scope.
        seams: Clock and threads.

    Attributes:
        retention: The limits of a scope.
        dropped: How many artifacts were given up for room, not for age.

    Raises:
        TypeError: A limit is no number. None of the bounds can be turned off.
        ValueError: A limit is not positive.
    """

    __slots__ = (
        "_closed", "_cost", "_max_bytes", "_on_given_up", "_scopes", "_seams", "_work", "dropped",
        "retention",
    )  # fmt: skip

    def __init__(
        self,
        *,
        ttl: float | None = None,
        max_bytes_per_scope: int = BYTES_PER_SCOPE,
        max_count_per_scope: int = COUNT_PER_SCOPE,
        max_bytes: int = BYTES,
        on_given_up: Callable[[ArtifactScope, Swept], object] | None = None,
        seams: Seams | None = None,
    ) -> None:
        if None in {max_bytes_per_scope, max_count_per_scope, max_bytes}:
            raise TypeError("a store in memory is always bounded: give each bound a number, or leave it out")
        check_count("max_bytes", max_bytes)
        self.retention = Retention(
            ttl=ttl, max_bytes_per_scope=max_bytes_per_scope, max_count_per_scope=max_count_per_scope
        )
        self.dropped = 0
        self._max_bytes = max_bytes
        self._on_given_up = on_given_up
        self._seams = Seams() if seams is None else seams
        self._work = Work(self._seams)
        self._scopes: OrderedDict[str, Scope] = OrderedDict()  # least recently used first
        self._cost = 0
        self._closed = False

    async def put(
        self, scope: ArtifactScope, new: NewArtifact, *, on_swept: SweepSink | None = None
    ) -> ArtifactMeta:
        """See `ArtifactStore.put`. Cancelled: nothing is stored."""
        name = identity_namespace(checked_scope(scope))
        made = await draft(new, self.retention, self._work)
        self._check_open()
        row = Row(made.ticket, made.data)
        if row.cost > self._max_bytes:
            raise InvalidArtifactError(
                f"the payload has {len(made.data)} bytes and the store holds {self._max_bytes} in all; "
                "nothing was stored or given up; store it in parts, or raise max_bytes"
            )
        now = self._now()
        made.check_ahead(now)
        held = self._scopes.get(name) or Scope(scope)
        self._check_parents(held, made, now)
        row.ticket = made.stamped(now, held.newest, self.retention)
        row.meta = row.ticket.meta()
        self._scopes[name] = held
        self._scopes.move_to_end(name)
        for swept in self._make_room(held, row, now):
            tell(on_swept, swept)
        held.add(row)
        self._cost += row.cost
        return row.meta

    def _check_parents(self, held: Scope, made: Draft, now: int) -> None:
        def there(ref: str) -> bool:
            row = held.rows.get(ref)
            return row is not None and row.ticket.live(now)

        unresolved = [ref for ref in made.ticket.parents if not there(ref)]
        if unresolved:
            raise UnknownParentRefError(unresolved)

    def _make_room(self, held: Scope, row: Row, now: int) -> list[Swept]:
        limits = self.retention
        swept = [self._remove(held, ref, "ttl") for ref in held.expired(now)]
        while held.rows and len(held.rows) >= (limits.max_count_per_scope or 0):
            swept.append(self._remove(held, held.oldest_used(), "max-count"))
        while held.rows and held.bytes + row.ticket.bytes > (limits.max_bytes_per_scope or 0):
            swept.append(self._remove(held, held.oldest_used(), "max-bytes"))
        idle = next(iter(self._scopes.values()))
        if idle is not held and idle.wholly_expired(now):
            self._take(idle, len(idle.rows), "ttl")
        while self._cost + row.cost > self._max_bytes:
            idle = next(iter(self._scopes.values()))
            if idle is held:
                swept.append(self._remove(held, held.oldest_used(), "max-bytes"))
            else:
                self._take(idle, 1, "max-bytes")
        return swept

    def _take(self, idle: Scope, count: int, reason: SweepReason) -> None:
        """Take artifacts from a scope whose put it is not."""
        for _ in range(count):
            tell(self._on_given_up, idle.identity, self._remove(idle, idle.oldest_used(), reason))
        if not idle.rows:
            del self._scopes[identity_namespace(idle.identity)]

    def _remove(self, held: Scope, ref: str, reason: SweepReason) -> Swept:
        row = held.remove(ref)
        self._cost -= row.cost
        self.dropped += reason != "ttl"
        return Swept(ref, reason, row.ticket.kind, row.ticket.bytes)

    async def head(self, scope: ArtifactScope, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`. One checkpoint."""
        await trio.lowlevel.checkpoint()
        row = self._find(scope, ref)
        return None if row is None else row.meta

    async def get(self, scope: ArtifactScope, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`. One checkpoint, and one more where the payload is large."""
        await trio.lowlevel.checkpoint()
        row = self._find(scope, ref)
        if row is None:
            return None
        ticket = row.ticket
        payload = Payload(ticket.shape, row.data, ticket.digest)
        if ticket.bytes <= LARGE:
            return Artifact(row.meta, open_payload(ticket.ref, ticket.bytes, payload))
        return Artifact(row.meta, await self._work.decode(ticket.ref, ticket.bytes, payload))

    def _find(self, scope: ArtifactScope, ref: str) -> Row | None:
        self._check_open()
        name = identity_namespace(checked_scope(scope))
        known = checked_ref(ref)
        held = self._scopes.get(name)
        if known is None or held is None:
            return None
        row = held.rows.get(known)
        if row is None or (row.ticket.expires is not None and not row.ticket.live(self._now())):
            return None
        held.rows.move_to_end(known)
        self._scopes.move_to_end(name)
        return row

    async def delete(self, scope: ArtifactScope, ref: str) -> None:
        """See `ArtifactStore.delete`. One checkpoint."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        name = identity_namespace(checked_scope(scope))
        known = checked_ref(ref)
        held = self._scopes.get(name)
        if known is None or held is None or known not in held.rows:
            return
        self._cost -= held.remove(known).cost
        if not held.rows:
            del self._scopes[name]

    async def list(
        self,
        scope: ArtifactScope,
        *,
        kind: str | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> ArtifactPage:
        """See `ArtifactStore.list`. One checkpoint."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        size = page_size(limit)
        held = self._scopes.get(identity_namespace(checked_scope(scope)))
        if held is None:
            return ArtifactPage(())
        return page_of(held.newest_first(kind, read_cursor(cursor), size + 1, self._now()), size)

    async def aclose(self) -> None:
        """Forget everything; later verbs are refused. Closing twice is fine. One checkpoint."""
        self._closed = True
        self._scopes.clear()
        self._cost = 0
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _now(self) -> int:
        return microseconds(self._seams.unix_now())

    def _check_open(self) -> None:
        if self._closed:
            raise ArtifactStoreClosedError(
                "the store in memory was closed; nothing was done; open another one"
            )

    @property
    def memory(self) -> tuple[int, int]:
        """About how many bytes it takes, and how many it may."""
        return self._cost, self._max_bytes

    def __repr__(self) -> str:
        count = sum(len(held.rows) for held in self._scopes.values())
        return f"<MemoryArtifacts: {count} artifacts of {len(self._scopes)} scopes, {self._cost} bytes>"
