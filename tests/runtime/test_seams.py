"""Fills, artifacts, views, hooks, credentials, inner calls and runs meet: each holds beside the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

import afpool
from afpool import (
    Identity,
    Issued,
    NeedsAuthorization,
    Progress,
    ScriptedCredentials,
    ToolContext,
    bearer,
    tools,
)
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import ServerRules
from afpool.testing import FakeTool
from afpool.testing import _tools as fakes
from afpool.tools import (
    Hook,
    RedactionPolicy,
    Replace,
    ResultLimits,
    binding_of,
    define_tool,
    from_credential,
    from_identity,
)
from tests.runtime.runtime_kit import ALICE, BOB, runtime, said, taking
from tests.tools.door_kit import SECRET, refused

TEXT = {"type": "string"}
WHERE = "https://idp.example/authorize?state=st4te-of-alice"
RULES = ServerRules(
    fill={"token": from_credential("crm", mode="user"), "tenant_id": from_identity("tenant")},
    wants={"rows": "dataset/rows"},
    redact=RedactionPolicy(keys=["ssn"]),
)
FORMATS = [getattr(tools, name) for name in tools.__all__ if hasattr(type(getattr(tools, name)), "results")]


def crm(**members: Any) -> FakeTool:
    properties = {"q": TEXT, "ssn": TEXT, "rows": {"type": "array"}, "token": TEXT, "tenant_id": TEXT}
    schema = {"type": "object", "properties": properties, "required": ["q", "token", "tenant_id"]}
    return said("crm", "find", inputSchema=schema, **members)


def vending() -> ScriptedCredentials:
    return ScriptedCredentials(lambda request: bearer(SECRET))


async def rows_of(store: MemoryArtifacts, who: Identity) -> str:
    new = NewArtifact(kind="dataset/rows", media_type="application/json", data=[1, 2, 3])
    return (await store.put(who, new)).ref


async def test_everything_holds_beside_everything_else() -> None:
    store = MemoryArtifacts()
    seen: list[Any] = []
    hooks = [
        Hook("look", before=lambda call: seen.append(dict(call.args)), after=lambda call, result: None),
        Hook("more", before=lambda call: Replace({**call.args, "q": "replaced"})),
    ]
    config: dict[str, Any] = {"rules": {"crm": RULES}, "artifacts": store, "credentials": vending()}
    async with runtime({"crm": [crm()]}, hooks=hooks, **config) as here:
        run = here.runtime.run(ALICE)
        ref = await rows_of(store, ALICE)
        toolset = await run.toolset()
        assert len(FORMATS) == 6
        for tool_format in FORMATS:
            listed = json.dumps(tool_format.tools(toolset))
            assert "ssn" in listed
            assert "token" not in listed
            assert "tenant_id" not in listed
        assert binding_of(toolset["find"]) is not None
        sent = {"q": "x", "ssn": "123-45-6789", "rows": ref}
        result = await run.call("find", sent)
        ran = {"q": "replaced", "ssn": "123-45-6789", "rows": [1, 2, 3]}
        assert json.loads(result.text)["args"] == {**ran, "token": "[host-filled]", "tenant_id": "acme"}
        assert seen == [sent]
        start, end = here.events.of("tool_start"), here.events.of("tool_end")
        assert start["args"] == {"q": "x", "ssn": "REDACTED", "rows": ref}
        assert end["changed_arg_keys"] == ["q", "ssn"]
        assert "123-45-6789" not in json.dumps(start)
        assert here.events.kinds == [
            "tool_start", "artifacts.resolved", "credential_requested", "credential_acquired", "tool_end",
        ]  # fmt: skip
        refused(await run.call("find", {**sent, "TENANT-ID": None}), "ERR_HOST_FILLED_ARGUMENT")
        refused(await here.runtime.run(BOB).call("find", sent), "wants-refused")
        assert here.sent("crm") == 1
        assert SECRET not in here.events.text


async def test_a_run_that_waits_for_somebodys_consent_is_paused_and_gone_on_with() -> None:
    consented: list[bool] = []
    told: list[Any] = []

    class Provider:
        async def get(self, request: Any) -> Any:
            assert (request.mode, request.identity.principal) == ("user", "alice")
            return Issued(bearer(SECRET)) if consented else NeedsAuthorization(WHERE, "s-1")

    store = MemoryArtifacts()
    config: dict[str, Any] = {
        "rules": {"crm": RULES},
        "artifacts": store,
        "credentials": Provider(),
        "secret": b"s" * 32,
        "on_authorization": lambda *what: told.append(what),
    }
    ref = await rows_of(store, ALICE)
    async with runtime({"crm": [crm()]}, **config) as here:
        run = here.runtime.run(ALICE, "run-1")
        await run.toolset()
        result = await run.call("find", {"q": "x", "rows": ref})
        refused(result, "authorization-required")
        assert here.sent("crm") == 0
        ((service, who, needs),) = told
        assert (service, who.principal, needs.authorization_url) == ("crm", "alice", WHERE)
        saved = json.dumps(run.checkpoint())
        for text in (result.raw.decode(), saved, here.events.text, repr(result.error)):
            assert "st4te" not in text
            assert "idp.example" not in text
    consented.append(True)
    async with runtime({"crm": [crm()]}, **config) as here:
        run = here.runtime.resume(saved)
        result = await run.call("find", {"q": "x", "rows": ref})
        assert json.loads(result.text)["args"]["rows"] == [1, 2, 3]
        assert SECRET not in here.events.text + result.raw.decode() + json.dumps(run.checkpoint())


async def test_a_call_of_a_stale_list_is_repeated_with_everything_in_its_place() -> None:
    store = MemoryArtifacts()
    ref = await rows_of(store, ALICE)
    async with runtime(
        {"crm": [crm()]},
        rules={"crm": RULES},
        artifacts=store,
        credentials=vending(),
        repeat="when-nothing-ran",
    ) as here:
        toolset = await here.runtime.toolset(ALICE)
        here.servers["crm"].set_tools([crm(), said("crm", "new")], notify=False)
        await here.runtime.toolset(ALICE, refresh=True)
        result = await toolset.call("find", {"q": "x", "rows": ref}, call_id="c")
        assert json.loads(result.text)["args"] == {
            "q": "x", "rows": [1, 2, 3], "token": "[host-filled]", "tenant_id": "acme",
        }  # fmt: skip
        assert here.events.of("tool_repeated")["call_id"] == "c:again"
        assert here.events.kinds.count("credential_requested") == 1
        # one that would show what was hidden is not what the call meant
        toolset = await here.runtime.toolset(ALICE)
        here.servers["crm"].set_tools([taking("crm", "find", q=TEXT, secret=TEXT)], notify=False)
        fresh = await here.runtime.toolset(ALICE, refresh=True)
        assert fresh.withheld["crm"].startswith("fill-undeclared")
        assert not list(fresh)
        refused(await toolset.call("find", {"q": "x"}), "stale-tools")
        assert here.sent("crm") == 1


async def test_a_large_result_is_stored_without_the_secret_and_wanted_by_another_tool() -> None:
    store = MemoryArtifacts()
    rules = {"crm": ServerRules(fill={"token": from_credential("crm")})}
    totals: list[Any] = []

    @define_tool(wants={"report": "tool-result/find"})
    async def total(report: Any) -> int:
        totals.append(report)
        return len(json.dumps(report))

    async with runtime(
        {"crm": [taking("crm", "find", q=TEXT, token=TEXT)]},
        tools=[total],
        rules=rules,
        artifacts=store,
        credentials=vending(),
        results=ResultLimits(max_inline_chars=500),
    ) as here:
        run = here.runtime.run(ALICE)
        placed = json.loads((await run.call("find", {"q": "x" * 1000})).text)
        assert placed["placed"] is True
        assert (await run.call("total", {"report": placed["ref"]})).code == "ok"
        assert "[host-filled]" in json.dumps(totals)
        assert SECRET not in json.dumps(totals) + here.events.text
        refused(await here.runtime.run(BOB).call("total", {"report": placed["ref"]}), "wants-refused")


async def test_progress_of_a_server_holds_no_secret() -> None:
    async def working(arguments: Any, arrival: Any) -> Any:
        yield fakes.Progress(1.0, message=f"with {arguments['token']}")
        yield "done"

    schema = {"type": "object", "properties": {"token": TEXT}, "required": ["token"]}
    rules = {"crm": ServerRules(fill={"token": from_credential("crm")})}
    told: list[Progress] = []
    servers = {"crm": [FakeTool("work", working, inputSchema=schema)]}
    async with runtime(servers, rules=rules, credentials=vending()) as here:
        result = await here.runtime.dispatch(ALICE, "work", {}, on_progress=told.append)
        assert result.text == "done"
        assert [one.message for one in told] == ["with [host-filled]"]
        assert here.events.of("tool_progress")["payload"]["message"] == "with [host-filled]"


async def test_progress_of_a_server_is_recorded_whether_or_not_the_caller_listens() -> None:
    async def working(arguments: Any, arrival: Any) -> Any:
        for at in range(1, 41):
            yield fakes.Progress(float(at), 40.0, message=f"{at} with {arguments['token']}")
        yield "done"

    @define_tool
    async def outer(ctx: ToolContext) -> str:
        return str((await ctx.tools.call("work")).text)

    schema = {"type": "object", "properties": {"token": TEXT}, "required": ["token"]}
    rules = {"crm": ServerRules(fill={"token": from_credential("crm")})}
    servers = {"crm": [FakeTool("work", working, inputSchema=schema)]}
    config: dict[str, Any] = {"rules": rules, "credentials": vending(), "tools": [outer]}
    async with runtime(servers, **config) as here:
        for name in ("work", "outer"):
            here.events.clear()
            assert (await here.runtime.dispatch(ALICE, name)).text == "done"
            reports = [event.payload for event in here.events if event.kind == "tool_progress"]
            assert {one["tool_name"] for one in reports} == {"work"}
            last = reports[-1]
            assert last["payload"] == {"progress": 40.0, "total": 40.0, "message": "40 with [host-filled]"}
            use = [use for use in here.runtime.pool.records.uses if use.tool == "work"][-1]
            assert last["number"] == use.reports
            assert use.reported == (40.0, 40.0)
            assert len(reports) <= 33
            assert SECRET not in here.events.text
    async with runtime(servers, on_event=None, **config) as here:
        assert (await here.runtime.dispatch(ALICE, "work")).text == "done"
        (arrival,) = here.servers["crm"].arrivals("tools/call")
        assert "progressToken" not in arrival.params.get("_meta", {})  # nobody wants to know


# ---------------------------------------------------------------------------- calls from inside a call


@pytest.mark.parametrize("how", ["needed", "pulled"])
async def test_a_credential_that_a_tool_hands_on_is_in_no_record_and_no_refusal(how: str) -> None:
    answers: list[afpool.ToolResult] = []

    async def outer(args: Any, ctx: ToolContext) -> Any:
        credential: Any = ctx.credential
        if how == "pulled":
            assert ctx.credentials is not None
            issued: Any = await ctx.credentials.get(afpool.CredentialRequest("crm", (), "user", ALICE))
            credential = issued.credential
        for wrong in ({}, {"q": 7}, {"key": credential.token}):
            headers = {"Authorization": f"Bearer {credential.token}"}
            inner = {"q": "x", "key": "k", "headers": headers, **wrong}
            answers.append(await ctx.tools.call("find", inner))
        return "done"

    tool = define_tool(execute=outer, name="outer", needs="crm" if how == "needed" else None)
    key = {"type": "string", "maxLength": 4}
    servers = {"crm": [taking("crm", "find", q=TEXT, key=key, headers={"type": "object"})]}
    async with runtime(servers, tools=[tool], credentials=vending()) as here:
        assert (await here.runtime.dispatch(ALICE, "outer")).code == "ok"
        assert [one.code for one in answers] == ["ok", "invalid-arguments", "invalid-arguments"]
        assert here.sent("crm") == 1
        assert "key: expected at most 4 characters, got string" in answers[2].text
        starts = [event.payload["args"] for event in here.events if event.kind == "tool_start"]
        assert starts[1]["headers"] == {"Authorization": "Bearer [host-filled]"}
        assert SECRET not in here.events.text
        assert all(SECRET not in one.raw.decode() for one in answers)
        # the server itself got it
        arrived = [arrival.params["arguments"] for arrival in here.servers["crm"].arrivals("tools/call")]
        assert arrived[0]["headers"] == {"Authorization": f"Bearer {SECRET}"}


async def test_an_inner_call_of_a_filled_tool_is_filled_for_the_same_caller() -> None:
    answers: list[afpool.ToolResult] = []

    @define_tool
    async def outer(ref: str, ctx: ToolContext) -> str:
        answers.append(await ctx.tools.call("find", {"q": "x", "rows": ref}))
        answers.append(await ctx.tools.call("find", {"q": "x", "token": "mine"}))
        return "done"

    store = MemoryArtifacts()
    ref = await rows_of(store, ALICE)
    config: dict[str, Any] = {"rules": {"crm": RULES}, "artifacts": store, "credentials": vending()}
    async with runtime({"crm": [crm()]}, tools=[outer], **config) as here:
        assert (await here.runtime.run(ALICE).call("outer", {"ref": ref})).code == "ok"
        args = json.loads(answers[0].text)["args"]
        assert args == {"q": "x", "rows": [1, 2, 3], "token": "[host-filled]", "tenant_id": "acme"}
        refused(answers[1], "ERR_HOST_FILLED_ARGUMENT")
        assert SECRET not in here.events.text


# ---------------------------------------------------------------------------- who cannot be asked


@pytest.mark.parametrize("through", ["dispatch", "run", "inner"])
async def test_a_caller_who_cannot_be_asked_is_not_nobody(through: str) -> None:
    ran: list[Any] = []
    known = [True]

    def caller() -> Identity:
        if not known:
            raise RuntimeError("no session")
        return ALICE

    @define_tool
    async def local(ctx: ToolContext) -> str:
        ran.append(ctx)
        return "ran"

    @define_tool
    async def outer(ctx: ToolContext) -> Any:
        known.clear()
        return await ctx.tools.call("local")

    hooked: list[str] = []
    look = Hook("look", before=lambda call: hooked.append(call.tool.name))
    async with runtime(tools=[local, outer], artifacts=MemoryArtifacts(), hooks=[look]) as here:
        if through == "inner":
            result = await here.runtime.dispatch(caller, "outer")
        else:
            known.clear()
            call = here.runtime.dispatch if through == "dispatch" else None
            result = await (call(caller, "local") if call else here.runtime.run(caller).call("local"))
        assert (result.code, result.delivery) == ("identity-missing", "not-sent") or through == "inner"
        assert "could not be asked" in result.text
        assert "local" not in hooked
        assert ran == []
        known.append(True)
        assert (await here.runtime.dispatch(caller, "local")).text == "ran"
