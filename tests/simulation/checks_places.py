"""I4 and I8: how many calls of a key are at work at once, and how many openings.

When a call is over at its server is not for the client to know; what it has not given up on is counted. It
gives up on a call, as the design has it, with

* the answer, or the end of the request's own connection or stream;
* where its caller has gone: at once, where closing the response stream is the cancel (2026-07-28 over HTTP);
  on a shared stream when a byte of the cancel notice has left and `cancel_grace` has passed; in any case
  after `settle_timeout`. A message that got stuck after its first bytes says not what it is: it may be that.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tests.simulation.checks_delivery import proven
from tests.simulation.ground import (
    Began,
    Ended,
    Fact,
    Request,
    Unlinked,
    of,
)
from tests.simulation.oracle_law import Law, R, Violation, is_question

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENING = frozenset({"initialize", "server/discover"})


def check_places(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I4: never more calls of a key at work than `max_operations`."""
    ends = {fact.call: fact for fact in of(facts, Ended)}
    began = {fact.call: fact for fact in of(facts, Began)}
    unlinked = {fact.link: fact for fact in of(facts, Unlinked)}
    notices, stuck = _notices(facts), _stuck(facts)
    busy: dict[str, list[tuple[tuple[float, int], str]]] = {}
    for request in of(facts, Request):
        first = began.get(request.call or "")
        if first is None:
            continue
        until = _given_up(request, ends.get(first.call), unlinked.get(request.link), notices, stuck, law)
        heap = busy.setdefault(first.key, [])
        while heap and heap[0][0] <= (request.at, request.seq):
            heapq.heappop(heap)
        others = {call for _, call in heap if call != first.call}
        if len(others) >= law.max_operations:
            at_work = ", ".join(sorted(others))
            text = f"call {first.call} of {first.key} left while {len(others)} were at work: {at_work}"
            yield Violation("I4", request.seq, text)
        heapq.heappush(heap, (until, first.call))


def _notices(facts: list[Fact]) -> dict[tuple[str, object], Request]:
    """The cancel notices that left, by place of the link (or session) and the id that they name."""
    found: dict[tuple[str, object], Request] = {}
    for request in of(facts, Request):
        if request.method == "notifications/cancelled":
            found[request.place, (request.link, request.session, request.params.get("requestId"))] = request
    return found


def _stuck(facts: list[Fact]) -> dict[int, Request]:
    """The message of each link that began and never left whole; there is one at most, the last."""
    return {fact.link: fact for fact in of(facts, Request) if fact.whole < 0 and fact.method is None}


def _given_up(
    request: Request,
    end: Ended | None,
    unlinked: Unlinked | None,
    notices: dict[tuple[str, object], Request],
    stuck: dict[int, Request],
    law: Law,
) -> tuple[float, int]:
    """When the client has given up on a request: a time, and the fact after which it is so."""
    moments = [(answer.at, answer.seq) for answer in request.answers]
    if unlinked is not None:
        # whoever notices the end closes the link later, in the same instant
        moments.append((unlinked.at, -1))
    if end is not None:
        moments.append((end.at + law.settle_timeout, end.seq))
        server = law.servers.get(request.server)
        if request.verb in {"LINE", "FRAME"} or (server is not None and server.posted):
            for session in (request.session, None):
                notice = notices.get((request.place, (request.link, session, request.id)))
                if notice is not None:
                    moments.append((notice.at + law.cancel_grace, notice.seq))
            last = stuck.get(request.link)
            if last is not None and last.seq > end.seq:
                moments.append((last.at + law.cancel_grace, last.seq))
        # An answer is one as soon as it is known to be too large, long before its last byte (I10 holds that
        # there was one).
        answered = end.code == "ok" or end.delivery == "answered"
        if answered or (not request.answers and request.whole < 0):
            moments.append((end.at, end.seq))
    return min(moments, default=(float("inf"), 0))


def check_openings(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I8: one opening at a time per key.

    Seen from outside: while a request of an opening waits for its answer, no other opening of the key sends
    one. A request whose link the client has closed is waited for no more. (`server/discover` is also how a
    client of 2026-07-28 is asked for a sign of life; so only one that comes before anything else of its link
    counts there.)
    """
    unlinked = {fact.link: fact.seq for fact in of(facts, Unlinked)}
    seen: dict[int, int] = {}
    waiting: dict[str, list[Request]] = {}
    for request in of(facts, Request):
        before = seen.get(request.link, 0)
        seen[request.link] = before + 1
        if request.method not in OPENING or request.key is None:
            continue
        if request.method == "server/discover" and (before or request.id != 1):
            continue  # a sign of life that was asked for on a connection of its own has a later id
        still = [
            other
            for other in waiting.get(request.key, [])
            if not any(answer.seq < request.seq for answer in other.answers)
            and unlinked.get(other.link, request.seq) >= request.seq
            and other.link != request.link
        ]
        for other in still:
            text = f"an opening of {request.key} began (#{request.seq}) while another waits (#{other.seq})"
            yield Violation("I8", request.seq, text)
        waiting[request.key] = [*still, request]


def _refused(request: Request, law: Law) -> bool:
    """Whether a request was an attempt that another one follows."""
    return R in proven(request, law, float("inf"))


def check_rounds(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I3, of rounds: a question is answered once."""
    asked: dict[str, int] = {}
    for request in of(facts, Request):
        if request.call is not None and "inputResponses" in request.params and not _refused(request, law):
            asked[request.call] = asked.get(request.call, 0) + 1
    answered: dict[str, int] = {}
    for request in of(facts, Request):
        if request.call is not None and any(map(is_question, request.answers)):
            answered[request.call] = answered.get(request.call, 0) + 1
    for call, times in asked.items():
        if times > answered.get(call, 0):
            yield Violation("I3", 0, f"call {call} answered {times} questions of {answered.get(call, 0)}")
