"""What an explanation is: one or two sentences, then facts in the order of time, each with its source."""

from __future__ import annotations

import re
import textwrap
from typing import Any, Literal, TypeAlias

import attrs

from ._explain_words import after

Source: TypeAlias = Literal["use", "event", "definition", "artifact", "sibling", "now"]

_INDENT = 14
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|min|h|bytes?|kB|MB)\b|%)")


@attrs.frozen
class Clause:
    """One fact of an explanation.

    Attributes:
        at: Seconds since the call began, negative for what happened before; `None` where it has no time.
        text: The fact in words.
        facts: The same as plain data, by the names that it is filed under.
        source: Where it is filed: in the call's own `use`, in an `event` of the pool, in the `definition` of
            a tool, in an `artifact`'s ticket, in the use of another call (`sibling`). Of
            a call that runs, also what its pool holds `now`.
    """

    at: float | None
    text: str
    facts: dict[str, Any]
    source: Source

    def as_json(self) -> dict[str, Any]:
        """Give plain data."""
        return {"at": self.at, "text": self.text, "facts": self.facts, "source": self.source}


@attrs.frozen
class Explanation:
    """Why something came out as it did, told by what is filed and by nothing else.

    Attributes:
        headline: One or two sentences: what happened, when, and the fact that caused it.
        clauses: The facts, in the order of time; those without one stand last.
        use: The call's facts as `use_as_json` gives them; `None` where it explains an artifact.
    """

    headline: str
    clauses: tuple[Clause, ...]
    use: dict[str, Any] | None = attrs.field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Give plain data: `kind` (`explanation`), `headline`, `clauses`, `use`."""
        return {
            "kind": "explanation",
            "headline": self.headline,
            "clauses": [clause.as_json() for clause in self.clauses],
            "use": self.use,
        }

    def words(self, width: int = 100) -> str:
        """Give several lines for people.

        Args:
            width: Characters of a line, where a word allows it; at least 40.
        """
        width = max(width, 40)
        lines = _wrapped(self.headline, width)
        lines.append("")
        for clause in self.clauses:
            when = "" if clause.at is None else after(clause.at)
            lines += _wrapped(clause.text, width, f"{when:>{_INDENT - 2}}  ", " " * _INDENT)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.words()


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Break a text into lines, never between a number and its unit."""
    lines = textwrap.wrap(
        _UNIT.sub("\xa0", text),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]
