"""What the demo's tenants do by themselves holds what a console is asked about, in its first seconds."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import trio

from afpool import HttpTransport, Plan, Server, open_runtime
from afpool.artifacts import MemoryArtifacts
from afpool.config import ServeConfig
from afpool.serve._demo import note, open_demo
from afpool.serve._demo_traffic import (
    ALICE,
    BOB,
    FIRST,
    HABITS,
    NARROW_FOR,
    PLACES,
    WIDE_FOR,
    open_traffic,
    summary,
)
from afpool.testing import FakeServer, in_memory, whoami_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from afpool.runtime import Runtime


@contextlib.asynccontextmanager
async def at_work(seconds: float) -> AsyncIterator[Runtime]:
    """The demo's runtime without sockets, after so many seconds of a clock that costs nothing."""
    async with (
        open_traffic(memory=True) as traffic,
        FakeServer.http(era="both", tools=[whoami_tool()], memory=True) as directory,
        open_runtime(
            servers=[
                *traffic.servers,
                Server(name="directory", plan=Plan(transport=HttpTransport(url=directory.url))),
            ],
            tools=[note, summary],
            artifacts=MemoryArtifacts(),
            pool={"max_operations": PLACES},
            seams=in_memory(traffic.crm, traffic.reports, directory),
        ) as runtime,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(traffic.run, runtime)
        await trio.sleep(seconds)
        yield runtime
        nursery.cancel_scope.cancel()


def endings(runtime: Runtime, who: str) -> Counter[str]:
    pool = runtime.pool
    keys = {actor.key for actor in pool.actors() if actor.projection.principal == who}
    return Counter(f"{use.tool} {use.code or use.outcome}" for use in pool.records.uses if use.key in keys)


async def test_every_question_has_its_material_within_seconds(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with at_work(FIRST + NARROW_FOR) as runtime:
        alice, bob = endings(runtime, "alice"), endings(runtime, "bob")
        assert alice["search stale-tools"] == 1
        assert alice["search invalid-arguments"] >= 1
        assert alice["export deadline-exceeded"] == 1
        assert bob["charge connection-lost"] == 1
        assert bob["search stale-tools"] == 1
        assert not bob["search invalid-arguments"]
        refused = next(use for use in runtime.pool.records.uses if use.code == "stale-tools")
        told = runtime.record.explain(refused.call_id)
        assert "differs at `/inputSchema/properties/limit/maximum`" in told.headline
        # whatever the instant, places are held and waited for, by one key of one tenant
        [busy] = [actor for actor in runtime.pool.actors() if actor.machine.waiting]
        assert (busy.server.name, busy.projection) == ("reports", BOB)
        assert busy.machine.in_flight == PLACES
        waiting = [use for use in runtime.record.running() if use.waits_for == "admission"]
        assert (
            len(waiting)
            == sum(habit.at_once for habit in HABITS if habit.who == BOB and habit.tool == "build") - PLACES
        )
        assert all(use.held_by for use in waiting)
        # a summary that comes from a note
        ref = next(use.minted[0] for use in runtime.pool.records.uses if use.name == "summary" and use.minted)
        walked = await runtime.record.why(ref)
        assert "it goes back over 1 artifact" in walked.headline


async def test_it_goes_on_in_the_same_way(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with at_work(FIRST + 3 * (NARROW_FOR + WIDE_FOR)) as runtime:
        alice = endings(runtime, "alice")
        # each narrowing and each widening refuses what was listed before, once
        assert 3 <= alice["search stale-tools"] <= 6
        assert alice["search ok"] > 20
        codes = Counter(use.code for use in runtime.pool.records.uses if use.code)
        assert set(codes) == {"stale-tools", "invalid-arguments", "deadline-exceeded", "connection-lost"}
        assert not runtime.pool.openings.under_way
        assert {actor.server.name for actor in runtime.pool.actors()} == {"crm", "reports", "directory"}


async def test_nobody_calls_where_it_was_not_asked_for() -> None:
    async with open_demo(ServeConfig()) as demo:
        assert demo.play is None
        assert [server.name for server in demo.runtime.servers] == ["desk", "directory"]
        assert [tool.name for tool in demo.runtime.tools] == ["note"]
        assert demo.runtime.pool == {}
    async with open_demo(ServeConfig(), traffic=True) as demo:
        assert demo.play is not None
        assert {server.name for server in demo.runtime.servers} == {"desk", "directory", "crm", "reports"}
        assert {habit.who for habit in HABITS} == {ALICE, BOB}
