"""What is wrong with a configuration: where, what was expected, and what was probably meant.

No text here ever holds a value that stands in a file or came out of a variable: a value may be a secret that
stands in the wrong place. Names of settings, of servers and of variables are shown.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from .._base.errors import NOT_SENT, AfpoolError, Delivery

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN: Final = 100
"""How many problems a text lists; all of them are in `ConfigError.problems`."""

_NAME_SHOWN: Final = 80


@attrs.frozen
class Problem:
    """One thing that is wrong, or (in `Config.warnings`) that was passed over.

    Attributes:
        file: The file as it was named, `environment` or `flag`.
        line: Where the key stands, from 1; `None` where there is no line to point at.
        key: The dotted path of the setting; empty where it is about the whole file.
        what: What is wrong and what was expected. Holds no value.
        nearest: The valid name that is closest to the one given.
        structural: Whether the shape is wrong, which the JSON Schema says as well; otherwise the meaning is.
    """

    file: str
    line: int | None
    key: str
    what: str
    nearest: str | None = None
    structural: bool = attrs.field(default=False, eq=False, repr=False)

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        what = self.what if self.nearest is None else f"{self.what}; did you mean {self.nearest!r}?"
        return ": ".join(part for part in (where, self.key, what) if part)


class ConfigError(AfpoolError):
    """A configuration cannot be used. Nothing was opened.

    Args:
        problems: All that is wrong, at least one thing.

    Attributes:
        problems: The same.
        file: The file of the first.
        line: Its line.
        key: Its key.
    """

    code = "config-invalid"
    deliveries: ClassVar[tuple[Delivery, ...]] = (NOT_SENT,)

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        self.file, self.line, self.key = first.file, first.line, first.key
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"{len(self.problems) - SHOWN} more problems are not shown")
        super().__init__("\n".join(lines))

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def nearest(given: str, known: Iterable[str]) -> str | None:
    """Give the known name that is closest to the given one, if any is close."""
    if len(given) > _NAME_SHOWN:
        return None
    plain = {name.replace("_", "").replace("-", "").casefold(): name for name in known}
    folded = given.replace("_", "").replace("-", "").casefold()
    if folded in plain:
        return plain[folded]
    close = difflib.get_close_matches(folded, plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else None


def shown_name(name: str) -> str:
    """Give a name for a message: short, on one line."""
    if len(name) > _NAME_SHOWN:
        name = name[:_NAME_SHOWN] + "…"
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def dotted(path: Iterable[str | int]) -> str:
    """Give a path as people write it: `servers.wiki.args[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        plain = bool(part) and part.isascii() and part.replace("-", "").replace("_", "").isalnum()
        name = part if plain and len(part) <= _NAME_SHOWN else f'"{shown_name(part)}"'
        text += f".{name}" if text else name
    return text
