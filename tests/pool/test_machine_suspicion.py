"""When a client is suspected of being dead: every order of silences and answers, against the rule in words.

A client is asked for a sign of life at the second request in a row that was given up on, or the third in a
row whose time passed, counted since it answered anything, or since it was asked last. The walk through all
states leaves these counts out; nothing else depends on them.
"""

from __future__ import annotations

from itertools import product

from afpool.pool import _messages as m
from tests.pool.machine_books import A
from tests.pool.machine_case import Case

ANSWERED, ENDED, LATE, GIVEN_UP = "answered", "ended without an answer", "late", "given up"
EVENTS = (ANSWERED, ENDED, LATE, GIVEN_UP)


def asked_after(events: tuple[str, ...]) -> list[bool]:
    """At which of the events the client is asked for a sign of life, by the rule."""
    late = given_up = 0
    asked = []
    for event in events:
        if event == ANSWERED:
            late = given_up = 0
        late += event == LATE
        given_up += event == GIVEN_UP
        asked.append(event in {LATE, GIVEN_UP} and (late == 3 or given_up == 2))
        if asked[-1]:
            late = given_up = 0
    return asked


def test_every_order_of_silences_and_answers():
    for events in product(EVENTS, repeat=6):
        case = Case(places=1)
        case.ready()
        case.checking = False
        asked = []
        for event in events:
            asker = case.admit(A)
            before = case.pings
            if event == LATE:
                case.time_out(asker)
                asked.append(case.pings > before)
                case.settle(asker, answered=False, twice=False)
                assert case.pings - before == asked[-1]
            elif event == GIVEN_UP:
                case.send(m.Abandon(asker.ticket, final=True))
                del case.askers[asker.ticket]
                asked.append(case.pings > before)
            else:
                case.settle(asker, answered=event == ANSWERED, twice=False)
                asked.append(case.pings > before)
        assert asked == asked_after(events), events


def test_the_rule_is_what_it_says():
    assert asked_after((LATE, LATE, LATE, LATE)) == [False, False, True, False]
    assert asked_after((GIVEN_UP, GIVEN_UP)) == [False, True]
    assert asked_after((LATE, LATE, ANSWERED, LATE)) == [False] * 4
    assert asked_after((LATE, ENDED, LATE, LATE)) == [False, False, False, True]
