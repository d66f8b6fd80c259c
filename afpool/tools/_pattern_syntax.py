"""Patterns for names, read into a program that can be matched in linear time.

Rules:

* The syntax is that of `re`. What a pattern means for one character (a class, a category, a case) is asked of
  `re` itself, so that no second opinion on Unicode lives here; only the structure is read.
* Refused is what no automaton can match: references to groups, looking ahead or behind, conditions, atomic
  groups and possessive repeats; and verbose patterns, whose text is not what it seems.
* Repeats are written out, so a program has a size: at most `MAX_STEPS` steps for all patterns together.
* Greedy or lazy makes no difference to whether something is found.

A program is a list of steps. Each is (kind, what, next): a `CHAR` goes on over one character that `what`
takes, a `FORK` goes on at both `what` and `next`, a `PLACE` goes on where `what` holds between two
characters, `FOUND` is the end.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_STEPS: Final = 2_000
MAX_NESTING: Final = 60

CHAR: Final = 0
FORK: Final = 1
PLACE: Final = 2
FOUND: Final = 3

# Where a `PLACE` may be; two kinds of word boundary, since a pattern says whether Unicode counts.
TEXT_START: Final = 0
LINE_START: Final = 1
TEXT_END: Final = 2
TEXT_END_OR_NEWLINE: Final = 3
LINE_END: Final = 4
BOUNDARY: Final = 5
NO_BOUNDARY: Final = 6
ASCII_BOUNDARY: Final = 7
NO_ASCII_BOUNDARY: Final = 8

_COUNT = re.compile(r"\{(?=[0-9,])([0-9]*)(?:(,)([0-9]*))?\}")
_GROUP_FLAGS = re.compile(r"\?([aiLmsux]*)(?:-([imsx]+))?([:)])")
_ESCAPE = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|0[0-7]{0,2}|[0-3][0-7]{2}|.)", re.DOTALL
)
_LETTERS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "u": re.UNICODE}
_NEVER_MATCHED = {
    "?=": "looking ahead",
    "?!": "looking ahead",
    "?<=": "looking behind",
    "?<!": "looking behind",
    "?(": "a condition",
    "?>": "an atomic group",
    "?P=": "a reference to a group",
}

Takes: TypeAlias = "Callable[[str], object]"


class Step(NamedTuple):
    """One step of a program; what `what` is depends on `kind`."""

    kind: int
    what: Any
    next: int


class PatternRefused(ValueError):
    """A pattern that cannot be used; the text says why and what to write instead."""


@attrs.frozen
class _Char:
    text: str
    flags: int


@attrs.frozen
class _Place:
    where: int


@attrs.frozen
class _Row:
    parts: list[_Node]


@attrs.frozen
class _Either:
    ways: list[_Node]


@attrs.frozen
class _Repeat:
    part: _Node
    least: int
    most: int | None


_Node: TypeAlias = "_Char | _Place | _Row | _Either | _Repeat"


@attrs.frozen
class Program:
    """All patterns of a policy as one program.

    Attributes:
        steps: The steps; `next` and a fork's `what` are positions in this list.
        starts: Where the patterns begin, one for each.
        places: The kinds of place that occur.
    """

    steps: list[Step]
    starts: tuple[int, ...]
    places: frozenset[int]


def compile_pattern(pattern: object) -> re.Pattern[str]:
    """Give a pattern as `re` compiles it.

    Raises:
        TypeError: It is neither a string nor a compiled pattern of strings.
        PatternRefused: `re` cannot read it.
    """
    if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
        return pattern
    if not isinstance(pattern, str):
        what = "a compiled pattern of bytes" if isinstance(pattern, re.Pattern) else type(pattern).__name__
        raise TypeError(f"a pattern is a string or a compiled re.Pattern of strings, not {what}")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternRefused(f"the pattern {pattern!r} is no regular expression: {error}") from None


def build_program(patterns: Iterable[re.Pattern[str]]) -> Program:
    """Read patterns into one program.

    Raises:
        PatternRefused: One of them cannot be matched in linear time, or all together are too large.
    """
    emit = _Emit()
    starts = tuple(emit.pattern(pattern) for pattern in patterns)
    places = frozenset(step.what for step in emit.steps if step.kind == PLACE)
    return Program(emit.steps, starts, places)


class _Reader:
    """Reads one pattern that `re` has accepted, so the text is known to be well-formed."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.source = pattern.pattern
        self.at = 0
        self.flags = pattern.flags & ~re.DEBUG
        self.depth = 0
        if self.flags & re.VERBOSE:
            self._refuse("is verbose (re.VERBOSE, `(?x)`); write it without spaces and comments")

    def _refuse(self, why: str) -> NoReturn:
        raise PatternRefused(f"the pattern {self.source!r} {why}")

    def _never(self, what: str) -> NoReturn:
        self._refuse(
            f"uses {what}, which cannot be matched in linear time; name such arguments in `keys`, or split "
            "it into several patterns"
        )

    def read(self) -> _Node:
        return self._either(self.flags)

    def _either(self, flags: int) -> _Node:
        self.depth += 1
        if self.depth > MAX_NESTING:
            self._refuse(f"nests groups deeper than {MAX_NESTING}")
        ways = [self._row(flags)]
        while self.source.startswith("|", self.at):
            self.at += 1
            ways.append(self._row(flags))
        self.depth -= 1
        return ways[0] if len(ways) == 1 else _Either(ways)

    def _row(self, flags: int) -> _Node:
        parts: list[_Node] = []
        self._comments()
        while self.at < len(self.source) and self.source[self.at] not in "|)":
            part = self._part(flags)
            self._comments()  # a repeat behind one is of what stands before it
            if part is not None:
                parts.append(self._repeated(part))
                self._comments()
        return parts[0] if len(parts) == 1 else _Row(parts)

    def _comments(self) -> None:
        while self.source.startswith("(?#", self.at):
            self.at = self.source.index(")", self.at) + 1

    def _part(self, flags: int) -> _Node | None:
        letter = self.source[self.at]
        if letter == "(":
            return self._group(flags)
        if letter == "\\":
            return self._escape(flags)
        if letter == "^":
            self.at += 1
            return _Place(LINE_START if flags & re.MULTILINE else TEXT_START)
        if letter == "$":
            self.at += 1
            return _Place(LINE_END if flags & re.MULTILINE else TEXT_END_OR_NEWLINE)
        begin = self.at
        self.at = self._class_end() if letter == "[" else begin + 1
        text = self.source[begin : self.at]
        return _Char(text if letter in "[." else re.escape(text), flags)

    def _class_end(self) -> int:
        at = self.at + 1
        at += self.source.startswith("^", at)
        at += self.source.startswith("]", at)
        while self.source[at] != "]":
            at += 2 if self.source[at] == "\\" else 1
        return at + 1

    def _escape(self, flags: int) -> _Node:
        found = _ESCAPE.match(self.source, self.at)
        assert found is not None
        letter = self.source[self.at + 1]
        if letter in "123456789" and len(found[0]) != 4:
            self._never("a reference to a group")
        self.at = found.end()
        ascii_only = flags & re.ASCII
        match letter:
            case "A":
                return _Place(TEXT_START)
            case "Z" | "z":
                return _Place(TEXT_END)
            case "b":
                return _Place(ASCII_BOUNDARY if ascii_only else BOUNDARY)
            case "B":
                return _Place(NO_ASCII_BOUNDARY if ascii_only else NO_BOUNDARY)
        return _Char(found[0], flags)

    def _group(self, flags: int) -> _Node | None:
        self.at += 1
        for sign, what in _NEVER_MATCHED.items():
            if self.source.startswith(sign, self.at):
                self._never(what)
        if self.source.startswith("?P<", self.at):
            self.at = self.source.index(">", self.at) + 1
        else:
            found = _GROUP_FLAGS.match(self.source, self.at)
            if found is not None:
                self.at = found.end()
                if found[3] == ")":
                    return None  # flags of the whole pattern, which `re` has read
                flags = self._scoped(flags, found[1], found[2] or "")
        inner = self._either(flags)
        self.at += 1
        return inner

    def _scoped(self, flags: int, on: str, off: str) -> int:
        if "x" in on:
            self._refuse("is verbose in a part of it; write it without spaces and comments")
        for letter in on:
            if letter in "au":
                flags &= ~(re.ASCII | re.UNICODE)
            flags |= _LETTERS[letter]
        for letter in off.replace("x", ""):
            flags &= ~_LETTERS[letter]
        return flags

    def _repeated(self, part: _Node) -> _Node:
        sign = self.source[self.at : self.at + 1]
        if sign and sign in "*+?":
            self.at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        else:
            count = _COUNT.match(self.source, self.at)
            if count is None:
                return part
            self.at = count.end()
            least = int(count[1] or 0)
            most = least if count[2] is None else int(count[3]) if count[3] else None
        if self.source.startswith("?", self.at):
            self.at += 1
        elif self.source.startswith("+", self.at):
            self._never("a possessive repeat")
        return _Repeat(part, least, most)


class _Emit:
    """Writes steps from the end to the beginning: what follows is there before what leads to it."""

    def __init__(self) -> None:
        self.steps = [Step(FOUND, None, 0)]
        self._takes: dict[tuple[str, int], Takes] = {}
        self._size = "the patterns"

    def pattern(self, pattern: re.Pattern[str]) -> int:
        self._size = f"the patterns up to {pattern.pattern!r}"
        return self._node(_Reader(pattern).read(), 0)

    def _step(self, kind: int, what: Any, following: int) -> int:
        if len(self.steps) >= MAX_STEPS:
            raise PatternRefused(
                f"{self._size} are too large: written out they have more than {MAX_STEPS} steps; use smaller "
                "counts, or fewer patterns"
            )
        self.steps.append(Step(kind, what, following))
        return len(self.steps) - 1

    def _node(self, node: _Node, following: int) -> int:
        match node:
            case _Char():
                return self._step(CHAR, self._taker(node), following)
            case _Place():
                return self._step(PLACE, node.where, following)
            case _Row():
                for part in reversed(node.parts):
                    following = self._node(part, following)
                return following
            case _Either():
                begin = self._node(node.ways[-1], following)
                for way in reversed(node.ways[:-1]):
                    begin = self._step(FORK, self._node(way, following), begin)
                return begin
            case _Repeat():
                return self._repeat(node, following)

    def _repeat(self, node: _Repeat, following: int) -> int:
        begin = following
        if node.most is None:
            begin = self._step(FORK, following, following)
            self.steps[begin] = Step(FORK, self._node(node.part, begin), following)
        else:
            for _ in range(node.most - node.least):
                begin = self._step(FORK, self._node(node.part, begin), following)
        for _ in range(node.least):
            before = len(self.steps)
            begin = self._node(node.part, begin)
            if len(self.steps) == before:
                break  # a part that is nothing, however often
        return begin

    def _taker(self, node: _Char) -> Takes:
        key = (node.text, node.flags)
        if key not in self._takes:
            plain = node.text.removeprefix("\\")
            if len(plain) == 1 and node.text == re.escape(plain) and not node.flags & re.IGNORECASE:
                self._takes[key] = partial(str.__eq__, plain)
            else:
                self._takes[key] = re.compile(node.text, node.flags).fullmatch
        return self._takes[key]
