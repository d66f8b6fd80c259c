"""Text on a terminal: how wide it is, what of it may be shown, tables that fit.

What comes from a server is a stranger's text. On a terminal its control characters are shown and not obeyed:
they could move the cursor, recolour what stands above, or write into the clipboard.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# C0 and C1 without line feed and tab, and what turns the direction of reading
_UNSEEMLY: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SPACES: Final = re.compile(r"\s+")
GAP: Final = 2
_LEAST: Final = 8


def harmless(text: str) -> str:
    """Give a text with its control characters spelled out, lines and tabs left."""
    return _UNSEEMLY.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """Give a text on one line, without control characters."""
    return harmless(_SPACES.sub(" ", text).strip())


def width_of(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut(text: str, width: int) -> str:
    """Cut a text to a number of columns; what was cut ends in a sign for it."""
    if width_of(text) <= width:
        return text
    taken, used = [], 0
    for char in text:
        used += width_of(char)
        if used > width - 1:
            break
        taken.append(char)
    return "".join(taken) + "…"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    paint: Callable[[int, int, str], str] = lambda row, column, text: text,  # noqa: ARG005 -- the default paints nothing
) -> list[str]:
    """Lay out a table.

    Args:
        head: Titles of the columns; the last column is the one that gives way.
        rows: Cells, on one line each.
        width: Of the terminal; `None` for as wide as it is.
        paint: Given row (-1 for the head), column and padded text, gives what is written.
    """
    cells = [list(map(str, head)), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(width_of(row[column]) for row in cells) for column in range(len(head))]
    if width is not None:
        _narrow(widths, width)
    lines = []
    for number, row in enumerate(cells):
        parts = []
        for column, text in enumerate(row):
            text = cut(text, widths[column])  # noqa: PLW2901 -- the cell as it fits
            pad = " " * (widths[column] - width_of(text)) if column < len(row) - 1 else ""
            parts.append(paint(number - 1, column, text) + pad)
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _narrow(widths: list[int], width: int) -> None:
    """Take what is too much from the last column, then from the widest."""
    room = width - GAP * (len(widths) - 1)
    over = sum(widths) - room
    if over <= 0:
        return
    taken = min(over, max(widths[-1] - 2 * _LEAST, 0))
    widths[-1] -= taken
    over -= taken
    while over > 0:
        widest = max(range(len(widths)), key=lambda column: widths[column])
        if widths[widest] <= _LEAST:
            return
        widths[widest] -= 1
        over -= 1
