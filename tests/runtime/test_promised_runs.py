"""Runs that are gone on with, and conversations: whose things they see, and what still refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afpool import Identity, Issued, NeedsAuthorization, ToolContext, bearer
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.runtime import ServerRules
from afpool.tools import define_tool, from_credential
from tests.runtime.runtime_kit import ALICE, runtime, said, taking
from tests.tools.door_kit import SECRET, Ran, refused

TEXT = {"type": "string"}
WHERE = "https://idp.example/authorize?state=st4te-of-alice"
WANTS = {"crm": ServerRules(wants={"rows": "dataset/rows"})}


def loading(**schema: Any) -> Any:
    properties = {"rows": {"type": "array"}, "q": TEXT}
    return said(
        "crm", "load",
        inputSchema={"type": "object", "properties": properties, "required": ["rows"], **schema},
    )  # fmt: skip


@pytest.mark.parametrize("resumed", [False, True], ids=["fresh", "resumed"])
@pytest.mark.parametrize("judged", [True, False], ids=["by a schema", "by none"])
@pytest.mark.parametrize(
    ("args", "names"), [({"q": "x"}, "rows"), ({"rows": [1]}, "rows"), ({"rows": None}, "rows")]
)
async def test_a_reference_that_is_missing_or_none_is_refused_by_name_in_a_resumed_run_too(
    resumed: bool, judged: bool, args: Any, names: str
) -> None:
    store = MemoryArtifacts()
    # one that no validator takes judges nothing
    schema = {} if judged else {"minimum": "many"}
    async with runtime({"crm": [loading(**schema)]}, rules=WANTS, artifacts=store) as here:
        run = here.runtime.run(ALICE)
        await run.toolset()
        if resumed:
            run = here.runtime.resume(json.dumps(run.checkpoint()))
        result = await run.call("load", args)
        refused(result, "invalid-arguments" if judged else "wants-refused")
        assert names in result.text
        assert here.sent("crm") == 0
        new = NewArtifact(kind="dataset/rows", media_type="application/json", data=[1, 2])
        ref = (await store.put(ALICE, new)).ref
        result = await run.call("load", {"rows": ref})
        assert json.loads(result.text)["args"] == {"rows": [1, 2]}


async def test_consent_that_is_still_missing_refuses_the_resumed_call_again() -> None:
    consented: list[bool] = []
    told: list[Any] = []

    class Provider:
        async def get(self, request: Any) -> Any:
            return Issued(bearer(SECRET)) if consented else NeedsAuthorization(WHERE, "s-1")

    config: dict[str, Any] = {
        "rules": {"crm": ServerRules(fill={"token": from_credential("crm", mode="user")})},
        "credentials": Provider(),
        "on_authorization": lambda *what: told.append(what),
    }
    async with runtime({"crm": [taking("crm", "find", q=TEXT, token=TEXT)]}, **config) as here:
        run = here.runtime.run(ALICE)
        await run.toolset()
        for turn in range(1, 4):
            result = await run.call("find", {"q": "x"})
            refused(result, "authorization-required")
            assert len(told) == turn, "the host hears of each"
            saved = json.dumps(run.checkpoint())
            for text in (result.raw.decode(), saved, here.events.text):
                assert "st4te" not in text
            run = here.runtime.resume(saved)
        assert here.sent("crm") == 0
        assert here.events.kinds.count("credential_authorization_required") == 3
        consented.append(True)
        assert (await run.call("find", {"q": "x"})).code == "ok"
        assert here.sent("crm") == 1


# ---------------------------------------------------------------------------- conversations


@define_tool
async def note(text: str, ctx: ToolContext) -> str:
    meta = await ctx.artifacts.put(NewArtifact(kind="note", media_type="text/plain", data=text))
    return str(meta.ref)


@define_tool
async def recall(ctx: ToolContext) -> list[Any]:
    page = await ctx.artifacts.list()
    found = [await ctx.artifacts.get(meta.ref) for meta in page.items]
    return [one.data for one in found if one is not None]


def speaking(conversation: str | None) -> Identity:
    return Identity(tenant="acme", principal="alice", conversation_id=conversation)


async def test_runs_of_one_conversation_share_what_they_keep_and_conversations_never_do() -> None:
    async with runtime(tools=[note, recall], artifacts=MemoryArtifacts()) as here:
        names = ("c1", "c2", None)
        for conversation in names:
            for turn in range(2):
                run = here.runtime.run(speaking(conversation))
                await run.call("note", {"text": f"{conversation} {turn}"})
        for conversation in names:
            found = await here.runtime.run(speaking(conversation)).call("recall")
            assert json.loads(found.text) == [f"{conversation} 1", f"{conversation} 0"]
        assert json.loads((await here.runtime.run().call("recall")).text) == []


async def test_a_run_of_nobody_is_nobody_to_its_tools_whatever_it_is_called() -> None:
    work = Ran()
    async with runtime(tools=[work.tool, note, recall], artifacts=MemoryArtifacts()) as here:
        # an id that reads like a conversation of somebody's makes nobody of the run's caller
        await here.runtime.run(speaking("c1")).call("note", {"text": "mine"})
        run = here.runtime.run(None, "c1")
        assert json.loads((await run.call("recall")).text) == []
        await run.call("work")
        assert work.ctx.identity is None
        assert work.ctx.run_id == "c1"
        resumed = here.runtime.resume(run.checkpoint())
        await resumed.call("work")
        assert work.calls[1][1].identity is None
        assert {event.identity for event in here.events if event.run_id == "c1"} == {None}
        # and what is no identity is not taken for one
        refused(await here.runtime.run("c1").call("recall"), "identity-missing")  # type: ignore[arg-type]
