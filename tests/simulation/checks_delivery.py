"""I3 and I10: what really became of each call, beside what its caller was told."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.simulation.ground import Answer, Began, Ended, Fact, Filed, Ran, Request, Stopped, of
from tests.simulation.ground_door import AGAIN
from tests.simulation.oracle_law import (
    AFTER_A_QUESTION,
    CODES,
    DOOR_CODES,
    A,
    D,
    Law,
    N,
    R,
    Violation,
    error_code,
    is_question,
    requests_of,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "mark-of-"
"""How the marks of all calls begin. What a scripted answer says holds none."""


def text_of(answer: Answer) -> str:
    """The text blocks of a result, and how others are shown."""
    result = (answer.message or {}).get("result")
    content = result.get("content") if isinstance(result, dict) else None
    parts = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            text = block.get("text")
            plain = block.get("type") == "text" and isinstance(text, str)
            parts.append(text if plain else f"[{block.get('type', 'unknown')}]")
    return "\n".join(parts)


def proven(request: Request, law: Law, before: float, *, strictly: bool = True) -> frozenset[str]:
    """What the answers that a client took before some time prove about a request."""
    server = law.servers.get(request.server)
    posted = server is not None and server.posted
    for answer in _final(request, posted):
        if answer.at < before or (not strictly and answer.at <= before):
            return verdict(request, answer, posted=posted)
    return frozenset({D})


def _final(request: Request, posted: bool) -> list[Answer]:
    """The answers that decide, first those with a message: they are the ones that end a request."""
    answers = [each for each in request.answers if not each.open]
    if posted:
        # a bare 2xx says that the message was taken; what it came to is said on the stream
        answers = [
            each
            for each in answers
            if each.kind == "sse" or each.message is not None or not 200 <= (each.status or 0) < 300
        ]
    return sorted(answers, key=lambda each: (each.message is None, each.seq))


def check_attempts(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I3: of the attempts of a call at most one is anything but refused; no tool runs a call twice."""
    began = {fact.call: fact for fact in of(facts, Began)}
    cut = {fact.ran for fact in of(facts, Stopped) if not fact.done}
    ran: dict[str, list[Ran]] = {}
    for fact in of(facts, Ran):
        first = began.get(fact.call or "")
        # a server that recognises calls has no answer to give again for a run that was cut short with its
        # process
        if fact.call is not None and not (first is not None and first.repeats and fact.seq in cut):
            ran.setdefault(fact.call, []).append(fact)
    sent = requests_of(facts)
    for call, runs in ran.items():
        questions = sum(any(map(is_question, request.answers)) for request in sent.get(call, ()))
        if len(runs) > 1 + questions:
            yield Violation("I3", runs[-1].seq, f"call {call} ran {len(runs)} times")
    for call, requests in sent.items():
        first = began.get(call)
        if first is None or first.is_operation or first.repeats:
            continue
        for earlier, later in itertools.pairwise(requests):
            if any(is_question(answer) and answer.seq < later.seq for answer in earlier.answers):
                continue
            if R not in proven(earlier, law, later.at, strictly=False):
                text = f"call {call} was sent again, though nothing proves that the first attempt was refused"
                yield Violation("I3", later.seq, text)


def check_verdicts(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I10: what a caller is told of delivery is true."""
    began = {fact.call: fact for fact in of(facts, Began)}
    ran = {fact.call for fact in of(facts, Ran)}
    sent = requests_of(facts)
    filed: dict[str, Filed] = {}
    for use in of(facts, Filed):
        # each pass of a call that is asked for again has a use of its own, behind a door under an id of its
        # own: what one has in doubt stays so
        call = use.call.removesuffix(AGAIN)
        if call not in filed or filed[call].delivery != D:
            filed[call] = use
    torn = [fact for fact in of(facts, Request) if fact.whole < 0 and fact.call is None]
    for ended in of(facts, Ended):
        call = ended.call
        requests = [request for request in sent.get(call, []) if request.seq < ended.seq]
        key = began[call].key
        if (
            (ended.delivery or getattr(filed.get(call), "delivery", None)) == D
            and not requests
            and (
                law.weak(key.partition("|")[0])
                or any(each.key in {key, None} and each.seq < ended.seq for each in torn)
            )
        ):
            continue  # so little of it left that nobody can say whose it was
        late = [request for request in sent.get(call, []) if request.seq > ended.seq]
        delivery = ended.delivery
        if ended.code == "caller-cancelled":
            if call not in filed:
                yield Violation("I10", ended.seq, f"call {call} was cancelled and no use of it was filed")
                continue
            delivery = filed[call].delivery
        for why in _false(began[call], ended, delivery, requests, late, law, ran=call in ran):
            yield Violation("I10", ended.seq, f"call {call} ({ended.code}, {delivery}): {why}")


def _false(
    began: Began,
    ended: Ended,
    delivery: str | None,
    requests: list[Request],
    late: list[Request],
    law: Law,
    *,
    ran: bool,
) -> Iterator[str]:
    questions = any(is_question(answer) for request in requests for answer in request.answers)
    if ended.code not in {"ok", "tool-error", "caller-cancelled"}:
        allowed = CODES.get(ended.code) or DOOR_CODES.get(ended.code)
        if allowed is None:
            yield "a code that the design does not know"
        elif delivery not in allowed and not (questions and delivery == AFTER_A_QUESTION):
            yield f"a verdict that its class does not know ({', '.join(sorted(allowed))})"
    operation = began.is_operation
    last = requests[-1:] if operation else requests
    if delivery in {N, R}:
        if ran and not operation:
            yield "it ran"
        for request in last:
            if R not in proven(request, law, ended.at, strictly=False) and not operation:
                yield f"bytes of it left (#{request.seq}) and no answer proves that it was refused"
        if late:
            yield "bytes of it left later"
        if questions:
            yield "the server had asked for input, so part of it may have run"
    if delivery == R and not requests and not operation:
        yield "not one byte of it left"
    if delivery == D:
        # a wish of a bound server may leave as the client's own request, which has no call's id
        if not requests:
            if not operation:
                yield "not one byte of it left"
        elif not questions and not began.repeats:
            known = proven(requests[-1], law, ended.at)
            if D not in known:
                yield f"an answer had come that says {', '.join(sorted(known))}"
    if delivery == A:
        yield from _not_answered(began, ended, requests, law)


def _not_answered(began: Began, ended: Ended, requests: list[Request], law: Law) -> Iterator[str]:
    answers = [answer for request in requests for answer in request.answers if answer.seq < ended.seq]
    if ended.code in {"protocol-error", "too-large", "input-required"}:
        if not requests:
            yield "not one byte of it left"
        return
    messages = [answer for answer in answers if answer.message is not None]
    if not messages:
        if requests or not began.is_operation:
            yield "no answer to it has come"
        return
    if ended.code in {"ok", "tool-error", "invalid-output"}:
        if not any("result" in (answer.message or {}) for answer in messages):
            yield "no result has come"
        if ended.text is not None and ended.text not in map(text_of, messages):
            yield f"this text was never an answer to it: {ended.text[:80]!r}"
        elif ended.text is not None and MARK in ended.text and began.mark not in ended.text:
            yield f"the answer is of another call: {ended.text[:80]!r}"
    elif ended.error_code is not None and ended.error_code not in map(error_code, messages):
        yield f"no server said {ended.error_code}"
