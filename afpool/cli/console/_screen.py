"""A screen that is drawn again and again in its place; lines one after the other where nobody looks."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._output import Output

# the other screen, without a cursor; and back
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST: Final = "\x1b[J"


class Screen:
    """Draws in place on a terminal, from its first drawing to `close`.

    Args:
        out: Where to.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._entered = False
        self._last: list[str] = []
        self._drawn = False

    def draw(self, lines: Sequence[str], title: str) -> None:
        """Draw lines in place of the last ones.

        Args:
            lines: As wide as the terminal at most, and painted.
            title: What stands above them, where they are drawn in place.
        """
        if not self._out.steers:
            if self._drawn:
                self._out.data("")
            self._drawn = True
            for line in lines:
                self._out.data(line)
            self._out.flush()
            return
        rows = max(shutil.get_terminal_size().lines, 4)
        shown = [self._out.paint(title, "dim"), *lines]
        if len(shown) > rows:
            left = len(shown) - rows + 1
            shown = [*shown[: rows - 1], self._out.paint(f"… {left} more lines", "dim")]
        self._last = list(lines)
        text = "" if self._entered else _ENTER
        self._entered = True
        text += _HOME + f"{_REST_OF_LINE}\r\n".join(shown) + _REST_OF_LINE + _REST
        self._out.raw(text)

    def close(self) -> None:
        """Give the terminal back as it was, with what was last drawn below what stood there."""
        if not self._entered:
            return
        self._entered = False
        self._out.raw(_LEAVE)
        for line in self._last:
            self._out.data(line)
        self._out.flush()
