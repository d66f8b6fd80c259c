"""I7, I9, I11: everybody is answered in time, and what was left is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.ground import Began, Ended, Fact, Hung, Rest, Withdrawn, of
from tests.simulation.oracle_law import SLACK, Law, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

RULE_OF_REST = {"quiet": "I4", "dropped": "I11", "closed": "I9"}


def check_answered(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I7: every call ends, by its deadline at the latest; who is cancelled or withdrawn is back at once."""
    ended = {fact.call: fact for fact in of(facts, Ended)}
    for began in of(facts, Began):
        end = ended.get(began.call)
        if end is None:
            yield Violation("I7", began.seq, f"call {began.call} ({began.key} → {began.tool}) never ended")
        elif end.at > max(began.deadline, began.at) + SLACK:
            late = end.at - began.deadline
            yield Violation(
                "I7", end.seq, f"call {began.call} ended {late:.3f} s after its deadline ({end.code})"
            )
    for fact in facts:
        if isinstance(fact, Hung) or (isinstance(fact, Withdrawn) and fact.found):
            end = ended.get(fact.call)
            what = "cancelled" if isinstance(fact, Hung) else "withdrawn"
            if end is not None and end.seq > fact.seq and end.at > fact.at + SLACK:
                text = (
                    f"call {fact.call} was {what} and came back {end.at - fact.at:.3f} s later ({end.code})"
                )
                yield Violation("I7", end.seq, text)


def check_rest(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I4, I9, I11: no lease is left when all is quiet, no actor when all is dropped, nothing at the end."""
    for rest in of(facts, Rest):
        for what, left in rest.what.items():
            if left:
                yield Violation(RULE_OF_REST[rest.when], rest.seq, f"{rest.when}: {what}: {left}")
