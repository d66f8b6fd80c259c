"""I1, I2, I12: whose link it is, and what was true in the instant of a request's first byte.

A fact counts from the step in which it was filed. What the pool learns over the wire or by asking the app
(`PlanTold`) it has learned when the clock has moved on: where time stands still, an answer is still being
read.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import attrs

from tests.simulation.ground import (
    RAISES,
    Began,
    Bound,
    Closing,
    Crashed,
    Ended,
    Fact,
    Killed,
    Linked,
    Named,
    Paused,
    PlanTold,
    Ran,
    Reconfigured,
    Request,
    Resumed,
    Revoked,
    Shared,
    Unlinked,
    Vended,
    Withdrawn,
)
from tests.simulation.ground_door import ANY, Asked
from tests.simulation.ground_host import ServerFreed, ServerHeld
from tests.simulation.oracle_law import Law, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENING = frozenset({"initialize", "server/discover", "notifications/initialized", None})
"""What a client says before it is of use, and what says nothing of that."""


@attrs.define
class _State:
    """The world at one fact, as far as a gate stands on it."""

    closing: bool = False
    revoked: dict[str, int] = attrs.field(factory=dict)
    reconfigured: dict[str, int] = attrs.field(factory=dict)
    killed: dict[str, int] = attrs.field(factory=dict)
    crashed: dict[str, int] = attrs.field(factory=dict)
    paused: dict[str, int] = attrs.field(factory=dict)
    held: dict[str, int] = attrs.field(factory=dict)
    named: dict[str, frozenset[str]] = attrs.field(factory=dict)
    shared: dict[str, str | None] = attrs.field(factory=dict)
    told: dict[str, list[PlanTold]] = attrs.field(factory=dict)
    withdrawn: set[str] = attrs.field(factory=set)
    began: dict[str, Began] = attrs.field(factory=dict)
    asked: set[str] = attrs.field(factory=set)
    ended: set[str] = attrs.field(factory=set)
    bound: dict[int, Bound] = attrs.field(factory=dict)
    owners: dict[str, str] = attrs.field(factory=dict)
    working: dict[tuple[str, str], int] = attrs.field(factory=dict)
    links: dict[tuple[str, str], set[int]] = attrs.field(factory=dict)
    linked: dict[int, Linked] = attrs.field(factory=dict)

    def take(self, fact: Fact) -> None:
        """Go past a fact."""
        match fact:
            case Closing():
                self.closing = True
            case Revoked():
                self.revoked.update(dict.fromkeys(fact.keys, fact.seq))
            case Reconfigured():
                self.reconfigured.update(dict.fromkeys(fact.keys, fact.seq))
            case Killed():
                self.killed[fact.key] = fact.seq
            case Crashed():
                self.crashed[fact.key] = fact.seq
            case Paused():
                self.paused.setdefault(fact.key, fact.seq)
            case Resumed():
                self.paused.pop(fact.key, None)
            case ServerHeld():
                self.held.setdefault(fact.server, fact.seq)
            case ServerFreed():
                self.held.pop(fact.server, None)
            case Named():
                self.named[fact.caller] = fact.keys
            case Shared():
                self.shared[fact.key] = fact.name
            case PlanTold():
                self.told.setdefault(fact.key, []).append(fact)
            case Withdrawn():
                if fact.found:
                    self.withdrawn.add(fact.call)
            case Began():
                self.began[fact.call] = fact
            case Asked():
                self.asked.add(fact.call)
            case Ended():
                self.ended.add(fact.call)
            case Bound():
                self.bound[fact.tools] = fact
            case Linked():
                self.linked[fact.link] = fact
            case Vended():
                self.owners[fact.value] = fact.owner
            case Request() if fact.key is not None and fact.method not in OPENING:
                whose = (fact.key, fact.plan or "")
                self.links.setdefault(whose, set()).add(fact.link)
                self.working.setdefault(whose, fact.seq)
            case Unlinked():
                for whose, links in self.links.items():
                    links.discard(fact.link)
                    if not links:  # the client may be gone, and what comes then is another one
                        self.working.pop(whose, None)


def check_gate(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I2: nothing leaves after a gate has closed; I1: nothing leaves on somebody else's link or plan."""
    state = _State()
    for fact in facts:
        if isinstance(fact, Request) and fact.call is not None:
            began = state.began.get(fact.call)
            if began is None:
                # what the pool does for a subscription by itself has a call id that it made up
                if not fact.call.startswith("call-") and fact.call not in state.asked:
                    yield Violation("I1", fact.seq, f"request of {fact.call}, which nobody called")
                continue
            for rule, why in _closed(state, began, fact):
                if rule == "I2" and law.weak(fact.server):
                    continue
                yield Violation(rule, fact.seq, f"call {fact.call} ({began.key} → {began.tool}): {why}")
        if isinstance(fact, Request) and fact.key is not None:
            for owner in _not_theirs(state, fact):
                yield Violation("I1", fact.seq, f"a request of {fact.key} carries the credential of {owner}")
        if isinstance(fact, Ran) and fact.call in state.began:
            key = state.began[fact.call].key
            if fact.key != key:
                yield Violation("I1", fact.seq, f"call {fact.call} of {key} ran in the name of {fact.key}")
        state.take(fact)


def _not_theirs(state: _State, request: Request) -> Iterator[str]:
    """The owners of credentials in a request's headers who are not whom its marks name."""
    server, _, fields = (request.key or "").partition("|")
    theirs = {f"{server}:machine", f"{server}:{fields.rpartition('/')[0]}"}
    for text in request.headers.values():
        word = text.removeprefix("Bearer ")
        if text.startswith("Basic "):
            word = base64.b64decode(text.removeprefix("Basic ")).decode("latin-1").partition(":")[2]
        owner = state.owners.get(word)
        if owner is not None and owner not in theirs:
            yield owner


def _closed(state: _State, began: Began, request: Request) -> Iterator[tuple[str, str]]:
    bound = state.bound.get(began.tools)
    key = began.key
    if request.key is not None and request.key != key:
        yield "I1", f"left on a link that belongs to {request.key}"
    if bound is not None and bound.key != key:
        yield "I1", f"was bound for {bound.key}"
    if state.closing:
        yield "I2", "left after the pool had begun to close"
    since = began.seq if bound is None else bound.epoch_from
    ground = began.seq if bound is None else max(since, bound.seq)
    if began.tools != ANY and state.revoked.get(key, -1) > ground:
        yield "I2", "left after its key had been invalidated"
    if began.tools != ANY and state.reconfigured.get(key, -1) > ground:
        yield "I2", "left after its server had been configured otherwise"
    linked = state.linked[request.link]
    for what, when in (("killed", state.killed.get(key, -1)), ("crashed", state.crashed.get(key, -1))):
        if when > linked.seq:
            yield "I2", f"left on a link of a client that had {'been ' if what == 'killed' else ''}{what}"
    if began.caller is not None:
        if key not in state.named.get(began.caller, frozenset()):
            yield "I2", "left though its caller was named no more"
    elif began.who != key:
        yield "I2", f"left for a caller who is {began.who}"
    if bound is not None:
        name = state.shared.get(key)
        if name != bound.name or name == RAISES:
            yield "I2", f"left under the authorization name {name!r}, listed under {bound.name!r}"
        yield from _other_plan(state, bound, request)
    if request.call in state.withdrawn:
        yield "I2", "left after it had been withdrawn"
    if request.call in state.ended:
        yield "I2", "left after it had ended in its caller's hands"
    if request.at >= began.deadline:
        yield "I2", f"left {request.at - began.deadline:.4f} s after its deadline"
    if state.paused.get(key, began.seq + 1) < began.seq:
        yield "I2", "left though admission of its key was held before it began"
    if state.held.get(key.partition("|")[0], began.seq + 1) < began.seq:
        yield "I2", "left though admission of its server was held before it began"


def _other_plan(state: _State, bound: Bound, request: Request) -> Iterator[tuple[str, str]]:
    told = state.told.get(bound.key, [])
    fitting = {each.place for each in told if each.context == bound.context}
    if request.plan is not None and request.plan not in fitting:
        yield "I1", f"left under the plan {request.plan}, listed under {sorted(fitting)}"
    # what is said while a client is being opened may be older than what the opening was told
    opened = state.working.get((bound.key, request.plan or ""), request.seq)
    before = [each for each in told if each.at < request.at]
    anew = any(each.at == request.at and each.context == bound.context for each in told)
    if before and before[-1].context != bound.context and before[-1].seq > opened and not anew:
        yield "I2", f"left after the app had said another plan ({before[-1].place})"


def check_links(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I12: one link, and one session, never carries two projections (nor two plans)."""
    links: dict[int, tuple[str | None, str | None]] = {}
    sessions: dict[tuple[str, str], tuple[str | None, str | None]] = {}
    for fact in facts:
        if not isinstance(fact, Request) or fact.key is None:
            continue
        whose = (fact.key, fact.plan)
        first = links.setdefault(fact.link, whose)
        if first != whose:
            yield Violation("I12", fact.seq, f"link {fact.link} of {first} carries a request of {whose}")
        if fact.session is not None:
            first = sessions.setdefault((fact.place, fact.session), whose)
            if first != whose:
                yield Violation("I12", fact.seq, f"a session of {first} carries a request of {whose}")
