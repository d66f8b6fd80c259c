"""Schemas by chance out of which the host takes the arguments that it fills, held against a validator.

What the whole schema takes with some string filled in, the shown one takes without it. A schema that the
arguments cannot be taken out of is refused, by an error that says so.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from afpool.tools import CannotHideArgumentError, define_tool, derive, from_identity, host_filled
from tests.simulation.door_vault import DRAFTS, FILLED, made_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

TEXTS: Final = (
    "a", "b", "bb", "abc", "token", "x@y.zz", "aaaaaaaaa", "7", "A1", "http://x.test/", "a" * 30, "xa", "-",
)  # fmt: skip
_TEXT: Final = {"type": "string"}


def _value(chance: random.Random, depth: int = 2) -> Any:
    """What a schema says of an argument's value."""
    plain: tuple[Any, ...] = (
        {}, True, _TEXT, {"type": ["string", "null"]}, {"minLength": 1}, {"minLength": 2}, {"maxLength": 3},
        {"const": "a"}, {"enum": ["a", "bb", "abc", 1]}, {"pattern": "^a"}, {"pattern": "b"},
        {"title": "words"}, {"format": "email"}, {"minLength": 4}, {"enum": ["token"]}, {"$ref": "#/$defs/V"},
    )  # fmt: skip
    rare: tuple[Any, ...] = (
        False, 7, {"maxLength": 0}, {"const": 7}, {"type": "integer"}, {"minLength": 9, "maxLength": 12},
        {"const": "x" * 70_000}, {"$ref": "#/$defs/none"}, {"maxLength": 9000, "pattern": "^ab*$"},
        {"$dynamicRef": "#node"}, {"$ref": "#/properties/n"},
    )  # fmt: skip
    if chance.random() < 0.12:
        return chance.choice(rare)
    if depth == 0 or chance.random() < 0.55:
        return chance.choice(plain)

    def several() -> list[Any]:
        return [_value(chance, depth - 1) for _ in range(chance.randint(1, 3))]

    kind = chance.randrange(5)
    if kind == 4:
        return {"if": _value(chance, 0), "then": _value(chance, 0), "else": _value(chance, 0)}
    if kind == 3:
        return {"not": _value(chance, depth - 1)}
    return {("allOf", "anyOf", "oneOf")[kind]: several()}


def _part(chance: random.Random) -> dict[str, Any]:
    """Something that generators of schemas write, around the arguments `account` and `token`."""
    names = ("account", "token", "n", "m")
    some = chance.sample(names, chance.randint(1, 2))
    value = _value(chance)
    part = {"properties": {chance.choice(FILLED): value}, "required": some}
    if chance.random() < 0.15:
        return chance.choice((
            {"propertyNames": chance.choice(({"const": "token"}, {"maxLength": 5}, {"enum": list(FILLED)}))},
            {"propertyNames": {"pattern": chance.choice(("a(?=b)", "^(?:a|t|n|m|k)", "("))}},
            {"patternProperties": {chance.choice(("(?<=x)y", "a(?!c)", "(")): value}},
            {"enum": [{"account": "a", "token": "b"}, {"account": "a", "token": "b", "n": 1}, 7]},
            {"enum": [{"account": "a", "token": "b", "n": 1}, {"account": "bb", "token": "b"}]},
            {"const": {"account": "a", "token": "b", "n": 1}}, {"type": "string"},
            {"$ref": chance.choice(("other.json#", "#gone", "#/allOf/9", "#/properties/n", "#named"))},
            {"$dynamicRef": "#node"}, {"not": part}, {"maxProperties": 1}, {"minProperties": 4},
        ))  # fmt: skip
    return chance.choice((
        part, part, {"anyOf": [part, {"required": some}]}, {"oneOf": [part, {"required": ["n"]}]},
        {"if": part, "then": {"required": ["n"]}, "else": {"maxProperties": 3}},
        {"propertyNames": {"enum": [*FILLED, "n"]}}, {"propertyNames": {"pattern": "^[a-z]"}},
        {"patternProperties": {chance.choice(("^t", "^token$")): value}},
        {"dependentRequired": {"token": some, "n": ["account"]}},
        {"dependencies": {"n": part, "token": chance.choice((some, part, 7))}},
        {"dependentSchemas": {"token": part, "n": {"required": some}}},
        {"minProperties": chance.choice((0, 1, 2, 3))}, {"maxProperties": chance.choice((2, 3, 4))},
        {"$ref": chance.choice(("#/$defs/P", "https://x.test/sub", "#/allOf/0", "sub.json", "#/$defs/Q"))},
        {"$ref": "#/$defs/P", "title": "beside"}, {"$ref": "#/$defs/P/properties/n"},
        {"additionalProperties": chance.choice((False, True, value))},
        {"unevaluatedProperties": chance.choice((False, value)), "allOf": [part]},
        {"unevaluatedProperties": False, "anyOf": [part, {"properties": {"n": {}}}]},
        {"unevaluatedProperties": False, "if": part, "then": {"properties": {"account": {}}}},
        {"unevaluatedProperties": False, "if": {"required": ["n"]}, "else": {"properties": {"account": {}}}},
        {"unevaluatedProperties": False, "patternProperties": {"^[atmn]": {}}},
        {"unevaluatedProperties": False, "$ref": "#/$defs/P", "dependentSchemas": {"n": {"properties": {}}}},
        {"discriminator": {"propertyName": "k", "mapping": {
            "p": "#/$defs/P", "o": "other.json", "q": "#/$defs/Q", "s": 3, "t": "#/properties/token"}},
         "oneOf": [{"$ref": "#/$defs/P"}, {"$ref": "#/$defs/Q"}]},
        {"items": {"$ref": "#/$defs/P"}, "examples": [{"token": "t"}, 7], "default": {"account": "a"}},
    ))  # fmt: skip


def cut_schema(chance: random.Random) -> dict[str, Any]:
    """A schema by chance that declares both arguments."""
    if chance.random() < 0.2:
        made: dict[str, Any] = json.loads(made_schema(chance))
        return made
    other = {"properties": {"n": {"type": "integer"}, "token": _TEXT}, "required": ["n"]}
    sub: dict[str, Any] = {
        **other,
        "$defs": {"V": {"minLength": 2}},
        "properties": {"n": {}, "m": {"$ref": "#/$defs/V"}, "token": chance.choice(({}, _TEXT))},
    }
    named = {"$anchor": "named", "id": "#named", **_part(chance)}
    definitions: dict[str, Any] = {
        "P": chance.choice((other, _part(chance), named, {"properties": {"n": _TEXT}})),
        "Q": chance.choice(
            (
                {"$id": "https://x.test/sub", **sub},
                {"$ref": "#/$defs/P"},
                {"$id": "sub.json", **sub},
                {"properties": {"n": {"$ref": "#"}}},
            )
        ),
        "V": _value(chance, 1),
    }
    if chance.random() < 0.05:
        definitions |= {f"R{at}": {"$ref": f"#/$defs/R{at + 1}"} for at in range(230)} | {"R230": other}
    schema: dict[str, Any] = {
        "type": "object",
        "$defs": definitions,
        "properties": {
            "account": _value(chance),
            "token": _value(chance, 1),
            "n": chance.choice(({}, _TEXT, 7, {"$ref": "#/$defs/Q"}, {"$ref": "#/properties/token"})),
        },
    }
    draft = chance.choice(DRAFTS)
    if draft:
        schema["$schema"] = draft
    if chance.random() < 0.2:
        schema["$id"] = "https://x.test/root"
    for _ in range(chance.randint(0, 2)):
        schema |= {key: value for key, value in _part(chance).items() if key not in {"type", "properties"}}
    if chance.random() < 0.5:
        schema["allOf"] = [_part(chance) for _ in range(chance.choice((1, 1, 2, 9)))]
    return _in_words_of(draft, schema, chance)


def _in_words_of(draft: str, schema: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The same as an older generator writes it, now and then: other words for definitions and for its URI."""
    text = json.dumps(schema)
    if chance.random() < 0.3:
        text = text.replace("$defs", "definitions")
    if "draft-04" in draft and chance.random() < 0.7:
        text = text.replace('"$id"', '"id"')
    made: dict[str, Any] = json.loads(text)
    return made


def _validator(schema: Mapping[str, Any]) -> Any | None:
    try:
        return jsonschema_rs.validator_for(dict(schema))
    except Exception:  # whatever is wrong with it, there is nothing to hold it against
        return None


_OTHERS: Final[Sequence[Mapping[str, Any]]] = (
    {}, {"n": 1}, {"n": "x"}, {"m": 1}, {"n": 1, "m": 2}, {"k": [], "n": 3}, {"m": "x", "k": 1, "n": 7},
)  # fmt: skip


def _some(whole: Any, fields: Sequence[str], args: Mapping[str, Any]) -> bool:
    """Whether a schema takes arguments with some string filled in for each of the others."""
    return any(
        whole.is_valid({**args, **dict(zip(fields, texts, strict=True))})
        for texts in itertools.product(TEXTS, repeat=len(fields))
    )


def cuts(chance: random.Random) -> Iterator[str]:
    """See the module."""
    for _ in range(5):
        schema = cut_schema(chance)
        fields: Sequence[str] = FILLED if chance.random() < 0.5 else FILLED[:1]
        bare: Any = define_tool(execute=lambda args, ctx: "x", name="t", input_schema={"type": "object"})
        tool = derive(bare, input_schema=schema)
        whole = _validator(schema)
        taken = [args for args in _OTHERS if whole is not None and _some(whole, fields, args)]
        try:
            shown = host_filled(tool, {name: from_identity("principal") for name in fields}).input_schema
        except CannotHideArgumentError as error:
            if taken and ("no call at all" in str(error) or "no value fits" in str(error)):
                yield f"{schema!r} is said to take no call at all, and takes {taken[0]}"
            continue
        except TypeError as error:
            if "declare" not in str(error):
                yield f"{schema!r} is refused with {error}"
            continue
        if shown.get("properties", {}).keys() & set(fields):
            yield f"{fields} are still shown of {schema!r}"
        left = _validator(shown)
        if left is None and whole is not None:
            yield f"what is shown of {schema!r} is no schema: {shown!r}"
            continue
        for args in taken:
            if not left.is_valid(args):
                yield f"{schema!r} takes {args}, and what is shown does not: {shown!r}"
