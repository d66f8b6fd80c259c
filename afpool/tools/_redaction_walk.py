"""How something inside a value is hidden: along given paths, or wherever a name is found.

Both copy on the way to what they hide and nothing else, and give the same object back where there was
nothing to hide. Each place is decided by the way that led to it, so an object that stands in two places may
be hidden in one of them. A walk goes `MAX_DEPTH` deep and meets nothing twice on one way down; what is beyond
is replaced, and so is everything under one argument once the budget is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from .._base.canonical import MAX_DEPTH
from ._pattern_match import Exhausted
from ._redaction_names import PATTERN_NAME

if TYPE_CHECKING:
    from ._pattern_match import Patterns, State, Work
    from ._redaction_names import Paths, Said

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_LEAVES: Final = (str, int, float, bytes, bytearray, type(None))
_LETTERS: Final = 16  # of a name that is fed to the patterns, for one visit


def spelled(key: object) -> str:
    """Give a member's name as JSON would write it.

    Raises:
        TypeError: JSON knows no such name.
    """
    if type(key) is str:
        return key
    if isinstance(key, str):
        return str.__str__(key)
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return repr(key)
    raise TypeError(f"a member's name cannot be {type(key).__name__}")


def the_same(kept: Any, value: Any) -> bool:
    """Tell whether a value was left as it is; one that already reads as its placeholder was."""
    return kept is value or (type(kept) is str and type(value) is str and kept == value)


def hide_paths(value: Any, paths: Paths, placeholder: str) -> Any:
    """Give `value` with everything that the paths name replaced; what they do not find is not made up.

    A part of a path may span dots (`a.b` names the member `a.b` as well as `b` inside `a`); where both are
    there, both are hidden. What is neither JSON nor bytes cannot be looked into and is replaced itself.
    """
    for path in paths:
        value = _hide_path(value, path, placeholder)
    return value


def _hide_path(value: Any, path: tuple[str, ...], placeholder: str) -> Any:
    if isinstance(value, Mapping):
        copy: dict[Any, Any] | None = None
        for end in range(1, len(path) + 1):
            name = path[0] if end == 1 else ".".join(path[:end])
            if name not in value:
                continue
            member = value[name]
            kept = placeholder if end == len(path) else _hide_path(member, path[end:], placeholder)
            if not the_same(kept, member):
                copy = dict(value) if copy is None else copy
                copy[name] = kept
        return value if copy is None else copy
    if isinstance(value, list | tuple):
        index = _index(path[0], len(value))
        if index is None:
            return value
        kept = placeholder if len(path) == 1 else _hide_path(value[index], path[1:], placeholder)
        if the_same(kept, value[index]):
            return value
        items = list(value)
        items[index] = kept
        return tuple(items) if isinstance(value, tuple) else items
    return value if isinstance(value, _LEAVES) else placeholder


def _index(name: str, length: int) -> int | None:
    # as JSON Pointer writes it: no sign, no leading zero; and never a number so long that reading it costs
    if not name.isascii() or not name.isdigit() or (name[0] == "0" and name != "0") or len(name) > 12:
        return None
    index = int(name)
    return index if index < length else None


@final
class Walk:
    """Hides members at every depth by their own name, and by the path that leads to them.

    Args:
        judge: What a name says by itself.
        exact: Whether a dotted path is secret.
        patterns: What is searched for in dotted paths.
        reach: The longest dotted path that `exact` or `patterns` could say anything about; 0 for none.
        placeholder: What stands for a hidden value.
        work: The budget.
    """

    __slots__ = ("_above", "_exact", "_patterns", "_placeholder", "_reach", "_work", "judge")

    def __init__(
        self,
        judge: Callable[[str], Said],
        exact: Callable[[str], bool],
        patterns: Patterns | None,
        reach: int,
        placeholder: str,
        work: Work,
    ) -> None:
        self.judge = judge
        self._exact = exact
        self._patterns = patterns
        self._reach = reach
        self._placeholder = placeholder
        self._work = work
        self._above: set[int] = set()

    def inside(self, value: Any, dotted: str) -> Any:
        """Give the form of a value that may be shown, which itself stands at `dotted` and is not hidden."""
        if type(value) in _PLAIN:
            return value
        try:
            prefix, state = self._below(dotted, None)
            return self._value(value, prefix, state, MAX_DEPTH)
        except Exhausted:
            return self._placeholder

    def _below(self, dotted: str | None, state: State | None) -> tuple[str | None, State | None]:
        """Give what the paths of a value's members begin with, and where the patterns are then."""
        if dotted is None or len(dotted) >= self._reach:
            return None, None
        if self._patterns is not None:
            begun = self._patterns.start() if state is None else state
            state = self._patterns.feed(begun, f"{dotted}." if state is None else ".", self._work)
        return f"{dotted}.", state

    def _value(self, value: Any, prefix: str | None, state: State | None, depth: int) -> Any:
        if type(value) in _PLAIN:
            return value
        if not isinstance(value, Mapping | list | tuple):
            return value if isinstance(value, _LEAVES) else self._placeholder
        if depth == 0 or id(value) in self._above:
            return self._placeholder
        self._above.add(id(value))
        if isinstance(value, Mapping):
            kept = self._mapping(value, prefix, state, depth - 1)
        else:
            kept = self._list(value, prefix, state, depth - 1)
        self._above.discard(id(value))
        return kept

    def _mapping(self, value: Mapping[Any, Any], prefix: str | None, state: State | None, depth: int) -> Any:
        copy: dict[Any, Any] | None = None
        for key, member in value.items():
            self._work.spend(1)
            name = spelled(key)
            verdict = self.judge(name)
            if verdict is None or isinstance(verdict, tuple):
                kept = member if verdict is None else hide_paths(member, verdict, self._placeholder)
                kept = self._member(kept, name, prefix, state, depth)
            else:
                kept = self._placeholder
            if not the_same(kept, member):
                copy = dict(value) if copy is None else copy
                copy[key] = kept
        return value if copy is None else copy

    def _list(
        self, value: list[Any] | tuple[Any, ...], prefix: str | None, state: State | None, depth: int
    ) -> Any:
        copy: list[Any] | None = None
        for index, member in enumerate(value):
            self._work.spend(1)
            kept = self._member(member, str(index) if prefix is not None else "", prefix, state, depth)
            if not the_same(kept, member):
                copy = list(value) if copy is None else copy
                copy[index] = kept
        if copy is None:
            return value
        return tuple(copy) if isinstance(value, tuple) else copy

    def _member(self, value: Any, name: str, prefix: str | None, state: State | None, depth: int) -> Any:
        if prefix is None:
            return value if type(value) in _PLAIN else self._value(value, None, None, depth)
        dotted = prefix + name
        here: State | None = None
        if len(dotted) > self._reach:
            return self._value(value, None, None, depth)
        if self._exact(dotted):
            return self._placeholder
        if self._patterns is not None and len(dotted) <= PATTERN_NAME:
            self._work.spend(len(name) // _LETTERS)
            if name.endswith("\n"):
                found = self._patterns.search(dotted, self._work)
            else:
                assert state is not None
                here = self._patterns.feed(state, name, self._work)
                found = self._patterns.ends(here, self._work)
            if found:
                return self._placeholder
        if type(value) in _PLAIN:
            return value
        below, state = self._below(dotted, here)
        return self._value(value, below, state, depth)
