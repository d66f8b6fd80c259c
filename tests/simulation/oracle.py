"""The oracle: judges the facts of a run by every check there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tests.simulation.checks_causes import check_causes
from tests.simulation.checks_delivery import check_attempts, check_verdicts
from tests.simulation.checks_door import check_artifacts, check_back, check_fills, check_runs, check_told
from tests.simulation.checks_door_causes import check_door_causes
from tests.simulation.checks_ends import check_answered, check_rest
from tests.simulation.checks_gate import check_gate, check_links
from tests.simulation.checks_limits import check_connecting, check_further, check_kept, check_listing
from tests.simulation.checks_lists import check_lists
from tests.simulation.checks_places import check_openings, check_places, check_rounds
from tests.simulation.checks_why import check_why
from tests.simulation.ground import Fact, line
from tests.simulation.oracle_law import Law, Violation

Check: TypeAlias = Callable[[list[Fact], Law], Iterator[Violation]]

CHECKS: Final[tuple[Check, ...]] = (
    check_gate,
    check_links,
    check_lists,
    check_attempts,
    check_verdicts,
    check_rounds,
    check_causes,
    check_further,
    check_listing,
    check_connecting,
    check_kept,
    check_places,
    check_openings,
    check_answered,
    check_rest,
    check_fills,
    check_artifacts,
    check_told,
    check_runs,
    check_back,
    check_door_causes,
    check_why,
)

AROUND: Final = 12
"""Facts that are shown before a violation."""

AFTER: Final = 3


def judge(facts: list[Fact], law: Law) -> list[Violation]:
    """Every rule that was broken, in the order of the run."""
    found = [violation for check in CHECKS for violation in check(facts, law)]
    return sorted(found, key=lambda each: each.seq)


def shown_around(facts: list[Fact], seq: int) -> str:
    """The facts around one, as lines to put behind a violation."""
    lines = [
        f"\n  {'>' if fact.seq == seq else ' '} #{fact.seq:<5} {line(fact)}"
        for fact in facts[max(0, seq - AROUND) : seq + AFTER]
    ]
    return "".join(lines)
