"""The record of one pool: finds what calls did, and explains how they ended.

It holds nothing of a call itself: that is in the pool's rings, and of artifacts in a small table. What is no
coroutine is synchronous, belongs to the pool's trio thread, and takes a few milliseconds at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs
import trio

from ..artifacts import is_artifact_ref
from ._artifact_table import ArtifactTable
from ._artifact_walk import Walk
from ._explain import explain_use
from ._explain_sources import PoolSources
from ._explain_words import plain, quoted, took
from ._json import Digests, unix_offset, use_as_json
from ._pointers import difference_in_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .._base.identity import Identity
    from .._base.use import Use
    from ..artifacts import ArtifactStore
    from ..pool import Pool
    from ._explained import Explanation
    from ._pointers import Difference


@final
class Record:
    """What a pool has filed, found and explained.

    Args:
        pool: The pool.
        artifacts: The store that artifacts go to: a store, or what gives the present one.
        running: Uses of calls that are under way at a door in front of the pool, by any key.

    Attributes:
        pool: The pool.
        minted: What put the last artifacts; to be fed by the door (`ArtifactTable.note`).
        digests: Makes what is shown of keys and identities.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        artifacts: ArtifactStore | Callable[[], ArtifactStore | None] | None = None,
        running: Mapping[int, Use] | None = None,
    ) -> None:
        self.pool = pool
        self.minted = ArtifactTable()
        self.digests = Digests(pool.digest)
        self._artifacts = artifacts
        self._running: Mapping[int, Use] = {} if running is None else running

    # ------------------------------------------------------------------ finding

    def running(self) -> list[Use]:
        """Give the uses of all calls under way, oldest first; they change under whoever reads them."""
        uses = {id(use): use for use in self._running.values()}
        for call in self.pool.running.values():
            uses[id(call.use)] = call.use
        uses |= self.pool.records.unfiled
        return sorted(uses.values(), key=lambda use: use.began_at)

    def call(self, call_id: str) -> list[Use]:
        """Give every use under an id, newest first: running ones, and those that are kept of ended ones."""
        found = [use for use in reversed(self.running()) if use.call_id == call_id]
        known = {id(use) for use in found}
        found += [use for use in self.pool.records.find(call_id) if id(use) not in known]
        return found

    def calls(self, *, where: Callable[[Use], bool] | None = None, limit: int = 100) -> list[Use]:
        """Give calls that are kept, newest first; running ones come before ended ones.

        Args:
            where: Which ones; all where absent.
            limit: How many at most.
        """
        found: list[Use] = []
        for use in self.newest():
            if len(found) >= limit:
                break
            if where is None or where(use):
                found.append(use)
        return found

    def newest(self) -> Iterator[Use]:
        """Give everything that is kept, newest first; running ones come before ended ones."""
        yield from reversed(self.running())
        yield from reversed(self.pool.records.uses)

    # ------------------------------------------------------------------ explaining

    def explain(self, call_id: str) -> Explanation:
        """Explain the newest call under an id: how it ended and why, or what it waits for now.

        Raises:
            LookupError: No call of that id is kept. The message says whether it may have been.
        """
        uses = self.call(call_id)
        if not uses:
            raise self._unknown(call_id, "call")
        return self.explained(uses[0])

    def explained(self, use: Use, found: Difference | None = None) -> Explanation:
        """Explain the call of a use that is at hand, whether it is still kept or not.

        Args:
            use: The call's facts.
            found: Where its two definitions differ, where that was looked for already.
        """
        explanation = explain_use(use, PoolSources(self), found)
        plain_use = use_as_json(use, digest=self.digests, unix=unix_offset(self.pool.seams))
        return attrs.evolve(explanation, use=plain_use)

    async def why(self, what: str, *, scope: Identity | None = None) -> Explanation:
        """Explain a call, or where an artifact comes from.

        Args:
            what: A call id, or the ref of an artifact.
            scope: Whose artifact it is, for one that was put before this process began: a store opens nothing
                by a ref alone.

        Raises:
            LookupError: Nothing of that name is kept.

        At least one checkpoint; cancelled, nothing remains of it.
        """
        uses = self.call(what)
        if not uses:
            walk = Walk(self.minted, self._store(), self.call, self.digests, self.pool.seams.unix_now())
            walked = await walk.back(what, scope)
            if walked is None:
                raise self._unknown(what, "artifact" if is_artifact_ref(what) else "call")
            return walked
        use = uses[0]
        if use.was is None or use.became is None:
            await trio.lowlevel.checkpoint()
            return self.explained(use)
        without = PoolSources(self).without(use.server)
        return self.explained(use, await difference_in_steps(use.was, use.became, without))

    def _store(self) -> ArtifactStore | None:
        given = self._artifacts
        return given() if callable(given) else given

    def _unknown(self, what: str, kind: str) -> LookupError:
        records = self.pool.records
        if kind == "artifact":
            text = f"no artifact {quoted(what)} is on the record"
            if self.minted.forgotten:
                text += f", which keeps the last {len(self.minted)}"
            return LookupError(f"{text}; one of an earlier process is found in its store by its scope")
        text = f"no call {plain(what)} is on the record"
        if not records.filed:
            return LookupError(f"{text}: no call has ended yet")
        if not records.forgotten:
            return LookupError(f"{text}, which holds every call since the pool was opened")
        if not records.uses:
            return LookupError(f"{text}, which keeps no call")
        ago = took(self.pool.seams.now() - records.uses[0].began_at)
        return LookupError(
            f"{text}: it may have left it, since the record keeps {len(records.uses)} of the {records.filed} "
            f"calls, the oldest begun {ago} ago"
        )
