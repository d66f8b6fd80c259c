"""What was fetched for a call is in nothing that is recorded of, or told by, the calls inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from afpool import ScriptedCredentials, bearer
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.tools import define_tool, from_credential, host_filled
from tests.runtime.runtime_kit import runtime
from tests.tools.door_kit import ALICE, SECRET

if TYPE_CHECKING:
    from afpool import ToolContext

EMPTY = {"type": "object", "additionalProperties": False, "properties": {}}


async def as_name(ctx: ToolContext, token: str) -> Any:
    return await ctx.tools.call(f"x-{token}", {})


async def as_key(ctx: ToolContext, token: str) -> Any:
    return await ctx.tools.call("free", {token: 1})


async def as_key_of_nothing(ctx: ToolContext, token: str) -> Any:
    return await ctx.tools.call("missing", {token: 1})


async def as_key_that_is_refused(ctx: ToolContext, token: str) -> Any:
    return await ctx.tools.call("strict", {token: 1})


async def as_kind_and_label(ctx: ToolContext, token: str) -> Any:
    new = NewArtifact(kind=f"k/{token}", media_type="text/plain", data="x", label=f"of {token}")
    await ctx.artifacts.put(new)
    return await ctx.tools.call("free", {})


async def as_a_ref(ctx: ToolContext, token: str) -> Any:
    assert await ctx.artifacts.get(token) is None
    return await ctx.tools.call("free", {})


@pytest.mark.parametrize(
    "way", [as_name, as_key, as_key_of_nothing, as_key_that_is_refused, as_kind_and_label, as_a_ref]
)
async def test_a_credential_stands_in_no_name_key_or_fact(way: Any) -> None:
    seen: list[Any] = []

    async def run(args: Any, ctx: ToolContext) -> Any:
        assert ctx.credential is not None
        seen.append(await way(ctx, ctx.credential.token))  # type: ignore[attr-defined]
        return seen[0].text

    own = [
        define_tool(execute=run, name="outer", needs="crm"),
        define_tool(execute=lambda args, ctx: "ok", name="free"),
        define_tool(execute=lambda args, ctx: "ok", name="strict", input_schema=EMPTY),
    ]
    vends = ScriptedCredentials(lambda request: bearer(SECRET))
    async with runtime(tools=own, credentials=vends, artifacts=MemoryArtifacts()) as here:
        result = await here.runtime.dispatch(ALICE, "outer", {})
        assert result.code == "ok"
        (inner,) = seen
        for told in (result.text, inner.text, repr(inner.error), here.events.text):
            assert SECRET not in told
        assert [event.kind for event in here.events].count("tool_end") == 2
        assert (inner.code, inner.delivery) in {
            ("ok", "answered"), ("unknown-tool", "not-sent"), ("invalid-arguments", "not-sent"),
        }  # fmt: skip


async def test_what_a_fill_reads_of_a_credential_is_hidden_from_inner_calls_as_well() -> None:
    async def run(args: Any, ctx: ToolContext) -> Any:
        return (await ctx.tools.call("free", {"v": args["key"]})).text

    schema = {"type": "object", "properties": {"key": {"type": "string"}}}
    outer = host_filled(
        define_tool(execute=run, name="outer", input_schema=schema),
        {"key": from_credential("crm", read=lambda credential: credential.token[::-1])},  # type: ignore[attr-defined]
    )
    free = define_tool(execute=lambda args, ctx: f"got {args['v']}", name="free")
    vends = ScriptedCredentials(lambda request: bearer(SECRET))
    async with runtime(tools=[outer, free], credentials=vends) as here:
        result = await here.runtime.dispatch(ALICE, "outer", {})
        assert result.text == "got [host-filled]"
        assert SECRET[::-1] not in here.events.text
        assert here.events[3].payload["args"] == {"v": "[host-filled]"}
