"""I11: a key that was forgotten costs nothing, however many came before it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Collection
from typing import Any

import pytest
import trio

from afpool import Pool
from afpool.pool._actor import KeyActor
from afpool.pool._lists import ListState
from afpool.testing import Hang, Rule
from tests.pool.kit import ALICE, BOB, memory_world, person, quiet, refused, until


def kept(thing: Any, name: str = "pool", depth: int = 3) -> dict[str, int]:
    """How many things are in each book of the pool and of what belongs to it, whatever they are called."""
    found: dict[str, int] = {}
    names = {
        *getattr(thing, "__dict__", ()),
        *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ())),
    }
    for attribute in sorted(names - {"records", "definitions", "servers", "__weakref__"}):
        value = getattr(thing, attribute, None)
        place = f"{name}.{attribute}"
        if isinstance(value, Collection) and not isinstance(value, str | bytes | tuple):
            found[place] = len(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            found[place] = value
        elif depth and type(value).__module__.startswith("afpool.pool") and not isinstance(value, Pool):
            found.update(kept(value, place, depth - 1))
    return found


def moving(books: dict[str, int]) -> dict[str, int]:
    """What may not grow: without the counts of what has ever been done."""
    counts = (".opened", ".evicted", ".closed", "._most_keys")
    return {place: size for place, size in books.items() if not place.endswith(counts)}


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
async def test_keys_that_were_used_and_left_leave_nothing(shared, autojump_clock):
    with trio.fail_after(10_000):
        async with memory_world() as (_, host, pool):
            await (await pool.tools(ALICE))["echo"].call(identity=ALICE)  # it stays: what is shared is there
            before, actors, lists = moving(kept(pool)), alive(KeyActor), alive(ListState)
            for number in range(200):
                who = person(number)
                host.names[who.principal] = "team" if shared else None
                tool = (await pool.tools(who))["echo"]
                await tool.call({"n": number}, identity=who)
                del tool
                pool.evict(pool.key_of(who, "files"))
            await until(lambda: pool.openings.rooms.used == 1)
            await trio.sleep(100)  # deadlines that are done leave their heap when they come up
            gc.collect()
            after = moving(kept(pool))
            assert not {place: size for place, size in after.items() if size > before[place]}
            assert alive(KeyActor) <= actors
            assert alive(ListState) <= lists
            quiet(pool)


async def test_a_key_whose_opening_failed_is_forgotten_with_its_back_off():
    with trio.fail_after(60):
        async with memory_world() as (memory, _host, pool):

            async def refuse() -> Any:
                await trio.lowlevel.checkpoint()
                raise OSError("nobody there")

            await pool.tools(BOB)  # the endpoint is known, and stays
            before, actors = moving(kept(pool)), alive(KeyActor)
            memory.connect = refuse
            for number in range(50):
                with pytest.raises(Exception, match="memory"):
                    await pool.tools(person(number))
            assert alive(KeyActor) == actors
            after = moving(kept(pool))
            # what failed is remembered for a time, bounded, and keeps no actor alive
            grown = {place: size for place, size in after.items() if size != before[place]}
            assert list(grown.values()) == [50], grown


async def test_an_actor_lives_by_its_tools_and_by_nothing_else():
    async with memory_world() as (_, _host, pool):
        tool = (await pool.tools(ALICE))["echo"]
        actor = weakref.ref(tool.binding.actor)
        pool.evict(pool.key_of(ALICE, "files"))
        await until(lambda: not pool.openings.clients)
        gc.collect()
        assert actor() is not None
        assert actor() not in pool.kept
        del tool
        gc.collect()
        assert actor() is None


async def test_a_key_whose_last_call_was_late_is_forgotten(autojump_clock):
    # the deadline is served by a task that then waits for ever
    with trio.fail_after(10_000):
        async with memory_world(pool={"settle_timeout": 1}) as (memory, _host, pool):
            tool = (await pool.tools(ALICE))["echo"]
            actor = weakref.ref(tool.binding.actor)
            memory.engine.rules.add(Rule("tools/call", Hang()))
            late = trio.current_time() + 1
            await refused(tool.call(identity=ALICE, deadline=late), "deadline-exceeded", "in-doubt")
            del tool
            await until(lambda: not pool.settling)
            pool.evict(pool.key_of(ALICE, "files"))
            await until(lambda: not pool.openings.clients)
            gc.collect()
            assert actor() is None


async def test_the_map_of_keys_is_made_anew_when_nearly_all_are_forgotten():
    with trio.fail_after(60):
        async with memory_world() as (_memory, host, pool):
            host.names = dict.fromkeys((person(number).principal for number in range(2000)), "team")
            tools = [(await pool.tools(person(number)))["echo"] for number in range(2000)]
            for actor in list(pool.kept):
                pool.evict(actor.key)
            await until(lambda: not pool.kept)
            full = sys.getsizeof(pool._actors.data)
            assert pool.statistics().keys == 2000
            del tools, actor
            assert pool.statistics().keys == 0
            assert sys.getsizeof(pool._actors.data) < full / 8
