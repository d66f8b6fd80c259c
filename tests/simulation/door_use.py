"""What a host does with the tools package by itself, by chance: mistakes, patterns, redaction, formats.

Each returns what is wrong, one line each: a mistake that is taken, a name that a pattern finds and `re` does
not (or the other way round), a value that was to be hidden and is not, a message of a model that raises.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from afpool import AfpoolError, CredentialRequirement, ToolResult
from afpool.tools import (
    Deny,
    Hook,
    RedactionPolicy,
    RedactionRule,
    ResultCeiling,
    ResultLimits,
    define_tool,
    derive,
    from_credential,
    from_identity,
    host_filled,
    present_tool,
    read_structured,
    read_text,
    redacted,
    with_argument_view,
    with_result_ceiling,
    with_wants,
)
from tests.simulation.door_cuts import cuts
from tests.simulation.door_models import FORMATS
from tests.simulation.door_signatures import signatures, views

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

# ------------------------------------------------------------------------------------------ mistakes


def _tool(**more: Any) -> Any:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    return define_tool(execute=lambda args, ctx: "x", **{"name": "t", "input_schema": schema, **more})


def _two(a: int, /) -> int:
    return a


async def _many(*a: int) -> None: ...


def _made_up(a: complex) -> None: ...


def _yields(a: int) -> Iterator[int]:
    yield a


MISTAKES: Final[Mapping[str, Callable[[], Any]]] = {
    "no function": lambda: define_tool(7),  # type: ignore[call-overload]
    "two functions": lambda: define_tool(_two, execute=lambda args, ctx: 1),  # type: ignore[call-overload]
    "no name": lambda: define_tool(execute=lambda args, ctx: 1),
    "a name with a space": lambda: _tool(name="a b"),
    "an empty name": lambda: _tool(name=""),
    "a long name": lambda: _tool(name="x" * 65),
    "no description": lambda: _tool(description=7),
    "needs of a number": lambda: _tool(needs=7),
    "a ceiling that is a number": lambda: _tool(result_ceiling=7),
    "a blank kind": lambda: _tool(result_kind=" "),
    "a schema that is a list": lambda: _tool(input_schema=[1]),
    "a schema that is none": lambda: _tool(input_schema={"type": "no such type"}),
    "a schema that is no JSON": lambda: _tool(input_schema={"type": {1}}),
    "an output schema that is none": lambda: _tool(output_schema={"type": 7}),
    "annotations that are a list": lambda: _tool(annotations=[1]),
    "wants nothing": lambda: _tool(wants={}),
    "wants no mapping": lambda: _tool(wants=[1]),
    "wants a blank kind": lambda: _tool(wants={"a": " "}),
    "wants for a number": lambda: _tool(wants={7: "doc"}),
    "wants what is not there": lambda: _tool(wants={"c": "doc"}),
    "only by position": lambda: define_tool(_two),
    "any number": lambda: define_tool(_many),
    "no schema": lambda: define_tool(_made_up),
    "a generator": lambda: define_tool(_yields),
    "fills no mapping": lambda: host_filled(_tool(), 7),  # type: ignore[call-overload]
    "fills of a number": lambda: host_filled(_tool(), {"a": 7}),  # type: ignore[dict-item]
    "fills a number": lambda: host_filled(_tool(), {7: from_identity("tenant")}),  # type: ignore[dict-item]
    "fills what is not there": lambda: host_filled(_tool(), {"c": from_identity("tenant")}),
    "fills what none has": lambda: host_filled([_tool()], {"c": from_identity("tenant")}),
    "fills no tool": lambda: host_filled([7], {"a": from_identity("tenant")}),  # type: ignore[list-item]
    "fills what is wanted": lambda: host_filled(_tool(wants={"a": "doc"}), {"a": from_identity("tenant")}),
    "another service": lambda: host_filled(_tool(needs="x"), {"a": from_credential("y")}),
    "no service": lambda: host_filled(_tool(), {"a": from_credential()}),
    "two services": lambda: host_filled(_tool(), {"a": from_credential("x"), "b": from_credential("y")}),
    "two modes": lambda: host_filled(
        _tool(), {"a": from_credential("x"), "b": from_credential("x", mode="user")}
    ),
    "no field": lambda: from_identity("name"),  # type: ignore[arg-type]
    "no mode": lambda: from_credential("x", mode="any"),  # type: ignore[arg-type]
    "an empty service": lambda: from_credential(""),
    "no reader": lambda: from_credential("x", read=7),  # type: ignore[arg-type]
    "wants of no tool": lambda: with_wants([7], {"a": "doc"}),  # type: ignore[list-item]
    "wants what none has": lambda: with_wants([_tool()], {"c": "doc"}),
    "wants what it has not": lambda: with_wants(_tool(), {"c": "doc"}),
    "wants another kind": lambda: with_wants(_tool(wants={"a": "doc"}), {"a": "note"}),
    "keys of a text": lambda: RedactionPolicy("a"),
    "a key that is a number": lambda: RedactionPolicy([7]),  # type: ignore[list-item]
    "patterns of a text": lambda: RedactionPolicy((), "a"),
    "a pattern that looks ahead": lambda: RedactionPolicy((), ["a(?=b)"]),
    "a pattern that refers": lambda: RedactionPolicy((), [r"(a)\1"]),
    "a pattern that is none": lambda: RedactionPolicy((), ["("]),
    "a pattern that is huge": lambda: RedactionPolicy((), ["(?:a{50}){50}"]),
    "a pattern of a number": lambda: RedactionPolicy((), [7]),  # type: ignore[list-item]
    "a pattern with words": lambda: RedactionPolicy((), [re.compile("a b", re.VERBOSE)]),
    "fields of a list": lambda: RedactionPolicy((), (), ["a"]),  # type: ignore[arg-type]
    "fields of a text": lambda: RedactionPolicy((), (), {"a": "b"}),
    "a path that is a number": lambda: RedactionPolicy((), (), {"a": [7]}),  # type: ignore[list-item]
    "a path that is long": lambda: RedactionPolicy((), (), {"a": [".".join("x" * 200)]}),
    "neither deep nor not": lambda: RedactionPolicy((), deep=7),  # type: ignore[arg-type]
    "a rule of no policy": lambda: RedactionRule(7),  # type: ignore[arg-type]
    "a mark that is a number": lambda: RedactionRule(RedactionPolicy()).mark(7),  # type: ignore[arg-type]
    "redacted by a number": lambda: redacted(_tool(), 7),  # type: ignore[call-overload]
    "a view that is a number": lambda: with_argument_view(_tool(), 7),  # type: ignore[call-overload]
    "a ceiling of nothing": lambda: ResultCeiling(0),
    "a ceiling narrowed by a text": lambda: ResultCeiling(5, "size"),
    "a ceiling narrowed by blanks": lambda: ResultCeiling(5, (" ",)),
    "no ceiling": lambda: with_result_ceiling(_tool(), 7),  # type: ignore[arg-type]
    "limits of a text": lambda: ResultLimits(max_chars="5"),  # type: ignore[arg-type]
    "a hook without a name": lambda: Hook(" "),
    "a hook of a number": lambda: Hook("h", before=7),  # type: ignore[arg-type]
    "a denial without words": lambda: Deny(7),  # type: ignore[arg-type]
    "derived from a number": lambda: derive(7),  # type: ignore[arg-type]
    "derived with a name of a number": lambda: derive(_tool(), name=7),  # type: ignore[arg-type]
    "ways that are numbers": lambda: present_tool(ways=[7]),  # type: ignore[list-item]
    "a blank way": lambda: present_tool(ways=[" "]),
    "no way": lambda: present_tool(ways=[]),
    "no scopes": lambda: CredentialRequirement("x", "scope"),  # type: ignore[arg-type]
}


def mistakes(chance: random.Random) -> Iterator[str]:
    """Each is refused, with words."""
    for name in chance.sample(sorted(MISTAKES), 40):
        try:
            MISTAKES[name]()
        except (TypeError, ValueError) as error:
            if not str(error).strip():
                yield f"{name} is refused without a word"
        else:
            yield f"{name} is taken"


# ------------------------------------------------------------------------------------------ patterns

ATOMS: Final = (
    "a", "b", "_", ".", "[a-c]", "[^b]", r"\w", r"\W", r"\d", r"\s", r"\S", r"\b", r"\B", "^", "$", r"\A",
    r"\Z", "(?:ab|c)", "(a|b)", "[A-Z_]", r"\.", "k", "(?i:K)", "(?P<n>a)", r"\x61", "é", "(?s:.)", "(?-i:a)",
    "[]a]",
    "(?:)", "(?a:\\w)", "{", "(?#words)", "a++", "(?x:a b)",
    r"\z", r"(?a:\b\B)", "(?i-s:.)", "(?:" * 62 + "a" + ")" * 62,
)  # fmt: skip
REPEATS: Final = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "{1,}", "*?", "+?", "??", "{1,2}?")
FLAGS: Final = (0, 0, re.IGNORECASE, re.DOTALL, re.MULTILINE, re.ASCII)
NAMES: Final = (
    "a", "ab", "abc", "token", "A_B", "a.b", "key", "KEY", "é", "aa bb", "", "a\nb", "a1", "_", "ccc",
    "\u017f", "K", "{",
)  # fmt: skip


def patterns(chance: random.Random) -> Iterator[str]:
    """A name is hit exactly where `re` finds the pattern in it."""
    for _ in range(14):
        parts = [chance.choice(ATOMS) + chance.choice(REPEATS) for _ in range(chance.randint(1, 4))]
        text = "|".join(["".join(parts)] * chance.choice((1, 1, 2)))
        try:
            compiled = re.compile(text, chance.choice(FLAGS))
        except (re.error, RecursionError):
            continue
        try:
            rule = RedactionRule(RedactionPolicy((), [compiled]))
        except ValueError:
            continue  # too large, or of a kind that is not matched in linear time
        for name in NAMES:
            hit = rule.verdict([name]).kind == "whole" if name else None
            # not `search`, which looks for a first character by the flags outside of a group's own
            found = any(compiled.match(name, at) for at in range(len(name) + 1))
            if hit is not None and hit != found:
                yield f"{compiled!r} in {name!r} is {found} for re, and {hit} here"


# ------------------------------------------------------------------------------------------ redaction

SECRET: Final = "to-be-hidden"


def _tree(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(7)
    if depth == 0 or kind < 2:
        return chance.choice((SECRET, 1, None, [SECRET], True, 1.5))
    if kind == 2:
        return [_tree(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    if kind == 3:
        return (SECRET, {"key": SECRET})
    if kind == 4 and depth > 1:
        return _Held(SECRET)
    made = {name: _tree(chance, depth - 1) for name in chance.sample(("a", "b", "key", "x.y", "0"), 2)}
    return MappingProxyType(made) if kind == 5 else made


@attrs.frozen
class _Held:
    value: str


def redaction(chance: random.Random) -> Iterator[str]:
    """What a policy hides everywhere is nowhere; what hides nothing gives the same object back."""
    for _ in range(6):
        record = {name: _tree(chance, 3) for name in ("a", "b", "key", "auth")}
        whole = RedactionRule(RedactionPolicy(["a", "b", "key", "auth"], deep=chance.random() < 0.5))
        shown = whole.retain_record(record)
        if SECRET in repr(shown):
            yield f"{shown!r} shows what is hidden"
        if RedactionRule(RedactionPolicy()).retain_record(record) is not record:
            yield "what hides nothing gives another object"
        rule = RedactionRule(
            RedactionPolicy(
                chance.sample(("key", "a.b", "auth.key", "x.y"), 2),
                ["^ke"] if chance.random() < 0.5 else (),
                {"auth": ["a", "b.0", "key.a", "0.key"]} if chance.random() < 0.7 else {},
                deep=chance.random() < 0.5,
            )
        )
        if chance.random() < 0.4:
            rule.mark("b")
        kept = rule.retain_record(record)
        if rule.verdict(["key"]).kind == "whole" and SECRET in repr(kept["key"]):
            yield f"key is shown: {kept['key']!r}"
        for path in (["auth"], ["auth", "a"], ["auth", "b", "0"], ["b", "key"], []):
            verdict = rule.verdict(path)
            value = record.get(path[0]) if path else SECRET
            if verdict.kind == "whole" and SECRET in repr(rule.retain(path, value)):
                yield f"{path} is shown"
            if verdict.kind == "clear" and not rule.policy.deep and rule.retain(path, value) is not value:
                yield f"{path} is another object, and nothing of it is hidden"
        rule.unmark("b")
        if SECRET in repr(rule.report()) or (rule.inert and rule.policy.names.inert is False):
            yield "what a rule goes by shows a value"
        if rule.retain_record(7) != 7:
            yield "what is no record is another one"


# ------------------------------------------------------------------------------------------ formats, results


def formats(chance: random.Random) -> Iterator[str]:
    """Whatever a model says is read, as calls or as none; tools of any schema are told."""
    pieces: list[Any] = [
        None, 7, "text", [], {}, {"content": 7}, {"choices": []}, {"choices": [{"message": None}]},
        {"tool_calls": [{"function": 7}]},
        {"tool_calls": [{"id": 1, "function": {"name": 2, "arguments": "{"}}]},
        {"output": [{"type": "function_call", "name": None, "arguments": ""}]}, {"candidates": []},
        {"parts": [{"functionCall": 7}, {"functionCall": {"name": "__x", "args": 1}}]},
        {"method": "tools/call"},
        {"method": "tools/call", "params": {"name": 1}, "id": True}, [{"type": "tool_use"}], "\ud800",
        {"tool_calls": [{"function": {"name": "a", "arguments": "\ud800"}}]},
    ]  # fmt: skip
    for name, each, message in [
        (name, each, message) for name, each in FORMATS.items() for message in chance.sample(pieces, 5)
    ]:
        try:
            calls = each.calls(message)
        except Exception as error:
            yield f"{name} raises {error!r} at {message!r}"
        else:
            if not all(isinstance(call.name, str) for call in calls):
                yield f"{name} gives a name that is no string"
    schemas: list[Any] = [
        {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": {}}}}},
        {"anyOf": [{"required": ["a"]}], "properties": None}, {"$ref": "#"}, {"$ref": "http://x.test"}, {},
    ]  # fmt: skip
    tool = derive(_tool(), input_schema=chance.choice(schemas), name=chance.choice(("t", "1t", "-x", "_1")))
    for name, each in FORMATS.items():
        try:
            json.dumps(each.tools([tool]))
        except Exception as error:
            yield f"{name} cannot tell {tool!r}: {error!r}"


RAW: Final = (
    b"{}", b"[]", b"7", b"{", b'{"content":7}', b'{"content":[7]}', b'{"content":[{}]}', b"\xff",
    b'{"content":[{"type":"text"}]}', b'{"content":[{"type":"text","text":7}]}', b'{"toolResult":"x"}',
    b'{"structuredContent":[1]}', b'{"structuredContent":{"a":1}}', b'{"content":[],"isError":true}',
    b'{"content":[{"type":"text","text":"{\\"a\\":1}"}]}', b'{"content":[{"type":"text","text":"[1]"}]}',
    b'{"content":[{"type":"resource","resource":{"uri":"x"}}]}', b'{"content":[{"type":"image"}]}',
    b'{"content":[{"type":"resource","resource":7}]}', b'{"content":[{"type":"resource_link"}]}',
    b'{"content":[{"type":7}],"isError":"yes"}', b'{"content":[{"type":"text","text":"e"}],"isError":true}',
    b'{"a":1,"b":2}', b'{"structuredContent":null}',
    b'{"structuredContent":true}', b'{"structuredContent":7}',
    b'{"structuredContent":{"a":' + b"[" * 80 + b"]" * 80 + b"}}",
    b'{"content":[{"type":"text","text":"{"}]}',
    b'{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}',
    b'{"content":[{"type":"audio","data":"%%%","mimeType":"audio/wav"}]}',
)  # fmt: skip


def _or_json(result: ToolResult) -> Any:
    return read_structured(result, or_json=True)


def results(chance: random.Random) -> Iterator[str]:
    """Whatever a server answered is read, or refused by an error of afpool's."""
    for raw in chance.sample(RAW, 20):
        result = ToolResult(raw, "c1")
        for read in (read_text, read_structured, _or_json):
            try:
                read(result)
            except AfpoolError:
                pass
            except Exception as error:
                yield f"{read.__name__} raises {error!r} at {raw!r}"


USES: Final[Mapping[str, Callable[[random.Random], Iterator[str]]]] = {
    "mistakes": mistakes,
    "patterns": patterns,
    "redaction": redaction,
    "formats": formats,
    "results": results,
    "cuts": cuts,
    "signatures": signatures,
    "views": views,
}
