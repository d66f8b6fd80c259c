"""Calls that are made from inside other calls: they may wait for others, but none for itself.

Who makes such a call passes the tickets of the calls that wait for it as `chain`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server
from afpool.testing import FakeServer, FakeTool, Hold, echo_tool
from tests.pool.kit import ALICE, BOB, CAROL, quiet, refused, start, until, world
from tests.pool.test_pool_limits import call, held

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOOLS = [FakeTool("outer"), echo_tool()]


@pytest.mark.parametrize("limit", [1, 2])
async def test_calls_from_inside_calls_do_not_wait_for_one_another_for_ever(limit: int):
    """Of the inner calls the last one, which would leave nobody to end, is refused; the others are served."""
    people = [Identity(tenant=f"tenant-{n}", principal="p") for n in range(limit)]
    async with world(tools=TOOLS, pool={"max_in_flight": limit}) as w, trio.open_nursery() as nursery:
        outer = [(await w.pool.tools(person))["outer"] for person in people]
        bobs = await w.tool(BOB)
        released = held(w)
        running = [start(nursery, call(tool, 0, person)) for tool, person in zip(outer, people, strict=True)]
        await w.server.wait_for("tools/call", limit)
        chains = [(ticket,) for ticket in w.pool.running]
        *patient, last = chains
        inner = [start(nursery, call(bobs, 1, BOB, chain=chain)) for chain in patient]
        await until(lambda: w.pool.admission.waiting == len(patient))
        # one more of the same chain changes nothing: somebody who runs waits for nobody
        again = [start(nursery, call(bobs, 2, BOB, chain=chain)) for chain in patient]
        await until(lambda: w.pool.admission.waiting == 2 * len(patient))
        error = await refused(call(bobs, 9, BOB, chain=last)(), "overloaded")
        assert "wait for itself" in str(error)
        assert f"max_in_flight {limit}" in str(error)
        released.set()
        for outcome in (*running, *inner, *again):
            await outcome.answer()
        quiet(w.pool)


async def test_a_tenant_that_has_its_share_waits_for_no_other_tenants_calls():
    """Whoever else runs gives it no place: of its inner calls the last is refused, as if nobody else ran."""
    people = [Identity(tenant="acme", principal=str(n)) for n in range(4)]
    stranger = Identity(tenant="globex", principal="erin")
    async with world(tools=TOOLS, pool={"max_in_flight": 8}) as w, trio.open_nursery() as nursery:
        outer = [(await w.pool.tools(person))["outer"] for person in (*people, stranger)]
        bobs = await w.tool(BOB)
        released = held(w)
        running = [
            start(nursery, call(tool, 0, person))
            for tool, person in zip(outer, (*people, stranger), strict=True)
        ]
        await w.server.wait_for("tools/call", 5)
        *patient, last = [(ticket,) for ticket, one in w.pool.running.items() if one.tenant == "acme"]
        inner = [start(nursery, call(bobs, 1, BOB, chain=chain)) for chain in patient]
        await until(lambda: w.pool.admission.waiting == len(patient))
        assert "wait for itself" in str(await refused(call(bobs, 9, BOB, chain=last)(), "overloaded"))
        released.set()
        for outcome in (*running, *inner):
            await outcome.answer()
        quiet(w.pool)


async def test_of_many_servers_and_tenants_the_last_inner_call_is_refused_as_well():
    """Nobody has its share, neither a tenant nor a server: it is all who run that wait for such a call."""
    people = [Identity(tenant=f"tenant-{n}", principal="p") for n in range(8)]
    async with contextlib.AsyncExitStack() as stack:
        fakes = {
            name: await stack.enter_async_context(FakeServer.http(tools=TOOLS)) for name in ("a", "b", "c")
        }
        servers = [
            Server(name=name, plan=Plan(transport=HttpTransport(url=fake.url)))
            for name, fake in fakes.items()
        ]
        pool = await stack.enter_async_context(afpool.open_pool(servers, max_in_flight=8))
        nursery = await stack.enter_async_context(trio.open_nursery())
        bobs = (await pool.tools(BOB))["c__echo"]
        tools = [
            (await pool.tools(who))[f"{server}__outer"]
            for who, server in zip(people, "aaabbbcc", strict=True)
        ]
        released = trio.Event()
        for fake in fakes.values():
            fake.on("tools/call", Hold(released))
        running = [start(nursery, call(tool, 0, who)) for tool, who in zip(tools, people, strict=True)]
        for server, fake in fakes.items():
            await fake.wait_for("tools/call", "aaabbbcc".count(server))
        *patient, last = [(ticket,) for ticket in pool.running]
        inner = [start(nursery, call(bobs, 1, BOB, chain=chain)) for chain in patient]
        await until(lambda: pool.admission.waiting == len(patient))
        assert "wait for itself" in str(await refused(call(bobs, 9, BOB, chain=last)(), "overloaded"))
        released.set()
        for outcome in (*running, *inner):
            await outcome.answer()
        quiet(pool)


# ---------------------------------------------------------------------------- room for another client

ANNE = Identity(tenant="acme", principal="anne")


@contextlib.asynccontextmanager
async def crowded(clients: int, people: list[Identity], **pool: Any) -> AsyncIterator[Any]:
    """A pool that is full: each of `people` has a client, with a call under way in it that is held.

    Gives the world, the calls, their chains, and tools of two who have no client any more.
    """
    limits = {"max_clients": clients, "open_timeout": 60.0, **pool}
    async with world(tools=TOOLS, pool=limits) as w, trio.open_nursery() as nursery:
        others = [await w.tool(who) for who in (BOB, ANNE)]
        for who in (BOB, ANNE):
            if w.pool._existing(w.pool.key_of(who, "files")).machine.client is not None:
                await w.evict(who)
        outer = [(await w.pool.tools(who))["outer"] for who in people]
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="outer")
        calls = [start(nursery, call(tool, 0, who)) for tool, who in zip(outer, people, strict=True)]
        await w.server.wait_for("tools/call", len(people))
        yield w, nursery, calls, [(ticket,) for ticket in w.pool.running], others, released
        released.set()
        for outcome in calls:
            await outcome.answer()
        quiet(w.pool)


def needs_room(error: Exception, clients: int) -> bool:
    return f"max_clients {clients}" in str(error) and "wait for itself" in str(error)


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_call_does_not_wait_for_the_client_of_the_call_that_it_is_made_from(limit: int):
    """Of those that need another client the last one is refused at once, and the others get theirs."""
    people = [Identity(tenant=f"tenant-{n}", principal="p") for n in range(limit)]
    async with crowded(limit, people) as (w, nursery, _, chains, (bobs, annes), released):
        *patient, last = chains
        inner = [start(nursery, call(bobs, 1, BOB, chain=chain)) for chain in patient]
        await until(lambda: w.pool.openings.rooms.waiting == len(patient))
        error = await refused(call(annes, 9, ANNE, chain=last)(), "overloaded")
        assert needs_room(error, limit)
        assert error.delivery == "not-sent"
        await until(lambda: w.pool.openings.rooms.waiting == len(patient))
        released.set()
        for outcome in inner:
            await outcome.answer()


async def test_a_call_made_from_one_that_has_ended_waits_like_any_other():
    async with crowded(1, [ALICE]) as (w, nursery, _, _, (bobs, _), released):
        over = (10**9,)
        waits = start(nursery, call(bobs, 1, BOB, chain=over))
        await until(lambda: w.pool.openings.rooms.waiting == 1)
        released.set()
        await waits.answer()


async def test_a_call_that_joins_those_who_wait_for_room_is_refused_itself():
    people = [Identity(tenant=f"tenant-{n}", principal="p") for n in range(2)]
    async with crowded(2, people) as (w, nursery, _, (first, second), (bobs, _), released):
        waits = start(nursery, call(bobs, 1, BOB, chain=first))
        stranger = start(nursery, call(bobs, 2, BOB))
        await until(lambda: w.pool.openings.rooms.waiting == 1 and w.pool.waiting == 2)
        assert needs_room(await refused(call(bobs, 9, BOB, chain=second)(), "overloaded"), 2)
        assert w.pool.waiting == 2  # who waited, waits
        released.set()
        await waits.answer()
        await stranger.answer()


async def test_a_tenant_that_has_its_share_of_clients_waits_for_no_other_tenants():
    people = [Identity(tenant="acme", principal=str(n)) for n in range(4)]
    stranger = Identity(tenant="globex", principal="erin")
    async with crowded(8, [*people, stranger]) as (w, nursery, _, chains, (bobs, annes), released):
        *patient, last = [chain for chain in chains if w.pool.running[chain[0]].tenant == "acme"]
        inner = [start(nursery, call(bobs, 1, BOB, chain=chain)) for chain in patient]
        await until(lambda: w.pool.waiting == len(patient))
        assert needs_room(await refused(call(annes, 9, ANNE, chain=last)(), "overloaded"), 8)
        released.set()
        for outcome in inner:
            await outcome.answer()


async def test_a_call_that_waits_for_its_opening_alone_is_none_that_waits_for_room():
    """It will be served, whatever becomes of the other, and then its outer call ends and makes room."""
    people = [Identity(tenant="acme", principal=str(n)) for n in range(4)]
    async with crowded(8, people) as (w, nursery, _, (first, *rest), (bobs, _), released):
        carols = await w.tool(CAROL)
        await w.evict(CAROL)
        opens = trio.Event()
        w.server.on("initialize", Hold(opens), times=1)
        before = w.server.count("initialize")
        opening = start(nursery, call(carols, 1, CAROL, chain=tuple(ticket for (ticket,) in rest)))
        await w.server.wait_for("initialize", before + 1)
        inner = start(nursery, call(bobs, 2, BOB, chain=first))
        await until(lambda: w.pool.openings.rooms.waiting == 1)
        opens.set()
        await opening.answer()
        released.set()
        await inner.answer()


async def test_a_call_from_inside_a_call_has_an_idle_client_make_room():
    async with crowded(2, [ALICE]) as (w, _nursery, _, (chain,), (bobs, annes), _):
        before = w.pool.openings.evicted
        assert (await bobs.call({"n": 1}, identity=BOB, chain=chain)).code == "ok"
        assert (await annes.call({"n": 2}, identity=ANNE, chain=chain)).code == "ok"
        assert w.pool.openings.evicted == before + 1


async def test_a_call_from_inside_a_call_waits_for_others_that_run():
    async with world(tools=TOOLS, pool={"max_in_flight": 2}) as w, trio.open_nursery() as nursery:
        outer, bobs, carols = (await w.pool.tools(ALICE))["outer"], await w.tool(BOB), await w.tool(CAROL)
        released, ended = trio.Event(), trio.Event()
        w.server.on("tools/call", Hold(released), tool="outer")
        w.server.on("tools/call", Hold(ended), tool="echo", times=1)
        first = start(nursery, call(outer, 0))
        await w.server.wait_for("tools/call")
        chain = tuple(w.pool.running)
        other = start(nursery, call(carols, 1, CAROL))
        await w.server.wait_for("tools/call", 2)
        inner = start(nursery, call(bobs, 2, BOB, chain=chain))
        await until(lambda: w.pool.admission.waiting == 1)
        ended.set()
        await inner.answer()
        released.set()
        for outcome in (first, other):
            await outcome.answer()
        quiet(w.pool)


async def test_a_drain_refuses_the_call_that_it_would_wait_for_through_what_runs():
    async with world(tools=TOOLS, pool={"max_operations": 2}) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        key = w.pool.key_of(ALICE, "files")
        released = held(w)
        outer = start(nursery, call(listed["outer"], 0))
        await w.server.wait_for("tools/call")
        chain = tuple(w.pool.running)
        w.pool.pause(key)
        inner = start(nursery, call(listed["echo"], 1, chain=chain))
        other = start(nursery, call(listed["echo"], 2))
        await until(lambda: w.pool.waiting == 2)
        drained = trio.Event()

        async def drain() -> None:
            await w.pool.drain(key)
            drained.set()

        nursery.start_soon(drain)
        error = await inner.refusal("overloaded")
        assert "wait for itself" in str(error)
        w.pool.resume(key)
        released.set()
        await outer.answer()
        await other.answer()
        with trio.fail_after(5):
            await drained.wait()
        quiet(w.pool)
