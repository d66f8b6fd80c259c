"""From where a reference in a schema is read, by draft, held against the validator; what that may cost."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from afpool._base.compiled import Compiled
from afpool._base.schema_cost import cost_of
from afpool._base.schema_resources import Resources
from afpool.tools._correction_large import faults_of_large
from afpool.tools._schema_cut import CannotCut, cut_schema
from afpool.tools._schema_document import Document, Path, subschemas
from tests.tools.schemas import DRAFTS, SCHEMA_URI, validator

SUB = "https://x.test/sub"
WHOLE: Any = {"definitions": {"V": {"type": "string"}}}
_MAPPINGS = ("properties", "definitions", "$defs", "dependentSchemas", "dependencies")
_VALUES = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems",
    "unevaluatedItems", "contains", "contentSchema", "not", "if", "then", "else", "x-other", "default",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")


def _uri(draft: int) -> str:
    return "id" if draft == 4 else "$id"


def _part(draft: int) -> dict[str, Any]:
    """A part with a URI, whose reference means an integer in it, and a text in the whole."""
    return {
        _uri(draft): SUB,
        "definitions": {"V": {"type": "integer"}},
        "properties": {"m": {"$ref": "#/definitions/V"}},
    }


def _placed(draft: int, word: str, part: Any) -> tuple[dict[str, Any], Path]:
    at: Path = (word, "Q") if word in _MAPPINGS else (word, 0) if word in _LISTS else (word,)
    held = {"Q": part} if word in _MAPPINGS else [part] if word in _LISTS else part
    schema: dict[str, Any] = {"$schema": SCHEMA_URI[draft], **WHOLE}
    schema[word] = {**schema[word], **held} if word in schema else held
    probe = {"$ref": "#/" + "/".join(map(str, at))}
    return {**schema, "properties": {**schema.get("properties", {}), "probe": probe}}, at


PLACES = [
    (draft, word)
    for draft in DRAFTS
    for word in (*_MAPPINGS, *_VALUES, *_LISTS)
    if (draft, word) != (2020, "dependencies")  # it is read, its URI is not: that is no schema
]


@pytest.mark.parametrize(("draft", "word"), PLACES)
def test_a_uri_makes_a_resource_where_the_draft_has_a_schema(draft: int, word: str) -> None:
    schema, at = _placed(draft, word, _part(draft))
    judge = validator(schema)
    assert judge is not None
    wrong = {
        kind
        for kind, value in (("integer", 1), ("string", "x"))
        if any(
            [*fault.instance_path][:1] == ["probe"] for fault in judge.iter_errors({"probe": {"m": value}})
        )
    }
    document = Document(schema)
    meant = document.resolve("#/definitions/V", (*at, "properties", "m"))
    assert meant is not None
    assert {"integer", "string"} - wrong == {document.at(meant)["type"]}
    assert document.identified(at) == (meant[: len(at)] == at)
    counted = Resources(schema).meant(document_node(schema, (*at, "properties", "m")), "$ref")
    assert document.at(meant) in counted
    assert len(counted) == 1 or draft == 4  # of which nobody knows how a part is come to


def document_node(schema: Any, path: Path) -> Any:
    for step in path:
        schema = schema[step]
    return schema


def test_subschemas_of_any_draft_are_given() -> None:
    assert [path for path, _ in subschemas({"$defs": {"a": {}}, "if": {}, "allOf": [{}]}, ())] == [
        ("$defs", "a"), ("if",), ("allOf", 0),
    ]  # fmt: skip


# -- cut


@pytest.mark.parametrize("draft", [6, 7])
def test_what_stands_in_a_later_drafts_definitions_refers_to_the_whole(draft: int) -> None:
    schema = {
        "$schema": SCHEMA_URI[draft],
        "type": "object",
        "properties": {"token": {"type": "string"}, "q": {"$ref": "#/$defs/Q"}},
        "$defs": {
            "V": {"type": "string"},
            "Q": {
                "$id": SUB,
                "$defs": {"V": {"type": "integer"}},
                "properties": {"m": {"$ref": "#/$defs/V"}},
            },
        },
    }
    shown = cut_schema(schema, ["token"])
    assert shown["$defs"]["V"] == {"type": "string"}
    judge = validator(shown)
    assert judge is not None
    assert judge.is_valid({"q": {"m": "x"}})
    assert not judge.is_valid({"q": {"m": 1}})


def test_a_resource_does_not_move_to_where_it_is_none() -> None:
    own = {
        "$id": SUB,
        "definitions": {"V": {"type": "integer"}},
        "properties": {"m": {"$ref": "#/definitions/V"}},
    }
    schema = {
        "$schema": SCHEMA_URI[7],
        "allOf": [{"$ref": "#/definitions/A"}],
        "properties": {"again": {"$ref": "#/definitions/B"}},
        "$defs": {"unused": {}},
        "definitions": {
            "V": {"type": "string"},
            "B": {"allOf": [{"$ref": "#/definitions/A"}], "title": "whole"},
            "A": {"properties": {"token": {"type": "string"}, "n": {"$ref": SUB}}},
            "S": own,
        },
    }
    shown = cut_schema(schema, ["token"])
    judge = validator(shown)
    assert judge is not None
    assert "$defs" not in shown
    for args in ({"n": {"m": 1}}, {"again": {"token": "t", "n": {"m": 1}}}):
        assert judge.is_valid(args)
    for args in ({"n": {"m": "x"}}, {"again": {"token": 1}}, {"again": {"n": {"m": "x"}}}):
        assert not judge.is_valid(args)


def test_what_depends_on_how_it_is_come_to_is_not_cut() -> None:
    schema = {
        "$schema": SCHEMA_URI[4],
        "properties": {"token": {}, "q": {"$ref": SUB}},
        "$defs": {"Q": _part(4)},
    }
    with pytest.raises(CannotCut, match=r"has a URI .* where its draft has no schema"):
        cut_schema(schema, ["token"])
    twice = {
        "properties": {"token": {}, "a": {"$ref": "#/$defs/Q"}, "b": _part(2020)},
        "$defs": {"Q": {**_part(2020), "title": "another"}},
    }
    with pytest.raises(CannotCut, match="has a URI that another one has"):
        cut_schema(twice, ["token"])
    shown = cut_schema(
        {**schema, "$defs": {"Q": {**_part(4), "id": "#q"}}, "properties": {"token": {}}}, ["token"]
    )
    assert "token" not in shown["properties"]


# -- cost


def doubling(word: str, last: int = 40) -> dict[str, Any]:
    """Definitions that are applied twice as often each as the one before, a million million times in all."""
    steps: dict[str, Any] = {
        f"d{at}": {"anyOf": [{"$ref": f"#/{word}/d{at + 1}"}, {"$ref": f"#/{word}/d{at + 1}"}]}
        for at in range(last)
    }
    return {**steps, f"d{last}": {"type": "integer"}}


HARMLESS: Any = {name: {} for name in doubling("$defs")}
DEAR: Any = {"$id": SUB, "$defs": doubling("$defs"), "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": HARMLESS, "properties": {"q": DEAR}},
        {"$defs": {**HARMLESS, "Q": DEAR}, "properties": {"q": {"$ref": SUB}}},
        {"$defs": {**HARMLESS, "Q": DEAR}, "properties": {"q": {"$ref": "HTTPS://x.test/a/../sub"}}},
        {
            "$defs": {"W": {"$anchor": "a"}},
            "properties": {"q": {**DEAR, "$ref": "#a", "$defs": {
                **DEAR["$defs"], "V": {"$anchor": "a", "$ref": "#/$defs/d0"}}}},
        },
        {
            "$defs": {"Q": {"$id": SUB, "$defs": doubling("$defs")}},
            "properties": {"q": {"$id": SUB, "$defs": HARMLESS, "$ref": "#/$defs/d0"}},
        },
        {
            "$schema": SCHEMA_URI[4],
            "definitions": HARMLESS,
            "$defs": {"Q": {"id": SUB, "definitions": doubling("definitions"), "allOf": [
                {"$ref": "#/definitions/d0"}]}},
            "properties": {"q": {"$ref": SUB}},
        },
        {
            "definitions": HARMLESS,
            "properties": {"q": {"$schema": SCHEMA_URI[4], "id": SUB, "$id": SUB, "definitions": doubling(
                "definitions"), "allOf": [{"$ref": "#/definitions/d0"}]}},
        },
        {
            "$dynamicAnchor": "node",
            "$defs": {
                **doubling("$defs"),
                "Q": {"$id": SUB, "$dynamicAnchor": "node", "$ref": "whole#/$defs/d0"},
            },
            "$id": "https://x.test/whole",
            "properties": {"q": {"$dynamicRef": "#node"}},
        },
    ],
)  # fmt: skip
def test_what_a_resource_costs_is_counted_in_it(schema: Any) -> None:
    ready = Compiled(schema)
    # what is not known before is never begun: no value meets the validator
    assert ready.validator is None or ready.too_costly({"q": 1, "p": 1}) is not None


def test_a_resource_whose_definitions_are_called_like_the_wholes_is_no_circle() -> None:
    schema = {
        "$id": "https://x.test/whole",
        "$defs": {
            "Item": {"$ref": "item"},
            "item": {"$id": "item", "$ref": "#/$defs/Item", "$defs": {"Item": {"type": "integer"}}},
        },
        "properties": {"a": {"$ref": "#/$defs/Item"}},
    }
    ready = Compiled(schema)
    assert ready.validator is not None
    assert ready.allows({"a": 1})
    assert not ready.allows({"a": "x"})
    assert cost_of(schema).max_depth is None


def test_the_same_part_wherever_it_is_used_is_one() -> None:
    tree = {"$id": SUB, "type": "object", "properties": {"below": {"$ref": SUB}}}
    schema: Any = {
        "properties": {"token": {"type": "string"}, **{name: copy.deepcopy(tree) for name in "abcde"}}
    }
    assert cost_of(schema).per_node == cost_of({"properties": {"a": tree}}).per_node
    value: Any = {}
    for _ in range(20):
        value = {"below": value}
    assert Compiled(schema).allows({"a": value, "e": value})
    assert not Compiled(schema).allows({"a": value, "e": {"below": {"below": 1}}})
    assert "token" not in cut_schema(schema, ["token"])["properties"]


def test_what_is_told_of_a_large_value_is_wrong_where_it_is_read() -> None:
    schema = {
        "$defs": {"V": {"type": "string"}},
        "properties": {
            "a": {
                "$id": SUB,
                "$defs": {"V": {"type": "integer"}},
                "properties": {"m": {"$ref": "#/$defs/V"}},
            },
            "b": {"$ref": "#/$defs/V"},
        },
    }
    found = [(fault.path, fault.word) for fault in faults_of_large({"a": {"m": 1}, "b": 1}, schema)]
    assert found == [(["b"], "type")]
    assert [fault.path for fault in faults_of_large({"a": {"m": "x"}}, schema)] == [["a", "m"]]
