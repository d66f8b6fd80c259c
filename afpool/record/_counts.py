"""Counters that cost a call next to nothing: buckets of times, rates by the second, a tally of many calls.

Rules:

* Times fall into buckets of powers of two of a microsecond; a quantile is read off them, between the bounds
  of its bucket. A row is the counts of all buckets and, last, the sum of the times.
* Totals are kept for ever. Rates are of whole seconds that have passed, quantiles of about the last minute.
* What is older is forgotten when it is touched again: nothing is walked through as time goes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
K = TypeVar("K")

BUCKETS: Final = 48
"""The last one is of years: so that no time has to be compared with a greatest one."""
SUM: Final = BUCKETS
MICRO: Final = 1e6
CLOCK: Final = 5e-4
"""Of a microsecond: half of what the clock tells apart, so that a bucket's bound falls into it."""
KEPT: Final = 64
"""Seconds that a rate is kept by; a power of two."""
HALF: Final = 30
"""Seconds: quantiles are of one to two of these."""
OUTCOMES: Final[tuple[str, ...]] = ("ok", "refused", "failed", "cancelled")


def bound(number: int) -> float:
    """Give the bound of a bucket in seconds; it belongs to the bucket."""
    return float(1 << number) / MICRO


def row() -> list[Any]:
    """Make a row."""
    return [0] * BUCKETS + [0.0]


def add(counts: list[Any], seconds: float) -> None:
    """Count a time."""
    counts[int(seconds * MICRO - CLOCK).bit_length()] += 1
    counts[SUM] += seconds


def quantile(counts: Sequence[Any], part: float) -> float | None:
    """Read a quantile off a row, in seconds; `None` where nothing was counted."""
    rank = part * sum(counts[:BUCKETS])
    if not rank:
        return None
    number = 0
    while rank > counts[number]:
        rank -= counts[number]
        number += 1
    lower = bound(number - 1) if number else 0.0
    return lower + (bound(number) - lower) * float(rank) / float(counts[number])


def of(rows: dict[K, T], name: K, other: K, most: int, make: Callable[[], T]) -> T:
    """Give what is kept under a name, made if there is none; where there are `most`, that of all others."""
    found = rows.get(name)
    if found is None:
        if len(rows) >= most:
            found = rows.get(other)
            name = other
        if found is None:
            found = rows[name] = make()
    return found


@final
class Rate:
    """A total, and how much of it fell into each of the last seconds."""

    __slots__ = ("_at", "_seconds", "total")

    def __init__(self) -> None:
        self.total = 0
        self._at = 0
        self._seconds = [0] * KEPT

    def count(self, second: int) -> None:
        """Count one, in a second of the runtime's clock; one that came late counts as of the newest."""
        if second != self._at:
            second = self._turn(second)
        self.total += 1
        self._seconds[second % KEPT] += 1

    def _turn(self, second: int) -> int:
        passed = second - self._at
        if passed <= 0:
            return self._at
        if passed >= KEPT:
            self._seconds = [0] * KEPT
        else:
            for at in range(self._at + 1, second + 1):
                self._seconds[at % KEPT] = 0
        self._at = second
        return second

    def over(self, span: int, second: int) -> int:
        """Give how many there were in the `span` whole seconds before this one."""
        first = max(second - span, self._at - KEPT + 1)
        return sum(self._seconds[at % KEPT] for at in range(first, min(second, self._at + 1)))


@final
class Tally:
    """What is counted of many calls: those of one server, one tool, one tenant.

    Attributes:
        calls: How many, and when.
        errors: Those that were refused or failed.
        outcomes: How they ended.
        tool_errors: Where the tool answered that it failed.
        whole: Row of their times from begin to end.
        wait: Row of what they waited for a place and a client.
        stages: Rows of their stages.
        half: The half of a minute that it was last touched in.
    """

    __slots__ = (
        "_before",
        "_since",
        "calls",
        "errors",
        "half",
        "outcomes",
        "stages",
        "tool_errors",
        "wait",
        "whole",
    )

    def __init__(self) -> None:
        self.calls = Rate()
        self.errors = Rate()
        self.outcomes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.tool_errors = 0
        self.whole = row()
        self.wait = row()
        self.stages: dict[str, list[Any]] = {}
        self.half = -1
        self._since: dict[str, list[Any]] = {}
        self._before: dict[str, list[Any]] = {}

    def turn(self, half: int) -> None:
        """Begin another half of a minute: quantiles leave out what is older than the one before."""
        if half <= self.half:
            return
        kept = {name: counts.copy() for name, counts in self._rows()}
        self._before = self._since if half == self.half + 1 else kept
        self._since = kept
        self.half = half

    def recent(self, half: int) -> Iterator[tuple[str, list[Any]]]:
        """Give the rows of about the last minute; the one without a name is of whole calls."""
        self.turn(half)
        for name, counts in self._rows():
            before = self._before.get(name)
            if before is not None:
                yield name, [now - then for now, then in zip(counts, before, strict=True)]
            else:
                yield name, counts

    def _rows(self) -> Iterator[tuple[str, list[Any]]]:
        yield "", self.whole
        yield from self.stages.items()
