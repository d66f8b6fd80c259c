"""Tables of a console: columns in order of importance, cut to the terminal.

What gives way, in this order: long texts, down to twelve columns (codes to twenty, which is nearly all of
them: a code is what somebody looks for); then whole columns, from the right, since a
server names first what matters most. The first column stays, and those that were asked for by name. Keys and
ids are never cut, since they are there to be copied. What was left out is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._text import GAP, cut, width_of
from ._cells import NUMBERS, bar, color_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ._look import Look

_LEAST: Final = 12
_LEASTS: Final = {"code": 20}
_CUT: Final = frozenset({"text", ""})
_WHOLE: Final = {"in_flight": "max"}
"""Columns that are shown as a bar, and of what they are a part."""


class _Column:
    """A column as it is written."""

    __slots__ = ("cells", "colors", "kept", "kind", "name", "width")

    def __init__(
        self, name: str, kind: str, cells: list[str], colors: list[str | None], *, kept: bool
    ) -> None:
        self.name = name
        self.kind = kind
        self.cells = cells
        self.colors = colors
        self.kept = kept
        self.width = max(map(width_of, (name, *cells)))

    @property
    def least(self) -> int:
        least = _LEASTS.get(self.name, max(_LEAST, width_of(self.name)))
        return min(self.width, least) if self.kind in _CUT else self.width


def lay_out(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], look: Look, keep: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Lay out a table.

    Args:
        columns: Name and kind of each.
        rows: Values.
        look: Who looks at it.
        keep: Names of columns that were asked for.

    Returns:
        The lines, the first with the names of the columns, and the names of those that had no room.
    """
    if not columns:
        return [], []
    made = _made(columns, rows, look, keep)
    left_out = [] if look.width is None else _narrow(made, look.width)
    lines = []
    for number in range(-1, len(rows)):
        parts = []
        for place, column in enumerate(made):
            text = cut(column.name if number < 0 else column.cells[number], column.width)
            pad = " " * (column.width - width_of(text))
            how = "bold" if number < 0 else column.colors[number]
            painted = look.paint(text, how) if how else text
            if column.kind in NUMBERS:
                parts.append(pad + painted)
            else:
                parts.append(painted + (pad if place < len(made) - 1 else ""))
        lines.append((" " * GAP).join(parts).rstrip())
    return lines, left_out


def _made(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], look: Look, keep: Collection[str]
) -> list[_Column]:
    place_of = {name: place for place, (name, _) in enumerate(columns)}
    wholes = {
        part: place_of[whole]
        for part, whole in _WHOLE.items()
        if look.people and part in place_of and whole in place_of
    }
    made = []
    for place, (name, kind) in enumerate(columns):
        if place in wholes.values():
            continue
        values = [row[place] if place < len(row) else None for row in rows]
        colors = [color_of(name, kind, value) for value in values]
        shown_kind = kind
        if name in wholes:
            whole = [row[wholes[name]] if wholes[name] < len(row) else None for row in rows]
            cells = [_bar(value, of, kind, look) for value, of in zip(values, whole, strict=True)]
            shown_kind = "id"
        else:
            cells = [look.cell(kind, value) for value in values]
        made.append(_Column(look.fit(name, 40), shown_kind, cells, colors, kept=name in keep))
    return made


def _bar(value: Any, of: Any, kind: str, look: Look) -> str:
    if isinstance(value, int | float) and isinstance(of, int | float):
        return bar(value, of, drawn=look.drawn)
    return look.cell(kind, value)


def _narrow(made: list[_Column], width: int) -> list[str]:
    """Make the columns fit, and give the names of those that went."""
    left_out: list[str] = []
    while len(made) > 1 and sum(column.least for column in made) + GAP * (len(made) - 1) > width:
        going = next((place for place in range(len(made) - 1, 0, -1) if not made[place].kept), len(made) - 1)
        left_out.append(made.pop(going).name)
    over = sum(column.width for column in made) + GAP * (len(made) - 1) - width
    while over > 0:
        widest = max(made, key=lambda column: column.width - column.least)
        if widest.width <= widest.least:
            break
        widest.width -= 1
        over -= 1
    made[0].width = min(made[0].width, width)
    return left_out[::-1]
