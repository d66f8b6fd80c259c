"""Hooks and tools that misbehave, through the whole door: a denial by name, a failure, a result; no raise."""

from __future__ import annotations

import itertools
import logging
import tracemalloc
from typing import Any

import pytest
import trio

from afpool import Issued, ToolContext, ToolResult, bearer
from afpool.tools import Deny, Hook, Replace, ResultLimits, define_tool
from tests.runtime.bad_input_kit import spotless
from tests.runtime.odd_things import Provider, Unreadable, Unspoken, called, deep, numbers, ring
from tests.runtime.runtime_kit import ALICE, runtime
from tests.tools.door_kit import SECRET, Ran

BROKEN = b'{"content":[{"type":"text","text":"\xff"}]}'
WORDS: Any = '{"content":[]}'  # of the wrong type

# ---------------------------------------------------------------------------- hooks


def raising(error: Exception) -> Any:
    def ask(*what: Any) -> Any:
        raise error

    return ask


def replacing(value: Any) -> Any:
    return lambda *what: Replace(value)


def answering(value: Any) -> Any:
    return lambda *what: value


NONE = "by what is none"
# what it does; what the model reads where it does so before, and after
HOOKS: dict[str, tuple[Any, str, str]] = {
    "raises": (raising(RuntimeError(SECRET)), "raised RuntimeError", "raised RuntimeError"),
    "raises what cannot be shown": (raising(Unspoken()), "raised Unspoken", "raised Unspoken"),
    "raises several": (raising(ExceptionGroup(SECRET, [ValueError()])), "raised Exc", "raised Exc"),
    "answers with a number": (answering(5), "answered with int", "answered with int"),
    "answers with a text": (answering(SECRET), "answered with str", "answered with str"),
    "replaces by what cannot be read": (replacing(Unreadable()), "that cannot be read", NONE),
    "replaces by an iterator": (replacing(iter([1])), "by list_iterator", NONE),
    "replaces by a ring": (replacing({"a": ring()}), "nested too deeply, or a cycle", NONE),
    "replaces by something deep": (replacing({"a": deep()}), "nested too deeply", NONE),
    "replaces by no number": (replacing({"a": float("nan")}), "not JSON at $.a", NONE),
    "replaces by other keys": (replacing({(1, 2): 1}), "a key of type tuple", NONE),
    "replaces by no result": (replacing(ToolResult(SECRET.encode(), "c")), "by ToolResult", NONE),
    "replaces by half a result": (replacing(ToolResult(BROKEN, "c")), "by ToolResult", NONE),
    "replaces by a result in words": (replacing(ToolResult(WORDS, "c")), "by ToolResult", NONE),
    "replaces by another object": (replacing(ToolResult(b'{"a":1}', "c")), "by ToolResult", NONE),
    "denies": (answering(Deny("no \ud800")), "no \ufffd", "no \ufffd"),
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("which", HOOKS)
async def test_a_hook_that_misbehaves_has_denied(
    which: str, moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    does, before, after = HOOKS[which]
    work = Ran()
    hooks = [Hook("odd", **{moment: does})]
    with caplog.at_level(logging.DEBUG, "afpool"):
        async with runtime(tools=[work.tool], hooks=hooks) as here:
            result = await called(here, args={"a": 1})
            early = moment == "before"
            assert (result.code, result.delivery) == ("denied", "not-sent" if early else "answered")
            assert (before if early else after) in result.text
            assert ("was not run" if early else "has run") in result.text
            assert bool(work.calls) != early
            assert result.error is not None
            result.error.__cause__ = result.error.__context__ = None  # the hook's own
            spotless(result, list(here.events))
    assert SECRET not in caplog.text


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_hook_that_hangs_is_waited_for_until_the_deadline(
    moment: str, autojump_clock: trio.testing.MockClock
) -> None:
    async def hangs(*what: Any) -> None:
        await trio.sleep_forever()

    work = Ran()
    async with runtime(tools=[work.tool], hooks=[Hook("h", **{moment: hangs})], deadline=7.0) as here:
        begun = trio.current_time()
        result = await here.runtime.dispatch(ALICE, "work")
        assert result.code == ("deadline-exceeded" if moment == "before" else "denied")
        assert trio.current_time() == begun + 7.0
        assert bool(work.calls) == (moment == "after")


# ---------------------------------------------------------------------------- tools


def made(raw: Any) -> Any:
    return lambda: ToolResult(raw, "c")


DEEP = b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
RESULTS: dict[str, tuple[Any, str, str]] = {
    "a generator": (numbers, "tool-failed", "not JSON at $: generator"),
    "numbers without end": (itertools.count, "tool-failed", "not JSON at $: count"),
    "a ring": (ring, "tool-failed", "nested too deeply, or a cycle"),
    "something deep": (deep, "tool-failed", "nested too deeply, or a cycle"),
    "no number": (lambda: {"a": float("nan")}, "tool-failed", "not JSON at $.a: a float that is not finite"),
    "a large number": (lambda: 10**5_000, "tool-failed", "an int of more than 4300 digits"),
    "what cannot be read": (Unreadable, "tool-failed", "not JSON at $: Unreadable"),
    "an object": (object, "tool-failed", "not JSON at $: object"),
    "a class": (lambda: ValueError, "tool-failed", "not JSON at $: type"),
    "keys that are pairs": (lambda: {(1, 2): 3}, "tool-failed", "a key of type tuple"),
    "half a character": (lambda: {"a": "\ud800", "\udfff": 1}, "ok", "\ufffd"),
    "half a text": (lambda: "\ud800", "ok", "\ufffd"),
    "bytes": (lambda: b"\xff\x00", "ok", '"/wA="'),
    "the secret as a key": (lambda: {SECRET: {SECRET: SECRET}}, "ok", '"[host-filled]"'),
    "no result": (made(b"nonsense"), "protocol-error", "no readable JSON object"),
    "half a result": (made(BROKEN), "protocol-error", "no readable JSON object"),
    "a result of no numbers": (made(b'{"content":[{"n":NaN}]}'), "protocol-error", "no readable JSON object"),
    "a deep result": (made(DEEP), "protocol-error", "no readable JSON object"),
    "a result in words": (made(WORDS), "tool-failed", "holds bytes, not str"),
    "another object": (made(b'{"a":{"b":1}}'), "protocol-error", "the members a"),
    "odd blocks": (made(b'{"content":[1,null,{"type":{}},{"type":"text"}]}'), "ok", ""),
    "an error that says the secret": (
        lambda: RuntimeError(f"401 {SECRET}"),
        "tool-failed",
        "401 [host-filled]",
    ),
    "an error that cannot be shown": (Unspoken, "tool-failed", "Unspoken"),
    "several errors": (lambda: ExceptionGroup(SECRET, [ValueError(SECRET)]), "tool-failed", "[host-filled]"),
    "an error of ten megabytes": (lambda: RuntimeError("x" * 10_000_000), "tool-failed", "xxx"),
}


@pytest.mark.parametrize("which", RESULTS)
async def test_what_a_tool_gives_is_a_result_or_a_failure_without_its_credential(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, code, says = RESULTS[which]

    def execute(args: Any, ctx: ToolContext) -> Any:
        given = make()
        if isinstance(given, Exception):
            raise given
        return given

    tool = define_tool(execute=execute, name="work", needs="crm")
    with caplog.at_level(logging.DEBUG, "afpool"):
        async with runtime(tools=[tool], credentials=Provider(lambda: Issued(bearer(SECRET)))) as here:
            result = await called(here)
            assert (result.code, result.delivery) == (code, "answered"), result.text
            assert says in result.text, result.text
            assert len(result.text) < 10_000
            spotless(result, list(here.events), hidden=(SECRET,))
    assert SECRET not in caplog.text


async def test_whatever_a_tool_reports_it_goes_on_and_its_credential_is_in_no_report() -> None:
    told: list[Any] = []

    def execute(args: Any, ctx: ToolContext) -> Any:
        assert ctx.progress is not None
        for report in (
            ring(),
            deep(),
            Unreadable(),
            {SECRET: SECRET},
            numbers(),
            object(),
            float("nan"),
            "\ud800",
        ):
            ctx.progress(report)
        return "done"

    for needs in ("crm", None):
        tool = define_tool(execute=execute, name="work", needs=needs)
        async with runtime(tools=[tool], credentials=Provider(lambda: Issued(bearer(SECRET)))) as here:
            result = await here.runtime.dispatch(ALICE, "work", on_progress=told.append)
            assert result.code == "ok", result.text
            reports = [event for event in here.events if event.kind == "tool_progress"]
            assert len(reports) == 8
            if needs is not None:
                spotless(result, list(here.events), told, hidden=(SECRET,))


@pytest.mark.parametrize(
    "limits", [ResultLimits(), ResultLimits(max_chars=1_000)], ids=["no limits", "a cap"]
)
@pytest.mark.parametrize("form", ["text", "object"])
async def test_a_result_of_a_hundred_megabytes_takes_a_few_times_its_size(
    form: str, limits: ResultLimits
) -> None:
    size = 100 << 20
    text = "x" * (size - len(SECRET)) + SECRET

    def execute(args: Any, ctx: ToolContext) -> Any:
        return text if form == "text" else {"a": text}

    tool = define_tool(execute=execute, name="work", needs="crm")
    provider = Provider(lambda: Issued(bearer(SECRET)))
    async with runtime(
        tools=[tool], credentials=provider, results=limits, on_event=lambda event: None
    ) as here:
        tracemalloc.start()
        try:
            result = await here.runtime.dispatch(ALICE, "work")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert result.code == "ok"
        assert SECRET.encode() not in result.raw
        assert (len(result.raw) < 10_000) == (limits.max_chars is not None)
        assert peak < (6 if form == "text" else 12) * size
