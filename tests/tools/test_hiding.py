"""What a call hides is taken out of its result once, whoever stands around the tool."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from afpool import CredentialRequest, Progress, ScriptedCredentials, ToolContext, ToolResult, bearer
from afpool.tools import define_tool, derive, from_credential, host_filled
from afpool.tools._scrub import Scrubber
from tests.tools.door_kit import ALICE, SECRET, door, refused

OTHER = "an0ther-t0ken-value"
SCHEMA = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}


async def echo(args: Any, ctx: ToolContext) -> Any:
    return {"token": args["token"], "other": OTHER}


def filled(execute: Any = echo, **fill: Any) -> Any:
    tool = define_tool(execute=execute, name="echo", input_schema=SCHEMA)
    return host_filled(tool, {"token": from_credential("crm", **fill)})


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every result that is looked through."""
    seen: list[Any] = []
    real = Scrubber.result

    async def result(self: Scrubber, what: Any) -> Any:
        seen.append(what)
        return await real(self, what)

    monkeypatch.setattr(Scrubber, "result", result)
    return seen


async def test_a_door_does_not_look_through_what_the_tool_has_left_clean(looked: list[Any]) -> None:
    result = await door(credentials=ScriptedCredentials([bearer(SECRET)]))(filled(), {})
    assert result.structured == {"token": "[host-filled]", "other": OTHER}
    assert len(looked) == 1


async def test_whoever_calls_the_tool_itself_gets_it_clean(looked: list[Any]) -> None:
    result = await filled().execute({}, ToolContext(call_id="c", credential=bearer(SECRET)))
    assert result.structured == {"token": "[host-filled]", "other": OTHER}
    assert len(looked) == 1


async def test_what_stands_between_sees_nothing_and_what_it_adds_is_taken_out(looked: list[Any]) -> None:
    seen: list[ToolResult] = []

    async def around(args: Any, ctx: ToolContext, base: Any) -> ToolResult:
        seen.append(await base(args, ctx))
        raw = seen[0].raw.replace(b"[host-filled]", SECRET.encode())
        return ToolResult(raw, ctx.call_id or "")

    through = door(credentials=ScriptedCredentials([bearer(SECRET)]))
    result = await through(derive(filled(), execute=around), {})
    assert SECRET not in seen[0].raw.decode()
    assert result.structured == {"token": "[host-filled]", "other": OTHER}
    assert SECRET not in through.events.text
    assert len(looked) == 2


async def test_whatever_class_a_tool_raises_its_failure_is_a_result() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        words: str

    async def fails(args: Any, ctx: ToolContext) -> Any:
        raise Frozen(f"with {args['token']}")

    result = await door(credentials=ScriptedCredentials([bearer(SECRET)]))(filled(fails), {})
    refused(result, "tool-failed", "answered")
    assert result.text == "The tool echo failed (Frozen): with [host-filled]"


async def test_a_result_that_is_changed_in_its_place_is_looked_through_again() -> None:
    async def around(args: Any, ctx: ToolContext, base: Any) -> ToolResult:
        result: ToolResult = await base(args, ctx)
        result.raw = result.raw.replace(b"[host-filled]", SECRET.encode())
        return result

    through = door(credentials=ScriptedCredentials([bearer(SECRET)]))
    result = await through(derive(filled(), execute=around), {})
    assert SECRET not in result.raw.decode() + through.events.text


async def test_what_is_fetched_after_the_tool_has_run_is_taken_out_of_its_result() -> None:
    async def around(args: Any, ctx: ToolContext, base: Any) -> ToolResult:
        result: ToolResult = await base(args, ctx)
        assert ctx.credentials is not None
        await ctx.credentials.get(CredentialRequest("mail", (), "user", ALICE))
        return result

    through = door(credentials=ScriptedCredentials([bearer(SECRET), bearer(OTHER)]))
    result = await through(derive(filled(), execute=around), {})
    assert result.structured == {"token": "[host-filled]", "other": "[host-filled]"}
    assert OTHER not in through.events.text


async def test_a_value_that_was_read_of_the_credential_is_hidden_at_the_door_as_well() -> None:
    """A tool may pass it on: to what it calls, in what it reports, to whoever stands around it."""

    async def reporting(args: Any, ctx: ToolContext) -> Any:
        assert ctx.progress is not None
        ctx.progress({"with": args["token"]})
        return "done"

    async def around(args: Any, ctx: ToolContext, base: Any) -> ToolResult:
        await base(args, ctx)
        return ToolResult(b'{"content":[{"type":"text","text":"%s"}]}' % SECRET[::-1].encode(), "c")

    tool = filled(reporting, read=lambda one: one.token[::-1])
    through = door(credentials=ScriptedCredentials([bearer(SECRET)]))
    result = await through(derive(tool, execute=around), {})
    assert result.text == "[host-filled]"
    assert through.events.of("tool_progress")["payload"] == {"with": "[host-filled]"}
    assert SECRET[::-1] not in through.events.text


async def test_reports_are_clean_for_whoever_stands_between() -> None:
    told: list[Any] = []

    async def reporting(args: Any, ctx: ToolContext) -> Any:
        assert ctx.on_progress is not None
        ctx.on_progress(Progress(1, None, args["token"]))
        return "done"

    async def around(args: Any, ctx: ToolContext, base: Any) -> Any:
        ctx.on_progress = told.append
        return await base(args, ctx)

    through = door(credentials=ScriptedCredentials([bearer(SECRET)]))
    await through(derive(filled(reporting), execute=around), {})
    assert told == [Progress(1, None, "[host-filled]")]
