"""The tool of a server whose arguments a host fills, wants and hides: its schemas, and what it answers.

It says everything that it got, in the form that `how` has it, so that whatever should not have come to it, or
should not come back from it, is seen.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from afpool.testing import Progress, text_result

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

FILLED: Final = ("account", "token")
HOWS: Final = (
    "text", "structured", "error", "blocks", "resource", "keys", "escaped", "progress", "sleep", "big",
    "legacy", "no-result", "deep",
)  # fmt: skip

_PLAIN: Final[Mapping[str, Any]] = {
    "mark": {"type": "string"},
    "how": {"type": "string", "enum": list(HOWS)},
    "account": {"type": "string"},
    "token": {"type": "string", "description": "a secret"},
    "doc": {"type": "string"},
    "note": {},
    "secret": {"type": "string"},
    "password": {"type": "string"},
    "auth": {"type": "object", "properties": {"key": {"type": "string"}}},
    "size": {"type": "integer", "minimum": 0, "maximum": 100000},
    "count": {"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 1},
    "word": {"type": "string", "minLength": 2, "maxLength": 8, "pattern": "^[a-z]+$"},
    "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    "region": {"type": "string"},
}

DRAFTS: Final = (
    "",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)


def vault_schema() -> dict[str, Any]:
    """The schema of a vault, where a world says no other."""
    return {"type": "object", "properties": dict(_PLAIN), "required": ["account"]}


def schema_as(how: str, first: str, seed: int) -> str:
    """The schema that a server lists from now on, as JSON text."""
    schema = json.loads(first) if first else vault_schema()
    properties = schema.get("properties", {})
    match how:
        case "restore":
            return first
        case "lose":
            properties.pop(FILLED[seed % 2], None)
            schema["required"] = [name for name in schema.get("required", []) if name in properties]
        case "rename":
            name = FILLED[seed % 2]
            properties[f"{name}_2"] = properties.pop(name, {})
            schema["required"] = [f"{name}_2"]
        case "uncuttable":
            schema["minProperties"] = 1
            schema["enum"] = [{"account": "a"}, {"token": "t"}]
        case "broken":
            properties["note"] = {"type": "no such type"}
        case "other":
            return made_schema(random.Random(seed))
    return json.dumps(schema)


def made_schema(chance: random.Random) -> str:
    """A vault's schema by chance: of any draft, with the filled arguments anywhere in its conditions."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(_PLAIN)}
    draft = chance.choice(DRAFTS)
    if draft:
        schema["$schema"] = draft
    named = chance.choice(("$defs", "definitions"))
    schema[named] = {
        "Text": {"type": "string"},
        "Object": _node(chance, 1, named, again=chance.random() < 0.1),
        "Again": {"properties": {"inside": {"$ref": f"#/{named}/Again"}, "n": {"type": "integer"}}},
    }
    for _ in range(chance.randint(1, 3)):
        schema |= {
            key: value for key, value in _node(chance, 2, named).items() if key not in {"type", "properties"}
        }
    for name in ("account", "token", "note", "doc"):
        if chance.random() < 0.4:
            schema["properties"][name] = _value(chance, named)
    if chance.random() < 0.5:
        schema["required"] = chance.sample(["account", "token", "mark", "note"], chance.randint(1, 3))
    return json.dumps(schema)


def _value(chance: random.Random, named: str = "$defs") -> Any:
    return chance.choice((
        {}, True, {"type": "string"}, {"type": ["string", "null"]}, {"minLength": 1}, {"pattern": "^."},
        {"anyOf": [{"type": "null"}, {"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"not": {"type": "integer"}}, {"allOf": [{"type": "string"}, {"minLength": 1}]},
        {"$ref": f"#/{named}/Text"}, {"type": "string", "format": "email"}, {"$ref": "#/properties/mark"},
        {"type": "integer"}, {"enum": ["a", "bb", None]},
    ))  # fmt: skip


def _node(chance: random.Random, depth: int, named: str = "$defs", *, again: bool = True) -> dict[str, Any]:
    """A schema of some depth; `again`: it may refer to the one that is named `Object`."""
    names = ("account", "token", "note", "mark", "count", "word")

    def some() -> list[str]:
        return chance.sample(names, chance.randint(1, 2))

    def inner() -> dict[str, Any]:
        return _node(chance, depth - 1, named, again=again) if depth else {"required": some()}

    def many() -> list[dict[str, Any]]:
        return [inner() for _ in range(chance.randint(1, 3))]

    kinds: dict[str, Any] = {
        "required": some,
        "minProperties": lambda: chance.randint(0, 4),
        "maxProperties": lambda: chance.randint(3, 9),
        "patternProperties": lambda: {chance.choice(("^t", "^token$", "n", "^x")): _value(chance, named)},
        "additionalProperties": lambda: chance.choice((True, False, _value(chance, named))),
        "properties": lambda: {name: _value(chance, named) for name in some()},
        "allOf": many,
        "anyOf": many,
        "oneOf": many,
        "not": inner,
        "dependencies": lambda: {chance.choice(names): chance.choice((some(), inner()))},
        "dependentRequired": lambda: {chance.choice(names): some()},
        "dependentSchemas": lambda: {chance.choice(names): inner()},
        "propertyNames": lambda: chance.choice(({"maxLength": 12}, True, {"pattern": "^[a-z]"}, {})),
        "unevaluatedProperties": lambda: chance.choice((True, False, _value(chance, named))),
        "if": inner,
        "then": inner,
        "else": inner,
        "const": lambda: {"account": "a", "note": 1},
        "enum": lambda: [{"account": "a"}, {"note": 1}, {}],
        "$ref": lambda: f"#/{named}/{'Object' if again else 'Text'}",
        "title": lambda: "words",
        "examples": lambda: [{"token": "t", "note": 1}],
        "default": lambda: {"token": "t"},
    }
    common = ("required", "properties", "allOf", "anyOf", "if", "then", "dependentRequired", "title")
    wanted = chance.sample(common if chance.random() < 0.5 else sorted(kinds), chance.randint(1, 3))
    if "if" in wanted:
        wanted += ["then", "else"]
    return {key: kinds[key]() for key in wanted}


async def play_vault(
    how: Any, said: dict[str, Any], arguments: Mapping[str, Any]
) -> AsyncGenerator[Any, Any]:
    """Answer with all that came."""
    everything = {**said, "got": dict(arguments)}
    text = json.dumps(everything, ensure_ascii=how != "escaped")
    loud = str(arguments.get("token", "none"))
    match how:
        case "structured":
            yield {**text_result(text), "structuredContent": everything}
        case "error":
            yield text_result(text, is_error=True)
        case "blocks":
            yield {
                "content": [
                    {"type": "text", "text": text},
                    {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                    {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
                    {"type": "resource_link", "uri": f"doc://{loud}", "name": loud, "title": loud},
                    {"type": "unheard-of", "x": loud},
                ]
            }
        case "resource":
            resource = {"uri": f"doc://{loud}", "text": text, "mimeType": "text/plain"}
            yield {"content": [{"type": "resource", "resource": resource}]}
        case "keys":
            yield {
                "content": [{"type": "text", "text": json.dumps(said)}],
                "structuredContent": {**said, loud: {loud: [loud, {f"x{loud}": 1}]}},
                "_meta": {"note": loud},
            }
        case "escaped":
            inside = json.dumps({"inside": json.dumps({"deep": text, "slash": loud.replace("/", "\\/")})})
            yield json.dumps({**said, "inside": inside})
        case "progress":
            yield Progress(1, 2, f"with {loud}")
            yield text
        case "big":
            yield json.dumps({**everything, "pad": f"{loud} " * 4000})
        case "legacy":
            yield {"toolResult": everything}
        case "no-result":
            yield {"content": {"text": text}}
        case "deep":
            nested: Any = everything
            for _ in range(70):
                nested = [nested]
            yield {**text_result(json.dumps(said)), "structuredContent": {"deep": nested}}
        case _:
            yield text
