"""Reads what the record said of a call: the headline by its grammar, clauses by their facts.

Written from `docs/record.md`, and not from afpool: a headline that does not follow it is a violation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.ground import Began, Bound, Ended
    from tests.simulation.ground_why import Explained

NEAR: Final = 2e-5
"""Seconds that two times of one instant may differ by: clauses are rounded to a millionth."""

TIME: Final = r"(-?[\d,.]+ (?:ms|s|min [\d]+ s|h \d+ min))"
HEAD: Final = re.compile(
    rf"^(refused|failed|cancelled)(?: `([^`]*)`)?(, in doubt)?(.*?), {TIME} after the call began: (.+)$",
    re.DOTALL,
)
EARLIER: Final = re.compile(rf"{TIME} earlier\b")
BEFORE: Final = re.compile(rf"{TIME} before the call began\b")
INSTANT: Final = "in that instant"
PLACE: Final = re.compile(r"the place that it waited for was (?:one of those )?held by (.+)$")

_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


@attrs.frozen
class Head:
    """A headline, read."""

    outcome: str
    code: str | None
    in_doubt: bool
    where: str
    after: str
    cause: str


def head_of(text: str) -> Head | None:
    """Read a headline; None where it follows no rule."""
    found = HEAD.match(text)
    if found is None:
        return None
    outcome, code, doubt, where, after, cause = found.groups()
    return Head(outcome, code, doubt is not None, where.strip(", "), after, cause)


def same_time(text: str, seconds: float) -> bool:
    """Whether a duration as it is written for people is so many seconds, as exactly as it is written."""
    value, least = _seconds(text)
    return abs(value - seconds) <= least * 0.51 + NEAR + abs(seconds) * 1e-9


def _seconds(text: str) -> tuple[float, float]:
    """What a duration says, and by how much its last digit counts."""
    words = text.replace(",", "").split()
    sign = -1.0 if words[0].startswith("-") else 1.0
    total, least = 0.0, 0.0
    for number, unit in zip(words[::2], words[1::2], strict=True):
        total += abs(float(number)) * _UNITS[unit]
        decimals = len(number.partition(".")[2])
        least = _UNITS[unit] * 10.0**-decimals
    return sign * total, least


@attrs.frozen
class Told:
    """One explanation, with what the run's facts say of its call.

    Attributes:
        fact: What was filed of it.
        began: How the call began, and `ended` how it ended.
        bound: What it stands on; None for an operation on a bound server.
    """

    fact: Explained
    began: Began
    ended: Ended
    bound: Bound | None

    @property
    def headline(self) -> str:
        """The headline."""
        text: str = self.fact.told["headline"]
        return text

    @property
    def use(self) -> Mapping[str, Any]:
        """The call's own facts."""
        use: Mapping[str, Any] = self.fact.told["use"]
        return use

    @property
    def key(self) -> str:
        """Its key."""
        return self.began.key

    @property
    def server(self) -> str:
        """Its server."""
        return self.began.key.partition("|")[0]

    def when(self, clause: Mapping[str, Any]) -> float | None:
        """The time of a clause on the clock of the run."""
        at = clause["at"]
        return None if at is None else self.began.at + at

    def clauses(self, source: str | None = None) -> Iterator[Mapping[str, Any]]:
        """The clauses, or those of one source."""
        return (each for each in self.fact.told["clauses"] if source in {None, each["source"]})

    def stages(self) -> list[tuple[str, float, float]]:
        """The marks of the call as name, begin and end on the clock of the run."""
        before, found = self.began.at, []
        for name, at in self.use["stages"]:
            ended = self.began.at + at
            found.append((name, before, ended))
            before = ended
        return found
