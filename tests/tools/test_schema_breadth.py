"""Schemas that refer to nothing and are dear all the same: by their breadth, and by the faults they find."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import jsonschema_rs
import pytest
from hypothesis import example, given, settings

from afpool._base.compiled import Compiled
from afpool._base.schema_cost import MAX_WORK, cost_of
from afpool.tools._correction import correction

MANY = 20_000
WIDE = {
    "alternatives": {"anyOf": [{"const": number} for number in range(MANY)]},
    "all of them": {"allOf": [{"minimum": -number} for number in range(MANY)]},
    "dependencies": {"dependentRequired": {f"k{number}": ["z"] for number in range(MANY)}},
    "choices of objects": {"enum": [{"x": number} for number in range(MANY)]},
}
ITEMS = {
    "alternatives": MANY - 1,
    "all of them": 3,
    "dependencies": {},
    "choices of objects": {"x": MANY - 1},
}


def listed(schema: Any) -> dict[str, Any]:
    return {"properties": {"a": {"items": schema}}}


@pytest.mark.parametrize("which", WIDE)
def test_a_wide_schema_meets_no_long_list(which: str) -> None:
    compiled = Compiled(listed(WIDE[which]))
    assert compiled.validator is not None
    short: Any = {"a": [ITEMS[which]] * 5}
    assert compiled.allows(short)
    long: Any = {"a": [ITEMS[which]] * 10_000}
    assert not compiled.allows(long)
    said = correction("t", long, long, compiled)
    assert "more than can be checked against this schema" in said
    # the same values where the schema is not wide are no matter
    assert compiled.allows({"a": [ITEMS[which]], "b": [ITEMS[which]] * 10_000})


def test_a_wide_place_is_dear_only_where_it_stands() -> None:
    compiled = Compiled({"properties": {"icon": WIDE["alternatives"], "rows": {"type": "array"}}})
    assert compiled.cost is not None
    rows = list(range(100_000))
    assert compiled.allows({"icon": 3, "rows": rows})
    assert not compiled.allows({"icon": -3, "rows": rows})


_LEAVES = st.sampled_from([1, "x", None, {}, [], {"a": 1}])
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=12,
)


@st.composite
def _schemas(draw: Any, depth: int = 3) -> Any:
    if depth == 0:
        return {"type": "integer"}
    inner = _schemas(depth - 1)
    return {
        key: draw(value)
        for key, value in {
            "allOf": st.lists(inner, min_size=1, max_size=4),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "items": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
        }.items()
        if draw(st.booleans())
    }


def applications(schema: Any, value: Any) -> int:
    """How often a place meets a node, if nothing is left out."""
    total = 1 + sum(applications(one, value) for one in schema.get("allOf", ()))
    if isinstance(value, dict):
        for name, member in value.items():
            if name in schema.get("properties", {}):
                total += applications(schema["properties"][name], member)
            for pattern, one in schema.get("patternProperties", {}).items():
                total += applications(one, member) if pattern.strip("^") == name else 0
    elif isinstance(value, list) and "items" in schema:
        total += sum(applications(schema["items"], one) for one in value)
    return total


@settings(max_examples=60)
@given(_schemas(), _VALUES)
def test_the_work_of_a_value_is_never_counted_too_low(schema: Any, value: Any) -> None:
    assert cost_of(schema, float("inf")).work(value) >= applications(schema, value)


def test_work_is_counted_as_far_as_it_matters() -> None:
    cost = cost_of(listed(WIDE["all of them"]), float("inf"))
    assert MAX_WORK < cost.work({"a": [1] * 100_000}) <= MAX_WORK + MANY + 1


# ---------------------------------------------------------------------------- telling what is wrong

_TELL = """
import json, resource, sys
from afpool._base.compiled import Compiled
from afpool.tools._correction import correction
schema, value = json.load(sys.stdin)
compiled = Compiled(schema)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
limit = (before << 10) + (400 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
assert not compiled.allows(value)
print(correction("t", value, value, compiled))
"""
DEAR = {
    "alternatives": (listed({"anyOf": [{"const": n} for n in range(2_000)]}), {"a": [-1] * 1_900}),
    "alternatives with names": (
        listed({"oneOf": [{"type": "object", "required": [f"x{n}"]} for n in range(2_000)]}),
        {"a": [{}] * 1_900},
    ),
    "missing names": (listed({"required": [f"k{n}" for n in range(MANY)]}), {"a": [{}] * 1_900}),
    "a long text that is copied": (
        {"properties": {"a": {}}, "required": [f"k{n}" for n in range(200)]},
        {"a": "x" * 10_000_000},
    ),
    "choices": (listed({"enum": [f"s{n}" for n in range(MANY)]}), {"a": ["t"] * 1_900}),
    "many items": (listed({"type": "string"}), {"a": [1] * 500_000}),
}


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("alternatives", "a[0]: none of 2000 alternatives allows it"),
        ("alternatives with names", "a[0]: none of 2000 alternatives allows it"),
        ("missing names", "a[0].k0: required but missing"),
        ("a long text that is copied", "k0: required but missing"),
        ("choices", 'a[0]: expected one of "s0", "s1"'),
        ("many items", "a[0]: expected string, got integer"),
    ],
)
def test_faults_are_told_in_little_memory(which: str, says: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _TELL],
        input=json.dumps(DEAR[which]), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-2_000:]
    assert says in told.stdout
    assert len(told.stdout) < 4_000


def test_a_value_that_the_validator_cannot_read_is_refused_in_words() -> None:
    compiled = Compiled({"properties": {"q": {"type": "string"}}, "additionalProperties": False})
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    for args, says in (
        ({"d": deep}, "nested too deeply to be checked"),
        ({"q": 1, "d": deep}, "nested too deeply to be checked"),
    ):
        assert not compiled.allows(args)
        assert says in correction("t", args, args, compiled)


def test_a_value_that_the_validator_cannot_compare_is_refused_in_words() -> None:
    compiled = Compiled({"properties": {"d": {"uniqueItems": True}}})
    one, other = 1, 2  # type: Any, Any
    for _ in range(300):
        one, other = [one], [other]
    args = {"d": [one, other]}
    assert not compiled.allows(args)
    assert "nested too deeply to be checked" in correction("t", args, args, compiled)


LARGE = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "mode": {"oneOf": [{"const": "a"}, {"const": "b"}]},
        "more": {"allOf": [{"minProperties": 2}], "additionalProperties": {"type": "integer"}},
    },
    "required": ["rows", "mode"],
    "additionalProperties": False,
    "$defs": {
        "row": {
            "type": "object", "required": ["id"], "additionalProperties": False,
            "properties": {"id": {"type": "integer"}, "at": {"pattern": "^a"}},
        }
    },
}  # fmt: skip


NEAREST = 'mode: none of 2 alternatives allows it; the nearest: mode: expected "a", got string "c"'


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"rows": [{"id": 1}] * 50_000}, ["mode: required but missing"]),
        ({"rows": [{"id": 1}] * 50_000, "mode": "c"}, [NEAREST]),
        (
            {"rows": [{"id": 1}] * 50_000 + [{"id": "x"}], "mode": "a", "more": {"x": "y"}},
            ["more: expected at least 2 members, got object", "more.x: expected integer, got string"],
        ),
        (
            {
                "rows": [{"id": 1, "at": "b"}, {}, {"id": 1, "z": 1}] + [{"id": 1}] * 50_000,
                "mode": "a",
                "y": 1,
            },
            [
                'the arguments: not known: "y"; known are "rows", "mode", "more"',
                'rows[0].at: expected a string that matches ^a, got string "b"',
                "rows[1].id: required but missing",
                'rows[2]: not known: "z"; known are "id", "at"',
            ],
        ),
    ],
)
def test_large_arguments_are_corrected_place_by_place(args: Any, says: list[str]) -> None:
    compiled = Compiled(LARGE)
    assert not compiled.allows(args)
    lines = [line.removeprefix("- ") for line in correction("t", args, args, compiled).splitlines()[1:-1]]
    assert lines == says


def test_hidden_values_are_not_quoted_of_large_arguments_either() -> None:
    compiled = Compiled(LARGE)
    args = {"rows": [{"id": 1, "at": "s3cret"}] + [{"id": 1}] * 50_000, "mode": "a"}
    assert "s3cret" in correction("t", args, args, compiled)
    said = correction("t", args, {**args, "rows": "REDACTED"}, compiled)
    assert "s3cret" not in said
    assert "rows[0].at: expected a string that matches ^a, got string" in said


# ---------------------------------------------------------------------------- patterns that are left out

BAD = "(?=x)x"  # what the other engine, which goes back and forth, does match


@st.composite
def _patterned(draw: Any, depth: int = 3) -> Any:
    patterns = st.sampled_from([BAD, "^x", "y$", f"^{BAD}"])
    place: dict[str, Any] = {}
    chosen = draw(
        st.sets(
            st.sampled_from(
                ["pattern", "not", "if", "oneOf", "anyOf", "properties", "patternProperties", "contains",
                 "additionalProperties", "unevaluatedProperties", "$ref", "propertyNames", "type"]
            ),
            max_size=3,
        )
    )  # fmt: skip
    inner = _patterned(depth - 1) if depth else st.builds(lambda pattern: {"pattern": pattern}, patterns)
    for key in sorted(chosen):
        if key == "pattern":
            place[key] = draw(patterns)
        elif key in ("not", "contains", "propertyNames"):
            place[key] = draw(inner)
            if key == "contains":
                place["maxContains"] = 1
        elif key == "if":
            place |= {"if": draw(inner), "then": draw(inner), "else": draw(inner)}
        elif key in ("oneOf", "anyOf"):
            place[key] = draw(st.lists(inner, min_size=1, max_size=3))
        elif key == "properties":
            place[key] = draw(st.dictionaries(st.sampled_from(["x", "not"]), inner, max_size=2))
        elif key == "patternProperties":
            place[key] = draw(st.dictionaries(patterns, inner, max_size=2))
        elif key in ("additionalProperties", "unevaluatedProperties"):
            place[key] = draw(st.one_of(st.just(False), inner))
        elif key == "$ref":
            place[key] = "#/$defs/d"
        else:
            place[key] = draw(st.sampled_from(["object", "string"]))
    return place


@given(
    _patterned(),
    st.sampled_from([{"pattern": BAD}, {"pattern": "^x"}, {"patternProperties": {BAD: {"type": "string"}}}]),
    st.recursive(
        st.sampled_from(["x", "y", "xy", "", 1]),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)
        ),
        max_leaves=6,
    ),
)
@example({"not": {"pattern": BAD}}, {}, "y")
@example({"oneOf": [{"pattern": BAD}, {"pattern": "y"}]}, {}, "y")
@example({"if": {"pattern": BAD}, "then": False}, {}, "y")
@example({"patternProperties": {BAD: {}}, "additionalProperties": False}, {}, {"x": 1})
@example({"not": {"$ref": "#/$defs/d"}}, {"pattern": BAD}, "y")
def test_what_is_left_of_a_schema_is_never_stricter_than_the_whole(
    place: Any, shared: Any, value: Any
) -> None:
    schema = {"properties": {"a": place}, "$defs": {"d": shared, "keep": {"pattern": BAD}}}
    compiled = Compiled(schema)
    if compiled.validator is None:
        return
    whole = jsonschema_rs.validator_for(schema, pattern_options=jsonschema_rs.FancyRegexOptions())
    if whole.is_valid({"a": value}):
        assert compiled.allows({"a": value})
