"""Where the parts of a schema stand once an argument is gone, and how the references to them are written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.schemas import SCHEMA_URI, validator
from tests.tools.test_schema_cut import TEXT, cut, why, with_token, without

WHOLE_NUMBER = {"type": "integer"}


def judged(schema: Any, *, takes: Any, refuses: Any) -> dict[str, Any]:
    result: dict[str, Any] = cut(schema)
    judge = validator(result)
    assert judge is not None
    assert judge.is_valid(takes)
    assert not judge.is_valid(refuses)
    return result


def test_a_reference_to_what_stays_whole_stays_as_it_is() -> None:
    more = {"$ref": "#/$defs/More", "$defs": {"More": {"required": ["a"]}}}
    assert cut(with_token(**more)) == without(**more)


def test_a_part_that_is_cut_refers_to_what_has_moved_where_it_stands_now() -> None:
    schema = with_token(allOf=[{"required": ["token", "a"], "$ref": "#/properties/token/if"}])
    schema["properties"]["token"] = {"type": "string", "if": {"required": ["b"]}}
    result = judged(schema, takes={"a": 1, "b": 1}, refuses={"a": 1})
    assert result["allOf"] == [{"required": ["a"], "$ref": "#/$defs/if"}]


def test_what_moves_goes_to_the_definitions_that_are_there() -> None:
    schema = with_token(
        **{"$schema": "https://json-schema.org/draft/2020-12/schema"},
        definitions={"N": WHOLE_NUMBER}, allOf=[{"$ref": "#/properties/token/if"}],
    )  # fmt: skip
    schema["properties"]["token"] = {"type": "string", "if": {"required": ["b"]}}
    result = judged(schema, takes={"b": 1}, refuses={"a": 1})
    assert "$defs" not in result
    assert result["allOf"] == [{"$ref": "#/definitions/if"}]


def test_a_reference_into_a_list_is_followed() -> None:
    schema = with_token(
        allOf=[{"required": ["a"]}, {"required": ["token", "b"]}], anyOf=[{"$ref": "#/allOf/1"}]
    )
    judged(schema, takes={"a": 1, "b": 1}, refuses={"a": 1})
    for nowhere in ("#/allOf/2", "#/allOf/-1", "#/allOf/x", "#/allOf/1/required/5"):
        assert "a schema that is not in it" in why({**schema, "anyOf": [{"$ref": nowhere}]})


def test_a_part_that_was_a_schema_of_its_own_refers_to_the_whole_once_it_is_cut() -> None:
    """It has lost its name, and what it called by a short one is called by where it stands."""
    schema = {
        "allOf": [{"$ref": "https://example.com/sub"}],
        "$defs": {
            "Sub": {
                "$id": "https://example.com/sub",
                "properties": {"token": TEXT, "n": {"$ref": "#/$defs/N"}},
                "$defs": {"N": WHOLE_NUMBER},
            }
        },
    }
    result = judged(schema, takes={"n": 1}, refuses={"n": "1"})
    assert [list(part) for part in result["$defs"].values()] == [["properties", "$defs"]]


def test_a_part_that_is_a_schema_of_its_own_and_is_also_cut_keeps_what_it_calls_its_own() -> None:
    part = {
        "$id": "sub.json",
        "properties": {"m": {"$ref": "#/$defs/V"}, "token": TEXT},
        "discriminator": {"propertyName": "m", "mapping": {"v": "#/$defs/V"}},
        "$defs": {"V": {"minLength": 2}},
    }
    schema: dict[str, Any] = {
        "$defs": {"Q": part, "V": {"minLength": 9}},
        "properties": {"token": TEXT, "n": {"$ref": "#/$defs/Q"}},
        "allOf": [{"$ref": "#/$defs/Q"}],
    }
    result = judged(schema, takes={"m": "ab", "n": {"m": "ab"}}, refuses={"n": {"m": "a"}})
    judge = validator(result)
    assert judge is not None
    assert not judge.is_valid({"m": "a"})
    assert result["$defs"]["Q"] == part
    bare = result["$defs"]["Q2"]
    assert bare["properties"] == {"m": {"$ref": "#/$defs/Q2/$defs/V"}}
    assert bare["discriminator"]["mapping"] == {"v": "#/$defs/Q2/$defs/V"}


def test_what_tells_branches_by_name_means_whole_ones_in_what_stays_whole() -> None:
    told = {"propertyName": "k", "mapping": {"p": "#/$defs/P"}}
    schema: dict[str, Any] = {
        "$defs": {
            "P": {"properties": {"token": TEXT, "a": TEXT}},
            "H": {"discriminator": told, "oneOf": [{"$ref": "#/$defs/P"}]},
        },
        "properties": {"token": TEXT, "n": {"$ref": "#/$defs/H"}},
        "allOf": [{"discriminator": told, "oneOf": [{"$ref": "#/$defs/P"}]}],
    }
    result = cut(schema)
    assert result["$defs"]["H"] == schema["$defs"]["H"]
    assert result["$defs"]["P"] == schema["$defs"]["P"]
    assert result["allOf"][0]["discriminator"]["mapping"] == {"p": "#/$defs/P2"}
    assert result["allOf"][0]["oneOf"] == [{"$ref": "#/$defs/P2"}]


def test_a_part_that_refers_out_of_itself_to_what_has_moved_cannot_say_so() -> None:
    schema = {
        "$id": "https://example.com/tool",
        "$defs": {
            "Q": {"$id": "sub.json", "properties": {"m": {"$ref": "tool#/properties/token"}}},
        },
        "properties": {"token": TEXT, "n": {"$ref": "#/$defs/Q"}},
    }
    assert "of its own refers to what is cut" in why(schema)


@pytest.mark.parametrize("name", [{"$anchor": "secret"}, {"$id": "https://example.com/secret"}])
def test_a_part_with_a_name_of_its_own_is_not_moved(name: dict[str, str]) -> None:
    """It would be there twice by that name, or not where others look for it."""
    schema = with_token()
    schema["properties"] |= {"token": {**TEXT, **name}, "other": {"$ref": "#/properties/token"}}
    assert "would have to move" in why(schema)
    schema["properties"]["token"] = {"type": "string", "not": {"maxLength": 0, **name}}
    assert "would have to move" in why(schema)


def test_a_part_of_a_definition_that_is_cut_is_found_where_it_stands_now() -> None:
    definition = {"properties": {"token": TEXT, "n": WHOLE_NUMBER}, "required": ["token", "n"]}
    schema: dict[str, Any] = {
        "$ref": "#/$defs/Args",
        "properties": {"x": {"$ref": "#/$defs/Args/properties/n"}},
        "$defs": {"Args": definition},
    }
    result = judged(schema, takes={"n": 1, "x": 2}, refuses={"n": 1, "x": "2"})
    assert list(result["$defs"].values()) == [{"properties": {"n": WHOLE_NUMBER}, "required": ["n"]}]
    schema["properties"]["x"] = {"$ref": "#/$defs/Args/properties/token"}
    result = judged(schema, takes={"n": 1, "x": "t"}, refuses={"n": 1, "x": 2})
    assert result["$defs"]["Args"] == definition, "what is gone from the arguments is still there for others"


def test_what_a_discriminator_maps_to_elsewhere_stays() -> None:
    elsewhere = {"x": "other.json", "y": "Dog", "z": 3, "a": "#/%24defs/A"}
    schema = {
        "properties": {"token": TEXT},
        "oneOf": [{"$ref": "#/$defs/A"}],
        "discriminator": {"propertyName": "k", "mapping": {**elsewhere, "gone": "#/properties/token"}},
        "$defs": {"A": {"properties": {"k": {"const": "a"}}, "required": ["k"]}},
    }
    assert cut(schema)["discriminator"] == {"propertyName": "k", "mapping": elsewhere}


def test_what_refers_on_and_on_is_refused_in_words() -> None:
    length = 260
    definitions: dict[str, Any] = {f"d{at}": {"$ref": f"#/definitions/d{at + 1}"} for at in range(length)}
    definitions[f"d{length}"] = {"properties": {"token": TEXT}, "required": ["a"]}
    schema = {"$schema": SCHEMA_URI[7], "$ref": "#/definitions/d0", "definitions": definitions}
    assert "refer to each other too many times over" in why(schema)
    schema["$ref"] = "#/definitions/d9"
    assert cut(schema)["$ref"] == "#/definitions/d9"
