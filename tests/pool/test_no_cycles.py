"""What a call leaves goes with its last reference: no cycle waits for the collector, or holds a toolset."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from afpool.pool._bound import BoundTool
from afpool.pool._call import Call
from tests.pool.kit import ALICE, memory_world, world

if TYPE_CHECKING:
    from collections.abc import Iterator

    import afpool


@pytest.fixture
def kept() -> Iterator[list[object]]:
    """Where the collector puts what it finds in cycles."""
    gc.disable()
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def in_cycles(pool: afpool.Pool, kept: list[object]) -> list[object]:
    """What is left in cycles of two calls, one of them with progress."""
    tools = await pool.tools(ALICE, "files")
    await tools["echo"].call({"text": "the first one opens"}, identity=ALICE)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    for told in (None, lambda progress: None):
        assert not (await tools["echo"].call({}, identity=ALICE, on_progress=told)).is_error
    gc.collect()
    return [each for each in kept if isinstance(each, (Call, BoundTool))]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_calls_over_http(era: str, kept: list[object]) -> None:
    async with world(http={"era": era}) as here:
        assert await in_cycles(here.pool, kept) == []


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_calls_on_a_stream_of_all(era: str, kept: list[object]) -> None:
    async with memory_world(era=era) as (_, _, pool):
        assert await in_cycles(pool, kept) == []
