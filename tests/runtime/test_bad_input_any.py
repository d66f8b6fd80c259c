"""Any schema, arguments, fills, wants, views and hooks: a call is answered, and nothing hidden is told."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import trio
from hypothesis import given, reject, settings

from afpool import StaticCredentials, Tool, ToolContext, ToolResult
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.tools import (
    Hook,
    RedactionPolicy,
    Replace,
    ResultCeiling,
    ResultLimits,
    from_credential,
    from_identity,
    host_filled,
    redacted,
    with_result_ceiling,
    with_wants,
)
from afpool.tools._results import value_result
from tests.runtime.bad_input_kit import HIDDEN, ROWS, one_of_each, spotless
from tests.runtime.runtime_kit import ALICE, runtime
from tests.tools.door_kit import SECRET
from tests.tools.schemas import schemas

KEYS = ["a", "b", "c", "d", "token", "tenant", "TOKEN", "ten-ant", "to\uff3fken", "\ud800", "", "q" * 300]
CODES = {"ok", "invalid-arguments", "wants-refused", "ERR_HOST_FILLED_ARGUMENT", "denied", "too-large"}


class AnySchema(Tool):
    """A tool with any schema at all, which answers with what it was filled with, and with itself."""

    __slots__ = ("__weakref__", "calls", "schema")

    name = "work"  # type: ignore[assignment]
    description = "d"  # type: ignore[assignment]

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.calls = 0

    @property
    def input_schema(self) -> Any:
        return self.schema

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if ctx.progress is not None:
            ctx.progress({"token": args.get("token"), SECRET: 1})
        answer = {"token": args.get("token"), "tenant": args.get("tenant"), "credential": SECRET}
        return value_result(answer, ctx.call_id or "")


odd_scalars = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        float("nan"),
        float("inf"),
        "",
        "a",
        "abc",
        "\ud800",
        HIDDEN,
        b"x",
        "REF",
        "art_x",
    ]
)
odd_values = st.recursive(
    odd_scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, 1, None]), inner, max_size=3)
    ),
    max_leaves=6,
)
odd_args = st.one_of(
    odd_scalars,
    st.lists(odd_scalars, max_size=2),
    st.dictionaries(st.sampled_from([*KEYS, 1, None]), odd_values, max_size=5),
)
odd_schemas = st.one_of(
    schemas(),
    st.sampled_from(
        [
            {"properties": {"a": {"$ref": "http://x/y"}, "token": {}, "b": {}}},
            {"properties": {"a": {"pattern": "(?=x)(a+)+$"}, "token": {}, "b": {"type": "string"}}},
            {"properties": {"a": {"$ref": "#"}, "token": {"type": "string"}, "b": {"type": "string"}}},
            {"type": "nonsense", "properties": {"token": {}, "tenant": {}, "a": {}, "b": {}}},
            {"properties": None},
            {},
        ]
    ),
)


@st.composite
def decorated(draw: Any) -> tuple[AnySchema, Tool]:
    """A tool with some decorations, in some order."""
    base = AnySchema(draw(odd_schemas))
    tool: Tool = base
    for how in draw(st.lists(st.sampled_from(["token", "tenant", "wants", "view", "ceiling"]), unique=True)):
        try:
            if how == "token":
                tool = host_filled(tool, {"token": from_credential("crm")})
            elif how == "tenant":
                tool = host_filled(tool, {"tenant": from_identity("tenant")})
            elif how == "wants":
                tool = with_wants(tool, {"b": ROWS})
            elif how == "view":
                keys = draw(st.sampled_from([("a",), ("b", "c")]))
                tool = redacted(tool, RedactionPolicy(keys=keys, patterns=["d$"], deep=True))
            else:
                tool = with_result_ceiling(tool, ResultCeiling(draw(st.integers(1, 300))))
        except TypeError:
            continue  # the argument is not declared, or cannot be taken out: such a tool is not offered
    return base, tool


def hooks_of(kind: str) -> list[Hook]:
    if kind == "puts back":
        return [Hook("h", before=lambda call: Replace({**call.args, "token": "mine", "b": "REF"}))]
    if kind == "breaks":
        return [Hook("h", before=lambda call: Replace({"a": float("nan")}), after=lambda call, result: None)]
    if kind == "rewrites":
        return [Hook("h", after=lambda call, result: Replace({"was": result.text}))]
    return []


anything = given(
    decorated(),
    odd_args,
    st.sampled_from(["none", "puts back", "breaks", "rewrites"]),
    st.sampled_from([{}, {"max_chars": 40}, {"max_inline_chars": 30}]),
    st.sampled_from(["dispatch", "call", "run"]),
)


@settings(max_examples=150)
@anything
def test_a_call_is_always_answered_and_tells_nothing_hidden(
    tools: tuple[AnySchema, Tool], args: Any, hooks: str, limits: dict[str, int], way: str
) -> None:
    assert_answered(tools, args, hooks, limits, way)


def assert_answered(
    tools: tuple[AnySchema, Tool], args: Any, hooks: str, limits: dict[str, int], way: str
) -> str:
    """Make one call by this way; give the code of the answer."""
    base, tool = tools
    codes: list[str] = []

    async def main() -> None:
        store = MemoryArtifacts()
        new = NewArtifact(kind=ROWS, media_type="application/json", data=["x"])
        ref = (await store.put(ALICE, new)).ref
        sent = (
            {key: ref if value == "REF" else value for key, value in args.items()}
            if isinstance(args, dict)
            else args
        )
        async with runtime(
            tools=[tool],
            artifacts=store,
            credentials=StaticCredentials({"crm": SECRET}),
            hooks=hooks_of(hooks),
            results=ResultLimits(**limits),
        ) as here:
            if way == "dispatch":
                result = await here.runtime.dispatch(ALICE, "work", sent)
            elif way == "call":
                result = await (await here.runtime.toolset(ALICE)).call("work", sent)
            else:
                result = await here.runtime.run(ALICE).call("work", sent)
            assert result.code in CODES, (result.code, result.text)
            json.loads(result.raw)
            assert result.is_error == (result.code != "ok")
            assert bool(base.calls) == (result.delivery == "answered"), result.text
            assert result.error is None or result.error.call_id == result.call_id
            one_of_each(here.events)
            if tool.needs is not None or not base.calls:
                # where nobody told the door that it is secret, what a tool says is its own
                spotless(result, list(here.events)[1:], hidden=(SECRET,))
            if not base.calls and HIDDEN not in json.dumps(here.events[0].payload):
                spotless(result, list(here.events), hidden=(HIDDEN,))
            codes.append(result.code)

    try:
        trio.run(main)
    except ValueError as error:
        # an own tool that wants artifacts where it must not; refused when the runtime is opened
        if "wants" in str(error):
            reject()
        raise
    return codes[0]


def test_every_kind_of_answer_comes_up() -> None:
    seen: set[str] = set()

    @settings(max_examples=300, derandomize=True, database=None)
    @anything
    def call(tools: tuple[AnySchema, Tool], args: Any, hooks: str, limits: dict[str, int], way: str) -> None:
        seen.add(assert_answered(tools, args, hooks, limits, way))

    call()
    assert {"ok", "invalid-arguments", "ERR_HOST_FILLED_ARGUMENT", "denied"} <= seen
