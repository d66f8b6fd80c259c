"""How often and how soon: further attempts (I3), lists (L1), connecting (L2), kept connections (L3).

The numbers are the design's. Where a number of a world decides, the law has it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tests.simulation.ground import Answer, Began, Fact, Request, Shared, Unlinked, of
from tests.simulation.oracle_law import SLACK, Law, Violation, error_code, is_question, requests_of

if TYPE_CHECKING:
    from collections.abc import Iterator

FURTHER: Final = {"429": 2, "401": 2, "403": 2, "redirect": 3, "-32020": 1, "-32022": 1}
"""How many attempts may follow an answer of that kind, in one round of a call.

A 401 is followed by one new credential; where the first request went without one, or a signer answers
challenges, by one more.
"""

WAITING: Final = 10.0
"""Seconds that a call may wait in all because a server asks it to."""

SPACING: Final = 1.0
"""Seconds between two lists that one client asks for, from the second on."""

OPENING: Final = frozenset({"initialize", "server/discover"})
MOMENT: Final = 1e-6


def _kind(answer: Answer) -> str | None:
    status, code = answer.status, error_code(answer)
    if status in {429, 401, 403}:
        return str(status)
    if status in {307, 308}:
        return "redirect"
    return str(code) if code in {-32020, -32022} else None


def _deciding(request: Request, before: int) -> Answer | None:
    return next((answer for answer in request.answers if answer.seq < before), None)


def check_further(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I3: attempts follow only so often, and not before the server wants to be asked again."""
    began = {fact.call: fact for fact in of(facts, Began)}
    for call, requests in requests_of(facts).items():
        first = began.get(call)
        if first is None or first.is_operation or first.repeats:
            continue
        used: dict[str, int] = {}
        waited = 0.0
        for earlier, later in itertools.pairwise(requests):
            answer = _deciding(earlier, later.seq)
            if answer is None or is_question(answer):
                used = {}
                continue
            kind = _kind(answer)
            if kind is None:
                continue
            used[kind] = used.get(kind, 0) + 1
            if used[kind] > FURTHER[kind]:
                text = f"call {call} was sent again {used[kind]} times after {kind}"
                yield Violation("I3", later.seq, text)
            if kind == "429":
                waited += later.at - answer.at
                asked = answer.headers.get("retry-after", "")
                if asked.isdigit() and later.at < answer.at + int(asked) - MOMENT:
                    after = f"{later.at - answer.at:.3f} s after 429, which asked for {asked}"
                    text = f"call {call} was sent again {after}"
                    yield Violation("I3", later.seq, text)
        if waited > WAITING + SLACK:
            yield Violation("I3", requests[-1].seq, f"call {call} waited {waited:.3f} s in all for 429")


def check_listing(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """L1: one list at a time, and not more than one a second, of each client.

    Told where a client can be told: by its link, or by its session. Under another authorization name its
    list is another list.
    """
    last: dict[object, list[Request]] = {}
    names: dict[str, str | None] = {}
    for request in facts:
        if isinstance(request, Shared) and request.name != names.get(request.key):
            names[request.key] = request.name
            last = {which: asked for which, asked in last.items() if asked[0].key != request.key}
        if not isinstance(request, Request):
            continue
        if request.method != "tools/list" or request.params.get("cursor") is not None:
            continue
        which = request.link if request.verb in {"LINE", "FRAME"} else request.session
        if which is None:
            continue
        before = last.setdefault((request.place, which), [])
        answered = [each for each in before if _listed(each, request.seq)]
        # between asking and the first byte lies the way there, so one gap may look shorter than it was
        if len(answered) > 2 and request.at < answered[-2].at + SPACING - MOMENT:
            text = f"{request.key} asked for its list three times in {request.at - answered[-2].at:.3f} s"
            yield Violation("L1", request.seq, text)
        before.append(request)


def _listed(request: Request, before: int) -> bool:
    """Whether a list came: what was refused or got lost is asked for again at once."""
    return any(
        answer.seq < before and answer.message is not None and "result" in answer.message
        for answer in request.answers
    )


def check_connecting(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """L2: not more than `max_connecting` openings of one place at a time."""
    waiting: dict[tuple[str | None, ...], dict[int, Request]] = {}
    opened: set[int] = set()  # links that have carried something else: what asks there is a sign of life
    counted: dict[tuple[str, str | None], int] = {}  # what an open client has counted up to, over any link
    for fact in facts:
        if isinstance(fact, Request) and isinstance(fact.id, int):
            whose = (fact.place, fact.key)
            if fact.method not in OPENING:
                counted[whose] = max(fact.id, counted.get(whose, 0))
            elif fact.id == 1:
                counted.pop(whose, None)  # another client begins to count
            elif fact.id > counted.get(whose, fact.id):
                opened.add(fact.link)
        if isinstance(fact, Request) and fact.method is not None and fact.method not in OPENING:
            opened.add(fact.link)
        if isinstance(fact, Unlinked):
            for opening in waiting.values():
                opening.pop(fact.link, None)
        elif isinstance(fact, Answer) and fact.request is not None:
            waiting.get(_place(fact.request, law), {}).pop(fact.request.link, None)
        elif (
            isinstance(fact, Request)
            and fact.method in OPENING
            and fact.key is not None
            and fact.link not in opened
        ):
            opening = waiting.setdefault(_place(fact, law), {})
            opening[fact.link] = fact
            keys = {each.key for each in opening.values()}
            if len(keys) > law.max_connecting:
                yield Violation("L2", fact.seq, f"{len(keys)} keys open clients of {fact.place} at a time")


def _place(request: Request, law: Law) -> tuple[str | None, ...]:
    server = law.servers.get(request.server)
    named_by_plan = server is not None and server.named_by_plan
    return (request.place, request.plan) if named_by_plan else (request.place,)


def check_kept(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """L3: no request leaves on a connection of ours that was idle for longer than `keepalive_expiry`."""
    quiet: dict[int, float] = {}
    for fact in facts:
        if isinstance(fact, Answer) and fact.request is not None and fact.request.verb == "POST":
            quiet[fact.request.link] = fact.at
        elif isinstance(fact, Request) and fact.verb in {"POST", "GET", "DELETE"}:
            since = quiet.pop(fact.link, fact.at)
            if fact.at - since > law.keepalive_expiry + MOMENT and not law.weak(fact.server):
                text = (
                    f"a request of {fact.key} left on a connection that was idle for {fact.at - since:.3f} s"
                )
                yield Violation("L3", fact.seq, text)
