"""Who looks at what is written, and how wide their terminal is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from .._text import cut, harmless, one_line, width_of
from ._cells import for_people, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._output import Output

_BLANKS: Final = str.maketrans("\n\r\t\v\f", "     ")


class Look:
    """What decides how a result is written.

    Args:
        out: Where it goes.
        skew: Seconds that the server's clock is ahead.
        indent: Columns that stand before each line.
        hint: Gives how a line of the console is typed where the result is read.

    Attributes:
        people: Somebody looks at it: times in words, bars, cut to the width.
    """

    def __init__(
        self, out: Output, skew: float = 0.0, indent: int = 0, hint: Callable[[str], str] = str
    ) -> None:
        self.out = out
        self.skew = skew
        self.people = out.seen
        self.hint = hint
        self._indent = indent

    def inside(self, indent: int) -> Look:
        """Give the same for lines behind an indent."""
        return Look(self.out, self.skew, self._indent + indent, self.hint)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; `None` where lines are as long as they are."""
        return max(self.out.width - self._indent, 20) if self.people else None

    @property
    def drawn(self) -> bool:
        """Whether there are signs for bars and lines."""
        return self.out.draws

    def now(self) -> float:
        """The server's clock, in seconds since 1970."""
        return time.time() + self.skew

    def cell(self, kind: str, value: Any) -> str:
        """Write a value."""
        return for_people(kind, value, self.now) if self.people else plain(value)

    def fit(self, text: str, room: int | None = None) -> str:
        """Put a stranger's text on one line, cut to the terminal."""
        text = one_line(text)
        room = self.width if room is None else room
        return text if room is None else cut(text, max(room, 1))

    def clip(self, text: str) -> str:
        """Cut a line to the terminal, its blanks left as they are; other white space becomes blanks."""
        text = harmless(text.translate(_BLANKS))
        return text if self.width is None else cut(text, self.width)

    def fold(self, text: str) -> list[str]:
        """Put a line on as many as it needs, its blanks left as they are, later ones further in."""
        text = harmless(text.translate(_BLANKS)).rstrip()
        if self.width is None or width_of(text) <= self.width:
            return [text]
        indent = " " * min(len(text) - len(text.lstrip(" ")), self.width // 2)
        first, *more = self.wrap(text, indent)
        if not more:
            return [first]
        return [first, *self.wrap(" ".join(line.strip(" ") for line in more), f"{indent}    ")]

    def wrap(self, text: str, indent: str) -> list[str]:
        """Put a stranger's text on lines of the terminal's width, each behind the indent."""
        text = one_line(text)
        if self.width is None:
            return [indent + text]
        room = max(self.width - len(indent), 20)
        lines = [""]
        for word in text.split(" "):
            joined = f"{lines[-1]} {word}" if lines[-1] else word
            if width_of(joined) <= room:
                lines[-1] = joined
                continue
            if lines[-1]:
                lines.append("")
            while width_of(word) > room:
                taken = 0
                while width_of(word[: taken + 1]) <= room:
                    taken += 1
                lines[-1], word = word[:taken], word[taken:]  # noqa: PLW2901 -- what is left of it
                lines.append("")
            lines[-1] = word
        return [indent + line for line in lines]

    def paint(self, text: str, *how: str) -> str:
        """Colour a text where there are colours."""
        return self.out.paint(text, *how)
