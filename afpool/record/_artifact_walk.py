"""Where an artifact comes from: back from a ref over the calls that put it and what it was made from.

Rules:

* An artifact has two kinds of forebears: the parents that its put named, and the artifacts that the call
  which put it was given. Both are followed, breadth first, each artifact once.
* What the record does not know any more is asked of the store, by `head` and in the same scope: a parent was
  there in its child's scope. Nothing is read of a payload.
* The walk ends after `ARTIFACTS` artifacts and after `PATIENCE` seconds of waiting for the store; what was
  left out is said. A store that fails costs what only it knows.
* Arguments stand as they may be shown; whom a call acted for stands by digest. Of a ticket that comes from
  the store itself kind and label are left out: nobody has looked through them for secrets.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import trio

from .._base.identity import identity_namespace
from ..artifacts import Origin
from ._artifact_table import Minted
from ._explain_words import listed, plain, quoted, size, took
from ._explained import Clause, Explanation

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import Identity
    from .._base.use import Use
    from ..artifacts import ArtifactStore
    from ._artifact_table import ArtifactTable
    from ._json import Shows

ARTIFACTS: Final = 64
PATIENCE: Final = 5.0
_MAX_ARGUMENTS: Final = 300
_MAX_REF: Final = 40


class Walk:
    """One walk back.

    Args:
        table: What the record knows.
        store: Asked for what it does not know; `None` for none.
        calls: Gives the uses of a call.
        digest: Makes what is shown of identities.
        unix_now: Seconds since 1970.
    """

    def __init__(
        self,
        table: ArtifactTable,
        store: ArtifactStore | None,
        calls: Callable[[str], list[Use]],
        digest: Shows,
        unix_now: float,
    ) -> None:
        self._table = table
        self._store = store
        self._calls = calls
        self._digest = digest
        self._unix_now = unix_now
        self._clauses: list[Clause] = []
        self._roots: list[Minted] = []
        self._lost = 0
        self._until = 0.0  # the store is waited for, on trio's clock
        self._hangs = False

    async def back(self, ref: str, scope: Identity | None) -> Explanation | None:
        """Walk back from `ref`; `None` where nobody knows it. At least one checkpoint."""
        await trio.lowlevel.checkpoint()
        self._until = trio.current_time() + PATIENCE
        first = await self._found(ref, scope)
        if first is None:
            return None
        seen = {ref}
        queue: deque[tuple[str, Identity, Minted | None]] = deque([(ref, first.scope, first)])
        told = 0
        while queue:
            name, whose, row = queue.popleft()
            if told >= ARTIFACTS:
                self._say(None, f"{len(queue) + 1} more artifacts are not followed here", {"ref": name})
                break
            told += 1
            if row is None:
                row = await self._found(name, whose)
            if row is None:
                self._missing(name)
                continue
            forebears = self._forebears(row)
            self._tell(row, first, [each for each in forebears if each in seen])
            fresh = [each for each in forebears if each not in seen]
            if not forebears:
                self._roots.append(row)
            seen.update(fresh)
            queue.extend((each, row.scope, None) for each in fresh)
        return Explanation(self._headline(first, told), tuple(self._clauses))

    # ------------------------------------------------------------------ finding

    async def _found(self, ref: str, scope: Identity | None) -> Minted | None:
        row = self._table.get(ref)
        if row is not None or self._store is None or scope is None or self._hangs:
            return row
        meta = None
        try:
            with trio.CancelScope(deadline=self._until) as patience:
                meta = await self._store.head(scope, ref)
        except Exception as error:  # noqa: BLE001 -- the host's store may raise anything
            text = f"the store could not be asked about {quoted(ref, _MAX_REF)} ({type(error).__name__})"
            self._say(None, text, {"ref": ref})
            return None
        if patience.cancelled_caught:
            self._hangs = True
            text = f"the store had not answered after {PATIENCE:g} s and is not asked any further"
            self._say(None, text, {"ref": ref})
        if meta is None:
            return None
        origin = Origin() if meta.origin is None else meta.origin
        return Minted(meta, scope, origin.call_id, origin.run_id, cleaned=False)

    def _forebears(self, row: Minted) -> list[str]:
        return list(dict.fromkeys([*row.meta.parent_refs, *row.took]))

    # ------------------------------------------------------------------ telling

    def _say(self, at: float | None, text: str, facts: dict[str, Any]) -> None:
        self._clauses.append(Clause(at, text, facts, "artifact"))

    def _missing(self, ref: str) -> None:
        self._lost += 1
        text = (
            f"{quoted(ref, _MAX_REF)}: neither the record nor the store knows it any more: it has expired, "
            "made room, or was deleted"
        )
        self._say(None, text, {"ref": ref, "known": False})

    def _tell(self, row: Minted, first: Minted, again: list[str]) -> None:
        meta = row.meta
        facts: dict[str, Any] = {"ref": meta.ref, "bytes": meta.bytes}
        text = f"{quoted(meta.ref, _MAX_REF)} ("
        if row.cleaned:
            facts["kind"] = plain(meta.kind)
            text += f"{facts['kind']}, "
        text += size(meta.bytes)
        if meta.label and row.cleaned:
            text += f", {quoted(meta.label)}"
            facts["label"] = plain(meta.label)
        text += f") was put by {self._by(row, facts)}"
        given = [each for each in row.took if each not in meta.parent_refs]
        for name, refs in (("made from", meta.parent_refs), ("the call was given", given)):
            if refs:
                text += f"; {name} {listed([quoted(each, _MAX_REF) for each in refs])}"
        if meta.parent_refs:
            facts["parents"] = list(meta.parent_refs[:20])
        if row.took:
            facts["taken"] = list(row.took[:20])
        if again:
            text += f"; {listed([quoted(each, _MAX_REF) for each in again])} stood on this way before"
        if meta.expires_at is not None and meta.expires_at <= self._unix_now:
            text += "; it has expired since"
        self._say(round(meta.created_at - first.meta.created_at, 6), text, facts)

    def _by(self, row: Minted, facts: dict[str, Any]) -> str:
        call_id, server, tool, shown, who = row.call_id, row.server, row.tool, row.shown, row.who
        uses = [] if call_id is None else self._calls(call_id)
        if uses:
            use = uses[0]
            server, tool = use.server, use.tool or use.name
            shown = use.shown if use.shown is not None else shown
            who = who or use.who
        facts |= {
            name: value
            for name, value in (
                ("call_id", call_id),
                ("run_id", row.run_id),
                ("tool", tool),
                ("server", server),
            )
            if value
        }
        if call_id is None:
            text = "a run by itself" if row.run_id else "nobody that is named"
        else:
            text = f"call {quoted(call_id, 60)}"
            if tool:
                text += f" of {quoted(tool)}" + (f" on {quoted(server)}" if server else "")
            elif not uses:
                text += ", whose facts have left the record"
        if row.run_id:
            text += f", in run {quoted(row.run_id, 60)}"
        if who is not None:
            facts["who"] = self._digest.show(identity_namespace(who), "w")
            text += f", for {facts['who']}"
        if shown is not None:
            arguments = _arguments(shown)
            facts["arguments"] = arguments
            text += f", with {arguments}"
        return text

    def _headline(self, first: Minted, told: int) -> str:
        facts: dict[str, Any] = {}
        by = self._by(first, facts).partition(", with ")[0]
        ago = took(max(self._unix_now - first.meta.created_at, 0.0))
        text = f"{quoted(first.meta.ref, _MAX_REF)} was put by {by}, {ago} ago"
        if told == 1:
            return f"{text}, from no other artifact" + (", as far as is known" if self._lost else "")
        text += f"; it goes back over {told - 1} artifact{'' if told == 2 else 's'}"
        roots = [quoted(row.meta.ref, _MAX_REF) for row in self._roots if row is not first]
        if roots:
            text += f" to {listed(roots, 3)}"
        if self._lost:
            text += f"; of {self._lost} nobody knows any more"
        return text


def _arguments(shown: bytes) -> str:
    """Write shown arguments on one line, bounded."""
    try:
        text = json.dumps(json.loads(shown[: 64 * 1024]), ensure_ascii=False, separators=(", ", ": "))
    except (ValueError, RecursionError):
        text = shown[: 4 * _MAX_ARGUMENTS].decode("utf-8", "replace")
    return plain(text, _MAX_ARGUMENTS)
