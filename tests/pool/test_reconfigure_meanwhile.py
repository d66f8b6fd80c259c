"""Another configuration while something is under way: openings, lists, subscriptions, passes, crashes."""

from __future__ import annotations

import functools
import gc
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio
import trio.testing

import afpool
from afpool import AfpoolError, Identity, Server
from afpool.pool._flights import client_for
from afpool.pool._listing import list_tools
from afpool.protocol import Message
from afpool.testing import Drop, FakeServer, Rule
from afpool.testing import Hold as HoldAnswer
from tests.pool.bound_kit import NOTES, bound_world, furnish
from tests.pool.kit import ALICE, BOB, Hold, memory_world, quiet, refused, start, until, world
from tests.pool.reload_kit import several
from tests.pool.test_invariants_forgotten import kept, moving
from tests.pool.test_pool_closing import children

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool import Pool

AGAIN = [Server(name="files", compare_without=("/_meta",))]
WAYS: dict[str, Callable[[Pool], Any]] = {
    "changed": lambda pool: pool.reconfigure(AGAIN),
    "removed": lambda pool: pool.reconfigure([]),
    "removed and back": lambda pool: (pool.reconfigure([]), pool.reconfigure([Server(name="files")])),
}
EACH = pytest.mark.parametrize("way", WAYS)


def there(pool: Pool) -> bool:
    return "files" in pool.servers


# ---------------------------------------------------------------------------- openings and lists


@EACH
@pytest.mark.parametrize("at", ["plan", "connect", "initialize"])
async def test_an_opening_under_way_is_given_up_and_what_it_opened_is_closed(at, way):
    async with world() as w, trio.open_nursery() as nursery:
        event = trio.Event()
        hold = Hold()
        if at == "plan":
            w.host.hold_plan = hold
        elif at == "connect":
            w.host.hold_connect = hold
        else:
            w.server.on("initialize", HoldAnswer(event), times=1)
        listing = start(nursery, w.tool)
        await (w.server.wait_for("initialize") if at == "initialize" else hold.reached.wait())
        WAYS[way](w.pool)
        await listing.refusal("binding-changed")
        assert not w.pool.openings.clients
        if there(w.pool):
            await (await w.tool()).call(identity=ALICE)
        event.set()
        hold.let_go.set()
        await until(lambda: len(w.pool.openings.clients) == len(w.server.sessions) == there(w.pool))
        quiet(w.pool)


@EACH
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
async def test_a_list_that_arrives_later_is_nobodys(way, shared):
    async with world() as w, trio.open_nursery() as nursery:
        w.host.names["alice"] = "team" if shared else None
        event = trio.Event()
        w.server.on("tools/list", HoldAnswer(event), times=1)
        listing = start(nursery, w.tool)
        await w.server.wait_for("tools/list")
        (client,) = w.pool.openings.clients.values()
        WAYS[way](w.pool)
        event.set()
        await listing.refusal("binding-changed")
        await until(lambda: client.id not in w.pool.openings.clients)
        assert not w.pool.shares
        if there(w.pool):
            await (await w.tool()).call(identity=ALICE)
            assert w.server.count("tools/list") == 2


@EACH
async def test_whoever_opens_ahead_of_need_is_told(way):
    async with world() as w, trio.open_nursery() as nursery:
        event = trio.Event()
        w.server.on("initialize", HoldAnswer(event), times=1)
        warming = start(nursery, lambda: w.pool.warm(ALICE))
        await w.server.wait_for("initialize")
        WAYS[way](w.pool)
        await warming.refusal("binding-changed")
        event.set()


async def test_a_failure_of_what_was_configured_before_is_no_reason_to_wait():
    async with memory_world() as (memory, host, pool), trio.open_nursery() as nursery:
        hold, ended = Hold(), trio.Event()

        async def stubborn() -> Any:
            with trio.CancelScope(shield=True):
                await hold.wait()
            ended.set()
            raise OSError("nobody there")

        host.transport = lambda host, projection: afpool.MemoryTransport(name="files", connect=stubborn)
        listing = start(nursery, lambda: pool.tools(ALICE))
        await hold.reached.wait()
        pool.reconfigure(AGAIN)
        await listing.refusal("binding-changed")
        hold.let_go.set()
        await ended.wait()
        await trio.testing.wait_all_tasks_blocked()
        host.transport = lambda host, projection: afpool.MemoryTransport(name="files", connect=memory.connect)
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)


async def test_what_was_found_out_of_an_endpoint_is_forgotten_with_the_last_server_that_it_served():
    async with several("files", "mail") as here:
        here.configure("files", here.server("mail", at="files"))
        await here.tool("files")
        await here.tool("mail")
        (endpoint,) = here.pool.openings._endpoints.values()
        assert endpoint.servers == {"files": None, "mail": None}
        here.configure("files")
        assert list(here.pool.openings._endpoints.values()) == [endpoint]
        assert endpoint.servers == {"files": None}
        here.configure("mail")
        assert not here.pool.openings._endpoints


async def test_a_listing_of_all_servers_loses_the_one_that_goes_under_it():
    async with several() as here, trio.open_nursery() as nursery:
        event = trio.Event()
        here.fakes["mail"].on("tools/list", HoldAnswer(event), times=1)
        listing = start(nursery, lambda: here.pool.tools(ALICE))
        await here.fakes["mail"].wait_for("tools/list")
        here.configure("files")
        event.set()
        toolset = await listing.answer()
        assert {name: error.code for name, error in toolset.problems.items()} == {"mail": "binding-changed"}
        assert set(toolset.catalogs) == {"files"}


async def test_a_server_that_goes_before_its_listing_has_begun_is_not_opened():
    asked = 0
    async with several() as here:

        def who() -> Identity:
            nonlocal asked
            asked += 1
            if asked == 2:  # all keys are known, and no server was asked yet
                trio.lowlevel.spawn_system_task(go)
            return ALICE

        async def go() -> None:
            here.configure("files")

        for _ in range(20):  # the scheduler has its own mind
            asked = 0
            here.configure("files", "mail")
            await here.pool.tools(who)
            await until(lambda: "mail" not in here.pool.servers)
            await here.alone("files")


async def test_a_call_that_waits_for_its_credential_is_refused_at_once():
    async with world(credential=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        hold = w.host.hold_credential = Hold()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="waits"))
        await hold.reached.wait()
        done = w.pool.reconfigure([Server(name="files", validate_output=True)])
        await call.refusal("binding-changed")  # nobody lets go of what it waits for
        (use,) = [use for use in w.pool.records.uses if use.call_id == "waits"]
        assert use.cause == done.event
        quiet(w.pool)


async def test_a_key_that_no_server_leads_to_opens_nothing():
    async with world() as w:
        tool = await w.tool()
        actor = tool.binding.actor
        w.pool.reconfigure([])
        await until(lambda: not w.pool.openings.clients)
        for asked in (client_for(actor), list_tools(actor, ALICE, trio.current_time() + 5, refresh=True)):
            await refused(asked, "binding-changed")
        assert w.host.planned == 1
        assert w.server.count("initialize") == 1
        assert not w.pool.kept


# ---------------------------------------------------------------------------- what a key has beside calls


@EACH
async def test_subscriptions_end_in_that_instant_and_the_log_level_is_forgotten(way, tmp_path):
    async with bound_world("http", "handshake", tmp_path) as here, trio.open_nursery() as nursery:
        furnish(here.engine.offers)
        server = await here.pool.bind(ALICE, "files")
        await server.set_log_level("error", identity=ALICE)
        changes = await server.subscribe(NOTES, identity=ALICE)
        reads = start(nursery, lambda: anext(changes))
        await trio.testing.wait_all_tasks_blocked(0.01)
        actor = here.pool._existing(here.pool.key_of(ALICE, "files"))
        WAYS[way](here.pool)
        assert not changes.open
        assert (actor.watchers, actor.log_level) == (None, None)
        await reads.refusal("binding-changed")
        await until(lambda: len(here.pool.openings.clients) == 0)
        assert here.count("resources/unsubscribe") == 0, "its client ends: there is nothing to tell"
        if there(here.pool):
            again = await here.pool.bind(ALICE, "files")
            await again.resources(identity=ALICE)
            assert here.count("logging/setLevel") == 1


async def test_a_client_that_stays_is_told_that_nobody_listens_any_more(tmp_path):
    async with bound_world("http", "handshake", tmp_path) as here:
        furnish(here.engine.offers)
        server = await here.pool.bind(ALICE, "files")
        changes = await server.subscribe(NOTES, identity=ALICE)
        here.pool.reconfigure([Server(name="files", validate_output=True)])
        await refused(anext(changes), "binding-changed")
        await until(lambda: here.count("resources/unsubscribe") == 1)
        assert here.count("initialize") == 1


async def test_a_subscription_that_was_sent_before_is_taken_back(tmp_path):
    async with bound_world("http", "handshake", tmp_path) as here, trio.open_nursery() as nursery:
        furnish(here.engine.offers)
        server = await here.pool.bind(ALICE, "files")
        event = trio.Event()
        here.rules.rules.append(Rule("resources/subscribe", HoldAnswer(event), times=1))
        asked = start(nursery, lambda: server.subscribe(NOTES, identity=ALICE))
        await until(lambda: here.count("resources/subscribe") == 1)
        here.pool.reconfigure([Server(name="files", validate_output=True)])
        event.set()
        changes = await asked.answer()
        await refused(anext(changes), "binding-changed")
        await until(lambda: here.count("resources/unsubscribe") == 1)


async def test_a_log_level_that_was_sent_before_is_not_said_again(tmp_path):
    async with bound_world("http", "handshake", tmp_path) as here, trio.open_nursery() as nursery:
        furnish(here.engine.offers)
        server = await here.pool.bind(ALICE, "files")
        event = trio.Event()
        here.rules.rules.append(Rule("logging/setLevel", HoldAnswer(event), times=1))
        asked = start(nursery, lambda: server.set_log_level("error", identity=ALICE))
        await until(lambda: here.count("logging/setLevel") == 1)
        here.pool.reconfigure(AGAIN)
        event.set()
        await asked.answer()
        await (await here.pool.bind(ALICE, "files")).resources(identity=ALICE)
        assert here.count("logging/setLevel") == 1


async def test_what_a_removed_server_has_said_is_not_told_any_more():
    told: list[Any] = []
    changed: list[Any] = []
    options = {"on_log": lambda *each: told.append(each), "on_change": lambda *each: changed.append(each)}
    async with world(pool=options) as w:
        await w.tool()
        (client,) = w.pool.openings.clients.values()
        hooks = client.hooks
        log = functools.partial(_say, client, "notifications/message", {"level": "error", "data": "x"})
        listed = functools.partial(_say, client, "notifications/resources/list_changed", {})
        log()
        listed()
        await until(lambda: bool(told and changed))
        log()
        listed()
        assert w.pool.herald._logs
        w.pool.reconfigure([])
        assert [*w.pool.herald._logs, *w.pool.herald._changes] == []
        client.hooks = hooks
        log()
        listed()
        assert [*w.pool.herald._logs, *w.pool.herald._changes] == []
        await until(lambda: not w.pool.openings.clients)
        assert (len(told), len(changed)) == (1, 1)


def _say(client: Any, method: str, params: dict[str, Any]) -> None:
    client.hooks.told(client, Message(method=method, params=msgspec.Raw(json.dumps(params).encode())))


# ---------------------------------------------------------------------------- calls in doubt, crashes


async def test_a_call_in_doubt_that_waits_to_be_asked_for_again_waits_no_longer(autojump_clock):
    server = {"repeat": "recognised", "call_id_key": "com.example/callId"}
    options = {"on_in_doubt": lambda use: "repeat"}
    async with world(server=server, pool=options) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        w.server.on("tools/call", Drop(), times=1)
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: bool(w.pool.between))
        w.pool.reconfigure([])
        began = trio.current_time()
        await call.done.wait()
        assert call.error is not None
        assert (call.error.code, call.error.delivery) == ("connection-lost", "in-doubt")
        assert isinstance(call.error.__cause__, AfpoolError)
        assert call.error.__cause__.code == "binding-changed"
        assert trio.current_time() - began < 0.01
        assert w.sent() == 1


async def test_a_key_that_crashed_for_good_is_forgotten_after_all(autojump_clock):
    with trio.fail_after(2000):
        async with world() as w:
            tool = await w.tool()
            actor = tool.binding.actor
            for _ in range(2):
                actor.tell("no message")
            assert actor.phase == "crashed"
            w.pool.reconfigure([])
            w.pool.reconfigure([Server(name="files")])
            await until(lambda: not w.pool.openings.clients)
            assert (await _code(tool.call(identity=ALICE))) in {"actor-crashed", "binding-changed"}
            await trio.sleep(w.pool.limits.idle_timeout * 2)
            await (await w.tool()).call(identity=ALICE)
            assert w.sent() == 1


async def _code(call: Any) -> str:
    with pytest.raises(AfpoolError) as caught:
        await call
    assert caught.value.delivery == "not-sent"
    return caught.value.code


async def test_a_crash_while_a_configuration_comes_into_force_lets_nothing_through(monkeypatch):
    async with world() as w:
        tool = await w.tool()

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr("afpool.pool._key_state.KeyState.refuse_all", broken)
        w.pool.reconfigure([])
        monkeypatch.undo()
        machine = tool.binding.actor.machine
        assert (machine.removed, tool.binding.actor.epoch) == (True, 1)
        await refused(tool.call(identity=ALICE), "binding-changed")
        await until(lambda: not w.pool.openings.clients)
        assert w.sent() == 0


# ---------------------------------------------------------------------------- operators, what is left


async def test_a_removed_server_takes_its_pause_with_it():
    async with several() as here:
        await here.tool("files")
        key = here.pool.key_of(ALICE, "files")
        here.pool.pause(key)
        here.configure("mail")
        here.pool.pause(key)  # whoever comes too late holds nothing
        await here.alone()
        assert not here.pool.kept
        here.configure("files")
        await (await here.tool("files")).call(identity=ALICE)


async def test_a_drain_of_a_removed_server_is_answered():
    async with several("files") as here, trio.open_nursery() as nursery:
        block = await here.tool("files", "block")
        event = trio.Event()
        here.fakes["files"].on("tools/call", HoldAnswer(event), tool="block", times=1)
        sent = start(nursery, lambda: block.call(identity=ALICE))
        await here.fakes["files"].wait_for("tools/call", tool="block")
        drained = start(nursery, lambda: here.pool.drain(here.pool.key_of(ALICE, "files")))
        await until(lambda: here.actor("files").machine.draining is not None)
        here.configure()
        event.set()
        await sent.answer()
        await drained.answer()
        await here.alone()


async def test_servers_that_came_and_went_leave_nothing(autojump_clock):
    with trio.fail_after(10_000):
        async with memory_world() as (_memory, host, pool):
            files = Server(name="files")

            async def round_(number: int) -> None:
                name = f"server-{number}"
                pool.reconfigure([files, Server(name=name)])
                for who in (ALICE, BOB):
                    host.names[who.principal] = "team"
                    await (await pool.tools(who, name))["echo"].call(identity=who)
                pool.pause(pool.key_of(BOB, name))
                fails = pool.limits.open_timeout and Identity(principal=f"nobody-{number}")
                host.hold_plan = Hold()
                with trio.move_on_after(1):
                    await pool.tools(fails, name)
                pool.reconfigure([files])
                await until(lambda: not pool.openings.clients)

            await round_(0)
            await trio.sleep(100)
            gc.collect()
            before = moving(kept(pool))
            for number in range(1, 50):
                await round_(number)
            await trio.sleep(100)
            gc.collect()
            after = moving(kept(pool))
            grown = {place: size for place, size in after.items() if size > before[place]}
            assert not {place for place in grown if not place.endswith(".reconfigured")}
            assert not pool.kept
            quiet(pool)


# ---------------------------------------------------------------------------- children


@pytest.mark.parametrize("stubborn", [False, True], ids=["obeys", "ignores everything"])
@pytest.mark.parametrize("way", ["changed", "removed"])
async def test_the_process_of_a_server_that_changes_or_goes_ends(way, stubborn, tmp_path):
    manners = {"ignore_eof": True, "ignore_sigterm": True} if stubborn else {}

    def child(name: str) -> Server:
        command = FakeServer.stdio_command({"tools": ["echo"], **manners}, log=tmp_path / name)
        return Server(name="files", plan=afpool.Plan(transport=afpool.StdioTransport.of(*command)))

    before = children()
    async with afpool.open_pool([child("one")], close_timeout=1.0) as pool:
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
        old = children() - before
        began = trio.current_time()
        pool.reconfigure([child("two")] if way == "changed" else [])
        await until(lambda: not old & children())
        assert trio.current_time() - began < 2.0
        if way == "changed":
            await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
            assert len(children() - before) >= 1
    assert children() == before
