"""Schemas of strangers: compiled once, nothing fetched, and no schema takes the loop for itself."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import jsonschema_rs
import pytest
from hypothesis import assume, given, reject

from afpool import Tool
from afpool._base import compiled as ready
from afpool._base.compiled import Compiled
from afpool._base.schema_cost import MAX_LEVELS, MAX_PER_NODE, Unresolved, cost_of, nodes_and_depth
from afpool.testing import FakeTool
from afpool.tools import _validation as v
from afpool.tools import define_tool, derive
from tests.pool.kit import ALICE, BOB, world


class Schemed(Tool):
    """A tool with any schema at all."""

    __slots__ = ("__weakref__", "output", "schema")

    def __init__(self, schema: Any, output: Any = None) -> None:
        self.schema = schema
        self.output = output

    name = "some"  # type: ignore[assignment]
    description = "d"  # type: ignore[assignment]

    @property
    def input_schema(self) -> Any:
        return self.schema

    @property
    def output_schema(self) -> Any:
        return self.output


def count_compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    compiled: list[Any] = []
    real = jsonschema_rs.validator_for
    monkeypatch.setattr(
        ready.jsonschema_rs, "validator_for", lambda *a, **k: (compiled.append(a[0]), real(*a, **k))[1]
    )
    return compiled


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_a_schema_is_compiled_once_for_all_who_were_listed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compiled(monkeypatch)
    validators = v.Validators()
    async with world(
        tools=[FakeTool("echo", lambda a, b: "x", inputSchema=OBJECT, outputSchema=OBJECT)]
    ) as here:
        for who in (ALICE, BOB, ALICE):
            tool = await here.tool(who)
            assert not validators.of(derive(tool, name="renamed")).allows({"n": "x"})
            output = validators.of_output(tool)
            assert output is not None
            assert output.allows({"n": 1})
    assert compiled == [OBJECT]  # the same text is the same schema, whatever it is for


def test_derived_schemas_are_found_again_by_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compiled(monkeypatch)
    validators = v.Validators()
    base = Schemed({})
    first = validators.of(derive(base, input_schema=dict(OBJECT)))
    assert validators.of(derive(base, input_schema=dict(OBJECT))) is first
    assert len(compiled) == 1
    monkeypatch.setattr(v, "KEPT_BY_TEXT", 3)
    for n in range(10):
        validators.of(derive(base, input_schema={"minProperties": n}))
    gc.collect()
    assert len(validators._by_text) <= 4
    assert len(validators._inputs) == 0


def test_an_output_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    validators = v.Validators()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = define_tool(execute=lambda args, ctx: None, name="count", output_schema=schema)
    compiled = validators.of_output(tool)
    assert compiled is not None
    assert not compiled.allows({"n": "x"})
    monkeypatch.setattr(v, "held_output_schema", None)
    assert validators.of_output(tool) is compiled


def test_a_tool_without_an_output_schema_has_nothing_to_hold_to() -> None:
    validators = v.Validators()
    tool = Schemed({})
    assert validators.of_output(tool) is None
    assert validators.of_output(derive(tool, output_schema=OBJECT)) is not None
    assert validators.of_output(derive(Schemed({}, OBJECT), output_schema=None)) is None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "leads nowhere"),
        ({"type": "nonsense"}, "no valid schema at 'type'"),
        ({"properties": None}, "no valid schema at 'properties'"),
        ({"$schema": "https://example.com/unknown", "type": "object"}, "nothing is fetched"),
        ({"patternProperties": {"[": {}, "a": 3}}, "no valid schema"),
        ({"$ref": "#"}, "cannot be followed to an end"),
        (
            {
                "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}},
                "properties": {"x": {"$ref": "#/$defs/a"}},
            },
            "cannot be followed to an end",
        ),
    ],
)
def test_a_schema_that_cannot_be_compiled_disables_it_with_one_warning(
    schema: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    validators = v.Validators()
    with caplog.at_level(logging.WARNING, "afpool"):
        for tool in (Schemed(schema), Schemed(schema), derive(Schemed({}), input_schema=schema)):
            assert validators.of(tool).allows({"anything": ["goes"]})
    assert len(caplog.records) == 1
    assert "not validated" in caplog.text
    assert why in caplog.text


def test_a_pattern_that_cannot_be_matched_in_linear_time_is_left_out_and_the_rest_holds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = {
        "properties": {
            "pattern": {"type": "string", "pattern": r"^(?!x)y", "minLength": 2},
            "b": {"pattern": "^b", "enum": [{"pattern": "(?=kept)"}, "b1"]},
        },
        "required": ["pattern"],
    }
    validators = v.Validators()
    with caplog.at_level(logging.WARNING, "afpool"):
        compiled = validators.of(Schemed(schema))
    assert "validated without them" in caplog.text
    assert "(?!x)y" in caplog.text
    assert compiled.allows({"pattern": "xx", "b": "b1"})
    assert not compiled.allows({"pattern": "x"})
    assert not compiled.allows({"pattern": "xx", "b": "a"})
    assert not compiled.allows({})
    assert schema["properties"]["pattern"]["pattern"] == r"^(?!x)y"


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(a?){60}a{60}$", r"(a*)*b", r"^(\w+\s?)*$"])
def test_a_catastrophic_pattern_is_matched_in_linear_time(pattern: str) -> None:
    compiled = Compiled({"properties": {"q": {"pattern": pattern}}})
    assert compiled.problem is None
    # a matcher that goes back would not return within the life of the universe
    assert not compiled.allows({"q": "a" * 30_000 + "!"})


DRAFT4 = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "properties": {"n": {"type": "integer", "minimum": 3, "exclusiveMinimum": True}},
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (DRAFT4, {"n": 4}, {"n": 3}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": None}, {"c": 1}),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"a": None}, {"a": 1}),
        (
            {"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": {"type": "string"}}},
            {"a": ""}, {"a": 1},
        ),
        ({"allOf": [{"type": "object"}, {"not": {}}]}, None, {}),
        (
            {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
            {"next": {"next": {}}}, {"next": {"x": 1}},
        ),
        ({}, {"any": "thing"}, None),
    ],
    ids=["draft-04", "anyOf", "null", "ref", "contradictory", "recursive", "empty"],
)  # fmt: skip
def test_dialects_and_forms(schema: Any, good: Any, bad: Any) -> None:
    compiled = Compiled(schema)
    assert compiled.problem is None
    assert good is None or compiled.allows(good)
    assert bad is None or not compiled.allows(bad)


def test_a_schema_of_five_megabytes() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "x" * 100} for n in range(36_000)},
    }
    validators = v.Validators()
    tool = derive(Schemed({}), input_schema=schema)
    assert validators.of(tool).allows({"p1": "a"})
    assert not validators.of(tool).allows({"p35999": 1})


# ---------------------------------------------------------------------------- what a schema may cost


def doubling(levels: int, inner: str = "anyOf") -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"d{n}": {inner: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    defs[f"d{levels}"] = {"type": "integer"}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


TWICE = {"anyOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]}
LEFT_OVER = {
    "$defs": {
        "n": {"allOf": [{"properties": {"x": {"$ref": "#/$defs/n"}}}], "unevaluatedProperties": False},
    },
    "$ref": "#/$defs/n",
}


def nested(levels: int, leaf: Any = "leaf") -> Any:
    value: Any = leaf
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize("inner", ["anyOf", "oneOf", "allOf"])
def test_references_that_double_at_every_step_are_never_followed(
    inner: str, caplog: pytest.LogCaptureFixture
) -> None:
    # followed, 60 steps would take longer than anybody waits
    schema = doubling(60, inner)
    compiled = Compiled({"properties": {"y": schema}, "$defs": schema.pop("$defs")})
    assert compiled.too_costly({"y": {"x": "not an integer"}}) is not None
    assert not compiled.allows({"y": {"x": "not an integer"}})
    assert compiled.allows({"y": 1})
    with caplog.at_level(logging.WARNING, "afpool"):
        assert v.Validators().of(Schemed(doubling(60, inner))).allows({"x": "not an integer"})
    assert "many thousand times" in caplog.text


def test_what_is_left_over_doubles_without_any_reference() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(60):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    compiled = Compiled({"properties": {"x": {"properties": {"y": schema}}}})
    assert compiled.too_costly({"x": {"y": {"a": 1}}}) is not None
    assert not compiled.allows({"x": {"y": {"a": 1}}})


@pytest.mark.parametrize("schema", [TWICE, LEFT_OVER], ids=["tried twice", "left over"])
def test_a_tree_that_doubles_with_its_depth_takes_values_of_some_depth(schema: dict[str, Any]) -> None:
    compiled = Compiled(schema)
    assert compiled.allows(nested(5, {}))
    assert not compiled.allows(nested(200, {}))
    said = compiled.too_costly(nested(200, {}))
    assert said is not None
    assert "nested deeper than" in said


def test_a_value_of_many_nodes_is_refused_where_each_is_dear() -> None:
    schema = {"properties": {"x": {"items": {"$ref": "#/$defs/d0"}}}, "$defs": doubling(10)["$defs"]}
    compiled = Compiled(schema)
    assert compiled.allows({"x": [1] * 10})
    assert "more than can be checked" in str(compiled.too_costly({"x": [1] * 10_000}))
    assert not compiled.allows({"x": [1] * 10_000})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}, "next": {"$ref": "#"}}},
        {
            "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": "object"}},
        },
        {"properties": {"f": {"$ref": "#/$defs/f"}}, "$defs": {"f": {"anyOf": [
            {"properties": {"and": {"items": {"$ref": "#/$defs/f"}}}, "required": ["and"]},
            {"properties": {"or": {"items": {"$ref": "#/$defs/f"}}}, "required": ["or"]},
            {"properties": {"not": {"$ref": "#/$defs/f"}}, "required": ["not"]},
            {"properties": {"eq": {"type": "string"}}, "required": ["eq"]},
        ]}}},
        {
            "$id": "https://x/y",
            "$defs": {"a": {"$anchor": "here", "type": "object"}},
            "properties": {"p": {"$ref": "#here"}, "q": {"$ref": "https://x/y#/$defs/a"}},
        },
    ],
    ids=["tree", "shared", "filter", "names"],
)  # fmt: skip
def test_usual_references_are_followed_to_five_hundred_levels(schema: dict[str, Any]) -> None:
    compiled = Compiled(schema)
    assert compiled.problem is None
    assert compiled.cost is None or (compiled.cost.per_node < 64 and compiled.cost.max_depth == MAX_LEVELS)
    deep: Any = {}
    for _ in range(500):
        deep = {"next": deep, "not": deep} if deep == {} else {"next": deep}
    assert compiled.allows(deep)
    wide = {"next": [{} for _ in range(400_000)]}
    assert compiled.allows(wide), "what is cheap for each node is no question of how many there are"


def wrapped(schema: dict[str, Any], word: str, times: int) -> dict[str, Any]:
    for _ in range(times):
        schema = {word: [schema]}
    return schema


LINE = {"properties": {"x": {"$ref": "#"}}, "items": {"$ref": "#"}}
CHAIN = {
    "$defs": {
        **{f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(200)},
        "d200": {"properties": {"x": {"$ref": "#/$defs/d0"}}},
    },
    "$ref": "#/$defs/d0",
}
IN_PROCESS_OF_ITS_OWN = """
import json, sys
from afpool._base.compiled import Compiled
schema, levels = json.loads(sys.argv[1]), int(sys.argv[2])
for wrap in (lambda value: {"x": value}, lambda value: [value]):
    value = 1
    for _ in range(levels):
        value = wrap(value)
    compiled = Compiled(schema)
    assert compiled.problem is None
    print(compiled.allows(value), compiled.too_costly(value))
    sys.stdout.flush()
import os
os._exit(0)  # a value that deep is better left than taken apart
"""


@pytest.mark.parametrize(
    ("schema", "levels"),
    [
        ({"properties": {"x": {"$ref": "#"}}}, 100_000),
        ({"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}, 100_000),
        (LINE, 100_000),
        (CHAIN, 500),
        (wrapped(LINE, "allOf", 50), 4_000),
        (wrapped({"properties": {"x": {"$dynamicRef": "#"}}}, "oneOf", 50), 4_000),
    ],
    ids=["members", "items", "both", "chain", "allOf", "oneOf"],
)
def test_a_value_that_a_stack_does_not_hold_is_never_shown_to_the_validator(
    schema: dict[str, Any], levels: int
) -> None:
    # shown to it, it ends the process; so it is asked in one of its own
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS_OF_ITS_OWN, json.dumps(schema), str(levels)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "False nested deeper than" in done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_schemas_that_come_to_an_end_bound_no_value() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"properties": {"x": {"$ref": "#/$defs/x"}}}},
        "$defs": {"x": {"properties": {"y": {"$ref": "#/$defs/z"}}}, "z": {"properties": {"y": {}}}},
    }
    compiled = Compiled(schema)
    assert (compiled.problem, compiled.cost) == (None, None)
    assert compiled.allows({"a": {"y": {"y": nested(5_000)}}})


def test_a_long_schema_is_counted_in_time_that_grows_with_its_length() -> None:
    schema = {
        "properties": {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(2_000)},
        "$defs": {f"d{n}": {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(2_000)},
    }
    schema["$defs"]["d2000"] = {"type": "integer"}
    compiled = Compiled(schema)
    assert compiled.problem is None
    assert not compiled.allows({"p1999": {"x": "no integer"}})


SMALL = st.recursive(
    st.sampled_from([{}, {"type": "integer"}, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]),
    lambda inner: st.one_of(
        st.builds(
            lambda key, parts: {key: parts},
            st.sampled_from(["anyOf", "allOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda key, part: {"properties": {key: part}}, st.sampled_from(["x", "y"]), inner),
        st.builds(
            lambda key, part: {key: part}, st.sampled_from(["items", "additionalProperties", "not"]), inner
        ),
    ),
    max_leaves=8,
)


def times(place: Any, value: Any, root: Any) -> int:
    """Count how often a validator that never stops early would apply a place to a node."""
    spent = 1
    for part in [*place.get("anyOf", ()), *place.get("allOf", ()), *place.get("oneOf", ())]:
        spent += times(part, value, root)
    if "not" in place:
        spent += times(place["not"], value, root)
    if "$ref" in place:
        name = place["$ref"].rpartition("/")[2]
        spent += times(root if name == "#" else root["$defs"][name], value, root)
    if isinstance(value, dict):
        properties = place.get("properties", {})
        spent += sum(times(part, value[key], root) for key, part in properties.items() if key in value)
        if "additionalProperties" in place:
            others = [member for key, member in value.items() if key not in properties]
            spent += sum(times(place["additionalProperties"], member, root) for member in others)
    if isinstance(value, list) and "items" in place:
        spent += sum(times(place["items"], member, root) for member in value)
    return spent


VALUES = st.recursive(
    st.integers(0, 1),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(SMALL, SMALL, SMALL, VALUES)
def test_what_was_counted_bounds_what_a_validator_does(root: Any, a: Any, b: Any, value: Any) -> None:
    schema = {**root, "$defs": {"a": a, "b": b}}
    try:
        cost = cost_of(schema)
    except Unresolved:
        reject()
    nodes, depth = nodes_and_depth(value, 100)
    assume(cost.max_depth is None or depth <= cost.max_depth)
    assert times(schema, value, schema) <= nodes * cost.per_node


def test_a_reference_that_leads_nowhere_is_not_counted() -> None:
    for wrong in ("#/nowhere", "#/items/x", "other.json", "#name", "other#/x", "#/required/9", 3):
        with pytest.raises(Unresolved):
            cost_of({"items": [], "required": ["a"], "$ref": wrong})
    assert cost_of({"required": [{"type": "object"}], "$ref": "#/required/0"}).max_depth is None
    assert MAX_PER_NODE > 64


def test_nodes_and_levels() -> None:
    assert nodes_and_depth(3, 10) == (1, 0)
    assert nodes_and_depth({}, 10) == (1, 0)
    assert nodes_and_depth({"a": [1, 2], "b": 3}, 10) == (7, 2)
    assert nodes_and_depth(nested(50), 5)[1] == 6


async def test_a_definition_of_the_hosts_own_is_compiled_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = count_compiled(monkeypatch)
    define_tool(execute=lambda args, ctx: None, name="t", input_schema=OBJECT)
    assert len(compiled) == 1
