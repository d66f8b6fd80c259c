"""Where a command writes: data on stdout, words on stderr.

* With `--json` stdout holds JSON and nothing else: one document, or (where the command says so) one on each
  line.
* Colour and progress are for people: only on a terminal, and colour not where NO_COLOR is set.
* A reader that has gone away ends the command quietly, with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from ._text import harmless, one_line, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_STEERING: Final = re.compile(r"[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Output:
    """The two streams of one command.

    Args:
        json: Whether data is written as JSON.
        color: `auto`, `always` or `never`.
        env: Variables; those of this process where absent.
        stdout: Where data goes.
        stderr: Where words go.

    Attributes:
        json: As given.
        debug: Whether tracebacks are shown; the caller's to set.
        wrote: Whether data was written.
    """

    def __init__(
        self,
        *,
        json: bool = False,
        color: str | None = None,
        env: Mapping[str, str] | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.json = json
        self.debug = False
        self.wrote = False
        self._env = os.environ if env is None else env
        self._out = self._first = sys.stdout if stdout is None else stdout
        self._err = sys.stderr if stderr is None else stderr
        self._color = color or "auto"

    # ------------------------------------------------------------------ who reads

    @property
    def seen(self) -> bool:
        """Whether somebody looks at stdout."""
        return _is_terminal(self._out)

    @property
    def watched(self) -> bool:
        """Whether somebody watches stderr."""
        return _is_terminal(self._err) and self._env.get("TERM") != "dumb"

    @property
    def steers(self) -> bool:
        """Whether stdout is a terminal that can be drawn on in place."""
        return self.seen and self._env.get("TERM") not in {None, "", "dumb"}

    @property
    def draws(self) -> bool:
        """Whether stdout has signs beyond those of ASCII."""
        return (self._out.encoding or "").replace("-", "").casefold().startswith("utf")

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return max(shutil.get_terminal_size().columns, 40)

    def paint(self, text: str, *how: str, err: bool = False) -> str:
        """Give a text in a colour where colours are used."""
        if not self._colored(self._err if err else self._out):
            return text
        return f"\x1b[{';'.join(_CODES[each] for each in how)}m{text}\x1b[0m"

    def _colored(self, stream: TextIO) -> bool:
        if self._color != "auto":
            return self._color == "always"
        return not self._env.get("NO_COLOR") and self._env.get("TERM") != "dumb" and _is_terminal(stream)

    # ------------------------------------------------------------------ data

    def data(self, text: str, *, foreign: bool = False) -> None:
        """Write a line of data. A stranger's (`foreign`) is made harmless where somebody looks at it."""
        self._write((harmless(text) if foreign and self.seen else text) + "\n")

    def document(self, value: Any) -> None:
        """Write a JSON document over several lines."""
        self._write(_dumped(value, indent=2) + "\n")

    def line(self, value: Any) -> None:
        """Write a JSON document on one line, at once."""
        self._write(_dumped(value) + "\n")
        self._out.flush()

    def table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        color: Callable[[int, int], str | None] = lambda row, column: None,  # noqa: ARG005 -- the default has none
    ) -> None:
        """Write a table, cut to the terminal's width where there is one.

        Args:
            head: Titles of the columns.
            rows: Cells.
            color: Given row and column, gives a colour or `None`.
        """

        def paint(row: int, column: int, text: str) -> str:
            how = "bold" if row < 0 else color(row, column)
            return self.paint(text, how) if how else text

        for line in table(head, rows, self.width if self.seen else None, paint):
            self._write(line + "\n")

    def raw(self, text: str) -> None:
        """Write what steers the terminal, at once. None of it may be a stranger's that is not harmless."""
        self._write(text)
        self._out.flush()

    def flush(self) -> None:
        """Have data arrive that was written."""
        self._out.flush()

    def _write(self, text: str) -> None:
        self.wrote = True
        try:
            self._out.write(text)
        except UnicodeEncodeError:
            encoding = self._out.encoding or "ascii"
            self._out.write(text.encode(encoding, "backslashreplace").decode(encoding))

    # ------------------------------------------------------------------ words

    def say(self, text: str) -> None:
        """Write a line of words."""
        self._err.write(harmless(text) + "\n")
        self._err.flush()

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.say_as("warning", "yellow", text)

    def error(self, text: str) -> None:
        """Write why it cannot be done."""
        self.say_as("error", "red", text)

    def say_as(self, word: str, color: str, text: str) -> None:
        """Write words with one in front of them."""
        self._err.write(f"{self.paint(f'{word}:', color, 'bold', err=True)} {harmless(text)}\n")
        self._err.flush()

    def ask(self, text: str) -> None:
        """Write a question, whose answer is typed behind it."""
        self._err.write(harmless(text))
        self._err.flush()

    def show(self, text: str) -> None:
        """Put a line where the last one of these stood; an empty one takes it away. For who watches."""
        self._err.write("\r\x1b[K" + _fitting(one_line(text), self.width - 1))
        self._err.flush()

    def mute(self) -> None:
        """Write no data any more: its reader has gone, and what writes it goes on."""
        self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- open for the rest of the process
        if self._first is sys.stdout:
            os.dup2(self._out.fileno(), self._first.fileno())

    def end(self) -> None:
        """Flush both streams.

        Raises:
            BrokenPipeError: The reader has gone.
        """
        self._out.flush()
        self._err.flush()


def _fitting(text: str, width: int) -> str:
    from ._text import cut

    return cut(text, width)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _dumped(value: Any, indent: int | None = None) -> str:
    import json

    # lone surrogates of a server's would not be written as UTF-8
    text = json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "replace").decode("utf-8")
    # what json leaves as it is, and a terminal obeys; it stands in strings only, so it is the same document
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
