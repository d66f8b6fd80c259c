"""When a list stops being true: notices, times to live, storms, replaced clients, and lists that are odd."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio

from afpool._base.definition_table import STEP
from afpool.pool import _messages as m
from afpool.pool._actor import KeyActor
from afpool.testing import (
    Advertise,
    Body,
    Delay,
    Drop,
    FakeResource,
    FakeTool,
    Hang,
    JsonRpcError,
    Result,
    echo_tool,
    sleep_tool,
)
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, LIST_CHANGED, quiet, refused, start, until, world
from tests.pool.kit import Hold as HoldHost

if TYPE_CHECKING:
    from afpool import BoundTool
    from tests.pool.kit import World


def changed() -> FakeTool:
    return FakeTool("echo", description="another definition")


def lists(w: World) -> int:
    return w.server.count("tools/list")


async def test_one_list_for_a_hundred_calls():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        for _ in range(100):
            nursery.start_soon(lambda: tool.call(identity=ALICE))
        await until(lambda: w.sent() == 100)
        assert lists(w) == 1
        assert (await w.tool()).binding.list is tool.binding.list
        assert lists(w) == 1


async def test_a_stateless_peer_without_a_time_to_live_is_listed_once():
    """`ttlMs: 0` is what every server sends; it is believed for `min_list_ttl` all the same."""
    async with world(http={"era": "stateless", "advertise": Advertise(ttl_ms=0)}) as w:
        tool = await w.tool()
        for _ in range(100):
            await tool.call(identity=ALICE)
        assert (w.sent(), lists(w)) == (100, 1)


async def test_an_announcement_of_nothing_new_costs_a_list_and_no_binding():
    async with world() as w:
        tool = await w.tool()
        generation = tool.binding.list.generation
        await w.announce(tool)
        assert lists(w) == 1, "a notice itself costs no request"
        await tool.call(identity=ALICE)
        assert lists(w) == 2
        await tool.call(identity=ALICE)
        assert lists(w) == 2
        assert tool.binding.list.generation == generation == 1


@pytest.mark.parametrize("mode", ["refuse", "recheck"])
@pytest.mark.parametrize("own", [False, True], ids=["another", "own"])
async def test_an_announced_change(mode, own):
    async with world(tools=[echo_tool(), FakeTool("other")], server={"on_list_change": mode}) as w:
        tool = await w.tool()
        w.server.set_tools([changed() if own else echo_tool(), FakeTool("other", description="newer")])
        await until(lambda: tool.binding.list.noticed)
        if mode == "refuse" or own:
            await refused(tool.call(identity=ALICE), "stale-tools")
            assert w.sent() == 0
            cause = w.pool.records.uses[-1].cause
            assert any(event.number == cause for event in w.pool.records.events)
        else:
            await tool.call(identity=ALICE)
            assert w.sent() == 1
        assert lists(w) == 2
        await (await w.tool()).call(identity=ALICE)  # a fresh binding is true
        assert lists(w) == 2


async def test_a_tool_that_is_gone_is_stale_in_either_mode():
    async with world(tools=[echo_tool(), FakeTool("other")], server={"on_list_change": "recheck"}) as w:
        tool = await w.tool()
        w.server.set_tools([FakeTool("other")])
        await until(lambda: tool.binding.list.noticed)
        await refused(tool.call(identity=ALICE), "stale-tools")


async def test_a_list_that_comes_back_is_another_generation():
    async with world() as w:
        tool = await w.tool()
        w.server.set_tools([changed()], notify=False)
        await w.pool.refresh(ALICE)
        w.server.set_tools([echo_tool()], notify=False)
        again = (await w.pool.refresh(ALICE))["echo"]
        assert again.binding.generation == 3
        await refused(tool.call(identity=ALICE), "stale-tools")
        await again.call(identity=ALICE)


async def test_waiters_of_a_changed_list_are_refused_when_it_changes():
    tools = [echo_tool(), FakeTool("block")]
    async with world(tools=tools, pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        block = await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        waiting = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(5)]
        await until(lambda: w.pool.waiting == 5)
        w.server.set_tools([changed(), FakeTool("block")], notify=False)
        await w.pool.refresh(ALICE)
        for call in waiting:
            await call.refusal("stale-tools")
        assert not event.is_set(), "nobody's turn has come"
        event.set()
        await until(lambda: not w.pool.running)
        quiet(w.pool)


async def test_waiters_of_the_runtimes_queue_are_refused_when_their_list_changes():
    tools = [echo_tool(), FakeTool("block")]
    async with world(tools=tools, pool={"max_in_flight": 1}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        block = await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: w.pool.admission.waiting == 1)
        w.server.set_tools([changed(), FakeTool("block")], notify=False)
        await w.pool.refresh(ALICE)
        await call.refusal("stale-tools")
        assert not event.is_set()
        event.set()
        await until(lambda: not w.pool.running)
        quiet(w.pool)


# ---------------------------------------------------------------------------- notices during a list


async def test_a_notice_between_the_pages_makes_one_more_round():
    tools = [FakeTool(f"tool-{number}") for number in range(4)]
    with trio.fail_after(10):
        async with (
            world(tools=tools, http={"advertise": Advertise(page_size=2)}) as w,
            trio.open_nursery() as nursery,
        ):
            tool = await w.tool(name="tool-0")
            event = trio.Event()
            # the second page of the second list waits
            w.server.on("tools/list", HoldAnswer(event), when=lambda a: "cursor" in a.params, times=1)
            await w.announce(tool)
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await w.server.wait_for("tools/list", 4)
            await w.announce(tool)
            event.set()
            await call.answer()
            assert lists(w) == 2 + 2 + 2
            assert w.sent("tool-0") == 1


async def test_a_list_that_keeps_changing_is_kept_as_unsettled(autojump_clock):
    with trio.fail_after(100):
        async with world() as w:
            await w.tool()
            # each asking is followed by another notice before it is answered
            w.server.on(
                "tools/list",
                Delay(0.01),
                when=lambda _: w.server.engine.streams.broadcast(LIST_CHANGED, None) > 0,
            )
            before = lists(w)
            tools = await w.pool.refresh(ALICE)
            assert lists(w) - before == 3
            assert tools.unsettled == ("files",)
            await refused(tools["echo"].call(identity=ALICE), "stale-tools", within=60)
            assert w.sent() == 0


async def test_a_storm_of_notices_is_listed_once_a_second_and_then_less(autojump_clock):
    with trio.fail_after(4000):
        async with world(pool={"deadline": 100.0}) as w:
            tool = await w.tool()
            begun = trio.current_time()
            while trio.current_time() - begun < 300:
                w.server.engine.streams.broadcast(LIST_CHANGED, None)
                await until(lambda: tool.binding.list.noticed)
                await tool.call(identity=ALICE)
            times = [arrival.time - begun for arrival in w.server.arrivals("tools/list")][2:]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            assert min(gaps) >= 1.0
            assert all(later >= earlier - 0.01 for earlier, later in pairwise(gaps))
            assert 29 <= gaps[-1] <= 31
            assert len(times) < 20


async def test_after_a_storm_changes_are_looked_at_soon_again(autojump_clock):
    with trio.fail_after(4000):
        async with world(pool={"deadline": 100.0, "idle_timeout": 10_000.0}) as w:
            tool = await w.tool()
            for _ in range(6):
                await w.announce(tool)
                await tool.call(identity=ALICE)
            await trio.sleep(120)
            for longest in (0.5, 1.5):
                await w.announce(tool)
                before = trio.current_time()
                await tool.call(identity=ALICE)
                assert trio.current_time() - before < longest


async def test_a_list_that_fails_is_not_asked_for_by_every_call(autojump_clock):
    with trio.fail_after(100):
        async with world() as w:
            tool = await w.tool()
            await w.announce(tool)
            w.server.on("tools/list", JsonRpcError(-32603))
            begun = trio.current_time()
            for _ in range(5):
                await refused(tool.call(identity=ALICE), "open-failed")
            assert lists(w) == 6
            assert trio.current_time() - begun >= 1 + 2 + 4 + 8
            assert w.sent() == 0


# ---------------------------------------------------------------------------- time to live


async def test_a_list_whose_time_is_up_is_asked_for_again(autojump_clock):
    with trio.fail_after(1000):
        async with world(pool={"list_ttl": 100.0, "idle_timeout": 1000.0}) as w:
            tool = await w.tool()
            await trio.sleep(99)
            await tool.call(identity=ALICE)
            assert lists(w) == 1
            await trio.sleep(2)
            await tool.call(identity=ALICE)
            assert lists(w) == 2


async def test_a_time_to_live_is_never_shorter_than_the_least(autojump_clock):
    with trio.fail_after(1000):
        advertise = Advertise(ttl_ms=1000)
        async with world(http={"era": "stateless", "advertise": advertise}, pool={"min_list_ttl": 20.0}) as w:
            tool = await w.tool()
            await trio.sleep(19)
            await tool.call(identity=ALICE)
            assert lists(w) == 1
            await trio.sleep(2)
            await tool.call(identity=ALICE)
            assert lists(w) == 2


async def test_a_time_to_live_is_told_in_milliseconds():
    async with world(http={"era": "stateless", "advertise": Advertise(ttl_ms=600_000)}) as w:
        state = (await w.tool()).binding.list
        assert 600.0 <= state.expires_at - state.asked_at < 660.0


async def test_an_expired_time_to_live_closes_no_gate(autojump_clock):
    """It expires while the call waits for its credential; the request leaves all the same."""
    from tests.pool.kit import Hold

    with trio.fail_after(1000):
        async with (
            world(credential=True, pool={"list_ttl": 100.0, "deadline": 500.0}) as w,
            trio.open_nursery() as nursery,
        ):
            tool = await w.tool()
            hold = w.host.hold_credential = Hold()
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await hold.reached.wait()
            await trio.sleep(101)
            hold.let_go.set()
            await call.answer()
            assert (w.sent(), lists(w)) == (1, 1)


# ---------------------------------------------------------------------------- streams


async def test_a_lost_notification_stream_is_no_lost_session():
    async with world() as w:
        tool = await w.tool()
        await w.server.wait_until(lambda: w.server.streams == 1)
        w.server.end_streams()
        await until(lambda: tool.binding.list.doubt is not None)
        assert not tool.binding.list.noticed
        await tool.call(identity=ALICE)
        assert (w.sent(), lists(w), w.server.count("initialize")) == (1, 2, 1)


async def test_a_stream_that_comes_back_may_have_missed_a_change(autojump_clock):
    with trio.fail_after(100):
        async with world() as w:
            tool = await w.tool()
            await w.server.wait_until(lambda: w.server.streams == 1)
            w.server.end_streams()
            await until(lambda: tool.binding.list.doubt is not None)
            await tool.call(identity=ALICE)  # listed again: settled
            w.server.set_tools([changed()])  # nobody hears it
            await w.server.wait_until(lambda: w.server.streams == 1)
            await until(lambda: tool.binding.list.doubt is not None)
            await refused(tool.call(identity=ALICE), "stale-tools")


async def test_a_change_announced_right_after_initialized():
    advertise = Advertise(list_changed_after_initialized=True)
    async with world(http={"advertise": advertise}) as w:
        tool = await w.tool()
        await tool.call(identity=ALICE)
        assert w.sent() == 1
        await tool.call(identity=ALICE)
        assert lists(w) <= 2


async def test_a_notice_while_nobody_calls_costs_nothing():
    async with world() as w:
        tool = await w.tool()
        for _ in range(10):
            await w.announce(tool)
        assert lists(w) == 1


# ---------------------------------------------------------------------------- odd lists


async def test_a_bad_tool_is_quarantined_and_the_others_live():
    good = {"name": "echo", "inputSchema": {"type": "object"}}
    raw = (
        b'{"jsonrpc":"2.0","id":@request-id@,"result":{"tools":['
        b'{"name":"twice","name":"twice","inputSchema":{}},'
        b'{"name":"nan","inputSchema":{"maximum":NaN}},'
        b'{"inputSchema":{}},' + json.dumps(good).encode() + b"]}}"
    )
    async with world() as w:
        w.server.on("tools/list", Body(raw))
        tools = await w.pool.tools(ALICE)
        assert list(tools) == ["echo"]
        assert len(tools.quarantined) == 3
        await tools["echo"].call(identity=ALICE)


async def test_of_two_tools_of_one_name_the_first_counts():
    async with world(
        tools=[FakeTool("echo", description="first"), FakeTool("echo", description="second")]
    ) as w:
        tools = await w.pool.tools(ALICE)
        assert len(tools) == 1
        assert tools["echo"].description == "first"
        assert list(tools.quarantined) == ["files/echo"]
        await tools["echo"].call(identity=ALICE)


@pytest.mark.parametrize("cursors", ["strict", "lenient"])
async def test_all_pages_are_read(cursors):
    tools = [FakeTool(f"tool-{number}") for number in range(25)]
    async with world(tools=tools, http={"advertise": Advertise(page_size=10, cursors=cursors)}) as w:
        assert len(await w.pool.tools(ALICE)) == 25
        assert lists(w) == 3


@pytest.mark.parametrize("cursors", ["loop", "empty-string"])
async def test_a_cursor_that_goes_round_in_circles(cursors):
    tools = [FakeTool(f"tool-{number}") for number in range(4)]
    async with world(
        tools=tools, http={"advertise": Advertise(page_size=2, cursors=cursors)}, pool={"max_pages": 10}
    ) as w:
        with trio.fail_after(5):
            if cursors == "loop":
                await refused(w.pool.tools(ALICE), "protocol-error", "answered")
            else:
                assert len(await w.pool.tools(ALICE)) == 4
        assert lists(w) <= 10


@pytest.mark.parametrize(
    "result",
    [{"tools": 7}, {"tools": [], "nextCursor": 5}, {}, [], "text"],
    ids=["no-list", "cursor", "empty", "list", "text"],
)
async def test_a_list_that_cannot_be_read(result):
    async with world() as w:
        rule = w.server.on("tools/list", Result(result))
        with trio.fail_after(5):
            await refused(w.pool.tools(ALICE), "protocol-error", "answered")
        w.server.remove(rule)
        await (await w.tool()).call(identity=ALICE)


async def test_a_list_that_is_no_json():
    async with world() as w:
        rule = w.server.on("tools/list", Body(b"<html>"))
        with trio.fail_after(5):
            with pytest.raises(Exception, match=r"in-doubt|answered"):
                await w.pool.tools(ALICE)
        w.server.remove(rule)
        await (await w.tool()).call(identity=ALICE)


# ---------------------------------------------------------------------------- replaced clients


@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
async def test_a_binding_of_a_replaced_client_adopts_the_fresh_list_or_is_stale(same):
    async with world() as w:
        tool = await w.tool()
        w.server.forget_sessions()
        if not same:
            w.server.set_tools([changed()], notify=False)
        await refused(tool.call(identity=ALICE), "session-expired", "refused")
        sent = w.sent()
        if same:
            await tool.call(identity=ALICE)
            await tool.call(identity=ALICE)
            use = w.pool.records.uses[-1]
            assert use.list_id != tool.binding.list.id
            assert "adopted" in dict(use.stages)
        else:
            await refused(tool.call(identity=ALICE), "stale-tools")
            assert w.sent() == sent
        assert lists(w) == 2, "its own fresh list, once per incarnation"


async def test_a_client_that_is_gone_before_its_place_is_taken_up_is_said_so(monkeypatch):
    """Whoever waits for an opening gets place and client in one step, and runs in a later one."""
    async with world() as w:
        tool = await w.tool()
        await w.evict()
        tell = KeyActor.tell

        def told(actor, message):
            tell(actor, message)
            if type(message) is m.Opened:
                w.pool.kill(next(iter(w.pool.openings.clients)))

        monkeypatch.setattr(KeyActor, "tell", told)
        await refused(tool.call(identity=ALICE), "client-closed")
        monkeypatch.undo()
        await tool.call(identity=ALICE)
        assert w.server.executions["echo"] == 1
        quiet(w.pool)


async def test_an_adopted_list_counts_at_every_later_gate():
    from tests.pool.kit import Hold

    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.evict()
        await tool.call(identity=ALICE)
        hold = w.host.hold_credential = Hold()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        w.server.set_tools([changed()], notify=False)
        await w.pool.refresh(ALICE)
        hold.let_go.set()
        await call.refusal("stale-tools")
        assert w.sent() == 1


async def test_one_place_and_a_replaced_client_whose_list_is_needed():
    """A list takes no place, so a call that holds the only one can wait for it."""
    with trio.fail_after(5):
        async with world(pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
            tool = await w.tool()
            await w.evict()
            calls = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(3)]
            for call in calls:
                await call.answer()
            assert (w.sent(), lists(w)) == (3, 2)
            quiet(w.pool)


async def test_a_session_that_is_lost_while_the_list_is_asked_for_is_decided_by_definition():
    """Step 2 cannot settle a list whose client has gone; step 3 opens another and compares."""
    with trio.fail_after(5):
        async with world() as w:
            tool = await w.tool()
            await w.announce(tool)
            w.server.forget_sessions()
            await tool.call(identity=ALICE)
            assert (w.sent(), w.server.count("initialize")) == (1, 2)


@pytest.mark.parametrize("asker", ["a call", "a list"])
async def test_a_list_that_takes_too_long_is_nobodys_deadline(asker, autojump_clock):
    with trio.fail_after(100):
        async with world(credential=True, pool={"open_timeout": 5.0, "deadline": 50.0}) as w:
            tool = await w.tool()
            tool.binding.list.unsettle("refresh")
            w.host.hold_credential = HoldHost()  # of the list's own request
            began = trio.current_time()
            waiting = tool.call(identity=ALICE) if asker == "a call" else w.pool.tools(ALICE)
            await refused(waiting, "open-failed")
            assert trio.current_time() - began < 6


@pytest.mark.parametrize("end", ["withdrawn", "late"])
async def test_a_call_that_ends_while_it_waits_for_a_list_that_is_dead_waits_no_longer(end, autojump_clock):
    # the list's client was replaced meanwhile, and its successor takes its time
    with trio.fail_after(60):
        async with world() as w, trio.open_nursery() as nursery:
            tool = await w.tool()
            actor = tool.binding.actor
            tool.binding.list.unsettle("refresh")
            w.server.on("tools/list", Hang())
            until_then = trio.current_time() + 2
            call = start(nursery, lambda: tool.call(identity=ALICE, call_id="c", deadline=until_then))
            await w.server.wait_for("tools/list", 2)
            assert actor.machine.client is not None
            actor.tell(m.ClientLost(actor.machine.client.id, "aged"))
            connect = w.host.hold_connect = HoldHost()
            if end == "withdrawn":
                assert w.pool.cancel("c")
                await call.refusal("cancelled")
            else:
                await call.refusal("deadline-exceeded")
                assert trio.current_time() == until_then
            assert w.pool.openings.opened == 1
            connect.let_go.set()
            nursery.cancel_scope.cancel()


async def test_two_callers_of_an_unsettled_list_share_one_asking():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.announce(tool)
        event = trio.Event()
        w.server.on("tools/list", HoldAnswer(event), times=1)
        calls = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(20)]
        await w.server.wait_for("tools/list", 2)
        await trio.testing.wait_all_tasks_blocked()
        event.set()
        for call in calls:
            await call.answer()
        assert (w.sent(), lists(w)) == (20, 2)


async def test_a_caller_that_leaves_lets_the_asking_go_on():
    async with world(tools=[echo_tool(), sleep_tool()]) as w, trio.open_nursery() as nursery:
        tool: BoundTool = await w.tool()
        await w.announce(tool)
        event = trio.Event()
        w.server.on("tools/list", HoldAnswer(event), times=1)
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_when_listed, w, scope)
            await tool.call(identity=ALICE)
        assert scope.cancelled_caught
        other = start(nursery, lambda: tool.call(identity=ALICE))
        await trio.testing.wait_all_tasks_blocked()
        event.set()
        await other.answer()
        assert (w.sent(), lists(w)) == (1, 2)
        quiet(w.pool)


async def _cancel_when_listed(w: World, scope: trio.CancelScope) -> None:
    await w.server.wait_for("tools/list", 2)
    scope.cancel()


async def test_a_plan_that_changed_is_seen_when_a_call_has_to_list():
    async with world() as w:
        tool = await w.tool()
        w.host.variant = "two"
        await tool.call(identity=ALICE)  # never by a call on a live client
        await w.announce(tool)
        await refused(tool.call(identity=ALICE), "binding-changed")
        assert w.sent() == 1
        await (await w.tool()).call(identity=ALICE)
        assert [arrival.headers["x-variant"] for arrival in w.server.arrivals("tools/call")] == ["one", "two"]


@pytest.mark.parametrize("action", [Drop(), Drop(after_execution=True)], ids=["cut", "cut when it was done"])
async def test_a_list_whose_connection_breaks_is_asked_for_once_more(action):
    async with world() as w:
        w.server.on("tools/list", action, times=1)
        assert set(await w.pool.tools(ALICE)) == {"echo"}
        assert w.server.count("tools/list") == 2
        assert w.pool.statistics().opened == 1


async def test_a_list_whose_connection_breaks_again_is_lost():
    async with world() as w:
        w.server.on("tools/list", Drop())
        await refused(w.pool.tools(ALICE), "connection-lost", "in-doubt")
        assert w.server.count("tools/list") == 2


@pytest.mark.parametrize("times", [1, 2])
async def test_headers_that_differ_for_the_server_are_made_anew_from_a_fresh_list_once(times):
    async with world(http={"era": "stateless"}) as w:
        tool = await w.tool()
        w.server.on("tools/call", JsonRpcError(-32020, status=400), times=times)
        if times == 1:
            await tool.call({}, identity=ALICE)
        else:
            await refused(tool.call({}, identity=ALICE), "server-refused", "refused")
        assert (w.sent(), lists(w)) == (2, 2)
        quiet(w.pool)


async def test_a_list_that_the_host_asks_for_is_asked_for_once():
    """Of a bound server: what is asked, and how often, is the host's to say."""
    async with world() as w:
        w.server.offers.resources = [FakeResource("note://one", "first")]
        server = await w.pool.bind(ALICE, "files")
        w.server.on("resources/list", Drop(), times=1)
        await refused(server.resources(identity=ALICE), "connection-lost", "in-doubt")
        assert w.server.count("resources/list") == 1


async def test_a_long_list_that_was_replaced_is_let_go_of_in_slices():
    """Thousands of definitions that go in one step would hold the loop, for everybody."""

    def listed(word: str) -> list[FakeTool]:
        return [FakeTool(f"tool-{number}", description=word) for number in range(4 * STEP)]

    async with world(tools=listed("before")) as w, trio.open_nursery() as nursery:
        await w.pool.tools(ALICE)
        table = w.pool.catalogs.table
        assert len(table) == 4 * STEP
        w.server.set_tools(listed("after"), notify=False)
        sizes = []

        async def watch() -> None:
            while True:
                sizes.append(len(table))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(watch)
        await w.pool.refresh(ALICE)
        await until(lambda: len(table) == 4 * STEP)
        nursery.cancel_scope.cancel()
        most = sizes.index(8 * STEP)
        # between two looks, and behind the last one, the other task may have had two turns
        assert all(before - after <= 2 * STEP for before, after in pairwise(sizes[most:]))
        assert sizes[-1] <= 6 * STEP
