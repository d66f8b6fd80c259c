"""Random input schemas of every draft, and what they say, asked of the validator."""

from __future__ import annotations

import itertools
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from afpool.tools._schema_document import URIS

DRAFTS = (4, 6, 7, 2019, 2020)
FIELDS = ("token", "tenant")
OTHERS = ("a", "b", "c")
# Every combination of the demands below that some string meets, one of these meets.
VALUES = ("a", "b", "bb", "ab", "abc", "abcd", "ccc", "cccc", "x@y.zz")
SCHEMA_URI = URIS

_VALUE: list[Any] = [
    {}, {"type": "string"}, {"type": "string", "description": "a secret"}, {"type": ["string", "null"]},
    {"type": "string", "minLength": 1}, {"minLength": 2}, {"maxLength": 1}, {"maxLength": 3},
    {"type": "integer"}, {"enum": ["a"]}, {"enum": ["a", "bb"]}, {"enum": ["a", 1, None]}, {"enum": [1]},
    {"pattern": "^a"}, {"not": {"enum": ["a"]}}, {"not": {"type": "integer"}}, {"not": {"type": "string"}},
    {"anyOf": [{"type": "null"}, {"type": "string"}]}, {"anyOf": [{"enum": ["a"]}, {"minLength": 3}]},
    {"oneOf": [{"type": "string"}, {"minLength": 2}]}, {"allOf": [{"type": "string"}, {"pattern": "^a"}]},
    {"$ref": "#/definitions/Text"}, {"$ref": "#/properties/c"},
]  # fmt: skip
_MEMBER: list[Any] = [
    {}, {"type": "integer"}, {"type": "string"}, {"enum": [1, "x"]}, {"$ref": "#"},
    {"$ref": "#/definitions/Text"}, {"$ref": "#/definitions/Object"}, {"$ref": "#/properties/token"},
    {"type": "object", "properties": {"token": {"type": "integer"}}, "required": ["token"]},
]  # fmt: skip


def _some(options: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(options)


def _mapping(keys: tuple[str, ...], values: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.sampled_from(keys), values, max_size=most)


_properties = st.builds(
    lambda of, own: {**of, **own},
    _mapping(OTHERS, _some(_MEMBER)),
    _mapping(FIELDS, _some(_VALUE)),
)
_names = st.lists(st.sampled_from((*FIELDS, *OTHERS)), min_size=1, max_size=3, unique=True)
_value = _some(_VALUE)
_whole = st.builds(
    lambda others, fields: {**others, **fields},
    _mapping(OTHERS, st.sampled_from((1, "x"))),
    _mapping(FIELDS, st.sampled_from(("a", "bb", "")), 2),
)


def _keywords(draft: int, inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    branches = st.lists(inner, min_size=1, max_size=3)
    found: dict[str, st.SearchStrategy[Any]] = {
        "properties": _properties,
        "required": _names,
        "minProperties": st.integers(0, 4),
        "maxProperties": st.integers(0, 4),
        "patternProperties": _mapping(("^t", "^token$", "n", "^[ab]$"), _value, 2),
        "additionalProperties": st.one_of(st.booleans(), _value),
        "dependencies": st.dictionaries(
            st.sampled_from((*FIELDS, *OTHERS)), st.one_of(_names, inner), max_size=2
        ),
        "allOf": branches,
        "anyOf": branches,
        "oneOf": branches,
        "not": inner,
        "type": st.sampled_from(("object", ["object", "null"], "array")),
        "enum": st.lists(_whole, min_size=1, max_size=3, unique_by=repr),
        "$ref": st.sampled_from(("#/definitions/Object", "#/definitions/Other", "#/properties/c", "#")),
        "examples": st.just([{"a": 1, "token": "a"}]),
        "title": st.just("words"),
    }
    if draft >= 6:
        found["const"] = _whole
        found["propertyNames"] = st.sampled_from((
            {"pattern": "^[abct]"}, {"enum": ["a", "b", "token", "tenant"]}, {"maxLength": 5}, True, {},
            {"enum": ["a", "token"]},
        ))  # fmt: skip
    if draft >= 7:
        found |= {"if": inner, "then": inner, "else": inner}
    if draft >= 2019:
        found["unevaluatedProperties"] = st.one_of(st.booleans(), _value)
        found["dependentRequired"] = _mapping((*FIELDS, *OTHERS), _names, 2)
        found["dependentSchemas"] = _mapping((*FIELDS, *OTHERS), inner, 2)
    return found


@st.composite
def _nodes(draw: Any, draft: int, depth: int) -> Any:
    if depth == 0:
        kept = (
            "properties",
            "required",
            "minProperties",
            "additionalProperties",
            "enum",
            "patternProperties",
        )
        keywords = {key: value for key, value in _keywords(draft, st.nothing()).items() if key in kept}
    else:
        keywords = _keywords(draft, _nodes(draft, depth - 1))
    chosen = draw(st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True))
    if "if" in chosen:
        chosen += [key for key in ("then", "else") if key not in chosen]
    return {key: draw(keywords[key]) for key in chosen}


@st.composite
def schemas(draw: Any) -> dict[str, Any]:
    """A root that describes the fields, of some draft, with definitions that it may refer to."""
    draft = draw(st.sampled_from(DRAFTS))
    node = draw(_nodes(draft, 2))
    properties = {"a": {}, "token": draw(_value), "c": draw(_some(_MEMBER))}
    node["properties"] = {**draw(_properties), **node.get("properties", {}), **properties}
    if draft <= 7:
        node.pop("$ref", None)
    node["definitions"] = {
        "Text": {"type": "string"},
        "Object": draw(_nodes(draft, 1)),
        "Other": draw(_nodes(draft, 1)),
    }
    return {"$schema": URIS[draft], **node}


instances = st.dictionaries(
    st.sampled_from((*OTHERS, "d")),
    st.sampled_from((1, "x", "abc", None, {}, {"token": 1}, {"token": "a", "a": 1})),
    max_size=4,
)


def validator(schema: Any) -> Any | None:
    try:
        return jsonschema_rs.validator_for(schema)
    except Exception:
        return None


def accepted(judge: Any, instance: dict[str, Any], fields: tuple[str, ...]) -> list[bool]:
    """What a whole schema says of an instance with every combination of values."""
    return [
        judge.is_valid({**instance, **dict(zip(fields, filled, strict=True))})
        for filled in itertools.product(VALUES, repeat=len(fields))
    ]
