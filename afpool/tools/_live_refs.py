"""Which artifacts of a kind there are, for a sentence that teaches: never more than is worth reading.

Rules:

* At most `SHOWN` refs, found on at most `ROWS` rows and `PAGES` pages, until a time that is given. A store
  that gives a cursor again, pages without end, more rows than were asked for or no answer at all costs that
  and no more.
* A ref is told only if the store, asked for it by name in this very scope, has it: a row that strayed in
  from elsewhere must not be named to a model.
* Finding out is a courtesy. Where it fails the refusal stands, and says that it could not be found out.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import trio

from ..artifacts._sound import is_ticket

if TYPE_CHECKING:
    from ..artifacts._types import Artifact, ArtifactMeta, ArtifactPage, ArtifactScope, ArtifactStore

logger = logging.getLogger("afpool")

SHOWN: Final = 10
ROWS: Final = 200
PAGES: Final = 50
_PAGE: Final = 50
_MAX_REF: Final = 64


class Redeemer(Protocol):
    """Artifacts of one scope: what a capability bound to a run offers, as far as it is used here."""

    async def head(self, ref: str) -> ArtifactMeta | None:
        """Give the ticket, or `None`."""
        ...

    async def get(self, ref: str) -> Artifact | None:
        """Give ticket and payload, or `None`."""
        ...

    async def list(
        self, *, kind: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> ArtifactPage:
        """Give one page of tickets, newest first."""
        ...


@final
class Scoped:
    """A store seen from one scope."""

    __slots__ = ("_scope", "_store")

    def __init__(self, store: ArtifactStore, scope: ArtifactScope) -> None:
        self._store = store
        self._scope = scope

    async def head(self, ref: str) -> ArtifactMeta | None:
        """As the store's."""
        return await self._store.head(self._scope, ref)

    async def get(self, ref: str) -> Artifact | None:
        """As the store's."""
        return await self._store.get(self._scope, ref)

    async def list(
        self, *, kind: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> ArtifactPage:
        """As the store's."""
        return await self._store.list(self._scope, kind=kind, cursor=cursor, limit=limit)


async def live_refs(artifacts: Redeemer, kind: str | None, until: float) -> list[ArtifactMeta] | None:
    """Give the newest artifacts of a kind, `SHOWN` at most; `None` where that could not be found out.

    Args:
        artifacts: Where to look.
        kind: What is wanted; any where `None`.
        until: When to stop looking: absolute, seconds on trio's clock. What was found by then is told.

    A checkpoint wherever the store's verbs are. Never raises but for a cancellation.
    """
    found: list[ArtifactMeta] = []
    with trio.move_on_at(until) as within:
        try:
            await _collect(artifacts, kind, found)
        except Exception as error:  # noqa: BLE001 -- the refusal that it was for stands without it
            logger.warning("artifacts of a kind could not be listed for a refusal (%s)", type(error).__name__)
            return None
    return None if within.cancelled_caught and not found else found


async def _collect(artifacts: Redeemer, kind: str | None, found: list[ArtifactMeta]) -> None:
    cursor: str | None = None
    seen: set[str] = set()
    rows = 0
    for _ in range(PAGES):
        page = await artifacts.list(kind=kind, cursor=cursor, limit=min(_PAGE, ROWS - rows))
        for row in islice(page.items, ROWS - rows):
            rows += 1
            meta = await _confirmed(artifacts, row, kind)
            if meta is not None and all(meta.ref != other.ref for other in found):
                found.append(meta)
                if len(found) == SHOWN:
                    return
        cursor = page.cursor
        if cursor is None or cursor in seen or rows >= ROWS:
            return
        seen.add(cursor)


async def _confirmed(artifacts: Redeemer, row: Any, kind: str | None) -> ArtifactMeta | None:
    if kind not in (None, row.kind) or not isinstance(row.ref, str) or len(row.ref) > _MAX_REF:
        return None
    meta = await artifacts.head(row.ref)
    return meta if is_ticket(meta) and kind in (None, meta.kind) and meta.ref == row.ref else None
