"""Functions that a host makes tools of, and what their schemas say; views of arguments that fail."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import attrs
import msgspec

from afpool import Tool, ToolContext  # noqa: TC001 -- read at run time, of annotations
from afpool.tools import (
    REDACTED,
    RedactionPolicy,
    RedactionRule,
    args_redacted_by,
    carries_argument_view,
    changed_arg_keys,
    define_tool,
    derive,
    from_identity,
    host_filled,
    redacted,
    shown_args_of,
    with_argument_view,
    with_wants,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping


class Word(str):
    """A name that is a text, and of another class."""

    __slots__ = ()


@attrs.define
class Spot:
    """A place."""

    name: str


def _another() -> Any:
    @attrs.define
    class Spot:
        """Another class of the same name."""

        height: int

    return Spot


Other: Any = _another()


def _plain(a: int, b: str = "x") -> str:
    """Say it.

    Args:
        a: How many,
            on two lines.
        c: Nobody takes this.
    it goes on without an indent

    Returns:
        Words.
    """
    return f"{a}{b}"


async def _open(a: int, ctx: ToolContext, **more: int) -> dict[str, int]:
    """Take any number.

    Raises:
        ValueError: Never.

    Parameters:
        a: The first.
        **more: The others.
    """
    return {"a": a, **more}


def _bare(a, b=1):  # type: ignore[no-untyped-def]
    return [a, b]


def _anything(**more: Any) -> None: ...


def _unresolved(ctx: ToolContext, name: str) -> None:
    """Args:
    name: The name.
    """


def _annotated(
    a: Annotated[int, msgspec.Meta(ge=1, description="at least one")], doc: Annotated[Any, "x"]
) -> int:
    return a


def _typed(way: Literal["up", "down"], spots: list[Spot], one: Spot | None = None) -> None: ...


def _two_contexts(a: ToolContext, b: ToolContext) -> None: ...


def _same_names(a: Spot, b: Other) -> None: ...


def _none() -> None: ...


class Expected(NamedTuple):
    """What a function's schema says: its members, those that are demanded, whether there may be others."""

    names: set[str]
    required: set[str]
    others: bool


FUNCTIONS: Final[Mapping[str, tuple[Callable[[], Any], Expected | None]]] = {
    "plain": (lambda: define_tool(_plain), Expected({"a", "b"}, {"a"}, others=False)),
    "open": (lambda: define_tool(name="open")(_open), Expected({"a"}, {"a"}, others=True)),
    "bare": (lambda: define_tool(_bare, name="bare"), Expected({"a", "b"}, {"a"}, others=False)),
    "anything": (lambda: define_tool(_anything), Expected(set(), set(), others=True)),
    "unresolved": (lambda: define_tool(_unresolved), Expected({"name"}, {"name"}, others=False)),
    "annotated": (
        lambda: define_tool(_annotated, wants={"doc": "doc"}),
        Expected({"a", "doc"}, {"a", "doc"}, others=False),
    ),
    "typed": (lambda: define_tool(_typed), Expected({"way", "spots", "one"}, {"way", "spots"}, others=False)),
    "none": (lambda: define_tool(_none), Expected(set(), set(), others=False)),
    "by execute": (lambda: define_tool(execute=_plain, name="x"), Expected(set(), set(), others=True)),
    "two contexts": (lambda: define_tool(_two_contexts), None),
    "two of one name": (lambda: define_tool(_same_names), None),
    "wants one": (lambda: define_tool(_plain, wants={"a": "doc"}), Expected({"a", "b"}, {"a"}, others=False)),
}


def signatures(chance: random.Random) -> Iterator[str]:
    """A function's schema names its arguments; what cannot be told is refused."""
    for name, (make, expected) in FUNCTIONS.items():
        try:
            tool = make()
        except TypeError as error:
            if expected is not None or not str(error).strip():
                yield f"{name} is refused: {error}"
            continue
        if expected is None:
            yield f"{name} is taken"
            continue
        schema = tool.input_schema
        found = Expected(
            set(schema.get("properties", {})),
            set(schema.get("required", ())),
            others=schema.get("additionalProperties", True) is not False,
        )
        if found != expected:
            yield f"{name} is listed as {schema!r}"
    yield from _several()


def _several() -> Iterator[str]:
    """Fills and wants over several tools, as a mapping and in order."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "title": "A", "description": "data"}, "b": {"type": "string"}},
    }
    one: Tool = define_tool(execute=_plain, name="one", input_schema=schema)
    two: Tool = define_tool(execute=_plain, name="two", input_schema={"type": "object"})
    loose = derive(two, input_schema={"type": "object", "properties": {"a": True}})
    for change in (
        lambda tools: host_filled(tools, {"a": from_identity("tenant")}),
        lambda tools: with_wants(tools, {"a": "doc"}),
    ):
        named = change({"x": one, "y": two})
        listed = change([one, two, loose])
        if set(named) != {"x", "y"} or len(listed) != 3 or named["y"] is not two or listed[1] is not two:
            yield f"of several {named!r} and {listed!r} are made"
    wants = with_wants(one, {"a": "doc"})
    if with_wants(wants, {"a": "doc"}) is not wants:
        yield "what wants it already is made another tool"


# ------------------------------------------------------------------------------------------ views

HIDDEN: Final = "to-be-hidden"


class _NoMapping:
    def __iter__(self) -> Iterator[str]:
        raise ValueError("nobody looks in here")


async def _late(args: Any) -> Any:
    return args


def _raises(args: Any) -> Any:
    raise ValueError(f"at {args}")


VIEWS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "raises": _raises,
    "none": lambda args: None,
    "late": lambda args: _late(args),  # noqa: PLW0108 -- an async function itself is refused where it is given
    "list": list,
    "same": lambda args: args,
    "names": lambda args: dict.fromkeys(args, 1),
}


def views(chance: random.Random) -> Iterator[str]:
    """What is hidden is hidden, whatever a view does, and names of every kind are told."""
    tool: Tool = define_tool(execute=_plain, name="t", input_schema={"type": "object"})
    policy = RedactionPolicy(
        ["key", "null", "true", "7"], ["^pass", "d$"], {"auth": ["a.b", "0.key"]}, deep=True
    )
    odd: dict[Any, Any] = {
        Word("key"): HIDDEN, None: HIDDEN, True: HIDDEN, 7: HIDDEN, "password": HIDDEN, "word\n": [1],
        "auth": {"a": {"b": HIDDEN}, "b": [{"key": HIDDEN}]}, "end\nd": HIDDEN, "x" * 300: 2,
        "n": float("nan"),
        "deep": {"inside": [{"password": HIDDEN}, ({"key": HIDDEN},), MappingProxyType({"key": HIDDEN})]},
    }  # fmt: skip
    for number in range(chance.choice((0, 0, 0, 1100))):
        odd[f"member{number}"] = number
    circle: dict[str, Any] = {"key": HIDDEN, "list": []}
    circle["list"].append(circle)
    hides = args_redacted_by(policy)
    for name, view in VIEWS.items():
        seen = with_argument_view(redacted(tool, policy), view)
        for args in (odd, circle, {"a": 1}, [HIDDEN], _NoMapping(), {("no", "name"): HIDDEN}):
            shown = shown_args_of(seen, args)
            if name not in {"same", "names"} and HIDDEN in repr(shown):
                yield f"a view that {name} shows {shown!r}"
            changed_arg_keys(args, shown)
        if not carries_argument_view(seen) or carries_argument_view(tool):
            yield f"it is not said that {name} is a view"
        broken = redacted(with_argument_view(tool, view), policy)
        shown = shown_args_of(broken, odd)
        if HIDDEN in repr(shown) and name not in {"same", "names"}:
            yield f"over a view that {name} {shown!r} is shown"
    for args in (odd, circle):
        if HIDDEN in repr(hides(args)):
            yield f"{hides(args)!r} is shown"
    if changed_arg_keys(odd, odd) or changed_arg_keys({"a": 1}, {"a": 1, "b": 2}) != ("b",):
        yield "what has changed is told otherwise"
    rule = RedactionRule(policy)
    for path in (["auth"], ["auth", "a"], ["auth", "a", "b"], ["deep", "inside", "0", "password"]):
        if HIDDEN in repr(rule.retain(path, HIDDEN)) and rule.verdict(path).kind == "whole":
            yield f"{path} is shown"
        rule.retain(path, {"a": {"b": HIDDEN}, "key": HIDDEN})
    if REDACTED not in json.dumps(rule.retain(["auth"], {"a": {"b": HIDDEN}})):
        yield "a path inside is not hidden"
