"""What lists hold, counted: objects that the collector of cycles looks after, and bytes. Nothing is timed."""

from __future__ import annotations

import gc
import sys
import weakref
from itertools import pairwise
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool._base.definition_table import STEP
from afpool.testing import FakeTool
from tests.pool.kit import ALICE, BOB, memory_world, person, until, world

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KEYS = 1000
TOOLS = 200
LIMIT = 2048
"""Bytes of one more key that lists a shared list."""
OBJECTS = 10
"""Objects of it that the collector looks after."""
_ENDS = (type, ModuleType, FunctionType, BuiltinFunctionType)


def listed(count: int, word: str = "found") -> list[FakeTool]:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(8)}}
    return [FakeTool(f"tool-{n}", description=f"{word} {n}", input_schema=schema) for n in range(count)]


def reachable(roots: Iterable[Any], but: dict[int, Any]) -> dict[int, Any]:
    """Everything that is held by some objects, without what `but` holds, and without the program."""
    found: dict[int, Any] = {}
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in found or id(one) in but or isinstance(one, _ENDS):
            continue
        found[id(one)] = one
        left += gc.get_referents(one)
    return found


@pytest.fixture
def still() -> Iterator[None]:
    """The collector runs when it is told to."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_toolset_of_a_shared_list_is_a_view(still: None) -> None:
    with trio.fail_after(60):
        async with world(tools=listed(TOOLS)) as w:
            people = [person(number) for number in range(KEYS)]
            for who in (ALICE, *people):
                w.host.names[who.principal] = "team"
            first = await w.pool.tools(ALICE, "files")
            assert len(first) == TOOLS
            gc.collect()
            shared = reachable([first, w.pool, w.host], {})
            before = len(gc.get_objects())
            held = [await w.pool.tools(who, "files") for who in people]
            gc.collect()
            objects = len(gc.get_objects()) - before
            size = sum(sys.getsizeof(one) for one in reachable(held, shared).values())
            assert w.server.count("tools/list") == 1
            assert all(tools.catalogs == first.catalogs for tools in held)
            assert objects <= OBJECTS * KEYS
            assert size <= LIMIT * KEYS


async def test_a_pool_that_reads_thousands_of_tools_holds_a_few_objects(still: None) -> None:
    """A list that replaces another one holds no more than that one did, however long."""
    count = 2000
    async with world(tools=listed(count)) as w:
        await w.pool.tools(BOB, "files")
        await w.pool.warm(ALICE)
        gc.collect()
        before = len(gc.get_objects())
        assert len(await w.pool.tools(ALICE, "files")) == count
        gc.collect()
        assert len(gc.get_objects()) - before < count / 10
        for turn in range(2):
            w.server.set_tools(listed(count, f"turn {turn}"), notify=False)
            gc.collect()
            before = len(gc.get_objects())
            await w.pool.refresh(ALICE, "files")
            gc.collect()
            assert len(gc.get_objects()) - before < count / 10


async def test_the_list_of_a_closed_client_goes_in_slices(still: None) -> None:
    async with world(tools=listed(4 * STEP)) as w, trio.open_nursery() as nursery:
        await w.pool.tools(ALICE, "files")
        table, sizes = w.pool.catalogs.table, []
        assert len(table) == 4 * STEP

        async def watch() -> None:
            while True:
                sizes.append(len(table))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(watch)
        w.pool.invalidate(server="files", reason="for the test")
        await until(lambda: len(table) == 0)
        nursery.cancel_scope.cancel()
        # between two looks, and behind the last one, the other task may have had two turns
        assert all(before - after <= 2 * STEP for before, after in pairwise(sizes))
        assert sizes[-1] <= 2 * STEP


async def test_a_list_goes_with_its_client_and_waits_for_no_collector(still: None) -> None:
    async with memory_world() as (_, _, pool):
        await pool.tools(ALICE, "files")
        (catalog,) = map(weakref.ref, pool.catalogs.table.catalogs())
        pool.invalidate(server="files", reason="for the test")
        await until(lambda: catalog() is None)
        assert len(pool.catalogs.table) == 0
