"""A turn that raises: the key's admission state is lost and nothing else. What was sent keeps its answer."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import AfpoolError
from afpool.pool import _messages as m
from afpool.pool._machine import KeyMachine
from afpool.testing import Hang, Hold
from tests.pool.kit import ALICE, BOB, World, quiet, refused, start, until, world

if TYPE_CHECKING:
    from collections.abc import Callable


class Bug(Exception):
    """A fault of the machine."""


@pytest.fixture
def crash(monkeypatch):
    """Let the next turn on a message of some type raise, before or after the turn itself."""
    turn = KeyMachine.turn
    due: list[tuple[type, bool, Any]] = []

    def broken(self: KeyMachine, message: Any, reply: Any) -> Any:
        for each in due:
            kind, after, machine = each
            if type(message) is kind and machine in (None, self):
                due.remove(each)
                if after:
                    turn(self, message, reply)
                self.torn = message
                raise Bug
        return turn(self, message, reply)

    monkeypatch.setattr(KeyMachine, "turn", broken)

    def arm(kind: type, *, after: bool = False, machine: Any = None) -> None:
        due.append((kind, after, machine))

    arm.due = due  # type: ignore[attr-defined]
    return arm


def kinds(w: World) -> list[str]:
    return [event.kind for event in w.pool.records.events]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_unsent_ones_are_refused_and_sent_ones_keep_their_answers(
    crash: Callable[..., None], after: bool
):
    async with world(pool={"max_operations": 2}) as w, trio.open_nursery() as nursery:
        tool, bobs = await w.tool(), await w.tool(BOB)
        actor = tool.binding.actor
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=2)
        sent = [start(nursery, lambda n=n: tool.call({"n": n}, identity=ALICE)) for n in range(2)]
        await w.server.wait_for("tools/call", 2)
        waiting = [start(nursery, lambda: tool.call({"n": 9}, identity=ALICE)) for _ in range(3)]
        await until(lambda: w.pool.waiting == 3)
        crash(m.ListChanged, after=after)
        actor.tell(m.ListChanged(client_id=None))
        assert actor.epoch == 1
        for outcome in waiting:
            await outcome.refusal("actor-crashed")
        # the successor admits nothing until the old places were given back and the old client is closed
        later = start(nursery, lambda: tool.call({"n": 5}, identity=ALICE))
        await until(lambda: w.pool.waiting == 1)
        assert w.pool.statistics().opened == 2
        await bobs.call({"n": 7}, identity=BOB)
        released.set()
        assert sorted([(await outcome.answer()).text for outcome in sent]) == ['{"n": 0}', '{"n": 1}']
        assert (await later.answer()).text == '{"n": 5}'
        assert w.pool.statistics().opened == 3
        assert w.server.executions["echo"] == w.sent() == 4
        assert kinds(w).count("actor-crashed") == 1
        old, new = [session for session in w.server.engine.ledger.arrivals if session.method == "initialize"][
            ::2
        ]
        ended = w.server.arrivals("DELETE")[0]
        assert old.number < ended.number < new.number
        quiet(w.pool)


@pytest.mark.parametrize(
    "kind",
    [m.Settle, m.Admit, m.Listed, m.Opened, m.OpenFailed, m.ClientLost, m.PlanChanged, m.Evict, m.Abandon],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_whichever_turn_crashes_the_key_recovers_and_leaks_nothing(
    crash: Callable[..., None], kind: type, after: bool, autojump_clock
):
    async with world(pool={"max_operations": 1, "settle_timeout": 5, "idle_timeout": 60}) as w:
        tool = await w.tool()
        key = w.pool.key_of(ALICE, "files")
        crash(kind, after=after)
        if kind is m.Abandon:
            w.server.on("tools/call", Hang(), times=1)
        if kind is m.OpenFailed:
            w.server.refuse_connections()
        with trio.fail_after(60):
            for step in (
                lambda: tool.call(identity=ALICE, deadline=trio.current_time() + 2),
                lambda: w.pool.refresh(ALICE),
                lambda: evict(w, key),
                lambda: tool.call(identity=ALICE),
            ):
                await whatever(step)
            await w.server.accept_connections()
            await trio.sleep(
                40
            )  # beyond every time-out and the time in which another crash would be one too many
            assert crash.due == [], "the turn was never made"  # type: ignore[attr-defined]
            tool = await w.tool()
            assert (await tool.call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
            await until(lambda: w.pool.statistics().clients == 1)
        assert kinds(w).count("actor-crashed") == 1
        quiet(w.pool)
        await w.pool.aclose()
        await w.server.wait_until(lambda: w.server.connections == 0)


async def test_nobody_backs_off_from_a_server_for_a_crash(crash: Callable[..., None]):
    async with world() as w, trio.open_nursery() as nursery:
        crash(m.PlanChanged)
        await start(nursery, lambda: w.pool.tools(ALICE)).refusal("actor-crashed")
        await until(lambda: not w.pool.openings.under_way)
        await (await w.tool()).call(identity=ALICE)


async def evict(w: World, key: Any) -> None:
    w.pool.evict(key)
    await trio.sleep(1)


async def whatever(step: Callable[[], Any]) -> None:
    ended = "ok"
    try:
        await step()
    except AfpoolError as error:
        ended = error.code
    assert ended in {
        "ok", "actor-crashed", "deadline-exceeded", "stale-tools", "open-failed", "open-backoff",
        "binding-changed", "session-handle-lost",
    }  # fmt: skip


async def test_a_key_that_crashes_again_soon_is_refused_and_says_so(crash: Callable[..., None]):
    async with world() as w, trio.open_nursery() as nursery:
        tool, bobs = await w.tool(), await w.tool(BOB)
        actor = tool.binding.actor
        released = trio.Event()
        w.server.on("tools/call", Hold(released), times=1)
        sent = start(nursery, lambda: tool.call({"n": 1}, identity=ALICE))
        await w.server.wait_for("tools/call")
        for _ in range(2):
            crash(m.ListChanged)
            actor.tell(m.ListChanged(client_id=None))
        assert actor.phase == "crashed"
        error = await refused(tool.call(identity=ALICE), "actor-crashed")
        assert "crashed again and again" in str(error)
        await refused(w.pool.tools(ALICE), "actor-crashed")
        await bobs.call(identity=BOB)
        # what was sent keeps its own answer, and then its client goes as well
        assert w.pool.statistics().clients == 2
        released.set()
        assert (await sent.answer()).text == '{"n": 1}'
        await refused(tool.call(identity=ALICE), "actor-crashed")
        await until(lambda: w.pool.statistics().clients == 1)
        assert len(w.server.sessions) == 1
        began = trio.current_time()
        report = await w.pool.aclose()
        assert trio.current_time() - began < 2
        assert (report.closed, report.abandoned) == (1, 0)


async def crashed_for_good(w: World, crash: Callable[..., None], nursery: trio.Nursery) -> trio.Event:
    """A key whose actor does not come back, and on whose client a call is held until the event is set."""
    tool = await w.tool()
    released = trio.Event()
    w.server.on("tools/call", Hold(released), times=1)
    start(nursery, lambda: tool.call(identity=ALICE))
    await w.server.wait_for("tools/call")
    for _ in range(2):
        crash(m.ListChanged)
        tool.binding.actor.tell(m.ListChanged(client_id=None))
    await trio.sleep(0.1)
    assert w.pool.statistics().clients == 1
    return released


async def test_the_janitor_closes_the_client_of_a_key_that_does_not_come_back(
    crash: Callable[..., None], autojump_clock
):
    async with world(pool={"idle_timeout": 60}) as w, trio.open_nursery() as nursery:
        (await crashed_for_good(w, crash, nursery)).set()
        await trio.sleep(130)
        assert w.pool.statistics().clients == 0
        assert w.server.sessions == []


async def test_a_key_that_does_not_come_back_is_forgotten_in_time_and_begins_anew(
    crash: Callable[..., None], autojump_clock
):
    async with world(pool={"idle_timeout": 60}) as w, trio.open_nursery() as nursery:
        held = await w.tool()
        old = weakref.ref(held.binding.actor)
        (await crashed_for_good(w, crash, nursery)).set()
        await trio.sleep(50)
        await refused(w.pool.tools(ALICE), "actor-crashed")
        await trio.sleep(30)
        fresh = await w.tool()
        assert (await fresh.call({"n": 3}, identity=ALICE)).text == '{"n": 3}'
        # who still holds a tool of it is refused, and closes nothing of the key that has begun anew
        await refused(held.call(identity=ALICE), "actor-crashed")
        assert (await fresh.call({"n": 4}, identity=ALICE)).text == '{"n": 4}'
        assert w.pool.statistics().opened == 2
        del held
        gc.collect()
        assert old() is None
        assert [actor.phase for actor in w.pool.kept] == ["running"]


async def test_a_key_is_not_forgotten_while_the_apps_code_keeps_a_call_of_it(
    crash: Callable[..., None], autojump_clock
):
    """Else there would be two of it: the one that the call belongs to, and the one that begins anew."""
    reached, let_go = trio.Event(), trio.Event()

    class Stubborn:
        async def wait(self) -> None:
            reached.set()
            with trio.CancelScope(shield=True):
                await let_go.wait()

    async with world(credential=True, pool={"idle_timeout": 60}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        w.host.hold_credential = Stubborn()  # type: ignore[assignment]
        call = start(nursery, lambda: tool.call(identity=ALICE, deadline=trio.current_time() + 9000))
        await reached.wait()
        for _ in range(2):
            crash(m.ListChanged)
            tool.binding.actor.tell(m.ListChanged(client_id=None))
        try:
            await trio.sleep(300)
            assert tool.binding.actor in w.pool.kept
            await refused(w.pool.tools(ALICE), "actor-crashed")
        finally:
            let_go.set()
        await call.refusal("actor-crashed")
        await trio.sleep(300)
        assert tool.binding.actor not in w.pool.kept
        await (await w.tool()).call(identity=ALICE)


async def test_a_key_that_nobody_met_after_it_crashed_for_good_is_forgotten(
    crash: Callable[..., None], autojump_clock
):
    async with world(pool={"idle_timeout": 60}) as w:
        tool = await w.tool()
        actor = weakref.ref(tool.binding.actor)
        for _ in range(2):
            crash(m.ListChanged)
            tool.binding.actor.tell(m.ListChanged(client_id=None))
        del tool
        await trio.sleep(100)
        gc.collect()
        assert actor() is None
        assert not w.pool.openings.clients


@pytest.mark.parametrize("running", [False, True])
async def test_leaving_closes_the_client_of_a_key_that_does_not_come_back(
    running: bool, crash: Callable[..., None], autojump_clock
):
    async with world() as w, trio.open_nursery() as nursery:
        released = await crashed_for_good(w, crash, nursery)
        if not running:
            released.set()
            await until(lambda: not w.pool.running)

        async def release() -> None:
            await trio.sleep(1)
            released.set()

        nursery.start_soon(release)
        began = trio.current_time()
        report = await w.pool.aclose()
        assert trio.current_time() - began < 1.1
        # its client closes once nothing runs on it, be that before the pool is left or meanwhile
        assert (w.pool.openings.counts.closed, report.abandoned) == (1, 0)
        assert w.server.sessions == []


async def test_a_crash_in_the_middle_of_leaving(crash: Callable[..., None], autojump_clock):
    async with world() as w:
        await w.tool()
        await w.tool(BOB)
        crash(m.Close)
        report = await w.pool.aclose()
        assert report.closed == 2
        assert report.abandoned == 0
        assert w.server.sessions == []


async def test_a_crash_closes_the_gates_of_what_was_not_sent(crash: Callable[..., None]):
    """A call that holds a place and has sent nothing must not leave on the client of a crashed state."""
    from tests.pool.kit import Hold as HostHold

    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_credential = HostHold()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await hold.reached.wait()
        crash(m.ListChanged)
        tool.binding.actor.tell(m.ListChanged(client_id=None))
        hold.let_go.set()
        await call.refusal("actor-crashed")
        assert w.sent() == 0
        await (await w.tool()).call(identity=ALICE)
        quiet(w.pool)
