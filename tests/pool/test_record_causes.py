"""What a use says of its waits and of its end: which opening, which failure, whose places, which change.

`test_pool_gates` holds every change at every wait; here stand the facts beside that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import ToolContext, Use
from afpool.pool._records import size_of
from afpool.testing import (
    Delay,
    FakeTool,
    Hang,
    JsonRpcError,
    Result,
    Rule,
    Status,
    echo_tool,
)
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import (
    ALICE,
    BOB,
    CAROL,
    Hold,
    memory_world,
    quiet,
    raises,
    refused,
    start,
    until,
    world,
)

if TYPE_CHECKING:
    from afpool import Identity, Pool
    from tests.pool.kit import World

BLOCKING = [echo_tool(), FakeTool("block")]


def last(pool: Pool) -> Use:
    return pool.records.uses[-1]


def newest(pool: Pool, kind: str) -> Any:
    return [event for event in pool.records.events if event.kind == kind][-1]


def notes(use: Use) -> list[tuple[str, str]]:
    return [(stage, word) for stage, word, _ in use.facts or ()]


async def blocked(
    w: World, nursery: trio.Nursery, who: Identity = ALICE, call_id: str = "holds"
) -> trio.Event:
    """A call that holds its place until the event is set."""
    event = trio.Event()
    tool = await w.tool(who, "block")
    before = w.sent("block")
    w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
    start(nursery, lambda: tool.call(identity=who, call_id=call_id))
    await until(lambda: w.sent("block") == before + 1)
    return event


# ---------------------------------------------------------------------------- openings


async def test_an_opening_says_for_whom_it_was_after_what_and_how_long_each_stage_took(autojump_clock):
    async with world(credential=True) as w:
        tool = await w.tool()
        assert newest(w.pool, "opened").facts.keys().isdisjoint({"call", "after"}), "the first was for a list"
        w.pool.evict(w.pool.key_of(ALICE, "files"), by="test")
        await until(lambda: not w.pool.openings.clients)
        w.server.on("initialize", Delay(0.5), times=1)
        hold, hold_plan = Hold(), Hold()
        w.host.hold_plan, w.host.hold_credential = hold_plan, hold

        async def let_go() -> None:
            for held, seconds in ((hold_plan, 0.25), (hold, 0.125)):
                await held.reached.wait()
                (under_way,) = w.pool.openings.under_way.values()
                assert under_way.stages.stage == ("plan" if held is hold_plan else "credential")
                assert under_way.call_id == "mine"
                await trio.sleep(seconds)
                held.let_go.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            await tool.call(identity=ALICE, call_id="mine")
        assert not w.pool.openings.under_way
        opened, use = newest(w.pool, "opened"), last(w.pool)
        assert use.opening == opened.number
        facts = opened.facts
        assert (facts["call"], facts["client"]) == ("mine", use.client_id)
        assert facts["after"] == newest(w.pool, "evicted").number
        assert facts["plan"] == pytest.approx(0.25)
        assert facts["credential"] == pytest.approx(0.125)
        assert facts["initialize"] == pytest.approx(0.5, abs=0.01)
        parts = sum(facts[name] for name in ("plan", "room", "connect", "credential", "initialize"))
        assert facts["took"] == pytest.approx(parts)
        await tool.call(identity=ALICE)
        assert last(w.pool).opening is None, "that one waited for nothing"


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_an_opening_on_a_stream_of_all(era):
    async with memory_world(era=era) as (_, _, pool):
        await pool.tools(ALICE)
        facts = newest(pool, "opened").facts
        assert {"took", "plan", "room", "connect", "initialize"} <= facts.keys()
        assert "credential" not in facts


async def test_an_opening_that_fails_is_the_cause_and_what_a_back_off_names(autojump_clock):
    async with world() as w:
        tool = await w.tool()
        await w.evict()
        w.server.on("initialize", Status(503))
        await refused(tool.call(identity=ALICE, call_id="first"), "open-failed")
        failed, use = newest(w.pool, "open-failed"), last(w.pool)
        assert (use.cause, use.happened, use.opening) == (failed.number, failed, failed.number)
        assert failed.facts["call"] == "first"
        assert {"took", "connect", "initialize"} <= failed.facts.keys()
        await refused(tool.call(identity=ALICE), "open-backoff")
        use = last(w.pool)
        assert (use.code, use.happened) == ("open-backoff", failed)
        assert use.opening is None, "none was tried for that one"


async def test_how_far_an_opening_was_that_a_call_waits_for_no_more(autojump_clock):
    async with world() as w:
        tool = await w.tool()
        await w.evict()
        w.server.on("initialize", HoldAnswer(trio.Event()))
        await refused(tool.call(identity=ALICE, deadline=trio.current_time() + 1), "deadline-exceeded")
        assert notes(last(w.pool)) == [("opening", "initialize")]
        with trio.move_on_after(1):
            await tool.call(identity=ALICE)
        assert (last(w.pool).outcome, notes(last(w.pool))) == ("cancelled", [("opening", "initialize")])
        assert last(w.pool).stages[-1][0] == "admission"


async def test_a_list_says_how_long_it_took(autojump_clock):
    async with world() as w:
        w.server.on("tools/list", Delay(0.5), times=1)
        tool = await w.tool()
        event = newest(w.pool, "list")
        assert event.facts["took"] == pytest.approx(0.5, abs=0.01)
        assert event.facts["client"] == tool.binding.client_id


# ---------------------------------------------------------------------------- who had to go for whom


async def test_an_eviction_says_for_whom_room_was_made():
    async with world(pool={"max_clients": 1}) as w:
        await w.tool(ALICE)
        await w.tool(CAROL)
        event = newest(w.pool, "evicted")
        assert event.facts["why"] == "room"
        assert event.facts["room_for"] == w.pool.digest.show(w.pool.key_of(CAROL, "files"))
        assert event.key == w.pool.digest.show(w.pool.key_of(ALICE, "files"))


async def test_a_client_that_goes_when_its_call_ends_says_for_whom():
    async with world(tools=BLOCKING, pool={"max_clients": 1}) as w, trio.open_nursery() as nursery:
        released = await blocked(w, nursery)
        other = start(nursery, lambda: w.tool(CAROL))
        await until(lambda: w.pool.openings.rooms.waiting == 1)
        released.set()
        await other.answer()
        event = newest(w.pool, "evicted")
        assert event.facts["why"] == "room"
        assert event.facts["room_for"] == w.pool.digest.show(w.pool.key_of(CAROL, "files"))


async def test_an_idle_client_goes_for_nobody(autojump_clock):
    async with world(pool={"idle_timeout": 5}) as w:
        await w.tool()
        await trio.sleep(10)
        assert newest(w.pool, "evicted").facts.keys() == {"client", "why"}
        assert newest(w.pool, "evicted").facts["why"] == "idle"


# ---------------------------------------------------------------------------- whose places


async def test_who_held_the_keys_places_when_a_call_began_to_wait():
    async with world(tools=BLOCKING, pool={"max_operations": 2, "max_waiting": 1}) as w:
        async with trio.open_nursery() as nursery:
            tool = await w.tool()
            events = [await blocked(w, nursery, call_id=name) for name in ("first", "second")]
            waits = start(nursery, lambda: tool.call(identity=ALICE, call_id="waits"))
            await until(lambda: w.pool.waiting == 1)
            await refused(tool.call(identity=ALICE, call_id="refused"), "overloaded")
            use = last(w.pool)
            assert (use.call_id, use.held_by) == ("refused", ("first", "second"))
            assert notes(use) == [("limit", "max_waiting")]
            for event in events:
                event.set()
            await waits.answer()
        (use,) = w.pool.records.find("waits")
        assert (use.outcome, use.held_by) == ("ok", ("first", "second"))
        assert w.pool.records.find("first")[0].held_by == ()


async def test_a_place_whose_caller_has_gone_is_still_his():
    async with world(tools=BLOCKING, pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        tool, block = await w.tool(), await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        w.server.on("notifications/cancelled", HoldAnswer(event))  # it is not what gives the place back
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_when_sent, w, scope)
            await block.call(identity=ALICE, call_id="gone")
        waits = start(nursery, lambda: tool.call(identity=ALICE, call_id="waits"))
        await until(lambda: w.pool.waiting == 1)
        event.set()
        await waits.answer()
        assert w.pool.records.find("waits")[0].held_by == ("gone",)
        assert last(w.pool).call_id == "waits"
        gone = w.pool.records.find("gone")[0]
        assert (gone.outcome, gone.delivery, gone.stages[-1][0]) == ("cancelled", "in-doubt", "server")


async def _cancel_when_sent(w: World, scope: trio.CancelScope) -> None:
    await w.server.wait_for("tools/call", tool="block")
    scope.cancel()


@pytest.mark.parametrize("shared", [True, False], ids=["no share", "a tenant's share"])
async def test_who_held_the_runtimes_places(shared):
    """Where a tenant has its share it is its own calls that are in the way, and not the others'."""
    limits = {"max_in_flight": 2} if shared else {"max_in_flight": 8, "max_share": 0.25}
    async with world(tools=BLOCKING, pool=limits) as w, trio.open_nursery() as nursery:
        tool = await w.tool(BOB)
        events = [
            await blocked(w, nursery, who, name)
            for who, name in ((CAROL, "other"), (ALICE, "first"), (BOB, "second"))[1 if shared else 0 :]
        ]
        waits = start(nursery, lambda: tool.call(identity=BOB, call_id="waits"))
        await until(lambda: w.pool.admission.waiting == 1)
        for event in events:
            event.set()
        await waits.answer()
        assert w.pool.records.find("waits")[0].held_by == ("first", "second")


async def test_who_held_the_runtimes_places_when_his_caller_had_gone(autojump_clock):
    """A place is held until the server is done, or given up on."""
    async with world(tools=BLOCKING, pool={"max_in_flight": 1}) as w, trio.open_nursery() as nursery:
        tool, block, event = await w.tool(), await w.tool(name="block"), trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        w.server.on("notifications/cancelled", HoldAnswer(event))
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_when_sent, w, scope)
            await block.call(identity=ALICE, call_id="gone")
        waits = start(nursery, lambda: tool.call(identity=ALICE, call_id="waits"))
        await until(lambda: w.pool.admission.waiting == 1)
        assert [use.call_id for use in w.pool.inside.values()] == ["gone"]
        event.set()
        await waits.answer()
        assert w.pool.records.find("waits")[0].held_by == ("gone",)
        quiet(w.pool)
        assert not w.pool.inside


async def test_finding_who_holds_the_runtimes_places_looks_at_nobody_who_waits():
    async with world(tools=BLOCKING, pool={"max_in_flight": 1, "max_operations": 50}) as w:
        async with trio.open_nursery() as nursery:
            tool = await w.tool()
            event = await blocked(w, nursery)
            waiting = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(20)]
            await until(lambda: w.pool.admission.waiting == 20)
            assert len(w.pool.inside) == 1
            event.set()
            for each in waiting:
                await each.answer()
        assert {use.held_by for use in w.pool.records.uses} == {(), ("holds",)}


# ---------------------------------------------------------------------------- ends from outside


async def test_a_client_that_is_killed_names_who_asked():
    async with world(tools=BLOCKING) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="block")
        w.server.on("tools/call", HoldAnswer(trio.Event()), tool="block", times=1)
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call", tool="block")
        assert w.pool.kill(tool.binding.client_id, by="console uid 1000")
        await outcome.done.wait()
        use = last(w.pool)
        assert (use.code, use.delivery) == ("client-closed", "in-doubt")
        assert (use.happened.kind, use.happened.facts["by"]) == ("killed", "console uid 1000")
        assert use.happened.key == tool.binding.actor.shown


async def test_a_stream_that_ends_names_that():
    async with memory_world(tools=BLOCKING) as (server, _, pool), trio.open_nursery() as nursery:
        tool = (await pool.tools(ALICE))["block"]
        server.engine.rules.add(Rule("tools/call", Hang()))
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: last_sent(pool))
        server.wires[-1].close()
        await outcome.done.wait()
        use = last(pool)
        assert (use.code, use.delivery) == ("session-handle-lost", "in-doubt")
        assert use.happened == newest(pool, "client-lost")
        nursery.cancel_scope.cancel()


def last_sent(pool: Pool) -> bool:
    return any(call.begun for call in pool.running.values())


async def test_a_deadline_that_passes_while_admission_is_held_names_who_holds_it(autojump_clock):
    async with world() as w:
        tool = await w.tool()
        key = w.pool.key_of(ALICE, "files")

        async def late() -> Use:
            await refused(tool.call(identity=ALICE, deadline=trio.current_time() + 1), "deadline-exceeded")
            return last(w.pool)

        w.pool.pause(key, by="me")
        assert (await late()).happened == newest(w.pool, "paused")
        w.pool.resume(key)
        w.pool.pause_server("files", by="you")
        use = await late()
        assert use.happened == newest(w.pool, "paused")
        assert (use.happened.key, use.happened.server, use.happened.facts) == ("", "files", {"by": "you"})
        w.pool.resume_server("files")
        await tool.call(identity=ALICE)
        assert last(w.pool).happened is None


async def test_a_deadline_in_the_wait_for_a_list_is_no_stale_list(autojump_clock):
    async with world() as w:
        tool = await w.tool()
        await w.announce(tool)
        w.server.on("tools/list", HoldAnswer(trio.Event()), times=1)
        await refused(tool.call(identity=ALICE, deadline=trio.current_time() + 1), "deadline-exceeded")
        use = last(w.pool)
        assert (notes(use), use.stages[-1][0], use.happened) == ([], "list", None)


# ---------------------------------------------------------------------------- what a tool has become


@pytest.mark.parametrize("gone", [False, True], ids=["another definition", "gone"])
async def test_what_has_become_of_a_tool_is_written_when_the_announced_list_is_there(gone):
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_credential = Hold()
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        before = tool.binding.list.notices
        w.server.set_tools(
            [FakeTool("other")] if gone else [FakeTool("echo", description="else")], notify=False
        )
        await w.announce(tool)
        assert tool.binding.list.notices > before
        hold.let_go.set()
        await outcome.refusal("stale-tools")
        use = last(w.pool)
        assert (use.was, use.became) == (None, None), "nobody has looked yet"
        assert use.happened == newest(w.pool, "list-changed")
        await w.pool.tools(ALICE)
        assert use.was is tool.binding.definition
        if gone:
            assert use.became is None
        else:
            assert use.became is not None
            assert use.became.description == "else"
        assert notes(use) == [("generation", "2")]
        assert tool.binding.list.curious is None


async def test_a_change_that_is_announced_of_a_list_of_another_client_is_not_known_either():
    """The call went on under the list of the next client, where its tool was what it had been."""
    async with (
        world(credential=True, server={"on_list_change": "recheck"}) as w,
        trio.open_nursery() as nursery,
    ):
        tool = await w.tool()
        await w.evict()
        again = await w.tool()
        assert again.binding.list is not tool.binding.list
        hold = w.host.hold_credential = Hold()
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        w.server.set_tools([FakeTool("echo", description="else")], notify=False)
        await w.announce(again)
        hold.let_go.set()
        await outcome.refusal("stale-tools")
        use = last(w.pool)
        assert (use.was, use.became) == (None, None), "nobody has looked yet"
        size = use.kept
        await w.pool.tools(ALICE)
        assert use.was is tool.binding.definition
        assert use.became is not None
        assert use.became.description == "else"
        assert use.kept == size_of(use) > size + len(use.was.raw) + len(use.became.raw)
        assert w.pool.records.bytes == sum(each.kept for each in w.pool.records.uses)


async def test_what_has_become_of_a_tool_is_not_written_where_the_call_got_over_it():
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool, use = await w.tool(), Use("mine", "", "", trio.current_time())
        hold = w.host.hold_credential = Hold()
        ctx = ToolContext(identity=ALICE, call_id="mine", use=use)
        outcome = start(nursery, lambda: tool.execute({}, ctx))
        await hold.reached.wait()
        await w.announce(tool)
        hold.let_go.set()
        await outcome.refusal("stale-tools")
        use.outcome, use.code = "ok", None
        w.pool.records.file(use)
        w.server.set_tools([FakeTool("echo", description="else")], notify=False)
        await w.pool.tools(ALICE)
        assert (use.was, use.became, notes(use)) == (None, None, [])


async def test_not_every_refusal_of_a_flood_is_waited_for():
    async with world(tools=BLOCKING, credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        for _ in range(40):
            hold = w.host.hold_credential = Hold()
            outcome = start(nursery, lambda: tool.call(identity=ALICE))
            await hold.reached.wait()
            if not tool.binding.list.noticed:
                await w.announce(tool)
            w.server.on("tools/list", HoldAnswer(trio.Event()))
            hold.let_go.set()
            await outcome.refusal("stale-tools")
            tool.binding.list.noticed = (
                False  # as if nothing had been announced, for the next one's beginning
            )
            tool.binding.list.notices = tool.binding.list.notices_asked
        assert len(tool.binding.list.curious or ()) == 32


# ---------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("actions", "code", "words"),
    [
        ([Status(429, headers={"retry-after": "0"})], None, ["http 429"]),
        ([Status(503)], "server-failed", ["http 503"]),
        ([JsonRpcError(-32602, "no")], "server-error", ["error -32602"]),
        ([JsonRpcError(-32002, "no"), JsonRpcError(-32603, "no")], "server-error", ["error -32002"]),
        ([Status(404)], "session-expired", ["http 404 session"]),
    ],
)
async def test_every_answer_without_a_result_is_noted(actions, code, words, autojump_clock):
    async with world() as w:
        tool = await w.tool()
        for action in actions:
            w.server.on("tools/call", action, times=1)
        if code is None:
            await tool.call(identity=ALICE)
        else:
            with pytest.raises(Exception, match=code):
                await tool.call(identity=ALICE)
        assert notes(last(w.pool)) == [("answer", word) for word in words]


async def test_whose_code_raised_is_named_by_its_class():
    async with world(signer=True, credential=True) as w:
        tool = await w.tool()
        w.host.fail_credential = KeyError("secret")
        await refused(tool.call(identity=ALICE), "credential-failed")
        assert notes(last(w.pool)) == [("credential", "KeyError")]
        w.host.fail_credential = None
        w.host.names["alice"] = raises(ZeroDivisionError("secret"))
        await refused(tool.call(identity=ALICE), "share-failed")
        assert notes(last(w.pool)) == [("share", "ZeroDivisionError")]
        w.host.names.clear()
        await w.evict()
        w.host.transport = lambda host, projection: raises(LookupError("secret"))()
        await refused(tool.call(identity=ALICE), "plan-failed")
        assert notes(last(w.pool)) == [("admission", "plan-failed"), ("plan", "LookupError")]
        assert newest(w.pool, "open-failed").facts["why"] == "plan-failed"


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ({"content": [], "isError": True}, True),
        ({"content": [], "isError": False}, False),
        ({"content": [{"type": "text", "text": '"isError": true'}]}, False),
        ({"content": [], "structuredContent": {"isError": True}}, False),
        ({"structuredContent": {"isError": False}, "content": [], "isError": True}, True),
        ({"content": []}, False),
    ],
)
async def test_whether_the_tool_said_that_it_failed(result, failed):
    async with world() as w:
        tool = await w.tool()
        w.server.on("tools/call", Result(result), times=1)
        answer = await tool.call(identity=ALICE)
        assert (last(w.pool).tool_error, answer.is_error) == (failed, failed)


async def test_a_call_that_is_cancelled_says_where_it_waited():
    async with world(credential=True) as w:
        tool = await w.tool()
        hold = w.host.hold_credential = Hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: tool.call(identity=ALICE))
            await hold.reached.wait()
            nursery.cancel_scope.cancel()
        use = last(w.pool)
        assert (use.outcome, use.stages[-1][0], use.waits_for) == ("cancelled", "credential", None)
