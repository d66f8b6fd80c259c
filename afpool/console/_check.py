"""`check`: what an operator would find who looks at every table, with numbers and what to try.

A finding is `bad` where somebody is kept from working, `warn` where that is likely to come. A check only
reads; each is a function that yields what it finds, and none of them holds the loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from ._slices import closing
from ._spec import Command

if TYPE_CHECKING:
    from ._ask import Ask
    from ._leases import Leases
    from ._registry import Registry
    from ._slices import Slices
    from ._sources import Sources

FOUND: Final = 100
_RANK: Final = {"bad": 0, "warn": 1, "ok": 2}


@attrs.frozen(kw_only=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        level: `bad`, `warn`, or `ok` where nothing is wrong.
        check: Which check found it.
        what: One sentence.
        detail: Numbers, in words.
        tries: Commands that tell more, or help; they work as they stand.
        advice: What else to do, in words.
        facts: The same numbers as data.
    """

    level: Literal["bad", "warn", "ok"]
    check: str
    what: str
    detail: str = ""
    tries: tuple[str, ...] = ()
    advice: str = ""
    facts: dict[str, Any] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The plain form for the wire."""
        return {
            "level": self.level, "check": self.check, "what": self.what, "detail": self.detail,
            "try": list(self.tries), "advice": self.advice, "facts": self.facts,
        }  # fmt: skip


@attrs.frozen
class Looking:
    """What a check has to go by.

    Attributes:
        sources: What tables read from.
        leases: The pauses that end by themselves.
        now: On the pool's clock.
        slices: Of this look.
    """

    sources: Sources
    leases: Leases
    now: float
    slices: Slices


Check: TypeAlias = Callable[[Looking], "Iterator[Finding] | AsyncIterator[Finding]"]


class Checks:
    """The checks of one process; layers above may add theirs."""

    def __init__(self, sources: Sources, leases: Leases) -> None:
        self._sources = sources
        self._leases = leases
        self.all: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check, or put another one in its place."""
        self.all[name] = check

    async def run(self, ask: Ask) -> dict[str, Any]:
        """Look at everything, or at what is named."""
        from ._parse import unknown

        for name in ask.words:
            if name not in self.all:
                raise unknown("bad-option", "check", name, self.all, tries="check {}")
        looking = Looking(self._sources, self._leases, ask.now, ask.slices)
        found: list[Finding] = []
        for name, check in self.all.items():
            if not ask.words or name in ask.words:
                made = check(looking)
                async with closing(made):
                    found += [finding async for finding in ask.slices.each(made)]
        found.sort(key=lambda finding: _RANK[finding.level])
        if not found:
            many = len(ask.words) or len(self.all)
            found = [Finding(level="ok", check="all", what=f"nothing found by {many} checks")]
        counts = {level: sum(1 for one in found if one.level == level) for level in ("bad", "warn")}
        return {
            "kind": "checks", "found": [finding.as_json() for finding in found[:FOUND]], "total": len(found),
            **counts, "checks": list(self.all),
        }  # fmt: skip


def register(registry: Registry, sources: Sources, leases: Leases) -> Checks:
    """Add the command."""
    from . import _check_calls, _check_parts

    checks = Checks(sources, leases)
    _check_calls.add_to(checks)
    _check_parts.add_to(checks)
    registry.command(
        Command(
            words=("check",),
            usage="check [NAME …]",
            help="what is wrong or about to be: " + ", ".join(sorted(checks.all)),
            run=checks.run,
            takes=(0, 20),
            complete=lambda _word, _before: checks.all,
        )
    )
    return checks


def told(seconds: float) -> str:
    """A time, as a sentence says it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its word."""
    return f"{number} {one if number == 1 else many or one + 's'}"
