"""After every wait before the first byte a call is rechecked: every wait against every change.

A call is held at each place where it can wait. While it waits, one thing that it stands on changes. Then the
wait ends, and the call has to be refused with the right word, before a byte of it has reached the server.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import IdentityMismatch, Server
from afpool.testing import FakeTool, echo_tool
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, BOB, CAROL, Hold, memory_world, quiet, raises, start, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from afpool import BoundTool, Use
    from tests.pool.kit import World

# ---------------------------------------------------------------------------- where a call waits


@attrs.define(eq=False)
class Held:
    """A call is to be held: what makes it wait, how to see that it does, and how to let it go on."""

    reached: Callable[[], Awaitable[Any]]
    let_go: Callable[[], Any]


async def at_list(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    event = trio.Event()
    await w.announce(tool)
    seen = w.server.count("tools/list")
    w.server.on("tools/list", HoldAnswer(event), times=1)
    return Held(lambda: w.server.wait_for("tools/list", seen + 1), event.set)


async def _blocked(w: World, who: Any, nursery: trio.Nursery, waiting: Callable[[], bool]) -> Held:
    event = trio.Event()
    block = await w.tool(who, "block")
    w.server.on("tools/call", HoldAnswer(event), tool="block", times=1)
    start(nursery, lambda: block.call(identity=who))
    await w.server.wait_for("tools/call", tool="block")
    return Held(lambda: until(waiting), event.set)


async def at_admission(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    return await _blocked(w, ALICE, nursery, lambda: w.pool.waiting > 0)


async def at_runtime_admission(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    return await _blocked(w, CAROL, nursery, lambda: w.pool.admission.waiting > 0)


async def at_plan(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    await w.evict()
    hold = w.host.hold_plan = Hold()
    return Held(hold.reached.wait, hold.let_go.set)


async def at_opening(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    await w.evict()
    event = trio.Event()
    seen = w.server.count("initialize")
    w.server.on("initialize", HoldAnswer(event), times=1)
    return Held(lambda: w.server.wait_for("initialize", seen + 1), event.set)


async def at_adoption(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    await w.evict()
    event = trio.Event()
    seen = w.server.count("tools/list")
    w.server.on("tools/list", HoldAnswer(event), times=1)
    return Held(lambda: w.server.wait_for("tools/list", seen + 1), event.set)


async def at_credential(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    hold = w.host.hold_credential = Hold()
    return Held(hold.reached.wait, hold.let_go.set)


async def at_signature(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    hold = w.host.hold_signature = Hold()
    return Held(hold.reached.wait, hold.let_go.set)


async def at_connect(w: World, tool: BoundTool, nursery: trio.Nursery) -> Held:
    hold = w.host.hold_connect = Hold()
    w.server.close_idle_connections()
    return Held(hold.reached.wait, hold.let_go.set)


WAITS = {
    "list": at_list,
    "admission": at_admission,
    "runtime-admission": at_runtime_admission,
    "plan": at_plan,
    "opening": at_opening,
    "adoption": at_adoption,
    "credential": at_credential,
    "sign": at_signature,
    "connect": at_connect,
}
STAGES = {"plan": {"admission"}, "opening": {"admission"}, "adoption": {"list", "adopted"}}
WAITS_FOR = {"plan": "admission", "opening": "admission", "adoption": "list"}  # others by their own name
LIMITS = {"admission": {"max_operations": 1}, "runtime-admission": {"max_in_flight": 1}}
LEASED = {
    "runtime-admission",
    "adoption",
    "credential",
    "sign",
    "connect",
}  # the call holds a place of a client
GATED = {"credential", "sign", "connect"}  # the list is not looked at again before the first byte

# ---------------------------------------------------------------------------- what changes meanwhile


@attrs.define(eq=False)
class Scene:
    w: World
    tool: BoundTool
    nursery: trio.Nursery

    @property
    def client(self) -> Any:
        return self.tool.binding.actor.machine.client.handle


async def closing(s: Scene) -> None:
    s.nursery.start_soon(s.w.pool.aclose)
    await until(lambda: s.w.pool.closing)


async def revoked(s: Scene) -> None:
    assert s.w.pool.invalidate(identity=ALICE) == 1


async def lost(s: Scene) -> None:
    s.client.lose("session expired")


async def killed(s: Scene) -> None:
    assert s.w.pool.kill(s.client.id)


async def other_plan(s: Scene) -> None:
    s.w.host.variant = "two"
    machine = s.tool.binding.actor.machine
    old = machine.client
    if old is not None:
        s.nursery.start_soon(_refresh, s)  # a list that goes to the wire asks for the plan
        await until(lambda: machine.client is not old)


async def _refresh(s: Scene) -> None:
    with contextlib.suppress(Exception):
        await s.w.pool.refresh(ALICE)


async def other_caller(s: Scene) -> None:
    s.w.host.caller = BOB


async def no_caller(s: Scene) -> None:
    s.w.host.caller = None


async def caller_raises(s: Scene) -> None:
    s.w.host.caller = RuntimeError("the run has ended")


async def list_moved(s: Scene) -> None:
    s.w.server.set_tools([FakeTool("echo", description="something else"), FakeTool("block")], notify=False)
    current = s.tool.binding.actor.machine.client
    if current is not None and current.list.catalog is not None and current.list.flight is None:
        await s.w.pool.refresh(ALICE)


async def list_noticed(s: Scene) -> None:
    await s.w.announce(s.tool)


async def shared_otherwise(s: Scene) -> None:
    s.w.host.names["alice"] = "team"


async def share_raises(s: Scene) -> None:
    s.w.host.names["alice"] = raises(RuntimeError("no directory"))


async def share_is_no_name(s: Scene) -> None:
    s.w.host.names["alice"] = 7


async def rebound(s: Scene) -> None:
    done = s.w.pool.reconfigure([Server(name="files", validate_output=True)])
    assert done.changed == ("files",)


async def reopened(s: Scene) -> None:
    done = s.w.pool.reconfigure([Server(name="files", compare_without=("/_meta",))])
    assert done.changed == ("files",)


async def removed(s: Scene) -> None:
    assert s.w.pool.reconfigure([]).removed == ("files",)


async def other_plan_function(s: Scene) -> None:
    done = s.w.pool.reconfigure([Server(name="files")], plan=functools.partial(s.w.host.plan))
    assert done.changed == ("files",)


async def other_share_function(s: Scene) -> None:
    done = s.w.pool.reconfigure([Server(name="files")], share=lambda server, who: "team")
    assert done.unchanged == ("files",)


async def withdrawn(s: Scene) -> None:
    assert s.w.pool.cancel("the-call")


async def late(s: Scene) -> None:
    (call,) = [call for call in s.w.pool.running.values() if call.use.call_id == "the-call"]
    await trio.sleep_until(call.deadline + 0.001)


CHANGES: dict[str, tuple[Callable[[Scene], Awaitable[None]], str, set[str] | None]] = {
    # name: what happens, the refusal, the waits that it counts for (all when None)
    "closing": (closing, "pool-closed", None),
    "revoked": (revoked, "binding-changed", None),
    "lost": (lost, "session-handle-lost", LEASED),
    "killed": (killed, "client-closed", LEASED),
    "other-plan": (other_plan, "binding-changed", set(WAITS) - {"opening"}),
    "other-caller": (other_caller, "identity-mismatch", None),
    "no-caller": (no_caller, "identity-mismatch", None),
    "caller-raises": (caller_raises, "identity-mismatch", None),
    "list-moved": (list_moved, "stale-tools", None),
    "list-noticed": (list_noticed, "stale-tools", GATED),
    "shared-otherwise": (shared_otherwise, "binding-changed", None),
    "share-raises": (share_raises, "share-failed", None),
    "share-no-name": (share_is_no_name, "share-failed", None),
    "rebound": (rebound, "binding-changed", None),
    "reopened": (reopened, "binding-changed", None),
    "removed": (removed, "binding-changed", None),
    "other-plan-function": (other_plan_function, "binding-changed", None),
    "other-share-function": (other_share_function, "binding-changed", None),
    "withdrawn": (withdrawn, "cancelled", None),
    "late": (late, "deadline-exceeded", None),
}
# The kind of the event that the record names as the cause, where the change is one that the pool hears of.
CAUSES = {
    "closing": "closing",
    "revoked": "revoked",
    "lost": "client-lost",
    "killed": "killed",
    "other-plan": "plan-changed",
    "list-moved": "list",
    "list-noticed": "list-changed",
    "shared-otherwise": "share-changed",
    "rebound": "reconfigured",
    "reopened": "reconfigured",
    "removed": "reconfigured",
    "other-plan-function": "reconfigured",
    "other-share-function": "reconfigured",
    "withdrawn": "withdrawn",
}
MATRIX = [
    pytest.param(wait, change, id=f"{wait}-{change}")
    for wait in WAITS
    for change, (_, _, where) in CHANGES.items()
    if where is None or wait in where
]


@contextlib.asynccontextmanager
async def scene(wait: str) -> AsyncIterator[tuple[World, BoundTool, trio.Nursery]]:
    tools = [echo_tool(), FakeTool("block")]
    limits = LIMITS.get(wait, {})
    async with (
        world(tools=tools, credential=True, signer=True, pool=limits) as w,
        trio.open_nursery() as nursery,
    ):
        yield w, await w.tool(), nursery
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("wait", "change"), MATRIX)
async def test_a_change_during_a_wait_refuses_and_nothing_leaves(wait, change, autojump_clock):
    happens, code, _ = CHANGES[change]
    with trio.fail_after(100):
        async with scene(wait) as (w, tool, nursery):
            held = await WAITS[wait](w, tool, nursery)
            call = start(
                nursery,
                lambda: tool.call(
                    {"n": 1}, identity=w.host.who, call_id="the-call", deadline=trio.current_time() + 8
                ),
            )
            await held.reached()
            (running,) = [each for each in w.pool.running.values() if each.use.call_id == "the-call"]
            assert running.use.waits_for == WAITS_FOR.get(wait, wait)
            assert w.pool.records.find("the-call") == [running.use]
            del running
            await happens(Scene(w, tool, nursery))
            held.let_go()
            await call.refusal(code)
            await until(lambda: not w.pool.running)
            assert w.sent() == 0
            (use,) = [use for use in w.pool.records.uses if use.call_id == "the-call"]
            assert (use.outcome, use.code, use.delivery) == ("refused", code, "not-sent")
            assert "sent" not in dict(use.stages)
            assert use.waits_for is None
            # a client that is opened for it has another list, which is where that change is seen
            ended = (
                "list"
                if change == "list-moved" and wait in {"plan", "opening"}
                else WAITS_FOR.get(wait, wait)
            )
            assert use.stages[-1][0] == ended, "the last mark says where it ended"
            check_cause(w, use, change)
            if change != "closing":
                await until(lambda: not w.pool.settling)
                quiet(w.pool)


def check_cause(w: World, use: Use, change: str) -> None:
    """What the record names as the cause is the event of the change."""
    kind = CAUSES.get(change)
    if kind is None:
        assert (use.cause, use.happened) == (None, None)
        return
    assert use.happened == [event for event in w.pool.records.events if event.kind == kind][-1]
    assert use.cause == use.happened.number
    if change == "list-moved":
        assert use.was is not None
        assert use.became is not None
        assert use.was.digest != use.became.digest


@pytest.mark.parametrize("wait", WAITS)
async def test_a_call_that_nothing_happens_to_goes_through(wait):
    with trio.fail_after(10):
        async with scene(wait) as (w, tool, nursery):
            held = await WAITS[wait](w, tool, nursery)
            call = start(nursery, lambda: tool.call({"n": 1}, identity=w.host.who))
            await held.reached()
            assert w.sent() == 0
            held.let_go()
            await call.answer()
            assert w.sent() == 1
            (use,) = [use for use in w.pool.records.uses if use.tool == "echo"]
            assert STAGES.get(wait, {wait}) <= dict(use.stages).keys(), "asked after the wait"
            await until(lambda: not w.pool.running)
            quiet(w.pool)


# ---------------------------------------------------------------------------- the order of the predicates

ORDER = [
    "closing", "revoked", "killed", "no-caller", "list-noticed", "shared-otherwise", "withdrawn", "late",
]  # fmt: skip


@pytest.mark.parametrize("first", range(len(ORDER) - 1))
async def test_the_first_predicate_that_fails_is_the_refusal(first, autojump_clock):
    """Everything from one predicate on changes at once, the last one first."""
    with trio.fail_after(100):
        async with scene("credential") as (w, tool, nursery):
            held = await WAITS["credential"](w, tool, nursery)
            call = start(
                nursery,
                lambda: tool.call(
                    {"n": 1}, identity=w.host.who, call_id="the-call", deadline=trio.current_time() + 8
                ),
            )
            await held.reached()
            (running,) = w.pool.running.values()
            # no end from outside may wake the call before all has changed
            scope, running.scope = running.scope, None
            s = Scene(w, tool, nursery)
            for change in reversed(ORDER[first:-1]):
                if change == "closing":
                    w.pool.closing = True
                elif change == "killed":
                    # the state that a kill leaves, without its interruption
                    s.client.retire("killed")
                    s.client.lost = "killed"
                else:
                    await CHANGES[change][0](s)
            running.scope = scope
            held.let_go()
            await call.refusal(CHANGES[ORDER[first]][1])
            w.pool.closing = False
            assert w.sent() == 0


@pytest.mark.parametrize("wait", ["admission", "credential", "connect"])
async def test_a_deadline_that_passes_is_not_before_what_else_has_changed(wait, autojump_clock):
    with trio.fail_after(60):
        async with scene(wait) as (w, tool, nursery):
            held = await WAITS[wait](w, tool, nursery)
            call = start(nursery, lambda: tool.call(identity=w.host.who, deadline=trio.current_time() + 1))
            await held.reached()
            w.host.names["alice"] = "team"  # nobody asks before the deadline
            await call.refusal("binding-changed")
            assert w.sent() == 0
            held.let_go()


# ---------------------------------------------------------------------------- what failed and went stale


@pytest.mark.parametrize("stale", [False, True])
async def test_a_credential_that_fails_under_a_closed_gate(stale):
    with trio.fail_after(10):
        async with scene("credential") as (w, tool, nursery):
            held = await WAITS["credential"](w, tool, nursery)
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await held.reached()
            w.host.fail_credential = RuntimeError("vault sealed")
            if stale:
                w.host.names["alice"] = "team"
            held.let_go()
            await call.refusal("binding-changed" if stale else "credential-failed")
            facts = [(stage, word) for stage, word, _ in w.pool.records.uses[-1].facts or ()]
            assert facts == [("credential", "credential-failed" if stale else "RuntimeError")]
            assert w.sent() == 0


@pytest.mark.parametrize("stale", [False, True])
async def test_a_connection_that_fails_under_a_closed_gate(stale):
    with trio.fail_after(10):
        async with scene("connect") as (w, tool, nursery):
            held = await WAITS["connect"](w, tool, nursery)
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await held.reached()
            w.server.refuse_connections()
            if stale:
                w.host.names["alice"] = "team"
            held.let_go()
            await call.refusal("binding-changed" if stale else "connection-lost")
            facts = [(stage, word) for stage, word, _ in w.pool.records.uses[-1].facts or ()]
            assert facts == [("connect", "connect failed: refused")]


@pytest.mark.parametrize("stale", [False, True])
async def test_an_opening_that_fails_under_a_closed_gate(stale):
    from afpool.testing import Status

    with trio.fail_after(10):
        async with scene("opening") as (w, tool, nursery):
            held = await WAITS["opening"](w, tool, nursery)
            w.server.on("initialize", Status(503))
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await held.reached()
            if stale:
                w.host.names["alice"] = "team"
            held.let_go()
            await call.refusal("binding-changed" if stale else "open-failed")
            assert [(stage, word) for stage, word, _ in w.pool.records.uses[-1].facts] == [
                ("admission", "open-failed")
            ]


# ---------------------------------------------------------------------------- after the first byte


async def test_what_changes_after_the_first_byte_is_a_fact_and_the_answer_the_callers():
    with trio.fail_after(10):
        async with world(tools=[FakeTool("block")]) as w, trio.open_nursery() as nursery:
            tool = await w.tool(name="block")
            event = trio.Event()
            w.server.on("tools/call", HoldAnswer(event), times=1)
            call = start(nursery, lambda: tool.call(identity=w.host.who))
            await w.server.wait_for("tools/call")
            w.host.caller = None
            event.set()
            assert not (await call.answer()).is_error
            use = w.pool.records.uses[-1]
            assert (use.outcome, use.code, use.delivery) == ("ok", None, "answered")
            assert [(stage, word) for stage, word, _ in use.facts] == [("answered", "identity-mismatch")]


# ---------------------------------------------------------------------------- a full wire


async def test_a_wire_that_takes_nothing_asks_the_gate_again():
    with trio.fail_after(10):
        async with memory_world() as (memory, host, pool), trio.open_nursery() as nursery:
            tool = (await pool.tools(ALICE))["echo"]
            (wire,) = memory.wires
            channel = wire._outgoing
            room, channel.capacity = channel.capacity, 0
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await trio.testing.wait_all_tasks_blocked()
            assert "write" in dict(
                next(iter(pool.running.values())).use.stages
            )  # asked once, and let through
            host.names["alice"] = "team"
            channel.capacity = room
            channel.writers.unpark_all()
            await call.refusal("binding-changed")
            assert not memory.ledger.find("tools/call", "echo")
            host.names.clear()
            await tool.call(identity=ALICE)
            quiet(pool)


async def test_of_whoever_is_refused_at_any_boundary_no_answer_is_waited_for():
    async with memory_world() as (_, _, pool):
        tool = (await pool.tools(ALICE))["echo"]
        channel = pool.actors()[0].machine.client.handle.channel
        for times in range(20):
            asked = itertools.count()
            try:
                await tool.call(identity=lambda: ALICE if next(asked) < times else None)  # noqa: B023
            except IdentityMismatch:
                assert channel._pending == {}
            else:
                break
        assert 1 < times < 19
