"""On which line a key stands, for TOML and for JSON.

The parsers of the standard library give values without lines. So a text that one of them has read is gone
through once more here, only as far as keys and lines need. It is known to be valid then, which is what makes
this short; where a text is not understood all the same, what was found so far is given, and the nearest table
around a key stands for it. A test holds that every key of every text has its line.
"""

from __future__ import annotations

import bisect
import contextlib
import re
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

DEEPEST: Final = 64
"""Tables and lists inside each other, and parts of a key."""

_TOML_TOKEN: Final = re.compile(
    r'''[ \t\r]+|\#[^\n]*
    |(?P<newline>\n)
    |(?P<long>"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|\'\'\'(?:[^\']|\'(?!\'\'))*\'{3,5})
    |(?P<basic>"(?:[^"\\\n]|\\.)*")
    |(?P<literal>\'[^\'\n]*\')
    |(?P<sign>[\[\]{}=,.])
    |(?P<bare>[^\s\[\]{}=,."\'\#]+)''',
    re.VERBOSE | re.DOTALL,
)
_LINE_END: Final = re.compile("\n")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


class _Lost(Exception):
    """The text is not what was expected."""


class _Tokens:
    """The tokens of a text: `kind` and `text` of the one that is next; at the end the kind is empty."""

    def __init__(self, text: str, token: re.Pattern[str]) -> None:
        self._found = token.finditer(text)
        self._ends = [match.start() for match in _LINE_END.finditer(text)]
        self._at = 0
        self.kind = self.text = ""
        self.step()

    def step(self) -> None:
        """Go to the next token."""
        for match in self._found:
            kind = match.lastgroup
            if kind is not None:
                self.kind, self.text, self._at = kind, match.group(), match.start()
                return
        self.kind = self.text = ""

    @property
    def line(self) -> int:
        """The line that the next token begins on."""
        return bisect.bisect_left(self._ends, self._at) + 1

    def skip_lines(self) -> None:
        """Go over line ends."""
        while self.kind == "newline":
            self.step()


def _unescaped(inside: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, inside)


class _Toml:
    """Goes through a TOML document."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        self._text = text

    def read(self) -> dict[Path, int]:
        # where it is lost, what was found so far is what there is to point at
        with contextlib.suppress(_Lost, RecursionError, ValueError, OverflowError):
            self._document(_Tokens(self._text, _TOML_TOKEN))
        return self.lines

    def _note(self, path: Path, line: int) -> None:
        self.lines.setdefault(path, line)

    def _document(self, at: _Tokens) -> None:
        table: Path = ()
        while at.kind:
            if at.kind == "newline":
                at.step()
            elif at.text == "[" and at.kind == "sign":
                table = self._header(at)
            else:
                self._pair(at, table)

    def _header(self, at: _Tokens) -> Path:
        line = at.line
        at.step()
        many = at.text == "[" and at.kind == "sign"
        if many:
            at.step()
        keys = self._key(at)
        at.step()  # ]
        if many:
            at.step()
        path: Path = ()
        for index, key in enumerate(keys):
            path = (*path, key)
            self._note(path, line)
            if path in self._counts and (index < len(keys) - 1 or not many):
                path = (*path, self._counts[path])
        if many:
            self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, self._counts[path])
            self._note(path, line)
        return path

    def _key(self, at: _Tokens) -> list[str]:
        keys: list[str] = []
        while True:
            if at.kind == "bare":
                keys.append(at.text)
            elif at.kind == "basic":
                keys.append(_unescaped(at.text[1:-1]))
            elif at.kind == "literal":
                keys.append(at.text[1:-1])
            else:
                raise _Lost
            at.step()
            if at.text != "." or at.kind != "sign":
                return keys
            at.step()

    def _pair(self, at: _Tokens, table: Path) -> None:
        line = at.line
        path = table
        for key in self._key(at):
            path = (*path, key)
            self._note(path, line)
            if len(path) > 2 * DEEPEST:
                raise _Lost
        if at.text != "=":
            raise _Lost
        at.step()
        self._value(at, path)

    def _value(self, at: _Tokens, path: Path) -> None:
        if at.kind == "sign" and at.text == "[":
            self._array(at, path)
        elif at.kind == "sign" and at.text == "{":
            at.step()
            at.skip_lines()
            while at.text != "}" or at.kind != "sign":
                if at.kind == "":
                    raise _Lost
                if at.text == "," and at.kind == "sign":
                    at.step()
                else:
                    self._pair(at, path)
                at.skip_lines()
            at.step()
        else:
            # a number or a date may hold points, and a date a blank
            while at.kind in {"bare", "basic", "literal", "long"} or (at.kind == "sign" and at.text == "."):
                at.step()

    def _array(self, at: _Tokens, path: Path) -> None:
        at.step()
        index = 0
        at.skip_lines()
        while at.text != "]" or at.kind != "sign":
            if at.kind == "":
                raise _Lost
            if at.text == "," and at.kind == "sign":
                at.step()
            else:
                self._note((*path, index), at.line)
                before = (at.line, at.kind, at.text)
                self._value(at, (*path, index))
                if (at.line, at.kind, at.text) == before and at.kind == "sign":
                    raise _Lost
                index += 1
            at.skip_lines()
        at.step()


def overlong_key(text: str) -> int | None:
    """Give the line of the first key of a TOML text that has too many parts. Needs no valid text.

    `tomllib` takes time for such a key that grows with the square of its parts.
    """
    at, points = _Tokens(text, _TOML_TOKEN), 0
    while at.kind:
        if at.kind == "sign" and at.text == ".":
            points += 1
            if points > DEEPEST:
                return at.line
        elif at.kind not in {"bare", "basic", "literal"}:
            points = 0
        at.step()
    return None


def toml_lines(text: str) -> dict[Path, int]:
    """Give the line of every key of a TOML text that `tomllib` has read."""
    return _Toml(text).read()


_JSON_TOKEN: Final = re.compile(
    r"""[ \t\r\n]+|(?P<basic>"(?:[^"\\]|\\.)*")|(?P<sign>[\[\]{}:,])|(?P<bare>[^\s\[\]{}:,"]+)"""
)


def json_lines(text: str) -> tuple[dict[Path, int], list[tuple[Path, int]]]:
    """Go through a JSON text that `json` has read.

    Returns:
        The line of every key, and the keys that stand in one object twice, with the line of the second.
    """
    import json

    lines: dict[Path, int] = {}
    twice: list[tuple[Path, int]] = []
    # One frame for each object or list that is open: its path, and how many members it has had.
    open_: list[list[Any]] = []
    at = _Tokens(text, _JSON_TOKEN)
    path: Path = ()
    key: str | None = None
    try:
        while at.kind:
            begins = at.text in {"{", "["} and at.kind == "sign"
            ends = at.text in {"}", "]"} and at.kind == "sign"
            if open_ and open_[-1][1] == "[" and not ends and at.text != "," and key is None:
                path = (*open_[-1][0], open_[-1][2])
                lines.setdefault(path, at.line)
                open_[-1][2] += 1
            if len(open_) > DEEPEST:
                raise _Lost  # noqa: TRY301 -- the same end as for what is not understood
            if begins:
                open_.append([path, at.text, 0])
                key = None
            elif ends:
                open_.pop()
                key = None
            elif open_ and open_[-1][1] == "{" and key is None and at.kind == "basic":
                key = str(json.loads(at.text))
                path = (*open_[-1][0], key)
                if path in lines:
                    twice.append((path, at.line))
                lines.setdefault(path, at.line)
            elif at.text == "," and at.kind == "sign":
                key = None
            at.step()
    except (_Lost, ValueError, IndexError):
        pass  # as above
    return lines, twice
