"""Lists are shared under an authorization name and a plan context; connections never."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from afpool.testing import FakeTool, JsonRpcError, Notice, echo_tool
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import (
    ALICE,
    BOB,
    CAROL,
    LIST_CHANGED,
    Hold,
    person,
    quiet,
    raises,
    refused,
    start,
    until,
    world,
)

if TYPE_CHECKING:
    from afpool import Identity
    from tests.pool.kit import World


def changed() -> FakeTool:
    return FakeTool("echo", description="another definition")


def lists(w: World) -> int:
    return w.server.count("tools/list")


def share_all(w: World, *people: Identity) -> None:
    for who in people:
        w.host.names[who.principal] = "team"


async def test_one_list_serves_fifty_identities_each_over_its_own_connection():
    people = [person(number) for number in range(50)]
    with trio.fail_after(30):
        async with world() as w, trio.open_nursery() as nursery:
            share_all(w, *people)
            first = await w.tool(people[0])
            tools = [await w.tool(who) for who in people]
            assert {tool.binding.list.id for tool in tools} == {first.binding.list.id}
            calls = [
                start(nursery, lambda tool=tool, who=who: tool.call({"n": who.principal}, identity=who))
                for tool, who in zip(tools, people, strict=True)
            ]
            for call in calls:
                await call.answer()
            assert lists(w) == 1
            assert w.server.count("initialize") == 50
            arrivals = w.server.arrivals("tools/call")
            assert len({arrival.session_id for arrival in arrivals}) == 50
            assert len({arrival.connection for arrival in arrivals}) == 50
            owner: dict[int, str | None] = {}
            for arrival in w.server.log:
                assert owner.setdefault(arrival.connection, arrival.session_id) in (
                    None,
                    arrival.session_id,
                ) or (arrival.method in ("initialize", "server/discover"))
            assert w.server.streams == 1, "one member listens"


async def test_fifty_first_lists_at_once_are_one():
    people = [person(number) for number in range(50)]
    with trio.fail_after(30):
        async with world() as w, trio.open_nursery() as nursery:
            share_all(w, *people)
            event = trio.Event()
            w.server.on("tools/list", HoldAnswer(event), times=1)
            calls = [start(nursery, lambda who=who: w.tool(who)) for who in people]
            await w.server.wait_for("tools/list")
            await until(lambda: w.server.count("notifications/initialized") == 50)
            event.set()
            tools = [await call.answer() for call in calls]
            assert lists(w) == 1
            assert len({tool.binding.list.id for tool in tools}) == 1


async def test_a_plan_that_is_told_for_a_call_ends_the_client_of_another_plan():
    # the call's list is doubted and asked for again, so the plan is asked: the call's, and not the client's
    with trio.fail_after(30):
        async with world() as w:
            share_all(w, ALICE, BOB)
            alices = await w.tool(ALICE)
            await w.tool(BOB)  # keeps the list of the first plan
            w.host.variant = "two"
            newer = await w.pool.refresh(ALICE)
            assert newer["echo"].binding.context != alices.binding.context
            w.host.variant = "one"
            alices.binding.list.unsettle("refresh")
            await alices.call({"n": 1}, identity=ALICE)
            await refused(newer["echo"].call({"n": 2}, identity=ALICE), "binding-changed")
            assert w.sent() == 1


@pytest.mark.parametrize("way", ["shared", "shared with another", "its client went"])
async def test_a_plan_that_is_told_while_another_one_is_being_opened_is_heard(way):
    # a list asks for the plan while a client is on its way under what was said before
    with trio.fail_after(30):
        async with world() as w, trio.open_nursery() as nursery:
            told = None
            if way == "shared":
                share_all(w, ALICE)
            elif way == "shared with another":
                share_all(w, ALICE, BOB)
                bobs = await w.tool(BOB)  # what was said before has a list, and one who keeps it true
                await bobs.call(identity=BOB)
            else:
                await w.tool()
                told = w.host.hold_plan = Hold()
                second = start(nursery, lambda: w.pool.refresh(ALICE))
                await told.reached.wait()
                w.pool.kill(w.pool.actor_for("files", ALICE).machine.client.id)
            opening = w.host.hold_connect = Hold()
            first = start(nursery, lambda: w.pool.tools(ALICE, refresh=way == "shared with another"))
            await opening.reached.wait()
            w.host.variant = "two"
            if told is None:
                told = w.host.hold_plan = Hold()
                second = start(nursery, lambda: w.pool.tools(ALICE))
            told.let_go.set()
            await trio.testing.wait_all_tasks_blocked()
            opening.let_go.set()
            await first.answer()
            tool = (await second.answer())["echo"]
            assert w.server.arrivals("tools/list")[-1].headers["x-variant"] == "two"
            await tool.call(identity=ALICE)
            assert w.server.arrivals("tools/call")[-1].headers["x-variant"] == "two"


async def test_another_name_or_context_is_another_list():
    async with world() as w:
        w.host.names = {"alice": "team", "bob": "crew", "carol": "team"}
        alices, bobs = await w.tool(ALICE), await w.tool(BOB)
        assert alices.binding.list is not bobs.binding.list
        w.host.variant = "two"
        carols = await w.tool(CAROL)
        assert carols.binding.list is not alices.binding.list
        assert lists(w) == 3
        for tool, who in ((alices, ALICE), (bobs, BOB), (carols, CAROL)):
            assert tool.binding.shared
            await tool.call(identity=who)


@pytest.mark.parametrize(
    ("before", "after"), [("team", None), (None, "team"), ("team", "crew"), ("team", "Team"), ("team", "")]
)
async def test_any_difference_of_the_name_is_a_change(before, after):
    async with world() as w:
        w.host.names["alice"] = before
        tool = await w.tool()
        w.host.names["alice"] = after
        await refused(tool.call(identity=ALICE), "binding-changed")
        assert w.sent() == 0
        w.host.names["alice"] = before
        await tool.call(identity=ALICE)


@pytest.mark.parametrize(
    "share", [raises(RuntimeError("no directory")), 7, b"team"], ids=["raises", "number", "bytes"]
)
async def test_a_share_that_fails_refuses_that_one_alone(share):
    async with world() as w:
        tool, bobs = await w.tool(), await w.tool(BOB)
        w.host.names["alice"] = share
        error = await refused(tool.call(identity=ALICE), "share-failed")
        assert "no directory" not in str(error)
        await refused(w.pool.tools(ALICE), "share-failed")
        await bobs.call(identity=BOB)
        assert w.sent() == 1


async def test_an_evicted_member_calls_with_the_entry_as_it_stands():
    async with world() as w:
        share_all(w, ALICE, BOB)
        await w.tool(BOB)  # bob lists, and listens
        tool = await w.tool()
        await tool.call(identity=ALICE)
        await w.evict()
        await tool.call(identity=ALICE)
        assert lists(w) == 1
        assert w.server.count("initialize") == 3


async def test_a_change_reaches_every_member():
    async with world() as w:
        share_all(w, ALICE, BOB)
        bobs, alices = await w.tool(BOB), await w.tool()
        await alices.call(identity=ALICE)
        w.server.set_tools([changed()])
        await until(lambda: alices.binding.list.noticed)
        await refused(alices.call(identity=ALICE), "stale-tools")
        await refused(bobs.call(identity=BOB), "stale-tools")
        assert (lists(w), w.sent()) == (2, 1)
        await (await w.tool()).call(identity=ALICE)
        assert lists(w) == 2


async def test_waiters_of_a_shared_list_are_refused_when_it_changes():
    tools = [echo_tool(), FakeTool("block")]
    async with world(tools=tools, pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        share_all(w, ALICE, BOB)
        tool, block = await w.tool(), await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: w.pool.waiting == 1)
        w.server.set_tools([changed(), FakeTool("block")])
        await until(lambda: tool.binding.list.noticed)
        await w.tool(BOB)  # another member asks
        await call.refusal("stale-tools")
        assert not event.is_set()
        event.set()
        await until(lambda: not w.pool.running)
        quiet(w.pool)


@pytest.mark.parametrize("name", [None, "crew"])
async def test_a_list_asked_for_under_another_name_is_not_filed(name):
    """Compare and set: the name changes while the list is on its way."""
    async with world() as w, trio.open_nursery() as nursery:
        share_all(w, ALICE, BOB)
        event = trio.Event()
        w.server.on("tools/list", HoldAnswer(event), times=1)
        listing = start(nursery, lambda: w.pool.tools(ALICE))
        await w.server.wait_for("tools/list")
        w.host.names["alice"] = name
        event.set()
        await listing.refusal("binding-changed")
        await w.tool(BOB)
        assert lists(w) == 2, "bob got nothing of what alice asked for"


async def test_the_listers_failure_is_its_own_and_whoever_joined_lists_itself():
    async with world() as w, trio.open_nursery() as nursery:
        share_all(w, ALICE, BOB)
        event = trio.Event()
        w.server.on("tools/list", HoldAnswer(event), times=1)
        w.server.on("tools/list", JsonRpcError(-32603, "no"), times=1)
        alices = start(nursery, w.tool)
        await w.server.wait_for("tools/list")
        bobs = start(nursery, lambda: w.tool(BOB))
        await until(lambda: w.server.count("notifications/initialized") == 2)
        await trio.testing.wait_all_tasks_blocked()
        event.set()
        await (await bobs.answer()).call(identity=BOB)
        with trio.fail_after(5):
            await alices.done.wait()
        assert alices.error is not None
        assert alices.error.code == "server-error"
        assert lists(w) == 2


async def test_another_member_listens_when_the_listener_goes():
    async with world() as w:
        share_all(w, ALICE, BOB)
        bobs, alices = await w.tool(BOB), await w.tool()
        await alices.call(identity=ALICE)
        assert w.server.streams == 1
        await w.evict(BOB)
        assert alices.binding.list.doubt is not None
        await alices.call(identity=ALICE)
        assert (w.sent(), lists(w)) == (2, 2), "nobody listened in between, so it was asked for again"
        await w.server.wait_until(lambda: w.server.streams == 1)
        await w.announce(alices)
        await bobs.call(identity=BOB)
        assert lists(w) == 3


async def test_what_a_member_hears_on_its_own_connection_is_about_the_shared_list():
    """It has listed nothing itself: its client belongs to the entry from its first call on."""

    async def run(arguments, arrival):
        if arguments.get("announces"):
            yield Notice(LIST_CHANGED)
        yield "done"

    async with world(tools=[FakeTool("work", run)]) as w:
        share_all(w, ALICE, BOB)
        alices, bobs = await w.tool(name="work"), await w.tool(BOB, name="work")
        assert alices.binding.list is bobs.binding.list
        assert lists(w) == 1
        await bobs.call({"announces": True}, identity=BOB)
        await until(lambda: alices.binding.list.noticed)
        await alices.call(identity=ALICE)
        assert lists(w) == 2


async def test_room_is_made_by_whoever_listens_for_a_shared_list_last_of_all():
    """The list would be in doubt until it is asked for again."""
    async with world(pool={"max_clients": 2}) as w:
        share_all(w, ALICE, BOB)
        alices, bobs = await w.tool(), await w.tool(BOB)  # alice listens, and was here first
        await w.server.wait_until(lambda: w.server.streams == 1)
        await bobs.call(identity=BOB)
        assert alices.binding.actor.last_used < bobs.binding.actor.last_used
        await w.tool(CAROL)
        assert bobs.binding.actor.machine.client is None
        assert alices.binding.actor.machine.client is not None
        assert alices.binding.list.doubt is None


async def test_a_list_that_sees_another_plan_asks_for_it_no_oftener_than_it_has_to():
    async with world() as w:
        await w.tool()
        w.host.variant, before = "two", w.host.planned
        await w.pool.refresh(ALICE)
        assert w.host.planned - before == 2, "for the list, and for the opening that it leads to"
        assert w.server.arrivals("tools/list")[-1].headers["x-variant"] == "two"


@pytest.mark.parametrize("how", ["killed", "forgotten"])
async def test_a_lister_whose_client_ended_makes_the_others_wait_no_longer(how):
    """Nothing of the list was asked for: whoever asks next need not wait as if it had changed again."""
    async with world() as w, trio.open_nursery() as nursery:
        share_all(w, ALICE, BOB)
        entry = (await w.tool()).binding.list
        await w.tool(BOB)
        w.server.set_tools([changed()])
        await until(lambda: entry.noticed)
        now = trio.current_time()
        entry.asked_before, entry.next_at, entry.interval = True, now + 0.3, 30.0  # it has changed often
        listing = start(nursery, lambda: w.pool.tools(ALICE))
        await until(lambda: entry.flight is not None)
        flight = entry.flight
        if how == "killed":
            w.pool.kill(flight.client.id)
        else:
            w.server.forget_sessions()
        await until(flight.landed.is_set)
        assert flight.error is not None
        assert entry.next_at <= trio.current_time() + 1.0
        nursery.cancel_scope.cancel()
        del listing


async def test_a_listener_whose_session_is_lost_listens_no_more():
    async with world() as w:
        share_all(w, ALICE, BOB)
        bobs, alices = await w.tool(BOB), await w.tool()
        await alices.call(identity=ALICE)
        entry = bobs.binding.list.entry
        assert entry is not None
        assert entry.listener is not None
        entry.listener.lose("session expired")
        assert entry.listener is None
        assert entry.list.doubt is not None


async def test_a_member_whose_own_list_differs_dissolves_the_entry():
    """The app's promise does not hold: everybody lists alone, bindings are decided by definition."""
    special = [echo_tool(), FakeTool("admin")]
    async with world() as w:
        share_all(w, ALICE, BOB)
        sessions: dict[str | None, str] = {}
        bobs, alices = await w.tool(BOB), await w.tool()
        await alices.call(identity=ALICE)
        alices_session = w.server.arrivals("tools/call")[0].session_id
        sessions[alices_session] = "alice"
        w.server.set_tools_for(
            lambda arrival: special if arrival.session_id == alices_session else [echo_tool()]
        )
        fresh = await w.pool.refresh(ALICE)
        assert set(fresh) == {"echo", "admin"}
        assert not fresh["echo"].binding.shared
        assert not bobs.binding.list.alive
        assert [event.kind for event in w.pool.records.events].count("unshared") == 1
        assert set(await w.pool.tools(BOB)) == {"echo"}
        await fresh["admin"].call(identity=ALICE)
        await bobs.call(identity=BOB)  # the same definition in his own list
        await alices.call(identity=ALICE)
        w.server.set_tools_for(
            lambda arrival: special if arrival.session_id == alices_session else [changed()]
        )
        await w.pool.refresh(BOB)
        await refused(bobs.call(identity=BOB), "stale-tools")


async def test_a_member_that_lists_the_same_keeps_the_entry():
    async with world() as w:
        share_all(w, ALICE, BOB)
        bobs = await w.tool(BOB)
        alices = (await w.pool.refresh(ALICE))["echo"]
        assert alices.binding.list is bobs.binding.list
        assert alices.binding.generation == 1


async def test_a_shared_list_is_forgotten_with_its_last_holder():
    async with world() as w:
        share_all(w, ALICE)
        tool = await w.tool()
        assert len(w.pool.shares) == 1
        await w.evict()
        del tool
        gc.collect()
        assert len(w.pool.shares) == 0


async def test_without_a_share_function_nothing_is_shared():
    async with world(sharing=False) as w:
        alices, bobs = await w.tool(), await w.tool(BOB)
        assert not alices.binding.shared
        assert alices.binding.list is not bobs.binding.list
        assert lists(w) == 2
