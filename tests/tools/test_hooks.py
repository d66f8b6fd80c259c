"""Hooks at the door: their order, what each may do, and what is recorded when one acted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import Identity
from afpool.tools import Deny, Hook, Replace, ResultCeiling, ResultLimits
from tests.tools.door_kit import ALICE, SECRET, Ran, door, refused

if TYPE_CHECKING:
    from afpool import ToolResult

PLAIN = {"call_id", "result", "duration_ms"}
BOB = Identity(tenant="acme", principal="bob")


async def test_hooks_are_an_onion() -> None:
    said: list[str] = []

    def hook(name: str) -> Hook:
        async def before(call: Any) -> None:
            await trio.lowlevel.checkpoint()
            said.append(f"before {name}")

        def after(call: Any, result: ToolResult) -> None:
            said.append(f"after {name} {result.text}")

        return Hook(name, before, after)

    through = door(hooks=[hook("a"), Hook("nothing"), hook("b")])
    work = Ran(lambda args, ctx: said.append("ran") or "x")
    await through(work.tool)
    assert said == ["before a", "before b", "ran", "after b x", "after a x"]
    assert set(through.events.of("tool_end")) == PLAIN


async def test_what_a_hook_is_told() -> None:
    told: list[Any] = []
    through, work = door(hooks=[Hook("h", before=told.append)]), Ran()
    await through(work.tool, {"a": 1}, run_id="r", call_id="c")
    (call,) = told
    assert (call.tool, call.identity, call.call_id, call.run_id) == (work.tool, ALICE, "c", "r")
    assert call.args == {"a": 1}
    with pytest.raises(TypeError):
        call.args["a"] = 2
    assert "'a'" not in repr(call)


@pytest.mark.parametrize("then", [BOB, None], ids=["another", "nobody"])
async def test_a_caller_who_changes_while_hooks_decide_gets_nothing_run(then: Identity | None) -> None:
    callers: list[Identity | None] = [ALICE]

    async def before(call: Any) -> None:
        await trio.lowlevel.checkpoint()
        callers.append(then)

    through, work = door(hooks=[Hook("h", before=before)]), Ran()
    refused(await through(work.tool, identity=lambda: callers[-1]), "identity-mismatch")
    assert not work.calls
    assert (await through(work.tool)).code == "ok", "one who is named stays"


async def test_arguments_are_read_only_after_the_call_as_well() -> None:
    def after(call: Any, result: Any) -> None:
        call.args["b"] = 2

    through, work = door(hooks=[Hook("h", after=after)]), Ran()
    given = {"a": 1}
    result = await through(work.tool, given)
    refused(result, "denied", "answered")
    assert "raised TypeError" in result.text
    assert given == work.args == {"a": 1}


async def test_a_hook_replaces_arguments_and_only_names_are_recorded() -> None:
    kept = {"same": "object"}

    def before(call: Any) -> Replace:
        return Replace({**call.args, "new": SECRET, "changed": SECRET})

    schema = {"properties": {"changed": {"type": "string"}}}
    through, work = door(hooks=[Hook("h", before=before)]), Ran(input_schema=schema)
    given = {"changed": 1, "kept": kept}
    await through(work.tool, given)
    assert work.args == {"changed": SECRET, "kept": kept, "new": SECRET}
    assert given == {"changed": 1, "kept": kept}
    assert through.events.of("tool_start")["args"] == {"changed": 1, "kept": kept}
    end = through.events.of("tool_end")
    assert set(end) == {*PLAIN, "changed_arg_keys"}
    assert end["changed_arg_keys"] == ["changed", "new"]
    assert SECRET not in through.events.text


async def test_the_next_hook_and_the_schema_see_what_was_replaced() -> None:
    seen: list[Any] = []
    hooks = [
        Hook("a", before=lambda call: Replace({"n": 1})),
        Hook("b", before=lambda call: seen.append(dict(call.args))),
        Hook("c", before=lambda call: Replace({"n": "x"})),
    ]
    through, work = door(hooks=hooks), Ran(input_schema={"properties": {"n": {"type": "integer"}}})
    result = await through(work.tool, {"n": 0})
    assert seen == [{"n": 1}]
    refused(result, "invalid-arguments")
    # a call that did not run names no changed keys
    assert set(through.events.of("tool_end")) == {*PLAIN, "error"}


async def test_a_hook_denies_before_anything_runs() -> None:
    after: list[Any] = []
    hooks = [
        Hook("a", before=lambda call: Replace({"x": SECRET}), after=lambda *what: after.append(what)),
        Hook("b", before=lambda call: Deny("not on a Sunday")),
        Hook("c", before=lambda call: pytest.fail("asked after a denial")),
    ]
    through, work = door(hooks=hooks), Ran()
    result = await through(work.tool, {"x": 1})
    refused(result, "denied")
    assert result.text == "not on a Sunday (the tool was not run)"
    assert not work.calls
    assert not after
    assert through.events.kinds == ["tool_start", "tool_end"]
    assert through.events.of("tool_start")["args"] == {"x": 1}
    end = through.events.of("tool_end")
    assert set(end) == {*PLAIN, "not_executed"}
    assert end["not_executed"] is True
    assert through.events[-1].code == "denied"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ValueError(SECRET), "the hook bad raised ValueError, which denies the call"),
        (True, "the hook bad answered with bool"),
        ("deny", "the hook bad answered with str"),
        (Replace(object()), "the hook bad replaced the"),
    ],
)
async def test_a_hook_that_malfunctions_denies_and_is_named(
    moment: str, answer: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(*what: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    through, work = door(hooks=[Hook("bad", **{moment: bad})]), Ran()
    with caplog.at_level(logging.WARNING, "afpool"):
        result = await through(work.tool)
    refused(result, "denied", "not-sent" if moment == "before" else "answered")
    assert says in result.text
    assert SECRET not in result.text + caplog.text + through.events.text
    assert bool(work.calls) == (moment == "after")
    end = through.events.of("tool_end")
    assert set(end) == {*PLAIN, "not_executed" if moment == "before" else "model_result"}


@pytest.mark.parametrize("later", [{"n": 1}, None], ids=["replaces", "passes"])
async def test_arguments_that_are_not_json_are_their_hooks_own_fault(later: Any) -> None:
    asked: list[str] = []

    def careless(call: Any) -> Replace:
        asked.append("careless")
        return Replace({**call.args, "n": {1, 2}})

    def thorough(call: Any) -> Any:
        asked.append("thorough")
        return None if later is None else Replace({**call.args, **later})

    through, work = door(hooks=[Hook("careless", before=careless), Hook("thorough", before=thorough)]), Ran()
    result = await through(work.tool, {"a": 1})
    refused(result, "denied")
    assert result.text == (
        "the hook careless replaced the arguments by what is not JSON at $.n (set), "
        "which denies the call (the tool was not run)"
    )
    assert asked == ["careless"]
    assert not work.calls


async def test_a_hook_that_spoils_what_another_one_gave_is_named() -> None:
    def spoils(call: Any) -> None:
        call.args["list"].append({1, 2})

    hooks = [Hook("first", before=lambda call: Replace({"list": [1]})), Hook("second", before=spoils)]
    through, work = door(hooks=hooks), Ran()
    result = await through(work.tool, {})
    refused(result, "denied")
    assert "the hook second replaced the arguments by what is not JSON at $.list[1] (set)" in result.text
    assert not work.calls


async def test_no_hook_is_asked_about_what_is_not_json() -> None:
    hook = Hook("h", before=lambda call: pytest.fail("asked about what is not JSON"))
    through, work = door(hooks=[hook]), Ran()
    result = await through(work.tool, {"n": {1, 2}})
    refused(result, "invalid-arguments")
    assert "are not JSON at" in result.text
    assert through.events.kinds == ["tool_start", "tool_end"]
    assert not work.calls


async def test_a_hook_replaces_a_result_and_the_record_keeps_the_tools_own() -> None:
    through = door(hooks=[Hook("h", after=lambda call, result: Replace({"shown": result.text[:3]}))])
    result = await through(Ran("long text").tool, call_id="c")
    assert (result.structured, result.call_id, result.code) == ({"shown": "lon"}, "c", "ok")
    end = through.events.of("tool_end")
    assert set(end) == {*PLAIN, "model_result"}
    assert end["result"]["content"][0]["text"] == "long text"
    assert end["model_result"] == result.document


async def test_a_denial_after_the_fact_withholds_the_result() -> None:
    through = door(hooks=[Hook("h", after=lambda call, result: Deny("contains what you may not see"))])
    result = await through(Ran(SECRET).tool)
    refused(result, "denied", "answered")
    assert result.text == "contains what you may not see (the tool has run; its result is withheld)"
    end = through.events.of("tool_end")
    assert set(end) == {*PLAIN, "model_result"}
    assert end["result"]["content"][0]["text"] == SECRET
    assert through.events[-1].code == "denied"


async def test_after_hooks_see_only_what_has_run() -> None:
    seen: list[Any] = []
    through = door(hooks=[Hook("h", after=lambda call, result: seen.append(result.code))])
    await through(Ran(input_schema={"required": ["x"]}).tool)
    await through(Ran(ValueError("x")).tool)
    await through(None)
    assert seen == []
    await through(Ran("x").tool)
    assert seen == ["ok"]


async def test_a_replaced_result_is_held_to_the_limits_and_so_is_the_tools_own() -> None:
    hook = Hook("h", after=lambda call, result: Replace("y" * 2_000))
    through = door(hooks=[hook], limits=ResultLimits(max_chars=500))
    result = await through(Ran("x" * 5_000).tool)
    end = through.events.of("tool_end")
    assert '"truncated": true' in result.text
    assert "2000 characters" in result.text
    assert "5000 characters" in end["result"]["content"][0]["text"]
    assert len(through.events.text) < 3_000
    through = door(hooks=[Hook("h", after=lambda call, result: Replace("short"))])
    result = await through(Ran("x" * 5_000, result_ceiling=ResultCeiling(100)).tool)
    assert result.text == "short"
    assert "larger than the 100" in through.events.of("tool_end")["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": 3}, {"name": "h", "before": 3}, {"name": "h", "after": "x"}]
)
def test_a_hook_is_a_name_and_functions(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="hook"):
        Hook(**wrong)


def test_a_denial_has_a_reason() -> None:
    with pytest.raises(TypeError):
        Deny(None)  # type: ignore[arg-type]
    assert SECRET not in repr(Replace(SECRET))
