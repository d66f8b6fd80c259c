"""What only these tests see: breaks that leave every refusal as it is, and cost something else.

A refused call must not only be refused. It must not wait for a place first, ask for a credential, have
something signed, open a connection or ask for a list; and what was sent must be said to have been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import Identity, Plan
from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.client._stream_channel import StreamChannel
from afpool.client._trip import Rpc
from afpool.testing import Drop, FakeTool, Status, Truncate, echo_tool
from afpool.testing import Hold as HoldAnswer
from afpool.transports import memory_link_pair
from tests.pool.kit import ALICE, Hold, memory_world, quiet, refused, start, until, world
from tests.pool.machine_books import A
from tests.pool.machine_case import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.testing import Arrival
    from tests.pool.kit import World


async def held_by_block(w: World, nursery: trio.Nursery) -> trio.Event:
    """Let a call of `block` hold a place until the event is set."""
    block = await w.tool(name="block")
    event = trio.Event()
    w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
    start(nursery, lambda: block.call(identity=ALICE))
    await w.server.wait_for("tools/call", tool="block")
    return event


# ---------------------------------------------------------------------- a refusal asks for nothing first


async def test_a_stale_call_does_not_wait_for_a_place():
    tools = [echo_tool(), FakeTool("block")]
    async with world(tools=tools, pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        event = await held_by_block(w, nursery)
        w.server.set_tools([FakeTool("echo", description="another one"), FakeTool("block")], notify=False)
        await w.pool.refresh(ALICE)
        await refused(tool.call(identity=ALICE), "stale-tools", within=2)
        event.set()


async def test_a_call_that_is_refused_after_its_wait_asks_for_no_list():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.evict()
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event), times=1)
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("initialize", 2)
        w.host.names["alice"] = "team"
        event.set()
        await call.refusal("binding-changed")
        assert w.server.count("tools/list") == 1
        quiet(w.pool)


async def test_a_second_attempt_asks_its_gate_before_it_asks_for_a_credential():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.host.asked.clear()
        w.server.on("tools/call", Status(401), times=1)
        await refused(tool.call(identity=lambda: None if w.sent() else ALICE), "identity-mismatch")
        assert (len(w.host.asked), w.sent()) == (1, 1)


async def test_a_gate_that_closed_while_the_credential_came_lets_nothing_be_signed():
    signed: list[Any] = []

    async def sign(request: Any) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        signed.append(request)
        return {}

    async with world(credential=True, signer=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        w.host.sign = sign  # type: ignore[method-assign]
        hold = w.host.hold_credential = Hold()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        w.host.names["alice"] = "team"
        hold.let_go.set()
        await call.refusal("binding-changed")
        assert not signed


async def test_a_gate_that_closed_while_it_was_signed_lets_nothing_be_connected():
    async with world(signer=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_signature = Hold()
        w.server.close_idle_connections()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        connected = w.server.connections_total
        w.host.names["alice"] = "team"
        hold.let_go.set()
        await call.refusal("binding-changed")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert w.server.connections_total == connected


# ---------------------------------------------------------------------- openings


async def test_a_hundred_first_calls_ask_for_one_plan():
    """An opening that was overtaken stops at its plan, so the server would not see it."""
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.evict()
        asked = w.host.planned
        calls = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(100)]
        for call in calls:
            await call.answer()
        assert w.host.planned == asked + 1


async def test_nothing_is_opened_while_an_evicted_client_closes():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        event = trio.Event()
        w.server.on("DELETE", HoldAnswer(event), times=1)
        w.pool.evict(tool.binding.actor.key)
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("DELETE")
        await until(lambda: w.pool.waiting == 1)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert w.server.count("initialize") == 1
        event.set()
        await call.answer()
        assert w.server.count("initialize") == 2


def test_evict_leaves_the_client_of_a_busy_key_in_place():
    case = Case()
    client, _ = case.ready(1)
    case.evict()
    assert case.machine.client.handle is client


def test_the_client_of_an_overtaken_opening_is_closed():
    case = Case()
    asker = case.admit(A)
    (opening,) = case.openings.values()
    case.plan(opening, "A")
    case.cancel(asker)
    case.settle(asker)
    case.admit(A)
    late = case.opened(opening)
    assert late.told
    assert case.machine.client is None


# ---------------------------------------------------------------------- single predicates of the recheck


async def test_a_client_of_another_plan_is_refused_at_the_gate():
    """Admission compares as well; the gate does not rely on it."""
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_credential = Hold()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        (client,) = w.pool.openings.clients.values()
        client.context = "pc:another"
        hold.let_go.set()
        await call.refusal("binding-changed")
        assert w.sent() == 0


async def test_a_crash_of_the_actor_refuses_what_was_not_sent_and_leaves_what_was():
    async with (
        world(tools=[echo_tool(), FakeTool("block")], credential=True) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool()
        block = await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        sent = start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call", tool="block")
        hold = w.host.hold_credential = Hold()
        unsent = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        tool.binding.actor.tell(object())  # no message of the machine's: its turn crashes
        hold.let_go.set()
        await unsent.refusal("actor-crashed")
        waiting = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: w.pool.waiting == 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert w.server.count("initialize") == 1, "the old places are not given back yet"
        event.set()
        assert not (await sent.answer()).is_error
        await waiting.answer()
        assert (w.sent(), w.server.count("initialize")) == (1, 2)
        await until(lambda: not w.pool.settling)
        quiet(w.pool)


async def test_a_pool_that_is_closing_is_refused_at_the_gate():
    """Closing ends the waits of calls too; the gate does not rely on it."""
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_credential = Hold()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        w.pool.closing = True
        hold.let_go.set()
        try:
            await call.refusal("pool-closed")
        finally:
            w.pool.closing = False
        assert w.sent() == 0


async def test_a_deadline_ends_a_wait_that_nothing_else_ends(autojump_clock):
    tools = [echo_tool(), FakeTool("block")]
    with trio.fail_after(100):
        async with world(tools=tools, pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
            tool = await w.tool()
            event = await held_by_block(w, nursery)
            before = trio.current_time()
            await refused(tool.call(identity=ALICE, deadline=before + 2), "deadline-exceeded")
            assert 2 <= trio.current_time() - before < 2.5
            event.set()


async def test_a_call_that_is_withdrawn_inside_a_recheck_is_refused_by_it():
    async with world() as w:
        tool = await w.tool()
        w.host.names["alice"] = lambda: w.pool.cancel("c") and None
        await refused(tool.call(identity=ALICE, call_id="c"), "cancelled")
        assert w.sent() == 0


async def test_the_plan_is_asked_for_the_projection_only():
    async with world(server={"keyed_on": ("tenant",)}) as w:
        seen: list[Identity] = []
        plan = w.host.plan

        async def recording(server: str, projection: Identity) -> Plan:
            seen.append(projection)
            return await plan(server, projection)

        w.pool.plan = recording
        await (await w.tool()).call(identity=ALICE)
        assert seen == [Identity(tenant="acme")]


# ---------------------------------------------------------------------- places of calls that ended early


@pytest.mark.parametrize("how", ["cancelled", "withdrawn", "late"])
async def test_the_place_of_a_sent_call_is_free_when_its_answer_has_come(how, autojump_clock):
    event = trio.Event()

    async def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str:
        await event.wait()
        return "late"

    tools = [echo_tool(), FakeTool("block", handler, cancellable=False)]
    with trio.fail_after(100):
        async with world(tools=tools, pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
            tool, block = await w.tool(), await w.tool(name="block")
            scope = trio.CancelScope()

            async def run() -> None:
                with scope:
                    await block.call(identity=ALICE, call_id="c", deadline=trio.current_time() + 3)

            call = start(nursery, run)
            await w.server.wait_for("tools/call", tool="block")
            if how == "cancelled":
                scope.cancel()
            elif how == "withdrawn":
                w.pool.cancel("c")
            await call.done.wait()
            use = w.pool.records.uses[-1]
            code = {"late": "deadline-exceeded"}.get(how, "cancelled")
            assert (use.code, use.delivery) == (code, "in-doubt")
            following = start(nursery, lambda: tool.call(identity=ALICE))
            await until(lambda: w.pool.waiting == 1)
            await trio.sleep(2)
            assert w.sent() == 0, "the place is the sent request's"
            event.set()
            await following.answer()
            await until(lambda: not w.pool.settling)
            quiet(w.pool)
            # a place that is given back twice is refused to be taken twice, and counted
            assert tool.binding.actor.info().counts.refused_tells == 0


async def test_a_call_that_is_answered_gives_its_place_back_once():
    async with world() as w:
        tool = await w.tool()
        for _ in range(3):
            await tool.call(identity=ALICE)
        quiet(w.pool)
        assert tool.binding.actor.info().counts.refused_tells == 0


# ---------------------------------------------------------------------- delivery, and at most once

IN_DOUBT = {
    "500": (Status(500, after_execution=True), "server-failed"),
    "502": (Status(502, after_execution=True), "server-failed"),
    "503": (Status(503, headers={"retry-after": "0"}, after_execution=True), "server-failed"),
    "504": (Status(504, after_execution=True), "server-failed"),
    "dropped": (Drop(after_execution=True), "connection-lost"),
    "reset": (Drop(reset=True, after_execution=True), "connection-lost"),
    "truncated": (Truncate(), "connection-lost"),
}


@pytest.mark.parametrize("how", IN_DOUBT)
async def test_what_is_in_doubt_is_said_so_and_not_sent_again(how):
    action, code = IN_DOUBT[how]
    async with world() as w:
        tool = await w.tool()
        w.server.on("tools/call", action, times=1)
        await refused(tool.call(identity=ALICE), code, "in-doubt")
        assert (w.sent(), w.server.executions["echo"]) == (1, 1)
        await tool.call(identity=ALICE)
        quiet(w.pool)


async def test_each_call_that_meets_a_lost_session_is_told_so():
    """The first one's end replaces the client; the second one's verdict is still that of its own answer."""
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), times=2)
        w.server.on("tools/call", Status(404), times=2)
        calls = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(2)]
        await w.server.wait_for("tools/call", 2)
        event.set()
        for call in calls:
            with trio.fail_after(5):
                await call.done.wait()
            assert call.error is not None
            assert (call.error.code, call.error.delivery) == ("session-expired", "refused")
        await tool.call(identity=ALICE)
        assert w.server.executions["echo"] == 1


# ---------------------------------------------------------------------- a shared stream


async def test_what_a_cancelled_caller_left_in_the_outbox_never_leaves():
    async with memory_world() as (memory, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        (wire,) = memory.wires
        channel = wire._outgoing
        room, channel.capacity = channel.capacity, 0
        with trio.move_on_after(0.01):
            await tool.call({"n": 1}, identity=ALICE)
        channel.capacity = room
        channel.writers.unpark_all()
        await tool.call({"n": 2}, identity=ALICE)
        assert [arrival.arguments["n"] for arrival in memory.ledger.find("tools/call", "echo")] == [2]
        quiet(pool)


async def test_a_late_answer_is_nobody_elses(nursery):
    ours, theirs = memory_link_pair()
    channel = StreamChannel(ours, 1000, Seams())
    nursery.start_soon(channel.link.run)
    answers: list[Any] = []

    async def ask() -> None:
        trip = channel.trip(Rpc("tools/call", b"{}"), [])
        answers.append(await trip.run(OpenGate(), trio.current_time() + 60))

    with trio.fail_after(5):
        given_up = channel.trip(Rpc("tools/call", b"{}"), [])
        with trio.move_on_after(0.01):
            await given_up.run(OpenGate(), trio.current_time() + 60)
        given_up.close()
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        theirs._write(b'{"jsonrpc":"2.0","id":%d,"result":{"late":true}}\n' % given_up.request_id)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        assert channel.dropped == 1
        theirs._write(b'{"jsonrpc":"2.0","id":%d,"result":{"late":false}}\n' % (given_up.request_id + 1))
        await trio.testing.wait_all_tasks_blocked()
    assert bytes(answers[0].message.result) == b'{"late":false}'
    channel.link.close()
