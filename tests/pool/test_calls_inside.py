"""Calls that are made from inside other calls: they may wait for others, but none for itself.

Who makes such a call passes the tickets of the calls that wait for it as `chain`.
"""

from __future__ import annotations

import pytest
import trio

from afpool import Identity
from afpool.testing import FakeTool, Hold, echo_tool
from tests.pool.kit import ALICE, BOB, CAROL, quiet, refused, start, until, world
from tests.pool.test_pool_limits import call, held

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
