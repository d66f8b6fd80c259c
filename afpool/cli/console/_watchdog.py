"""What the watchdog of a process says, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._text import one_line
from ._cells import plain

if TYPE_CHECKING:
    from ._look import Look
    from ._target import Target

HANGS: Final = 1.0
"""Seconds without a tick after which a loop is said to hang."""


def ticked(found: list[dict[str, Any]], target: Target) -> str:
    """Say when the loop last ticked.

    Args:
        found: What the watchdog answered to `ping`.
        target: The process.
    """
    if not found:
        where = "does not answer either" if target.path else "is on the machine where the process runs"
        return f"the watchdog {where}"
    ago = found[0].get("ticked_ago")
    if not isinstance(ago, int | float):
        return "the watchdog does not know when the loop last ticked"
    text = f"the loop last ticked {round(ago * 1000):,} ms ago"
    hangs = found[0].get("hanging", ago >= HANGS)
    return f"{text}: it hangs, and `afpool console --stacks` shows where" if hangs else text


def stacks_of(found: list[dict[str, Any]], look: Look) -> list[str]:
    """Write stacks, the loop's own first and the newest frame of each first.

    Args:
        found: What the watchdog answered to `stacks`.
        look: Who looks at it.
    """
    lines: list[str] = []
    for one in found:
        frames = one.get("frames")
        if not isinstance(frames, list):
            continue
        name = one_line(str(one.get("thread") or "unknown"))
        title = f"{name} (the loop)" if one.get("loop") is True else name
        lines += [""] * bool(lines) + [look.paint(look.fit(title), "bold")]
        for frame in frames:
            if isinstance(frame, list) and len(frame) == 3:
                file, line, function = (plain(each) for each in frame)
                lines.append(look.clip(f"  {function}  {file}:{line}"))
    return lines
