"""W1 to W8: what the record says of a call is what happened.

* W1 It says something, in words and as JSON, or that the call has left the record, and then it has.
* W2 Code, verdict, key, tool, attempts and times are those of the call, in the headline as well.
* W3 Each event that it tells of happened, then, and to that key; the one that is named as the cause is one
  that ends calls with this code, and where only an event can have caused it, one is named.
* W4 Who is said to have held a place was a call of that key (or of the runtime) and not over by then.
* W5 Stages are where the time went: a byte left when one did, the app was asked while it was waited for, the
  server worked until it answered. What it advises follows from the verdict.
* W6 Where definitions are said to differ they differ, and nowhere else.
* W7 What was noted is what came, and what the app raised.
* W8 Nobody is named, and no argument is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.simulation.ground import Answer, Fact, Filed, of
from tests.simulation.ground_why import Explained
from tests.simulation.oracle_law import Law, Violation
from tests.simulation.why_causes import wrong_cause
from tests.simulation.why_definitions import wrong_definition
from tests.simulation.why_events import Happened, false_event
from tests.simulation.why_holders import wrong_holder
from tests.simulation.why_reading import NEAR, Told, head_of, same_time
from tests.simulation.why_stages import wrong_advice, wrong_note, wrong_stage
from tests.simulation.why_world import Around

if TYPE_CHECKING:
    from collections.abc import Mapping

Part: TypeAlias = Callable[["Around", Told], Iterator[tuple[str, str]]]

OUTCOMES: Final = {"ok": "ok", "tool-error": "ok", "caller-cancelled": "cancelled"}
TOO_LATE: Final = "it may have left it, since the record keeps"
NOTHING: Final = "which keeps no call"
MORE: Final = "more events of its key"
OTHER_VERSION: Final = -32022


def check_why(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """W: see the module."""
    explained = list(of(facts, Explained))
    if not explained:
        return
    around = Around(facts, law)
    events: dict[int, tuple[str, float]] = {}
    for fact in explained:
        began, ended = around.began[fact.call], around.ended[fact.call]
        if fact.raised is not None:
            wrong = _left(around, fact)
            if wrong:
                yield Violation("W1", fact.seq, f"{fact.call} {fact.when} by {fact.how}: {wrong}")
            continue
        told = Told(fact, began, ended, around.bound.get(began.tools))
        for part in PARTS:
            for rule, wrong in part(around, told):
                yield Violation(rule, fact.seq, f"{_named(told)}: {wrong}")
        for wrong in _other_events(told, events):
            yield Violation("W3", fact.seq, f"{_named(told)}: {wrong}")


def _named(told: Told) -> str:
    fact = told.fact
    text = f"call {fact.call} ({told.key} → {told.began.tool}), explained {fact.when} by {fact.how}"
    return f"{text}, “{told.headline}”"


def _left(around: Around, fact: Explained) -> str:
    """W1 of a call that is not on the record."""
    said = fact.raised or ""
    records = around.law.records
    filed = list(of(around.facts[: fact.seq], Filed))
    since = next((n for n, each in enumerate(reversed(filed)) if each.call == fact.call), len(filed))
    if not said.startswith("LookupError: no call "):
        return f"it raised {said}"
    if since < records:
        return f"it is not found, and only {since} calls were filed since ({said})"
    if (TOO_LATE if records else NOTHING) not in said:
        return f"it does not say why it is not found: {said}"
    return ""


# ------------------------------------------------------------------------------------------ W1, W2, W8


def _says_something(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    body = told.fact.told
    if not body["headline"].strip() or not body["clauses"]:
        yield "W1", "it says nothing"
    words = " ".join(told.fact.words.split())
    for text in (body["headline"], *(clause["text"] for clause in told.clauses())):
        if not text.strip():
            yield "W1", "one of its clauses is empty"
        if " ".join(text.split()) not in words:
            yield "W1", f"its words leave out {text!r}"
    times = [clause["at"] for clause in told.clauses() if clause["at"] is not None]
    if times != sorted(times):
        yield "W1", "its clauses are not in the order of time"


def _is_the_call(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    use, began, ended = told.use, told.began, told.ended
    outcome = OUTCOMES.get(ended.code)
    code = "cancelled" if ended.code == "caller-cancelled" else ended.code
    if outcome is None:
        outcome = "refused" if ended.delivery in {"not-sent", "refused"} else "failed"
    said = (use["outcome"], use["code"])
    if said != (outcome, code):
        yield "W2", f"it ended {outcome} {code}, not {said}"
    if ended.delivery is not None and use["delivery"] != ended.delivery:
        yield "W2", f"its verdict was {ended.delivery}, not {use['delivery']}"
    if around.law.shown.get(use["key"] or "") != told.key or use["server"] != told.server:
        yield "W2", f"its key was {told.key}, not {use['key']} of {use['server']}"
    if not began.is_operation and (use["tool"], use["method"]) != (began.tool, "tools/call"):
        yield "W2", f"what was called was {began.tool}, not {use['tool']} by {use['method']}"
    if use["took"] is None or abs(began.at + use["took"] - ended.at) > 0.06:
        yield "W2", f"it took {ended.at - began.at:.6f} s, not {use['took']}"
    attempts = len(around.requests.get(began.call, ()))
    # one that is the last may not have left, nor one whose client turned out to speak a version that is over
    left = attempts + 1 + _moved(around, told)
    if use.get("attempts", 0) > left and not around.law.weak(told.server):
        yield "W2", f"{attempts} requests left, and it tells of {use['attempts']} attempts"
    yield from _headline(told)


def _moved(around: Around, told: Told) -> bool:
    """Whether it may have gone over to a client of another version: once, when its server asked for that."""

    def other_version(answer: Answer) -> bool:
        return answer.message is not None and (answer.message.get("error") or {}).get("code") == OTHER_VERSION

    return around.answered(told.key, told.began.at - NEAR, told.ended.at, other_version)


def _headline(told: Told) -> Iterator[tuple[str, str]]:
    use, head = told.use, head_of(told.headline)
    if head is None:
        yield "W2", "its headline is none"
        return
    if head.outcome != use["outcome"] or (head.code or "cancelled") != use["code"]:
        yield "W2", f"its headline says {head.outcome} {head.code}"
    if head.in_doubt != (use["delivery"] == "in-doubt") and head.outcome != "cancelled":
        yield "W2", "its headline says otherwise whether it is in doubt"
    if use["took"] is not None and not same_time(head.after, use["took"]):
        yield "W2", f"its headline says {head.after} of {use['took']} s"


def _names_nobody(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    text = f"{told.fact.words}\n{told.fact.told}"
    for name in around.law.people:
        if name in text and re.search(rf"\b{re.escape(name)}\b", text):
            yield "W8", f"it names {name}"
    if "mark-of-" in text:
        yield "W8", "it tells an argument"


# ------------------------------------------------------------------------------------------ W3 to W7


def _events(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    events = [_event(around, told, clause) for clause in told.clauses("event") if MORE not in clause["text"]]
    for event in events:
        if isinstance(event, str):
            yield "W3", event
            continue
        wrong = false_event(around, event)
        if wrong:
            yield "W3", f"it tells that {event.kind} at {event.at:.4f} of {event.key}, and {wrong}"
    wrong = wrong_cause(around, told, events)
    if wrong:
        yield "W3", wrong


def _event(around: Around, told: Told, clause: Mapping[str, Any]) -> Happened | str:
    facts, at = clause["facts"], told.when(clause)
    digest = facts.get("key", "")
    key = around.law.shown.get(digest, "") if digest else ""
    if digest and not key:
        return f"it tells of {digest}, which is nobody's key"
    if at is None:
        return f"it does not say when {facts.get('kind')} was"
    if key and key != told.key and not (told.bound is not None and told.bound.shared):
        return f"it tells of {facts.get('kind')} of {key}, another key"
    return Happened(facts["kind"], at, key, facts, told, clause["text"])


def _other_events(told: Told, known: dict[int, tuple[str, float]]) -> Iterator[str]:
    """One number is one event, whoever tells of it."""
    for clause in told.clauses("event"):
        facts, at = clause["facts"], told.when(clause)
        if at is None:
            continue
        number, kind = facts["event"], facts["kind"]
        first = known.setdefault(number, (kind, at))
        if first[0] != kind or abs(first[1] - at) > 2 * NEAR:
            yield f"event {number} is told as {kind} at {at:.5f}, and was {first[0]} at {first[1]:.5f}"


def _holders(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    for wrong in wrong_holder(around, told):
        yield "W4", wrong


def _stages(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    for wrong in wrong_stage(around, told):
        yield "W5", wrong
    for wrong in wrong_advice(around, told):
        yield "W5", wrong


def _definitions(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    for wrong in wrong_definition(around, told):
        yield "W6", wrong


def _notes(around: Around, told: Told) -> Iterator[tuple[str, str]]:
    for wrong in wrong_note(around, told):
        yield "W7", wrong


PARTS: Final[tuple[Part, ...]] = (
    _says_something,
    _is_the_call,
    _events,
    _holders,
    _stages,
    _definitions,
    _notes,
    _names_nobody,
)
