"""^C at any point: no place is lost, nothing runs twice, and what is open is what the server has open.

A profile function counts the calls that are made inside the pool and below, and raises SIGINT at one of
them, so that a number names a point and not a moment.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import actors
import afpool
from afpool import HttpTransport, Plan, Server
from afpool.testing import FakeServer, FakeTool, Hang, echo_tool
from tests.pool.kit import ALICE, BOB, memory_world, quiet, until, world

if TYPE_CHECKING:
    from types import FrameType

POINTS = 200
SEED = 20_260_728
OURS = tuple(
    f"{next(iter(package.__path__))}/{part}"
    for package, parts in ((afpool, ("pool", "client", "transports", "protocol", "_base")), (actors, ("",)))
    for part in parts
)


class Trigger:
    """Raises SIGINT at the `at`-th call of a function of ours; only counts when that is `None`."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.count = 0
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(OURS):
            return
        self.count += 1
        if self.count == self.at:
            sys.setprofile(None)
            self.where = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            signal.raise_signal(signal.SIGINT)


@attrs.define
class Run:
    """What one run came to; `opened` is the point at which the pool was open."""

    where: str = ""
    inside: bool = False
    raised: bool = False
    opened: int = attrs.field(default=0, eq=False)


async def load(pool: afpool.Pool, answers: Counter[int]) -> None:
    """Two tenants, two places each, callers that leave, and a list in between."""
    tools = {who: await pool.tools(who) for who in (ALICE, BOB)}

    async def caller(n: int) -> None:
        who = (ALICE, BOB)[n % 2]
        with trio.move_on_after(0.004 if n % 3 == 2 else 60):
            result = await tools[who]["slow" if n % 3 == 2 else "echo"].call({"n": n}, identity=who)
            answers[result.document["content"][0]["text"].count("n") and n] += 1

    async with trio.open_nursery() as nursery:
        for n in range(1, 9):
            nursery.start_soon(caller, n)
        nursery.start_soon(pool.refresh, ALICE)


async def interrupted(trigger: Trigger) -> Run:
    run = Run()
    answers: Counter[int] = Counter()
    slow = FakeTool("slow", delay=0.008, cancellable=False)
    async with FakeServer.http(tools=[echo_tool(), slow]) as server:
        plan = Plan(transport=HttpTransport(url=server.url))
        pool: afpool.Pool | None = None
        sys.setprofile(trigger)
        try:
            async with afpool.open_pool([Server(name="files", plan=plan)], max_operations=2) as pool:
                run.opened = trigger.count
                try:
                    await load(pool, answers)
                except* KeyboardInterrupt:
                    run.inside = True
                    sys.setprofile(None)
                    await whole(pool, server)
        except KeyboardInterrupt:
            run.raised = True
        finally:
            sys.setprofile(None)
        run.where = trigger.where
        assert pool is None or pool.closed.is_set()
        with trio.fail_after(5):
            await server.wait_until(lambda: server.connections == 0)
        ran = Counter(run.arguments["n"] for run in server.executed)
        assert not ran or max(ran.values()) == 1, "a call ran twice"
        assert set(answers) <= set(ran)
    return run


async def one_more(tool: afpool.BoundTool, n: int, who: afpool.Identity) -> None:
    await tool.call({"n": n}, identity=who)


async def whole(pool: afpool.Pool, server: FakeServer) -> None:
    """The pool that was interrupted has lost nothing and serves on."""
    await until(lambda: not pool.running and not pool.settling and not pool.admission.used)
    quiet(pool)
    for who in (ALICE, BOB):
        tools = await pool.tools(who)
        async with trio.open_nursery() as nursery:  # every place is there
            for n in range(100, 104):
                nursery.start_soon(one_more, tools["echo"], n + 10 * (who is BOB), who)
    quiet(pool)
    assert pool.records.failures == 0
    clients = list(pool.openings.clients.values())
    held = {client.negotiated.session_id for client in clients if client.negotiated is not None}
    assert len(held) == len(clients) == 2
    assert held <= set(server.sessions)
    open_now = [client.channel.link.statistics() for client in clients]  # type: ignore[union-attr]
    await server.wait_until(lambda: server.connections <= sum(link.active + link.idle for link in open_now))


def go(at: int | None) -> tuple[Run, Trigger]:
    trigger = Trigger(at)
    try:
        return trio.run(interrupted, trigger, restrict_keyboard_interrupt_to_checkpoints=False), trigger
    finally:
        sys.setprofile(None)


def test_at_every_point_of_the_opening():
    whole_run, _ = go(None)
    lost = []
    for at in range(1, whole_run.opened + 10):
        run, _ = go(at)
        if not (run.inside or run.raised):
            lost.append(at)
    assert whole_run.opened > 20
    assert lost == []


@pytest.mark.timeout(300)
def test_at_two_hundred_points():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    whole_run, counted = go(None)
    assert counted.count > 1000
    points = random.Random(SEED)
    reached = Counter[str]()
    for number in range(POINTS):
        # a tenth is drawn from the opening, which is short: chance alone would hardly meet it
        last = whole_run.opened if number % 10 == 0 else int(counted.count * 0.95)
        at = points.randrange(1, last)
        try:
            run, trigger = go(at)
        except KeyboardInterrupt:
            # it came when everything was done, or outside of what is ours
            reached["outside"] += 1
            continue
        except BaseException as error:
            error.add_note(f"interrupted at point {at}")
            raise
        reached["inside" if run.inside else "around" if run.raised else "never"] += 1
        assert trigger.where or run == Run(), f"point {at} was not reached"
    # the points are spread: most are met while calls run, some while the pool is opened or closed
    assert reached["inside"] > POINTS / 3, reached
    assert reached["around"] > 3, reached
    assert reached["outside"] < POINTS / 10, reached


def test_a_second_one_ends_the_leaving_at_once():
    async def main() -> None:
        async with FakeServer.http() as server:
            server.on("DELETE", Hang())
            plan = Plan(transport=HttpTransport(url=server.url))

            @trio.lowlevel.enable_ki_protection  # so that it comes where a terminal's comes: in the main task
            async def twice() -> None:
                await server.wait_for("tools/call")
                signal.raise_signal(signal.SIGINT)
                await server.wait_for("DELETE")
                signal.raise_signal(signal.SIGINT)

            server.on("tools/call", Hang())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(twice)
                try:
                    async with afpool.open_pool([Server(name="files", plan=plan)], close_timeout=30) as pool:
                        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
                finally:
                    assert pool.closed.is_set()
                    with trio.CancelScope(shield=True):
                        await server.wait_until(lambda: server.connections == 0)

    began = time.monotonic()
    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(main)
    assert time.monotonic() - began < 5
    assert leaves(caught.value) == {KeyboardInterrupt}


def leaves(error: BaseException) -> set[type[BaseException]]:
    if isinstance(error, BaseExceptionGroup):
        return {kind for each in error.exceptions for kind in leaves(each)}
    return {type(error)}


def test_one_that_comes_while_a_call_waits_in_the_main_task():
    """The call ends as one that is cancelled does: its place settles behind it."""
    seen: list[Any] = []

    async def main() -> None:
        async with FakeServer.http(
            tools=[FakeTool("slow", delay=0.05, cancellable=False), echo_tool()]
        ) as server:
            plan = Plan(transport=HttpTransport(url=server.url))
            async with (
                afpool.open_pool([Server(name="files", plan=plan)]) as pool,
                trio.open_nursery() as nursery,
            ):
                tools = await pool.tools(ALICE)

                @trio.lowlevel.enable_ki_protection
                async def strike() -> None:
                    await server.wait_for("tools/call")
                    signal.raise_signal(signal.SIGINT)

                nursery.start_soon(strike)
                try:
                    await tools["slow"].call(identity=ALICE)
                except KeyboardInterrupt:
                    seen.append("interrupted")
                await until(lambda: not pool.settling)
                quiet(pool)
                seen.append((await tools["echo"].call({"n": 1}, identity=ALICE)).text)

    trio.run(main)
    assert seen == ["interrupted", '{"n": 1}']


# ---------------------------------------------------------------------------- a cancellation at any step


class Steps:
    """Cancels a call after so many steps of the loop."""

    def __init__(self) -> None:
        self.reached = 0

    async def call(self, tool: afpool.BoundTool, n: int, steps: int) -> bool:
        """Call; return whether it was answered."""
        answered = False
        with trio.CancelScope() as scope:

            async def rival() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(rival)
                await tool.call({"n": n}, identity=ALICE, call_id=f"c{n}")
                answered = True
                nursery.cancel_scope.cancel()
        if not answered:
            self.reached = steps
        return answered


def verdict(pool: afpool.Pool, n: int) -> str | None:
    return next(use.delivery for use in pool.records.uses if use.call_id == f"c{n}")


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_cancelled_after_any_number_of_steps_over_http(era: Any, cold: bool):
    async with world(credential=True, signer=True, http={"era": era}, pool={"max_operations": 1}) as w:
        tool = await w.tool()
        steps = Steps()
        for n in range(61):
            if cold:
                await w.evict()
            answered = await steps.call(tool, n, n)
            await until(lambda: not w.pool.settling and not w.pool.running)
            quiet(w.pool)
            arrived = sum(arrival.arguments["n"] == n for arrival in w.server.arrivals("tools/call"))
            said = verdict(w.pool, n)
            assert answered == (said == "answered")
            if era == "stateless" and said == "in-doubt":
                assert arrived <= 1  # its connection was closed behind it, perhaps before the server had read
            else:
                assert arrived == (said != "not-sent"), (n, said)
            assert w.server.execution_count("echo", {"n": n}) <= 1
            # the one place and all connections are there for the next one
            with trio.fail_after(5):
                tool = await w.tool()
                await tool.call({"n": 1000 + n}, identity=ALICE)
            (client,) = w.pool.openings.clients.values()
            link = client.channel.link.statistics()  # type: ignore[union-attr]
            assert link.waiting == 0
            assert {name: lane.used for name, lane in client.channel.link._lanes.items()}["call"] == 0  # type: ignore[union-attr]
        sent = {arrival.arguments["n"] for arrival in w.server.arrivals("tools/call")}
        assert all(verdict(w.pool, n) != "not-sent" for n in sent & set(range(61)))
        assert steps.reached > (10 if cold else 1)
        assert w.pool.records.failures == 0
        assert w.pool.abandoned == 0


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
async def test_cancelled_after_any_number_of_steps_on_a_stream(cold: bool):
    async with memory_world(pool={"max_operations": 1, "cancel_grace": 0.05}) as (server, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        steps = Steps()
        for n in range(61):
            if cold:
                pool.evict(pool.key_of(ALICE, "files"))
                await until(lambda: not pool.openings.clients)
            answered = await steps.call(tool, n, n)
            await until(lambda: not pool.settling and not pool.running)
            quiet(pool)
            arrivals = server.ledger.find("tools/call", "echo")
            arrived = sum(arrival.arguments["n"] == n for arrival in arrivals)
            said = verdict(pool, n)
            assert answered == (said == "answered")
            assert arrived == (said != "not-sent"), (n, said)
            with trio.fail_after(5):
                tool = (await pool.tools(ALICE))["echo"]
                await tool.call({"n": 1000 + n}, identity=ALICE)
            (client,) = pool.openings.clients.values()
            assert client.channel._pending == {}  # type: ignore[union-attr]
            assert client.channel.link.waiting == 0  # type: ignore[union-attr]
        assert steps.reached > (8 if cold else 0)
        assert pool.records.failures == 0
