"""The formats that agents speak to models in: tools out, calls in, results back. No vendor's SDK is imported.

Rules:

* A format turns tools into what a request to its model lists, a model's message into the calls that it
  makes, and their results into what the next request says. Nothing in it runs anything: `answer_calls` does,
  through whatever door it is given.
* Schemas go out as they are, but for what a vendor refuses at their root, with the whole request: there a
  model is told less than the tool checks, never more. What the whole schema refuses is answered
  by a correction.
* What comes in is a stranger's. What is no call is passed over; arguments that are no JSON are passed on as
  the text that they are, and refused where every other call is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs
import trio

from ..protocol import MalformedMessage, decode_json
from ._derive import copy_json, held_input_schema
from ._reading import read_text

if TYPE_CHECKING:
    from .._base.model import Tool, ToolResult

Tools: TypeAlias = "Iterable[Tool] | Mapping[str, Tool]"

# What vendors refuse at the root of the schema of a function's arguments.
_NOT_AT_THE_ROOT: Final = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"})


@attrs.frozen
class ModelCall:
    """One call that a model makes.

    Attributes:
        id: The model's name for it, which its result is told by; empty where it gives none. MCP's may be a
            number, and goes back as one.
        name: Of the tool.
        args: As the model sent them: an object, or whatever else it was.
    """

    id: str | int
    name: str
    args: Any = attrs.field(repr=False)


Answered: TypeAlias = "Iterable[tuple[ModelCall, ToolResult]]"


class ToolFormat(Protocol):
    """How one vendor's API spells tools, calls and results."""

    def tools(self, tools: Tools) -> list[dict[str, Any]]:
        """Give what a request lists as its tools."""
        ...

    def calls(self, message: Any) -> list[ModelCall]:
        """Give the calls in a model's answer, in order; of a whole response or of its message."""
        ...

    def results(self, answered: Answered) -> list[dict[str, Any]]:
        """Give what the next request says about calls: messages or items to append, in order."""
        ...


class Callee(Protocol):
    """What calls are made through: a toolset or a run."""

    async def call(self, name: str, args: Any = None, *, deadline: float | None = None) -> ToolResult:
        """Call a tool; a refusal is a result."""
        ...


async def answer_calls(
    callee: Callee,
    message: Any,
    tool_format: ToolFormat,
    *,
    deadline: float | None = None,
    at_once: int = 1,
) -> list[dict[str, Any]]:
    """Make the calls in a model's answer and give what the next request says about them.

    Args:
        callee: What they are made through, such as a `RuntimeToolset` or a `Run`.
        message: The model's answer, as its API gave it, in plain JSON.
        tool_format: Of that API.
        deadline: Absolute, for each call.
        at_once: How many run at once; by default one after another, in order.

    Returns:
        Messages or items to append to the conversation; none where the answer makes no call.

    Raises:
        ValueError: `at_once` is not positive.

    Raises nothing else but cancellation, if the callee does not.
    """
    if at_once < 1:
        raise ValueError(f"at_once is at least 1, not {at_once}")
    calls = tool_format.calls(message)
    results: list[ToolResult | None] = [None] * len(calls)
    limiter = trio.CapacityLimiter(at_once)

    async def one(at: int) -> None:
        async with limiter:
            results[at] = await callee.call(calls[at].name, calls[at].args, deadline=deadline)

    if at_once == 1:
        for at in range(len(calls)):
            await one(at)
    else:
        async with trio.open_nursery() as nursery:
            for at in range(len(calls)):
                nursery.start_soon(one, at)
    pairs = [(call, result) for call, result in zip(calls, results, strict=True) if result is not None]
    return tool_format.results(pairs) if pairs else []


# ---------------------------------------------------------------------------- what formats share


def each(tools: Tools) -> Iterable[Tool]:
    """Give the tools of a toolset, or of any other several."""
    return tools.values() if isinstance(tools, Mapping) else tools


def root_object(tool: Tool) -> dict[str, Any]:
    """Give a tool's input schema as vendors take one: of an object, by its properties."""
    schema = held_input_schema(tool)
    for _ in range(8):
        target = _local_target(schema)
        if target is None:
            break
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **rest}
    shown = {key: value for key, value in schema.items() if key not in _NOT_AT_THE_ROOT and key != "$ref"}
    shown["type"] = "object"
    if not isinstance(shown.get("properties"), Mapping):
        shown["properties"] = {}
    copy: dict[str, Any] = copy_json(shown)
    return copy


def _local_target(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    at: Any = schema
    for part in reference[2:].split("/"):
        at = at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, Mapping) else None
    return at if isinstance(at, Mapping) else None


def parsed(arguments: Any) -> Any:
    """Read arguments that come as JSON text; what is no JSON stays the text."""
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        return decode_json(arguments.encode())
    except (MalformedMessage, UnicodeEncodeError):
        return arguments


def objects(values: Any) -> list[dict[str, Any]]:
    """Give the objects of a list; of anything else none."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def text(value: Any) -> str:
    """Give a string as it is, anything else as an empty one."""
    return value if isinstance(value, str) else ""


def plain_text(result: ToolResult) -> str:
    """Give a result as one text, for APIs that have no word for failure."""
    said = read_text(result)
    if result.is_error and result.error is None:
        return f"Error: {said}"
    return said
