"""The door: the order of its steps, a result for everything, and what is recorded of each way through."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

import hypothesis.strategies as st
import pytest
import trio
import trio.testing
from hypothesis import given

from afpool import (
    CredentialRequirement,
    Identity,
    NeedsAuthorization,
    Progress,
    ScriptedCredentials,
    StaleTools,
    StaticCredentials,
    Tool,
    ToolContext,
    ToolFailed,
    ToolResult,
    bearer,
)
from afpool.tools import RedactionPolicy, content_result, define_tool, derive, redacted
from afpool.tools._call import MAX_DEPTH
from afpool.tools._hooks import Hook
from afpool.tools._tool_event import MAX_REPORT
from tests.tools.door_kit import ALICE, SECRET, Ran, door, refused

SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["q"],
    "additionalProperties": False,
}


async def test_a_call_that_runs() -> None:
    through, work = door(), Ran(lambda args, ctx: {"got": args}, input_schema=SCHEMA)
    args = {"q": "x"}
    result = await through(work.tool, args, run_id="run-1", call_id="c-1", chain=(1, 2))
    assert work.args is args
    assert (result.code, result.delivery, result.is_error, result.call_id) == ("ok", "answered", False, "c-1")
    assert result.structured == {"got": args}
    ctx = work.ctx
    assert (ctx.identity, ctx.call_id, ctx.run_id, ctx.chain) == (ALICE, "c-1", "run-1", (1, 2))
    assert (ctx.credential, ctx.credentials, ctx.wanted, ctx.tools) == (None,) * 4
    assert not ctx.artifacts.configured
    assert ctx.deadline is not None
    start, end = through.events
    assert (start.kind, start.payload) == (
        "tool_start",
        {"tool_name": "work", "call_id": "c-1", "args": args},
    )
    duration = end.payload["duration_ms"]
    assert end.payload == {"call_id": "c-1", "result": result.document, "duration_ms": duration}
    assert duration >= 0
    assert (end.code, end.delivery) == ("ok", "answered")
    for event in through.events:
        assert (event.call_id, event.run_id, event.identity) == ("c-1", "run-1", ALICE)


async def test_an_id_is_made_up_and_nobody_is_named() -> None:
    through, work = door(), Ran()
    first = await through(work.tool, identity=None)
    second = await through(work.tool, identity=None)
    assert first.call_id != second.call_id
    assert {event.identity for event in through.events} == {None}
    assert work.calls[0][1].identity is None


async def test_a_caller_that_is_asked_again() -> None:
    through, work = door(), Ran()

    def caller() -> Identity:
        return ALICE

    def broken() -> Identity:
        raise ValueError("no")

    await through(work.tool, identity=caller)
    assert through.events[0].identity is ALICE
    assert callable(work.ctx.identity)
    assert work.ctx.identity() is ALICE, "one that is asked again, and has to be who he was"
    await through(work.tool, identity=lambda: None)
    assert work.calls[1][0] == {}
    for unnamed in (broken, lambda: "alice"):
        refused(await through(work.tool, identity=unnamed), "identity-missing")
    assert len(work.calls) == 2, "whoever cannot be asked is not nobody: nothing runs for him"
    assert [event.identity for event in through.events[2:]] == [None] * 6


async def test_an_unknown_tool_is_refused_with_what_there_is() -> None:
    through = door()
    names = ["read_file", *(f"tool-{n}" for n in range(60))]
    result = await through(None, {"token": SECRET}, name="red_file", names=lambda: names)
    refused(result, "unknown-tool")
    assert result.text.startswith("There is no tool 'red_file'; nothing ran. There are: read_file, tool-0")
    assert result.text.endswith("and 11 more")
    # what it would have hidden nobody knows any more
    assert through.events.of("tool_start")["args"] == {"token": "REDACTED"}
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms", "error"}
    assert SECRET not in through.events.text
    few = await through(None, name="red", names=lambda: ["a", "b"])
    assert few.text == "There is no tool 'red'; nothing ran. There are: a, b"
    nothing = await through(None, 3, name="x" * 10_000)
    assert nothing.text.endswith("and no other one; nothing ran")
    assert len(nothing.text) < 300


# ---------------------------------------------------------------------------- arguments

NOT_OBJECTS = [
    ([1, 2], "an array of 2"), ("text", "a string of 4 characters"), (3, "a number"), (True, "a boolean"),
    (object(), "a object"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "shape"), NOT_OBJECTS)
async def test_arguments_that_are_no_object(args: Any, shape: str) -> None:
    through, work = door(), Ran()
    result = await through(work.tool, args)
    refused(result, "invalid-arguments")
    assert result.text == f"The arguments of work are a JSON object, not {shape}; the tool was not run"
    assert not work.calls
    assert through.events.of("tool_start")["args"] == {}


async def test_no_arguments_are_an_empty_object() -> None:
    through, work = door(), Ran()
    await through(work.tool, None)
    assert work.args == {}
    assert through.events.of("tool_start")["args"] == {}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"a": float("nan")}, r"not JSON at \$\.a: a float that is not finite"),
        ({"a": ["\ud800"]}, r"\$\.a\[0\]: a string with a lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        ({"a": object()}, r"\$\.a: object"),
        ({1: 2}, "a key of type int"),
        (nested(100_000), "nested too deeply"),
    ],
    ids=["NaN", "surrogate", "key", "object", "int key", "deep"],
)
async def test_arguments_that_are_not_json(args: Any, says: str) -> None:
    through, work = door(), Ran()
    result = await through(work.tool, args)
    error = refused(result, "invalid-arguments")
    with pytest.raises(type(error), match=says):
        raise error
    assert not work.calls
    json.dumps(through.events.of("tool_start"))


async def test_arguments_are_judged_by_the_schema_that_the_model_saw() -> None:
    through, work = door(), Ran(input_schema=SCHEMA)
    result = await through(work.tool, {"q": 1, "x": 2})
    refused(result, "invalid-arguments")
    assert not work.calls
    assert through.events.kinds == ["tool_start", "args_invalid", "tool_end"]
    assert through.events.of("args_invalid") == {
        "tool_name": "work",
        "issues": [line.removeprefix("- ") for line in result.text.splitlines()[1:-1]],
    }
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms", "error"}
    narrowed = derive(work.tool, input_schema={"properties": {"q": {"const": "y"}}})
    refused(await through(narrowed, {"q": "x"}), "invalid-arguments")
    assert (await through(narrowed, {"q": "y"})).code == "ok"


@pytest.mark.parametrize(
    "args", [{f"k{n}": n for n in range(10_000)}, {"q": "x" * 1_000_000}, {"q": nested(200)}]
)
async def test_large_and_deep_arguments_are_judged_like_others(args: Any) -> None:
    through, work = door(), Ran(input_schema=SCHEMA)
    result = await through(work.tool, args)
    assert result.code == ("ok" if args.get("q", 0) == "x" * 1_000_000 else "invalid-arguments")
    assert len(result.text) < 2_000


async def test_a_tool_that_changes_its_arguments_does_not_change_the_record() -> None:
    through = door()

    def spoil(args: Any, ctx: ToolContext) -> str:
        args["list"].append(SECRET)
        args["more"] = SECRET
        return "x"

    await through(Ran(spoil).tool, {"list": [1]})
    assert through.events.of("tool_start")["args"] == {"list": [1]}
    assert "changed_arg_keys" not in through.events.of("tool_end")
    through.events.of("tool_start")["args"]["list"].append(2)
    assert through.events.of("tool_start")["args"] == {"list": [1]}


# ---------------------------------------------------------------------------- what is shown


async def test_hidden_arguments_are_in_no_event_and_no_refusal() -> None:
    through, work = door(), Ran(input_schema={"properties": {"token": {"maxLength": 3}, "n": {"minimum": 5}}})
    tool = redacted(work.tool, RedactionPolicy(keys=["token"]))
    result = await through(tool, {"token": SECRET, "n": 1})
    refused(result, "invalid-arguments")
    assert "token: expected at most 3 characters" in result.text
    assert SECRET not in result.text
    assert SECRET not in through.events.text
    open_to_all = Ran()
    await through(redacted(open_to_all.tool, RedactionPolicy(keys=["token"])), {"token": SECRET, "n": 1})
    assert open_to_all.args == {"token": SECRET, "n": 1}
    assert SECRET not in through.events.text
    assert through.events[-1].payload["changed_arg_keys"] == ["token"]


async def test_a_call_that_was_not_run_names_no_changed_keys() -> None:
    through, work = door(), Ran(needs=NEEDS)
    result = await through(redacted(work.tool, RedactionPolicy(keys=["token"])), {"token": SECRET})
    refused(result, "credential-failed")
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms", "error"}


async def test_a_view_that_raises_hides_everything() -> None:
    from afpool.tools import with_argument_view

    def broken(args: Any) -> Any:
        raise ValueError(SECRET)

    through, work = door(), Ran()
    await through(with_argument_view(work.tool, broken), {"a": SECRET, "b": 1})
    assert through.events.of("tool_start")["args"] == {"a": "REDACTED", "b": "REDACTED"}
    assert through.events.of("tool_end")["changed_arg_keys"] == ["a", "b"]
    assert SECRET not in through.events.text


# ---------------------------------------------------------------------------- what a tool does

FAILURES = [
    (ValueError("bad thing"), "The tool work failed (ValueError): bad thing"),
    (KeyError(), "The tool work failed (KeyError)"),
    (RuntimeError("x" * 100_000), "The tool work failed (RuntimeError): " + "x" * 8_192),
    (
        ExceptionGroup("several", [ValueError("a")]),
        "The tool work failed (ExceptionGroup): several (1 sub-exception)",
    ),
    (
        StaleTools("of an inner call"),
        "The tool work failed (StaleTools): stale-tools (not-sent): of an inner call",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("error", "text"), FAILURES, ids=lambda value: type(value).__name__)
async def test_a_tool_that_raises_is_a_result(error: Exception, text: str) -> None:
    through, work = door(), Ran(error)
    result = await through(work.tool)
    assert refused(result, "tool-failed", "answered").__cause__ is error
    assert result.text == text
    end = through.events.of("tool_end")
    assert set(end) == {"call_id", "result", "duration_ms", "error"}
    assert end["error"] is True


@pytest.mark.parametrize("made", [lambda tool: tool, lambda tool: derive(tool, name="other")])
@pytest.mark.parametrize("error", [StaleTools("of a call inside"), ToolFailed("inside", delivery="not-sent")])
async def test_a_tool_of_the_hosts_own_class_has_run_whatever_it_raises(error: Any, made: Any) -> None:
    class Own(Tool):
        name = "own"  # type: ignore[assignment]
        description = "d"  # type: ignore[assignment]
        input_schema = {}  # type: ignore[assignment]  # noqa: RUF012

        async def execute(self, args: Any, ctx: ToolContext) -> Any:
            raise error

    async def again(tool: Any) -> Any:
        raise AssertionError("what has begun is not repeated")

    result = await door()(made(Own()), again=again)
    assert refused(result, "tool-failed", "answered").__cause__ is error


async def test_a_tool_that_returns_what_is_no_json_or_no_result() -> None:
    through = door()
    result = await through(Ran(lambda args, ctx: object()).tool)
    refused(result, "tool-failed", "answered")

    class Odd(Tool):
        name = "odd"  # type: ignore[assignment]
        description = "d"  # type: ignore[assignment]
        input_schema = {}  # type: ignore[assignment]  # noqa: RUF012

        answer: Any = object()

        async def execute(self, args: Any, ctx: ToolContext) -> Any:
            return self.answer

    odd = Odd()
    refused(await through(odd), "tool-failed", "answered")
    odd.answer = {"a": 1}
    assert (await through(odd)).structured == {"a": 1}
    odd.answer = ToolResult(b'{"content":[]}', "other")
    result = await through(odd, call_id="own")
    assert (result.code, result.call_id) == ("ok", "own")


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (b'{"content":[{"type":"text","text":"no"}],"isError":true}', "tool-error", "no"),
        (b'{"toolResult":{"a":1}}', "ok", '{"a":1}'),
        (b'{"toolResult":"bad","isError":true}', "tool-error", "bad"),
        (b'{"structuredContent":{"a":1},"content":[]}', "ok", ""),
        (b'{"secret":"value"}', "protocol-error", None),
        (b"[1]", "protocol-error", None),
        (b'{"content":[],"x":NaN}', "protocol-error", None),
        (b"not json", "protocol-error", None),
    ],
)
async def test_results_of_every_form(raw: bytes, code: str, text: str | None) -> None:
    through = door()
    result = await through(Ran(lambda args, ctx: ToolResult(raw, "")).tool)
    assert (result.code, result.delivery) == (code, "answered")
    if text is not None:
        assert result.text == text
    assert "value" not in result.text
    assert result.is_error == (code != "ok")
    assert through.events.of("tool_end").get("error", False) == result.is_error


async def test_structured_results_are_held_to_their_schema() -> None:
    through = door()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    good = Ran({"n": 1}, output_schema=schema)
    assert (await through(good.tool)).structured == {"n": 1}
    wrong = await through(Ran({"n": SECRET}, output_schema=schema).tool)
    error = refused(wrong, "invalid-output", "answered")
    assert SECRET not in wrong.text
    assert error.result.structured == {"n": SECRET}  # type: ignore[attr-defined]
    refused(await through(Ran("text", output_schema=schema).tool), "invalid-output", "answered")
    failed = Ran(content_result([{"type": "text", "text": "no"}], is_error=True), output_schema=schema)
    assert (await through(failed.tool)).code == "tool-error"


async def test_progress_stands_between_start_and_end_and_never_fails_a_tool() -> None:
    told: list[Any] = []

    def on_progress(report: Progress) -> None:
        told.append(report)
        raise ValueError

    kept: list[Any] = []

    def report(args: Any, ctx: ToolContext) -> str:
        kept.append(ctx.progress)
        assert ctx.progress is not None
        for one in (Progress(1, 2, "half"), Progress(2.0), {"any": ["json"]}, object()):
            ctx.progress(one)
        return "x"

    through = door()
    await through(Ran(report).tool, on_progress=on_progress)
    kept[0](Progress(3))  # too late
    assert told == [Progress(1, 2, "half"), Progress(2.0)]
    assert through.events.kinds == ["tool_start", *["tool_progress"] * 4, "tool_end"]
    assert [event.payload["payload"] for event in through.events[1:5]] == [
        {"progress": 1, "total": 2, "message": "half"}, {"progress": 2.0}, {"any": ["json"]},
        "[not JSON: object]",
    ]  # fmt: skip


def numbers(through: Any) -> list[int]:
    return [event.payload["number"] for event in through.events if event.kind == "tool_progress"]


@pytest.mark.parametrize(
    ("reports", "recorded"),
    [
        (1, [1]),
        (33, [*range(1, 34)]),
        (64, [*range(1, 33), 64]),
        (1000, [*range(1, 33), 64, 128, 256, 512, 1000]),
    ],
)
@pytest.mark.parametrize("how", ["answers", "raises", "is cancelled"])
async def test_however_often_a_tool_reports_its_record_stays_short(
    reports: int, recorded: list[int], how: str
) -> None:
    told: list[Progress] = []

    async def work(args: Any, ctx: ToolContext) -> str:
        assert ctx.progress is not None
        for at in range(1, reports + 1):
            ctx.progress(Progress(at, reports))
        if how == "is cancelled":
            scope.cancel()
        await trio.lowlevel.checkpoint()
        if how == "raises":
            raise ValueError
        return "x"

    through = door()
    with trio.CancelScope() as scope:
        await through(define_tool(execute=work, name="work"), on_progress=told.append)
    assert len(told) == reports
    assert numbers(through) == recorded
    assert through.events.kinds[-2:] == ["tool_progress", "tool_end"]
    assert through.events[-2].payload["payload"] == {"progress": reports, "total": reports}


async def test_a_report_that_is_long_is_cut_and_one_that_is_no_message_is_described() -> None:
    def report(args: Any, ctx: ToolContext) -> str:
        assert ctx.progress is not None
        ctx.progress(Progress(1, None, "\x01" * 1_000_000))
        ctx.progress({"rows": ["x" * 1_000_000]})
        return "x"

    through = door()
    await through(Ran(report).tool)
    long, other = (event.payload["payload"] for event in through.events[1:3])
    assert long == {"progress": 1, "message": "\x01" * MAX_REPORT + "…"}
    assert other == "[1000013 bytes of JSON]"


async def test_a_report_that_is_changed_later_stays_what_it_was() -> None:
    def work(args: Any, ctx: ToolContext) -> str:
        assert ctx.progress is not None
        rows: list[int] = []
        for at in range(34):
            rows.append(at)
            ctx.progress(rows)
        rows.clear()
        return "x"

    through = door()
    await through(Ran(work).tool)
    assert through.events[-2].payload["payload"] == [*range(34)]


# ---------------------------------------------------------------------------- credentials


NEEDS = CredentialRequirement("crm", ("read",), "user")


async def test_a_credential_is_fetched_for_the_caller_and_given_to_the_tool() -> None:
    provider = ScriptedCredentials([bearer(SECRET)])
    through, work = door(credentials=provider), Ran(needs=NEEDS)
    who = Identity(tenant="acme", principal="alice", conversation_id="c")
    assert (await through(work.tool, identity=who)).code == "ok"
    (request,) = provider.requests
    assert (request.service, request.scopes, request.mode, request.reason) == (
        "crm",
        ("read",),
        "user",
        "call",
    )
    assert request.identity == Identity(tenant="acme", principal="alice")
    assert work.ctx.credential is not None
    assert work.ctx.credential.to_headers() == [("authorization", f"Bearer {SECRET}")]
    assert through.events.kinds == ["tool_start", "credential_requested", "credential_acquired", "tool_end"]
    assert through.events.of("credential_requested") == {"service": "crm", "mode": "user"}
    assert through.events.of("credential_acquired") == {"service": "crm", "kind": "bearer"}
    assert SECRET not in through.events.text


@pytest.mark.parametrize("answer", ["text", {"key": ["x", {"y": 1}]}, "raise", "is_error", "progress"])
async def test_a_credential_that_comes_back_goes_no_further(answer: Any) -> None:
    def echo(args: Any, ctx: ToolContext) -> Any:
        if answer == "raise":
            raise ValueError(f"the request with {SECRET} failed") from RuntimeError(SECRET)
        if answer == "is_error":
            return content_result([{"type": "text", "text": SECRET}], is_error=True)
        if answer == "progress":
            assert ctx.progress is not None
            ctx.progress(Progress(1, message=SECRET))
        return f"it is {SECRET}" if answer == "text" else {SECRET: [SECRET], "answer": answer}

    through = door(credentials=StaticCredentials({"crm": SECRET}))
    told: list[Progress] = []
    result = await through(Ran(echo, needs=NEEDS).tool, on_progress=told.append)
    assert SECRET not in result.raw.decode()
    assert "[host-filled]" in result.raw.decode()
    assert SECRET not in through.events.text
    assert SECRET not in repr(told)
    error: BaseException | None = result.error
    while error is not None:
        assert SECRET not in repr(error)
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


class Liar(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        (Liar(SECRET), "credential-failed", "(Liar)"),
        (
            NeedsAuthorization(f"https://idp/{SECRET}", "s-1"),
            "authorization-required",
            "authorization for 'crm'",
        ),
        ("nonsense", "credential-failed", "(str)"),
        (None, "credential-failed", "(NoneType)"),
    ],
)
async def test_a_credential_that_is_not_had_refuses(script: Any, code: str, says: str) -> None:
    class Provider:
        async def get(self, request: Any) -> Any:
            if isinstance(script, Exception):
                raise script
            return script

    asked: list[Any] = []
    through = door(credentials=Provider(), on_authorization=lambda *what: asked.append(what))
    work = Ran(needs=NEEDS)
    result = await through(work.tool)
    refused(result, code)
    assert says in result.text
    assert "not run" in result.text
    assert SECRET not in result.text
    assert SECRET not in through.events.text
    assert not work.calls
    assert set(through.events.of("tool_end")) == {"call_id", "result", "duration_ms", "error"}
    if code == "authorization-required":
        assert asked == [("crm", ALICE, script)]
        assert through.events.of("credential_authorization_required") == {
            "service": "crm",
            "session_id": "s-1",
        }
    else:
        assert not asked
        assert through.events.of("credential_failed")["service"] == "crm"


async def test_a_host_that_cannot_be_told_is_not_told() -> None:
    def broken(*what: Any) -> None:
        raise ValueError(SECRET)

    provider = ScriptedCredentials([NeedsAuthorization("https://idp", "s")])
    through = door(credentials=provider, on_authorization=broken)
    refused(await through(Ran(needs=NEEDS).tool), "authorization-required")


async def test_without_a_provider_what_needs_a_credential_is_refused() -> None:
    through, work = door(), Ran(needs=NEEDS)
    result = await through(work.tool)
    refused(result, "credential-failed")
    assert "give the runtime a credential provider" in result.text
    assert through.events.kinds == ["tool_start", "tool_end"]


async def test_no_credential_is_fetched_for_a_call_that_does_not_run() -> None:
    provider = ScriptedCredentials([])
    through = door(credentials=provider)
    work = Ran(input_schema=SCHEMA, needs=NEEDS)
    refused(await through(work.tool, {"q": 1}), "invalid-arguments")
    stored = Ran(input_schema=SCHEMA, wants={"q": "dataset/rows"}, needs=NEEDS)
    refused(await through(stored.tool, {"q": "art_x"}), "ERR_NO_ARTIFACT_STORE")
    assert not provider.requests


async def test_a_tool_may_ask_for_more_and_what_fails_is_recorded() -> None:
    through = door(credentials=StaticCredentials({"crm": "x"}))

    async def ask(args: Any, ctx: ToolContext) -> str:
        from afpool import CredentialRequest

        assert ctx.credentials is not None
        issued = await ctx.credentials.get(CredentialRequest("crm"))
        assert issued.credential.kind == "bearer"  # type: ignore[union-attr]
        with pytest.raises(LookupError):
            await ctx.credentials.get(CredentialRequest("other"))
        return "x"

    await through(define_tool(execute=ask, name="ask"))
    assert through.events.of("credential_failed") == {"service": "other", "error_class": "LookupError"}


# ---------------------------------------------------------------------------- time


async def test_a_tool_that_hangs_is_ended_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async def hang(args: Any, ctx: ToolContext) -> str:
        await trio.sleep_forever()
        return "never"

    through = door(deadline=30.0)
    began = trio.current_time()
    result = await through(define_tool(execute=hang, name="hang"), deadline=began + 5)
    error = refused(result, "deadline-exceeded", "in-doubt")
    assert "part of it may have been done" in error.message
    assert trio.current_time() == began + 5
    assert through.events.of("tool_end")["duration_ms"] == 5_000
    with trio.fail_after(60):
        await through(define_tool(execute=hang, name="hang"), deadline=None)
    assert trio.current_time() == began + 35


@pytest.mark.parametrize("late", [0.0, 1.0])
async def test_a_tool_does_not_begin_when_its_deadline_has_passed(late: float) -> None:
    through = door()
    begun: list[str] = []

    async def careless(args: Any, ctx: ToolContext) -> str:
        begun.append("before its first checkpoint")
        await trio.lowlevel.checkpoint()
        return "done"

    def at_once(args: Any, ctx: ToolContext) -> str:
        begun.append("at once")
        return "done"

    for execute in (careless, at_once):
        tool = define_tool(execute=execute, name="work")
        result = await through(tool, deadline=trio.current_time() - late)
        assert "nothing was done" in refused(result, "deadline-exceeded", "not-sent").message
    assert begun == []


async def test_a_provider_that_hangs_is_waited_for_until_the_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = ScriptedCredentials([bearer("x")], hold=trio.Event())
    through, work = door(credentials=provider, deadline=10.0), Ran(needs=NEEDS)
    result = await through(work.tool)
    assert "nothing was done" in refused(result, "deadline-exceeded", "not-sent").message
    assert not work.calls


async def test_a_hook_that_hangs_is_waited_for_until_the_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def hang(*what: Any) -> None:
        await trio.sleep_forever()

    through, work = door(hooks=[Hook("slow", before=hang)], deadline=10.0), Ran()
    refused(await through(work.tool), "deadline-exceeded")
    assert through.events.kinds == ["tool_start", "tool_end"]
    assert not work.calls
    through, work = door(hooks=[Hook("slow", after=hang)], deadline=10.0), Ran(SECRET)
    result = await through(work.tool)
    refused(result, "denied", "answered")
    assert SECRET not in result.text
    assert work.calls


async def test_a_cancelled_call_raises_and_its_end_is_recorded() -> None:
    through = door()
    running = trio.Event()

    async def hang(args: Any, ctx: ToolContext) -> str:
        running.set()
        await trio.sleep_forever()
        return "never"

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(through, define_tool(execute=hang, name="hang"))
            await running.wait()
            nursery.cancel_scope.cancel()
    assert through.events.kinds == ["tool_start", "tool_end"]
    end = through.events.of("tool_end")
    assert (end["status"], end["result"]) == ("cancelled", None)


async def test_a_call_that_was_cancelled_before_it_began_is_on_no_record() -> None:
    through, work = door(), Ran()
    with trio.CancelScope() as scope:
        scope.cancel()
        await through(work.tool)
    assert scope.cancelled_caught
    assert not through.events
    assert not work.calls


async def never_waits(args: Any, ctx: ToolContext) -> str:
    return "x"


async def test_every_way_through_passes_a_checkpoint_and_not_one_too_many() -> None:
    through = door()
    quick = define_tool(execute=never_waits, name="quick")
    for tool in (None, Ran().tool, Ran(input_schema=SCHEMA).tool, quick):
        with trio.testing.assert_checkpoints():
            await through(tool, {"q": 1})
    task = trio.lowlevel.current_task()
    for tool in (quick, Ran().tool):
        before = task._schedule_points
        await through(tool, {"q": 1})
        assert task._schedule_points == before + 1


# ---------------------------------------------------------------------------- sinks, depth


async def test_a_sink_that_raises_costs_the_event(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Any) -> None:
        raise ValueError(SECRET)

    with caplog.at_level(logging.WARNING, "afpool"):
        assert (await door(on_event=broken)(Ran().tool)).code == "ok"
    assert "on_event raised ValueError" in caplog.text
    assert SECRET not in caplog.text
    assert (await door(on_event=None)(Ran().tool)).code == "ok"


async def test_tools_that_call_one_another_end_somewhere() -> None:
    through, work = door(), Ran()
    assert (await through(work.tool, depth=MAX_DEPTH)).code == "ok"
    refused(await through(work.tool, depth=MAX_DEPTH + 1), "overloaded")
    assert len(work.calls) == 1


async def test_a_fault_of_the_doors_own_is_a_result_too(monkeypatch: pytest.MonkeyPatch) -> None:
    through, work = door(), Ran()
    monkeypatch.setattr(
        type(through.door.tools), "ask", lambda *what: (_ for _ in ()).throw(MemoryError(SECRET))
    )
    result = await through(work.tool)
    refused(result, "tool-failed", "not-sent")
    assert result.text == "The call of work failed before the tool was run (MemoryError); nothing ran"
    assert not work.calls


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, st.sampled_from(["plain", "raise", "hide"]))
def test_whatever_is_sent_there_is_a_result_and_one_start_and_one_end(args: Any, how: str) -> None:
    async def run() -> None:
        through, work = door(), Ran(ValueError("x") if how == "raise" else "done", input_schema=SCHEMA)
        tool = redacted(work.tool, RedactionPolicy(keys=["q"])) if how == "hide" else work.tool
        before = copy.deepcopy(args)
        result = await through(tool, args)
        assert result.delivery in ("not-sent", "answered")
        assert result.is_error == (result.code != "ok")
        json.loads(result.raw)
        assert through.events.kinds[0] == "tool_start"
        assert through.events.kinds[-1] == "tool_end"
        assert through.events.kinds.count("tool_start") == through.events.kinds.count("tool_end") == 1
        assert repr(args) == repr(before)
        assert bool(work.calls) == (result.delivery == "answered")

    trio.run(run)
