"""Another configuration of a runtime: rules, tools of the host's own, hooks, and toolsets that are held."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, PoolClosed, Server, StaticCredentials
from afpool.artifacts import MemoryArtifacts
from afpool.runtime import RuntimeConfig, ServerRules
from afpool.runtime._served import Served, ServedTools
from afpool.testing import Hold
from afpool.tools import (
    Deny,
    Hook,
    RedactionPolicy,
    ResultCeiling,
    define_tool,
    from_credential,
    from_identity,
)
from tests.pool.kit import until
from tests.runtime.runtime_kit import ALICE, BOB, Here, runtime, said, taking
from tests.tools.door_kit import SECRET, refused

TEXT = {"type": "string"}
FILLED = ServerRules(fill={"token": from_credential("crm")})
VAULT = StaticCredentials({"crm": SECRET})


@define_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def other(name: str = "add") -> Any:
    @define_tool(name=name)
    async def negated(a: int, b: int) -> int:
        """Add two numbers, and negate."""
        return -a - b

    return negated


def server(here: Here, name: str, mark: str = "one", **members: Any) -> Server:
    transport = HttpTransport(url=here.servers[name].url, headers={"x-mark": mark})
    return Server(name=name, plan=Plan(transport=transport), **members)


# ---------------------------------------------------------------------------- servers


async def test_servers_come_change_and_go_and_toolsets_that_are_held_say_so() -> None:
    servers = {"files": [said("files", "read")], "mail": [said("mail", "send")], "web": [said("web", "get")]}
    async with runtime(servers) as here:
        listed = here.runtime.config.servers
        held = await here.runtime.toolset(ALICE)
        assert set(held) == {"read", "send", "get"}
        done = here.runtime.reconfigure(servers=[listed[0], server(here, "mail", "two")])
        assert (done.unchanged, done.changed, done.removed) == (("files",), ("mail",), ("web",))
        assert (await held.call("read")).code == "ok"
        for name in ("send", "get"):
            error = refused(await held.call(name), "binding-changed")
            assert "configuration of this server has changed" in error.message
        fresh = await here.runtime.toolset(ALICE)
        assert set(fresh) == {"read", "send"}
        assert (await fresh.call("send")).code == "ok"
        assert here.servers["files"].count("initialize") == 1
        assert (here.sent("web"), here.sent("mail")) == (0, 1)
        added = here.runtime.reconfigure(servers=listed)
        assert added.added == ("web",)
        assert (await (await here.runtime.toolset(ALICE)).call("get")).code == "ok"


async def test_a_call_by_name_is_refused_once_and_means_what_there_is_then() -> None:
    servers = {"files": [said("files", "read")], "mail": [said("mail", "read")]}
    async with runtime({"files": servers["files"]}) as here:
        held = await here.runtime.toolset(ALICE)
        here.runtime.reconfigure(servers=[server(here, "files", "two")])
        refused(await here.runtime.dispatch(ALICE, "read"), "binding-changed")
        assert (await here.runtime.dispatch(ALICE, "read")).code == "ok"
        assert list(held) == ["read"]
        here.runtime.reconfigure(servers=[])
        refused(await held.call("read"), "binding-changed")
        refused(await here.runtime.dispatch(ALICE, "read"), "unknown-tool")
        assert here.sent("files") == 1


async def test_a_runtime_that_began_without_servers_gets_some() -> None:
    async with runtime({"files": [said("files", "read")]}, tools=[add]) as other_one:
        found = other_one.runtime.config.servers
        async with runtime(tools=[add]) as here:
            assert list(await here.runtime.toolset(ALICE)) == ["add"]
            assert here.runtime.reconfigure(servers=found).added == ("files",)
            assert (await here.runtime.dispatch(ALICE, "read")).code == "ok"


async def test_a_listing_under_way_is_made_again_under_the_new_configuration() -> None:
    servers = {"files": [said("files", "read")], "mail": [said("mail", "send")]}
    async with runtime(servers, list_patience=30) as here, trio.open_nursery() as nursery:
        listed = here.runtime.config.servers
        event, got = trio.Event(), []

        async def ask() -> None:
            got.append(await here.runtime.toolset(ALICE))

        here.servers["mail"].on("tools/list", Hold(event), times=1)
        nursery.start_soon(ask)
        await here.servers["mail"].wait_for("tools/list")
        here.runtime.reconfigure(servers=listed[:1])
        event.set()
        await until(lambda: bool(got))
        (toolset,) = got
        assert (list(toolset), toolset.problems) == (["read"], {})
        assert here.servers["files"].count("tools/list") == 1


async def test_whoever_lists_after_a_reload_joins_no_listing_of_before(caplog: Any) -> None:
    async with runtime({"files": [said("files", "read")]}) as here, trio.open_nursery() as nursery:
        event = trio.Event()
        here.servers["files"].on("tools/list", Hold(event), times=1)
        nursery.start_soon(here.runtime.toolset, ALICE)
        await here.servers["files"].wait_for("tools/list")
        here.runtime.reconfigure(servers=[server(here, "files", "two")])
        toolset = await here.runtime.toolset(ALICE)
        assert toolset.problems == {}
        assert (await toolset.call("read")).code == "ok"
        event.set()
    assert caplog.records == []


async def test_a_mistake_of_rules_that_are_no_longer_in_force_is_nobodys(monkeypatch: Any) -> None:
    wrong = {"files": ServerRules(fill={"tokken": from_identity("tenant")})}
    apply, rounds = Served.apply, 0
    async with runtime({"files": [said("files", "read")]}, rules=wrong) as here:

        async def apply_late(self: Served, listed: Any) -> ServedTools:
            nonlocal rounds
            rounds += 1
            if rounds == 1:  # while large schemas are looked through
                here.runtime.reconfigure(rules={})
            return await apply(self, listed)

        monkeypatch.setattr(Served, "apply", apply_late)
        assert "read" in await here.runtime.toolset(ALICE)
        assert rounds == 2


async def test_a_configuration_that_never_rests_is_told(monkeypatch: Any) -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        ask = here.runtime._offers.lister.ask
        rounds = 0

        async def busy(*args: Any, **how: Any) -> Any:
            nonlocal rounds
            rounds += 1
            answer = await ask(*args, **how)
            here.runtime.reconfigure()
            return answer

        monkeypatch.setattr(
            type(here.runtime._offers.lister), "ask", lambda self, *args, **how: busy(*args, **how)
        )
        with pytest.raises(afpool.BindingChanged, match="again and again"):
            await here.runtime.toolset(ALICE)
        assert rounds == 3


# ---------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, FILLED),
        (FILLED, None),
        (FILLED, ServerRules(fill={"token": from_identity("tenant")})),
    ],
    ids=["filled now", "not filled any more", "filled otherwise"],
)
async def test_tools_that_were_listed_under_other_fills_are_refused(before: Any, after: Any) -> None:
    servers = {"crm": [taking("crm", "find", q=TEXT, token=TEXT)]}
    rules = {} if before is None else {"crm": before}
    async with runtime(servers, rules=rules, credentials=VAULT) as here:
        held = await here.runtime.toolset(ALICE)
        done = here.runtime.reconfigure(rules={} if after is None else {"crm": after})
        assert done.changed == ("crm",)
        args = {"q": "x", "token": "guess"} if before is None else {"q": "x"}
        refused(await held.call("find", args), "binding-changed")
        assert here.sent("crm") == 0
        fresh = await here.runtime.toolset(ALICE)
        assert ("token" in fresh["find"].input_schema["properties"]) == (after is None)
        args = {"q": "x", "token": "guess"} if after is None else {"q": "x"}
        assert (await fresh.call("find", args)).code == "ok"
        assert here.servers["crm"].count("initialize") == 1, "its clients are what they were"
        assert here.servers["crm"].count("tools/list") == 1


async def test_other_rules_hold_from_the_next_listing_on() -> None:
    servers = {"crm": [taking("crm", "find", q=TEXT)]}
    async with runtime(servers, artifacts=MemoryArtifacts()) as here:
        held = await here.runtime.toolset(ALICE)
        rules = ServerRules(
            redact=RedactionPolicy(keys=["q"]), wants={"q": "note"}, ceilings={"*": ResultCeiling(5)}
        )
        assert here.runtime.reconfigure(rules={"crm": rules}).unchanged == ("crm",)
        assert (await held.call("find", {"q": "plain"})).code == "ok"
        assert "plain" in here.events.text
        here.events.clear()
        fresh = await here.runtime.toolset(ALICE)
        refused(await fresh.call("find", {"q": "no ref"}), "wants-refused")
        started = here.events.of("tool_start")
        assert started["args"] == {"q": "REDACTED"}
        assert here.servers["crm"].count("tools/list") == 1


async def test_what_a_server_has_declared_is_remembered_over_a_reload() -> None:
    servers = {"crm": [taking("crm", "find", q=TEXT, token=TEXT)]}
    async with runtime(servers, rules={"crm": FILLED}, credentials=VAULT) as here:
        await here.runtime.toolset(ALICE)
        here.servers["crm"].set_tools([taking("crm", "find", q=TEXT, api_token=TEXT)], notify=False)
        redacted = ServerRules(fill=FILLED.fill, redact=RedactionPolicy(keys=["q"]))
        here.runtime.reconfigure(servers=[server(here, "crm", "two")], rules={"crm": redacted})
        toolset = await here.runtime.toolset(ALICE)
        assert list(toolset) == []
        assert toolset.withheld["crm"].startswith("fill-undeclared")
        here.runtime.acknowledge("crm", "token")
        here.runtime.reconfigure(rules={"crm": FILLED})
        assert list(await here.runtime.toolset(ALICE)) == ["find"]


# ---------------------------------------------------------------------------- the host's own


async def test_a_tool_of_the_hosts_own_that_is_another_one_is_refused_where_it_was_offered() -> None:
    async with runtime(tools=[add]) as here:
        held, nobodys = await here.runtime.toolset(ALICE), await here.runtime.toolset(None)
        run = here.runtime.run(BOB)
        await run.toolset()
        here.runtime.reconfigure(tools=[other()])
        for result in (
            await held.call("add", {"a": 1, "b": 2}),
            await run.call("add", {"a": 1, "b": 2}),
            await here.runtime.dispatch(None, "add", {"a": 1, "b": 2}),
            await nobodys.call("add", {"a": 1, "b": 2}),
        ):
            assert "another one by now" in refused(result, "binding-changed").message
        for who in (ALICE, None):
            assert (await here.runtime.dispatch(who, "add", {"a": 1, "b": 2})).text == "-3"
        assert (await (await run.toolset()).call("add", {"a": 1, "b": 2})).text == "-3"
        here.runtime.reconfigure(tools=[])
        refused(await run.call("add", {"a": 1, "b": 2}), "binding-changed")
        refused(await here.runtime.dispatch(BOB, "add"), "unknown-tool")


async def test_a_name_that_was_offered_for_a_servers_tool_stays_that_tool() -> None:
    async with runtime({"maths": [said("maths", "add")]}) as here:
        held = await here.runtime.toolset(ALICE)
        here.runtime.reconfigure(tools=[add])
        assert '"server": "maths"' in (await held.call("add", {})).text
        assert '"server": "maths"' in (await here.runtime.dispatch(ALICE, "add", {})).text
        fresh = await here.runtime.toolset(ALICE)
        assert set(fresh) == {"add", "maths__add"}
        assert (await here.runtime.dispatch(ALICE, "add", {"a": 1, "b": 2})).text == "3"
        assert (await here.runtime.dispatch(BOB, "add", {"a": 1, "b": 2})).text == "3"


async def test_calls_keep_the_hooks_that_they_began_with() -> None:
    denies = Hook("denies", before=lambda call: Deny("not today"))
    notes: list[str] = []
    after = Hook("notes", after=lambda call, result: notes.append("old"))
    async with (
        runtime({"files": [said("files", "read")]}, hooks=[after]) as here,
        trio.open_nursery() as nursery,
    ):
        event, got = trio.Event(), []

        async def call() -> None:
            got.append(await here.runtime.dispatch(ALICE, "read"))

        here.servers["files"].on("tools/call", Hold(event), times=1)
        nursery.start_soon(call)
        await here.servers["files"].wait_for("tools/call")
        here.runtime.reconfigure(hooks=[denies])
        refused(await here.runtime.dispatch(ALICE, "read"), "denied")
        event.set()
        await until(lambda: bool(got))
        assert (got[0].code, notes) == ("ok", ["old"])


async def test_names_and_deadlines_are_those_of_the_configuration(autojump_clock: Any) -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        held = await here.runtime.toolset(ALICE)
        here.runtime.reconfigure(qualify="always", deadline=2.0)
        assert list(await here.runtime.toolset(ALICE)) == ["files__read"]
        here.servers["files"].on("tools/call", Hold(trio.Event()))
        began = trio.current_time()
        refused(await held.call("read"), "deadline-exceeded", delivery="in-doubt")
        assert trio.current_time() - began == pytest.approx(2.0, abs=0.1)


# ---------------------------------------------------------------------------- what cannot be

FIXED: dict[str, dict[str, Any]] = {
    "signer": {"signer": object()},
    "secret": {"secret": b"x" * 32},
    "artifacts": {"artifacts": MemoryArtifacts()},
    "on_use": {"on_use": print},
    "on_authorization": {"on_authorization": print},
    "seams": {"seams": afpool.Seams()},
    "max_clients": {"pool": {"max_clients": 7}},
    r"pool\['on_log'\]": {"pool": {"on_log": print}},
}


@pytest.mark.parametrize("name", FIXED)
async def test_what_cannot_be_changed_is_named_and_nothing_changes(name: str) -> None:
    async with runtime({"files": [said("files", "read")]}, tools=[add]) as here:
        held = await here.runtime.toolset(ALICE)
        before = here.runtime.config
        with pytest.raises(ValueError, match=f"{name} cannot be changed while the (runtime|pool) is open"):
            here.runtime.reconfigure(servers=[], tools=[], **FIXED[name])
        assert here.runtime.config is before
        assert (await held.call("read")).code == "ok"
        assert (await held.call("add", {"a": 1, "b": 1})).text == "2"


async def test_what_is_wrong_changes_nothing() -> None:
    async with runtime({"files": [said("files", "read")]}, tools=[add]) as here:
        held = await here.runtime.toolset(ALICE)
        before = here.runtime.config
        with pytest.raises(ValueError, match="rules for a server 'nope'"):
            here.runtime.reconfigure(rules={"nope": FILLED})
        with pytest.raises(ValueError, match="no plan of its own"):
            here.runtime.reconfigure(RuntimeConfig(servers=[Server(name="files")]))
        with pytest.raises(ValueError, match="two servers are named 'files'"):
            here.runtime.reconfigure(servers=[*before.servers, *before.servers], tools=[])
        assert here.runtime.config is before
        assert (await held.call("read")).code == "ok"
        assert (await held.call("add", {"a": 1, "b": 1})).text == "2"


async def test_a_closed_runtime_takes_no_configuration() -> None:
    async with runtime(tools=[add]) as here:
        pass
    with pytest.raises(PoolClosed):
        here.runtime.reconfigure(tools=[])


async def test_another_provider_is_asked_for_what_tools_need_from_then_on() -> None:
    servers = {"crm": [taking("crm", "find", token=TEXT)]}
    async with runtime(servers, rules={"crm": FILLED}, credentials=VAULT) as here:
        await here.runtime.toolset(ALICE)
        done = here.runtime.reconfigure(credentials=StaticCredentials({"crm": "another-value-of-it"}))
        assert done.unchanged == ("crm",), "its plan needs no credential"
        await here.runtime.dispatch(ALICE, "find")
        (arrival,) = here.servers["crm"].arrivals("tools/call")
        assert arrival.arguments["token"] == "another-value-of-it"
