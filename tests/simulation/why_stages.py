"""Whether the stages of an explanation are where the time went, and whether its notes are what came."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.simulation.ground import Answer, Heard, Unlinked
from tests.simulation.ground_why import AppAsked, AppSaid
from tests.simulation.oracle_law import error_code, is_question
from tests.simulation.why_reading import NEAR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.why_reading import Told
    from tests.simulation.why_world import Around

LAG: Final = 0.05
WORTH: Final = 1e-3
AGAIN: Final = "may be made again"
THINK: Final = "think first"
_ANSWER: Final = re.compile(r"(?:http (\d+))?\s*(?:error (-?\d+))?$")


def wrong_stage(around: Around, told: Told) -> Iterator[str]:
    """What is wrong about its stages."""
    stages = told.stages()
    previous = told.began.at
    for name, began, ended in stages:
        if ended < previous - NEAR:
            yield f"stage {name} ends before the one before it"
        previous = ended
        if ended > told.began.at + told.use["took"] + NEAR and name != "answered":
            yield f"stage {name} ends after the call"
        if name in {"plan", "credential"} and ended - began > WORTH:
            wrong = _not_asked(around, told, name, began, ended)
            if wrong:
                yield wrong
    yield from _sent(around, told)
    yield from _worked(around, told)
    yield from _shares(told)


def _not_asked(around: Around, told: Told, what: str, began: float, ended: float) -> str:
    """A wait for the app is one only while the app was asked."""
    asked = [
        fact for fact in around.within(AppAsked, 0.0, ended) if fact.what == what and _whose(fact.whose, told)
    ]
    said = {fact.asked: fact.at for fact in around.within(AppSaid, 0.0, told.fact.at) if fact.what == what}
    for fact in asked:
        if fact.at <= began + LAG and said.get(fact.seq, ended) >= ended - LAG:
            return ""
    return f"it tells that {what} took {ended - began:.4f} s, and nobody was asked for that long"


def _whose(whose: str, told: Told) -> bool:
    return whose == told.key or whose.partition(":")[0] == told.server


def _sent(around: Around, told: Told) -> Iterator[str]:
    """A first byte left when it is said to have left."""
    if around.law.weak(told.server):
        return
    requests = around.requests.get(told.began.call, ())
    moments = [request.at for request in requests]
    for name, _, ended in told.stages():
        if name != "sent" or any(abs(at - ended) <= LAG for at in moments):
            continue
        later = any(at >= ended for at in moments) and not told.began.repeats
        if told.use["delivery"] in {"in-doubt", "not-sent"} and not later:
            continue  # the gate was passed, and the network took nothing of it: in doubt, since nobody knows
        yield f"it tells that a byte left at {ended:.4f}; bytes left at {[round(at, 4) for at in moments]}"


def _worked(around: Around, told: Told) -> Iterator[str]:
    """What is called waiting for the answer follows a byte that left, and ends with what came, or its end."""
    end = told.began.at + told.use["took"]
    attempt, sent = 1, False
    for clause in told.clauses("use"):
        facts = clause["facts"]
        if facts.get("stage") == "attempt":
            attempt, sent = facts["attempt"], False
        elif facts.get("stage") == "sent":
            sent = True
        elif facts.get("stage") in {"server", "answered"}:
            at = told.when(clause)
            if facts.get("attempt", attempt) != attempt and _told_whole(told):
                yield f"it tells that the server worked in attempt {facts['attempt']}, in attempt {attempt}"
            if not sent and _told_whole(told):
                yield f"it tells that the server worked in attempt {attempt}, of which nothing had left"
            if at is not None and abs(at - end) > LAG and not _came(around, told, at):
                yield f"it tells that the server's answer was waited for until {at:.4f}, when nothing came"


def _told_whole(told: Told) -> bool:
    return not any(
        "more facts" in clause["text"] or "more stages" in clause["text"] for clause in told.clauses()
    )


def _came(around: Around, told: Told, at: float) -> bool:
    since = at - LAG
    return (
        around.answered(told.key, since, at, lambda answer: True)
        or around.unlinked(told.key, since, at)
        or around.since(Heard, since, at, lambda fact: fact.key in {told.key, None})
        or around.since(Unlinked, since, at, lambda fact: True)
    )


def _shares(told: Told) -> Iterator[str]:
    for clause in told.clauses():
        spent = clause["facts"].get("spent")
        if spent is None:
            continue
        whole = clause["facts"]["took"]
        if abs(sum(spent.values()) - whole) > 1e-4 or min(spent.values(), default=0.0) < -NEAR:
            yield f"its shares {spent} are not the whole of {whole}"


# ------------------------------------------------------------------------------------------ what follows


def wrong_advice(around: Around, told: Told) -> Iterator[str]:
    """What is wrong about what was sent, and about what may be done now."""
    delivery, code = told.use["delivery"], told.use["code"]
    requests = around.requests.get(told.began.call, ())
    # what subscribes may be asked by a stream, which says no call's name
    weak = around.law.weak(told.server) or told.began.tool in {"subscribe", "log-level"}
    for clause in told.clauses("use"):
        text: str = clause["text"]
        if AGAIN in text and delivery not in {"not-sent", "refused"}:
            yield f"it may be made again, though it is {delivery}"
        if THINK in text and delivery != "in-doubt":
            yield f"it is to be thought about, though it is {delivery}"
        if text.startswith("nothing was sent") and requests and not weak and not told.began.repeats:
            yield f"nothing was sent, though {len(requests)} requests left"
        if "was sent, and" in text and not requests and not weak and delivery != "in-doubt":
            yield "a request was sent, and none left"
        if text.startswith("nothing of the last attempt") and not requests and not weak:
            yield "something was sent before, and nothing left"
    if (
        delivery == "in-doubt"
        and code != "cancelled"
        and not any(THINK in clause["text"] for clause in told.clauses("use"))
    ):
        yield "it is in doubt, and nothing says so"


def wrong_note(around: Around, told: Told) -> Iterator[str]:
    """What is wrong about what was noted beside its outcome."""
    for clause in told.clauses("use"):
        fact = clause["facts"].get("fact")
        if fact is None:
            continue
        stage, word = fact
        if stage == "answer":
            wrong = _no_such_answer(around, told, word)
        elif stage in {"plan", "credential"}:
            wrong = _nobody_raised(around, told, stage, word)
        else:
            wrong = ""
        if wrong:
            yield f"it notes {stage} {word!r}, and {wrong}"


def _no_such_answer(around: Around, told: Told, word: str) -> str:
    requests = around.requests.get(told.began.call, ())
    answers: list[Answer] = [answer for request in requests for answer in request.answers]
    if word == "input-required":
        return "" if any(map(is_question, answers)) else "nothing was asked"
    found = _ANSWER.match(word)
    if found is None:
        return ""
    status, error = found.groups()
    for answer in answers:
        if (status is None or answer.status == int(status)) and (
            error is None or error_code(answer) == int(error)
        ):
            return ""
    seen = [(answer.status, error_code(answer)) for answer in answers]
    return f"what came was {seen}"


def _nobody_raised(around: Around, told: Told, what: str, word: str) -> str:
    if word != "AppFault":
        return ""
    raised = around.since(
        AppSaid,
        told.began.at,
        told.ended.at,
        lambda fact: fact.what == what and fact.raised == word and _whose(fact.whose, told),
    )
    return "" if raised else "the app raised nothing then"
