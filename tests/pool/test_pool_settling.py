"""After the first byte: who holds the place, until when, and what is told to whom. Time is virtual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool.pool import _messages as m
from afpool.pool import _operation
from afpool.pool._settle import give_back
from afpool.testing import (
    Drop,
    FakeTool,
    Hang,
    Hold,
    HoldStream,
    Status,
    echo_tool,
    sleep_tool,
)
from tests.pool.kit import ALICE, World, memory_world, quiet, refused, start, until, world

if TYPE_CHECKING:
    import afpool
    from afpool import BoundTool, Pool

ERAS = ("handshake", "stateless")


def slow(seconds: float = 3, *, cancellable: bool = False) -> FakeTool:
    """Answers after a while, whatever is withdrawn meanwhile."""
    return FakeTool("slow", delay=seconds, cancellable=cancellable)


def stubborn() -> list[FakeTool]:
    return [slow(), echo_tool()]


async def given_up(tool: BoundTool, after: float = 1, **options: Any) -> None:
    """Call, and be cancelled; the caller must be back at once."""
    began = trio.current_time()
    with trio.move_on_after(after) as scope:
        await tool.call(identity=ALICE, **options)
    assert scope.cancelled_caught
    assert trio.current_time() - began < after + 0.05


async def late(tool: BoundTool, seconds: float = 1) -> afpool.AfpoolError:
    began = trio.current_time()
    error = await refused(
        tool.call(identity=ALICE, deadline=began + seconds), "deadline-exceeded", "in-doubt"
    )
    assert trio.current_time() - began < seconds + 0.05
    return error


def kinds(pool: Pool) -> list[str]:
    return [event.kind for event in pool.records.events]


def places(pool: Pool) -> int:
    return sum(actor.machine.in_flight for actor in pool.actors())


# ---------------------------------------------------------------------------- until the answer


async def test_the_place_is_held_until_the_late_answer_and_the_connection_used_again(autojump_clock):
    async with world(tools=stubborn()) as w:
        listed = await w.pool.tools(ALICE)
        await given_up(listed["slow"])
        assert (places(w.pool), w.pool.settling, w.pool.admission.used) == (1, 1, 1)
        (arrival,) = await w.server.wait_for("notifications/cancelled")
        call = w.server.arrivals("tools/call")[0]
        assert arrival.params["requestId"] == call.id
        await trio.sleep(1.9)
        assert places(w.pool) == 1
        await trio.sleep(0.2)
        quiet(w.pool)
        connections = w.server.connections_total
        await listed["echo"].call(identity=ALICE)
        await listed["echo"].call(identity=ALICE)
        assert w.server.connections_total == connections
        use = w.pool.records.uses[-3]
        assert (use.outcome, use.delivery, use.code) == ("cancelled", "in-doubt", "cancelled")
        assert w.pool.abandoned == 0
        assert w.server.executions["slow"] == 1


async def test_closing_the_response_stream_is_the_cancel(autojump_clock):
    async with world(tools=[slow(cancellable=True), echo_tool()], http={"era": "stateless"}) as w:
        listed = await w.pool.tools(ALICE)
        await given_up(listed["slow"])
        quiet(w.pool)
        await w.server.wait_until(lambda: len(w.server.cancelled) == 1)
        assert w.server.cancelled == [w.server.arrivals("tools/call")[0].id]
        assert w.server.count("notifications/cancelled") == 0
        await listed["echo"].call(identity=ALICE)


@pytest.mark.parametrize("seconds", [3, 60])
async def test_on_a_shared_stream_the_place_is_free_after_the_answer_or_the_grace(seconds, autojump_clock):
    async with memory_world(tools=[slow(seconds), echo_tool()], pool={"cancel_grace": 5}) as (
        server,
        _,
        pool,
    ):
        listed = await pool.tools(ALICE)
        await given_up(listed["slow"])
        await until(lambda: len(server.ledger.cancelled) == 1)
        assert places(pool) == 1
        held_for = min(seconds - 1, 5)
        await trio.sleep(held_for - 0.1)
        assert places(pool) == 1
        await trio.sleep(0.2)
        quiet(pool)
        assert pool.abandoned == 0
        await trio.sleep(seconds)  # the late answer of the second case reaches nobody
        (client,) = pool.openings.clients.values()
        assert client.channel.dropped == (1 if seconds == 60 else 0)
        assert (await listed["echo"].call({"n": 1}, identity=ALICE)).text == '{"n": 1}'


async def test_the_grace_begins_when_the_notice_has_left(autojump_clock):
    """A child that reads nothing cannot know that a call was withdrawn: its place stays taken."""
    async with memory_world(tools=stubborn(), pool={"cancel_grace": 5, "settle_timeout": 30}) as (
        server,
        _,
        pool,
    ):
        tool = (await pool.tools(ALICE))["slow"]
        outgoing = server.wires[0]._outgoing
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: tool.call(identity=ALICE))
                await until(lambda: server.ledger.count("tools/call") == 1)
                outgoing.capacity = 0
                await trio.sleep_forever()
        server.engine.rules.rules.clear()
        assert not server.ledger.cancelled
        assert places(pool) == 1
        await trio.sleep(1)
        assert places(pool) == 1
        await trio.sleep(1.1)  # the answer came all the same
        quiet(pool)


async def test_a_notice_that_never_leaves_ends_in_an_abandonment(autojump_clock):
    async with memory_world(tools=[slow(3600)], pool={"cancel_grace": 5, "settle_timeout": 30}) as (
        server,
        _,
        pool,
    ):
        tool = (await pool.tools(ALICE))["slow"]
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: tool.call(identity=ALICE))
                await until(lambda: server.ledger.count("tools/call") == 1)
                server.wires[0]._outgoing.capacity = 0
                await trio.sleep_forever()
        await trio.sleep(29)
        assert (places(pool), pool.abandoned) == (1, 0)
        await trio.sleep(1.1)
        assert (places(pool), pool.abandoned) == (0, 1)
        quiet(pool)


# ---------------------------------------------------------------------------- other ends


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_the_end_of_the_connection_settles(how, autojump_clock):
    async with world(tools=stubborn()) as w:
        listed = await w.pool.tools(ALICE)
        w.server.on("tools/call", Hang(after_execution=True), tool="slow")
        await given_up(listed["slow"])
        await trio.sleep(1)
        assert places(w.pool) == 1
        w.server.close_connections(reset=how == "reset")
        await until(lambda: places(w.pool) == 0)
        quiet(w.pool)
        assert (w.pool.abandoned, w.pool.records.failures) == (0, 0)
        assert w.pool.statistics().clients == 1


async def test_an_unreadable_late_answer_settles(autojump_clock):
    async with world(tools=stubborn(), pool={"max_message": 5000}) as w:
        listed = await w.pool.tools(ALICE)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="slow")
        w.server.on("tools/call", Drop(), tool="slow")
        await given_up(listed["slow"])
        released.set()
        await until(lambda: places(w.pool) == 0)
        quiet(w.pool)
        assert (w.pool.abandoned, w.pool.records.failures) == (0, 0)


async def test_the_end_of_the_stream_settles(autojump_clock):
    async with memory_world(tools=[slow(3600)], pool={"cancel_grace": 3600, "settle_timeout": 3600}) as (
        server,
        _,
        pool,
    ):
        tool = (await pool.tools(ALICE))["slow"]
        await given_up(tool)
        await trio.sleep(1)
        assert places(pool) == 1
        server.wires[0]._incoming.writer_gone = True
        server.wires[0]._incoming.readers.unpark_all()
        await until(lambda: places(pool) == 0)
        quiet(pool)
        assert (pool.abandoned, pool.records.failures) == (0, 0)


async def test_an_answer_that_never_comes_is_abandoned_and_counted(autojump_clock):
    async with world(tools=stubborn(), pool={"settle_timeout": 30}) as w:
        listed = await w.pool.tools(ALICE)
        w.server.on("tools/call", Hang(), tool="slow")
        await given_up(listed["slow"])
        await trio.sleep(29.9)
        assert (places(w.pool), w.pool.statistics().abandoned) == (1, 0)
        await trio.sleep(0.2)
        statistics = w.pool.statistics()
        assert (places(w.pool), statistics.abandoned, statistics.actors[0].abandoned) == (0, 1, 1)
        quiet(w.pool)
        for n in range(5):
            assert (await listed["echo"].call({"n": n}, identity=ALICE)).text == f'{{"n": {n}}}'


# ---------------------------------------------------------------------------- deadlines


async def test_a_deadline_before_the_first_byte(autojump_clock):
    async with world(tools=stubborn(), credential=True) as w:
        tool = await w.tool()
        w.host.hold_credential = hold = afpool_hold()
        began = trio.current_time()
        await refused(tool.call(identity=ALICE, deadline=began + 2), "deadline-exceeded")
        assert trio.current_time() - began < 2.05
        assert hold.reached.is_set()
        assert w.sent() == 0
        quiet(w.pool)


def afpool_hold() -> Any:
    from tests.pool.kit import Hold as HostHold

    return HostHold()


@pytest.mark.parametrize("era", ERAS)
async def test_a_deadline_after_the_first_byte(era, autojump_clock):
    async with world(tools=stubborn(), http={"era": era}) as w:
        listed = await w.pool.tools(ALICE)
        await late(listed["slow"])
        use = w.pool.records.uses[-1]
        assert (use.outcome, use.delivery, use.code) == ("failed", "in-doubt", "deadline-exceeded")
        await until(lambda: places(w.pool) == 0)
        quiet(w.pool)


async def test_a_notice_that_gets_stuck_holds_up_nobody(autojump_clock):
    async with world(tools=stubborn(), pool={"max_operations": 2}) as w:
        listed = await w.pool.tools(ALICE)
        w.server.on("notifications/cancelled", Hang())
        await late(listed["slow"], 2)
        await w.server.wait_for("notifications/cancelled")
        began = trio.current_time()
        await listed["echo"].call(identity=ALICE)
        assert trio.current_time() - began < 0.1
        await trio.sleep(3)
        quiet(w.pool)
        # the client's own requests have one connection for themselves; it is free again after a while
        began = trio.current_time()
        await w.pool.refresh(ALICE)
        assert trio.current_time() - began < 5.1


# ---------------------------------------------------------------------------- suspicion


@pytest.mark.parametrize("alive", [True, False])
async def test_two_abandonments_in_a_row_make_a_client_suspect(alive, autojump_clock):
    async with world(tools=[slow(3600), echo_tool(), sleep_tool()]) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        w.server.on("tools/call", Hang(), tool="slow")
        await given_up(listed["slow"])
        await trio.sleep(31)
        assert "suspect" not in kinds(w.pool)
        if not alive:
            w.server.on("ping", Hang())
        sibling = start(nursery, lambda: listed["sleep"].call({"seconds": 45}, identity=ALICE))
        await given_up(listed["slow"])
        await trio.sleep(31)
        assert kinds(w.pool).count("suspect") == 1
        assert w.server.count("ping") == 1
        assert w.pool.abandoned == 2
        await trio.sleep(6)
        await listed["echo"].call(identity=ALICE)
        assert w.pool.statistics().opened == (1 if alive else 2)
        with trio.fail_after(30):
            await sibling.done.wait()
        assert sibling.value.text == "slept 45"
        await until(lambda: w.pool.statistics().clients == 1)
        quiet(w.pool)


@pytest.mark.parametrize("sign", ["answer", "status"])
@pytest.mark.parametrize("era", ERAS)
async def test_three_time_outs_in_a_row_make_a_client_suspect(era, sign, autojump_clock):
    async with world(tools=stubborn(), http={"era": era}) as w:
        listed = await w.pool.tools(ALICE)
        w.server.on("tools/call", Hang(), tool="slow")
        for _ in range(2):
            await late(listed["slow"])
        if sign == "status":
            w.server.on("tools/call", Status(500), tool="echo", times=1)
            await refused(listed["echo"].call(identity=ALICE), "server-failed", "in-doubt")
        else:
            await listed["echo"].call(identity=ALICE)
        for _ in range(2):
            await late(listed["slow"])
        assert "suspect" not in kinds(w.pool)
        asked = w.server.count("server/discover")
        await late(listed["slow"])
        await until(lambda: "suspect" in kinds(w.pool))
        await w.server.wait_until(lambda: w.server.count("ping") + w.server.count("server/discover") > asked)
        await listed["echo"].call(identity=ALICE)
        assert w.pool.statistics().opened == 1


async def test_a_host_that_withdraws_says_nothing_of_the_server(autojump_clock):
    # where closing the response stream is the cancel there is no answer that could be a sign of life
    async with world(tools=stubborn(), http={"era": "stateless"}) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        w.server.on("tools/call", Hang(), tool="slow")
        for n in range(4):
            outcome = start(nursery, lambda: listed["slow"].call(identity=ALICE, call_id="c"))
            await w.server.wait_for("tools/call", n + 1)
            assert w.pool.cancel("c")
            await outcome.done.wait()
            assert outcome.error is not None
            assert (outcome.error.code, outcome.error.delivery) == ("cancelled", "in-doubt")
        await until(lambda: places(w.pool) == 0)
        assert "suspect" not in kinds(w.pool)
        assert not w.pool.cancel("c")


async def test_a_place_that_is_given_back_twice_is_counted_and_changes_nothing():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=1)
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        actor = tool.binding.actor
        (ticket,) = w.pool.running
        actor.tell(m.Settle(999_999_999, held=True))
        assert actor.info().counts.refused_tells == 1
        assert actor.machine.in_flight == 1
        released.set()
        await outcome.answer()
        actor.tell(m.Settle(ticket, held=True))
        assert actor.info().counts.refused_tells == 2
        quiet(w.pool)


async def test_an_open_stream_without_an_answer_is_ended_by_the_deadline(autojump_clock):
    async with world(tools=stubborn()) as w:
        tool = await w.tool()
        w.server.on(
            "tools/call", HoldStream([{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}])
        )
        await late(tool, 2)
        await check_free_after(w, 31)


async def check_free_after(w: World, seconds: float) -> None:
    await trio.sleep(seconds)
    quiet(w.pool)


# ---------------------------------------------------------------------------- whatever happens


async def test_a_call_that_breaks_unforeseen_has_failed_and_holds_nothing(monkeypatch: pytest.MonkeyPatch):
    async def breaks(call: Any) -> bytes:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a fault of the pool's own")

    async with world() as w:
        tool = await w.tool()
        monkeypatch.setattr(_operation, "_steps", breaks)
        with pytest.raises(RuntimeError):
            await tool.call(identity=ALICE)
        (use,) = w.pool.records.uses
        assert (use.outcome, use.code) == ("failed", None)
        quiet(w.pool)


async def test_what_a_call_has_given_back_it_does_not_give_back_again():
    async with world(tools=stubborn()) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="slow")
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        (call,) = w.pool.running.values()
        await outcome.answer()
        quiet(w.pool)
        other = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call", 2)
        used = w.pool.admission.used
        give_back(call, answered=True)
        assert (w.pool.admission.used, tool.binding.actor.machine.in_flight) == (used, 1), "the other one's"
        await other.answer()
        quiet(w.pool)
