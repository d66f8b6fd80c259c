"""Openings, plans, room and idleness: one opening a key, its failures, and who is closed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import (
    AuthorizationRequired,
    ConnectionLost,
    CredentialRequirement,
    DeadlineExceeded,
    HttpTransport,
    Identity,
    NeedsAuthorization,
    OpenFailed,
    Plan,
    Server,
)
from afpool.pool import _openings
from afpool.pool._openings import as_open_failure
from afpool.testing import FakeServer, FakeTool, Hang, Status, echo_tool
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import (
    ALICE,
    BOB,
    CAROL,
    Hold,
    Host,
    http_transport,
    person,
    quiet,
    refused,
    start,
    until,
    world,
)

if TYPE_CHECKING:
    from tests.pool.kit import World


def openings(w: World) -> int:
    return w.server.count("initialize")


# ---------------------------------------------------------------------------- single flight


async def test_a_hundred_first_calls_open_once():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.evict()
        calls = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(100)]
        for call in calls:
            await call.answer()
        assert (openings(w), w.sent()) == (2, 100)
        quiet(w.pool)


async def test_joiners_of_another_context_are_refused_and_open_nothing():
    async with world() as w, trio.open_nursery() as nursery:
        old = await w.tool()
        await w.evict()
        w.host.variant = "two"
        hold = w.host.hold_plan = Hold()
        listing = start(nursery, w.tool)
        await hold.reached.wait()
        before = start(nursery, lambda: old.call(identity=ALICE))  # the plan is not known yet
        await until(lambda: w.pool.waiting == 1)
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event), times=1)
        hold.let_go.set()
        await before.refusal("binding-changed")
        await w.server.wait_for("initialize", 2)
        await refused(old.call(identity=ALICE), "binding-changed")  # it is known now
        event.set()
        await (await listing.answer()).call(identity=ALICE)
        assert openings(w) == 2


async def test_a_changed_plan_opens_nothing_for_the_call():
    async with world() as w:
        tool = await w.tool()
        await w.evict()
        w.host.variant = "two"
        await refused(tool.call(identity=ALICE), "binding-changed")
        assert openings(w) == 1
        w.host.variant = "one"
        await tool.call(identity=ALICE)


async def test_a_live_client_of_another_context_stays_for_the_next_list():
    async with world() as w:
        old = await w.tool()
        await w.evict()
        w.host.variant = "two"
        await w.tool()
        await refused(old.call(identity=ALICE), "binding-changed")
        assert openings(w) == 2
        w.host.variant = "one"
        await refused(
            old.call(identity=ALICE), "binding-changed"
        )  # the client is still that of the second plan
        await w.pool.refresh(ALICE)
        await old.call(identity=ALICE)


async def test_a_failure_is_each_waiters_own_exception():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.evict()
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event), times=1)
        w.server.on("initialize", Status(503))
        calls = [start(nursery, lambda: tool.call(identity=ALICE)) for _ in range(5)]
        await w.server.wait_for("initialize", 2)
        await until(lambda: w.pool.waiting == 5)
        event.set()
        errors = [await call.refusal("open-failed") for call in calls]
        assert len({id(error) for error in errors}) == 5
        assert len({error.call_id for error in errors}) == 5
        assert all(error.retry_after is not None and 0.25 <= error.retry_after <= 0.5 for error in errors)
        assert (openings(w), w.sent()) == (2, 0)


async def test_an_opening_that_nobody_waits_for_is_cancelled():
    async with world() as w:
        tool = await w.tool()
        await w.evict()
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event))
        with trio.move_on_after(0.05):
            await tool.call(identity=ALICE)
        actor = tool.binding.actor
        assert actor.machine.opening is None
        await until(lambda: w.pool.openings.rooms.used == 0)
        w.server.clear_rules()
        event.set()
        await tool.call(identity=ALICE)
        assert [event.kind for event in w.pool.records.events].count("open-failed") == 0


async def test_an_opening_goes_on_while_one_waits():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        await w.evict()
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event), times=1)
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_when_opening, w, scope)
            first = start(nursery, lambda: tool.call(identity=ALICE))
            await tool.call(identity=ALICE)
        event.set()
        await first.answer()
        assert openings(w) == 2


async def _cancel_when_opening(w: World, scope: trio.CancelScope) -> None:
    await w.server.wait_for("initialize", 2)
    await until(lambda: w.pool.waiting == 2)
    scope.cancel()


async def test_an_opening_has_a_deadline_of_its_own(autojump_clock):
    with trio.fail_after(100):
        async with world(pool={"open_timeout": 5.0}) as w:
            w.server.on("initialize", Hang())
            before = trio.current_time()
            await refused(w.pool.tools(ALICE), "open-failed")
            assert 4.9 <= trio.current_time() - before <= 6
            assert not w.pool.openings.clients


async def test_a_hung_opening_holds_up_no_other_key(autojump_clock):
    with trio.fail_after(100):
        async with world() as w, trio.open_nursery() as nursery:
            bobs = await w.tool(BOB)
            w.server.on("initialize", Hang(), times=1)
            hung = start(nursery, lambda: w.pool.tools(ALICE))
            await w.server.wait_for("initialize", 2)
            await bobs.call(identity=BOB)
            await (await w.tool(CAROL)).call(identity=CAROL)
            assert not hung.done.is_set()
            nursery.cancel_scope.cancel()


# ---------------------------------------------------------------------------- back-off


async def test_a_failed_opening_is_backed_off_from(autojump_clock):
    with trio.fail_after(1000):
        async with world() as w:
            tool = await w.tool()
            await w.evict()
            rule = w.server.on("initialize", Status(503))
            delays = []
            for _ in range(9):
                tried = openings(w)
                error = await refused(tool.call(identity=ALICE), "open-failed")
                assert openings(w) == tried + 1
                assert error.retry_after is not None
                delays.append(error.retry_after)
                again = await refused(tool.call(identity=ALICE), "open-backoff")
                assert again.retry_after is not None
                assert 0 < again.retry_after <= error.retry_after + 0.001
                assert openings(w) == tried + 1
                await trio.sleep(error.retry_after)
            for number, delay in enumerate(delays):
                ceiling = min(0.5 * 2**number, 30)
                assert ceiling / 2 <= delay <= ceiling
            w.server.remove(rule)
            await tool.call(identity=ALICE)
            w.server.on("initialize", Status(503))
            await w.evict()
            error = await refused(tool.call(identity=ALICE), "open-failed")
            assert error.retry_after is not None
            assert error.retry_after <= 0.5  # a success has ended the round


async def test_a_refresh_and_another_plan_try_at_once(autojump_clock):
    with trio.fail_after(100):
        async with world() as w:
            w.server.on("initialize", Status(503), when=lambda arrival: arrival.headers["x-variant"] == "one")
            await refused(w.pool.tools(ALICE), "open-failed")
            await refused(w.pool.tools(ALICE), "open-backoff")
            assert openings(w) == 1
            await refused(w.pool.refresh(ALICE), "open-failed")
            assert openings(w) == 2
            await refused(w.pool.tools(ALICE), "open-backoff")
            w.host.variant = "two"
            await (await w.tool()).call(identity=ALICE)
            assert openings(w) == 3


async def test_who_has_consented_meanwhile_is_not_backed_off_from():
    async with world(credential=True) as w:
        given = w.host.get

        async def get(request: Any) -> NeedsAuthorization:
            await trio.lowlevel.checkpoint()
            return NeedsAuthorization("https://example.org/consent", "session-1")

        w.host.get = get
        await refused(w.pool.tools(ALICE), "authorization-required")
        w.host.get = given
        await (await w.tool()).call(identity=ALICE)


async def test_where_many_back_offs_are_kept_those_that_are_over_go(autojump_clock, monkeypatch):
    monkeypatch.setattr(_openings, "BACKOFFS_KEPT", 2)
    with trio.fail_after(100):
        async with world() as w:
            w.server.on("initialize", Status(503))
            await refused(w.pool.tools(ALICE), "open-failed")
            await trio.sleep(1)
            await refused(w.pool.tools(BOB), "open-failed")
            await refused(w.pool.tools(CAROL), "open-failed")
            kept = {key for key, _ in w.pool.openings._backoffs}
            assert kept == {w.pool.key_of(who, "files") for who in (BOB, CAROL)}


async def test_a_back_off_is_the_keys_own():
    async with world() as w:
        w.server.on("initialize", Status(503), times=1)
        await refused(w.pool.tools(ALICE), "open-failed")
        await (await w.tool(BOB)).call(identity=BOB)


async def test_a_servers_retry_after_is_obeyed(autojump_clock):
    with trio.fail_after(100):
        async with world() as w:
            w.server.on("initialize", Status(429, headers={"retry-after": "7"}), times=1)
            error = await refused(w.pool.tools(ALICE), "open-failed")
            assert error.retry_after == 7
            await trio.sleep(6)
            await refused(w.pool.tools(ALICE), "open-backoff")
            await trio.sleep(1.1)
            await w.tool()


# ---------------------------------------------------------------------------- plans


async def _no_plan() -> Any:
    return None


BAD_PLANS = {
    "raises": lambda server, who: 1 / 0,
    "none": lambda server, who: None,
    "url": lambda server, who: "http://127.0.0.1/",
    "async-none": lambda server, who: _no_plan(),
    "no-transport": lambda server, who: Plan(transport=None),
    "user-credential": lambda server, who: Plan(
        transport=HttpTransport(url="http://127.0.0.1:9/"),
        credential=CredentialRequirement("files", mode="user"),
    ),
}


@pytest.mark.parametrize("bad", BAD_PLANS)
async def test_a_plan_that_is_none(bad):
    server = Server(name="files", keyed_on=("tenant",))
    async with afpool.open_pool([server], plan=BAD_PLANS[bad]) as pool:
        error = await refused(pool.tools(ALICE), "plan-failed")
        assert "ZeroDivision" in str(error) or bad != "raises"
        await refused(pool.tools(ALICE), "plan-failed")  # no back-off from the app's own word


async def test_a_servers_own_plan_comes_before_the_pools():
    async with FakeServer.http() as server:
        host = Host(http_transport(server))
        own = Plan(transport=HttpTransport(url=server.url, headers={"x-plan": "own"}))
        async with afpool.open_pool([Server(name="files", plan=own)], plan=host.plan) as pool:
            await pool.tools(ALICE)
        assert host.planned == 0
        assert {arrival.headers["x-plan"] for arrival in server.arrivals("tools/list")} == {"own"}


async def test_a_plan_that_fails_is_one_keys_trouble():
    async with world() as w:
        plan = w.host.plan

        async def failing(server: str, who: Identity) -> Plan:
            if who == BOB:
                raise RuntimeError("no such tenant")
            return await plan(server, who)

        w.pool.plan = failing
        tool = await w.tool()
        await refused(w.pool.tools(BOB), "plan-failed")
        await tool.call(identity=ALICE)


def test_a_user_credential_on_a_server_that_is_not_keyed_on_users():
    plan = Plan(
        transport=HttpTransport(url="http://127.0.0.1:9/"), credential=CredentialRequirement("x", mode="user")
    )
    with pytest.raises(ValueError, match="keyed on 'principal'"):
        Server(name="files", plan=plan, keyed_on=("tenant",))
    Server(name="files", plan=plan, keyed_on=("principal",))


async def test_the_plan_is_asked_for_at_openings_and_lists_and_by_no_call():
    async with world() as w:
        tool = await w.tool()
        assert w.host.planned == 1
        for _ in range(5):
            await tool.call(identity=ALICE)
        assert w.host.planned == 1
        await w.tool()
        assert w.host.planned == 1
        await w.pool.refresh(ALICE)
        assert w.host.planned == 2
        await w.evict()
        await tool.call(identity=ALICE)
        assert w.host.planned == 3


async def test_another_context_at_a_list_lets_the_old_client_finish():
    async with world(tools=[echo_tool(), FakeTool("block")]) as w, trio.open_nursery() as nursery:
        block = await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), times=1)
        call = start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        w.host.variant = "two"
        fresh = (await w.pool.refresh(ALICE))["echo"]
        await fresh.call(identity=ALICE)
        assert len(w.pool.openings.clients) == 2
        event.set()
        await call.answer()
        await until(lambda: len(w.pool.openings.clients) == 1)
        assert w.server.count("DELETE") == 1


async def test_warm_opens_nothing_where_one_of_the_names_is_none():
    async with world() as w:
        with pytest.raises(LookupError):
            await w.pool.warm(ALICE, ["files", "no-such"])
        assert openings(w) == 0


async def test_warm_opens_ahead_of_need():
    async with world() as w:
        await w.pool.warm(ALICE)
        assert (openings(w), w.server.count("tools/list")) == (1, 0)
        await (await w.tool()).call(identity=ALICE)
        assert openings(w) == 1


# ---------------------------------------------------------------------------- how many at once


async def test_a_restarted_server_meets_no_herd():
    people = [person(number) for number in range(30)]
    async with world(pool={"max_connecting": 3}) as w, trio.open_nursery() as nursery:
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event))
        calls = [start(nursery, lambda who=who: w.tool(who)) for who in people]
        await w.server.wait_for("initialize", 3)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert openings(w) == 3
        event.set()
        for call in calls:
            await call.answer()
        assert openings(w) == 30


async def test_the_least_recently_used_idle_client_makes_room():
    async with world(pool={"max_clients": 2}) as w:
        alices = await w.tool(ALICE)
        bobs = await w.tool(BOB)
        await alices.call(identity=ALICE)  # bob's is the older one now
        carols = await w.tool(CAROL)
        assert bobs.binding.actor.machine.client is None
        assert alices.binding.actor.machine.client is not None
        assert w.pool.openings.evicted == 1
        await carols.call(identity=CAROL)
        await alices.call(identity=ALICE)
        assert openings(w) == 3
        await bobs.call(identity=BOB)
        assert len(w.pool.openings.clients) == 2
        quiet(w.pool)


async def test_an_opening_that_finds_no_idle_client_waits():
    async with world(tools=[FakeTool("block")], pool={"max_clients": 1}) as w, trio.open_nursery() as nursery:
        block = await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), times=1)
        call = start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        other = start(nursery, lambda: w.tool(BOB, "block"))
        await until(lambda: w.pool.openings.rooms.waiting)
        assert openings(w) == 1
        event.set()
        await call.answer()
        await (await other.answer()).call(identity=BOB)
        assert openings(w) == 2


async def test_an_opening_that_replaces_a_cancelled_one_gets_its_room():
    """One that was cancelled may not have ended when its key's next one waits: each has a mark of its own."""
    async with world(tools=[FakeTool("block")], pool={"max_clients": 1}) as w, trio.open_nursery() as nursery:
        bobs = await w.tool(BOB, "block")
        block = await w.tool(name="block")
        event = trio.Event()
        w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
        call = start(nursery, lambda: block.call(identity=ALICE))
        await w.server.wait_for("tools/call")

        async def asks(scope: trio.CancelScope) -> None:
            with scope:
                await bobs.call(identity=BOB)

        rooms = w.pool.openings.rooms
        for number in range(160):  # which of the two goes first is the scheduler's to say
            first, second = trio.CancelScope(), trio.CancelScope()
            nursery.start_soon(asks, first)
            await until(lambda: rooms.waiting == 1)
            nursery.start_soon(asks, second)
            for _ in range(number % 4):
                await trio.lowlevel.checkpoint()
            first.cancel()
            await trio.testing.wait_all_tasks_blocked()
            second.cancel()
            await until(lambda: rooms.waiting == 0)
        last = start(nursery, lambda: bobs.call(identity=BOB))
        await until(lambda: rooms.waiting == 1)
        event.set()
        await call.answer()
        await last.answer()
        assert not [each for each in w.pool.records.events if each.kind == "open-failed"]
        await until(lambda: rooms.used == len(w.pool.openings.clients) == 1)


async def test_a_client_that_lists_is_in_use():
    """Room is made of nobody's list that is on its way."""
    async with world(pool={"max_clients": 1}) as w, trio.open_nursery() as nursery:
        event = trio.Event()
        w.server.on("tools/list", HoldAnswer(event), times=1)
        alices = start(nursery, w.tool)
        await w.server.wait_for("tools/list")
        bobs = start(nursery, lambda: w.tool(BOB))
        await until(lambda: w.pool.openings.rooms.waiting)
        await trio.testing.wait_all_tasks_blocked(0.02)
        event.set()
        await alices.answer()
        await bobs.answer()
        assert (openings(w), w.server.count("tools/list")) == (2, 2)


async def test_a_warm_client_makes_room_as_soon_as_it_is_open():
    async with world(pool={"max_clients": 1}) as w, trio.open_nursery() as nursery:
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event), times=1)
        nursery.start_soon(w.pool.warm, ALICE)
        await w.server.wait_for("initialize")
        bobs = start(nursery, lambda: w.tool(BOB))
        await until(lambda: w.pool.openings.rooms.waiting)
        event.set()
        await (await bobs.answer()).call(identity=BOB)


async def test_many_keys_through_little_room():
    people = [person(number) for number in range(20)]
    with trio.fail_after(30):
        async with world(pool={"max_clients": 3}) as w, trio.open_nursery() as nursery:

            async def use(who: Identity) -> None:
                tool = await w.tool(who)
                await tool.call({"who": who.principal}, identity=who)

            calls = [start(nursery, lambda who=who: use(who)) for who in people]
            for call in calls:
                await call.answer()
            assert w.sent() == 20
            quiet(w.pool)
            await until(lambda: w.pool.openings.rooms.used == len(w.pool.openings.clients) <= 3)


async def test_a_call_after_an_eviction_waits_for_the_close_and_opens_in_the_same_actor():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        actor = tool.binding.actor
        event = trio.Event()
        w.server.on("DELETE", HoldAnswer(event), times=1)
        w.pool.evict(actor.key)
        assert actor.machine.client is None, "it says so in the turn that picks the key"
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("DELETE")
        await until(lambda: w.pool.waiting == 1)
        assert openings(w) == 1
        event.set()
        await call.answer()
        assert openings(w) == 2
        assert (await w.tool()).binding.actor is actor


async def test_a_client_that_cannot_be_closed_in_order_is_killed(monkeypatch):
    async def aclose(self, deadline):
        raise RuntimeError("no")

    async with world() as w:
        await w.tool()
        (client,) = w.pool.openings.clients.values()
        monkeypatch.setattr(type(client), "aclose", aclose)
        await w.evict()
        counts = w.pool.openings.counts
        assert (counts.closed, counts.killed) == (0, 1)
        await w.server.wait_until(lambda: w.server.connections == 0)


async def test_an_idle_client_is_closed(autojump_clock):
    with trio.fail_after(5000):
        async with world(pool={"idle_timeout": 100.0, "list_ttl": 5000.0}) as w:
            tool = await w.tool()
            await trio.sleep(60)
            await tool.call(identity=ALICE)
            await trio.sleep(99)
            assert len(w.pool.openings.clients) == 1, "it counts from the end of the last place"
            await trio.sleep(2)
            assert not w.pool.openings.clients
            assert w.server.count("DELETE") == 1
            await tool.call(identity=ALICE)
            assert openings(w) == 2


async def test_a_client_in_use_is_not_idle(autojump_clock):
    with trio.fail_after(5000):
        tools = [FakeTool("long", delay=500.0)]
        async with world(tools=tools, pool={"idle_timeout": 50.0}) as w:
            tool = await w.tool(name="long")
            await tool.call(identity=ALICE, deadline=trio.current_time() + 1000)
            assert openings(w) == 1
            await trio.sleep(51)
            assert not w.pool.openings.clients


async def test_a_client_in_use_outlives_its_age_by_a_tenth(autojump_clock):
    with trio.fail_after(5000):
        tools = [FakeTool("long", delay=2000.0)]
        async with world(tools=tools, pool={"max_age": 1000.0}) as w, trio.open_nursery() as nursery:
            tool = await w.tool(name="long")
            (client,) = w.pool.openings.clients.values()
            call = start(nursery, lambda: tool.call(identity=ALICE, deadline=trio.current_time() + 4000))
            await trio.sleep(client.ends_at + 99 - trio.current_time())
            assert client.ended is None
            await trio.sleep(3)
            assert client.ended.kind == "aged"
            await call.done.wait()
            assert call.error is None


async def test_a_client_that_is_too_old_is_replaced_and_whoever_waits_on_it_is_told_so(autojump_clock):
    with trio.fail_after(5000):
        pool = {"max_age": 100.0, "max_in_flight": 1, "deadline": 500.0}
        async with world(pool=pool) as w, trio.open_nursery() as nursery:
            alices, bobs = await w.tool(), await w.tool(BOB)
            event = trio.Event()
            w.server.on("tools/call", HoldAnswer(event), times=1)
            sent = start(nursery, lambda: bobs.call({"n": 1}, identity=BOB))
            await w.server.wait_for("tools/call")
            held = start(nursery, lambda: alices.call({"n": 2}, identity=ALICE))  # has a place and no turn
            await until(lambda: w.pool.admission.waiting == 1)
            await trio.sleep(120)
            event.set()
            refusal = await held.refusal("client-closed")
            assert "aged" in str(refusal)
            assert (await sent.answer()).text == '{"n": 1}', "what was sent goes on"
            assert w.sent() == 1
            assert (await alices.call({"n": 3}, identity=ALICE)).text == '{"n": 3}'
            assert openings(w) == 3
            assert [each.kind for each in w.pool.records.events].count("aged") == 2


async def test_a_client_is_closed_that_was_in_use_when_its_time_had_come(autojump_clock):
    # in use by a list on its way, which takes no place; a place was given back shortly before the list came
    with trio.fail_after(5000):
        async with world(pool={"idle_timeout": 100.0, "open_timeout": 500.0, "deadline": 500.0}) as w:
            async with trio.open_nursery() as nursery:
                server = await w.pool.bind(ALICE, "files")
                await w.tool()
                event = trio.Event()
                w.server.on("tools/list", HoldAnswer(event), times=1)
                listing = start(nursery, lambda: w.pool.refresh(ALICE))
                await trio.sleep(150)
                await refused(server.prompts(identity=ALICE), "not-offered")
                event.set()
                await listing.answer()
            assert len(w.pool.openings.clients) == 1
            await trio.sleep(205)  # the janitor looks again at the latest when the time has passed once more
            assert not w.pool.openings.clients


# ---------------------------------------------------------------------------- what cannot be opened


def test_what_befell_an_opening_says_that_nothing_of_a_call_was_sent():
    refusal = AuthorizationRequired("consent first", delivery="not-sent")
    assert as_open_failure(refusal) is refusal
    late = DeadlineExceeded("late", delivery="not-sent")
    lost = ConnectionLost("lost", delivery="in-doubt", retry_after=2.0).saying("stage", "connect")
    for error, kind in ((late, OpenFailed), (lost, ConnectionLost)):
        failure = as_open_failure(error)
        assert type(failure) is kind
        assert (failure.delivery, failure.__cause__) == ("not-sent", error)
        assert (failure.retry_after, failure.noted) == (error.retry_after, error.noted)
        assert failure.message.startswith(error.message)


async def test_nobody_listens():
    async with FakeServer.http() as server:
        url = server.url
    async with afpool.open_pool([Server(name="files", plan=Plan(transport=HttpTransport(url=url)))]) as pool:
        error = await refused(pool.tools(ALICE), "open-failed")
        assert error.retry_after


@pytest.mark.parametrize("status", [400, 403, 404, 500, 503])
async def test_a_server_that_refuses_to_be_opened(status):
    async with world() as w:
        w.server.on("*", Status(status, body=b"no"))
        await refused(w.pool.tools(ALICE), "open-failed")
        assert not w.pool.openings.clients
        assert w.pool.openings.rooms.used == 0
