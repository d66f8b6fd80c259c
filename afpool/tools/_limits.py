"""How large a result may be: a tool's own ceiling, storing instead of passing on, cutting short.

In this order, the first that applies:

1. A tool's `ResultCeiling` refuses: the payload is replaced by a sentence everywhere.
2. Placement stores what is long as an artifact and hands on its reference.
3. The cap cuts: a beginning stays, and what was cut is said.

What was an error already is neither stored nor cut by placement; a cap holds for everything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import attrs

from .._base.errors import TooLarge
from ._results import error_result, text_result, value_result

if TYPE_CHECKING:
    from .._base.model import ToolResult

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


def ticket_result(meta: Any, chars: int, limit: int, call_id: str) -> ToolResult:
    """Make the result that stands in the place of one that was stored; `meta` describes the artifact."""
    return value_result(
        {
            "placed": True,
            "ref": meta.ref,
            "kind": meta.kind,
            "media_type": meta.media_type,
            "bytes": meta.bytes,
            "reason": f"the result has {chars} characters, and {limit} are returned in full; it is stored "
            "under this reference, which tools that take an artifact of this kind accept",
        },
        call_id,
    )


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
