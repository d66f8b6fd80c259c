"""What operators do to keys and servers: each is filed with who asked, and ends what it says."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import Server
from afpool.testing import FakeTool
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, BOB, CAROL, person, quiet, refused, start, until, world
from tests.pool.reload_kit import several

if TYPE_CHECKING:
    from afpool import Pool
    from afpool.pool._events import Event
    from tests.pool.kit import World

ME = "console uid 1000"


def filed(pool: Pool, kind: str) -> list[Event]:
    return [event for event in pool.records.events if event.kind == kind]


def actor(w: World, who: Any = ALICE) -> Any:
    return w.pool._existing(w.pool.key_of(who, "files"))


# ---------------------------------------------------------------------------- who asked


async def test_everything_that_is_asked_for_is_filed_with_who_asked():
    async with world() as w:
        tool = await w.tool()
        key, shown = w.pool.key_of(ALICE, "files"), actor(w).shown
        w.pool.pause(key, by=ME)
        w.pool.resume(key, by=ME)
        await w.pool.drain(key, by=ME)
        await until(lambda: not w.pool.openings.clients)
        tool = await w.tool()
        assert w.pool.evict(key, by=ME)
        assert not w.pool.evict(key, by=ME), "there is none any more"
        await until(lambda: not w.pool.openings.clients)
        tool = await w.tool()
        assert w.pool.kill(tool.binding.client_id, by=ME)
        assert not w.pool.kill(10_000_000, by=ME)
        assert w.pool.invalidate(key=key, reason="left", by=ME) == 1
        assert not w.pool.cancel("nobody's", by=ME)
        w.pool.reconfigure([Server(name="files", validate_output=True)], by=ME)
        for kind in ("paused", "resumed", "draining", "drained", "evicted", "killed", "revoked"):
            (event,) = filed(w.pool, kind)
            assert (event.key, event.server, event.facts["by"]) == (shown, "files", ME)
        (event,) = filed(w.pool, "reconfigured")
        assert (event.key, event.server, event.facts["by"]) == ("", "", ME)
        assert not filed(w.pool, "withdrawn")


async def test_without_a_name_an_event_names_nobody():
    async with world() as w:
        await w.tool()
        key = w.pool.key_of(ALICE, "files")
        w.pool.pause(key)
        w.pool.resume(key)
        assert filed(w.pool, "paused")[0].facts == {}


async def test_a_withdrawn_call_names_who_withdrew_it():
    async with world(tools=[FakeTool("block")]) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="block")
        w.server.on("tools/call", HoldAnswer(trio.Event()), times=1)
        outcome = start(nursery, lambda: tool.call(identity=ALICE, call_id="mine"))
        await w.server.wait_for("tools/call")
        assert w.pool.cancel("mine", "not needed any more", by=ME)
        await outcome.done.wait()
        use = w.pool.records.uses[-1]
        assert use.happened == filed(w.pool, "withdrawn")[0]
        assert use.happened.facts == {"call": "mine", "why": "not needed any more", "by": ME}


async def test_a_client_that_is_replaced_already_is_killed_under_its_key():
    async with world(tools=[FakeTool("block")]) as w, trio.open_nursery() as nursery:
        tool = await w.tool(name="block")
        w.server.on("tools/call", HoldAnswer(trio.Event()), times=1)
        outcome = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        w.host.variant = "two"
        await w.pool.refresh(ALICE)
        assert tool.binding.client_id in actor(w).machine.old
        assert w.pool.kill(tool.binding.client_id, by=ME)
        await outcome.done.wait()
        assert outcome.error is not None
        assert outcome.error.code == "client-closed"
        assert filed(w.pool, "killed")[0].key == actor(w).shown


# ---------------------------------------------------------------------------- a whole server


async def test_a_held_server_holds_keys_that_do_not_exist_yet():
    async with world() as w, trio.open_nursery() as nursery:
        old = await w.tool(ALICE)
        assert w.pool.pause_server("files", by=ME) == 1
        new = await w.tool(CAROL)  # lists are answered
        calls = [
            start(nursery, lambda: old.call(identity=ALICE)),
            start(nursery, lambda: new.call(identity=CAROL)),
        ]
        await until(lambda: w.pool.waiting == 2)
        assert w.sent() == 0
        assert [key.paused for key in w.pool.statistics().actors] == [True, True]
        assert w.pool.resume_server("files", by=ME) == 2
        for call in calls:
            await call.answer()
        (paused,), (resumed,) = filed(w.pool, "paused"), filed(w.pool, "resumed")
        assert (paused.server, paused.key, paused.facts) == ("files", "", {"by": ME})
        assert (resumed.server, resumed.key, resumed.facts) == ("files", "", {"by": ME})
        assert not w.pool.held_servers
        quiet(w.pool)


async def test_what_runs_on_a_held_server_goes_on():
    async with world(tools=[FakeTool("block")]) as w, trio.open_nursery() as nursery:
        tool, event = await w.tool(name="block"), trio.Event()
        w.server.on("tools/call", HoldAnswer(event), times=1)
        running = start(nursery, lambda: tool.call(identity=ALICE))
        await w.server.wait_for("tools/call")
        w.pool.pause_server("files")
        event.set()
        await running.answer()


async def test_a_key_that_is_held_by_itself_stays_so():
    async with world() as w, trio.open_nursery() as nursery:
        one, other = await w.tool(ALICE), await w.tool(BOB)
        key = w.pool.key_of(ALICE, "files")
        w.pool.pause(key)
        w.pool.pause_server("files")
        waits = start(nursery, lambda: one.call(identity=ALICE))
        await until(lambda: w.pool.waiting == 1)
        w.pool.resume_server("files")
        await other.call(identity=BOB)
        assert w.pool.waiting == 1
        w.pool.pause_server("files")
        w.pool.resume(key)
        await trio.testing.wait_all_tasks_blocked()
        assert w.pool.waiting == 1, "now it is the server that is held"
        w.pool.resume_server("files")
        await waits.answer()


async def test_a_held_server_keeps_no_key_alive_and_the_next_one_is_born_held(autojump_clock):
    async with world(pool={"idle_timeout": 5}) as w:
        tool = await w.tool()
        w.pool.pause_server("files")
        await refused(tool.call(identity=ALICE, deadline=trio.current_time() + 1), "deadline-exceeded")
        await trio.sleep(10)  # its client is closed for having been idle
        del tool
        gc.collect()
        assert not w.pool.actors()
        tool = await w.tool()
        assert actor(w).machine.held
        await refused(tool.call(identity=ALICE, deadline=trio.current_time() + 1), "deadline-exceeded")


async def test_a_crash_leaves_a_server_held():
    async with world() as w:
        await w.tool()
        w.pool.pause_server("files")
        here = actor(w)

        def torn(*_: Any) -> Any:
            raise RuntimeError("a fault")

        here.machine.__class__ = type("Broken", (type(here.machine),), {"turn": torn, "__slots__": ()})
        here.tell(object())
        assert here.epoch == 1
        assert here.machine.limits.halted
        assert here.machine.held


async def test_another_configuration_leaves_a_server_held_and_forgets_one_that_went():
    async with several("files", "mail") as h, trio.open_nursery() as nursery:
        h.pool.pause_server("files")
        h.pool.pause_server("mail")
        h.configure(h.server("files", validate_output=True))
        assert list(h.pool.held_servers) == ["files"]
        tool = await h.tool("files")
        waits = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: h.pool.waiting == 1)
        h.pool.resume_server("files")
        await waits.answer()
        h.configure("files", "mail")
        tool = await h.tool("mail")
        await tool.call(identity=ALICE)


async def test_a_held_server_holds_no_other():
    async with several("files", "mail") as h:
        await h.tool("files")
        other = await h.tool("mail")
        assert h.pool.pause_server("files") == 1
        await other.call(identity=ALICE)
        assert not other.binding.actor.machine.limits.halted


async def test_a_key_that_outlives_the_removal_of_a_held_server_is_free_when_it_is_back():
    async with several("files") as h:
        old = await h.tool("files")
        h.pool.pause_server("files")
        h.configure()
        h.configure("files")
        tool = await h.tool("files")
        assert tool.binding.actor is old.binding.actor
        await tool.call(identity=ALICE)


async def test_a_server_that_there_is_none_of():
    async with world() as w:
        for ask in (w.pool.pause_server, w.pool.resume_server):
            with pytest.raises(LookupError, match="there is no server 'mail'"):
                ask("mail")
        assert not filed(w.pool, "paused")


# ---------------------------------------------------------------------------- by digest


async def test_an_actor_is_found_by_what_is_shown_of_it():
    async with world() as w:
        tools = [await w.tool(person(number)) for number in range(8)]
        for tool in tools:
            here = tool.binding.actor
            assert w.pool.actor_shown(here.shown) is here
            assert w.pool.actor_shown(here.shown[2:]) is here, "without the prefix"
            others = [each.binding.actor.shown for each in tools if each is not tool]
            length = next(n for n in range(3, 15) if not any(o[:n] == here.shown[:n] for o in others))
            assert w.pool.actor_shown(here.shown[:length]) is here
        for nobody in ("", "k:", "k:zz", "no such thing"):
            with pytest.raises(LookupError, match="there is no key"):
                w.pool.actor_shown(nobody)
        with pytest.raises(LookupError, match="8 keys begin with"):
            _several(w.pool)


async def test_no_digest_at_all_is_nobodys_where_there_is_but_one():
    async with world() as w:
        here = (await w.tool()).binding.actor
        for nobody in ("", "k:"):
            with pytest.raises(LookupError, match="there is no key"):
                w.pool.actor_shown(nobody)
        assert w.pool.actor_shown(here.shown[:3]) is here


def _several(pool: Pool) -> None:
    for each in pool.actors():
        each._shown = "k:abc" + each.shown[5:]
    pool.actor_shown("k:abc")
