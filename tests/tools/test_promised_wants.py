"""References at the door: what is no more or somebody else's, and what no schema judges before."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import afpool.tools
from afpool import Identity, Tool, ToolContext, ToolResult
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.tools import define_tool
from tests.artifacts.store_kit import Clock
from tests.tools.door_kit import Ran, door, refused

CHAT = Identity(tenant="acme", principal="alice", conversation_id="c1")
ROWS = "dataset/rows"
WANTING: dict[str, Any] = {
    "input_schema": {
        "type": "object", "properties": {"data": {"type": "string"}, "more": {"type": "string"}},
        "required": ["data"],
    },
    "wants": {"data": ROWS, "more": ROWS},
}  # fmt: skip


async def kept(store: MemoryArtifacts, scope: Identity = CHAT, data: Any = "rows", **facts: Any) -> str:
    new = NewArtifact(kind=ROWS, media_type="application/json", data=data, **facts)
    return (await store.put(scope, new)).ref


ELSEWHERE = {
    "conversation": Identity(tenant="acme", principal="alice", conversation_id="c2"),
    "no conversation": Identity(tenant="acme", principal="alice"),
    "principal": Identity(tenant="acme", principal="bob", conversation_id="c1"),
    "tenant": Identity(tenant="globex", principal="alice", conversation_id="c1"),
}


@pytest.mark.parametrize("gone", ["expired", "given up", "deleted", *ELSEWHERE])
async def test_what_is_no_more_or_somebody_elses_never_runs_the_tool(gone: str) -> None:
    clock = Clock()
    store = MemoryArtifacts(max_count_per_scope=3, seams=clock.seams)
    scope = ELSEWHERE.get(gone, CHAT)
    ref = await kept(store, scope, expires_at=clock.now + 10 if gone == "expired" else None)
    if gone == "expired":
        clock.advance(11)
    elif gone == "deleted":
        await store.delete(CHAT, ref)
    live = [await kept(store, label=f"number {n}") for n in range(3)]
    through, work = door(store=store), Ran(**WANTING)
    result = await through(work.tool, {"data": ref}, identity=CHAT)
    refused(result, "wants-refused")
    assert work.calls == []
    # what could be passed instead, the newest first; and nothing of what it was
    told = [result.text.index(one) for one in reversed(live)]
    assert told == sorted(told)
    fact = through.events.of("artifacts.refused")
    assert (fact["op"], fact["reason"], fact["ref"]) == ("dispatch", "missing-or-expired", ref)
    assert through.events.kinds == ["tool_start", "artifacts.refused", "tool_end"]


class Unjudged(Tool):
    """A tool of a stranger's, whose schema no validator can be made of."""

    name = "work"  # type: ignore[assignment]
    description = "d"  # type: ignore[assignment]
    input_schema = {**WANTING["input_schema"], "minimum": "many"}  # type: ignore[assignment]  # noqa: RUF012
    wants = {"data": ROWS, "more": ROWS}  # type: ignore[assignment]  # noqa: RUF012

    def __init__(self) -> None:
        self.ran: list[Any] = []

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        self.ran.append(args)
        return ToolResult(b'{"content":[]}', "")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"data": [{"a": 1}]}, '"data" was an array'),
        ({"data": None}, '"data" was null'),
        ({"data": 7}, '"data" was a number'),
        ({}, '"data" is required and was left out'),
    ],
)
async def test_where_no_schema_judges_the_door_still_does(args: Any, says: str) -> None:
    store, tool = MemoryArtifacts(), Unjudged()
    live = await kept(store)
    through = door(store=store)
    # nothing else of it is judged: what the schema would refuse is let through
    assert (await through(tool, {"data": live, "more": live, "other": 1}, identity=CHAT)).code == "ok"
    tool.ran.clear()
    result = await through(tool, args, identity=CHAT)
    refused(result, "wants-refused")
    assert says in result.text
    assert live in result.text
    assert tool.ran == []


async def test_what_is_optional_and_left_out_is_no_entry_at_the_door() -> None:
    store = MemoryArtifacts()
    through, work = door(store=store), Ran(**WANTING)
    assert (await through(work.tool, {"data": await kept(store)}, identity=CHAT)).code == "ok"
    assert work.args == {"data": "rows"}
    assert work.ctx.wanted is not None
    assert set(work.ctx.wanted) == {"data"}
    none = Ran(**{**WANTING, "input_schema": {**WANTING["input_schema"], "required": []}})
    args: dict[str, Any] = {}
    assert (await through(none.tool, args, identity=CHAT)).code == "ok"
    assert none.args is args
    assert none.ctx.wanted is None


@pytest.mark.parametrize("attached", [True, False])
async def test_a_tool_that_wants_nothing_gets_the_very_arguments_and_no_artifact_is_told(
    attached: bool,
) -> None:
    through, work = door(store=MemoryArtifacts() if attached else None), Ran()
    args = {"data": "art_" + "x" * 22}
    assert (await through(work.tool, args, identity=CHAT)).code == "ok"
    assert work.args is args
    assert work.ctx.wanted is None
    assert through.events.kinds == ["tool_start", "tool_end"]


# ---------------------------------------------------------------------------- what a tool itself reads


@pytest.mark.parametrize("whose", ELSEWHERE)
async def test_a_tool_of_another_scope_reads_nothing_of_it_and_that_is_on_the_record(whose: str) -> None:
    store = MemoryArtifacts()
    found: list[Any] = []

    async def mint(args: Any, ctx: ToolContext) -> str:
        meta = await ctx.artifacts.put(NewArtifact(kind=ROWS, media_type="text/plain", data="mine"))
        return str(meta.ref)

    async def read(args: Any, ctx: ToolContext) -> str:
        found.append(await ctx.artifacts.get(args["ref"]))
        await ctx.artifacts.delete(args["ref"])
        return "read"

    through = door(store=store)
    ref = (await through(define_tool(execute=mint, name="mint"), identity=CHAT)).text
    through.events.clear()
    reader = define_tool(execute=read, name="read", input_schema={"type": "object"})
    assert (await through(reader, {"ref": ref}, identity=ELSEWHERE[whose])).code == "ok"
    assert found == [None]
    fact = through.events.of("artifacts.refused")
    assert (fact["op"], fact["reason"], fact["ref"], fact["tool"]) == (
        "get", "missing-or-expired", ref, "read",
    )  # fmt: skip
    assert (await through(reader, {"ref": ref}, identity=CHAT)).code == "ok"
    assert found[1].data == "mine"


# ---------------------------------------------------------------------------- what it stands on


def test_judging_and_redeeming_know_no_door() -> None:
    folder = Path(afpool.tools.__file__).parent
    doors = {"_dispatch", "_execute", "_hooks", "_record", "_limits", "_asked_credentials", "_formats"}
    seen: set[str] = set()

    def walk(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module is not None:
                walk(node.module)
            elif isinstance(node, ast.ImportFrom) and node.level == 2:
                assert not str(node.module).startswith("runtime")

    for start in ("_wants", "_live_refs", "_wants_words"):
        walk(start)
    assert not seen & doors, seen & doors
