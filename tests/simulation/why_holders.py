"""Whether the calls that are said to have held places can have held them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.why_reading import NEAR, PLACE, head_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.ground import Began, Ended, Filed
    from tests.simulation.why_reading import Told
    from tests.simulation.why_world import Around

OF_THE_RUNTIME: Final = frozenset({"runtime-admission", "max_waiting_total", "itself"})
NAMED: Final = 16
WELL: Final = {"ok": ("ok", None), "tool-error": ("ok", None), "caller-cancelled": ("cancelled", "cancelled")}


def wrong_holder(around: Around, told: Told) -> Iterator[str]:
    """What is wrong about those who are said to have held places."""
    named = list(told.use.get("held_by", ()))
    if named and not _waited_for_the_runtime(told) and len(named) < min(NAMED, around.law.max_operations):
        yield f"{len(named)} calls are said to have held what it waited for, and there are more places"
    if told.began.call in named:
        yield "it is said to have held the place that it waited for"
    for call in named:
        wrong = _cannot(around, told, call)
        if wrong:
            yield f"{call} is said to have held a place, and {wrong}"
    for clause in told.clauses("sibling"):
        facts = clause["facts"]
        if "held_by" in facts:
            wrong = _otherwise(around, told, clause)
            if wrong:
                yield f"of {facts['held_by']} it tells {clause['text']!r}, and {wrong}"
    head = head_of(told.headline)
    found = None if head is None else PLACE.search(head.cause)
    if found is not None and not any(f"`{call[:50]}" in found.group(1) for call in named):
        yield "its headline names none of those who held places"


def _cannot(around: Around, told: Told, call: str) -> str:
    began = around.call(call)
    if around.is_own(call):
        return ""
    if began is None:
        return "nobody made it"
    if began.key != told.key and not _waited_for_the_runtime(told):
        return f"it was of {began.key}"
    waited = told.began.at + told.use["took"]  # it cannot have begun to wait later than that
    if began.at > waited + NEAR:
        return "it began later"
    ended = around.ended.get(call)
    law = around.law
    settled = law.settle_timeout + law.cancel_grace + law.close_timeout + law.ping_timeout
    if ended is not None and ended.at + settled < told.began.at:
        return f"it was over {told.began.at - ended.at:.3f} s before"
    # what is in doubt may have begun to leave, and keeps its place for a while although no server saw it
    silent = ended is not None and not around.in_doubt(call) and call not in around.requests
    if ended is not None and silent and ended.at < told.began.at - NEAR:
        return f"it sent nothing and had ended {told.began.at - ended.at:.4f} s before"
    return ""


def _waited_for_the_runtime(told: Told) -> bool:
    stages = {name for name, _ in told.use["stages"]}
    noted = {word for _, word, _ in told.use.get("facts", ())}
    return bool(OF_THE_RUNTIME & (stages | noted))


def _otherwise(around: Around, told: Told, clause: Mapping[str, Any]) -> str:
    facts = clause["facts"]
    call: str = facts["held_by"]
    began, ended = around.call(call), around.ended.get(call)
    if around.is_own(call) or (began is not None and began.call != call):
        return ""  # how it ended is not the world's to know
    if began is None:
        return "nobody made it"
    if facts["tool"] and facts["tool"] != began.tool and not began.is_operation:
        return f"it was of {began.tool}"
    passed = around.first_pass(call)
    if passed is not None:
        return _as_it_passed(told, clause, began, passed)
    if began.repeats and ended is not None and "ended" in facts:
        # of the pass that held it, which another one may have followed
        return (
            "" if began.at <= told.began.at + facts["ended"] <= ended.at + NEAR else "it was not at work then"
        )
    over = ended is not None and ended.seq < told.fact.seq
    if ("ended" in facts) is not over and not _in_that_instant(ended, told):
        return "it had ended" if over else "it had not ended"
    if "leased" in facts and told.began.at + facts["leased"] < began.at - NEAR:
        return "it had not begun by then"
    if ended is None or "ended" not in facts:
        return ""
    if abs(told.began.at + facts["ended"] - ended.at) > 0.06:
        return f"it ended at {ended.at:.4f}"
    return _as_it_ended(facts, clause["text"], began, ended)


def _as_it_passed(told: Told, clause: Mapping[str, Any], began: Began, passed: Filed) -> str:
    """The same of one that was made once more under another id: of the pass that held the place."""
    facts = clause["facts"]
    over = passed.seq < told.fact.seq
    if ("ended" in facts) is not over and not _in_that_instant(passed, told):
        return "that pass of it had ended" if over else "that pass of it had not ended"
    if "leased" in facts and told.began.at + facts["leased"] < began.at - NEAR:
        return "it had not begun by then"
    if "ended" not in facts:
        return ""
    if abs(told.began.at + facts["ended"] - passed.at) > 0.06:
        return f"that pass of it ended at {passed.at:.4f}"
    ended = " ".join(filter(None, (passed.outcome, passed.code)))
    if facts["outcome"] != passed.outcome or not clause["text"].endswith(f"({ended})"):
        return f"that pass of it ended {ended}"
    return ""


def _in_that_instant(ended: Ended | Filed | None, told: Told) -> bool:
    return ended is not None and abs(ended.at - told.fact.at) <= NEAR


def _as_it_ended(facts: Mapping[str, Any], text: str, began: Began, ended: Ended) -> str:
    if ended.code == "protocol-error" and facts["outcome"] == "ok":
        return ""  # its result could not be read, later
    outcome, code = WELL.get(ended.code, (None, ended.code))
    if outcome is None:
        outcome = "refused" if ended.delivery in {"not-sent", "refused"} else "failed"
    if began.repeats and facts["outcome"] == "failed":
        return ""  # of the pass that held it, which another one followed
    if facts["outcome"] != outcome:
        return f"it was {outcome}"
    if code is not None and not text.endswith(f"{outcome} {code})"):
        return f"it ended {outcome} {code}"
    return ""
