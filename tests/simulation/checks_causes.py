"""C1: a refusal has a cause. Who refuses everything breaks no other rule.

For each code that speaks of something that the facts hold: that it was so, at some time since the call (or
what it stands on) began. Codes whose causes lie with the app's moods or with limits are left out here; what
they would hide is found by the recovery at the end of each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from tests.simulation.checks_lists import LIST_CHANGED, Received
from tests.simulation.ground import (
    RAISES,
    Began,
    Bound,
    Closing,
    Crashed,
    Ended,
    Fact,
    Heard,
    Named,
    PlanTold,
    Reconfigured,
    Revoked,
    Shared,
    Withdrawn,
    of,
)
from tests.simulation.ground_door import ANY, Asked, base_call
from tests.simulation.oracle_law import Law, Violation

if TYPE_CHECKING:
    from tests.simulation.checks_lists import Listed


@attrs.frozen
class Case:
    """One refused call.

    Attributes:
        began: How it began, and `ended` how it ended.
        bound: What it stands on; None for an operation on a bound server.
        facts: Everything up to its end.
        since: The number of the fact from which on its ground counts.
        lists: Every list that was received, by server.
    """

    began: Began
    ended: Ended
    bound: Bound | None
    facts: list[Fact]
    since: int
    lists: Mapping[str, list[Listed]]

    def any(
        self, kind: type[Fact], fits: Callable[..., bool] = lambda fact: True, *, since: int = -1
    ) -> bool:
        """Whether such a fact came about after another one."""
        return any(fits(fact) for fact in of(self.facts, kind) if fact.seq > since)


Cause: TypeAlias = Callable[[Case], bool]


def _named_otherwise(case: Case) -> bool:
    began = case.began
    if _listed_as_another(case) or _somebody_else_at_the_door(case):
        return True
    if began.caller is None:
        return began.who != began.key
    held = [fact for fact in of(case.facts, Named) if fact.caller == began.caller]
    current = [fact for fact in held if fact.seq <= began.seq][-1:]
    return any(
        began.key not in fact.keys for fact in [*current, *held] if fact in current or fact.seq > began.seq
    )


def _somebody_else_at_the_door(case: Case) -> bool:
    """Whether he who made a call through the door is another by now, in whatever he is told apart by.

    What the host fills and whose artifacts a call sees go by the whole identity, and not by the server's key.
    """
    asked = next((each for each in of(case.facts, Asked) if each.call == base_call(case.began.call)), None)
    if asked is None or asked.bare:
        return False
    mine = [fact for fact in of(case.facts, Named) if fact.caller == asked.caller]
    return any(fact.scope != asked.scope for fact in mine if fact.seq > asked.seq)


def _listed_as_another(case: Case) -> bool:
    """Whether the tools were listed for a live caller who may have said by then that he is somebody else."""
    key = case.began.key
    named = list(of(case.facts, Named))
    callers = {fact.caller for fact in named if key in fact.keys}
    bound = -1 if case.bound is None else case.bound.seq
    return any(fact.caller in callers and key not in fact.keys and fact.seq <= bound for fact in named)


def _share_raised(case: Case) -> bool:
    held = [fact for fact in of(case.facts, Shared) if fact.key == case.began.key]
    current = [fact for fact in held if fact.seq <= case.began.seq][-1:]
    return any(fact.name == RAISES for fact in [*current, *(f for f in held if f.seq > case.began.seq)])


def _binding_changed(case: Case) -> bool:
    key, since = case.began.key, case.since
    if any(case.any(kind, lambda fact: key in fact.keys, since=since) for kind in (Revoked, Reconfigured)):
        return True
    names = [fact.name for fact in of(case.facts, Shared) if fact.key == key]
    contexts = {fact.context for fact in of(case.facts, PlanTold) if fact.key == key}
    if case.bound is None:
        return (
            len(set(names)) > 1
            or len(contexts) > 1
            or case.any(Shared, lambda fact: fact.key == key, since=since)
        )
    later = [fact.name for fact in of(case.facts, Shared) if fact.key == key and fact.seq > since]
    return bool(contexts - {case.bound.context}) or any(
        name != case.bound.name for name in [*names[-1:], *later]
    )


def _list_changed(case: Case) -> bool:
    bound = case.bound
    if bound is None:
        return False
    server = case.began.key.partition("|")[0]
    if case.any(
        Heard,
        lambda fact: fact.method == LIST_CHANGED and (fact.key or "").partition("|")[0] == server,
        since=case.since,
    ):
        return True
    return any(
        each.seq < case.ended.seq
        and (
            each.twice
            or {name: each.tools.get(name) for name in bound.definitions} != dict(bound.definitions)
            or set(each.tools) != set(bound.definitions)
        )
        for each in case.lists.get(server, ())
    )


CAUSES: Final[Mapping[str, Cause]] = {
    "identity-mismatch": _named_otherwise,
    "share-failed": _share_raised,
    "binding-changed": _binding_changed,
    "stale-tools": _list_changed,
    "deadline-exceeded": lambda case: case.ended.at >= case.began.deadline,
    "cancelled": lambda case: case.any(Withdrawn, lambda fact: fact.call == case.began.call and fact.found),
    "pool-closed": lambda case: case.any(Closing),
    "actor-crashed": lambda case: case.any(Crashed, lambda fact: fact.key == case.began.key),
}
"""What has to have been so for a call to end with a code."""


def check_causes(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """C1: see the module."""
    began = {fact.call: fact for fact in of(facts, Began)}
    bound = {fact.tools: fact for fact in of(facts, Bound)}
    lists: dict[str, list[Listed]] | None = None
    for ended in of(facts, Ended):
        cause = CAUSES.get(ended.code)
        if cause is None:
            continue
        if lists is None:
            lists = {}
            for (key, _, _), received in Received(facts, law).lists.items():
                lists.setdefault(key.partition("|")[0], []).extend(received)
        first = began[ended.call]
        if first.tools == ANY and ended.code in {"stale-tools", "binding-changed"}:
            continue  # what it stood on is not filed
        ground = bound.get(first.tools)
        since = first.seq if ground is None else ground.epoch_from
        if ground is None:
            since = -1  # when its server was bound is not filed
        case = Case(first, ended, ground, facts[: ended.seq], since, lists)
        if not cause(case):
            text = f"call {ended.call} ({first.key} → {first.tool}) ended {ended.code}, and nothing was so"
            yield Violation("C1", ended.seq, text)
