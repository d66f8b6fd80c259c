"""What a name says by itself: clear, hidden whole, or hidden inside.

A policy never changes, so what was found out about a name is kept, up to `KNOWN` of them; names come from
models, so none longer than `PATTERN_NAME` is kept. A name that there was no budget left to look at is hidden,
and that is not kept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias, final

from ._pattern_match import Exhausted, Patterns

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from ._pattern_match import Work

logger = logging.getLogger("afpool")

PATTERN_NAME: Final = 256
"""The longest name, and the longest dotted path, that patterns look at."""
KNOWN: Final = 1_024


@final
class Whole:
    """Hidden whole, whatever it is."""

    def __repr__(self) -> str:
        return "WHOLE"


WHOLE: Final = Whole()
Paths: TypeAlias = tuple[tuple[str, ...], ...]
Said: TypeAlias = Whole | Paths | None
"""What a name says: `None` is clear, paths name what is hidden inside its value."""


@final
class Names:
    """A policy's names, made ready for being asked.

    Args:
        keys: Exact names and dotted paths.
        patterns: What is searched for in names and dotted paths.
        fields: Key to dotted paths inside its value.

    Attributes:
        known: Name to what it says, as far as it was found out. For reading.
        inert: Whether every name is clear.
        reach: The longest dotted path that could be hidden by what it spells; 0 where none is.
        patterns: The automaton, or `None`.
    """

    __slots__ = ("_exact", "_paths", "_warned", "inert", "known", "patterns", "reach")

    def __init__(
        self, keys: Iterable[str], patterns: Sequence[re.Pattern[str]], fields: Mapping[str, Sequence[str]]
    ) -> None:
        self._exact = frozenset(keys)
        self._paths: dict[str, Paths] = {
            key: tuple(tuple(path.split(".")) for path in paths) for key, paths in fields.items() if paths
        }
        self.patterns = Patterns(patterns) if patterns else None
        self.inert = not (self._exact or patterns or self._paths)
        dotted = max((len(key) for key in self._exact if "." in key), default=0)
        self.reach = max(dotted, PATTERN_NAME if patterns else 0)
        self.known: dict[str, Said] = {}
        self._warned = False

    def exact(self, dotted: str) -> bool:
        """Tell whether a name or dotted path is listed as it stands."""
        return dotted in self._exact

    def hits(self, dotted: str, work: Work) -> bool:
        """Tell whether a name or dotted path is hidden whole; it is where `work` does not suffice to tell."""
        try:
            return self._hit(dotted, work)
        except Exhausted:
            return True

    def judge(self, name: str, work: Work) -> Said:
        """Say what one name says."""
        if name in self.known:
            return self.known[name]
        try:
            said: Said = WHOLE if self._hit(name, work) else self._paths.get(name)
        except Exhausted:
            return WHOLE
        if len(name) <= PATTERN_NAME:
            if len(self.known) >= KNOWN:
                self.known.clear()
            self.known[name] = said
        elif self.patterns is not None and said is not WHOLE:
            self._warn()
        return said

    def _hit(self, dotted: str, work: Work) -> bool:
        if dotted in self._exact:
            return True
        patterns = self.patterns
        return patterns is not None and len(dotted) <= PATTERN_NAME and patterns.search(dotted, work)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "an argument's name is longer than %d characters, so no pattern of a redaction policy looked "
                "at it; only `keys` hide such a name (said once)",
                PATTERN_NAME,
            )
