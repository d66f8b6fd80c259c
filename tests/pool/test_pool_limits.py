"""What runs at once, who waits for what and in which order, and who is refused with which numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

import afpool
from afpool import HttpTransport, Identity, Plan, Server
from afpool.testing import FakeServer, FakeTool, Hold, echo_tool
from tests.pool.kit import ALICE, BOB, CAROL, Outcome, World, quiet, refused, start, until, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool import BoundTool


def numbers(w: World, tool: str = "echo") -> list[int]:
    """The argument `n` of every call that reached the server, in order."""
    return [arrival.arguments["n"] for arrival in w.server.arrivals("tools/call", tool)]


def call(tool: BoundTool, n: int, who: Identity = ALICE, **options: Any) -> Callable[[], Any]:
    return lambda: tool.call({"n": n}, identity=who, **options)


def held(w: World) -> trio.Event:
    """Let the server hold every call until the event is set."""
    released = trio.Event()
    w.server.on("tools/call", Hold(released))
    return released


# ---------------------------------------------------------------------------- places of a key


async def test_sixteen_places_and_first_come_first_served():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = held(w)
        calls: list[Outcome] = []
        for n in range(40):
            calls.append(start(nursery, call(tool, n)))
            await until(lambda n=n: len(w.pool.running) == n + 1)
        await w.server.wait_for("tools/call", 16)
        assert tool.binding.actor.machine.in_flight == 16
        assert w.pool.waiting == 24
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert w.sent() == 16
        released.set()
        for outcome in calls:
            await outcome.answer()
        # those that waited went out in the order in which they had come, as places became free
        waited = numbers(w)[16:]
        assert sorted(numbers(w)) == list(range(40))
        assert [tool.binding.actor.machine.in_flight, w.pool.waiting] == [0, 0]
        assert max(abs(n - place) for place, n in enumerate(waited, 16)) <= 16
        quiet(w.pool)


async def test_one_place_keeps_the_order():
    async with world(pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = held(w)
        for n in range(12):
            start(nursery, call(tool, n))
            await until(lambda n=n: len(w.pool.running) == n + 1)
        released.set()
        await until(lambda: not w.pool.running)
        assert numbers(w) == list(range(12))
        assert w.server.connections_peak <= 3  # calls, control, stream
        quiet(w.pool)


async def test_a_waiter_that_leaves_takes_nobodys_turn():
    async with world(pool={"max_operations": 1}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = held(w)
        start(nursery, call(tool, 0))
        await w.server.wait_for("tools/call")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as leaving:
                leaving.start_soon(call(tool, 1))
                await until(lambda: w.pool.waiting == 1)
                start(nursery, call(tool, 2))
                await until(lambda: w.pool.waiting == 2)
                scope.cancel()
        late = start(nursery, call(tool, 3, deadline=trio.current_time() + 0.02))
        await late.refusal("deadline-exceeded")
        assert w.pool.waiting == 1
        released.set()
        await until(lambda: not w.pool.running)
        assert numbers(w) == [0, 2]
        quiet(w.pool)


async def test_waiters_of_a_key_are_bounded():
    async with world(pool={"max_operations": 1, "max_waiting": 3}) as w, trio.open_nursery() as nursery:
        tool, other = await w.tool(), await w.tool(BOB)
        released = held(w)
        for n in range(4):
            start(nursery, call(tool, n))
            await until(lambda n=n: len(w.pool.running) == n + 1)
        error = await refused(call(tool, 9)(), "overloaded")
        assert "3" in str(error)
        assert "max_waiting" in str(error)
        # another key has places of its own
        await until(lambda: w.sent() == 1)
        bobs = start(nursery, call(other, 7, BOB))
        await w.server.wait_for("tools/call", 2)
        released.set()
        await bobs.answer()
        await until(lambda: not w.pool.running)
        assert 9 not in numbers(w)
        quiet(w.pool)


async def test_waiters_in_all_are_bounded():
    async with world(pool={"max_operations": 1, "max_waiting_total": 2}) as w, trio.open_nursery() as nursery:
        tools = [(who, await w.tool(who)) for who in (ALICE, BOB, CAROL)]
        released = held(w)
        for who, tool in tools[:2]:
            start(nursery, call(tool, 1, who))
            start(nursery, call(tool, 2, who))
        await until(lambda: w.pool.waiting == 2)
        error = await refused(call(tools[0][1], 3)(), "overloaded")
        assert "max_waiting_total 2" in str(error)
        # who need not wait is not refused
        carols = start(nursery, call(tools[2][1], 4, CAROL))
        await w.server.wait_for("tools/call", 3)
        await refused(call(tools[2][1], 5, CAROL)(), "overloaded")
        released.set()
        await carols.answer()
        await until(lambda: not w.pool.running)
        assert 5 not in numbers(w)
        quiet(w.pool)


async def test_waiters_for_the_runtime_are_bounded_too():
    limits = {"max_in_flight": 1, "max_waiting_total": 2}
    async with world(pool=limits) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = held(w)
        for n in range(3):
            start(nursery, call(tool, n))
        await until(lambda: w.pool.admission.waiting == 2)
        error = await refused(call(tool, 9)(), "overloaded")
        assert "max_in_flight 1" in str(error)
        released.set()
        await until(lambda: not w.pool.running)
        assert sorted(numbers(w)) == [0, 1, 2]
        quiet(w.pool)


async def test_a_call_from_inside_a_call_is_refused_only_where_it_would_wait_for_itself():
    tools = [FakeTool("outer"), echo_tool()]
    async with world(tools=tools, pool={"max_operations": 2}) as w, trio.open_nursery() as nursery:
        listed = await w.pool.tools(ALICE)
        bobs = await w.tool(BOB)
        released = trio.Event()
        w.server.on("tools/call", Hold(released), tool="outer")
        outer = start(nursery, call(listed["outer"], 0))
        await w.server.wait_for("tools/call")
        (ticket,) = w.pool.running
        chain = (ticket,)
        # a place is free: it runs
        await listed["echo"].call({"n": 1}, identity=ALICE, chain=chain)
        other = start(nursery, call(listed["outer"], 0))
        await w.server.wait_for("tools/call", 2, tool="outer")
        # none is: whoever waits may be waiting for itself
        error = await refused(listed["echo"].call({"n": 2}, identity=ALICE, chain=chain), "overloaded")
        assert "wait for itself" in str(error)
        # another key has places of its own, and a call of no chain waits as usual
        await bobs.call({"n": 3}, identity=BOB, chain=chain)
        waits = start(nursery, call(listed["echo"], 4))
        await until(lambda: w.pool.waiting == 1)
        released.set()
        for outcome in (outer, other, waits):
            await outcome.answer()
        assert numbers(w) == [1, 3, 4]
        quiet(w.pool)


# ---------------------------------------------------------------------------- the runtime's places


async def test_tenants_share_what_the_runtime_has():
    """A tenant with many callers holds up another one's single call by one place at most."""
    people = {
        tenant: [Identity(tenant=tenant, principal=f"{tenant}-{n}") for n in range(8)]
        for tenant in ("acme", "globex", "initech")
    }
    async with (
        world(pool={"max_in_flight": 1}, http={"era": "stateless"}) as w,
        trio.open_nursery() as nursery,
    ):
        acme = [(who, await w.tool(who)) for who in people["acme"]]
        globex = [(who, await w.tool(who)) for who in people["globex"][:2]]
        initech = [(who, await w.tool(who)) for who in people["initech"][:1]]
        released = held(w)
        first = start(nursery, call(acme[0][1], 0, acme[0][0]))
        await w.server.wait_for("tools/call")
        for place, (who, tool) in enumerate([*acme, *acme, *globex, *initech], 1):
            start(nursery, call(tool, place, who))
            await until(lambda place=place: w.pool.admission.waiting == place)
        released.set()
        await first.answer()
        await until(lambda: not w.pool.running)
        order = numbers(w)
        # acme's come in turn over its eight keys, and between them one of each other tenant
        assert order[:7] == [0, 1, 17, 19, 2, 18, 3]
        assert order[7:] == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
        assert w.server.connections_peak <= 3 * 11
        quiet(w.pool)


async def test_a_server_has_no_more_than_its_share_and_is_passed_over():
    async with FakeServer.http() as one, FakeServer.http() as two:
        servers = [
            Server(name=name, plan=Plan(transport=HttpTransport(url=fake.url)))
            for name, fake in (("one", one), ("two", two))
        ]
        async with afpool.open_pool(servers, max_in_flight=2) as pool, trio.open_nursery() as nursery:
            tools = await pool.tools(ALICE)
            released = trio.Event()
            one.on("tools/call", Hold(released))
            for n in range(2):
                start(nursery, call(tools["one__echo"], n))
            await one.wait_for("tools/call", 2)
            waits = start(nursery, call(tools["two__echo"], 3))
            await until(lambda: pool.admission.waiting == 1)
            assert two.count("tools/call") == 0
            released.set()
            await waits.answer()
            await until(lambda: not pool.running)
            quiet(pool)


async def test_a_caller_that_leaves_the_runtimes_queue():
    async with world(pool={"max_in_flight": 1}) as w, trio.open_nursery() as nursery:
        tool, bobs = await w.tool(), await w.tool(BOB)
        released = held(w)
        start(nursery, call(tool, 0))
        await w.server.wait_for("tools/call")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as leaving:
                leaving.start_soon(call(bobs, 1, BOB))
                await until(lambda: w.pool.admission.waiting == 1)
                scope.cancel()
        assert w.pool.admission.waiting == 0
        assert bobs.binding.actor.machine.in_flight == 0
        late = start(nursery, call(bobs, 2, BOB, deadline=trio.current_time() + 0.02))
        await late.refusal("deadline-exceeded")
        released.set()
        await until(lambda: not w.pool.running)
        await call(bobs, 3, BOB)()
        assert numbers(w) == [0, 3]
        quiet(w.pool)


# ---------------------------------------------------------------------------- operators


async def test_pause_holds_admission_and_lets_what_runs_settle():
    async with world(pool={"max_operations": 8}) as w, trio.open_nursery() as nursery:
        tool, bobs = await w.tool(), await w.tool(BOB)
        key = w.pool.key_of(ALICE, "files")
        released = held(w)
        running = [start(nursery, call(tool, n)) for n in range(8)]
        await w.server.wait_for("tools/call", 8)
        opened = w.pool.statistics().opened
        w.pool.pause(key)
        waits = [start(nursery, call(tool, n)) for n in range(8, 11)]
        await until(lambda: w.pool.waiting == 3)
        drained = trio.Event()

        async def drain() -> None:
            await w.pool.drain(key)
            drained.set()

        nursery.start_soon(drain)
        await trio.testing.wait_all_tasks_blocked()
        assert not drained.is_set()
        released.set()
        for outcome in running:
            await outcome.answer()
        with trio.fail_after(5):
            await drained.wait()
        assert tool.binding.actor.machine.in_flight == 0
        assert w.pool.waiting == 3
        await call(bobs, 99, BOB)()  # nobody else is paused
        w.pool.resume(key)
        for outcome in waits:
            await outcome.answer()
        assert w.pool.statistics().opened == opened + 1  # drained: what follows runs on a client of its own
        assert sorted(n for n in numbers(w) if n != 99) == list(range(11))
        quiet(w.pool)


async def test_a_paused_key_keeps_deadlines_and_revocations():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        w.pool.pause(w.pool.key_of(ALICE, "files"))
        late = start(nursery, call(tool, 0, deadline=trio.current_time() + 0.02))
        await late.refusal("deadline-exceeded")
        revoked = start(nursery, call(tool, 1))
        await until(lambda: w.pool.waiting == 1)
        w.pool.invalidate(identity=ALICE)
        await revoked.refusal("binding-changed")
        assert w.sent() == 0
        quiet(w.pool)


async def test_a_drain_that_nobody_waits_for_any_more():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        key = w.pool.key_of(ALICE, "files")
        released = held(w)
        running = start(nursery, call(tool, 0))
        await w.server.wait_for("tools/call")
        with trio.move_on_after(0.01) as scope:
            await w.pool.drain(key)
        assert scope.cancelled_caught
        released.set()
        await running.answer()
        await call(tool, 1)()
        quiet(w.pool)


@pytest.mark.parametrize("how", ["answered", "cancelled", "late"])
async def test_a_full_mailbox_loses_no_place(how):
    """An actor that is stopped by a debugger takes messages, up to a limit; releases are never refused."""
    async with world(pool={"max_waiting": 4}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = held(w)
        running = [start(nursery, call(tool, n)) for n in range(2)]
        await w.server.wait_for("tools/call", 2)
        actor = tool.binding.actor
        actor.pause()
        scope = trio.CancelScope()
        waiting: list[Outcome] = []

        async def waiters() -> None:
            with scope:
                async with trio.open_nursery() as inner:
                    waiting.extend(
                        start(
                            inner,
                            call(tool, n, deadline=trio.current_time() + (0.05 if how == "late" else 60)),
                        )
                        for n in range(10, 14)
                    )

        nursery.start_soon(waiters)
        await until(lambda: w.pool.waiting == 4)
        error = await refused(call(tool, 20)(), "overloaded")
        assert "4" in str(error)
        released.set()
        for outcome in running:
            await outcome.answer()  # a place is given back although the actor is stopped
        assert actor.machine.in_flight == 0
        if how == "cancelled":
            scope.cancel()
        elif how == "late":
            for outcome in waiting:
                await outcome.refusal("deadline-exceeded")
        if how != "answered":
            await until(lambda: w.pool.waiting == 0)
        actor.resume()
        if how == "answered":
            for outcome in waiting:
                await outcome.answer()
        await call(tool, 21)()
        assert sorted(numbers(w)) == sorted([0, 1, 21, *(range(10, 14) if how == "answered" else ())])
        quiet(w.pool)
