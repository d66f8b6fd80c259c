"""A runtime: several servers and the host's own tools behind one door."""

from __future__ import annotations

import contextvars
import gc
import json
from typing import Any

import pytest
import trio

import afpool
from afpool import Identity, Plan, Server, StaticCredentials
from afpool.runtime import RuntimeConfig, ServerRules, open_runtime, run_runtime
from afpool.testing import Drop, FakeTool, Hold
from afpool.tools import Hook, ResultCeiling, ResultLimits, define_tool, from_credential, from_identity
from tests.runtime.runtime_kit import ALICE, BOB, runtime, said, taking
from tests.tools.door_kit import Ran, refused

DEAD = "http://127.0.0.1:9/mcp"


@define_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ---------------------------------------------------------------------------- one toolset of everything


async def test_without_servers_there_are_the_hosts_own_tools() -> None:
    async with runtime(tools=[add]) as here:
        assert list(here.runtime.pool.servers) == []
        result = await here.runtime.dispatch(ALICE, "add", {"a": 1, "b": 2})
        assert (result.text, result.code) == ("3", "ok")
        assert await here.names() == ["add"]
        assert await here.names(None) == ["add"]
        refused(await here.runtime.dispatch(ALICE, "sub"), "unknown-tool")
        assert here.events.kinds == ["tool_start", "tool_end"] * 2


async def test_all_servers_are_one_toolset_with_one_name_for_each_tool() -> None:
    servers = {
        "files": [said("files", "read"), said("files", "search")],
        "web": [said("web", "search"), said("web", "fetch.page")],
    }
    async with runtime(servers, tools=[add]) as here:
        toolset = await here.runtime.toolset(ALICE)
        names = list(toolset)
        assert names[:4] == ["add", "read", "files__search", "web__search"]
        assert names[4].startswith("fetch_page_")
        assert dict(toolset.renamed) == {
            "files__search": ("files", "search"),
            "web__search": ("web", "search"),
            names[4]: ("web", "fetch.page"),
        }
        for name in names[1:]:
            result = await toolset.call(name, {"q": 1})
            server, listed = toolset.place_of(name)
            assert json.loads(result.text) == {"server": server, "tool": listed, "args": {"q": 1}}
            assert toolset[name].name == name
            assert toolset[name].source == server
        assert (await toolset.call("add", {"a": 1, "b": 1})).text == "2"
        assert toolset["add"] is toolset["add"]
        assert len(toolset) == 5
        refused(await toolset.call("search"), "unknown-tool")
        assert (toolset.problems, toolset.withheld, toolset.quarantined, toolset.unsettled) == (
            {},
            {},
            {},
            (),
        )


async def test_names_are_qualified_always_where_that_is_asked_for() -> None:
    async with runtime({"files": [said("files", "read")]}, tools=[add], qualify="always") as here:
        assert await here.names() == ["add", "files__read"]
        assert (await here.runtime.dispatch(ALICE, "files__read")).code == "ok"


async def test_a_call_by_name_finds_its_server_and_belongs_to_its_caller() -> None:
    async with runtime({"files": [said("files", "read")], "web": [said("web", "fetch")]}) as here:
        for who in (ALICE, BOB, lambda: ALICE):
            result = await here.runtime.dispatch(who, "fetch", {"n": 1}, call_id="c")
            assert (json.loads(result.text)["server"], result.call_id) == ("web", "c")
        assert [event.identity for event in here.events if event.kind == "tool_start"] == [ALICE, BOB, ALICE]
        nobody = await here.runtime.dispatch(None, "fetch", call_id="nobody's")
        assert "web (identity-missing)" in refused(nobody, "unknown-tool").message
        # a tool that somebody knows is not offered because its server is away: the record says so, too
        told = here.runtime.record.explain("nobody's").headline
        assert "missing from what was listed: `files (identity-missing), web (identity-missing)`" in told
        broken = await here.runtime.dispatch(lambda: "alice", "fetch")  # type: ignore[arg-type, return-value]
        refused(broken, "identity-missing")
        assert here.sent("web") == 3


async def test_a_toolset_serves_its_own_identity_only() -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        caller = [ALICE]
        toolset = await here.runtime.toolset(lambda: caller[0])
        assert (await toolset.call("read")).code == "ok"
        caller[0] = BOB
        refused(await toolset.call("read"), "identity-mismatch")
        assert here.sent("files") == 1


# ---------------------------------------------------------------------------- servers that are not there


caller_here: contextvars.ContextVar[Identity | None] = contextvars.ContextVar("caller_here", default=None)


async def test_whoever_a_context_variable_names_is_asked_in_the_callers_context() -> None:
    async with runtime({"files": [said("files", "read")], "web": [said("web", "fetch")]}) as here:
        # the pool was opened where nobody was named, and listing goes on in its background
        caller_here.set(ALICE)
        toolset = await here.runtime.toolset(caller_here.get)
        assert sorted(toolset) == ["fetch", "read"]
        assert toolset.problems == {}
        assert (await here.runtime.dispatch(caller_here.get, "read", {})).code == "ok"


async def test_a_dead_server_costs_its_own_tools_and_says_so() -> None:
    async with runtime({"files": [said("files", "read")], "dead": DEAD}, tools=[add]) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert list(toolset) == ["add", "read"]
        assert toolset.problems["dead"].code == "open-failed"
        result = await here.runtime.dispatch(ALICE, "reed")
        refused(result, "unknown-tool")
        assert result.text.startswith("There is no tool 'reed'; nothing ran. There are: read, ")
        assert "The tools of these servers are missing now: dead (open-" in result.text


async def test_a_silent_server_is_not_waited_for_and_is_there_when_it_has_answered() -> None:
    servers = {"files": [said("files", "read")], "slow": [said("slow", "think")]}
    async with runtime(servers, list_patience=0.01) as here:
        release = trio.Event()
        here.servers["slow"].on("tools/list", Hold(release))
        toolset = await here.runtime.toolset(ALICE)
        assert list(toolset) == ["read"]
        assert toolset.problems["slow"].code == "deadline-exceeded"
        assert "goes on being asked" in str(toolset.problems["slow"])
        # the same flight is not waited for twice, and nobody asks the server a second time
        assert list(await here.runtime.toolset(ALICE)) == ["read"]
        release.set()
        await here.servers["slow"].wait_for("tools/list")
        while "think" not in (toolset := await here.runtime.toolset(ALICE)):
            await trio.testing.wait_all_tasks_blocked(0.001)
        assert toolset.problems == {}
        assert here.servers["slow"].count("tools/list") == 1


async def test_whose_list_went_without_a_server_is_told_when_it_has_answered() -> None:
    heard: list[tuple[str, str | None]] = []
    told = trio.Event()

    def on_tools(server: str, projection: Identity) -> None:
        heard.append((server, projection.principal))
        told.set()

    servers = {"files": [said("files", "read")], "slow": [said("slow", "think")]}
    async with runtime(servers, list_patience=0.01, pool={"on_tools": on_tools}) as here:
        release = trio.Event()
        here.servers["slow"].on("tools/list", Hold(release))
        assert list(await here.runtime.toolset(ALICE)) == ["read"]
        assert heard == []
        release.set()
        with trio.fail_after(5):
            await told.wait()
        assert heard == [("slow", "alice")]
        assert list(await here.runtime.toolset(ALICE)) == ["read", "think"]
        # nobody went without it this time
        assert heard == [("slow", "alice")]


async def test_a_server_that_is_the_only_one_is_waited_for() -> None:
    async with runtime({"slow": [said("slow", "think")]}, list_patience=0.001) as here:
        release = trio.Event()
        here.servers["slow"].on("tools/list", Hold(release))
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                assert await here.names() == ["think"]

            nursery.start_soon(ask)
            await here.servers["slow"].wait_for("tools/list")
            release.set()


async def test_a_listing_ends_at_its_deadline() -> None:
    async with runtime({"slow": [said("slow", "think")]}) as here:
        here.servers["slow"].on("tools/list", Hold(trio.Event()))
        toolset = await here.runtime.toolset(ALICE, deadline=trio.current_time() + 0.01)
        assert toolset.problems["slow"].code == "deadline-exceeded"


async def test_nobody_gets_the_name_of_a_server_that_is_away() -> None:
    servers = {"a": [said("a", "search")], "b": [said("b", "search")]}
    async with runtime(servers) as here:
        assert await here.names() == ["a__search", "b__search"]
        here.servers["a"].refuse_connections()
        here.servers["a"].close_connections()
        assert here.runtime.pool is not None
        here.runtime.pool.invalidate(server="a")
        toolset = await here.runtime.toolset(ALICE)
        assert "a" in toolset.problems
        assert list(toolset) == ["b__search"]
        result = await here.runtime.dispatch(ALICE, "search")
        refused(result, "unknown-tool")
        assert here.sent("b") == 0


async def test_a_name_means_what_it_was_offered_for_while_that_is_held() -> None:
    async with runtime({"a": [said("a", "search")], "b": [said("b", "other")]}) as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["b"].set_tools([said("b", "other"), said("b", "search")], notify=False)
        await here.runtime.pool.refresh(ALICE, "b")  # type: ignore[union-attr]
        result = await here.runtime.dispatch(ALICE, "search")
        assert json.loads(result.text)["server"] == "a"
        del toolset
        gc.collect()
        refused(await here.runtime.dispatch(ALICE, "search"), "unknown-tool")
        assert await here.names() == ["a__search", "other", "b__search"]


# ---------------------------------------------------------------------------- lists that change


def changed(description: str) -> FakeTool:
    return said("files", "read", description=description)


@pytest.mark.parametrize("repeat", ["never", "when-nothing-ran"])
async def test_a_stale_list_refuses_or_is_asked_for_again(repeat: Any) -> None:
    async with runtime({"files": [said("files", "read")]}, repeat=repeat) as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["files"].set_tools([said("files", "read"), said("files", "new")], notify=False)
        await here.runtime.toolset(ALICE, refresh=True)
        result = await toolset.call("read", call_id="c")
        if repeat == "never":
            refused(result, "stale-tools")
            assert "tool_repeated" not in here.events.kinds
            assert here.sent("files") == 0
            assert (await here.runtime.dispatch(ALICE, "read")).code == "ok"
        else:
            assert (result.code, result.call_id) == ("ok", "c")
            assert here.events.of("tool_repeated") == {
                "call_id": "c:again", "repeated_of": "c", "code": "stale-tools",
            }  # fmt: skip
            assert here.sent("files") == 1
        assert here.events.kinds.count("tool_start") == here.events.kinds.count("tool_end")


async def test_what_was_refused_is_repeated_only_with_the_tool_that_the_model_read() -> None:
    async with runtime({"files": [changed("one")]}, repeat="when-nothing-ran") as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["files"].set_tools([changed("another")], notify=False)
        await here.runtime.toolset(ALICE, refresh=True)
        refused(await toolset.call("read"), "stale-tools")
        here.servers["files"].set_tools([said("files", "other")], notify=False)
        await here.runtime.toolset(ALICE, refresh=True)
        refused(await toolset.call("read"), "stale-tools")
        assert here.sent("files") == 0


async def test_a_lost_session_is_repeated_once() -> None:
    async with runtime({"files": [said("files", "read")]}, repeat="when-nothing-ran") as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["files"].forget_sessions("404")
        result = await toolset.call("read", call_id="c")
        assert result.code == "ok"
        assert here.events.of("tool_repeated")["code"] == "session-expired"
        assert len([use for use in here.runtime.pool.records.uses if use.tool == "read"]) == 2  # type: ignore[union-attr]


async def test_what_may_have_run_is_never_repeated() -> None:
    async with runtime({"files": [said("files", "read")]}, repeat="when-nothing-ran") as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["files"].on("tools/call", Drop())
        result = await toolset.call("read")
        refused(result, "connection-lost", "in-doubt")
        assert here.sent("files") == 1
        assert "tool_repeated" not in here.events.kinds


async def test_a_revoked_authorization_is_not_gone_around() -> None:
    async with runtime({"files": [said("files", "read")]}, repeat="when-nothing-ran") as here:
        toolset = await here.runtime.toolset(ALICE)
        assert here.runtime.pool is not None
        here.runtime.pool.invalidate(identity=ALICE)
        refused(await toolset.call("read"), "binding-changed")
        assert here.sent("files") == 0
        # whoever asks anew is given what the plan says now
        assert (await here.runtime.dispatch(ALICE, "read")).code == "ok"


FILL = {"files": ServerRules(fill={"tenant": from_identity("tenant")})}


@pytest.mark.parametrize("how", ["revoked", "filled no more", "nothing"])
async def test_what_is_revoked_or_filled_otherwise_meanwhile_is_not_repeated(how: str) -> None:
    tenant = taking("files", "read", tenant={"type": "string"})
    async with runtime({"files": [tenant]}, repeat="when-nothing-ran", rules=FILL) as here:
        files, event, got = here.servers["files"], trio.Event(), []
        toolset = await here.runtime.toolset(ALICE)
        files.forget_sessions("404")
        files.on("tools/list", Hold(event), times=1)

        async def call() -> None:
            got.append(await toolset.call("read"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await files.wait_for("tools/list", 2)
            if how == "revoked":
                here.runtime.pool.invalidate(identity=ALICE)
            elif how == "filled no more":
                here.runtime.reconfigure(rules={})
            event.set()
        (result,) = got
        if how == "nothing":
            assert json.loads(result.text)["args"] == {"tenant": "acme"}
        else:
            refused(result, "session-expired", "refused")
            assert "tool_repeated" not in here.events.kinds
            assert here.sent("files") == 1, "what the server refused, and nothing after it"


# ---------------------------------------------------------------------------- a single bad tool


@pytest.mark.parametrize("schema", [True, [], "text", None, 3])
async def test_a_tool_whose_schema_is_no_object_costs_itself(schema: Any) -> None:
    tools = [said("files", "bad", inputSchema=schema), said("files", "read")]
    async with runtime({"files": tools}) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert list(toolset) == ["read"]
        assert "bad" not in toolset
        assert "bad-schema" in toolset.quarantined["files/bad"]
        refused(await toolset.call("bad"), "unknown-tool")
        assert (await toolset.call("read")).code == "ok"


async def test_tools_of_every_odd_schema_are_offered_and_validated_as_far_as_that_goes() -> None:
    odd = {
        "recursive": {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
        "contradictory": {"allOf": [{"type": "object"}, {"not": {}}]},
        "remote": {"$ref": "https://example.com/x"},
        "nothing": {"properties": None},
        "empty": {},
    }
    tools = [said("s", name, inputSchema=schema) for name, schema in odd.items()]
    async with runtime({"s": tools}) as here:
        toolset = await here.runtime.toolset(ALICE)
        assert list(toolset) == list(odd)
        for name, schema in odd.items():
            assert toolset[name].input_schema == schema
        assert (await toolset.call("recursive", {"next": {"next": {}}})).code == "ok"
        refused(await toolset.call("recursive", {"x": 1}), "invalid-arguments")
        refused(await toolset.call("contradictory", {}), "invalid-arguments")
        for name in ("remote", "nothing", "empty"):
            assert (await toolset.call(name, {"any": 1})).code == "ok"


def answering(name: str, result: Any) -> FakeTool:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return FakeTool(name, lambda arguments, arrival: result, outputSchema=schema)


async def test_structured_results_of_servers_are_held_to_what_was_listed() -> None:
    text = [{"type": "text", "text": "words"}]
    tools = [
        answering("good", {"content": text, "structuredContent": {"n": 1}}),
        answering("wrong", {"content": text, "structuredContent": {"n": "secret"}}),
        answering("none", {"content": text}),
        answering("failed", {"content": text, "isError": True}),
        FakeTool("old", lambda arguments, arrival: {"toolResult": {"a": 1}}),
        FakeTool("odd", lambda arguments, arrival: {"secret": 1}),
    ]
    async with runtime({"files": tools}) as here:
        toolset = await here.runtime.toolset(ALICE)
        results = {name: await toolset.call(name) for name in toolset}
        assert results["good"].structured == {"n": 1}
        refused(results["wrong"], "invalid-output", "answered")
        assert "secret" not in results["wrong"].text
        assert (results["none"].code, results["none"].text) == ("ok", "words")
        assert (results["failed"].code, results["failed"].text) == ("tool-error", "words")
        assert (results["old"].code, results["old"].text) == ("ok", '{"a":1}')
        assert "the members secret" in refused(results["odd"], "protocol-error", "answered").message


# ---------------------------------------------------------------------------- opening and leaving


async def test_a_runtime_in_a_nursery() -> None:
    config = RuntimeConfig(tools=[add])
    async with trio.open_nursery() as nursery:
        opened = await nursery.start(run_runtime, config)
        assert (await opened.dispatch(None, "add", {"a": 1, "b": 1})).text == "2"
        nursery.cancel_scope.cancel()
    refused(await opened.dispatch(None, "add", {"a": 1, "b": 1}), "pool-closed")
    with pytest.raises(afpool.PoolClosed):
        await opened.toolset(ALICE)


async def test_after_leaving_nothing_runs() -> None:
    work = Ran()
    async with runtime({"files": [said("files", "read")]}, tools=[work.tool]) as here:
        toolset = await here.runtime.toolset(ALICE)
    refused(await toolset.call("read"), "pool-closed")
    refused(await toolset.call("work"), "pool-closed")
    assert not work.calls


async def test_an_exception_of_the_block_leaves_as_itself() -> None:
    with pytest.raises(KeyError):
        async with open_runtime(tools=[add]):
            raise KeyError
    plan = Plan(transport=afpool.HttpTransport(url=DEAD))
    with pytest.raises(KeyError):
        async with open_runtime(servers=[Server(name="s", plan=plan)]):
            raise KeyError


def server(name: str) -> Server:
    return Server(name=name, plan=Plan(transport=afpool.HttpTransport(url=DEAD)))


@define_tool(wants={"data": "rows"})
def count(data: list[Any]) -> int:
    return len(data)


@pytest.mark.parametrize(
    ("error", "says", "config"),
    [
        (ValueError, "two tools.*'add'", {"tools": [add, add]}),
        (
            ValueError, "'files__x' reads as if",
            {"servers": [server("files")], "tools": [Ran(name="files__x").tool]},
        ),
        (ValueError, "'count' wants artifacts for data \\(rows\\)", {"tools": [count]}),
        (
            ValueError, "rules for 's' want artifacts for rows",
            {"servers": [server("s")], "rules": {"s": ServerRules(wants={"rows": "k"})}},
        ),
        (ValueError, "max_inline_chars.* no artifact store", {"results": ResultLimits(max_inline_chars=5)}),
        (ValueError, "'work' needs a credential for 'crm'", {"tools": [Ran(needs="crm").tool]}),
        (
            ValueError, "rules for 's' fill token from a credential",
            {"servers": [server("s")], "rules": {"s": ServerRules(
                fill={"token": from_credential("crm"), "t": from_identity("tenant")})}},
        ),
        (ValueError, "rules for a server 'x'", {"rules": {"x": ServerRules()}}),
        (TypeError, "the rules for 's' are ServerRules", {"servers": [server("s")], "rules": {"s": {}}}),
        (TypeError, "tools holds function", {"tools": [len]}),
        (TypeError, "servers holds str", {"servers": ["s"]}),
        (TypeError, "hooks holds str", {"hooks": ["h"]}),
        (ValueError, "qualify", {"qualify": "sometimes"}),
        (ValueError, "repeat", {"repeat": "often"}),
        (ValueError, "list_patience must be positive", {"list_patience": 0}),
        (ValueError, "deadline must be positive", {"deadline": -1}),
        (TypeError, "mapping", {"rules": 3}),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_refused_before_anything_is_opened(
    error: type[Exception], says: str, config: dict[str, Any]
) -> None:
    says = says.replace("tools holds function", "tools holds builtin_function_or_method")
    with pytest.raises(error, match=says):
        RuntimeConfig(**config)


@pytest.mark.parametrize(
    ("says", "rules"),
    [
        ("fill of 'a' is str", {"fill": {"a": "token"}}),
        ("wants", {"wants": {"a": " "}}),
        ("redact is a RedactionPolicy", {"redact": ["token"]}),
        ("ceilings.'a'. is a ResultCeiling", {"ceilings": {"a": 5}}),
        ("mapping", {"fill": ["a"]}),
    ],
)
def test_wrong_rules_are_refused(says: str, rules: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=says):
        ServerRules(**rules)


def test_a_secret_is_in_no_repr() -> None:
    assert "s3cret" not in repr(RuntimeConfig(secret=b"s3cret" * 4))


async def test_hooks_credentials_and_ceilings_reach_the_door() -> None:
    seen: list[str] = []
    hook = Hook("h", before=lambda call: seen.append(call.tool.name))
    rules = ServerRules(ceilings={"big": ResultCeiling(10), "*": ResultCeiling(1_000)})
    tools = [said("files", "big"), said("files", "small")]
    local = Ran(needs="crm")
    async with runtime(
        {"files": tools},
        tools=[local.tool],
        hooks=[hook],
        rules={"files": rules},
        credentials=StaticCredentials({"crm": "token"}),
    ) as here:
        refused(await here.runtime.dispatch(ALICE, "big"), "too-large", "answered")
        assert (await here.runtime.dispatch(ALICE, "small")).code == "ok"
        assert (await here.runtime.dispatch(ALICE, "work")).code == "ok"
        assert local.ctx.credential is not None
        assert seen == ["big", "small", "work"]


# ---------------------------------------------------------------------------- tools that call tools


async def test_a_tool_calls_others_at_the_same_door() -> None:
    @define_tool
    async def outer(ctx: afpool.ToolContext) -> Any:
        tools = ctx.tools
        remote = await tools.call("read", {"n": 1})
        wrong = await tools.call("add", {"a": "x"})
        right = await tools.call("add", {"a": 1, "b": 2})
        return {
            "has": [tools.has("add"), tools.has("nothing")],
            "codes": [remote.code, wrong.code, right.code],
            "ids": [remote.call_id, wrong.call_id, right.call_id],
        }

    async with runtime({"files": [said("files", "read")]}, tools=[add, outer]) as here:
        run = here.runtime.run(ALICE, "run-1")
        result = await run.call("outer", call_id="c")
        assert result.structured == {
            "has": [True, False],
            "codes": ["ok", "invalid-arguments", "ok"],
            "ids": ["c:inner:1", "c:inner:2", "c:inner:3"],
        }
        starts = [event for event in here.events if event.kind == "tool_start"]
        assert [event.call_id for event in starts] == ["c", "c:inner:1", "c:inner:2", "c:inner:3"]
        assert {(event.run_id, event.identity) for event in starts} == {("run-1", ALICE)}


async def test_a_tool_that_calls_itself_without_end_is_ended() -> None:
    depth: list[int] = []

    @define_tool
    async def again(n: int, ctx: afpool.ToolContext) -> Any:
        depth.append(n)
        inner = await ctx.tools.call("again", {"n": n + 1})
        return inner if inner.is_error else inner.text

    async with runtime(tools=[again]) as here:
        result = await here.runtime.dispatch(ALICE, "again", {"n": 0})
        assert (result.code, result.is_error) == ("overloaded", True)
        assert depth == list(range(17))


async def test_an_inner_call_has_the_outer_ones_deadline_and_chain() -> None:
    inner = Ran(name="inner")

    @define_tool
    async def outer(ctx: afpool.ToolContext) -> str:
        await ctx.tools.call("inner", {})
        return "x"

    async with runtime(tools=[inner.tool, outer]) as here:
        until = trio.current_time() + 33
        await here.runtime.dispatch(ALICE, "outer", {}, deadline=until, chain=(7, 8))
        assert (inner.ctx.deadline, inner.ctx.chain, inner.ctx.identity) == (until, (7, 8), ALICE)


async def test_a_call_from_inside_a_call_never_waits_for_itself() -> None:
    from afpool import ServerRequests
    from afpool.testing import ask_tool

    codes: list[str] = []
    opened: list[Any] = []

    async def elicit(request: afpool.ElicitRequest) -> afpool.ElicitAnswer:
        operation = request.operation
        assert operation is not None
        result = await opened[0].dispatch(operation.identity, "outer", {}, chain=operation.chain)
        codes.append(result.text)
        return request.accept()

    @define_tool
    async def outer(ctx: afpool.ToolContext) -> str:
        return (await ctx.tools.call("echo", {})).code

    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    async with afpool.testing.FakeServer.http(tools=[ask_tool(), said("s", "echo")]) as fake:
        plan = Plan(transport=afpool.HttpTransport(url=fake.url), requests=ServerRequests(elicit=elicit))
        async with open_runtime(
            servers=[Server(name="s", plan=plan)], tools=[outer], pool={"max_operations": 1}
        ) as here:
            opened.append(here)
            with trio.fail_after(10):
                await here.dispatch(ALICE, "ask", {"params": form})
    assert codes == ["overloaded"]


# ---------------------------------------------------------------------------- who sees what


async def test_what_one_identity_was_listed_is_nobody_elses() -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        alices = await here.runtime.toolset(ALICE)
        bobs = await here.runtime.toolset(BOB)
        assert (
            afpool.tools.binding_of(alices["read"]).actor is not afpool.tools.binding_of(bobs["read"]).actor
        )  # type: ignore[union-attr]
        assert here.runtime.pool.statistics().keys == 2  # type: ignore[union-attr]


async def test_a_runtime_keeps_nobody_alive() -> None:
    async with runtime({"files": [said("files", "read")]}) as here:
        for n in range(5):
            await here.runtime.dispatch(Identity(principal=f"p{n}"), "read")
        gc.collect()
        assert len(here.runtime._offers.held) == 0


async def test_a_server_with_a_schema_of_arguments_refuses_by_it() -> None:
    async with runtime({"files": [taking("files", "read", path={"type": "string"})]}) as here:
        result = await here.runtime.dispatch(ALICE, "read", {"path": 3})
        assert "path: expected string, got integer" in refused(result, "invalid-arguments").message
        assert here.sent("files") == 0
