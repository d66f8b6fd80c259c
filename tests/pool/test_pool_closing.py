"""Leaving: within its time, whatever goes on, and nothing is left behind (I9)."""

from __future__ import annotations

import gc
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, Server, StdioTransport
from afpool.pool._background import Background
from afpool.testing import Delay, FakeServer, FakeTool, Hang, Hold, echo_tool
from tests.pool.kit import ALICE, BOB, CAROL, World, refused, start, until, world
from tests.pool.kit import Hold as HostHold

if TYPE_CHECKING:
    from afpool import BoundTool, Pool

ERAS = ("handshake", "stateless")
STUCK = {"tools": ["echo", "sleep"]}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[int]:
    """Every child of this process, zombies included."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        found |= {int(word) for word in path.read_text().split()}
    return found


@pytest.fixture(autouse=True)
def nothing_left():
    """Descriptors and children are as many as before."""
    gc.collect()
    before = descriptors(), children()
    yield
    gc.collect()
    assert (descriptors(), children()) == before


def stdio(script: dict[str, Any], log: Path | None = None, version: str = "2025-11-25") -> Server:
    command = FakeServer.stdio_command(script, log=log)
    return Server(name="files", plan=Plan(transport=StdioTransport.of(*command), protocol_version=version))


def slow() -> list[FakeTool]:
    return [FakeTool("slow", delay=2, cancellable=False), FakeTool("stuck"), echo_tool()]


async def closing(w: World) -> tuple[afpool.CloseReport, float]:
    began = trio.current_time()
    with trio.fail_after(60):
        report = await w.pool.aclose()
    return report, trio.current_time() - began


# ---------------------------------------------------------------------------- what goes on


async def test_an_idle_pool_closes_at_once_and_ends_its_sessions(autojump_clock):
    async with world() as w:
        for who in (ALICE, BOB, CAROL):
            await (await w.tool(who)).call(identity=who)
        assert len(w.server.sessions) == 3
        report, took = await closing(w)
        # nothing is polled: it takes as long as the server takes to answer
        assert took < 0.001
        assert (report.closed, report.killed, report.abandoned, report.calls_left) == (3, 0, 0, 0)
        assert w.server.sessions == []
        assert w.server.count("DELETE") == 3
        assert w.server.connections == 0


async def test_clients_that_were_closed_before_are_not_in_the_report(autojump_clock):
    async with world() as w:
        await w.tool()
        await w.evict()
        await w.tool(BOB)
        report, _ = await closing(w)
        assert (report.closed, report.killed, report.abandoned) == (1, 0, 0)


async def test_a_list_that_waits_for_its_plan_is_refused_when_the_pool_is_left():
    async with world() as w, trio.open_nursery() as nursery:
        await w.tool()
        hold = w.host.hold_plan = HostHold()
        listing = start(nursery, lambda: w.pool.tools(ALICE, "files", refresh=True))
        with trio.fail_after(5):
            await hold.reached.wait()
        await closing(w)
        await listing.refusal("pool-closed")


async def test_a_call_that_waits_for_its_credential_is_refused_at_once(autojump_clock):
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_credential = HostHold()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        report, took = await closing(w)
        error = await call.refusal("pool-closed")
        assert error.happened is w.pool.closed_by
        assert (error.happened.kind, error.happened in w.pool.records.events) == ("closing", True)
        assert took < 0.5
        assert (report.closed, report.calls_left) == (1, 0)


async def test_leaving_ends_with_the_last_call_where_there_is_no_client(autojump_clock):
    async with world(pool={"max_in_flight": 1}, tools=slow()) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        await w.evict()
        hold = w.host.hold_plan = HostHold()
        call = start(nursery, lambda: listed["echo"].call(identity=ALICE))
        await hold.reached.wait()
        report, took = await closing(w)
        await call.refusal("pool-closed")
        assert took < 0.5
        assert (report.closed, report.killed, report.calls_left) == (0, 0, 0)


async def test_what_was_sent_settles_and_what_was_not_is_refused(autojump_clock):
    async with world(tools=slow(), pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        running = start(nursery, lambda: listed["slow"].call(identity=ALICE))
        await w.server.wait_for("tools/call")
        waiting = start(nursery, lambda: listed["echo"].call(identity=ALICE))
        w.server.on("initialize", Delay(3))
        opening = start(nursery, lambda: w.pool.tools(BOB))
        w.server.on("tools/list", Delay(3))
        listing = start(nursery, lambda: w.pool.refresh(ALICE))
        await until(lambda: w.server.count("tools/list") == 2)
        report, took = await closing(w)
        assert 1.5 < took < 2.1
        assert (await running.answer()).text == "{}"
        await waiting.refusal("pool-closed")
        await opening.refusal("pool-closed")
        await listing.refusal("pool-closed")
        assert (report.closed, report.killed, report.abandoned, report.calls_left) == (1, 0, 0, 0)
        assert w.sent("echo") == 0
        assert len(w.server.sessions) <= 1  # the opening that was cut off had asked for one


@pytest.mark.parametrize("era", ERAS)
async def test_what_does_not_end_is_ended(era, autojump_clock):
    async with (
        world(tools=slow(), http={"era": era}, pool={"close_timeout": 4}) as w,
        trio.open_nursery() as nursery,
    ):
        listed = await w.pool.tools(ALICE)
        async with trio.open_nursery() as some:  # leaves connections that are open and idle
            for _ in range(6):
                some.start_soon(lambda: listed["echo"].call(identity=ALICE))
        sent = w.sent()
        w.server.on("tools/call", Hang(after_execution=True), tool="stuck")
        calls = [start(nursery, lambda: listed["stuck"].call(identity=ALICE)) for _ in range(3)]
        await w.server.wait_for("tools/call", sent + 3)
        report, took = await closing(w)
        assert 3.5 < took <= 4
        for call in calls:
            await call.done.wait()
            assert call.error is not None
            assert (call.error.code, call.error.delivery) == ("pool-closed", "in-doubt"), call.error
        assert (report.closed, report.killed, report.abandoned, report.calls_left) == (0, 0, 1, 3)
        assert w.pool.openings.counts.abandoned == 1
        assert w.server.executions["stuck"] == 3
        await w.server.wait_until(lambda: w.server.connections == 0)
        assert w.pool.running == {}
        assert w.pool.admission.used == 0


async def test_a_server_that_does_not_answer_the_end_of_its_session(autojump_clock):
    async with world(pool={"close_timeout": 3}) as w:
        await w.tool()
        w.server.on("DELETE", Hang())
        report, took = await closing(w)
        assert took <= 3
        assert (report.closed, report.abandoned) == (0, 1)
        await w.server.wait_until(lambda: w.server.connections == 0)


async def test_closing_that_begins_late_has_no_time_of_its_own(autojump_clock):
    async with world(tools=slow(), pool={"close_timeout": 3}) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="slow")
        w.server.on("DELETE", Hang())
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        report, took = await closing(w)
        assert took <= 3
        assert (await call.answer()).text == "{}"
        assert (report.abandoned, report.calls_left) == (1, 0)


async def test_the_end_of_a_session_is_told_with_its_credential(autojump_clock):
    async with world(credential=True) as w:
        await w.tool()
        await closing(w)
        (arrival,) = w.server.arrivals("DELETE")
        assert arrival.headers["authorization"] == "Bearer token"


async def test_settling_counts_as_work(autojump_clock):
    async with world(tools=slow()) as w:
        tool = await w.tool(name="slow")
        with trio.move_on_after(0.5):
            await tool.call(identity=ALICE)
        report, took = await closing(w)
        assert 1.4 < took < 1.6
        assert (report.closed, report.calls_left) == (1, 0)
        assert w.server.count("DELETE") == 1


# ---------------------------------------------------------------------------- the block


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
async def test_a_block_that_is_cancelled(again, autojump_clock):
    """Also then sessions end in order and what was sent may settle."""
    pool: Pool
    async with FakeServer.http(tools=slow()) as server, trio.open_nursery() as nursery:
        outer = trio.CancelScope()

        async def host() -> None:
            nonlocal pool
            with outer:
                async with afpool.open_pool([Server(name="files", plan=plan(server))]) as pool:
                    tool = (await pool.tools(ALICE))["slow"]
                    await tool.call(identity=ALICE)

        nursery.start_soon(host)
        await server.wait_for("tools/call")
        began = trio.current_time()
        if again:
            nursery.cancel_scope.deadline = began + 1
        outer.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(10):
            await server.wait_until(lambda: server.sessions == [] and server.connections == 0)
            await pool.closed.wait()
            assert 1.9 < trio.current_time() - began < 2.1
            assert server.count("DELETE") == 1
            assert server.count("notifications/cancelled") == 1
            assert pool.settling == 0
            assert pool.abandoned == 0


def plan(server: FakeServer) -> Plan:
    return Plan(transport=HttpTransport(url=server.url))


async def failing(server: FakeServer, error: Exception, scope: trio.CancelScope | None = None) -> None:
    async with afpool.open_pool([Server(name="files", plan=plan(server))]) as pool:
        await pool.tools(ALICE)
        if scope is not None:
            scope.cancel()
        raise error


async def test_an_exception_of_the_block_leaves_as_itself():
    async with FakeServer.http() as server:
        error = ValueError("mine")
        with pytest.raises(ValueError, match="mine") as caught:
            await failing(server, error)
        assert caught.value is error
        assert server.sessions == []


async def test_an_exception_of_a_block_that_is_cancelled_too():
    async with FakeServer.http() as server:
        with pytest.raises(ValueError, match="mine"), trio.CancelScope() as scope:
            await failing(server, ValueError("mine"), scope)
        assert server.sessions == []


async def test_a_group_of_the_block_is_not_wrapped():
    async with FakeServer.http() as server:
        with pytest.raises(ExceptionGroup) as caught:
            async with (
                afpool.open_pool([Server(name="files", plan=plan(server))]),
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(fails)
        assert [type(error) for error in caught.value.exceptions] == [KeyError]


async def fails() -> None:
    raise KeyError("theirs")


async def test_a_pool_that_is_opened_in_a_cancelled_scope():
    async with FakeServer.http() as server:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with afpool.open_pool([Server(name="files", plan=plan(server))]) as pool:
                await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert pool.closed.is_set()
        assert server.log == []


async def test_a_leaving_that_breaks_is_heard_and_reports_nothing(monkeypatch: pytest.MonkeyPatch):
    async def breaks(self: Background) -> afpool.CloseReport:
        raise RuntimeError("a fault of the pool's own")

    monkeypatch.setattr(Background, "_leave", breaks)
    pool: Pool
    with pytest.RaisesGroup(RuntimeError, allow_unwrapped=True, flatten_subgroups=True):
        async with world() as w:
            pool = w.pool
    assert await pool.aclose() == afpool.CloseReport(closed=0, killed=0, abandoned=0, calls_left=0)


async def test_closing_in_the_block_ends_the_pool_and_not_the_block():
    async with world() as w:
        tool = await w.tool()
        reports = []

        async def close() -> None:
            reports.append(await w.pool.aclose())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            nursery.start_soon(close)
        assert reports[0] == reports[1]
        reached = False
        for _ in range(3):
            await trio.lowlevel.checkpoint()  # would raise here if the block had been cancelled with the pool
            reached = True
        assert reached
        assert await w.pool.aclose() == reports[0]
        await refused(tool.call(identity=ALICE), "pool-closed")
        await refused(w.pool.tools(ALICE), "pool-closed")
        await refused(w.pool.refresh(BOB), "pool-closed")
        await refused(w.pool.warm(BOB), "pool-closed")
        assert w.pool.statistics().clients == 0
        assert w.sent() == 0


async def test_every_way_to_close_passes_a_checkpoint():
    async with world() as w:
        for _ in range(2):
            task = trio.lowlevel.current_task()
            before = task._schedule_points
            await w.pool.aclose()
            assert task._schedule_points > before


# ---------------------------------------------------------------------------- children


async def test_a_child_that_obeys(tmp_path):
    log = tmp_path / "log"
    async with afpool.open_pool([stdio({"tools": ["echo"]}, log)]) as pool:
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
        pids = children()
        assert FakeServer.read_child_log(log).processes["server"] in pids
        report = await pool.aclose()
        assert (report.closed, report.killed, report.abandoned) == (1, 0, 0)


async def test_a_child_that_ignores_everything():
    script = {"tools": ["echo"], "ignore_eof": True, "ignore_sigterm": True}
    async with afpool.open_pool([stdio(script)], close_timeout=1) as pool:
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
        began = trio.current_time()
        report = await pool.aclose()
        assert trio.current_time() - began <= 1.1
        assert report.killed + report.abandoned == 1


async def test_an_evicted_child_that_ignores_everything_counts_as_killed():
    script = {"tools": ["echo"], "ignore_eof": True, "ignore_sigterm": True}
    async with afpool.open_pool([stdio(script)], close_timeout=1) as pool:
        await pool.tools(ALICE)
        key = pool.key_of(ALICE, "files")
        pool.evict(key)
        with trio.fail_after(10):
            while pool.openings.clients:  # noqa: ASYNC110 -- a child's end is announced by nothing
                await trio.sleep(0.01)
        assert (pool.openings.counts.closed, pool.openings.counts.killed) == (0, 1)
        report = await pool.aclose()
        assert (report.closed, report.killed, report.abandoned) == (0, 0, 0)


async def test_a_child_that_works_until_the_end_and_ignores_everything():
    script = {**STUCK, "ignore_eof": True, "ignore_sigterm": True, "fork_child": True}
    async with afpool.open_pool([stdio(script)], close_timeout=0.8) as pool, trio.open_nursery() as nursery:
        tool = (await pool.tools(ALICE))["sleep"]
        call = start(nursery, lambda: tool.call({"seconds": 3600}, identity=ALICE))
        await until(lambda: any(running.begun for running in pool.running.values()))
        began = trio.current_time()
        report = await pool.aclose()
        assert trio.current_time() - began <= 0.9
        assert (report.closed, report.killed, report.abandoned, report.calls_left) == (0, 0, 1, 1)
        await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("pool-closed", "in-doubt")


async def test_a_child_that_is_being_opened():
    async with (
        afpool.open_pool([stdio({"silent_probe": True}, version="2026-07-28")]) as pool,
        trio.open_nursery() as nursery,
    ):
        listing = start(nursery, lambda: pool.tools(ALICE))
        before = children()
        await until(lambda: children() != before)
        began = trio.current_time()
        await pool.aclose()
        assert trio.current_time() - began < 1
        assert children() == before
        await listing.refusal("pool-closed")


async def test_a_client_that_was_killed_is_reaped():
    async with afpool.open_pool([stdio(STUCK)]) as pool, trio.open_nursery() as nursery:
        before = children()
        tool = (await pool.tools(ALICE))["sleep"]
        call = start(nursery, lambda: tool.call({"seconds": 3600}, identity=ALICE))
        await until(lambda: any(running.begun for running in pool.running.values()))
        (client,) = pool.openings.clients
        assert pool.kill(client)
        await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("client-closed", "in-doubt"), call.error
        await until(lambda: not pool.openings.clients and children() == before)
        assert not pool.kill(client)


# ---------------------------------------------------------------------------- the process


async def test_two_pools_in_one_process():
    async with world() as first, world() as second:
        await (await first.tool()).call(identity=ALICE)
        tool = await second.tool()
        await first.pool.aclose()
        await tool.call(identity=ALICE)
        assert (first.sent(), second.sent()) == (1, 1)
        # a tool of the one does not run on the other: it holds its own
        assert tool.binding.actor.pool is second.pool


async def test_signals_and_the_root_logger_are_the_apps():
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    root = logging.root
    before = list(root.handlers), root.level, list(root.filters), logging.root.manager.disable
    async with world() as w:
        await (await w.tool()).call(identity=ALICE)
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
    assert (list(root.handlers), root.level, list(root.filters), logging.root.manager.disable) == before


async def test_a_hundred_pools_leave_nothing():
    async with FakeServer.http() as server:
        await open_and_close(server)
        gc.collect()
        before = descriptors()
        for _ in range(100):
            await open_and_close(server)
        await server.wait_until(lambda: server.connections == 0)
        gc.collect()
        assert descriptors() <= before
        assert server.sessions == []


async def open_and_close(server: FakeServer) -> None:
    async with afpool.open_pool([Server(name="files", plan=plan(server))]) as pool:
        tool: BoundTool = (await pool.tools(ALICE))["echo"]
        await tool.call(identity=ALICE)


async def test_a_call_that_the_server_holds_is_answered_while_the_pool_closes(autojump_clock):
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = trio.Event()
        w.server.on("tools/call", Hold(released))
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        nursery.start_soon(w.pool.aclose)
        await trio.sleep(1)
        released.set()
        assert (await call.answer()).text == "{}"
        await w.pool.closed.wait()
