"""How large a result may be: a tool's own ceiling, storing instead of passing on, cutting short.

In this order, the first that applies:

1. A tool's `ResultCeiling` refuses: the payload is replaced by a sentence everywhere.
2. Placement stores what is long as an artifact and hands on its reference. A store that fails costs the
   placement and not the result.
3. The cap cuts: a beginning stays, and what was cut is said.

What was an error already is neither refused nor stored; the cap holds for everything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
import trio

from .._base.errors import TooLarge
from ..artifacts import Placement, place
from ._derive import base_of, derive, fact
from ._reading import read_text, reading_size
from ._results import error_result, text_result, value_result

if TYPE_CHECKING:
    from .._base.model import Tool, ToolResult
    from ..artifacts import Artifacts
    from ._record import CallRecord

_NO_HEAD: Final = 16


def _positive_int(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{field.name} is a positive whole number, not {value!r}; leave it out for no bound")


def _bound_or_none(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        _positive_int(owner, field, value)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"narrow_by is a sequence of argument names, such as ({value!r},)")
    return tuple(value)


def _spoken(_: object, field: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
    if not all(isinstance(name, str) and name.strip() for name in value):
        raise ValueError(f"{field.name} holds names of arguments, none of them blank")


@attrs.frozen
class ResultCeiling:
    """The most that a tool's author lets a result be; more is refused, not cut.

    Attributes:
        max_chars: Characters that a model would be given: text, and the data of images and the like.
        narrow_by: Arguments that make the result smaller; the refusal names them.
    """

    max_chars: int = attrs.field(validator=_positive_int)
    narrow_by: tuple[str, ...] = attrs.field(default=(), converter=_names, validator=_spoken)


@attrs.frozen(kw_only=True)
class ResultLimits:
    """What a runtime does with long results, whatever tool they came from.

    Attributes:
        max_inline_chars: A result longer than this is stored as an artifact, where there is a store, and the
            model is given its reference.
        max_chars: A result longer than this is cut.
    """

    max_inline_chars: int | None = attrs.field(default=None, validator=_bound_or_none)
    max_chars: int | None = attrs.field(default=None, validator=_bound_or_none)


def refused_by_ceiling(tool: str, ceiling: ResultCeiling, size: int, call_id: str) -> ToolResult:
    """Make the result that stands in the place of one that is larger than its ceiling."""
    narrow = f" Narrow it with {', '.join(ceiling.narrow_by)}." if ceiling.narrow_by else " Ask for less."
    error = TooLarge(
        f"The tool {tool} has run, and its result of {size} characters is larger than the "
        f"{ceiling.max_chars} that it may have. Nothing of it was returned.{narrow}"
    )
    return error_result(error, call_id)


def cut_result(result: ToolResult, text: str, limit: int) -> ToolResult:
    """Make the result of a text that is longer than the cap: what was cut, and the beginning that fits."""
    marker: dict[str, Any] = {
        "truncated": True,
        "reason": f"the result has {len(text)} characters, and {limit} are returned",
    }
    room = limit - len(json.dumps(marker, ensure_ascii=False)) - _NO_HEAD
    head = text[: max(room, 0)]
    while head:
        written = json.dumps({**marker, "head": head}, ensure_ascii=False)
        if len(written) <= limit:
            break
        # what JSON escapes takes more room than it has characters
        head = head[: min(len(head) - 1, len(head) * max(room, 1) // max(len(written) - limit + room, 1))]
    else:
        written = json.dumps(marker, ensure_ascii=False)
    return text_result(
        written,
        result.call_id,
        is_error=result.is_error,
        code=result.code if result.error is not None or result.is_error else None,
        delivery=result.delivery,
        error=result.error,
    )


CEILING: Final = "result-ceiling"
"""The key of the fact that holds a tool's ceiling."""


def with_result_ceiling(tool: Tool, ceiling: ResultCeiling) -> Tool:
    """Give a copy of a tool whose results may be no larger than a ceiling.

    Args:
        tool: The tool; its binding and whatever else rides on it stay.
        ceiling: In place of one that it has.

    Raises:
        TypeError: `tool` is no tool, or `ceiling` is no `ResultCeiling`.
    """
    if not isinstance(ceiling, ResultCeiling):
        raise TypeError(f"a ceiling is a ResultCeiling, not {type(ceiling).__name__}")
    return derive(tool, facts={CEILING: ceiling})


def ceiling_of(tool: Tool) -> ResultCeiling | None:
    """Give a tool's ceiling; `None` where it has none."""
    ceiling = fact(tool, CEILING)
    if ceiling is None:
        ceiling = getattr(base_of(tool), "result_ceiling", None)
    return ceiling if isinstance(ceiling, ResultCeiling) else None


async def limited(
    result: ToolResult,
    tool: Tool,
    limits: ResultLimits,
    artifacts: Artifacts | None,
    record: CallRecord,
    deadline: float,
) -> ToolResult:
    """Hold a result to its tool's ceiling, to placement and to the cap.

    Args:
        result: Of a tool that has run.
        tool: The tool.
        limits: The runtime's.
        artifacts: Where a long result is stored; `None` where there is no store.
        record: Told of a result that was refused.
        deadline: Absolute; a store that has not answered by then costs the placement.

    Returns:
        The same object where it is short enough. A checkpoint only where it is stored.
    """
    ceiling = ceiling_of(tool)
    if ceiling is None and limits.max_chars is None and limits.max_inline_chars is None:
        return result
    failed = result.is_error
    size = reading_size(result)
    if ceiling is not None and size > ceiling.max_chars and not failed:
        facts: dict[str, Any] = {"tool_name": tool.name, "size_chars": size, "max_chars": ceiling.max_chars}
        if ceiling.narrow_by:
            facts["narrow_by"] = ceiling.narrow_by
        record.file("result_refused", facts)
        return refused_by_ceiling(tool.name, ceiling, size, result.call_id)
    text = read_text(result)
    if limits.max_inline_chars is not None and artifacts is not None and not failed:
        placed = None
        with trio.move_on_at(deadline):
            placed = await place(
                artifacts,
                Placement(limits.max_inline_chars),
                tool.name,
                text,
                data=result.structured if _mirrors(result) else None,
                kind=getattr(base_of(tool), "result_kind", None),
            )
        if placed is not None:
            return value_result(placed.as_json(), result.call_id)
    if limits.max_chars is not None and size > limits.max_chars:
        return cut_result(result, text, limits.max_chars)
    return result


def limited_for_record(result: ToolResult, tool: Tool, limits: ResultLimits) -> ToolResult:
    """Hold what a tool gave to its ceiling and to the cap, where a hook gave the model something else."""
    ceiling = ceiling_of(tool)
    if (ceiling is None and limits.max_chars is None) or result.is_error:
        return result
    size = reading_size(result)
    if ceiling is not None and size > ceiling.max_chars:
        return refused_by_ceiling(tool.name, ceiling, size, result.call_id)
    if limits.max_chars is not None and size > limits.max_chars:
        return cut_result(result, read_text(result), limits.max_chars)
    return result


def _mirrors(result: ToolResult) -> bool:
    """Say whether the text of a result is the writing of its structured content and nothing else."""
    if not isinstance(result.structured, dict):
        return False
    content = result.content
    if not content:
        return True
    if len(content) != 1 or content[0].get("type") != "text":
        return False
    try:
        return bool(msgspec.json.decode(result.text) == result.structured)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
