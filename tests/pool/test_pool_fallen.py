"""A key that crashes again soon falls: it refuses everybody, hears what it is told, leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from afpool import BindingChanged
from afpool.pool import _messages as m
from afpool.pool._fallen import FallenMachine
from afpool.pool._key_state import KeyLimits
from afpool.pool._machine import KeyMachine
from afpool.testing import Hold as ServerHold
from tests.pool.kit import ALICE, BOB, Hold, World, quiet, refused, start, until, world

if TYPE_CHECKING:
    from afpool.pool._actor import KeyActor

LIMITS = KeyLimits(2, 5)


def crash(actor: KeyActor, times: int = 2) -> None:
    for _ in range(times):
        actor.tell(object())


def actor_of(w: World) -> KeyActor:
    found = w.pool.actor_of(w.pool.key_of(ALICE, "files"))
    assert found is not None
    return found


class Deaf(Hold):
    """A wait that no cancellation ends."""

    async def wait(self) -> None:
        with trio.CancelScope(shield=True):
            await super().wait()


# ---------------------------------------------------------------------------- what it hears


def machine(kind: type[KeyMachine]) -> KeyMachine:
    """One that crashed with a place on a live client, while a server held it and somebody had it paused."""
    ids = iter(range(1, 100))
    torn = KeyMachine(LIMITS, lambda: next(ids))
    torn.epoch = 3
    torn.turn(m.Admit(50), object())  # type: ignore[arg-type]
    torn.turn(m.Opened(1, 7, "A", "client 7"), None)
    return torn.successor(kind)


TOLD: dict[str, tuple[m.Any, dict[str, Any]]] = {
    "a place came back": (m.Settle(50, held=True), {"in_flight": 0}),
    "a place was given up": (m.Abandon(50, final=True), {"in_flight": 0}),
    "a silence": (m.Abandon(50, final=False), {"in_flight": 1}),
    "a client closed": (m.ClientLost(7, "closed", closed=True), {"old_clients": 0}),
    "a client was lost": (m.ClientLost(7, "lost"), {"old_clients": 1}),
    "a client came": (m.Opened(2, 8, "A", "client 8"), {"old_clients": 2}),
    "revoked": (m.Revoke("gone"), {"epoch": 4}),
    "another configuration": (m.Reconfigure(LIMITS), {"epoch": 4, "removed": False}),
    "removed": (m.Reconfigure(None), {"epoch": 4, "removed": True}),
    "held with its server": (m.Limit(KeyLimits(2, 5, halted=True)), {"halted": True}),
    "paused": (m.Pause(), {"paused": True}),
    "closed": (m.Close(), {"closed": True}),
    "evicted": (m.Evict(), {"old_clients": 1, "in_flight": 1}),
    "something else": (object(), {"old_clients": 1, "in_flight": 1}),
}


@pytest.mark.parametrize("what", TOLD)
def test_it_hears_what_nobody_says_twice(what: str) -> None:
    message, facts = TOLD[what]
    fallen = machine(FallenMachine)
    fallen.turn(message, None)
    assert fallen.snapshot().items() >= facts.items()
    assert fallen.client is fallen.opening is fallen.waiting is None


def test_it_looks_what_can_end_when_a_client_may_have_become_free() -> None:
    fallen = machine(FallenMachine)
    for message in (m.Opened(2, 8, "A", "client 8"), m.Settle(50, held=True), m.Abandon(50, final=True)):
        assert fallen.turn(message, None) == [m.Bury()]
    assert fallen.turn(m.ListChanged(7), None) is None


def test_who_has_fallen_does_not_get_up_by_crashing() -> None:
    fallen = machine(FallenMachine)
    fallen.torn = m.Settle(50, held=True)
    again = fallen.successor()
    assert isinstance(again, FallenMachine)
    assert again.in_flight == 0


async def test_a_revocation_is_heard_by_who_asks_for_the_rest_of_an_answer():
    async with world() as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        released = trio.Event()
        w.server.on("tools/call", ServerHold(released), times=1)
        sent = start(nursery, lambda: tool.call({"n": 1}, identity=ALICE))
        await w.server.wait_for("tools/call")
        crash(actor_of(w))
        (call,) = w.pool.running.values()
        call.still_wanted()
        assert w.pool.invalidate(identity=ALICE) == 1
        with pytest.raises(BindingChanged):
            call.still_wanted()
        released.set()
        assert (await sent.answer()).text == '{"n": 1}'
        await until(lambda: not w.pool.settling)
        quiet(w.pool)


async def test_refusals_name_the_last_crash():
    async with world() as w:
        tool = await w.tool()
        crash(actor_of(w))
        last = [event.number for event in w.pool.records.events if event.kind == "actor-crashed"]
        assert len(last) == 2
        error = await refused(tool.call(identity=ALICE), "actor-crashed")
        assert error.happened.number == last[-1]


async def test_a_server_that_was_removed_and_is_back_is_refused_for_the_crash(autojump_clock):
    async with world(pool={"idle_timeout": 20}) as w:
        await w.tool()
        servers = list(w.pool.servers.values())
        actor = actor_of(w)
        crash(actor, 1)
        w.pool.reconfigure([])
        crash(actor, 1)
        assert actor.phase == "crashed"
        w.pool.reconfigure(servers)
        await refused(w.pool.tools(ALICE), "actor-crashed")
        await trio.sleep(40)
        await (await w.tool()).call(identity=ALICE)


# ---------------------------------------------------------------------------- what it leaves


@pytest.mark.parametrize("last", ["at once", "much later"])
async def test_a_second_crash_counts_only_soon_after_the_first(last: str, autojump_clock):
    async with world() as w:
        tool = await w.tool()
        actor = actor_of(w)
        crash(actor, 1)
        await trio.sleep(5 if last == "at once" else 5.1)
        crash(actor, 1)
        assert actor.phase == ("crashed" if last == "at once" else "running")
        assert actor.epoch == 2
        if last == "much later":
            await tool.call(identity=ALICE)


async def test_an_opening_ends_with_it(autojump_clock):
    async with world() as w, trio.open_nursery() as nursery:
        hold = w.host.hold_plan = Hold()
        waits = start(nursery, lambda: w.pool.tools(ALICE))
        await hold.reached.wait()
        crash(actor_of(w))
        await waits.refusal("actor-crashed")
        await until(lambda: not w.pool.openings.under_way)
        assert w.server.connections == 0


async def test_what_is_opened_in_the_step_in_which_it_falls_is_closed(monkeypatch, autojump_clock):
    """Nothing can be cancelled any more, and the client is told to a key that takes none."""
    async with world(pool={"idle_timeout": 2}) as w, trio.open_nursery() as nursery:
        openings = w.pool.openings
        connect = openings._connect

        async def opened_and_fallen(actor: KeyActor, *rest: Any) -> Any:
            client = await connect(actor, *rest)
            crash(actor)
            return client

        monkeypatch.setattr(openings, "_connect", opened_and_fallen)
        waits = start(nursery, lambda: w.pool.tools(ALICE))
        await waits.refusal("actor-crashed")
        await until(lambda: not openings.clients)
        await w.server.wait_until(lambda: w.server.connections == 0)
        assert openings.rooms.used == 0


async def test_it_is_not_forgotten_before_its_opening_has_ended(autojump_clock):
    async with world(pool={"idle_timeout": 2, "close_timeout": 1}) as w, trio.open_nursery() as nursery:
        hold = w.host.hold_plan = Deaf()
        waits = start(nursery, lambda: w.pool.tools(ALICE))
        await hold.reached.wait()
        actor = actor_of(w)
        crash(actor)
        await waits.refusal("actor-crashed")
        await trio.sleep(60)
        assert w.pool.actor_of(actor.key) is actor
        hold.let_go.set()
        await trio.sleep(10)
        assert w.pool.actor_of(actor.key) is None
        await (await w.tool()).call(identity=ALICE)


async def test_what_an_operator_holds_stays_held(autojump_clock):
    async with world(pool={"idle_timeout": 2, "close_timeout": 1}) as w:
        await w.tool()
        actor = actor_of(w)
        w.pool.pause(actor.key)
        crash(actor)
        await trio.sleep(60)
        assert w.pool.actor_of(actor.key) is actor
        w.pool.resume(actor.key)
        await trio.sleep(10)
        await (await w.tool()).call(identity=ALICE)
        assert w.pool.actor_of(actor.key) is not actor


async def test_its_client_closes_when_the_last_place_on_it_has_come_back():
    async with world() as w, trio.open_nursery() as nursery:
        tool, bobs = await w.tool(), await w.tool(BOB)
        released = [trio.Event(), trio.Event()]
        sent = []
        for number, event in enumerate(released):
            w.server.on("tools/call", ServerHold(event), times=1)
            sent.append(start(nursery, lambda n=number: tool.call({"n": n}, identity=ALICE)))
            await w.server.wait_for("tools/call", number + 1)
        actor = actor_of(w)
        client = actor.machine.client.handle
        crash(actor)
        await trio.testing.wait_all_tasks_blocked()
        for number, event in enumerate(released):
            assert client.retired is None
            assert actor.machine.in_flight == 2 - number
            event.set()
            assert (await sent[number].answer()).text == f'{{"n": {number}}}'
        # in that step, and not when the janitor comes by
        assert client.retired == "its actor crashed for good"
        await until(lambda: len(w.pool.openings.clients) == 1)
        await bobs.call(identity=BOB)
        quiet(w.pool)
