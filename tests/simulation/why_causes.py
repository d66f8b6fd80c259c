"""Whether the cause that an explanation names can be the one: by the code that the call ended with.

What refuses a call is one thing, and it is known which kinds of events can. Where more than one of them came
about since the call's ground was laid, any of them is true. Where the world holds one, an explanation that
names none does not explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.ground import (
    Closing,
    Crashed,
    Paused,
    PlanTold,
    Reconfigured,
    Resumed,
    Revoked,
    Withdrawn,
)
from tests.simulation.ground_why import Drained
from tests.simulation.why_events import ENDS, LAG, Happened
from tests.simulation.why_reading import BEFORE, EARLIER, INSTANT, NEAR, head_of, same_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.why_reading import Told
    from tests.simulation.why_world import Around

BOUND_OTHERWISE: Final = frozenset({"revoked", "reconfigured", "plan-changed", "share-changed"})
HELD: Final = frozenset({"paused", "draining"})
LISTS: Final = frozenset({"list-changed", "stream-lost", "list", "unshared"})

CAUSED_BY: Final[Mapping[str, frozenset[str]]] = {
    "stale-tools": LISTS | ENDS,
    "binding-changed": BOUND_OTHERWISE,
    "cancelled": frozenset({"withdrawn"}),
    "pool-closed": frozenset({"closing"}),
    "actor-crashed": frozenset({"actor-crashed"}),
    "client-closed": ENDS | BOUND_OTHERWISE | {"closing"},
    "session-handle-lost": ENDS,
    "session-expired": ENDS,
    "deadline-exceeded": HELD,
    "open-backoff": frozenset({"open-failed"}),
    "open-failed": frozenset({"open-failed"}) | ENDS,
    "plan-failed": frozenset({"open-failed"}),
    "credential-failed": frozenset({"open-failed"}),
    "authorization-required": frozenset({"open-failed"}),
    "input-required": LISTS | BOUND_OTHERWISE | ENDS | HELD | {"closing", "withdrawn", "actor-crashed"},
}
"""The kinds of events that can have caused a code; of others none is named."""

ALWAYS: Final = frozenset(
    {
        "stale-tools", "binding-changed", "pool-closed", "actor-crashed", "client-closed",
        "session-handle-lost", "open-backoff",
    }
)  # fmt: skip
"""Codes that only an event can have caused."""


def wrong_cause(around: Around, told: Told, events: Sequence[Happened | str]) -> str:
    """What is wrong with the cause; empty where it is true."""
    use = told.use
    code, number = use["code"], use.get("cause")
    if number is None:
        if code == "session-handle-lost" and "the wire is closed" in told.headline:
            return ""  # it was the first to find out
        if code in ALWAYS or _withdrawn(around, told) or _paused(around, told):
            return f"nothing is named that caused {code}"
        return ""
    cause = next(
        (each for each in events if not isinstance(each, str) and each.facts["event"] == number), None
    )
    if cause is None:
        return f"event {number} caused it and is not told"
    if cause.kind not in CAUSED_BY.get(code, frozenset()):
        return f"{cause.kind} is named as what caused {code}"
    return (
        _not_the_key(around, told, cause)
        or _before_its_ground(around, told, cause)
        or _of_another(around, told, cause)
        or _other_end(around, told, cause)
        or _headline(told, cause)
    )


def _withdrawn(around: Around, told: Told) -> bool:
    return told.ended.code == "cancelled" and around.since(
        Withdrawn, told.began.at, told.ended.at, lambda fact: fact.call == told.began.call and fact.found
    )


def _paused(around: Around, told: Told) -> bool:
    """Whether it waited for a place until its time was up while its key was paused."""
    stages = told.use["stages"]
    if told.ended.code != "deadline-exceeded" or not stages or stages[-1][0] != "admission":
        return False
    held = False
    for fact in around.facts[: told.ended.seq]:
        if isinstance(fact, Paused | Resumed) and fact.key == told.key:
            held = isinstance(fact, Paused)
    return held


def _not_the_key(around: Around, told: Told, cause: Happened) -> str:
    if cause.kind == "withdrawn" and cause.facts.get("call", told.began.call) != told.began.call:
        return f"it names that {cause.facts.get('call')} was withdrawn"
    if cause.kind != "reconfigured":
        return ""
    # what only gives another `share` names no key
    hit = around.at(Reconfigured, cause.at, lambda fact: told.key in fact.keys or not fact.keys)
    return "" if hit else "that configuration was as before for its key"


def _before_its_ground(around: Around, told: Told, cause: Happened) -> str:
    """What a call stands on can only be ended by what came after it was laid."""
    if told.bound is not None and cause.kind == "plan-changed":
        context = told.bound.context
        other = around.since(
            PlanTold, 0.0, cause.at, lambda fact: fact.key == told.key and fact.context != context
        )
        return "" if other else "the plan for its key was the one that the tools were listed under"
    if told.bound is None or cause.kind not in {"revoked", "reconfigured"}:
        return ""
    since = told.bound.epoch_from
    kinds = (Revoked, Reconfigured)
    later = any(fact.seq > since for kind in kinds for fact in around.within(kind, cause.at, cause.at))
    return "" if later else f"{cause.kind} at {cause.at:.4f} came before the tools were listed (#{since})"


def _of_another(around: Around, told: Told, cause: Happened) -> str:
    """What ended a client ended that of the call; a list that moved is the one that it stood on."""
    use, facts = told.use, cause.facts
    if any(stage == "repeat" for stage, _, _ in use.get("facts", ())):
        return ""  # what it tells beside its cause is of the last pass, and its cause of one before
    its_own = use.get("client") is None or use["client"] == facts.get("client")
    if cause.kind in ENDS and not its_own:
        return f"it went to client {use['client']}, and {cause.kind} befell client {facts.get('client')}"
    if cause.kind == "list" and not its_own and use.get("list") not in {None, facts.get("list")}:
        return f"it stood on list {use['list']}, and list {facts.get('list')} moved"
    if cause.kind in HELD and cause.key:
        ends = Resumed if cause.kind == "paused" else Drained
        if around.since(
            ends, cause.at, told.ended.at, lambda fact: fact.key == told.key and fact.seq < told.ended.seq
        ):
            return f"that its key was {cause.kind} was over by then"
    return ""


def _other_end(around: Around, told: Told, cause: Happened) -> str:
    if cause.at > told.ended.at + NEAR:
        return "it came after the end"
    if cause.kind == "closing" and not around.since(Closing, 0.0, cause.at + LAG, lambda fact: True):
        return "the pool was not left"
    if cause.kind == "actor-crashed" and not around.at(Crashed, cause.at, lambda fact: fact.key == told.key):
        return "that key did not crash then"
    return ""


def _headline(told: Told, cause: Happened) -> str:
    """How much earlier the cause was, as the headline says; of a lost session it says what came of it."""
    head = head_of(told.headline)
    if head is None or told.use["code"] == "session-expired":
        return ""
    text = head.cause
    since = cause.at - told.began.at
    before_end = told.began.at + told.use["took"] - cause.at
    # in the instant in which the call began, either is right: both moments come from rounded records
    if since < 0 or (since < 1e-3 and BEFORE.search(text) is not None):
        found = BEFORE.search(text)
        if found is None or not same_time(found.group(1), -since):
            return f"its headline does not say that {cause.kind} was {-since:.4f} s before the call began"
    elif INSTANT in text:
        if before_end > 1e-3:
            return f"{cause.kind} was {before_end:.4f} s before its end, and not in that instant"
    else:
        found = EARLIER.search(text)
        if found is None or not same_time(found.group(1), before_end):
            return f"its headline does not say that {cause.kind} was {before_end:.4f} s earlier"
    return ""
