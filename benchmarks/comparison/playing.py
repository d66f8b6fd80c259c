"""Plays scenarios with one adapter, each at a server of its own, and gives the cells.

A scenario that does not end in its time leaves `no end` in the cells that it has not filled. An adapter
that does not end what it opened, or whose process is gone, is started anew for the next scenario.
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import trio
from child import ChildGoneError, running
from lab import BAD, Bench, Cell, NotOpenError, Scenario, server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from child import Child

END_WITHIN = 2.0  # seconds that an adapter has between two scenarios to end what the first one opened


async def play(
    scenarios: Sequence[Scenario],
    adapter: Path,
    python: str,
    log: Path,
    *,
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, Cell]:
    """Play scenarios with one adapter.

    Args:
        scenarios: Which.
        adapter: Its program.
        python: The interpreter of its environment.
        log: Where its process writes its errors.
        told: Called with the name of each scenario and what it found.

    Raises:
        ChildGoneError: It does not start.
    """
    cells: dict[str, Cell] = {}
    waiting = list(scenarios)
    while waiting:
        async with running(python, adapter, log) as child:
            first = True
            while waiting and (first or not waiting[0].fresh):
                scenario, first = waiting.pop(0), False
                began = trio.current_time()
                found, good = await one(scenario, child)
                cells.update(found)
                shown = ", ".join(f"{key}: {cell.text}" for key, cell in found.items())
                told(f"{scenario.name} ({trio.current_time() - began:.1f} s) {shown}")
                if not good:
                    break
    return cells


async def one(scenario: Scenario, child: Child) -> tuple[dict[str, Cell], bool]:
    """Play one scenario; gives its cells, and whether the child can be used for another."""
    good = True
    why = f"no end ({scenario.limit:g} s)"
    async with AsyncExitStack() as stack:
        bench = Bench(child, await stack.enter_async_context(server()))
        with trio.move_on_after(scenario.limit):
            try:
                await scenario.run(bench)
            except NotOpenError as error:
                why = "no call at all"
                print(f"{scenario.name}: {error}", file=sys.stderr)
            except ChildGoneError:
                why, good = "its process ended", False
        if good:
            try:
                good = (await child.ask("shutdown", END_WITHIN)).ok and (await child.ask("renew", 1)).ok
            except ChildGoneError:
                good = False
    for row in scenario.rows:
        bench.cells.setdefault(row.key, Cell(why, BAD))
    return bench.cells, good
