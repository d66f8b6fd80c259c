"""One value as it is written: for people on a terminal, plain in a pipe, and as it is in JSON."""

from __future__ import annotations

import json
import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from .._text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS: Final = frozenset({"count", "seconds", "bytes", "rate", "percent"})
"""Kinds of columns that stand to the right."""

_SPANS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m"), (1.0, "s"))
_NEAR: Final = 43_200.0
_BAR: Final = 8
_GOOD: Final = frozenset({"ok", "open", "ready", "idle", "busy", "active", "live", "true"})
_POOR: Final = frozenset(
    {"paused", "pausing", "draining", "opening", "backoff", "warn", "stale", "abandoned", "cancelled"}
)
_BAD: Final = frozenset({"bad", "failed", "broken", "refused", "crashed", "lost", "dead", "error"})


def duration(seconds: float) -> str:
    """Write a time for people, in at most two units."""
    sign, passed = ("-", -seconds) if seconds < 0 else ("", seconds)
    if not math.isfinite(passed):
        return "-"
    if not passed:
        return "0 ms"
    if passed < 0.0000995:
        return f"{sign}{passed * 1e6:.2g} µs"
    if passed < 0.00995:
        return f"{sign}{passed * 1000:.2g} ms"
    if passed < 0.9995:
        return f"{sign}{passed * 1000:.0f} ms"
    if passed < 9.95:
        return f"{sign}{passed:.1f} s"
    if passed < 59.5:
        return f"{sign}{passed:.0f} s"
    whole = round(passed)
    for (size, unit), (less, lesser) in pairwise(_SPANS):
        if whole >= size:
            rest = int(whole % size // less)
            return f"{sign}{whole // int(size)} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{sign}{whole} s"


def size(count: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 99.5 else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def clock(unix: float) -> str:
    """Write an instant as this machine's clock shows it, to the millisecond."""
    return _local("%H:%M:%S", unix) + f".{int(unix % 1 * 1000):03d}"


def instant(unix: float, now: float) -> str:
    """Write an instant to the second, with its day where that is not within twelve hours."""
    return _local("%H:%M:%S" if abs(now - unix) < _NEAR else "%Y-%m-%d %H:%M", unix)


def _local(form: str, unix: float) -> str:
    try:
        return time.strftime(form, time.localtime(unix))
    except (OverflowError, OSError, ValueError):
        return "-"


def plain(value: Any) -> str:
    """Write a value on one line, as a program would read it: seconds and bytes as numbers."""
    if value is None:
        return "-"
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".") if math.isfinite(value) else "-"
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return ", ".join(map(plain, value)) or "-"
    if isinstance(value, list | dict):
        return one_line(json.dumps(value, ensure_ascii=False)) if value else "-"
    return one_line(str(value)) or "-"


def for_people(kind: str, value: Any, now: Callable[[], float]) -> str:
    """Write a value of a kind for somebody who looks at it.

    Args:
        kind: Of the column; of one that is not known, the value alone decides.
        value: The value.
        now: Gives the server's clock, in seconds since 1970.
    """
    if value is True or value is False:
        return "yes" if value else "-" if kind == "flag" else "no"
    if not isinstance(value, int | float) or not math.isfinite(value):
        return plain(value)
    if kind == "seconds":
        return duration(value)
    if kind == "unix":
        return instant(value, now())
    if kind == "bytes":
        return size(value)
    if kind == "rate":
        return f"{value:.0f}/s" if value >= 99.5 or value == int(value) else f"{value:.3g}/s"
    if kind == "percent":
        return f"{value:.0f} %" if value >= 9.95 or value == int(value) else f"{value:.1f} %"
    if isinstance(value, float) and kind == "count":
        return f"{value:.0f}" if value >= 99.5 or value == int(value) else f"{value:.3g}"
    return f"{value:,}" if kind == "count" and abs(value) >= 10_000 else plain(value)


def bar(part: float, whole: float, *, drawn: bool) -> str:
    """Draw how full something is, with both numbers behind it.

    Args:
        part: How much is taken.
        whole: Of how much.
        drawn: Whether the terminal has the signs for it.
    """
    share = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
    full = math.ceil(share * _BAR) if part > 0 else 0
    signs = ("█", "░") if drawn else ("#", ".")
    return f"{signs[0] * full}{signs[1] * (_BAR - full)} {plain(part)}/{plain(whole)}"


def color_of(name: str, kind: str, value: Any) -> str | None:
    """Give the colour of a value in a column of a name."""
    if isinstance(value, str):
        word = value.partition(" ")[0].casefold()
        if name in {"state", "outcome", "level", "ok", "status"}:
            return (
                "green" if word in _GOOD else "yellow" if word in _POOR else "red" if word in _BAD else None
            )
        if name in {"code", "last_refusal"} and word not in {"", "-"}:
            return "yellow"
        return "dim" if value == "-" else None
    if name == "waiting" and isinstance(value, int) and value > 0:
        return "yellow"
    if value is None or (value is False and kind == "flag") or (value == 0 and kind in NUMBERS):
        return "dim"
    return None
