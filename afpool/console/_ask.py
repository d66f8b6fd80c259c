"""What a command is asked with, by whom, and how it says that it cannot.

Rules:

* Whoever looks (`read`) sees numbers, names of servers and tools, and digests. Identities are shown to who
  may operate, and only on demand.
* An error names what was given only where that is a short word, and never repeats a value.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import attrs

from ._slices import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .._base.seams import Seams

Level: TypeAlias = Literal["read", "operate"]
"""What somebody may do: look, or also act."""

ErrorCode: TypeAlias = Literal[
    "unknown-command",
    "unknown-table",
    "unknown-id",
    "bad-option",
    "not-allowed",
    "too-long",
    "busy",
    "failed",
]
"""Why a command is refused, for programs."""

_SHOWN: Final = 48
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
_PLAIN: Final = re.compile(r"[\w.:,*/@+-]+")
_UNITS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_YES: Final = frozenset({"yes", "true", "on", "1", ""})
_NO: Final = frozenset({"no", "false", "off", "0"})


@final
class CommandError(Exception):
    """A command that cannot be done. Nothing was changed, unless its message says so.

    Args:
        code: For programs.
        message: For people: what is wrong.
        tries: What could be typed instead: whole commands, that work as they stand.
    """

    def __init__(self, code: ErrorCode, message: str, tries: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.tries = tuple(tries)

    def as_json(self) -> dict[str, Any]:
        """The plain form for the wire."""
        return {"code": self.code, "message": self.message, "try": list(self.tries)}


@final
class Asker:
    """Who is at the other end of one session. Made by whoever accepted it.

    Args:
        level: What they may do.
        who: A word for the record, such as `console uid 1000`; never a token or a name that was claimed.
        number: Of the session, never used twice in a process.

    Attributes:
        gone: The session has ended.
    """

    __slots__ = ("_at_end", "gone", "level", "number", "who")

    def __init__(self, level: Level, who: str, number: int = 0) -> None:
        self.level: Level = level
        self.who = who
        self.number = number
        self.gone = False
        self._at_end: dict[object, Callable[[], object]] = {}

    def at_end(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Have something told when the session ends, at once where it has; returns what takes that back.

        Synchronous, as is what is told.
        """
        token = object()
        if self.gone:
            tell()
        else:
            self._at_end[token] = tell

        def take_back() -> None:
            self._at_end.pop(token, None)

        return take_back

    def end(self) -> None:
        """The session has ended: tell whoever wanted to know, once."""
        self.gone = True
        told, self._at_end = list(self._at_end.values()), {}
        for tell in told:
            tell()

    def __repr__(self) -> str:
        return f"<Asker {self.number} {self.who} ({self.level})>"


@attrs.frozen
class Ask:
    """One command as it was asked.

    Attributes:
        command: The command's own words.
        words: What stood behind them.
        options: `name=value`, by name; of `waiting>3` the value is `>3`.
        asker: Who asked.
        now: When, on the pool's clock.
        unix: The same instant in seconds since 1970.
        slices: Of this command's work; where it is long, it is to pass `await ask.slices.step()`.
    """

    command: tuple[str, ...]
    words: tuple[str, ...]
    options: Mapping[str, str]
    asker: Asker
    now: float
    unix: float
    slices: Slices = attrs.field(factory=Slices, eq=False, repr=False)

    @property
    def reveal(self) -> bool:
        """Whether identities are to be shown; never true for somebody who may only look."""
        if not self.flag("reveal"):
            return False
        if self.asker.level != "operate":
            raise CommandError(
                "not-allowed", "identities are shown only to who may operate; a key is known by its digest"
            )
        return True

    def line(self, *more: str, words: tuple[str, ...] | None = None) -> str:
        """What was asked, as it is typed: without its options, and with more behind it."""
        return " ".join((*self.command, *map(quoted, self.words if words is None else words), *more))

    def unix_of(self, at: float) -> float:
        """An instant of the pool's clock in seconds since 1970."""
        return round(self.unix + (at - self.now), 6)

    def flag(self, name: str, default: bool = False) -> bool:
        """An option that is on or off."""
        text = self.options.get(name)
        if text is None:
            return default
        if text.casefold() in _YES:
            return True
        if text.casefold() in _NO:
            return False
        raise CommandError(
            "bad-option", f"{name} is yes or no", [self.line(f"{name}=yes"), self.line(f"{name}=no")]
        )

    def count(self, name: str, default: int, *, most: int, least: int = 1) -> int:
        """An option that is a whole number, within bounds."""
        text = self.options.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
            raise CommandError(
                "bad-option",
                f"{name} is a whole number from {least} to {most}",
                [self.line(f"{name}={max(default, least)}")],
            )
        return int(text)

    def seconds(self, name: str, default: float, *, most: float, least: float = 0.0) -> float:
        """An option that is a duration, such as `500ms`, `10s`, `2m`; a bare number is seconds."""
        text = self.options.get(name)
        if text is None:
            return default
        value = as_seconds(text)
        if value is None or not least <= value <= most:
            raise CommandError(
                "bad-option", f"{name} is a time from {least:g}s to {most:g}s, such as 500ms, 10s or 2m",
                [self.line(f"{name}={max(default, least):g}s")],
            )  # fmt: skip
        return value


def make_ask(
    command: Sequence[str],
    words: Sequence[str],
    options: Mapping[str, str],
    asker: Asker,
    seams: Seams,
) -> Ask:
    """Stamp what was asked with the instant."""
    return Ask(tuple(command), tuple(words), options, asker, seams.now(), seams.unix_now())


def as_seconds(text: str) -> float | None:
    """Read a duration: `500ms`, `10s`, `2m`, `1h`, `1d`, or seconds; `None` where it is none."""
    if len(text) > 24:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    value = float(match[1]) * _UNITS[match[2] or ""]
    return value if math.isfinite(value) else None


def quoted(word: str) -> str:
    """A word as it is typed: in quotes where it would be taken apart without."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shown(word: str) -> str:
    """A word that was typed, as an error may repeat it: short, and without what a terminal would obey."""
    clean = "".join(char if char.isprintable() else "?" for char in word[:_SHOWN])
    return f"'{clean}…'" if len(word) > _SHOWN else f"'{clean}'"
