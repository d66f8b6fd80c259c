"""Whether any of several patterns is found in a name, in time that is linear in the name.

Rules:

* One automaton for all patterns of a policy, built as names need it: a state is the set of steps that could
  go on here, and what stood before. Nothing is ever tried twice, so no pattern and no name is catastrophic.
* What is built is kept, up to `KEPT`; then it is forgotten and built again. A name that somebody makes up to
  fill the memory costs time, which is counted.
* Time is counted in steps and not in seconds, so an outcome never depends on how busy the machine is. Whoever
  asks brings a budget; `Exhausted` says that it is used up, and then the name is as good as found.
* `re` would find the same; a property test says so.

Several threads may ask at once: what two of them build twice is equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from . import _pattern_syntax as syntax
from ._pattern_syntax import CHAR, FORK, FOUND, PLACE

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

KEPT: Final = 100_000
"""Steps in states, and moves between them, that an automaton holds at most."""

# What is known of a neighbour: of the one before, of the one behind.
_EDGE: Final = 1
_NEWLINE: Final = 2
_WORD: Final = 4
_ASCII_WORD: Final = 8
_LAST_NEWLINE: Final = 16
_FINAL_NEWLINE: Final = "\n$"  # a newline that is the last character has a move of its own

_LOOKS_BACK: Final = {
    syntax.TEXT_START: _EDGE,
    syntax.LINE_START: _EDGE | _NEWLINE,
    syntax.BOUNDARY: _WORD,
    syntax.NO_BOUNDARY: _WORD,
    syntax.ASCII_BOUNDARY: _ASCII_WORD,
    syntax.NO_ASCII_BOUNDARY: _ASCII_WORD,
}
_KNOWN: Final = 4  # characters over known ground that cost as much as one visit of an argument
_NEW: Final = 2  # what each step of a state that is built anew costs


class Exhausted(Exception):
    """The budget for looking is used up."""


@final
class Work:
    """What one question may still cost, in steps."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        """Take `steps` off.

        Raises:
            Exhausted: There were not as many left.
        """
        self.left -= steps
        if self.left < 0:
            raise Exhausted


@final
class State:
    """Where the automaton is: which steps could go on, and what stood before."""

    __slots__ = ("before", "ends", "moves", "steps")

    def __init__(self, steps: frozenset[int], before: int) -> None:
        self.steps = steps
        self.before = before
        self.moves: dict[str, State] = {}
        self.ends: bool | None = None  # whether something is found if the text ends here, once it was asked


@final
class Patterns:
    """Several patterns as one automaton.

    Args:
        patterns: As `compile_pattern` gives them.

    Raises:
        PatternRefused: One cannot be matched in linear time, or all together are too large.
    """

    __slots__ = ("_empty", "_found", "_held", "_looks_back", "_program", "_starts", "_table")

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        self._program = syntax.build_program(patterns)
        self._starts = frozenset(self._program.starts)
        self._looks_back = 0
        for place in self._program.places:
            self._looks_back |= _LOOKS_BACK.get(place, 0)
        # versions of Python disagree about places in an empty text; this is a question for the one at hand
        self._empty = any(pattern.search("") for pattern in patterns)
        self._found = State(frozenset(), 0)
        self._found.ends = True
        self._table: dict[tuple[frozenset[int], int], State] = {}
        self._held = 0

    def search(self, text: str, work: Work) -> bool:
        """Tell whether any of the patterns is found anywhere in `text`.

        Raises:
            Exhausted: `work` did not suffice to tell.
        """
        if not text:
            return self._empty
        work.spend(1 + len(text) // _KNOWN)
        state = self.feed(self.start(), text[:-1], work)
        if state is self._found:
            return True
        last = text[-1]
        state = self._move(state, _FINAL_NEWLINE, work) if last == "\n" else self.feed(state, last, work)
        return self.ends(state, work)

    def start(self) -> State:
        """Give the state before the first character."""
        return self._state(self._starts, _EDGE & self._looks_back)

    def feed(self, state: State, text: str, work: Work) -> State:
        """Give the state after further characters, none of which is the last one and a newline.

        Raises:
            Exhausted: `work` did not suffice to tell.
        """
        for char in text:
            following = state.moves.get(char)
            if following is None:
                if state is self._found:
                    return state
                following = self._move(state, char, work)
            state = following
        return state

    def ends(self, state: State, work: Work) -> bool:
        """Tell whether something is found if the text ends here.

        Raises:
            Exhausted: `work` did not suffice to tell.
        """
        if state.ends is None:
            state.ends = self._closure(state, _EDGE, work) is None
        return state.ends

    def _state(self, steps: frozenset[int], before: int) -> State:
        known = self._table.get((steps, before))
        if known is None:
            if self._held > KEPT:
                # states that somebody is at keep working; they only lead to new ones
                self._table, self._held = {}, 0
            known = self._table[steps, before] = State(steps, before)
            self._held += 1 + len(steps)
        return known

    def _move(self, state: State, move: str, work: Work) -> State:
        char = move[0]
        behind = _describe(char) | (_LAST_NEWLINE if move == _FINAL_NEWLINE else 0)
        closure = self._closure(state, behind, work)
        if closure is None:
            following = self._found
        else:
            steps = self._program.steps
            gone = {steps[at].next for at in closure if steps[at].what(char)}
            following = self._state(self._starts.union(gone), _describe(char) & self._looks_back)
        if self._held <= KEPT:
            self._held += 1
            state.moves[move] = following
        return following

    def _closure(self, state: State, behind: int, work: Work) -> list[int] | None:
        """Give the characters that could be taken next, or `None` where something is found already."""
        steps = self._program.steps
        chars: list[int] = []
        open_ = list(state.steps)
        seen = set(open_)
        while open_:
            at = open_.pop()
            kind, what, following = steps[at]
            if kind == CHAR:
                chars.append(at)
                continue
            if kind == FOUND:
                work.spend(_NEW * len(seen))
                return None
            if kind == PLACE and not _holds(what, state.before, behind):
                continue
            for onward in (following, what) if kind == FORK else (following,):
                if onward not in seen:
                    seen.add(onward)
                    open_.append(onward)
        work.spend(_NEW * len(seen))
        return chars


def _describe(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    if char == "_" or char.isalnum():
        return _WORD | _ASCII_WORD if char.isascii() else _WORD
    return 0


def _holds(place: int, before: int, behind: int) -> bool:
    match place:
        case syntax.TEXT_START:
            return bool(before & _EDGE)
        case syntax.LINE_START:
            return bool(before & (_EDGE | _NEWLINE))
        case syntax.TEXT_END:
            return bool(behind & _EDGE)
        case syntax.TEXT_END_OR_NEWLINE:
            return bool(behind & (_EDGE | _LAST_NEWLINE))
        case syntax.LINE_END:
            return bool(behind & (_EDGE | _NEWLINE))
        case syntax.BOUNDARY:
            return (before ^ behind) & _WORD != 0
        case syntax.NO_BOUNDARY:
            return (before ^ behind) & _WORD == 0
        case syntax.ASCII_BOUNDARY:
            return (before ^ behind) & _ASCII_WORD != 0
    return (before ^ behind) & _ASCII_WORD == 0
