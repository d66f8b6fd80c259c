"""A schema without the patterns that cannot be matched in linear time: never stricter than it was.

Rules:

* A pattern is left out where it stands; so is what `patternProperties` says of the names that it finds, and
  with that what is said of all other names (`additionalProperties`).
* Where more is allowed because of it, `not`, `if` and `oneOf` would refuse what they did not refuse before.
  So those go as well (of `oneOf` it stays that one of them allows it) where such a pattern, or a reference
  that may lead to one, stands in them; and with them what is said of what nothing else has looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

UNTOUCHED: Final = frozenset({"enum", "const", "default", "examples", "required"})
NAMED_PARTS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_CONDITION: Final = ("if", "then", "else")
_MAX_SHOWN: Final = 80


def without_bad_patterns(schema: Mapping[str, Any], compiles: Callable[[str], bool]) -> tuple[Any, list[str]]:
    """Copy a schema without bad patterns.

    Args:
        schema: The whole document.
        compiles: Says whether a pattern is a good one.

    Returns:
        The copy, and the patterns that were left out, quoted and cut.

    Raises:
        RecursionError: It is nested deeper than Python recurses.
    """
    cut = _Cut(compiles)
    bare = cut.copied(schema)
    if cut.forgets:
        bare = _without_unevaluated(bare)
    return bare, cut.left_out


@final
class _Cut:
    """One copy under way.

    Attributes:
        left_out: The patterns.
        forgets: Something is gone that says what of a value has been looked at.
    """

    def __init__(self, compiles: Callable[[str], bool]) -> None:
        self._compiles = compiles
        self._known: dict[str, bool] = {}
        self.left_out: list[str] = []
        self.forgets = False

    def copied(self, place: Any, *, parts: bool = False) -> Any:
        """Copy a place; `parts` marks a mapping from names to places."""
        if isinstance(place, list):
            return [self.copied(one) for one in place]
        if not isinstance(place, Mapping):
            return place
        if parts:
            return {name: self.copied(one) for name, one in place.items()}
        copy: dict[str, Any] = {}
        for key, value in place.items():
            if key == "pattern" and self._bad(value):
                self._leave_out(value)
            elif key in UNTOUCHED:
                copy[key] = value
            elif key == "patternProperties" and isinstance(value, Mapping):
                copy[key] = {name: self.copied(one) for name, one in value.items() if not self._bad(name)}
            else:
                copy[key] = self.copied(value, parts=key in NAMED_PARTS)
        self._loosen(place, copy)
        return copy

    def _loosen(self, place: Mapping[str, Any], copy: dict[str, Any]) -> None:
        names = place.get("patternProperties")
        gone = [name for name in names if self._bad(name)] if isinstance(names, Mapping) else []
        if gone:
            for name in gone:
                self._leave_out(name)
            copy.pop("additionalProperties", None)
            self.forgets = True
        if self._tainted(place.get("not")):
            del copy["not"]
        if self._tainted(place.get("if")):
            for key in _CONDITION:
                copy.pop(key, None)
            self.forgets = True
        if "maxContains" in place and self._tainted(place.get("contains")):
            del copy["maxContains"]
        if self._tainted(place.get("oneOf")):
            others = copy.get("allOf", [])
            copy["allOf"] = [*(others if isinstance(others, list) else []), {"anyOf": copy.pop("oneOf")}]

    def _leave_out(self, pattern: str) -> None:
        said = repr(pattern[:_MAX_SHOWN])
        if said not in self.left_out:
            self.left_out.append(said)

    def _bad(self, pattern: object) -> bool:
        if not isinstance(pattern, str):
            return False
        known = self._known.get(pattern)
        if known is None:
            known = self._known[pattern] = not self._compiles(pattern)
        return known

    def _tainted(self, place: object) -> bool:
        """Whether a bad pattern, or a reference that may lead to one, stands somewhere in a place."""
        stack = [place]
        while stack:
            one = stack.pop()
            if isinstance(one, list):
                stack.extend(one)
            elif isinstance(one, Mapping):
                if not one.keys().isdisjoint(_REFERENCES) or self._bad(one.get("pattern")):
                    return True
                names = one.get("patternProperties")
                if isinstance(names, Mapping) and any(map(self._bad, names)):
                    return True
                stack.extend(one.values())
        return False


def _without_unevaluated(place: Any, *, parts: bool = False) -> Any:
    if isinstance(place, list):
        return [_without_unevaluated(one) for one in place]
    if not isinstance(place, Mapping):
        return place
    return {
        key: value
        if not parts and key in UNTOUCHED
        else _without_unevaluated(value, parts=not parts and key in NAMED_PARTS)
        for key, value in place.items()
        if parts or key not in _UNEVALUATED
    }
