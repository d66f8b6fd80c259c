"""Scenes of artifacts: from a ref back over the calls and the artifacts that it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.record._artifact_table import ArtifactTable
from afpool.tools import RedactionPolicy, define_tool, redacted
from tests.runtime.runtime_kit import ALICE, runtime

if TYPE_CHECKING:
    from afpool import ToolContext
    from tests.explain.play import Play

SECRET = "s3cret-value"


async def fetch(args: Any, ctx: ToolContext) -> Any:
    assert ctx.artifacts is not None
    meta = await ctx.artifacts.put(NewArtifact(kind="rows", media_type="a/b", data=[1, 2, 3], label="raw"))
    return meta.ref


async def total(args: Any, ctx: ToolContext) -> Any:
    assert ctx.artifacts is not None
    assert ctx.wanted is not None
    parents = [ctx.wanted["rows"].ref]
    meta = await ctx.artifacts.put(
        NewArtifact(kind="sum", media_type="a/b", data=sum(args["rows"]), parent_refs=parents)
    )
    return meta.ref


async def play(play: Play) -> None:
    play.title("Where an artifact comes from")
    schema = {"type": "object", "properties": {"rows": {"type": "string"}}, "required": ["rows"]}
    tools = [
        redacted(
            define_tool(execute=fetch, name="fetch", input_schema={"type": "object"}),
            RedactionPolicy(keys=["password"]),
        ),
        define_tool(execute=total, name="total", input_schema=schema, wants={"rows": "rows"}),
    ]
    async with MemoryArtifacts() as store, runtime(tools=tools, artifacts=store) as here:
        run, record = here.runtime.run(ALICE), here.runtime.record
        raw = await run.call("fetch", {"query": "q4", "password": SECRET}, call_id="c-fetch")
        ref = raw.text.strip('"')
        made = await run.call("total", {"rows": ref}, call_id="c-total")
        last = made.text.strip('"')
        explanation = await record.why(last)
        play.show(f"the sum of rows that another call had fetched: `why {last}`", explanation)
        told = explanation.words()
        for part in (
            f"`{last}` was put by call `c-total` of `total`, in run", f"made from `{ref}`",
            "it goes back over 1 artifact", "was put by call `c-fetch` of `fetch`", '"query": "q4"',
        ):  # fmt: skip
            play.check(f"{part!r} is told", holds=part in " ".join(told.split()))
        play.check(
            "what is hidden of the arguments is not told", holds=SECRET not in str(explanation.as_json())
        )
        play.check("nobody is named", holds="alice" not in told and "acme" not in told)
        record.minted = ArtifactTable(kept=1)
        raw = await run.call("fetch", {}, call_id="c-fetch again")
        ref = raw.text.strip('"')
        made = await run.call("total", {"rows": ref}, call_id="c-total again")
        play.show(
            "the store knows what the record forgot", explanation := await record.why(made.text.strip('"'))
        )
        play.check(
            "the parent's call is told from its ticket",
            holds=any(c.facts.get("call_id") == "c-fetch again" for c in explanation.clauses),
        )
        await store.delete(ALICE, ref)
        explanation = await record.why(made.text.strip('"'))
        play.show("the same, after the rows were deleted and forgotten", explanation)
        play.check(
            "a parent that nobody knows is said to be so",
            holds=any("neither the record nor the store knows it" in c.text for c in explanation.clauses),
        )
    await trio.lowlevel.checkpoint()
