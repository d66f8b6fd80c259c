"""How a schema reads once an argument is gone: by keyword, by draft, by definition."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest

from afpool.tools import define_tool
from afpool.tools._cuts import cut_of, is_known, keep, looked
from afpool.tools._schema_cut import CannotCut, argument_names, cut_schema
from tests.tools.schemas import SCHEMA_URI, validator

TEXT = {"type": "string"}
D4, D6, D7, D19 = (SCHEMA_URI[draft] for draft in (4, 6, 7, 2019))


def cut(schema: Any, *fields: str) -> Any:
    before = copy.deepcopy(schema)
    result = cut_schema(schema, fields or ("token",))
    assert schema == before, "what was listed stays"
    assert validator(result) is not None, result
    return result


def why(schema: Any, *fields: str) -> str:
    with pytest.raises(CannotCut) as caught:
        cut_schema(schema, fields or ("token",))
    return caught.value.reason


def with_token(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"token": TEXT, "a": {}, "b": {}}, **more}


def without(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {}, "b": {}}, **more}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"required": ["a", "token"]}, {"required": ["a"]}),
        ({"required": ["token"]}, {}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"minProperties": 2, "maxProperties": 3}, {"minProperties": 1, "maxProperties": 2}),
        ({"minProperties": 1, "maxProperties": 1}, {"maxProperties": 0}),
        (
            {"dependentRequired": {"token": ["a"], "a": ["token", "b"]}},
            {"dependentRequired": {"a": ["b"]}, "required": ["a"]},
        ),
        ({"dependentRequired": {"a": ["token"]}}, {}),
        ({"dependentSchemas": {"token": {"required": ["a", "token"]}}}, {"allOf": [{"required": ["a"]}]}),
        ({"dependentSchemas": {"a": {"required": ["token"]}}}, {}),
        ({"dependentSchemas": {"a": {"not": {"required": ["token"]}}}}, {"dependentSchemas": {"a": False}}),
        ({"dependencies": {"token": ["a"], "b": ["token"]}}, {"required": ["a"]}),
        ({"dependencies": {"a": {"required": ["token", "b"]}}}, {"dependencies": {"a": {"required": ["b"]}}}),
        ({"allOf": [{"required": ["token"]}, {"required": ["a"]}]}, {"allOf": [{"required": ["a"]}]}),
        ({"anyOf": [{"required": ["token"]}, {"required": ["a"]}]}, {}),
        (
            {"anyOf": [{"required": ["token", "a"]}, {"required": ["b"]}]},
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ),
        ({"oneOf": [{"required": ["token"]}, {"required": ["a"]}]}, {"oneOf": [{}, {"required": ["a"]}]}),
        ({"not": {"required": ["token", "a"]}}, {"not": {"required": ["a"]}}),
        ({"not": {"not": {"required": ["token"]}}}, {}),
        (
            {"if": {"required": ["token"]}, "then": {"required": ["a"]}, "else": {"required": ["b"]}},
            {"allOf": [{"required": ["a"]}]},
        ),
        (
            {"if": {"required": ["a"]}, "then": {"required": ["token", "b"]}},
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        ),
        (
            {"if": {"not": {"required": ["token"]}}, "then": False, "else": {"required": ["b"]}},
            {"allOf": [{"required": ["b"]}]},
        ),
        ({"then": {"required": ["token"]}}, {}),
        ({"propertyNames": {"enum": ["a", "b", "token"]}}, {"propertyNames": {"enum": ["a", "b"]}}),
        ({"propertyNames": {"enum": ["token"]}}, {"propertyNames": False}),
        ({"propertyNames": {"const": "token"}}, {"propertyNames": False}),
        ({"propertyNames": {"maxLength": 9}}, {"propertyNames": {"maxLength": 9}}),
        ({"patternProperties": {"^token$": TEXT, "^x": TEXT}}, {"patternProperties": {"^x": TEXT}}),
        ({"unevaluatedProperties": False}, {"unevaluatedProperties": False}),
        ({"const": {"a": 1, "token": "x"}}, {"const": {"a": 1}}),
        ({"enum": [{"a": 1, "token": "x"}, {"a": 1.0, "token": "x"}, {"a": 2}]}, {"enum": [{"a": 1.0}]}),
        (
            {"default": {"a": 1, "token": "x"}, "examples": [{"token": "x", "b": 2}, 3]},
            {"default": {"a": 1}, "examples": [{"b": 2}, 3]},
        ),
        (
            {"propertyOrdering": ["token", "a"], "x-ui": {"token": {"w": 1}, "a": ["token"]}},
            {"propertyOrdering": ["a"], "x-ui": {"a": []}},
        ),
        (
            {"title": "token", "description": "takes a token"},
            {"title": "token", "description": "takes a token"},
        ),
    ],
)
def test_each_keyword(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert cut(with_token(**before)) == without(**after)


def test_what_says_nothing_of_it_stays_word_for_word() -> None:
    schema = with_token(
        allOf=[{"minProperties": 0}],
        anyOf=[{"required": ["a"]}, {"title": "x"}],
        patternProperties={"^y": TEXT},
    )
    assert cut(schema) == {**schema, "properties": {"a": {}, "b": {}}}
    assert list(cut({"b": 1, "properties": {"token": {}}, "a": 2})) == ["b", "properties", "a"]


def test_nothing_is_shared_with_what_was_listed() -> None:
    schema = with_token(allOf=[{"required": ["a"]}])
    result = cut_schema(schema, ["token"])
    result["allOf"][0]["required"].append("zzz")
    result["properties"]["a"]["type"] = "x"
    assert schema == with_token(allOf=[{"required": ["a"]}])


def test_keywords_mean_what_their_draft_says() -> None:
    assert cut({"$schema": D7, **with_token(dependentRequired={"token": ["a"]})}) == {
        "$schema": D7,
        **without(),
    }
    assert cut(
        {"$schema": D6, **with_token(**{"if": {"required": ["token"]}, "then": {"required": ["a"]}})}
    ) == {
        "$schema": D6,
        **without(),
    }
    assert cut({"$schema": D4, **with_token(const={"a": 1})}) == {"$schema": D4, **without(const={"a": 1})}
    four = cut({"$schema": D4, **with_token(dependencies={"a": {"not": {"required": ["token"]}}})})
    assert four["dependencies"] == {"a": {"not": {}}}, "draft 4 has no booleans"
    unknown = cut_schema({"$schema": "urn:unknown", **with_token(required=["token"])}, ["token"])
    assert unknown == {"$schema": "urn:unknown", **without()}
    seven = {
        "$schema": D7,
        "$ref": "#/definitions/Args",
        "properties": {"token": TEXT},
        "definitions": {"Args": with_token(required=["token"])},
    }
    assert cut(seven) == {"$schema": D7, "$ref": "#/definitions/Args", "definitions": {"Args": without()}}


def test_broken_keywords_do_not_stop_it() -> None:
    broken = {
        "properties": {"token": None, "a": 3},
        "required": None,
        "anyOf": 3,
        "not": [],
        "dependencies": 1,
        "minProperties": True,
    }
    assert cut_schema(broken, ["token"]) == {**broken, "properties": {"a": 3}}


# -- definitions


def test_a_definition_that_only_the_arguments_use_is_cut_in_its_place() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"a": {"$ref": "#/$defs/Text"}}}],
        "$defs": {
            "Base": {"properties": {"token": {"$ref": "#/$defs/Text"}, "b": {}}},
            "Text": TEXT,
            "Unused": TEXT,
        },
    }
    assert cut(schema) == {
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"a": {"$ref": "#/$defs/Text"}}}],
        "$defs": {"Base": {"properties": {"b": {}}}, "Text": TEXT},
    }


def test_a_definition_that_a_member_uses_too_stays_whole_beside_the_cut_one() -> None:
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "properties": {"token": TEXT, "kids": {"items": {"$ref": "#/$defs/Node"}}},
                "required": ["token"],
            }
        },
    }
    assert cut(schema) == {
        "$ref": "#/$defs/Node2",
        "$defs": {
            "Node": schema["$defs"]["Node"],  # type: ignore[index]
            "Node2": {"properties": {"kids": {"items": {"$ref": "#/$defs/Node"}}}},
        },
    }


def test_a_member_that_is_like_the_whole_keeps_the_whole() -> None:
    schema = {
        "properties": {
            "token": TEXT,
            "kids": {"items": {"$ref": "#"}},
            "other": {"$ref": "#/properties/token"},
        },
        "required": ["token"],
    }
    result = cut(schema)
    assert result["properties"] == {
        "kids": {"items": {"$ref": "#/$defs/Whole"}},
        "other": {"$ref": "#/$defs/Whole/properties/token"},
    }
    judge = validator(result)
    assert judge is not None
    assert judge.is_valid({"kids": [{"token": "x", "kids": []}], "other": "y"})
    assert not judge.is_valid({"kids": [{}]})
    assert not judge.is_valid({"other": 3})


def test_names_that_are_taken_are_not_taken_again() -> None:
    schema = {
        "$ref": "#/definitions/A",
        "properties": {"x": {"$ref": "#/definitions/A"}, "token": {}, "y": {"$ref": "#/definitions/A2"}},
        "definitions": {"A": {"properties": {"token": TEXT}, "required": ["z"]}, "A2": TEXT},
    }
    result = cut(schema)
    assert result["$ref"] == "#/definitions/A3"
    assert set(result["definitions"]) == {"A", "A2", "A3"}


def test_references_by_name_are_followed() -> None:
    schema = {
        "$id": "https://example.com/tool",
        "allOf": [{"$ref": "#base"}, {"$ref": "tool#/$defs/More"}, {"$ref": "https://example.com/sub"}],
        "$defs": {
            "Base": {"$anchor": "base", "properties": {"token": TEXT}},
            "More": {"required": ["token", "a"]},
            "Sub": {"$id": "sub", "properties": {"token": {"$ref": "#/$defs/T"}}, "$defs": {"T": TEXT}},
        },
        "properties": {"x": {"$ref": "sub#/$defs/T"}},
    }
    result = cut(schema)
    assert argument_names(result, required=True) == {"x", "a"}
    judge = validator(result)
    assert judge is not None
    assert judge.is_valid({"a": 1, "x": "t"})
    assert not judge.is_valid({"a": 1, "x": 3})


def test_a_name_stands_in_the_document_once() -> None:
    schema = {
        "allOf": [{"$ref": "#base"}],
        "properties": {"x": {"$ref": "#base"}},
        "$defs": {"Base": {"$anchor": "base", "properties": {"token": TEXT, "n": {"type": "integer"}}}},
    }
    result = cut(schema)
    assert json.dumps(result).count("$anchor") == 1
    judge = validator(result)
    assert judge is not None
    assert judge.is_valid({"n": 1, "x": {"token": "t", "n": 2}})
    assert not judge.is_valid({"x": {"token": 3}})
    assert not judge.is_valid({"n": "1"})


def test_a_discriminator_follows_its_branches() -> None:
    schema = {
        "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        "discriminator": {
            "propertyName": "k",
            "mapping": {"a": "#/$defs/A", "b": "#/$defs/B", "c": "#/$defs/C"},
        },
        "$defs": {
            "A": {
                "properties": {"k": {"const": "a"}, "token": TEXT, "b": {"$ref": "#/$defs/B"}},
                "required": ["k"],
            },
            "B": {"properties": {"k": {"const": "b"}, "token": TEXT}, "required": ["k", "token"]},
            "C": TEXT,
        },
    }
    result = cut(schema)
    assert result["oneOf"] == [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B2"}]
    assert result["discriminator"]["mapping"] == {"a": "#/$defs/A", "b": "#/$defs/B2"}


# -- what the arguments' values decide


def test_the_same_demand_in_every_branch_decides_nothing() -> None:
    secret = {"type": "string", "pattern": "^sk-", "description": "yours"}
    schema = {
        "oneOf": [
            {"properties": {"k": {"const": "a"}, "token": secret}, "required": ["k", "token"]},
            {
                "properties": {"k": {"const": "b"}, "token": {**secret, "description": "theirs"}},
                "required": ["k"],
            },
        ]
    }
    assert [one["properties"] for one in cut(schema)["oneOf"]] == [
        {"k": {"const": "a"}},
        {"k": {"const": "b"}},
    ]


def test_a_branch_that_a_string_can_never_meet_is_gone() -> None:
    schema = {
        "properties": {"token": {}, "a": {}},
        "anyOf": [{"properties": {"token": {"type": "null"}}}, {"required": ["a"]}],
    }
    assert cut(schema) == {"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}
    closed = {
        "anyOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"token": {}}}],
        "type": "object",
    }
    assert cut(closed) == {"type": "object"}


def test_what_a_value_closes_stays_open_where_another_value_is_possible() -> None:
    never = {"properties": {"token": {"pattern": "^a"}}, "required": ["a"]}
    assert cut(with_token(**{"not": never})) == without()
    twice = {"not": {"not": {"required": ["a"]}}}
    assert cut(with_token(**{"not": {"not": never}})) == without(**twice)
    assert (
        cut(with_token(anyOf=[{"properties": {"token": {"pattern": "^a"}}}, {"required": ["a"]}]))
        == without()
    )


def test_what_every_string_meets_decides_nothing() -> None:
    loose = {"anyOf": [{"pattern": "^a"}, {"type": ["string", "null"], "minLength": 1, "maximum": 3}]}
    schema = with_token(oneOf=[{"properties": {"token": loose}, "required": ["a"]}, {"required": ["b"]}])
    assert cut(schema) == without(oneOf=[{"required": ["a"]}, {"required": ["b"]}])


def test_who_has_evaluated_it_decides_about_the_rest() -> None:
    closed: dict[str, Any] = {"properties": {"a": {}}, "unevaluatedProperties": False}
    told = {"properties": {"token": TEXT}}
    for sure in (
        {"dependentSchemas": {"token": told}},
        {"anyOf": [{"type": "array"}, told]},
        {"if": {"required": ["a"]}, "then": told, "else": told},
        {"$ref": "#/$defs/Told", "$defs": {"Told": told}},
        {"patternProperties": {"^tok": TEXT}},
    ):
        judge = validator(cut({**closed, **sure}))
        assert judge is not None
        assert judge.is_valid({"a": 1})
        assert not judge.is_valid({"b": 1})
    for unsure in ({"dependentSchemas": {"a": told}}, {"anyOf": [told, {"required": ["a"]}]}):
        assert "one too many depends" in why({**closed, **unsure})
    assert "accepts no call" in why({**closed, "not": {"not": told}})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            with_token(**{"if": {"properties": {"token": {"const": "x"}}}, "then": {"required": ["a"]}}),
            "what else it accepts depends on the argument's value",
        ),
        (
            with_token(oneOf=[{"properties": {"token": {"pattern": "^a"}}}, {"required": ["a"]}]),
            "what else it accepts depends",
        ),
        (
            with_token(
                anyOf=[
                    {"properties": {"token": {"pattern": "^aa"}}},
                    {"properties": {"token": {"pattern": "^bb"}, "a": TEXT}},
                ]
            ),
            "differs from case to case",
        ),
        (
            with_token(enum=[{"token": "x", "a": 1}, {"token": "y", "a": 2}]),
            "ties them to the argument's value",
        ),
        (
            with_token(
                anyOf=[{"properties": {"c": {}}}, {"required": ["a"]}],
                unevaluatedProperties=False,
                properties={"a": {}},
                allOf=[{"anyOf": [{"properties": {"token": {}}}, {"required": ["a"]}]}],
            ),
            "one too many depends",
        ),
        ({"properties": {"token": {"type": "integer"}}}, "accepts no call at all"),
        ({"properties": {"token": {"enum": [1, ""]}}}, "accepts no call at all"),
        ({"properties": {"token": {"oneOf": [TEXT, {"minLength": 1}]}}}, "accepts no call at all"),
        ({"properties": {"token": {}}, "maxProperties": 0}, "accepts no call at all"),
        ({"type": "array", "properties": {"token": {}}}, "accepts no call at all"),
        (
            with_token(oneOf=[{"required": ["token"]}, {"properties": {"token": {}}}]),
            "accepts no call at all",
        ),
        (
            {
                "allOf": [
                    {"properties": {"token": {}}},
                    {"properties": {"a": {}}, "additionalProperties": False},
                ]
            },
            "accepts no call at all",
        ),
        ({"properties": {"token": {"minLength": 4, "maxLength": 3}}}, "no value fits"),
        ({"properties": {"token": {"enum": ["a"], "minLength": 4}}}, "no value fits"),
        ({"properties": {"token": {}}, "$ref": "https://example.com/other"}, "none is ever fetched"),
        ({"properties": {"token": {"$ref": "other.json"}}}, "never fetched"),
        ({"properties": {"token": {}}, "allOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"properties": {"token": {"$ref": "#/properties/token"}}}, "refers to itself"),
        ({"properties": {"token": {}}, "$dynamicRef": "#x"}, "dynamic reference"),
        ({"properties": {"token": {}, "a": {"$recursiveRef": "#"}}, "$schema": D19}, "dynamic reference"),
        ({"properties": {"token": {}}, "patternProperties": {"(": TEXT}}, "cannot be read"),
        ({"properties": {"token": {}}, "propertyNames": {"pattern": "("}}, "cannot be read"),
        ({"properties": {"token": {}}, "propertyNames": {"pattern": "^a"}}, "accepts no call at all"),
    ],
)
def test_what_cannot_be_cut_says_why(schema: Any, reason: str) -> None:
    assert reason in why(schema)


# -- strangers


def nested(depth: int) -> Any:
    schema: Any = {"properties": {"token": TEXT}}
    for _ in range(depth):
        schema = {"allOf": [schema]}
    return schema


def chain(length: int) -> Any:
    definitions = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(length)
    }
    definitions[f"d{length}"] = {"properties": {"token": TEXT}}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def doubling(length: int) -> Any:
    definitions: dict[str, Any] = {
        f"d{number}": {
            "anyOf": [{"allOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"pattern": str(at)}]} for at in (1, 2)]
        }
        for number in range(length)
    }
    definitions[f"d{length}"] = {"pattern": "x"}
    return {"properties": {"token": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


def many(count: int) -> Any:
    properties: dict[str, Any] = {
        f"p{number}": {"type": "string", "description": "x" * 40} for number in range(count)
    }
    return {"properties": {**properties, "token": TEXT}, "required": [*properties, "token"]}


def unevaluated(length: int) -> Any:
    definitions: dict[str, Any] = {
        f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 3} for number in range(length)
    }
    definitions[f"d{length}"] = {"properties": {"token": TEXT}}
    return {"$ref": "#/$defs/d0", "$defs": definitions, "unevaluatedProperties": False}


def cut_or_reason(schema: Any) -> tuple[Any, str]:
    try:
        return cut_schema(schema, ["token"]), ""
    except CannotCut as error:
        return {}, error.reason


@pytest.mark.parametrize(
    "schema",
    [
        nested(100), nested(5000), chain(40), chain(190), chain(3000), doubling(60), many(40_000),
        unevaluated(40), {"properties": {"token": {"pattern": "(a+)+$" * 50}}},
        {"properties": {"token": {}}, "patternProperties": {"(a*)*b" * 20: TEXT}},
        {"allOf": [{"properties": {"token": {"pattern": str(number)}}} for number in range(2000)]},
        {"anyOf": [{"properties": {"token": {"pattern": str(number)}}} for number in range(2000)]},
    ],
    ids=[
        "nested", "nested-deep", "chain", "chain-long", "chain-longer", "doubling", "many", "unevaluated",
        "pattern", "names", "all", "any",
    ],
)  # fmt: skip
def test_a_hostile_schema_is_cut_or_refused_in_bounded_time(schema: Any) -> None:
    began = time.process_time()
    result, reason = cut_or_reason(schema)
    assert len(reason) < 200
    assert "token" not in argument_names(result, required=True)
    assert reason or len(json.dumps(result)) <= len(json.dumps(schema)) * 2 + 1000
    # a bound against what never ends, not a measurement
    assert time.process_time() - began < 60


def test_the_names_that_a_schema_declares() -> None:
    schema = {
        "properties": {"a": {"properties": {"deep": {}}}},
        "anyOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/C"}],
        "if": {"properties": {"d": {}}},
        "dependentSchemas": {"x": {"properties": {"e": {}}}},
        "not": {"required": ["forbidden"], "not": {"required": ["f"]}},
        "$defs": {"C": {"allOf": [{"$ref": "#"}, {"properties": {"c": {}}}]}, "D": {"properties": {"z": {}}}},
    }
    assert argument_names(schema) == {"a", "b", "c", "d", "e"}
    assert argument_names(schema, required=True) == {"a", "b", "c", "d", "e", "f"}
    for none in ({"properties": None, "required": "a"}, True, [], None):
        assert argument_names(none, required=True) == set()


# ---------------------------------------------------------------------------- what is kept of a tool


def test_what_looking_at_a_schema_has_given_is_kept() -> None:
    schema = {"type": "object", "properties": {"q": {}, "n": {}}, "required": ["q"]}
    tool = define_tool(execute=lambda args, ctx: None, name="work", description="Works.", input_schema=schema)
    seen = looked(tool, ["q", "other"])
    assert not is_known(tool)
    assert (seen.names, seen.fields) == ({"q", "n"}, {"q"})
    keep(tool, seen)
    assert is_known(tool)
    assert cut_of(tool, ["q"]) is seen.found
    assert cut_of(tool, ["n"]) is cut_of(tool, ["n"])
    nothing = looked(tool, ["other"])
    assert (nothing.fields, nothing.found) == (frozenset(), None)
    keep(tool, nothing)
    assert cut_of(tool, []) is not None
