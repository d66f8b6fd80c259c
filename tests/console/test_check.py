"""`check`: each fault is found, with numbers and what to try; and nothing where there is none."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import Identity
from afpool.console._check import counted, told
from afpool.record import LoopLag, SinkState
from afpool.testing import FakeTool, Hold, echo_tool
from tests.console.desk_kit import Desk, desk, memory_desk
from tests.pool.kit import ALICE, BOB, CAROL, start, until

if TYPE_CHECKING:
    from trio.testing import MockClock

SLOW = [FakeTool("slow", delay=500), echo_tool()]
PATIENT = {"deadline": 600.0, "max_operations": 1}


async def found(at: Desk, check: str) -> list[dict[str, Any]]:
    result = await at.ask(f"check {check}", at.reader)
    assert result["kind"] == "checks"
    json.dumps(result)
    for finding in result["found"]:
        for line in finding["try"]:
            await at.works(line)
    return [finding for finding in result["found"] if finding["level"] != "ok"]


async def test_nothing_is_found_in_a_pool_that_is_well() -> None:
    async with desk() as at:
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE)
        result = await at.ask("check", at.reader)
        (finding,) = result["found"]
        assert (finding["level"], result["bad"], result["warn"]) == ("ok", 0, 0)
        assert finding["what"] == f"nothing found by {len(result['checks'])} checks"
        assert set(result["checks"]) == {
            "waiters", "leases", "tenants", "drains", "pauses", "limits", "clients", "lists", "servers",
            "actors", "loop", "record", "sinks",
        }  # fmt: skip
        error = await at.refused("check waitres", "bad-option")
        assert error.tries[0] == "check waiters"


async def test_what_is_worst_comes_first(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=SLOW, pool=PATIENT) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE, "slow")
        for name in ("one", "two"):
            start(nursery, lambda name=name: tool.call({}, identity=ALICE, call_id=name))  # type: ignore[misc]
        await trio.sleep(100)
        result = await at.ask("check")
        assert [finding["level"] for finding in result["found"]] == ["bad", "warn"]
        assert [finding["check"] for finding in result["found"]] == ["waiters", "leases"]
        assert (result["bad"], result["warn"]) == (1, 1)
        nursery.cancel_scope.cancel()


async def test_the_oldest_waiter_and_what_it_waits_for(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=SLOW, pool=PATIENT) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE, "slow")
        for name in ("one", "two", "three"):
            start(nursery, lambda name=name: tool.call({}, identity=ALICE, call_id=name))  # type: ignore[misc]
            await trio.sleep(0.3)
        assert await found(at, "waiters") == []
        await trio.sleep(1)
        (young,) = await found(at, "waiters")
        assert young["level"] == "warn"
        await trio.sleep(20.4)
        (old,) = await found(at, "waiters")
        assert old["level"] == "bad"
        key = at.actor(ALICE).shown
        assert old["facts"] == {"server": "files", "call": "two", "key": key, "waited": 22.0, "waiting": 2}
        assert "1 of 1 places of its key are taken" in old["detail"]
        assert f"show actor {key}" in old["try"]
        at.pool.pause(at.pool.key_of(ALICE, "files"))
        (held,) = await found(at, "waiters")
        assert "its key is paused" in held["detail"]
        assert held["try"] == [f"resume {key}"]
        nursery.cancel_scope.cancel()


async def test_a_place_that_is_held_for_long(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=SLOW, pool=PATIENT) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE, "slow")
        start(nursery, lambda: tool.call({}, identity=ALICE, call_id="long"))
        await trio.sleep(59)
        assert await found(at, "leases") == []
        await trio.sleep(2)
        (finding,) = await found(at, "leases")
        assert (finding["facts"]["call"], finding["facts"]["waits_for"]) == ("long", "server")
        assert finding["facts"]["age"] == pytest.approx(61, abs=0.5)
        assert finding["try"] == ["show call long", "cancel long"]
        nursery.cancel_scope.cancel()


async def test_answers_that_nobody_waits_for(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=SLOW, pool={"settle_timeout": 100.0, "cancel_grace": 100.0}) as at:
        tool = await at.world.tool(ALICE, "slow")
        with trio.move_on_after(1):
            await tool.call({}, identity=ALICE)
        assert await found(at, "leases") == []
        await trio.sleep(30)
        (finding,) = await found(at, "leases")
        assert finding["facts"] == {"server": "files", "answers": 1, "oldest": 30.0}
        assert "settle_timeout 100 s" in finding["detail"]


async def test_a_tenant_that_waits_while_others_hold_everything(autojump_clock: MockClock) -> None:
    async with (
        memory_desk(tools=SLOW, pool={"deadline": 600.0, "max_in_flight": 2}) as at,
        trio.open_nursery() as nursery,
    ):
        greedy = await at.world.tool(ALICE, "slow")
        poor = await at.world.tool(CAROL, "slow")
        for _ in range(2):
            start(nursery, lambda: greedy.call({}, identity=ALICE))
        await trio.sleep(1)
        start(nursery, lambda: poor.call({}, identity=CAROL))
        await trio.sleep(1.5)
        assert await found(at, "tenants") == []
        await trio.sleep(2)
        (finding,) = await found(at, "tenants")
        shown = at.pool.digest.show("globex", "t")
        assert finding["facts"] == {"tenant": shown, "waiting": 1, "waited": 3.5, "most": 2}
        assert "globex" not in json.dumps(finding)
        assert at.pool.digest.show("acme", "t") in finding["detail"]
        (full,) = await found(at, "limits")
        assert (full["level"], full["facts"]["limit"]) == ("bad", "max_in_flight")
        nursery.cancel_scope.cancel()


async def test_a_drain_that_does_not_end(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=SLOW, pool=PATIENT) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE, "slow")
        start(nursery, lambda: tool.call({}, identity=ALICE))
        await trio.sleep(1)
        key = at.actor(ALICE).shown
        await at.ask(f"drain {key} for=0s")
        assert await found(at, "drains") == []
        await trio.sleep(31)
        (finding,) = await found(at, "drains")
        assert finding["level"] == "bad"
        assert (finding["facts"]["key"], finding["facts"]["in_flight"]) == (key, 1)
        assert finding["try"][0] == f"show actor {key}"
        assert finding["try"][1].startswith("kill ")
        nursery.cancel_scope.cancel()


async def test_a_pause_that_was_forgotten(autojump_clock: MockClock) -> None:
    async with memory_desk() as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        key = at.actor(ALICE).shown
        await at.ask(f"pause {key} for=10m")
        await trio.sleep(100)
        assert await found(at, "pauses") == []  # it ends by itself
        await at.ask(f"resume {key}")
        await at.ask(f"pause {key} hold")
        await trio.sleep(59)
        assert await found(at, "pauses") == []
        await trio.sleep(2)
        (finding,) = await found(at, "pauses")
        assert (finding["level"], finding["try"]) == ("warn", [f"resume {key}"])
        assert "by console uid 1000" in finding["detail"]
        start(nursery, lambda: tool.call({}, identity=ALICE))
        await trio.sleep(1)
        (finding,) = await found(at, "pauses")
        assert (finding["level"], finding["facts"]["waiting"]) == ("bad", 1)
        await at.ask("pause files hold")
        await trio.sleep(61)
        assert {finding["facts"]["what"] for finding in await found(at, "pauses")} == {key, "files"}
        nursery.cancel_scope.cancel()


async def test_a_client_that_is_opened_again_and_again(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        key = at.pool.key_of(ALICE, "files")
        for number in range(5):
            keep = await at.pool.tools(ALICE)
            if number == 3:
                assert await found(at, "clients") == []
            at.pool.evict(key)
            await trio.sleep(1)
        assert keep is not None
        (finding,) = await found(at, "clients")
        assert finding["facts"] == {"key": at.actor(ALICE).shown, "server": "files", "opened": 5}
        assert "evicted" in finding["detail"]
        await trio.sleep(61)
        assert await found(at, "clients") == []


async def test_a_list_that_never_settles(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        tool = await at.world.tool(ALICE)
        state = tool.binding.list
        assert state is not None
        state.unsettle("notice")
        assert await found(at, "lists") == []  # it may be asked for at once
        state.interval = 16.0
        (finding,) = await found(at, "lists")
        assert finding["facts"]["of"] == at.actor(ALICE).shown
        assert "on_list_change" in finding["advice"]


async def test_tools_that_cannot_be_read() -> None:
    async with desk(tools=[echo_tool(), FakeTool("echo")]) as at:
        await at.pool.tools(ALICE)
        (finding,) = await found(at, "lists")
        assert finding["facts"] == {"server": "files", "quarantined": 1}


async def test_an_actor_that_crashed_for_good(autojump_clock: MockClock) -> None:
    async with memory_desk() as at:
        await at.pool.tools(ALICE)
        actor = at.actor(ALICE)
        for _ in range(2):
            actor.tell(object())
        assert actor.phase == "crashed"
        (finding,) = await found(at, "actors")
        assert (finding["level"], finding["facts"]["crashes"]) == ("bad", 2)
        assert (await at.rows("show actors"))[0]["state"] == "crashed"


async def test_a_loop_that_was_held() -> None:
    async with desk() as at:
        lag = LoopLag()
        at.registry.sources.lag = lag
        for _ in range(100):
            lag.beat(0.001)
        assert await found(at, "loop") == []
        lag.beat(0.1)
        (finding,) = await found(at, "loop")
        assert (finding["level"], finding["facts"]["max"]) == ("warn", 0.1)
        lag.beat(0.4)
        (finding,) = await found(at, "loop")
        assert finding["level"] == "bad"
        (row,) = await at.rows("show loop")
        assert (row["max"], row["beats"]) == (0.4, 102)
        assert row["tasks"] > 1


async def test_a_record_that_is_too_small(autojump_clock: MockClock) -> None:
    async with memory_desk(pool={"records": 3}) as at:
        tool = await at.world.tool(ALICE)
        for _ in range(3):
            await tool.call({}, identity=ALICE)
        assert await found(at, "record") == []
        await tool.call({}, identity=ALICE)
        (finding,) = await found(at, "record")
        assert (finding["facts"]["kept"], finding["facts"]["forgotten"]) == (3, 1)
        await trio.sleep(100)
        assert await found(at, "record") == []  # it reaches back for long enough


async def test_listeners_that_fail() -> None:
    def fail(_: object) -> None:
        raise RuntimeError("listener")

    async with desk(pool={"on_use": fail}) as at:
        tool = await at.world.tool(ALICE)
        await tool.call({}, identity=ALICE)
        (finding,) = await found(at, "record")
        assert finding["facts"] == {"failures": 1}


async def test_sinks_that_lose_records() -> None:
    async with desk() as at:
        well = SinkState("jsonl", 3, 100, 0, 0, None)
        at.registry.sources.sink_states = lambda: [well]
        assert await found(at, "sinks") == []
        full = attrs.evolve(well, dropped=7, trouble="OSError")
        at.registry.sources.sink_states = lambda: [full]
        (finding,) = await found(at, "sinks")
        assert finding["level"] == "bad"
        assert "it cannot write now: OSError" in finding["detail"]
        assert finding["facts"]["dropped"] == 7
        over = attrs.evolve(well, dropped=7, queued=0)
        at.registry.sources.sink_states = lambda: [over]
        (finding,) = await found(at, "sinks")
        assert finding["level"] == "warn"
        assert (await at.ask("show overview"))["sinks"][0]["dropped"] in (0, 7)


async def test_openings_that_wait_for_room(autojump_clock: MockClock) -> None:
    async with (
        memory_desk(tools=SLOW, pool={"deadline": 600.0, "max_clients": 1}) as at,
        trio.open_nursery() as nursery,
    ):
        tool = await at.world.tool(ALICE, "slow")
        assert await found(at, "limits") == []  # idle clients make room
        start(nursery, lambda: tool.call({}, identity=ALICE))
        await trio.sleep(1)
        nursery.start_soon(at.pool.tools, Identity("globex", "x"))
        await trio.sleep(1)
        (finding,) = await found(at, "limits")
        assert finding["facts"] == {"limit": "max_clients", "used": 1, "of": 1}
        assert finding["detail"] == "1 opening waits for room"
        nursery.cancel_scope.cancel()


async def test_findings_are_bounded(autojump_clock: MockClock) -> None:
    async with memory_desk(tools=SLOW, pool={"deadline": 600.0}) as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(BOB, "slow")
        for _ in range(15):
            start(nursery, lambda: tool.call({}, identity=BOB))
        await trio.sleep(100)
        assert len(await found(at, "leases")) == 10
        nursery.cancel_scope.cancel()


async def test_a_waiter_for_a_client_that_is_being_opened() -> None:
    let_go = trio.Event()
    async with desk() as at, trio.open_nursery() as nursery:
        tool = await at.world.tool(ALICE)
        await at.world.evict(ALICE)
        at.world.server.on("initialize", Hold(let_go))
        at.world.server.on("server/discover", Hold(let_go))
        start(nursery, lambda: tool.call({}, identity=ALICE, call_id="c"))
        await until(lambda: at.pool.waiting == 1)
        (row,) = await at.rows("show waiting")
        assert (row["call"], row["for"]) == ("c", "client")
        assert (await at.rows("show actors"))[0]["state"] == "opening"
        let_go.set()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0004, "0 ms"), (0.25, "250 ms"), (1.0, "1.0 s"), (119.9, "119.9 s"), (7200, "120 min")],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert told(seconds) == words


def test_numbers_in_words() -> None:
    assert counted(1, "call") == "1 call"
    assert counted(2, "call") == "2 calls"
    assert counted(1, "answer is", "answers are") == "1 answer is"
    assert not math.isnan(len(counted(0, "call")))
