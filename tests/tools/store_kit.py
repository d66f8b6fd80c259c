"""An artifact store for tests: keeps what it is given, and misbehaves as it is told to."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import attrs
import trio

from afpool import Identity
from afpool.artifacts._types import Artifact, ArtifactMeta, ArtifactPage, ArtifactScope, NewArtifact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SCOPE = Identity(tenant="acme", principal="alice", conversation_id="c1")
OTHER = Identity(tenant="acme", principal="bob", conversation_id="c2")
ROWS = "dataset/rows"


def ref_number(number: int) -> str:
    return f"art_{number:022d}"


class Store:
    """Artifacts by scope.

    Attributes:
        calls: Every verb that was asked for, as (verb, scope, rest).
        on_get: Called instead of looking, when set; likewise `on_head`, `on_list`.
        ignores_kind: Whether `list` gives every kind, whatever was asked for.
    """

    def __init__(self) -> None:
        self.kept: dict[ArtifactScope, dict[str, Artifact]] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.on_get: Callable[[str], Awaitable[Artifact | None]] | None = None
        self.on_head: Callable[[str], Awaitable[ArtifactMeta | None]] | None = None
        self.on_list: Callable[[str | None, int], Awaitable[ArtifactPage]] | None = None
        self.ignores_kind = False
        self._numbers = itertools.count(1)

    def add(
        self, kind: str = ROWS, data: Any = None, *, scope: ArtifactScope = SCOPE, **facts: Any
    ) -> ArtifactMeta:
        """Store something without waiting."""
        number = next(self._numbers)
        meta = ArtifactMeta(
            ref=ref_number(number), kind=kind, media_type="application/json", bytes=len(str(data)),
            created_at=float(number), **facts,
        )  # fmt: skip
        self.kept.setdefault(scope, {})[meta.ref] = Artifact(meta, data)
        return meta

    async def put(self, scope: ArtifactScope, new: NewArtifact, **_: Any) -> ArtifactMeta:
        await trio.lowlevel.checkpoint()
        return self.add(new.kind, new.data, scope=scope, label=new.label)

    async def head(self, scope: ArtifactScope, ref: str) -> ArtifactMeta | None:
        self.calls.append(("head", scope, ref))
        await trio.lowlevel.checkpoint()
        if self.on_head is not None:
            return await self.on_head(ref)
        found = self.kept.get(scope, {}).get(ref)
        return None if found is None else found.meta

    async def get(self, scope: ArtifactScope, ref: str) -> Artifact | None:
        self.calls.append(("get", scope, ref))
        await trio.lowlevel.checkpoint()
        if self.on_get is not None:
            return await self.on_get(ref)
        found = self.kept.get(scope, {}).get(ref)
        return None if found is None else Artifact(found.meta, copy.deepcopy(found.data))

    async def delete(self, scope: ArtifactScope, ref: str) -> None:
        await trio.lowlevel.checkpoint()
        self.kept.get(scope, {}).pop(ref, None)

    async def list(
        self, scope: ArtifactScope, *, kind: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> ArtifactPage:
        self.calls.append(("list", scope, kind, cursor, limit))
        await trio.lowlevel.checkpoint()
        if self.on_list is not None:
            return await self.on_list(cursor, limit)
        rows = [
            found.meta
            for found in reversed(self.kept.get(scope, {}).values())
            if self.ignores_kind or kind in {None, found.meta.kind}
        ]
        start = int(cursor or 0)
        more = str(start + limit) if len(rows) > start + limit else None
        return ArtifactPage(tuple(rows[start : start + limit]), more)

    def count(self, verb: str) -> int:
        return sum(call[0] == verb for call in self.calls)


@attrs.define
class Capability:
    """A store as one run sees it."""

    store: Store
    scope: ArtifactScope = SCOPE

    async def head(self, ref: str) -> ArtifactMeta | None:
        return await self.store.head(self.scope, ref)

    async def get(self, ref: str) -> Artifact | None:
        return await self.store.get(self.scope, ref)

    async def list(
        self, *, kind: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> ArtifactPage:
        return await self.store.list(self.scope, kind=kind, cursor=cursor, limit=limit)
