"""How a tool of the host's own says a secret aloud: in values of every kind, in bytes, and in what it raises.

What a tool of a vendor's SDK does by accident these do on purpose: a response object that holds its request,
an exception that holds its response, a secret as a number, as a key, in base64, thousands of times.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

from afpool import Progress, ToolResult
from afpool.tools import HOST_FILLED_PLACEHOLDER, content_result
from tests.simulation.driver_secrets import AppFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from afpool import ToolContext


@attrs.define
class Carrier:
    """An object of a class that can be built again."""

    value: Any
    inside: list[Any] = attrs.field(factory=list)


class Opaque:
    """An object that only holds something."""

    def __init__(self, value: Any, times: int = 1) -> None:
        self.held = {"value": [value], "more": [[number] for number in range(times)]}


class Pair(NamedTuple):
    """Two things."""

    one: Any
    two: Any


class Slotted(Exception):
    """An error with an attribute beside its dictionary."""

    __slots__ = ("token",)


class Unshowable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise AppFault("it has no words")


class Unbuildable(Exception):
    """An error that is built otherwise than `args` says."""

    def __init__(self, *, response: Any) -> None:
        super().__init__(f"with {response}")
        self.response = response


class Uncopied(Exception):
    """An error that refuses to be copied."""

    def __reduce__(self) -> Any:
        raise TypeError("not this one")


# ------------------------------------------------------------------------------------------ returned


def _circle(value: str) -> list[Any]:
    made: list[Any] = [value]
    made.append(made)
    return made


def _deep(value: Any, depth: int = 80) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _raw(said: Mapping[str, Any], member: str, call: str) -> ToolResult:
    text = json.dumps(json.dumps(said))
    raw = f'{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{{member}}}}}'
    return ToolResult(raw.encode(), call)


def _escaped(value: str) -> str:
    return '"' + "".join(f"\\u{ord(char):04x}" for char in value) + '"'


def _coded(value: str, size: int = 0) -> str:
    return base64.b64encode(b"." * size + value.encode() + b"tail").decode()


def _twins(said: Mapping[str, Any], value: str, call: str) -> ToolResult:
    named = json.dumps(value)
    member = f'{named}:1,{_escaped(value)}:2,"{HOST_FILLED_PLACEHOLDER}-2":{{{named}:1,{_escaped(value)}:[]}}'
    return _raw(said, member, call)


def _blob(said: Mapping[str, Any], value: str, call: str) -> ToolResult:
    resource = {"uri": "doc://a", "blob": _coded(value, 70_000)}
    blocks: list[Mapping[str, Any]] = [
        {"type": "text", "text": json.dumps(said)},
        {"type": "image", "data": _coded(value), "mimeType": "image/png"},
        {"type": "audio", "data": f"{_coded(value)}!", "mimeType": "audio/wav"},
        {"type": "audio", "data": _coded("nothing"), "mimeType": "audio/wav"},
        {"type": "resource", "resource": resource},
    ]
    return content_result(blocks, call_id=call)


def _numbers(said: Mapping[str, Any], value: str, call: str) -> ToolResult:
    number = value if value.isdigit() else "12.5e1"
    member = f'"n":{number},"m":[-{number}.25, {number}],"s":{json.dumps(value)},"far":{number}'
    return _raw(said, member, call)


RETURNS: Final[Mapping[str, Callable[[Mapping[str, Any], str, str], Any]]] = {
    "object": lambda said, value, call: {**said, "held": Carrier(value, [value, 1])},
    "opaque": lambda said, value, call: {**said, "held": Opaque(value), "more": Opaque(1)},
    "huge-object": lambda said, value, call: {**said, "held": Opaque(1, 5000)},
    "report": lambda said, value, call: {**said, "held": Progress(1, 2, value)},
    "bytes": lambda said, value, call: {**said, "b": value.encode(), "c": bytearray(b"x"), "t": (value, 1)},
    "pair": lambda said, value, call: {**said, "p": Pair(value, [2]), "q": Pair(1, 2)},
    "circle": lambda said, value, call: {**said, "c": _circle(value)},
    "deep": lambda said, value, call: {**said, "d": _deep({value: value})},
    "too-deep": lambda said, value, call: {**said, "d": _deep(value, 400)},
    "same-keys": lambda said, value, call: {
        **said, value: 1, HOST_FILLED_PLACEHOLDER: 2, f"{HOST_FILLED_PLACEHOLDER}-2": 3,
    },
    "number": lambda said, value, call: {
        **said, "n": int(value) if value.isdigit() else 1.5, "m": float(value) if value.isdigit() else 7,
    },
    "twins": _twins,
    "blob": _blob,
    "numbers": _numbers,
    "hits": lambda said, value, call: json.dumps({**said, "pad": f"{value} " * 1100}),
    "long": lambda said, value, call: json.dumps(
        {**said, "pad": ["\\" * 999] * 150, "v": [value, {value: f"{value}{value}"}], "end": "x" * 9999}
    ),
    "long-clean": lambda said, value, call: json.dumps({**said, "pad": ["y" * 999] * 300}),
}  # fmt: skip


# ------------------------------------------------------------------------------------------ raised


def _chained(value: str) -> Exception:
    first: Exception = AppFault(f"told {value}")
    for number in range(230):
        following = AppFault(f"step {number}")
        following.__cause__ = first
        first = following
    return first


def _grouped(value: str) -> Exception:
    fault = AppFault(value)
    fault.__cause__ = ExceptionGroup("clean", [ValueError("x")])
    group = ExceptionGroup(f"of {value}", [fault, ExceptionGroup("inner", [KeyError(value), OSError("x")])])
    group.add_note(f"note of {value}")
    return group


def _with(error: Exception, **members: Any) -> Exception:
    for name, value in members.items():
        setattr(error, name, value)
    return error


RAISES: Final[Mapping[str, Callable[[str], Exception]]] = {
    "group": _grouped,
    "group-inside": lambda value: ExceptionGroup("clean words", [AppFault(value), AppFault("x")]),
    "group-clean": lambda value: ExceptionGroup("clean", [_with(AppFault("x"), held=Opaque(1))]),
    "chain": _chained,
    "attribute": lambda value: _with(AppFault("x"), request=Opaque(value), inner=ValueError(value), n=1),
    "attributes": lambda value: _with(AppFault("x"), response=Carrier(value), other=Carrier(1)),
    "slot": lambda value: _with(Slotted("x"), token=value),
    "slot-clean": lambda value: _with(Slotted("x"), token="t"),
    "unshowable": lambda value: _with(Unshowable(value), held=value),
    "unbuildable": lambda value: Unbuildable(response=value),
    "uncopied": Uncopied,
    "os-error": lambda value: OSError(2, "no such file", f"/tmp/{value}"),
    "lookup": lambda value: KeyError(value, {"deep": [value]}),
}

ALOUD: Final = (*RETURNS, *RAISES, "odd-report")


def say(how: str, said: Mapping[str, Any], value: str, ctx: ToolContext) -> Any:
    """Return a value that holds a secret, or raise what does."""
    if how == "odd-report" and ctx.progress is not None:
        for report in (
            Carrier(value),
            Opaque(value),
            _circle(value),
            {value: value},
            b"x",
            Progress(1, 1, None),
        ):
            ctx.progress(report)
        return dict(said)
    if value.isdigit() and how not in RAISES:
        how = "number" if ord(value[8]) % 2 else "numbers"  # what can be said as a number is
    if how in RAISES:
        raise RAISES[how](value)
    return RETURNS[how](said, value, ctx.call_id or "")
