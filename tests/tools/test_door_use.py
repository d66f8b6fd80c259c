"""The use of a call: what the door writes of it, for whoever asks why afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from afpool import (
    CredentialRequirement,
    Identity,
    NeedsAuthorization,
    Progress,
    ScriptedCredentials,
    ToolContext,
    Use,
    bearer,
)
from afpool._base.errors import ConnectionLost, StaleTools, ToolFailed
from afpool._base.secret import secrets_of
from afpool.artifacts import ArtifactStoreError, MemoryArtifacts, NewArtifact
from afpool.tools import (
    Deny,
    Hook,
    RedactionPolicy,
    Replace,
    ResultCeiling,
    ResultLimits,
    content_result,
    define_tool,
    derive,
    from_identity,
    host_filled,
    redacted,
    with_result_ceiling,
)
from afpool.tools._call import MAX_DEPTH
from afpool.tools._call_use import MAX_NOTES, MAX_REFS, MAX_SHOWN, cancelled, got_over
from afpool.tools._hiding import Hiding
from afpool.tools._record import CallRecord
from afpool.tools._results import failed
from tests.tools.door_kit import ALICE, SECRET, Ran, Through, door

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
WANTING: Any = {"input_schema": SCHEMA, "wants": {"q": "rows"}}
NEEDING: Any = {"needs": CredentialRequirement("crm")}


def ended(through: Through) -> Use:
    """The only use, once its call has ended; with what holds of every use."""
    (use,) = through.uses
    assert not through.door.running
    assert use.waits_for is None
    assert use.ended_at is not None
    times = [at for _, at in use.stages]
    assert times == sorted(times)
    assert all(0 <= at <= use.ended_at - use.began_at for at in times)
    assert use.outcome in ("ok", "refused", "failed", "cancelled")
    return use


def stages(use: Use) -> list[str]:
    return [stage for stage, _ in use.stages]


def facts(use: Use) -> list[tuple[str, str]]:
    return [(stage, word) for stage, word, _ in use.facts or ()]


def shown(use: Use) -> Any:
    assert use.shown is not None
    return json.loads(use.shown)


def everything(use: Use) -> str:
    """All that a use holds, as text."""
    return repr({name: getattr(use, name) for name in Use.__slots__ if hasattr(use, name)})


# ---------------------------------------------------------------------------- how calls end


def filled() -> Any:
    schema = {"type": "object", "properties": {"q": {}, "who": {"type": "string"}}}
    return host_filled(Ran(input_schema=schema).tool, {"who": from_identity("conversation_id")})


async def sleep(args: Any, ctx: Any) -> str:
    await trio.sleep_forever()
    return "never"


async def asleep(*call: Any) -> None:
    await trio.sleep_forever()


class Failing:
    """A store that fails whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*args: Any, **more: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise ArtifactStoreError("the disk is gone", delivery="not-sent")

        return fail


BOTH = {"hooks": [Hook("h", before=lambda call: None, after=lambda call, result: None)]}
OK = ("ok", None, "answered")
WAYS: dict[str, tuple[Any, Any, dict[str, Any], tuple[Any, ...], list[str]]] = {
    # what is called, with what, through what door; how it ends; which stages it goes through
    "it ran": (lambda: Ran().tool, {}, {}, OK, ["schema", "arguments", "run"]),
    "it ran, past hooks": (
        lambda: Ran().tool, {}, BOTH, OK, ["hooks", "schema", "arguments", "run", "after"],
    ),
    "it ran, within limits": (
        lambda: Ran().tool, {}, {"limits": ResultLimits(max_chars=300)}, OK,
        ["schema", "arguments", "run", "limits"],
    ),
    "an unknown tool": (lambda: None, {"q": 1}, {}, ("refused", "unknown-tool", "not-sent"), []),
    "a hook denied": (
        lambda: Ran().tool, {}, {"hooks": [Hook("h", before=lambda call: Deny("no"))]},
        ("refused", "denied", "not-sent"), ["hooks"],
    ),
    "a hook hangs": (
        lambda: Ran().tool, {}, {"hooks": [Hook("h", before=asleep)], "deadline": 2.0},
        ("refused", "deadline-exceeded", "not-sent"), ["hooks"],
    ),
    "a hook made no JSON of the arguments": (
        lambda: Ran().tool, {}, {"hooks": [Hook("h", before=lambda call: Replace({"q": object()}))]},
        ("refused", "denied", "not-sent"), ["hooks"],
    ),
    "a hook withheld the result": (
        lambda: Ran().tool, {}, {"hooks": [Hook("h", after=lambda call, result: Deny("no"))]},
        ("failed", "denied", "answered"), ["schema", "arguments", "run", "after"],
    ),
    "a hook hangs after it": (
        lambda: Ran().tool, {}, {"hooks": [Hook("h", after=asleep)], "deadline": 2.0},
        ("failed", "denied", "answered"), ["schema", "arguments", "run", "after"],
    ),
    "arguments of no form": (
        lambda: Ran().tool, ["q"], {}, ("refused", "invalid-arguments", "not-sent"), ["arguments"],
    ),
    "arguments that are not JSON": (
        lambda: Ran().tool, {"q": {1, 2}}, {}, ("refused", "invalid-arguments", "not-sent"), ["arguments"],
    ),
    "arguments that are wrong": (
        lambda: Ran(input_schema=SCHEMA).tool, {"q": 7}, {},
        ("refused", "invalid-arguments", "not-sent"), ["schema", "arguments"],
    ),
    "a value for what the host fills": (
        filled, {"who": "me"}, {}, ("refused", "ERR_HOST_FILLED_ARGUMENT", "not-sent"), ["fill"],
    ),
    "nothing to fill in": (
        filled, {"q": "x"}, {}, ("refused", "ERR_HOST_FILLED_VALUE_MISSING", "not-sent"),
        ["fill", "schema", "arguments", "run"],
    ),
    "no store": (
        lambda: Ran(**WANTING).tool, {"q": "art_x"}, {},
        ("refused", "ERR_NO_ARTIFACT_STORE", "not-sent"), ["schema", "arguments", "wants"],
    ),
    "a reference to nothing": (
        lambda: Ran(**WANTING).tool, {"q": "art_x"}, {"store": MemoryArtifacts()},
        ("refused", "wants-refused", "not-sent"), ["schema", "arguments", "wants"],
    ),
    "a store that fails": (
        lambda: Ran(**WANTING).tool, {"q": "art_x"}, {"store": Failing()},
        ("refused", "ERR_ARTIFACT_STORE", "not-sent"), ["schema", "arguments", "wants"],
    ),
    "no provider": (
        lambda: Ran(**NEEDING).tool, {}, {}, ("refused", "credential-failed", "not-sent"),
        ["schema", "arguments", "credential"],
    ),
    "a provider that fails": (
        lambda: Ran(**NEEDING).tool, {}, {"credentials": ScriptedCredentials([OSError("down")])},
        ("refused", "credential-failed", "not-sent"), ["schema", "arguments", "credential"],
    ),
    "somebody's consent is missing": (
        lambda: Ran(**NEEDING).tool, {},
        {"credentials": ScriptedCredentials([NeedsAuthorization("https://idp.example/a", "s")])},
        ("refused", "authorization-required", "not-sent"), ["schema", "arguments", "credential"],
    ),
    "it raised": (
        lambda: Ran(ValueError("no")).tool, {}, {}, ("failed", "tool-failed", "answered"),
        ["schema", "arguments", "run"],
    ),
    "it gave what is no result": (
        lambda: Ran(object()).tool, {}, {}, ("failed", "tool-failed", "answered"),
        ["schema", "arguments", "run"],
    ),
    "it promised another result": (
        lambda: Ran({"n": "x"}, output_schema={"properties": {"n": {"type": "integer"}}}).tool,
        {}, {}, ("failed", "invalid-output", "answered"), ["schema", "arguments", "run"],
    ),
    "it hangs": (
        lambda: define_tool(execute=sleep, name="work"), {}, {"deadline": 2.0},
        ("failed", "deadline-exceeded", "in-doubt"), ["schema", "arguments", "run"],
    ),
    "too much came of it": (
        lambda: with_result_ceiling(Ran("x" * 99).tool, ResultCeiling(max_chars=9)), {}, {},
        ("failed", "too-large", "answered"), ["schema", "arguments", "run", "limits"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_a_use_says_how_its_call_ended_and_where(
    way: str, autojump_clock: trio.testing.MockClock
) -> None:
    tool, args, options, ending, passed = WAYS[way]
    through = door(**options)
    result = await through(tool(), args, call_id="c", run_id="r")
    use = ended(through)
    assert (use.outcome, use.code, use.delivery) == ending, result.text
    assert stages(use) == passed
    assert (use.call_id, use.run_id, use.who, use.parent) == ("c", "r", ALICE, None)
    # nothing of it is a server's
    assert (use.server, use.method, use.key, use.client_id, use.attempts) == ("", "", None, None, 0)
    assert (use.tool, use.name) == (("missing", "missing") if tool() is None else ("work", "work"))
    assert not use.tool_error
    if result.error is not None:
        assert (use.code, use.delivery) == (result.code, result.delivery)


async def test_a_tool_that_says_that_it_failed_is_told_apart() -> None:
    through = door()
    await through(Ran(content_result([{"type": "text", "text": "no"}], is_error=True)).tool)
    use = ended(through)
    assert (use.outcome, use.code, use.delivery, use.tool_error) == ("ok", None, "answered", True)
    assert use.bytes_in == len(b'{"content":[{"type":"text","text":"no"}],"isError":true}')


async def test_whoever_cannot_be_asked_is_refused_and_nobody_in_the_use() -> None:
    through = door()

    def nobody() -> Identity:
        raise LookupError(SECRET)

    await through(Ran().tool, identity=nobody)
    use = ended(through)
    assert (use.outcome, use.code, use.who, stages(use)) == ("refused", "identity-missing", None, [])
    assert SECRET not in everything(use)


async def test_a_caller_that_is_asked_is_who_he_was_found_to_be() -> None:
    through = door()
    await through(Ran().tool, identity=lambda: ALICE)
    assert ended(through).who == ALICE


async def test_calls_nested_too_deeply_say_which_limit_it_was() -> None:
    through = door()
    await through(Ran().tool, depth=MAX_DEPTH + 1)
    use = ended(through)
    assert (use.code, facts(use)) == ("overloaded", [("limit", "depth")])


def refused_because() -> StaleTools:
    error = StaleTools("the list moved")
    error.__cause__ = ValueError("why")
    return error


@pytest.mark.parametrize(
    ("error", "code", "noted"),
    [
        (ValueError("no"), "tool-failed", [("run", "ValueError")]),
        (ToolFailed("it failed"), "tool-failed", []),
        (refused_because(), "stale-tools", []),
    ],
)
async def test_what_a_tool_raised_is_named_and_what_refused_it_is_not(
    error: Exception, code: str, noted: Any
) -> None:
    async def around(args: Any, ctx: ToolContext, base: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise error

    through = door()
    await through(derive(Ran().tool, execute=around))
    use = ended(through)
    assert (use.code, facts(use)) == (code, noted)


async def test_the_second_time_nothing_is_compiled() -> None:
    through, work = door(), Ran()
    await through(work.tool)
    await through(work.tool)
    assert [stages(use) for use in through.uses] == [["schema", "arguments", "run"], ["arguments", "run"]]


# ---------------------------------------------------------------------------- while it runs


async def test_a_running_call_says_where_it_waits(autojump_clock: trio.testing.MockClock) -> None:
    """The clock says when: a second for each stage."""
    seen: list[tuple[float, str | None, list[str]]] = []

    async def second(*_: Any) -> None:
        await trio.sleep(1)

    class Slow:
        async def get(self, request: Any) -> Any:
            await trio.sleep(1)
            return await ScriptedCredentials([bearer(SECRET)]).get(request)

    class SlowStore:
        def __init__(self) -> None:
            self.inner = MemoryArtifacts()

        def __getattr__(self, verb: str) -> Any:
            async def slowly(*args: Any, **more: Any) -> Any:
                await trio.sleep(1)
                return await getattr(self.inner, verb)(*args, **more)

            return slowly

    async def run(args: Any, ctx: ToolContext) -> str:
        await trio.sleep(1)
        return "x" * 500

    store: Any = SlowStore()
    ref = (await store.inner.put(ALICE, NewArtifact(kind="rows", media_type="a/b", data=[]))).ref
    through = door(
        hooks=[Hook("h", before=second, after=second)], credentials=Slow(), store=store,
        limits=ResultLimits(max_inline_chars=100),
    )  # fmt: skip
    tool = define_tool(execute=run, name="work", **WANTING, **NEEDING)
    began = trio.current_time()

    async def watch() -> None:
        await trio.sleep(0.5)
        for _ in range(6):
            (use,) = through.door.running.values()
            assert (use.ended_at, use.outcome) == (None, None)
            seen.append((trio.current_time() - began, use.waits_for, stages(use)))
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await through(tool, {"q": ref})
    order = ["hooks", "wants", "credential", "run", "after", "limits"]
    assert [waits for _, waits, _ in seen] == order
    use = ended(through)
    assert stages(use) == ["hooks", "schema", "arguments", *order[1:]]
    assert {stage: at for stage, at in use.stages if stage in order} == {
        stage: number for number, stage in enumerate(order, 1)
    }


async def test_a_call_that_is_cancelled_is_filed_and_says_whether_it_had_begun() -> None:
    for tool, options, passed, verdict in (
        (define_tool(execute=sleep, name="work"), {}, ["schema", "arguments", "run"], "in-doubt"),
        (Ran().tool, {"hooks": [Hook("h", before=asleep)]}, ["hooks"], "not-sent"),
        (
            Ran().tool,
            {"hooks": [Hook("h", after=asleep)]},
            ["schema", "arguments", "run", "after"],
            "answered",
        ),
    ):  # fmt: skip
        through = door(**options)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(through, tool)
                await trio.testing.wait_all_tasks_blocked()
                assert len(through.door.running) == 1
                assert not through.uses
                nursery.cancel_scope.cancel()
        use = ended(through)
        assert (use.outcome, use.code, use.delivery) == ("cancelled", "cancelled", verdict)
        assert stages(use) == passed


async def test_a_call_that_was_cancelled_before_it_began_did_not_begin() -> None:
    through, work = door(), Ran()
    with trio.CancelScope() as scope:
        scope.cancel()
        await through(work.tool)
    use = ended(through)
    assert (use.outcome, use.delivery, stages(use)) == ("cancelled", "not-sent", [])
    assert not work.calls


async def test_whoever_is_told_that_a_call_begins_is_told_once_and_before_anything_waits() -> None:
    told: list[tuple[str, ...]] = []
    through = door(
        begin=lambda use: told.append((use.name, use.method, use.waits_for or "-", *stages(use))),
        hooks=[Hook("h", before=lambda call: told.append(("hook",)))],
    )  # fmt: skip
    await through(Ran().tool)
    await through(None)
    assert told == [("work", "", "-"), ("hook",), ("missing", "", "-")]


# ---------------------------------------------------------------------------- what is shown


@pytest.mark.parametrize(
    ("tool", "args", "written"),
    [
        (Ran().tool, {"q": 1}, {"q": 1}),
        (Ran().tool, None, {}),
        (Ran().tool, [SECRET], {}),
        (Ran().tool, {"q": {1}, SECRET: 2}, {"q": "[not JSON]", SECRET: "[not JSON]"}),
        (None, {"q": SECRET}, {"q": "REDACTED"}),
        (None, SECRET, {}),
        (redacted(Ran().tool, RedactionPolicy(keys=["q"])), {"q": SECRET}, {"q": "REDACTED"}),
        (filled(), {"who": SECRET}, {"who": "[host-filled]"}),
    ],
)
async def test_arguments_are_shown_as_events_show_them(tool: Any, args: Any, written: Any) -> None:
    for options in ({}, {"on_event": None}):
        through = door(**options)
        await through(tool, args)
        assert shown(ended(through)) == written
    started = door()
    await started(tool, args)
    assert started.events.of("tool_start")["args"] == written


async def test_what_a_hook_puts_in_is_named_and_not_shown() -> None:
    hook = Hook("h", before=lambda call: Replace({**call.args, "new": SECRET}))
    through = door(hooks=[hook])
    await through(redacted(Ran().tool, RedactionPolicy(keys=["card"])), {"q": 1, "card": SECRET})
    use = ended(through)
    assert shown(use) == {"q": 1, "card": "REDACTED"}
    assert use.changed == ("card", "new")
    assert SECRET not in everything(use)


async def test_a_call_that_did_not_run_names_no_changed_arguments() -> None:
    through = door()
    tool = redacted(Ran(input_schema=SCHEMA).tool, RedactionPolicy(keys=["card"]))
    await through(tool, {"card": 1})
    assert ended(through).changed == ()


async def test_a_credential_that_the_model_repeats_is_not_shown_once_it_is_known() -> None:
    """Its arguments were written down before the credential was fetched."""
    through = door(credentials=ScriptedCredentials([bearer(SECRET)]))
    policy = RedactionPolicy(keys=[SECRET])
    tool = redacted(Ran(LookupError(SECRET), **NEEDING).tool, policy)
    await through(tool, {"q": f"with {SECRET}", SECRET: 1}, name=f"work with {SECRET}")
    use = ended(through)
    assert SECRET not in everything(use)
    assert shown(use) == {"q": "with [host-filled]", "[host-filled]": "REDACTED"}
    assert use.changed == ("[host-filled]",)
    assert use.name == "work with [host-filled]"
    assert use.code == "tool-failed"


async def test_what_the_calls_around_it_fetched_is_in_no_use_of_an_inner_one() -> None:
    secrets = secrets_of(bearer(SECRET))
    assert not isinstance(secrets, str)
    through = door()
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    await through(
        Ran(input_schema=schema).tool, {SECRET: SECRET}, hiding=Hiding(tuple(secrets)), name=f"work {SECRET}",
        parent="outer",
    )  # fmt: skip
    use = ended(through)
    assert use.code == "invalid-arguments"
    assert use.parent == "outer"
    assert facts(use) == [("arguments", "/[host-filled] type")]
    assert SECRET not in everything(use)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"q": "x" * 100_000, "n": 1}, {"q": "[100002 bytes of JSON]", "n": 1}),
        ({f"k{number}": "x" * 100 for number in range(10_000)}, None),
        ({"x" * 100_000: 1}, {"x" * 128 + "…": 1}),
        ({"x" * 128: 1, "q": "x" * 100_000}, {"x" * 128: 1, "q": "[100002 bytes of JSON]"}),
        ({"ä" * 100_000: "ä" * 100_000}, {"ä" * 128 + "…": "[200002 bytes of JSON]"}),
        ({f"{'ä' * 200}{number}": "x" * 300 for number in range(10_000)}, None),
        ({"q": object(), **{f"k{number}": 1 for number in range(10_000)}}, None),
    ],
)
async def test_long_arguments_are_told_by_their_sizes(args: Any, says: Any) -> None:
    through = door()
    await through(Ran().tool, args)
    use = ended(through)
    assert use.shown is not None
    assert len(use.shown) <= MAX_SHOWN
    assert "…" in shown(use) if says is None else shown(use) == says
    # an event holds them whole
    assert len(through.events.of("tool_start")["args"]) == len(args)


@given(st.dictionaries(st.text(max_size=300), st.text(max_size=3_000), max_size=30), st.integers(0, 200))
def test_whatever_is_sent_its_use_is_short_and_filed_once(args: dict[str, str], more: int) -> None:
    async def run() -> None:
        through = door()
        given_args = {**args, **{f"more{number}": "y" * 100 for number in range(more)}}
        await through(Ran().tool, given_args)
        use = ended(through)
        assert use.shown is not None
        assert len(use.shown) <= MAX_SHOWN
        told = shown(use)
        assert set(told) <= set(given_args) | {"…"} | {f"{name[:128]}…" for name in given_args}
        if sum(map(len, given_args)) + sum(map(len, given_args.values())) < 1_000:
            assert told == given_args

    trio.run(run)


# ---------------------------------------------------------------------------- what is noted


async def test_a_denial_names_its_hook() -> None:
    def broken(call: Any, result: Any) -> None:
        raise LookupError(SECRET)

    hooks = [
        Hook("first", before=lambda call: None, after=broken),
        Hook("second", before=lambda call: Deny("no") if call.args else None),
    ]
    through = door(hooks=hooks)
    await through(Ran().tool, {"q": 1})
    await through(Ran().tool, {})
    assert [facts(use) for use in through.uses] == [[("hook", "second")], [("hook", "first")]]


async def test_wrong_arguments_are_named_by_their_places() -> None:
    schema = {
        "type": "object", "required": ["a"], "additionalProperties": False,
        "properties": {"a": {}, "b/~": {"type": "array", "items": {"maximum": 3}}, "c": {"enum": ["x"]}},
    }  # fmt: skip
    through = door()
    await through(Ran(input_schema=schema).tool, {"b/~": [1, 9], "c": SECRET, "d": SECRET})
    use = ended(through)
    assert {word for stage, word in facts(use) if stage == "arguments"} == {
        "/ required", "/b~1~0/1 maximum", "/c enum", "/ additionalProperties",
    }  # fmt: skip
    assert SECRET not in repr(use.facts)


async def test_of_many_wrong_arguments_the_first_places_are_named() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    through = door()
    await through(Ran(input_schema=schema).tool, {f"k{number}": "x" for number in range(100)})
    assert len(facts(ended(through))) == 5


async def test_what_a_tool_raised_is_named_by_its_class() -> None:
    through = door()
    await through(Ran(LookupError(SECRET)).tool)
    use = ended(through)
    assert facts(use) == [("run", "LookupError")]
    assert SECRET not in everything(use)


async def test_reports_are_counted_and_only_the_numbers_of_the_last_one_are_kept() -> None:
    def work(args: Any, ctx: ToolContext) -> str:
        assert ctx.progress is not None
        ctx.progress({"any": "thing"})
        for number in range(100):
            ctx.progress(Progress(number, 200, SECRET))
        return "done"

    for options in ({}, {"on_event": None}):
        through = door(**options)
        await through(Ran(work).tool)
        use = ended(through)
        assert (use.reports, use.reported) == (101, (99, 200))
        assert SECRET not in everything(use)


# ---------------------------------------------------------------------------- artifacts


def new(data: Any, **more: Any) -> NewArtifact:
    return NewArtifact(kind=more.pop("kind", "rows"), media_type="application/json", data=data, **more)


async def test_what_a_call_puts_and_is_given_is_in_its_use() -> None:
    store = MemoryArtifacts()
    wanted = (await store.put(ALICE, new([1]))).ref
    other = (await store.put(ALICE, new([2]))).ref
    looked_at = (await store.put(ALICE, new([3]))).ref
    put: list[str] = []
    minted: list[Any] = []

    async def work(args: Any, ctx: ToolContext) -> str:
        await ctx.artifacts.get(other)
        await ctx.artifacts.get(other)
        await ctx.artifacts.head(looked_at)
        await ctx.artifacts.get("art_nothing")
        put.append((await ctx.artifacts.put(new([4], parent_refs=(other,)))).ref)
        with pytest.raises(Exception, match="parents"):
            await ctx.artifacts.put(new([5], parent_refs=("art_none",)))
        return "x" * 500

    for options in ({}, {"on_event": None}):
        put.clear()
        minted.clear()
        through = door(
            store=store, limits=ResultLimits(max_inline_chars=100),
            on_minted=lambda meta, scope, use: minted.append((meta, scope, use, list(use.minted))),
            **options,
        )  # fmt: skip
        await through(define_tool(execute=work, name="work", **WANTING), {"q": wanted})
        use = ended(through)
        assert use.took == [wanted, other]
        assert use.minted is not None
        assert len(use.minted) == 2  # its own, and its long result
        assert use.minted[0] == put[0]
        assert facts(use) == [("store", "get missing-or-expired"), ("store", "put unknown-parent")]
        assert [(meta.ref, scope, told is use) for meta, scope, told, _ in minted] == [
            (ref, ALICE, True) for ref in use.minted
        ]
        assert minted[0][0].parent_refs == (other,)
        assert minted[0][3] == use.minted[:1]


async def test_of_very_many_artifacts_and_refusals_the_first_are_kept() -> None:
    store = MemoryArtifacts()

    async def work(args: Any, ctx: ToolContext) -> str:
        for number in range(MAX_REFS + 9):
            ref = (await ctx.artifacts.put(new([number]))).ref
            await ctx.artifacts.get(ref)
            await ctx.artifacts.get("art_none")
        return "done"

    told: list[Any] = []
    through = door(store=store, on_minted=lambda *what: told.append(what))
    await through(define_tool(execute=work, name="work"))
    use = ended(through)
    assert use.minted is not None
    assert use.took is not None
    assert len(use.minted) == len(use.took) == MAX_REFS
    assert len(facts(use)) == MAX_NOTES
    assert len(told) == MAX_REFS + 9


async def test_the_words_of_an_artifact_are_told_without_the_credential() -> None:
    told: list[Any] = []

    async def work(args: Any, ctx: ToolContext) -> str:
        await ctx.artifacts.put(new([1], kind=f"rows-{SECRET}", label=f"with {SECRET}"))
        return "done"

    through = door(
        store=MemoryArtifacts(), credentials=ScriptedCredentials([bearer(SECRET)]),
        on_minted=lambda meta, scope, use: told.append(meta),
    )  # fmt: skip
    await through(define_tool(execute=work, name="work", **NEEDING))
    (meta,) = told
    assert (meta.kind, meta.label) == ("rows-[host-filled]", "with [host-filled]")
    assert SECRET not in repr(meta)
    assert ended(through).outcome == "ok"


async def test_the_words_of_an_artifact_are_told_to_later_calls_without_the_credential() -> None:
    async def work(args: Any, ctx: ToolContext) -> str:
        new_one = NewArtifact(
            kind=f"rows-{SECRET}", label=f"with {SECRET}", media_type=f"text/{SECRET}", data=[1]
        )
        return str((await ctx.artifacts.put(new_one)).ref)

    async def later(args: Any, ctx: ToolContext) -> str:
        found = await ctx.artifacts.head(args["ref"])
        await ctx.artifacts.put(new([2]))
        return f"{found.kind} {found.label} {found.media_type}"

    store = MemoryArtifacts(max_count_per_scope=1)
    through = door(store=store, credentials=ScriptedCredentials([bearer(SECRET)]))
    put = await through(define_tool(execute=work, name="work", **NEEDING))
    assert put.code == "ok", put.text
    read = await through(
        define_tool(execute=later, name="later", input_schema={"type": "object"}), {"ref": put.text}
    )
    assert read.text == "rows-[host-filled] with [host-filled] text/[host-filled]"
    assert "artifacts.expired" in through.events.kinds
    assert SECRET not in through.events.text


async def test_whoever_is_told_of_an_artifact_and_raises_costs_the_tool_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*what: Any) -> None:
        raise ValueError(SECRET)

    async def work(args: Any, ctx: ToolContext) -> str:
        return str((await ctx.artifacts.put(new([1]))).ref)

    through = door(store=MemoryArtifacts(), on_minted=broken)
    result = await through(define_tool(execute=work, name="work"))
    assert ended(through).minted == [result.text]
    assert "on_minted raised ValueError" in caplog.text
    assert SECRET not in caplog.text


async def test_doors_that_follow_one_another_have_one_list_of_running_calls() -> None:
    running: dict[int, Use] = {}
    first, second = door(running=running), door(running=running)
    seen: list[Mapping[int, Use]] = []

    async def inner(args: Any, ctx: ToolContext) -> str:
        seen.append(dict(running))
        return "done"

    async def outer(args: Any, ctx: ToolContext) -> str:
        await second(define_tool(execute=inner, name="inner"), parent=ctx.call_id)
        return "done"

    await first(define_tool(execute=outer, name="outer"), call_id="c")
    (at_once,) = seen
    assert [(use.name, use.parent) for use in at_once.values()] == [("outer", None), ("inner", "c")]
    assert not running


# ---------------------------------------------------------------------------- what ended it, and what did not


def left_by_the_pool(code: str | None = "stale-tools") -> Use:
    """A use as a pool leaves it that refused its part of the call for a change of the list."""
    use = Use("c", "files", "read", 1.0)
    use.outcome, use.code, use.delivery = "refused", code, "not-sent"
    use.cause, use.happened = 7, object()
    use.was = use.became = object()  # type: ignore[assignment]
    return use


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (StaleTools("the list moved"), True),
        (failed("read", StaleTools("the list moved")), True),
        (failed("read", ValueError("something else")), False),
        (ToolFailed("it failed"), False),
        (ConnectionLost("in doubt", delivery="in-doubt"), False),
        (None, False),
    ],
)
def test_what_a_call_got_over_is_not_its_cause(error: Any, stays: bool) -> None:
    use = left_by_the_pool()
    got_over(use, error)
    assert [use.cause, use.happened is None, use.was is None, use.became is None] == (
        [7, False, False, False] if stays else [None, True, True, True]
    )


def test_a_call_that_is_cancelled_later_was_not_ended_by_what_refused_it_before() -> None:
    use = left_by_the_pool()
    cancelled(use, begun=True)
    assert (use.outcome, use.code, use.delivery) == ("cancelled", "cancelled", "not-sent")
    assert (use.cause, use.happened, use.was, use.became) == (None, None, None, None)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt(), trio.TrioInternalError()])
async def test_a_call_whose_books_break_is_filed_all_the_same(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*args: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr(CallRecord, "end", breaks)
    through = door()
    with pytest.raises(type(error)):
        await through(Ran().tool, {"q": SECRET})
    use = ended(through)
    assert (use.outcome, use.code) == ("failed", type(error).__name__)
    assert SECRET not in everything(use), "nobody has looked through it"
