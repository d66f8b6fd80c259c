"""One list and whether it is still true (L1 to L4), against a model that says it in the plainest way."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.definition_table import DefinitionTable
from afpool.pool._lists import (
    LISTENER_GONE,
    RELIST_INTERVAL,
    RELIST_INTERVAL_MAX,
    STREAM_LOST,
    ListState,
)

TABLE = DefinitionTable()


def catalog(*tools: tuple[str, str]):
    raw = [json.dumps({"name": name, "description": text}).encode() for name, text in tools]
    return TABLE.catalog([TABLE.intern(one) for one in raw])


ONE = catalog(("search", "finds"))
ONE_AND_MORE = catalog(("search", "finds"), ("send", "sends"))
OTHER = catalog(("search", "finds more"))
TURNED = catalog(("send", "sends"), ("search", "finds"))
CATALOGS = (ONE, ONE_AND_MORE, OTHER, TURNED)


def test_a_new_list_is_unsettled_and_shows_nothing():
    state = ListState(1)
    assert not state.settled(0.0)
    assert not state.settled(-1.0)  # whatever the clock says
    assert state.alive
    assert state.generation == 0
    assert state.find("search") is None
    assert not state.shows("search", ONE["search"].digest)
    assert not state.shared
    assert ListState(2, entry=object()).shared


def test_the_generation_counts_different_lists_only():
    state = ListState(1)
    moved = [state.received(one, 0, 9.0) for one in (ONE, ONE, ONE_AND_MORE, TURNED, OTHER, ONE)]
    assert moved == [True, False, True, False, True, True]
    assert state.generation == 4


def test_it_shows_exactly_what_was_received():
    state = ListState(1)
    state.received(ONE_AND_MORE, 0, 9.0)
    assert state.find("send") is ONE_AND_MORE["send"]
    assert state.shows("search", ONE["search"].digest)
    assert not state.shows("search", OTHER["search"].digest)
    assert not state.shows("none", ONE["search"].digest)


def test_a_notice_after_the_first_page_was_asked_for_leaves_it_unsettled():
    state = ListState(1)
    asked = state.notices
    state.unsettle("notice")
    state.received(ONE, asked, 9.0)
    assert state.noticed
    assert not state.settled(0.0)
    state.received(ONE, state.notices, 9.0)
    assert not state.noticed
    assert state.settled(0.0)


def test_a_further_notice_is_no_news_until_it_was_asked_for():
    state = ListState(1)
    told = []
    for why in ("notice", "notice", "refresh", "ask", "notice", "notice", "ask", "refresh", "notice"):
        if why == "ask":
            state.asked(0.0)
            continue
        told.append(state.is_news(why))
        state.unsettle(why)
    assert told == [True, False, True, True, False, True, True]
    assert state.notices == 5


def test_a_notice_that_was_answered_makes_the_next_one_news():
    state = ListState(1)
    state.unsettle("notice")
    state.received(ONE, state.notices, 9.0)  # as the first page told, which was asked for after it
    assert state.is_news("notice")


@pytest.mark.parametrize("why", ["refresh", "notification stream lost", "header mismatch"])
def test_any_other_doubt_closes_no_gate(why):
    state = ListState(1)
    state.received(ONE, 0, 9.0)
    state.unsettle(why)
    assert not state.settled(0.0)
    assert not state.noticed
    assert state.doubt == why
    state.received(ONE, 0, 9.0)  # it was asked for before the doubt
    assert not state.settled(0.0)
    state.asked(0.0)
    state.received(ONE, 0, 9.0)
    assert state.settled(0.0)


def test_the_time_to_live_ends_at_its_time_and_closes_no_gate():
    state = ListState(1)
    state.received(ONE, 0, 9.0)
    assert state.settled(8.999)
    assert not state.settled(9.0)
    assert not state.noticed


def test_a_dead_list_stays_dead():
    state = ListState(1)
    state.end()
    state.received(ONE, 0, 9.0)
    state.unsettle("notice")
    state.end()
    assert not state.alive


def test_the_repr_says_the_state_in_one_word():
    state = ListState(7)
    state.received(ONE, 0, 9.0)
    words = [repr(state)]
    state.unsettle("refresh")
    words.append(repr(state))
    state.unsettle("notice")
    words.append(repr(state))
    state.end()
    words.append(repr(state))
    assert [word.split("generation 1 ")[1] for word in words] == ["settled>", "refresh>", "noticed>", "dead>"]


# what the outside may do to a list, one after the other
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask")),
        st.tuples(st.just("receive"), st.integers(0, len(CATALOGS) - 1), st.floats(0, 20)),
        st.tuples(st.just("unsettle"), st.sampled_from(["notice", "refresh", "stream"])),
        st.tuples(st.just("wait"), st.floats(0, 5)),
    ),
    max_size=30,
)


@given(STEPS)
def test_it_agrees_with_its_history(steps):
    """What it says can be told from the whole history of notices, askings and answers."""
    state = ListState(1)
    now = 0.0
    asked = state.notices
    notices_since_asked = doubts_since_asked = 0
    different: list[str] = []
    doubted = noticed = False
    expires = 0.0
    for name, *values in steps:
        if name == "ask":
            asked, notices_since_asked, doubts_since_asked = state.notices, 0, 0
            state.asked(now)
        elif name == "receive":
            received, ttl = CATALOGS[values[0]], values[1]
            if not different or different[-1] != received.digest:
                different.append(received.digest)
            state.received(received, asked, now + ttl)
            noticed = notices_since_asked > 0
            doubted = doubted and doubts_since_asked > 0
            expires = now + ttl
        elif name == "unsettle":
            state.unsettle(values[0])
            if values[0] == "notice":
                noticed = True
                notices_since_asked += 1
            else:
                doubted = True
                doubts_since_asked += 1
        else:
            now += values[0]
        assert state.generation == len(different)
        assert state.noticed == noticed
        assert state.settled(now) == (bool(different) and not noticed and not doubted and now < expires)


def asked_at_once(state: ListState, times: int) -> list[float]:
    """Ask as soon as it may be; how long it has to rest each time."""
    gaps = []
    for _ in range(times):
        now = state.next_at
        state.asked(now)
        gaps.append(state.next_at - now)
    return gaps


def test_asking_is_spaced_ever_wider_after_the_second_time():
    assert asked_at_once(ListState(1), 8) == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_the_spacing_starts_anew_after_a_rest_that_was_not_asked_for():
    state = ListState(1)
    asked_at_once(state, 5)
    state.asked(state.next_at + 15.9)
    assert state.interval == RELIST_INTERVAL_MAX
    now = state.next_at + RELIST_INTERVAL_MAX
    state.asked(now)
    assert state.next_at == now + RELIST_INTERVAL


@given(st.lists(st.floats(0, 100), max_size=30))
def test_it_is_asked_for_at_most_once_a_second_and_never_put_off_for_longer_than_thirty(rests):
    state = ListState(1)
    now = 0.0
    for index, rest in enumerate(rests):
        now = max(now, state.next_at) + rest
        state.asked(now)
        gap = state.next_at - now
        assert index == 0 or RELIST_INTERVAL * 0.999 <= gap <= RELIST_INTERVAL_MAX * 1.001


def test_a_connection_that_breaks_under_it_makes_asking_no_slower():
    state = ListState(1)
    for index in range(8):
        now = state.next_at
        state.asked(now)
        state.unanswered()
        assert state.next_at - now == (RELIST_INTERVAL if index else 0.0)
    now = state.next_at
    state.asked(now)
    assert state.next_at == now + RELIST_INTERVAL
    assert state.interval == 2 * RELIST_INTERVAL  # an answer that settles nothing counts as before


def test_a_connection_that_breaks_after_many_askings_puts_the_next_off_for_a_second():
    state = ListState(1)
    asked_at_once(state, 6)
    state.unanswered()
    assert state.next_at == state.asked_at + RELIST_INTERVAL


def test_a_change_that_was_announced_beside_a_listener_that_goes_counts():
    state = ListState(1)
    asked_at_once(state, 3)
    state.unsettle(LISTENER_GONE)
    state.unsettle("notice")
    assert asked_at_once(state, 2) == [4.0, 8.0]


@pytest.mark.parametrize("why", [LISTENER_GONE, STREAM_LOST])
def test_what_is_no_change_makes_asking_no_slower_however_often(why):
    state = ListState(1)
    state.asked(0.0)
    state.received(ONE, 0, 1e9)
    for _ in range(8):
        state.unsettle(why)
        now = state.next_at
        state.asked(now)
        state.received(ONE, 0, 1e9)
        assert state.next_at - now == RELIST_INTERVAL
