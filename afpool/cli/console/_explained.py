"""An explanation in text: the headline, the facts in order, and the call's stages as a small waterfall.

A stage is shown from the mark before it to its own, since a mark stands at the end of what it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._text import cut, one_line, width_of
from ._cells import duration

if TYPE_CHECKING:
    from ._look import Look

_WHEN: Final = 10
_BARS: Final = 40
_NAMES: Final = 18
_COLORS: Final = {"refused": "red", "failed": "red", "cancelled": "yellow", "ok": "green"}


def explained(result: dict[str, Any], look: Look) -> list[str]:
    """Write an explanation.

    Args:
        result: Of the kind `explanation`.
        look: Who looks at it.
    """
    lines = [look.paint(line, "bold") for line in look.wrap(str(result.get("headline", "")), "")]
    clauses = [clause for clause in _list(result.get("clauses")) if isinstance(clause, dict)]
    if clauses:
        lines.append("")
    for clause in clauses:
        at = clause.get("at")
        when = f"{_offset(at):>{_WHEN}}  " if isinstance(at, int | float) else " " * (_WHEN + 2)
        first, *more = look.wrap(str(clause.get("text", "")), " " * (_WHEN + 2))
        lines += [look.paint(when, "dim") + first[_WHEN + 2 :], *more]
    use = result.get("use")
    if isinstance(use, dict):
        drawn = waterfall(use, look)
        lines += [""] * bool(drawn) + drawn
    return lines


def waterfall(use: dict[str, Any], look: Look) -> list[str]:
    """Draw the stages of a call.

    Args:
        use: The call's facts; `stages` are pairs of a name and seconds since it began.
        look: Who looks at it.
    """
    spans = _spans(use)
    if not spans:
        return []
    whole = max(spans[-1][2], 1e-9)
    names = min(max(width_of(name) for name, _, _ in spans), _NAMES)
    room = _BARS if look.width is None else max(min(_BARS, look.width - names - 14), 8)
    sign = "█" if look.drawn else "#"
    last = len(spans) - 1
    color = _COLORS.get(str(use.get("outcome")))
    lines = []
    for number, (name, begin, end) in enumerate(spans):
        left = min(int(begin / whole * room), room - 1)
        long = max(min(round(end / whole * room), room) - left, 1)
        strip = " " * left + sign * long + " " * (room - left - long)
        label = cut(name, names)
        how = color if number == last and color else ""
        strip = look.paint(strip, how) if how else strip
        lines.append(f"  {label}{' ' * (names - width_of(label))}  {strip}  {duration(end - begin):>8}")
    return lines


def _spans(use: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Name, begin and end of each stage; what took less than a thousandth of the call joins the next one."""
    pairs = [
        (one_line(str(stage[0])), float(stage[1]))
        for stage in _list(use.get("stages"))
        if isinstance(stage, list) and len(stage) == 2 and isinstance(stage[1], int | float)
    ]
    took = use.get("age") if use.get("took") is None else use["took"]
    whole = float(took) if isinstance(took, int | float) else max((at for _, at in pairs), default=0.0)
    spans: list[tuple[str, float, float]] = []
    begin = 0.0
    for name, at in pairs:
        end = max(at, begin)
        if end - begin >= whole / 1000 or name == pairs[-1][0]:
            spans.append((name, begin, end))
            begin = end
    waits = use.get("waits_for")
    if isinstance(waits, str):
        spans.append((f"{one_line(waits)} …", begin, max(begin, whole)))
    elif spans and whole - begin >= whole / 1000:
        spans.append((one_line(str(use.get("outcome") or "end")), begin, whole))
    return spans


def _offset(at: float) -> str:
    return f"{'+' if at >= 0 else ''}{duration(at)}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
