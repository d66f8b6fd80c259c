"""A store that does what no store should, for the tests of what stands on one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, final

import trio

from ..._base.errors import IN_DOUBT
from .._types import DEFAULT_PAGE, ArtifactPage, ArtifactStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from .._types import Artifact, ArtifactMeta, ArtifactScope, ArtifactStore, NewArtifact, SweepSink


def _failure() -> Exception:
    return ArtifactStoreError("the store was told to fail; it may have been done", delivery=IN_DOUBT)


@final
class BadStore:
    """Stands before another store and answers wrongly where it is told to.

    Args:
        inner: Answers everything else.
        loops_cursor: Every page of `list` is the first one again, with a cursor to itself.
        foreign: A scope and a ref: `head` and `get` answer with that artifact, `list` adds it, whoever asks.
        fails_after: For a verb, how many calls of it succeed before all others fail.
        error: Makes what a failing verb raises; by default an `ArtifactStoreError`, in doubt.
        hangs: Verbs that never answer; they can be cancelled.

    Attributes:
        calls: How often each verb was called.
    """

    def __init__(
        self,
        inner: ArtifactStore,
        *,
        loops_cursor: bool = False,
        foreign: tuple[ArtifactScope, str] | None = None,
        fails_after: Mapping[str, int] | None = None,
        error: Callable[[], Exception] = _failure,
        hangs: Collection[str] = (),
    ) -> None:
        self._inner = inner
        self._loops_cursor = loops_cursor
        self._foreign = foreign
        self._fails_after = dict(fails_after or {})
        self._error = error
        self._hangs = frozenset(hangs)
        self.calls: Counter[str] = Counter()

    async def _call(self, verb: str) -> None:
        self.calls[verb] += 1
        if verb in self._hangs:
            await trio.sleep_forever()
        if self.calls[verb] > self._fails_after.get(verb, self.calls[verb]):
            await trio.lowlevel.checkpoint()
            raise self._error()

    async def put(
        self, scope: ArtifactScope, new: NewArtifact, *, on_swept: SweepSink | None = None
    ) -> ArtifactMeta:
        """See `ArtifactStore.put`."""
        await self._call("put")
        return await self._inner.put(scope, new, on_swept=on_swept)

    async def head(self, scope: ArtifactScope, ref: str) -> ArtifactMeta | None:
        """See `ArtifactStore.head`."""
        await self._call("head")
        return await self._inner.head(*(self._foreign or (scope, ref)))

    async def get(self, scope: ArtifactScope, ref: str) -> Artifact | None:
        """See `ArtifactStore.get`."""
        await self._call("get")
        return await self._inner.get(*(self._foreign or (scope, ref)))

    async def delete(self, scope: ArtifactScope, ref: str) -> None:
        """See `ArtifactStore.delete`."""
        await self._call("delete")
        await self._inner.delete(scope, ref)

    async def list(
        self,
        scope: ArtifactScope,
        *,
        kind: str | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> ArtifactPage:
        """See `ArtifactStore.list`."""
        await self._call("list")
        if self._loops_cursor:
            page = await self._inner.list(scope, kind=kind, limit=limit)
            page = ArtifactPage(page.items, "the same page again")
        else:
            page = await self._inner.list(scope, kind=kind, cursor=cursor, limit=limit)
        if self._foreign is not None:
            stray = await self._inner.head(*self._foreign)
            if stray is not None:
                page = ArtifactPage((stray, *page.items), page.cursor)
        return page
