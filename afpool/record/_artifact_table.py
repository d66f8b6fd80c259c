"""What minted the last artifacts: kept for longer than the calls themselves, so that a ref can be explained.

Bounded by count and by bytes; the oldest go first. What is kept of a call is what may be shown of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._base.identity import Identity
    from .._base.use import Use
    from ..artifacts import ArtifactMeta

KEPT: Final = 4_096
ROOM: Final = 4 * 1024 * 1024
MAX_SHOWN: Final = 1_024
_ROW: Final = 900
"""Bytes of one row without the arguments: a ticket, names, an identity that others hold too."""


@attrs.frozen
class Minted:
    """One artifact and what put it.

    Attributes:
        meta: Its ticket.
        scope: Whose it is; never shown.
        call_id: The call that put it; `None` where a run did it by itself.
        run_id: The run.
        server: The server whose tool was called; empty for a tool of the host's own.
        tool: The tool.
        who: Who the run acts for; shown by digest only.
        shown: The arguments as they may be shown, as JSON; `None` where there are none, or they are long.
        took: The artifacts that the call was given until then.
        cleaned: Whether what its putter chose the words of was looked through for secrets.
    """

    meta: ArtifactMeta
    scope: Identity = attrs.field(repr=False)
    call_id: str | None = None
    run_id: str | None = None
    server: str = ""
    tool: str = ""
    who: Identity | None = attrs.field(default=None, repr=False)
    shown: bytes | None = attrs.field(default=None, repr=False)
    took: tuple[str, ...] = ()
    cleaned: bool = True

    @property
    def size(self) -> int:
        """Bytes that it holds, as estimated."""
        return _ROW + len(self.shown or b"") + 100 * (len(self.took) + len(self.meta.parent_refs))


def _short(shown: bytes | None) -> bytes | None:
    return shown if shown is not None and len(shown) <= MAX_SHOWN else None


@final
class ArtifactTable:
    """The artifacts that were put last, by ref.

    Args:
        kept: How many, at most.
        room: Bytes that they may take, as estimated.

    Attributes:
        forgotten: How many had to go.
    """

    __slots__ = ("_bytes", "_kept", "_room", "_rows", "forgotten")

    def __init__(self, kept: int = KEPT, room: int = ROOM) -> None:
        self._kept = kept
        self._room = room
        self._rows: dict[str, Minted] = {}
        self._bytes = 0
        self.forgotten = 0

    def note(self, meta: ArtifactMeta, scope: Identity, use: Use | None = None) -> None:
        """Keep what is known of a put. Synchronous; raises nothing.

        Args:
            meta: The ticket, without what is secret.
            scope: Whose it is.
            use: The call that put it, as far as it came; `None` where a run did it by itself.
        """
        origin = meta.origin
        run_id = None if origin is None else origin.run_id
        if use is None:
            row = Minted(meta, scope, None if origin is None else origin.call_id, run_id)
        else:
            # one that its use does not list any more could not be cleaned later
            listed = use.minted is None or meta.ref in use.minted
            shown = _short(use.shown) if listed else None
            row = Minted(
                meta,
                scope,
                use.call_id,
                use.run_id or run_id,
                use.server,
                use.tool or use.name,
                use.who,
                shown,
                tuple(use.took or ()),
            )
        before = self._rows.pop(meta.ref, None)
        if before is not None:
            self._bytes -= before.size
        self._rows[meta.ref] = row
        self._bytes += row.size
        self._trim()

    def clean(self, use: Use, text: Callable[[str], str]) -> None:
        """Keep no more of a call than may be shown by now. Synchronous; raises nothing.

        Args:
            use: The call's, without what is known as secret.
            text: Takes that out of words.
        """
        for ref in use.minted or ():
            row = self._rows.get(ref)
            if row is None or row.call_id != use.call_id:
                continue
            meta = row.meta
            label = None if meta.label is None else text(meta.label)
            meta = attrs.evolve(meta, kind=text(meta.kind), media_type=text(meta.media_type), label=label)
            clean = attrs.evolve(row, meta=meta, tool=use.tool or use.name, shown=_short(use.shown))
            self._rows[ref] = clean
            self._bytes += clean.size - row.size
        self._trim()

    def _trim(self) -> None:
        while len(self._rows) > self._kept or self._bytes > self._room:
            self._bytes -= self._rows.pop(next(iter(self._rows))).size
            self.forgotten += 1

    def get(self, ref: str) -> Minted | None:
        """Give what is known of an artifact; `None` where nothing is, or nothing any more."""
        return self._rows.get(ref)

    def __iter__(self) -> Iterator[Minted]:
        """Go through a copy, the newest first."""
        return reversed(list(self._rows.values()))

    @property
    def bytes(self) -> int:
        """What is kept takes so many bytes, as estimated."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._rows)
