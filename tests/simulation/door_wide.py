"""A tool of the host's own with a schema as large, deep or crooked as generated ones are, and arguments that
are wrong in it everywhere: what a model is told of them is held against a validator.

`wide_schema` and `wide_arguments` are the same for the same seed, so that a story need not hold either.
"""

from __future__ import annotations

import functools
import json
import random
import re
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MOST_LINES: Final = 13  # ten faults, that there are more, a line before them and one behind
MOST_CHARS: Final = 12_000
UNCHECKED: Final = re.compile(r"nested deeper than|nested too deeply|more than can be checked")
"""How a refusal says that nobody has checked the arguments: they would cost too much."""

_MISSING: Final = re.compile(r"^- ([A-Za-z_][A-Za-z0-9_-]*): required but missing$", re.MULTILINE)


def _catalogue(chance: random.Random) -> dict[str, Any]:
    """Very many members, all of them demanded, and no others."""
    count = chance.choice((3, 400, 900))
    properties: dict[str, Any] = {f"p{number}": {"type": "string", "maxLength": 9} for number in range(count)}
    properties |= {
        "mark": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}},
        "rows": {"type": "array", "prefixItems": [{}], "items": {"type": "object", "required": ["a"]}},
        "never": False, "any": True, "tree": {"$ref": "#/$defs/Tree"},
        "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        "some": {"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": False},
        "kind": {"anyOf": [{"const": number} for number in range(70)]},
        "both": {"allOf": [{"type": "string"}, {"minLength": 3}]}, "few": {"type": "array", "maxItems": 2},
    }  # fmt: skip
    return {
        "type": "object",
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "below": {"items": {"$ref": "#/$defs/Tree"}}},
                "required": ["n"],
            }
        },
        "properties": properties,
        "required": [f"p{number}" for number in range(count)],
        "additionalProperties": chance.random() < 0.3,
    }


def _alternatives(chance: random.Random) -> dict[str, Any]:
    """Several hundred kinds of one member, and references that apply one part many times."""
    part = [{"properties": {"kind": {"const": number}}, "required": ["kind"]} for number in range(150)]
    word = chance.choice(("anyOf", "oneOf"))
    return {
        "type": "object",
        "definitions": {
            "One": {"type": "object", word: part},
            "Two": {"allOf": [{"$ref": "#/definitions/One"}]},
        },
        "properties": {
            "list": {"type": "array", "items": {"$ref": "#/definitions/Two"}, "uniqueItems": True},
            "one": {"$ref": "#/definitions/One"},
        },
    }


def _multiplying(chance: random.Random) -> dict[str, Any]:
    """Parts that refer to each other, twice each time, so that a deep value costs more than anybody has."""
    steps = chance.choice((3, 7, 11))
    parts: dict[str, Any] = {
        f"A{number}": {"allOf": [{"$ref": f"#/$defs/A{number + 1}"}, {"$ref": f"#/$defs/A{number + 1}"}]}
        for number in range(steps)
    }
    parts[f"A{steps}"] = {"properties": {"tree": {"$ref": "#/$defs/A0"}, "n": {"type": "integer"}}}
    return {"type": "object", "$defs": parts, "properties": {"tree": {"$ref": "#/$defs/A0"}}}


def _crooked(chance: random.Random) -> dict[str, Any]:
    """A member for each keyword there is a sentence for."""
    return {
        "type": "object",
        "properties": {
            "list": {"type": "array", "uniqueItems": True, "minItems": 1, "contains": {"const": 1}},
            "a b": {"type": "integer"}, "never": False, "flag": {"type": "boolean"},
            "date": {"type": "string", "format": "date"}, "mark": {"type": "string"},
            "choice": {"enum": ["a", "b", *range(30)], "description": "one of   many"},
            "least": {"exclusiveMinimum": 3}, "step": {"multipleOf": 3}, "most": {"exclusiveMaximum": 0},
            "either": {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
            "kind": {"anyOf": [{"required": ["k"]}, {"anyOf": [{"const": "x"}, {"const": 2}]}]},
            "members": {"minProperties": 1, "maxProperties": 2, "propertyNames": {"maxLength": 3}},
            "word": {"pattern": "^[a-z]+$", "maxLength": 100}, "fixed": {"const": {"a": [1]}},
            "two": {"type": ["string", "null"]}, "deep": {"type": "array", "items": {"type": "array"}},
        },
        "dependentRequired": {"flag": ["date"]},
        "not": {"required": ["least", "most"]},
        "unevaluatedProperties": chance.random() < 0.5,
    }  # fmt: skip


_SCHEMAS: Final[tuple[Callable[[random.Random], dict[str, Any]], ...]] = (
    _catalogue, _catalogue, _alternatives, _multiplying, _crooked, _crooked,
)  # fmt: skip


@functools.lru_cache(maxsize=64)
def wide_text(seed: int) -> str:
    """The schema of a seed, as JSON text."""
    chance = random.Random(seed)
    return json.dumps(chance.choice(_SCHEMAS)(chance))


def wide_schema(seed: int) -> dict[str, Any]:
    """The schema of a seed."""
    schema: dict[str, Any] = json.loads(wide_text(seed))
    return schema


# ------------------------------------------------------------------------------------------ arguments


def _tree(depth: int) -> Any:
    made: Any = {"n": 1}
    for _ in range(depth):
        made = {"n": 1, "below": [made], "tree": made if depth < 40 else {}}
        if depth >= 40:
            made.pop("tree")
    return made


def wide_arguments(schema: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Arguments for a schema, wrong here and there, sometimes large."""
    chance = random.Random(seed)
    properties: Mapping[str, Any] = schema.get("properties", {})
    args: dict[str, Any] = {}
    plain = [name for name in properties if re.fullmatch(r"p\d+", name)]
    if plain and chance.random() < 0.8:
        left = plain[chance.choice((0, 0, 1, len(plain) // 2)) :]
        args |= {name: chance.choice(("x", "x", "x" * 10, 7, None)) for name in left}
    values: tuple[Any, ...] = (
        1, -1, 2.5, True, None, "x", "X1", "abc" * 40, [], [1, 1], ["x", 1], [[1], 2], {}, {"n": "x"},
        {"k": 1}, {"kind": 7}, {"kind": 7, "x": 1}, {"kind": 900}, {"a": 1}, {"a": 1, "b": "x", "long": []},
        3, 99, "2024-02-30", "a", _tree(3), {"a": [1]},
    )  # fmt: skip
    others = [name for name in properties if name not in args and name not in plain and name != "mark"]
    for name in chance.sample(others, chance.randint(0, min(4, len(others)))):
        args[name] = chance.choice(values)
    if chance.random() < 0.4:
        args[chance.choice(("unheard", "un heard", "x" * 200, "ä"))] = chance.choice(values)
    large = chance.random()
    if large < 0.15 and "list" in properties:
        args["list"] = [chance.choice(values) for _ in range(chance.choice((30, 200, 1500)))]
    elif large < 0.25:
        args["tree"] = _tree(chance.choice((2, 9, 200, 300)))
    elif large < 0.32:
        rows = chance.choice((50, 200))
        args |= {
            "rows": [{"b": number} for number in range(rows)],
            "more": {f"m{number}": "x" for number in range(rows)},
        }
    return args


# ------------------------------------------------------------------------------------------ judged


@functools.lru_cache(maxsize=64)
def _validator(text: str) -> Any:
    return jsonschema_rs.validator_for(json.loads(text))


def takes(seed: int, args: Mapping[str, Any]) -> bool:
    """Whether the schema of a seed takes these arguments; False where the validator cannot read them."""
    try:
        return bool(_validator(wide_text(seed)).is_valid(json.loads(json.dumps(args, default=repr))))
    except ValueError:
        return False


def wrong_words(args: Mapping[str, Any], text: str) -> Iterator[str]:
    """What is wrong with a correction, as JSON has it: too long, or it misses what is there."""
    text = text.replace("\\n", "\n")
    if len(text) > MOST_CHARS or text.count("\n") > MOST_LINES:
        yield f"a correction has {len(text)} characters and {text.count(chr(10))} lines"
    for name in _MISSING.findall(text):
        if name in args:
            yield f"{name} is said to be missing, and is there"
