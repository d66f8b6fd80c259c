"""Another configuration while the pool runs: what ends for it, at once, and what notices nothing."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import pytest
import trio

from afpool import Identity, Limits, PoolClosed, Server, ServerRequests
from afpool.pool._reload import LATER, LIVE, REBIND, REOPEN
from afpool.testing import Hold as HoldAnswer
from tests.pool.kit import ALICE, BOB, Hold, quiet, refused, start, until, world
from tests.pool.reload_kit import several

WORDS = "the configuration of this server has changed"


# ---------------------------------------------------------------------------- what comes of it


async def test_it_says_what_came_of_each_server_and_files_one_numbered_event():
    async with several("files", "mail", fakes=("files", "mail", "web")) as here:
        done = here.configure("web", here.server("files", mark="two"))
        assert (done.added, done.removed, done.changed, done.unchanged) == (
            ("web",),
            ("mail",),
            ("files",),
            (),
        )
        event = list(here.pool.records.events)[-1]
        assert (event.number, event.kind, event.key) == (done.event, "reconfigured", "")
        assert event.facts == {"why": "added: web; removed: mail; changed: files"}
        assert list(here.pool.servers) == ["web", "files"]
        again = here.configure("web", here.server("files", mark="two"))
        assert (again.unchanged, again.changed, again.event) == (("web", "files"), (), done.event + 1)
        assert here.pool.statistics().reconfigured == 2


async def test_whoever_is_told_of_it_finds_all_of_it_in_force():
    async with several("files", "mail", fakes=("files", "mail", "web")) as here:
        await here.pool.tools(ALICE)
        seen = []

        def told(event):
            seen.append((event.number, event.kind, sorted(here.pool.servers)))
            actors = [each for each in here.pool.actors() if each.server.name == "mail"]
            assert all(each.machine.removed for each in actors)

        end = here.pool.records.tap(on_event=told)
        done = here.configure("web", here.server("files", mark="two"))
        end()
        assert here.pool.records.failures == 0
        assert seen[0] == (done.event, "reconfigured", ["files", "web"])
        assert [number for number, *_ in seen] == sorted(number for number, *_ in seen), "in order"


def test_every_field_of_a_server_is_decided_about():
    fields = [field.name for field in attrs.fields(Server)]
    assert sorted(fields) == sorted(["name", "plan", *REOPEN, *REBIND])


CHANGES: dict[str, dict[str, Any]] = {
    "keyed_on": {"keyed_on": ("principal",)},
    "compare_without": {"compare_without": ("/_meta",)},
    "on_list_change": {"on_list_change": "recheck"},
    "pins": {"pins": {"block": "0" * 64}},
    "call_id_key": {"call_id_key": "com.example/callId"},
    "repeat": {"repeat": "recognised", "call_id_key": "com.example/callId"},
    "max_repeats": {"max_repeats": 2},
    "validate_output": {"validate_output": True},
}


@pytest.mark.parametrize("field", [*REOPEN, *REBIND])
async def test_a_change_of_each_field_ends_bindings_and_of_some_the_client(field):
    async with several() as here:
        tool, other = await here.tool("files"), await here.tool("mail")
        client = here.actor("files").machine.client.id
        done = here.configure(here.server("files", **CHANGES[field]), "mail")
        assert (done.changed, done.unchanged) == (("files",), ("mail",))
        error = await refused(tool.call(identity=ALICE, call_id="old"), "binding-changed")
        assert WORDS in error.message
        assert here.use("old").cause == done.event
        assert here.sent("files") == 0
        fresh = await here.tool("files")
        await fresh.call(identity=ALICE)
        assert (here.actor("files").machine.client.id == client) == (field in REBIND)
        assert here.fakes["files"].count("initialize") == (1 if field in REBIND else 2)
        await other.call(identity=ALICE)
        assert here.fakes["mail"].count("initialize") == 1
        assert here.fakes["mail"].count("tools/list") == 1
        await until(lambda: len(here.pool.openings.clients) == 2)
        quiet(here.pool)


async def test_bindings_are_made_anew_from_the_list_in_hand():
    async with several("files") as here:
        await here.tool("files")
        here.configure(here.server("files", validate_output=True))
        await (await here.tool("files")).call(identity=ALICE)
        assert here.fakes["files"].count("tools/list") == 1


async def test_another_plan_is_another_client_and_the_old_one_drains():
    async with several("files") as here, trio.open_nursery() as nursery:
        block, echo = await here.tool("files", "block"), await here.tool("files")
        event = trio.Event()
        here.fakes["files"].on("tools/call", HoldAnswer(event), tool="block", times=1)
        sent = start(nursery, lambda: block.call(identity=ALICE))
        await here.fakes["files"].wait_for("tools/call", tool="block")
        (old,) = here.pool.openings.clients.values()
        done = here.configure(here.server("files", at="mail"))
        assert done.changed == ("files",)
        await refused(echo.call(identity=ALICE), "binding-changed")
        await (await here.tool("files")).call(identity=ALICE)
        assert (here.sent("files"), here.sent("mail")) == (0, 1)
        assert len(here.fakes["files"].sessions) == 1, "what was sent keeps its client"
        event.set()
        assert not (await sent.answer()).is_error
        await until(lambda: not here.fakes["files"].sessions)
        assert old.retired == "reconfigured"
        await until(lambda: len(here.pool.openings.clients) == 1)
        quiet(here.pool)


async def test_an_equal_plan_made_anew_is_no_change_and_is_the_one_of_what_is_opened_next():
    async with several("files") as here:
        tool = await here.tool("files")
        roots = ServerRequests(roots=["file:///one"])
        first = here.plan("files", requests=roots)
        here.configure(Server(name="files", plan=first))
        tool = await here.tool("files")
        again = here.plan("files", requests=ServerRequests(roots=["file:///two"]))
        assert again != first
        done = here.configure(Server(name="files", plan=again))
        assert done.unchanged == ("files",)
        await tool.call(identity=ALICE)
        assert here.actor("files").server.plan is again


async def test_an_equal_plan_function_is_no_change_and_another_one_is():
    async with world() as w:
        tool = await w.tool()
        assert w.pool.reconfigure([Server(name="files")], plan=w.host.plan).unchanged == ("files",)
        await tool.call(identity=ALICE)

        async def plan(server: str, projection: Identity) -> Any:
            return await w.host.plan(server, projection)

        done = w.pool.reconfigure([Server(name="files")], plan=plan)
        assert done.changed == ("files",)
        await refused(tool.call(identity=ALICE), "binding-changed")
        await (await w.tool()).call(identity=ALICE)
        assert w.server.count("initialize") == 2


async def test_the_host_may_say_for_whom_a_plan_function_gives_other_plans():
    async with several() as here:
        marks = {"files": "one", "mail": "one"}

        def plan(server: str, projection: Identity) -> Any:
            return here.plan(server, marks[server])

        both = [Server(name="files"), Server(name="mail")]
        here.pool.reconfigure(both, plan=plan)
        files, mail = await here.tool("files"), await here.tool("mail")
        marks["mail"] = "two"
        done = here.pool.reconfigure(both, replan=["mail"])
        assert (done.changed, done.unchanged) == (("mail",), ("files",))
        await files.call(identity=ALICE)
        await refused(mail.call(identity=ALICE), "binding-changed")
        await (await here.tool("mail")).call(identity=ALICE)
        assert here.fakes["mail"].arrivals("tools/call")[0].headers["x-mark"] == "two"
        done = here.pool.reconfigure(both, plan=functools.partial(plan), replan=())
        assert done.unchanged == ("files", "mail")
        with pytest.raises(ValueError, match=r"replan names servers that there are none of: \['web'\]"):
            here.pool.reconfigure(both, replan=["web"])


# ---------------------------------------------------------------------------- what stays as it is


async def test_a_server_that_stays_as_it_is_notices_nothing():
    async with several(max_operations=1) as here, trio.open_nursery() as nursery:
        block, echo = await here.tool("files", "block"), await here.tool("files")
        event = trio.Event()
        here.fakes["files"].on("tools/call", HoldAnswer(event), tool="block", times=1)
        sent = start(nursery, lambda: block.call(identity=ALICE))
        await here.fakes["files"].wait_for("tools/call", tool="block")
        waits = start(nursery, lambda: echo.call(identity=ALICE))
        await until(lambda: here.pool.waiting == 1)
        opening = trio.Event()
        here.fakes["files"].on("initialize", HoldAnswer(opening), times=1)
        opens = start(nursery, lambda: here.tool("files", who=BOB))
        await here.fakes["files"].wait_for("initialize", 2)
        assert here.configure("files").unchanged == ("files",)
        event.set()
        opening.set()
        await sent.answer()
        await waits.answer()
        await opens.answer()
        assert here.fakes["files"].count("initialize") == 2
        await here.alone("files")


async def test_the_back_off_of_a_server_that_stays_is_kept_and_of_one_that_changes_is_not():
    async with several() as here:
        for name in ("files", "mail"):
            here.fakes[name].on("initialize", HoldAnswer(trio.Event()), times=1)
        here.pool.limits = attrs.evolve(here.pool.limits, open_timeout=0.05)
        for name in ("files", "mail"):
            await refused(here.pool.tools(ALICE, name), "open-failed")
        here.configure("files", here.server("mail", mark="two"))
        await refused(here.pool.tools(ALICE, "files"), "open-backoff")
        await here.tool("mail")


async def test_a_pause_is_kept_while_its_server_is_there():
    async with several("files") as here, trio.open_nursery() as nursery:
        tool = await here.tool("files")
        here.pool.pause(here.pool.key_of(ALICE, "files"))
        here.configure(here.server("files", mark="two"))
        tool = await here.tool("files")
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await until(lambda: here.pool.waiting == 1)
        here.pool.resume(here.pool.key_of(ALICE, "files"))
        await call.answer()


# ---------------------------------------------------------------------------- removed, added


async def test_a_removed_server_is_refused_and_cannot_be_listed_and_ends():
    async with several() as here:
        tool = await here.tool("files")
        bound = await here.pool.bind(ALICE, "files")
        done = here.configure("mail")
        assert done.removed == ("files",)
        error = await refused(tool.call(identity=ALICE, call_id="old"), "binding-changed")
        assert WORDS in error.message
        assert here.use("old").cause == done.event
        await refused(bound.resources(identity=ALICE), "binding-changed")
        for asking in (here.pool.tools(ALICE, "files"), here.pool.bind(ALICE, "files"),
                       here.pool.warm(ALICE, ["files"])):  # fmt: skip
            with pytest.raises(LookupError, match=r"no server 'files'; there are \['mail'\]"):
                await asking
        assert set((await here.pool.tools(ALICE)).catalogs) == {"mail"}
        await here.alone("mail")
        await until(lambda: not here.fakes["files"].sessions)
        assert here.fakes["files"].count("initialize") == 1
        quiet(here.pool)


async def test_a_pool_without_servers_lists_nothing():
    async with several("files") as here:
        assert here.configure().removed == ("files",)
        toolset = await here.pool.tools(ALICE)
        assert (len(toolset), toolset.problems) == (0, {})
        await here.pool.warm(ALICE)
        assert here.configure("files").added == ("files",)
        await (await here.tool("files")).call(identity=ALICE)


@pytest.mark.parametrize("closed", [False, True], ids=["while it drains", "when it is closed"])
async def test_what_goes_and_comes_back_under_its_name_is_another_server(closed):
    async with several("files") as here:
        old = await here.tool("files")
        here.configure("mail")
        if closed:
            await here.alone()
        assert here.configure("mail", "files").added == ("files",)
        await refused(old.call(identity=ALICE), "binding-changed")
        new = await here.tool("files")
        assert new.binding.list.id != old.binding.list.id
        assert new.binding.client_id != old.binding.client_id
        await refused(old.call(identity=ALICE), "binding-changed")
        await new.call(identity=ALICE)
        assert here.sent("files") == 1


async def test_places_of_a_key_are_counted_on_while_its_server_goes_and_comes_back():
    async with several("files", max_operations=1) as here, trio.open_nursery() as nursery:
        block = await here.tool("files", "block")
        event = trio.Event()
        here.fakes["files"].on("tools/call", HoldAnswer(event), tool="block", times=1)
        sent = start(nursery, lambda: block.call(identity=ALICE))
        await here.fakes["files"].wait_for("tools/call", tool="block")
        here.configure()
        here.configure("files")
        echo = await here.tool("files")
        call = start(nursery, lambda: echo.call(identity=ALICE))
        await until(lambda: here.pool.waiting == 1)
        assert here.sent("files") == 0, "I4: the place is held by what was sent before"
        event.set()
        await sent.answer()
        await call.answer()


async def test_other_keyed_fields_are_other_keys():
    async with several("files") as here:
        old = await here.tool("files")
        wide = Identity(tenant="acme")
        here.configure(here.server("files", keyed_on=("tenant",)))
        await refused(old.call(identity=BOB), "identity-mismatch")
        await refused(old.call(identity=ALICE), "binding-changed")
        assert old.binding.actor.machine.removed
        tool = await here.tool("files")
        assert tool.binding.actor.projection == wide
        await tool.call(identity=BOB)
        here.configure("files")
        await refused(tool.call(identity=BOB), "binding-changed")
        await refused(old.call(identity=ALICE), "binding-changed")
        await (await here.tool("files")).call(identity=ALICE)
        assert not old.binding.actor.machine.removed, "the same key, and the same actor"


async def test_one_of_several_servers_has_its_share_of_the_places_from_then_on():
    with trio.fail_after(10):
        async with several("files", max_in_flight=8, max_share=0.5) as here, trio.open_nursery() as nursery:
            who = [Identity(tenant=f"t{n % 4}", principal=f"p{n}") for n in range(10)]
            event = trio.Event()
            files, mail = here.fakes["files"], here.fakes["mail"]
            for fake in (files, mail):
                fake.on("tools/call", HoldAnswer(event), tool="block")
            tools = [await here.tool("files", "block", who=each) for each in who]
            for n in range(8):
                start(nursery, lambda n=n: tools[n].call(identity=who[n], call_id=f"c{n}"))
            await files.wait_for("tools/call", 8, tool="block")
            here.configure("files", "mail")
            start(nursery, lambda: tools[8].call(identity=who[8]))
            await until(lambda: here.pool.admission.waiting == 1)
            other = await here.tool("mail", "block", who=who[9])
            assert here.pool.admission.has_share_at("files"), "what it has beyond its share it keeps"
            here.pool.cancel("c0")
            start(nursery, lambda: other.call(identity=who[9]))
            await mail.wait_for("tools/call", tool="block")
            assert here.sent("files", "block") == 8
            here.configure("files")
            event.set()
            await until(lambda: not here.pool.running)
            assert here.sent("files", "block") == 9
            nursery.cancel_scope.cancel()


# ---------------------------------------------------------------------------- what is wrong changes nothing

WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "two of one name": (lambda h: ([h.server("mail"), h.server("mail")], {}), ValueError, "two servers"),
    "no plan": (lambda h: ([Server(name="mail")], {}), ValueError, "no plan of its own"),
    "no server": (lambda h: (["mail"], {}), TypeError, "takes Server objects, not str"),
    "a plan that is none": (lambda h: ([h.server("mail")], {"plan": 7}), TypeError, "plan is a function"),
    "a share that is none": (lambda h: ([h.server("mail")], {"share": 7}), TypeError, "share is a function"),
    "rebind of none": (lambda h: ([h.server("mail")], {"rebind": ["files"]}), ValueError, r"\['files'\]"),
    "limits that are none": (lambda h: ([h.server("mail")], {"limits": {}}), TypeError, "not dict"),
    "a fixed limit": (
        lambda h: ([h.server("mail")], {"limits": Limits(max_clients=7, records=8)}),
        ValueError,
        "max_clients, records cannot be changed while the pool is open",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_changes_nothing(name):
    make, kind, text = WRONG[name]
    async with several("files") as here:
        tool = await here.tool("files")
        pool = here.pool
        before = (pool.servers, pool.plan, pool.share, pool.limits, pool.key_limits, pool.client_settings)
        servers, how = make(here)
        with pytest.raises(kind, match=text):
            pool.reconfigure(servers, **how)
        after = (pool.servers, pool.plan, pool.share, pool.limits, pool.key_limits, pool.client_settings)
        assert all(one is other for one, other in zip(before, after, strict=True))
        assert "reconfigured" not in {event.kind for event in pool.records.events}
        await tool.call(identity=ALICE)


async def test_a_closed_pool_takes_no_configuration():
    async with several("files") as here:
        await here.pool.aclose()
        with pytest.raises(PoolClosed):
            here.configure("files")


# ---------------------------------------------------------------------------- limits


def test_every_limit_is_either_fixed_or_may_change():
    names = {field.name for field in attrs.fields(Limits)}
    assert LATER < LIVE < names
    assert names - LIVE == {
        "max_operations", "max_waiting", "max_waiting_total", "max_in_flight", "max_share", "max_clients",
        "max_connecting", "record_bytes", "records",
    }  # fmt: skip


async def test_limits_that_may_change_hold_from_then_on(autojump_clock):
    async with several("files") as here, trio.open_nursery() as nursery:
        tool = await here.tool("files", "block")
        here.fakes["files"].on("tools/call", HoldAnswer(trio.Event()), tool="block")
        here.configure(
            "files", limits=attrs.evolve(here.pool.limits, deadline=2.0, max_pages=3, close_timeout=1)
        )
        began = trio.current_time()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await call.done.wait()
        assert call.error is not None
        assert call.error.code == "deadline-exceeded"
        assert trio.current_time() - began == pytest.approx(2.0, abs=0.1)
        settings = here.pool.client_settings
        assert (settings.max_pages, settings.control_timeout) == (3, 1)
        assert next(iter(here.pool.openings.clients.values())).settings.max_pages == 100


# ---------------------------------------------------------------------------- share


async def test_another_share_is_asked_at_every_gate_from_then_on():
    async with world() as w, trio.open_nursery() as nursery:
        w.host.names["alice"] = "team"
        tool, other = await w.tool(), await w.tool(BOB)
        hold = w.host.hold_connect = Hold()
        w.server.close_idle_connections()
        call = start(nursery, lambda: tool.call(identity=ALICE, call_id="waits"))
        await hold.reached.wait()
        done = w.pool.reconfigure([Server(name="files")], share=None)
        assert done.unchanged == ("files",)
        await call.refusal("binding-changed")
        (use,) = [use for use in w.pool.records.uses if use.call_id == "waits"]
        assert use.cause == done.event
        hold.let_go.set()
        await refused(tool.call(identity=ALICE), "binding-changed")
        await other.call(identity=BOB)
        await (await w.tool()).call(identity=ALICE)
        assert w.sent() == 2
        quiet(w.pool)


async def test_shared_lists_end_with_their_configuration():
    async with world() as w:
        for who in ("alice", "bob"):
            w.host.names[who] = "team"
        tool = await w.tool()
        await w.tool(BOB)
        assert w.server.count("tools/list") == 1
        w.pool.reconfigure([Server(name="files", validate_output=True)])
        await refused(tool.call(identity=ALICE), "binding-changed")
        await w.tool()
        assert w.server.count("tools/list") == 1, "the list is what it was"
        entry = tool.binding.list
        w.pool.shares.take_out(entry.entry, tool.binding.actor)
        w.pool.reconfigure([Server(name="files", compare_without=("/_meta",))])
        assert not entry.alive
        one, two = await w.tool(), await w.tool(BOB)
        assert one.binding.list is two.binding.list
        assert one.binding.list is not entry
        assert one.binding.shared, "what was taken out of sharing may be shared again"
        assert w.server.count("tools/list") == 2
        await one.call(identity=ALICE)
