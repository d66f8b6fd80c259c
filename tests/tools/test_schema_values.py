"""What a schema demands of the value that the host fills in decides which of its branches are left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.schemas import SCHEMA_URI, validator
from tests.tools.test_schema_cut import cut, why, with_token, without

A = {"pattern": "^a"}


def demands(value: Any, **more: Any) -> dict[str, Any]:
    """A branch with a demand on the filled argument's value."""
    return {"properties": {"token": value}, **more}


@pytest.mark.parametrize(
    "demand",
    [
        {"not": {"enum": ["a"]}},
        {"anyOf": [{"minLength": 3}, {"pattern": "^b"}]},
        {"oneOf": [{"minLength": 3}, {"pattern": "^b"}]},
        {"allOf": [{"minLength": 2}, {"maxLength": 2}]},
        {"if": A, "then": {"minLength": 2}},
        {"if": {"minLength": 2}, "then": True, "else": {"maxLength": 0}},
        {"pattern": "(?<=b)b"},
    ],
    ids=lambda demand: next(iter(demand)),
)
def test_a_branch_that_none_of_the_listed_values_opens_is_gone(demand: Any) -> None:
    """Of `a` and `bb` only `bb` meets the demand, and no value that begins with an `a` is left."""
    value = {"enum": ["a", "bb"], **demand}
    schema = with_token(allOf=[demands(value)], anyOf=[demands(A, required=["a"]), {"required": ["b"]}])
    assert cut(schema) == without(anyOf=[{"required": ["b"]}])
    open_to_both = with_token(
        allOf=[demands({"enum": ["a", "bb"]})], anyOf=[demands(A, required=["a"]), {"required": ["b"]}]
    )
    assert cut(open_to_both) == without(anyOf=[{"required": ["a"]}, {"required": ["b"]}])


@pytest.mark.parametrize(
    "same",
    [
        {"if": {"minLength": 3}, "then": A, "else": A},
        {"if": False, "then": {"minLength": 3}, "else": A},
        {"if": {"minLength": 1}, "then": A, "else": {"minLength": 3}},
        {"allOf": [A, {"type": "string"}]},
        {"anyOf": [A, {"type": "integer"}, {**A, "title": "again"}]},
        {"oneOf": [{"maxLength": 0}, A]},
    ],
    ids=["either way", "never", "always", "both", "in any way", "in one way"],
)
def test_a_demand_is_the_same_however_it_is_spelled(same: Any) -> None:
    schema = with_token(oneOf=[demands(A, required=["a"]), demands(same, required=["b"])])
    assert cut(schema) == without(oneOf=[{"required": ["a"]}, {"required": ["b"]}])


def test_one_value_may_open_every_branch() -> None:
    """A value that meets all of the demands is looked for among those that they name themselves."""
    zebra_or_yak = {"anyOf": [{"enum": ["zebra"]}, {"enum": ["yak"]}]}
    for one, other in (
        (zebra_or_yak, {"pattern": "^z"}),
        ({"minLength": 70}, {"maxLength": 71}),
        ({"minLength": 70}, {"pattern": "^A+$"}),
        ({"minLength": 70}, {"pattern": "^0+$"}),
        ({"minLength": 70}, {"pattern": "^tokena+$"}),
    ):
        schema = with_token(anyOf=[demands(one, required=["a"]), demands(other, required=["b"])])
        assert cut(schema) == without(anyOf=[{"required": ["a"]}, {"required": ["b"]}])
    schema = with_token(
        anyOf=[demands(zebra_or_yak, required=["a"]), demands({"pattern": "^x"}, required=["b"])]
    )
    assert "differs from case to case" in why(schema)


def test_one_value_may_open_a_branch_and_leave_another_shut() -> None:
    schema = with_token(
        anyOf=[demands({"pattern": "^a{69}$"}, required=["a"]), {"required": ["b"]}],
        **{"not": demands({"minLength": 70}, required=["b"])},
    )
    assert cut(schema) == without(anyOf=[{"required": ["a"]}, {"required": ["b"]}])


def test_what_is_turned_round_twice_in_a_condition_still_decides_it() -> None:
    for times in range(3):
        condition: Any = demands(A)
        for _ in range(times):
            condition = {"not": condition}
        schema = with_token(**{"if": condition, "then": {"required": ["a"]}})
        assert "depends on the argument's value" in why(schema)


def test_a_branch_that_is_never_taken_demands_nothing() -> None:
    """Of the filled argument it is known that it is there, and of an array that it is none."""
    never = demands({"pattern": "^b"})
    only_a = demands({"enum": ["a"]})
    there, gone = {"required": ["token"]}, {"not": {"required": ["token"]}}
    for conditional in (
        {"if": there, "then": {"required": ["a"]}, "else": never},
        {"if": gone, "then": never, "else": {"required": ["a"]}},
    ):
        assert cut(with_token(allOf=[only_a], **conditional)) == without(allOf=[{"required": ["a"]}])
    schema = with_token(
        anyOf=[demands(A, required=["a"]), {"required": ["b"]}, {"type": "array", **never}],
    )
    assert cut(schema) == without(anyOf=[{"required": ["a"]}, {"required": ["b"]}])


def test_all_parts_of_a_branch_may_be_opened_by_one_value() -> None:
    schema = with_token(anyOf=[{"allOf": [demands(A), {"required": ["a"]}]}, {"required": ["b"]}])
    assert cut(schema) == without(anyOf=[{"allOf": [{"required": ["a"]}]}, {"required": ["b"]}])


def test_what_stands_beside_a_reference_demands_nothing_in_a_draft_that_does_not_read_it() -> None:
    seven = {"$schema": SCHEMA_URI[7], "definitions": {"A": {"required": ["a"]}}}
    condition = {"$ref": "#/definitions/A", **demands({"const": "x"})}
    result = cut({**seven, **with_token(**{"if": condition, "then": {"required": ["b"]}})})
    judge = validator(result)
    assert judge is not None
    assert judge.is_valid({"b": 1})
    assert not judge.is_valid({"a": 1})


def test_a_condition_decides_nothing_in_a_draft_without_conditions() -> None:
    six = {"$schema": SCHEMA_URI[6]}
    conditional = {"if": demands({"const": "x"}), "then": {"required": ["a"]}}
    assert cut({**six, **with_token(**conditional)}) == {**six, **without()}
    assert "depends on the argument's value" in why(with_token(**conditional))


def test_a_type_that_may_be_one_of_several_is_asked_for_objects() -> None:
    schema = with_token(
        anyOf=[
            {"type": ["array", "null"], "required": ["b"]},
            {"type": ["object", "null"], "required": ["a", "token"]},
        ]
    )
    assert cut(schema) == without(anyOf=[{"type": ["object", "null"], "required": ["a"]}])


def test_patterns_that_look_ahead_are_read() -> None:
    ahead = {"^tok(?=en)": {"type": "string"}}
    assert cut(with_token(patternProperties=ahead)) == without(patternProperties=ahead)
    never = {"^tok(?=en)": {"type": "integer"}}
    assert "accepts no call at all" in why(with_token(patternProperties=never))


@pytest.mark.parametrize("rest", ["unevaluatedProperties", "additionalProperties"])
def test_what_a_part_says_of_the_rest_it_has_evaluated(rest: str) -> None:
    """The part takes in all that nobody else has, so nothing is left that the whole could forbid."""
    schema = {
        "properties": {"a": {}},
        "allOf": [{rest: {"type": "string"}}],
        "unevaluatedProperties": False,
    }
    judge = validator(cut(schema))
    assert judge is not None
    assert judge.is_valid({"b": "x"})
    assert not judge.is_valid({"b": 1})
