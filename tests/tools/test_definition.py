"""`define_tool`: what a function says about itself, and what a definition is refused for."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Annotated, Any, Literal, TypedDict

import attrs
import jsonschema_rs
import msgspec
import pytest
import trio

from afpool import (
    CredentialRequirement,
    Identity,
    InvalidArguments,
    StaleTools,
    ToolContext,
    ToolFailed,
    ToolResult,
)
from afpool.artifacts import MemoryArtifacts, NewArtifact, NoArtifactStoreError, bind_artifacts
from afpool.tools import ResultCeiling, WantsRefusedError, define_tool
from afpool.tools._signature import read_signature

CTX = ToolContext(call_id="c-1")


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


@dataclasses.dataclass
class Filter:
    field: str
    values: list[str] = dataclasses.field(default_factory=list)


async def find(
    query: Annotated[str, "What to look for."],
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10,
    *,
    mode: Mode = Mode.FAST,
    filters: list[Filter] | None = None,
    kind: Literal["a", "b"] = "a",
    anything=None,
    context: ToolContext,
) -> Any:
    """Find documents.

    The second paragraph belongs to it.

    Args:
        query: Not read, since the annotation says more.
        filters (list): What documents must hold,
            all of it.
        kind: One of two.

    Returns:
        Not for a model.
    """
    return {"query": query, "limit": limit, "mode": mode, "filters": filters, "call": context.call_id}


async def run(tool: Any, args: dict[str, Any]) -> ToolResult:
    with trio.fail_after(5):
        return await tool.execute(args, CTX)


def test_a_function_says_what_it_takes() -> None:
    tool = define_tool(find)
    assert tool.name == "find"
    assert tool.description == "Find documents.\n\nThe second paragraph belongs to it."
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
            "mode": {"$ref": "#/$defs/Mode", "default": "fast"},
            "filters": {
                "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Filter"}}, {"type": "null"}],
                "description": "What documents must hold, all of it.",
                "default": None,
            },
            "kind": {"enum": ["a", "b"], "description": "One of two.", "default": "a"},
            "anything": {"default": None},
        },
        "required": ["query"],
        "additionalProperties": False,
        "$defs": {
            "Mode": {"title": "Mode", "enum": ["fast", "slow"]},
            "Filter": {
                "title": "Filter",
                "type": "object",
                "properties": {
                    "field": {"type": "string"},
                    "values": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["field"],
            },
        },
    }
    assert (tool.needs, tool.wants, tool.output_schema, tool.annotations, tool.source) == (None,) * 5


async def test_arguments_are_read_as_the_annotation_says() -> None:
    tool = define_tool(find)
    args = {"query": "x", "limit": 3.0, "mode": "slow", "filters": [{"field": "f"}]}
    assert jsonschema_rs.is_valid(tool.input_schema, args)
    result = await run(tool, args)
    assert result.structured == {
        "query": "x",
        "limit": 3,
        "mode": "slow",
        "filters": [{"field": "f", "values": []}],
        "call": "c-1",
    }
    assert json.loads(result.text) == result.structured
    assert args["limit"] == 3.0


async def test_what_cannot_be_read_is_refused_without_its_value() -> None:
    @define_tool
    def when(mode: Mode) -> str:
        return mode.value

    with pytest.raises(InvalidArguments, match="'mode' cannot be read as Mode") as caught:
        await run(when, {"mode": "secret-value"})
    assert "secret" not in str(caught.value)
    assert caught.value.delivery == "not-sent"


@pytest.mark.parametrize("given", [["no", "object"], "text", None, 7])
async def test_what_is_no_object_is_refused_as_arguments(given: Any) -> None:
    tool = define_tool(find)
    with pytest.raises(InvalidArguments, match=f"a JSON object, not {type(given).__name__}") as caught:
        await run(tool, given)
    assert caught.value.delivery == "not-sent"


async def test_a_decorator_with_and_without_arguments() -> None:
    @define_tool(name="other", description="said", needs="crm", annotations={"readOnlyHint": True})
    async def some(text: str, ctx) -> str:
        """Not this one."""
        return f"{ctx.call_id} {text}"

    @define_tool
    def plain() -> str:
        """Say hello."""
        return "hello"

    assert (some.name, some.description) == ("other", "said")
    assert some.needs == CredentialRequirement("crm")
    assert some.annotations == {"readOnlyHint": True}
    assert some.input_schema["required"] == ["text"]
    assert "ctx" not in some.input_schema["properties"]
    assert (await run(some, {"text": "x"})).text == "c-1 x"
    assert (plain.name, plain.description) == ("plain", "Say hello.")
    assert (await run(plain, {})).text == "hello"


async def test_execute_takes_the_whole_object() -> None:
    seen = []

    def execute(args: Any, ctx: ToolContext) -> Any:
        seen.append((args, ctx.call_id))
        return None

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = define_tool(execute=execute, name="whole", input_schema=schema, description="d")
    args = {"a": 1}
    result = await run(tool, args)
    assert seen == [(args, "c-1")]
    assert seen[0][0] is args
    assert (result.content, result.call_id) == ([], "c-1")
    assert define_tool(execute=execute, name="bare").input_schema == {"type": "object", "properties": {}}


async def test_what_an_annotation_leaves_as_it_is_comes_as_it_was_sent() -> None:
    seen = []

    @define_tool
    def take(any_list: list, any_object: dict, text: str) -> None:  # type: ignore[type-arg]
        seen.append((any_list, any_object, text))

    args = {"any_list": [1, "x"], "any_object": {"a": [None]}, "text": "t"}
    await run(take, args)
    ((one, other, _),) = seen
    assert one is args["any_list"]
    assert other is args["any_object"]


def test_a_default_that_json_cannot_hold_is_a_default_all_the_same() -> None:
    @define_tool
    def take(q: str, marker: Any = object()) -> None: ...  # noqa: B008

    assert take.input_schema["required"] == ["q"]
    assert take.input_schema["properties"]["marker"] == {}


async def test_any_keyword_opens_the_schema() -> None:
    @define_tool
    def free(a: int, **rest: str) -> Any:
        return {"a": a, **rest}

    assert free.input_schema["additionalProperties"] == {"type": "string"}
    assert (await run(free, {"a": 1, "b": "x"})).structured == {"a": 1, "b": "x"}
    assert define_tool(lambda **rest: None, name="any").input_schema["additionalProperties"] is True


async def test_a_function_that_waits_for_nothing_still_passes_a_checkpoint() -> None:
    @define_tool
    def quick() -> str:
        return "done"

    with trio.CancelScope() as scope:
        scope.cancel()
        await quick.execute({}, CTX)
    assert scope.cancelled_caught


async def test_an_awaitable_of_a_plain_function_is_awaited() -> None:
    async def later() -> str:
        await trio.lowlevel.checkpoint()
        return "later"

    assert (await run(define_tool(lambda n: later(), name="l"), {"n": 1})).text == "later"


async def test_a_callable_object_and_a_method() -> None:
    class Maker:
        """Make something."""

        async def __call__(self, n: int) -> int:
            return n + 1

        def method(self, n: int) -> int:
            """Make it otherwise."""
            return n * 2

    assert (await run(define_tool(Maker(), name="maker"), {"n": 1})).text == "2"
    tool = define_tool(Maker().method)
    assert (tool.name, tool.description, (await run(tool, {"n": 4})).text) == (
        "method", "Make it otherwise.", "8",
    )  # fmt: skip


async def test_what_a_function_returns_that_is_no_json_is_said_without_its_value() -> None:
    @define_tool
    def wrong() -> Any:
        return {"a": [object()]}

    with pytest.raises(ToolFailed, match=r"The tool wrong failed.*not JSON at \$\.a\[0\]: object"):
        await run(wrong, {})


async def test_what_a_function_raises_is_the_cause_of_the_failure() -> None:
    @define_tool
    async def broken() -> Any:
        raise StaleTools("of a call inside")

    with pytest.raises(
        ToolFailed, match=r"The tool broken failed .StaleTools.: .*of a call inside"
    ) as caught:
        await run(broken, {})
    # the function has run, whatever the call inside says of itself
    assert caught.value.delivery == "answered"
    assert isinstance(caught.value.__cause__, StaleTools)


def test_what_was_given_and_what_is_read_can_be_changed_without_changing_the_tool() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = define_tool(execute=lambda args, ctx: None, name="t", input_schema=schema, output_schema=schema)
    schema["properties"]["b"] = {}
    tool.input_schema["properties"]["c"] = {}
    assert list(tool.input_schema["properties"]) == ["a"]
    assert tool.output_schema is not None
    assert list(tool.output_schema["properties"]) == ["a"]


def test_wants_are_judged_when_the_tool_is_defined() -> None:
    def rows(data: list[dict[str, int]], n: int = 1) -> None:
        """Count.

        Args:
            data: What is counted.
        """

    tool = define_tool(rows, wants={"data": "dataset/rows"})
    assert tool.wants == {"data": "dataset/rows"}
    # the annotation is that of the data, the schema that of its reference
    assert tool.input_schema["properties"]["data"] == {
        "type": "string",
        "description": "What is counted. The reference of a stored artifact of the kind dataset/rows.",
    }
    assert tool.input_schema["required"] == ["data"]
    for wrong in ({"other": "dataset/rows"}, {}, {"data": " "}, {"n": 3}):
        with pytest.raises(TypeError, match="rows"):
            define_tool(rows, wants=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rows"):
        define_tool(execute=lambda args, ctx: None, name="rows", wants={"data": "k"})


async def test_who_calls_a_tool_directly_passes_references_too() -> None:
    store = MemoryArtifacts()
    who = Identity(tenant="acme")
    meta = await store.put(who, NewArtifact(kind="rows", media_type="application/json", data=[{"n": 1}]))

    @define_tool(wants={"data": "rows"})
    async def count(data: list[dict[str, int]]) -> int:
        return len(data)

    ctx = ToolContext(call_id="c", artifacts=bind_artifacts(store, who))
    assert (await count.execute({"data": meta.ref}, ctx)).text == "1"
    with pytest.raises(WantsRefusedError):
        await count.execute({"data": "art_none"}, ctx)
    with pytest.raises(NoArtifactStoreError):
        await count.execute({"data": meta.ref}, CTX)
    resolved = ToolContext(call_id="c", wanted={"data": meta})
    with pytest.raises(InvalidArguments, match="'data' cannot be read"):
        await count.execute({"data": "not rows"}, resolved)


def positional(a, /): ...
def spread(*items: int): ...
def unwritable(a: complex): ...
def unresolved(a: NoSuchType): ...  # type: ignore[name-defined]  # noqa: F821
def two_contexts(ctx: ToolContext, other: ToolContext): ...
async def generator(n: int):
    yield n


@pytest.mark.parametrize(
    ("error", "says", "declared"),
    [
        (TypeError, "'positional'.*'a' has no name", {"function": positional}),
        (TypeError, "'spread'.*'items' has no name", {"function": spread}),
        (TypeError, "'unwritable'.*annotation of 'a'", {"function": unwritable}),
        (TypeError, "'unresolved'.*'a' cannot be resolved", {"function": unresolved}),
        (TypeError, "'ctx' and 'other' both", {"function": two_contexts}),
        (TypeError, "generator", {"function": generator}),
        (TypeError, "something to call, not int", {"function": 3}),
        (TypeError, "not both", {"function": find, "execute": find}),
        (TypeError, "needs a name", {"execute": find}),
        (ValueError, "a\\.b.*Model providers refuse", {"function": find, "name": "a.b"}),
        (ValueError, "<lambda>", {"function": lambda: None}),
        (TypeError, "'find'.*description is a string", {"function": find, "description": 3}),
        (TypeError, "'find'.*needs", {"function": find, "needs": 3}),
        (TypeError, "'find'.*ResultCeiling", {"function": find, "result_ceiling": 500}),
        (ValueError, "'find'.*result_kind", {"function": find, "result_kind": " "}),
        (TypeError, "'find'.*input_schema is a mapping", {"function": find, "input_schema": True}),
        (ValueError, "'find'.*input_schema.*'type'", {"function": find, "input_schema": {"type": "x"}}),
        (ValueError, "'find'.*leads nowhere", {"function": find, "output_schema": {"$ref": "http://x/y#/z"}}),
        (ValueError, "'find'.*linear", {"function": find, "output_schema": {"pattern": "(?=a)"}}),
        (TypeError, "'find'.*annotations.*not JSON", {"function": find, "annotations": {"a": object()}}),
    ],
)
def test_a_wrong_definition_is_refused_and_the_tool_named(
    error: type[Exception], says: str, declared: dict[str, Any]
) -> None:
    function = declared.pop("function", None)
    with pytest.raises(error, match=says):
        define_tool(*([] if function is None else [function]), **declared)


Renamed = ToolContext


@attrs.define
class NowhereAttrs:
    a: NoSuchType  # type: ignore[name-defined]  # noqa: F821


class NowhereStruct(msgspec.Struct):
    a: NoSuchType  # type: ignore[name-defined]  # noqa: F821


class NowhereDict(TypedDict):
    a: list[NoSuchType]  # type: ignore[name-defined]  # noqa: F821


class FailingStruct(msgspec.Struct):
    a: 1 / 0  # type: ignore[valid-type]


def quoted(a: int, given: "ToolContext"): ...  # noqa: UP037 -- arrives quoted twice
def quoted_of(a: int, given: "afpool.ToolContext"): ...  # type: ignore[name-defined]  # noqa: F821, UP037
def renamed(a: int, given: Renamed): ...
def described(a: int, given: Annotated[ToolContext, "who calls"]): ...
def optional(a: int, given: ToolContext | None = None): ...


def test_words_that_are_nothing_name_no_type() -> None:
    def nothing(a: int) -> None: ...

    for words in ("''", "'\"'", "'"):
        nothing.__annotations__["a"] = words
        with pytest.raises(TypeError, match="annotation of 'a' cannot be resolved"):
            define_tool(nothing)


@pytest.mark.parametrize("function", [quoted, quoted_of, renamed, described, optional])
def test_the_context_is_known_however_its_annotation_is_written(function: Any) -> None:
    schema = define_tool(function).input_schema
    assert (schema["properties"], schema["required"]) == ({"a": {"type": "integer"}}, ["a"])
    assert "$defs" not in schema
    assert read_signature(function, "t").arguments({"a": 1}, CTX) == {"a": 1, "given": CTX}


@pytest.mark.parametrize("kind", [NowhereAttrs, NowhereStruct, NowhereDict, FailingStruct])
def test_a_class_whose_annotations_cannot_be_resolved_is_refused_as_they_are(kind: Any) -> None:
    def takes(one): ...

    takes.__annotations__["one"] = kind
    with pytest.raises(TypeError, match=r"'takes'.*'one' cannot be resolved") as caught:
        define_tool(takes)
    assert isinstance(caught.value.__cause__, NameError | ZeroDivisionError)


@pytest.mark.parametrize("chars", [0, -1, 1.5, True, None, "5"])
def test_a_ceiling_is_a_positive_whole_number(chars: Any) -> None:
    with pytest.raises(ValueError, match="max_chars"):
        ResultCeiling(chars)


def test_a_ceiling_names_arguments() -> None:
    assert ResultCeiling(5, narrow_by=["a"]).narrow_by == ("a",)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sequence"):
        ResultCeiling(5, narrow_by="a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="blank"):
        ResultCeiling(5, narrow_by=(" ",))
