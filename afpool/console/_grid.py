"""`watch actors`: all keys as a grid, as changes only.

Rules:

* The keys are gone through once for everybody who watches, in slices, at most once in `FRESH` seconds, and
  never for more than a `SHARE` of the time: with a great many keys the grid is later, and nothing else is.
* A key whose actor has had no turn since is passed over: what a cell shows changes by turns only, apart from
  the generation of a shared list and the end of a back-off, which are looked at.
* Every cell knows at which look it changed, and cells are kept in the order of their changes. So a watcher is
  told what is new to it at the cost of what is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import trio

from ._slices import Slices
from ._sources import list_state_of, state_of
from ._spec import Command
from ._stream import Stream

if TYPE_CHECKING:
    from ..pool._actor import KeyActor
    from ._registry import Registry
    from ._sources import Sources

FRESH: Final = 0.4
SHARE: Final = 0.05
CHUNK: Final = 256
IN_FRAME: Final = 500
GONE_KEPT: Final = 20_000
LEAST: Final = 0.2
MOST: Final = 60.0


def register(registry: Registry, sources: Sources) -> None:
    """Add the command."""
    grid = Grid(sources)
    registry.command(
        Command(
            words=("watch", "actors"),
            usage="watch actors [every=1s]",
            help="all keys as a grid: everything once, then what changes",
            run=lambda ask: GridStream(grid, ask.seconds("every", 1.0, least=LEAST, most=MOST)),
            options=("every",),
        )
    )


@final
class Cell:
    """One key of the grid.

    Attributes:
        row: What is shown.
        turns: Of its actor when it was looked at.
        changed: The look at which the row became this one.
        seen: The last look that found the key.
    """

    __slots__ = ("changed", "row", "seen", "turns")

    def __init__(self) -> None:
        self.row: list[Any] = []
        self.turns = -1
        self.changed = 0
        self.seen = 0


@final
class Grid:
    """The cells of all keys, brought up to date when somebody asks.

    Attributes:
        look: The number of the last look.
        cells: By digest, in the order in which they changed.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._next_at = float("-inf")
        self._looking: trio.Event | None = None
        self._gone: dict[str, int] = {}
        self.look = 0
        self.cells: dict[str, Cell] = {}

    async def refresh(self) -> None:
        """Look at every key, unless somebody just has. A checkpoint where it looks."""
        clock = self._sources.pool.seams.now
        while clock() >= self._next_at:
            if self._looking is not None:
                await self._looking.wait()
                continue
            over = self._looking = trio.Event()
            began = clock()
            try:
                await self._look(Slices())
                ended = clock()
                self._next_at = ended + max(FRESH, (ended - began) / SHARE)
            finally:
                self._looking = None
                over.set()

    async def _look(self, slices: Slices) -> None:
        sources = self._sources
        backoffs = sources.backoffs()
        actors = sources.pool.actors()
        look = self.look + 1
        for at in range(0, len(actors), CHUNK):
            for actor in actors[at : at + CHUNK]:
                self._see(actor, backoffs, look)
            await slices.look()
        if len(self.cells) > len(actors):  # each actor has a cell now, and nobody else should have one
            for key in [key for key, cell in self.cells.items() if cell.seen != look]:
                del self.cells[key]
                self._gone.pop(key, None)
                self._gone[key] = look
                if len(self._gone) > GONE_KEPT:
                    del self._gone[next(iter(self._gone))]
        self.look = look

    def _see(self, actor: KeyActor, backoffs: dict[str, Any], look: int) -> None:
        key = actor.shown
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell()
        cell.seen = look
        listed = list_state_of(actor)
        generation = None if listed is None else listed.generation
        row = cell.row
        turns = actor.turns
        if row and cell.turns == turns and row[7] == generation and row[1] not in ("idle", "backoff"):
            return
        cell.turns = turns
        machine = actor.machine
        client = machine.client
        now = [
            key,
            actor.server.name,
            state_of(actor, backoffs),
            machine.in_flight,
            machine.limits.max_operations,
            len(machine.waiting) if machine.waiting else 0,
            None if client is None else client.id,
            generation,
        ]
        if now != row:
            cell.row = now
            cell.changed = look
            self.cells[key] = self.cells.pop(key)
            self._gone.pop(key, None)

    def since(self, look: int) -> tuple[list[str], list[str]]:
        """Keys whose cells changed after a look, and keys that went after it; those still there are first."""
        changed: list[str] = []
        for key in reversed(self.cells):
            if self.cells[key].changed <= look:
                break
            changed.append(key)
        gone: list[str] = []
        for key in reversed(self._gone):
            if self._gone[key] <= look:
                break
            gone.append(key)
        return changed[::-1], gone


@final
class GridStream(Stream):
    """The grid for one watcher."""

    def __init__(self, grid: Grid, interval: float) -> None:
        super().__init__()
        self._grid = grid
        self._interval = interval
        self._look = 0
        self._changed: list[str] = []
        self._gone: list[str] = []
        self._first = True

    async def make(self) -> dict[str, Any] | None:
        """Tell the next part of what is new; of a large grid the first look takes several frames."""
        if self.ended is not None:
            return None
        grid = self._grid
        if not self._changed and not self._gone:
            await grid.refresh()
            self._changed, self._gone = grid.since(self._look)
            self._look = grid.look
        changed, self._changed = self._changed[:IN_FRAME], self._changed[IN_FRAME:]
        gone, self._gone = self._gone[: 4 * IN_FRAME], self._gone[4 * IN_FRAME :]
        rows = [grid.cells[key].row for key in changed if key in grid.cells]
        if not rows and not gone and not self._first:
            return None
        self._first = False
        return {"actors": {"set": rows, "gone": gone}}

    async def wait(self) -> None:
        """Wait until the next look."""
        with trio.CancelScope(deadline=trio.current_time() + self._interval):
            await self._over.wait()
