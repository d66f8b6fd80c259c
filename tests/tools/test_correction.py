"""What a model reads about arguments that were refused: enough to do it right, and nothing that is hidden."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import jsonschema_rs
import pytest
from hypothesis import given

from afpool._base.compiled import Compiled
from afpool.tools._correction import MAX_EXCERPT, MAX_ISSUES, correction, issues_of, quoted, type_name
from afpool.tools._correction_large import faults_of_large

SCHEMA = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "pattern": "^[a-z]+$", "description": "lower case \n letters"},
        "n": {"type": "integer", "minimum": 3, "multipleOf": 2},
        "mode": {"enum": ["fast", "slow"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3, "uniqueItems": True},
        "when": {"type": "object", "properties": {"a b": {"const": 1}}, "minProperties": 1},
        "f": {
            "anyOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"type": "array", "items": {"type": "integer"}},
            ]
        },
    },
    "required": ["q"],
    "additionalProperties": False,
}
COMPILED = Compiled(SCHEMA)
BEGIN = "The arguments for search are invalid, and the tool was not run:"
END = "Correct them and call again."


def issues(args: Any, shown: Any = None, compiled: Compiled = COMPILED) -> list[str]:
    assert not compiled.allows(args)
    lines = correction("search", args, args if shown is None else shown, compiled).splitlines()
    assert (lines[0], lines[-1]) == (BEGIN, END)
    return [line.removeprefix("- ") for line in lines[1:-1]]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, ["q: required but missing"]),
        ({"q": None}, ["q: expected string, got null"]),
        ({"q": "A"}, ['q: expected a string that matches ^[a-z]+$, got string "A" (lower case letters)']),
        (
            {"q": "a", "n": 1},
            ["n: expected at least 3, got integer", "n: expected a multiple of 2, got integer"],
        ),
        ({"q": "a", "n": 1.5}, None),
        ({"q": "a", "mode": "x"}, ['mode: expected one of "fast", "slow", got string "x"']),
        ({"q": "a", "tags": ["x", 1]}, ["tags[1]: expected string, got integer"]),
        ({"q": "a", "tags": ["x", "x"]}, ["tags: expected items that differ, got array"]),
        ({"q": "a", "tags": list("abcd")}, ["tags: expected at most 3 items, got array"]),
        ({"q": "a", "when": {}}, ["when: expected at least 1 members, got object"]),
        ({"q": "a", "when": {"a b": 2}}, ['when["a b"]: expected 1, got integer']),
        (
            {"q": "a", "x": 1, "y": 2},
            ['the arguments: not known: "x", "y"; known are "q", "n", "mode", "tags", "when", "f"'],
        ),
        (
            {"q": "a", "f": {"a": 1}},
            ["f: none of 2 alternatives allows it; the nearest: f.a: expected string, got integer"],
        ),
    ],
)  # fmt: skip
def test_each_issue_says_where_what_was_expected_and_what_came(args: Any, says: list[str] | None) -> None:
    said = issues(args)
    if says is not None:
        assert said == says


def test_more_than_one_alternative() -> None:
    compiled = Compiled({"properties": {"a": {"oneOf": [{"type": "integer"}, {"minimum": 1}]}}})
    assert issues({"a": 2}, compiled=compiled) == ["a: more than one of the 2 alternatives of oneOf allow it"]


def test_the_arguments_may_be_no_object() -> None:
    assert issues([1]) == ["the arguments: expected object, got array"]


def test_at_most_ten_issues() -> None:
    schema = {"additionalProperties": {"type": "string"}}
    said = issues({f"k{n}": n for n in range(40)}, compiled=Compiled(schema))
    assert len(said) == MAX_ISSUES + 1
    assert said[-1] == "and more of the kind"


@pytest.mark.parametrize("count", [500, 10_000])
def test_ten_thousand_keys_are_a_short_correction(count: int) -> None:
    said = correction("search", {f"k{n}": n for n in range(count)}, {}, COMPILED)
    assert len(said) < 2_000
    assert 'the arguments: not known: "k0"' in said
    assert f"and {count - 10} more" in said


def test_names_paths_and_values_of_any_length_are_cut() -> None:
    args = {"q": "A" * 1_000_000, "x" * 1_000_000: 1, "tags": [{"y": 1}]}
    said = issues(args)
    assert all(len(issue) < 400 for issue in said)
    assert f'got string "{"A" * 80}…"' in said[[issue.startswith("q:") for issue in said].index(True)]
    deep: Any = {"a": "x"}
    for _ in range(200):
        deep = {"a": deep}
    compiled = Compiled({"$ref": "#/$defs/n", "$defs": {"n": {"additionalProperties": {"anyOf": [
        {"type": "object", "$ref": "#/$defs/n"}]}}}})  # fmt: skip
    assert all(len(issue) < 1_000 for issue in issues(deep, compiled=compiled))


@pytest.mark.parametrize("key", ["q", "mode"])
def test_of_a_hidden_argument_only_the_type_is_said(key: str) -> None:
    args = {"q": "a", "mode": "fast", key: "SECRET-value"}
    assert "SECRET" in "".join(issues(args))
    for hidden in ({**args, key: "REDACTED"}, {}, {**args, key: "SECRET-value "}):
        said = "".join(issues(args, hidden))
        assert "SECRET" not in said
        assert "got string" in said


def test_of_a_value_inside_an_argument_that_is_hidden_whole_nothing_is_said() -> None:
    compiled = Compiled({"properties": {"p": {"properties": {"token": {"maxLength": 3}}}}})
    args = {"p": {"token": "SECRET"}}
    assert "SECRET" in "".join(issues(args, compiled=compiled))
    assert "SECRET" not in "".join(issues(args, {"p": "REDACTED"}, compiled=compiled))
    assert "SECRET" not in "".join(issues(args, {"p": {"token": "REDACTED"}}, compiled=compiled))


class NeverAsked:
    """Stands for a validator that would make all faults of a value before it gives one."""

    def iter_errors(self, value: Any) -> Any:
        raise AssertionError("asked for every fault at once")


def test_of_many_alternatives_for_many_members_not_every_fault_is_made() -> None:
    words = [{"const": f"choice {number}"} for number in range(300)]
    compiled = Compiled({"additionalProperties": {"anyOf": [*words, {"type": "string", "maxLength": 3}]}})
    args = {f"m{number}": "wrong" for number in range(60)}
    assert not compiled.allows(args)
    compiled.validator = NeverAsked()
    said = [issue.said for issue in issues_of(args, {**args, "m1": "REDACTED"}, compiled)]
    nearest = "none of 301 alternatives allows it; the nearest: "
    assert said[0] == f'm0: {nearest}m0: expected "choice 0", got string "wrong"'
    assert said[1] == f'm1: {nearest}m1: expected "choice 0", got string'
    assert said[9] == "m9: none of 301 alternatives allows it", "as long as all that is asked takes little"
    assert said[10] == "and more of the kind"


def test_where_the_plain_part_says_nothing_one_fault_has_to_do() -> None:
    words = [{"const": f"choice {number}"} for number in range(300)]
    compiled = Compiled({"patternProperties": {"^m": {"anyOf": words}}})
    nearest = "none of 300 alternatives allows it; the nearest: "
    args = {f"m{number:02}": "wrong" for number in range(60)}
    assert issues(args, compiled=compiled) == [f'm00: {nearest}m00: expected "choice 0", got string "wrong"']


def test_what_is_too_costly_says_so() -> None:
    twice = {"anyOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]}
    deep: Any = {}
    for _ in range(60):
        deep = {"x": deep}
    (said,) = issues(deep, compiled=Compiled(twice))
    assert said.startswith("the arguments: nested deeper than")


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["q", "n", "mode", "tags", "when", "f", "x"]), JSON))
def test_whatever_is_sent_the_correction_is_bounded_and_quotes_nothing_hidden(args: dict[str, Any]) -> None:
    if COMPILED.allows(args):
        return
    said = correction("search", args, dict.fromkeys(args, "REDACTED"), COMPILED)
    assert len(said) < 4_000
    for issue in said.splitlines()[1:-1]:
        assert "got string " not in issue.replace("got string (", "")


@given(JSON)
def test_the_type_that_is_said_is_one_that_the_value_has(value: Any) -> None:
    assert jsonschema_rs.is_valid({"type": type_name(value)}, value)


def test_quoting_never_fails() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert quoted(cycle) == "array"
    assert quoted({1: object()}) == "object"
    assert quoted("\ud800") == '"�"'
    assert type_name(object()) == "nothing"


def test_a_quotation_is_cut_beyond_its_length_and_no_sooner() -> None:
    text = "x" * MAX_EXCERPT
    assert quoted(text) == f'"{text}"'
    assert quoted(text + "y") == f'"{text}…"'


# ---------------------------------------------------------------------------- large ones, place by place

PLACES = {
    "type": "object",
    "required": ["q", 3],
    "additionalProperties": False,
    "properties": {
        "q": {"type": "string", "maxLength": 3},
        "open": {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        "odd": {"patternProperties": {"^x": {}}, "additionalProperties": {"type": "string"}},
        "rows": {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
        "both": {"allOf": [{"minimum": 3}, {"maximum": 1}]},
        "by": {"$ref": "#/$defs/a~1b"},
        "away": {"$ref": "https://example.org/other"},
        "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "named": {"anyOf": [{"$ref": "#/$defs/a~1b"}, {"type": "string"}]},
        "shut": {"patternProperties": {"^x": {}}, "additionalProperties": False},
        "flag": True,
    },
    "$defs": {"a/b": {"enum": [1, 2]}},
}


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"q": "abc"}, []),
        ({"q": "abcd"}, [(["q"], "maxLength")]),
        ({"q": 1}, [(["q"], "type")]),
        ({}, [(["q"], "required")]),
        ({"q": "a", "w": 1, "v": 2}, [([], "additionalProperties")]),
        ({"q": "a", "open": {"a": "x", "b": "x"}}, [(["open", "a"], "type")]),
        ({"q": "a", "open": {"a": 1, "b": 2}}, [(["open", "b"], "type")]),
        ({"q": "a", "odd": {"b": 2}}, []),  # which of the patterns it meets is not looked at
        ({"q": "a", "rows": [1, 2, "x"]}, [(["rows", 2], "type")]),
        ({"q": "a", "rows": "abc"}, []),
        ({"q": "a", "both": 2}, [(["both"], "minimum"), (["both"], "maximum")]),
        ({"q": "a", "by": 3}, [(["by"], "enum")]),
        ({"q": "a", "by": 2, "away": 3, "flag": {}}, []),
        ({"q": "a", "any": 1}, []),
        ({"q": "a", "any": []}, [(["any"], "anyOf")]),
        ({"q": "a", "named": 2}, []),
        ({"q": "a", "named": 3}, [(["named"], "anyOf")]),
        ({"q": "a", "shut": {"xa": 1}}, []),  # likewise
    ],
)
def test_what_is_walked_is_found_at_its_place(args: Any, found: Any) -> None:
    assert [(fault.path, fault.word) for fault in faults_of_large(args, PLACES)] == found
