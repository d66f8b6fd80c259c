"""The numbers that people look for first, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._text import one_line, width_of
from ._cells import duration, for_people, plain
from ._tables import lay_out

if TYPE_CHECKING:
    from ._look import Look

_FIRST = (
    ("calls", "rate"), ("in_flight", "count"), ("waiting", "count"), ("oldest_wait", "seconds"),
    ("clients", "count"), ("actors", "count"), ("opens", "rate"), ("evictions", "count"),
)  # fmt: skip
_STAGES = (("stage", "text"), ("count", "count"), ("p50", "seconds"), ("p95", "seconds"), ("p99", "seconds"))
_SERVERS = (
    ("server", "text"), ("state", "text"), ("in_flight", "count"), ("waiting", "count"), ("calls", "count"),
    ("actors", "count"), ("clients", "count"), ("p50", "seconds"), ("p95", "seconds"), ("p99", "seconds"),
)  # fmt: skip
_REFUSALS = (("code", "text"), ("total", "count"), ("rate", "rate"))


def overview(told: dict[str, Any], look: Look) -> list[str]:
    """Write an overview.

    Args:
        told: As the console tells it; what is missing is left out.
        look: Who looks at it.
    """
    numbers = [
        (name.replace("_", " "), _value(kind, told[name], look)) for name, kind in _FIRST if name in told
    ]
    lag = told.get("lag")
    if isinstance(lag, dict) and isinstance(lag.get("now"), int | float):
        most = f" (max {duration(lag['max'])})" if isinstance(lag.get("max"), int | float) else ""
        numbers.append(("loop lag", f"{duration(lag['now'])}{most}"))
    if isinstance(told.get("uptime"), int | float):
        numbers.append(("up", duration(told["uptime"])))
    lines = _flowing(numbers, look)
    outcomes = told.get("outcomes")
    if isinstance(outcomes, dict):
        lines += _flowing([(one_line(str(name)), plain(count)) for name, count in outcomes.items()], look)
    for title, columns in (("servers", _SERVERS), ("stages", _STAGES), ("refusals", _REFUSALS)):
        rows = _objects(told.get(title))
        if not rows:
            continue
        names = [column for column in columns if any(column[0] in row for row in rows)]
        lines += ["", *lay_out(names, [[row.get(name) for name, _ in names] for row in rows], look)[0]]
    for sink in _objects(told.get("sinks")):
        if sink.get("dropped"):
            text = f"sink {plain(sink.get('name'))} dropped {plain(sink['dropped'])}"
            lines.append(look.paint(look.fit(text), "yellow"))
    return lines


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _value(kind: str, value: Any, look: Look) -> str:
    return for_people(kind, value, look.now) if look.people else plain(value)


def _flowing(numbers: list[tuple[str, str]], look: Look) -> list[str]:
    """Put names and values one behind the other, as many on a line as fit."""
    lines: list[str] = []
    used = 0
    for name, value in numbers:
        size = width_of(name) + 1 + width_of(value)
        part = f"{look.paint(name, 'dim')} {value}"
        if lines and (look.width is None or used + 3 + size <= look.width):
            lines[-1] += "   " + part
            used += 3 + size
        else:
            lines.append(part)
            used = size
    return lines
