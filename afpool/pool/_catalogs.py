"""Listed tools as interned definitions: of a list that came, to the catalog that bindings compare.

* Equal definitions and equal lists of all keys are one object, for as long as somebody holds them.
* A tool that cannot be read is quarantined with the reason; the others of its list live.
* The loop is not held. What these very bytes have given before is only looked up; what is new is built here
  where it is little, and in a thread where it is more than `SLICE` bytes: a list of ten thousand tools takes
  seconds of work. After every `SLICE` bytes the other tasks have their turn, and so have, in the thread, the
  lists of other tenants; while it works the thread gives way to the loop. What another list has replaced is
  let go of in slices, too. There is one thread per pool: two would only take the interpreter from each other,
  and from the loop.
* Nothing of a tool but text and bytes lives on when the next one is read. A whole round of the collector of
  cycles holds the loop for as long as it takes, whichever thread brings it about.
* The table belongs to the runtime's own thread: the other one only builds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio

from .._base.canonical import ContentError
from .._base.definition import ListedTool, build_tool
from .._base.definition_table import DefinitionTable
from .._base.fair import FairPlaces
from .._base.giving_way import GivingWay
from .._base.steps import at_leisure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._base.definition import Catalog
    from .._base.definition_table import Watched
    from .._base.seams import Seams
    from ..client import ListAnswer

SLICE: Final = 64 * 1024
ENTRY: Final = 512
"""What one tool counts for at least, in bytes: looking up a tiny one is work, too."""

Built: TypeAlias = ListedTool | str
"""A tool, or why it cannot be read."""


@final
class Catalogs:
    """The definitions of a pool.

    Attributes:
        table: Where they are kept once.
    """

    __slots__ = ("_lane", "_limiter", "_seams", "table")

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._limiter = trio.CapacityLimiter(1)
        self._lane = FairPlaces(1)
        self.table = DefinitionTable()

    async def catalog(
        self, answer: ListAnswer, without: tuple[str, ...], tenant: str | None = None, key: str = ""
    ) -> Catalog:
        """Intern a list.

        Args:
            answer: The list as its server sent it.
            without: JSON pointers that are left out when definitions are compared.
            tenant: Whose list it is, and of which key: tenants take turns in the thread, then their keys.
            key: See `tenant`.

        A checkpoint only where the list is long, or much of it is new. Cancelled, it leaves nothing behind.
        """
        table = self.table
        # Held until the catalog holds them: the table itself keeps nothing alive.
        known: dict[bytes, Built] = {}
        new: dict[bytes, None] = {}
        turn = _Turn()
        for raw in answer.tools:
            if turn.used_up(raw):
                await trio.lowlevel.checkpoint()
            found = table.find(raw, without)
            if found is None:
                new[raw] = None
            else:
                known[raw] = found
        for raw, built in zip(new, await self._build(list(new), without, tenant, key), strict=True):
            if turn.used_up(raw):
                await trio.lowlevel.checkpoint()
            known[raw] = built
        tools: list[ListedTool] = []
        quarantined = list(answer.left_out)
        for index, raw in enumerate(answer.tools):
            if turn.used_up(raw):
                await trio.lowlevel.checkpoint()
            ready = known[raw]
            if isinstance(ready, str):
                quarantined.append((f"#{index}", ready))
            else:
                tools.append(ready)
        return await at_leisure(table.catalog_steps(tools, quarantined))

    async def let_go(self, lists: list[Watched]) -> None:
        """Let go of lists that were replaced, a few tools at a time, where nobody holds them any more.

        Args:
            lists: What `DefinitionTable.slowly` gave.

        A checkpoint after each part. Cancelled, it does the rest at once.
        """
        await at_leisure(self.table.leave_steps(lists))

    async def _build(
        self, new: list[bytes], without: tuple[str, ...], tenant: str | None, key: str
    ) -> list[Built]:
        if sum(map(len, new)) <= SLICE:
            return _built_all(new, without)
        ready: list[Built] = []
        for part in _slices(new):
            async with self._lane.place("", tenant, key):
                ready += await self._seams.in_thread(partial(_built_beside, part, without), self._limiter)
        return ready


def _slices(new: list[bytes]) -> Iterator[list[bytes]]:
    """Cut a list of tools into parts of about `SLICE` bytes."""
    part: list[bytes] = []
    turn = _Turn()
    for raw in new:
        part.append(raw)
        if turn.used_up(raw):
            yield part
            part = []
    if part:
        yield part


def _built_all(new: list[bytes], without: tuple[str, ...]) -> list[Built]:
    return [_built(raw, without) for raw in new]


def _built_beside(new: list[bytes], without: tuple[str, ...]) -> list[Built]:
    """The same in a thread beside the loop, which it gives way to."""
    way = GivingWay()
    ready: list[Built] = []
    for raw in new:
        ready.append(_built(raw, without))
        way.look()
    return ready


def _built(raw: bytes, without: tuple[str, ...]) -> Built:
    try:
        return build_tool(raw, without)
    except ContentError as error:
        return error.reason


class _Turn:
    """Counts work in bytes and says when it is somebody else's turn."""

    __slots__ = ("_work",)

    def __init__(self) -> None:
        self._work = 0

    def used_up(self, raw: bytes) -> bool:
        """Count one tool; true once per `SLICE` bytes."""
        self._work += max(len(raw), ENTRY)
        if self._work < SLICE:
            return False
        self._work = 0
        return True
