"""The ring of events: the newest are kept, read as objects, stored in columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.identity import KeyDigest
from afpool.pool._events import CALL_KEPT, EVENTS_KEPT, NUMBERS, SECONDS, WORD_KEPT, Event, EventRing

DIGEST = KeyDigest(b"k" * 32)
KEY = DIGEST.show("files|a/b/c")
FACTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NUMBERS, st.integers(0, 2**62)),
        **dict.fromkeys(SECONDS, st.floats(0, 1e6)),
        "why": st.text(max_size=5),
        "by": st.text(max_size=5),
        "call": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=16),
        "room_for": st.just(DIGEST.show("files|d/e/f")),
    },
)
FILED = st.tuples(st.floats(0, 1e9), st.sampled_from(["opened", "closed"]), st.sampled_from(["", KEY]), FACTS)


@given(st.lists(FILED, max_size=20))
def test_what_is_filed_is_read(filed):
    ring = EventRing()
    events = [ring.file(at, kind, key, "files", **facts) for at, kind, key, facts in filed]
    assert events == [
        Event(number, at, kind, key, facts, "files")
        for number, (at, kind, key, facts) in enumerate(filed, start=1)
    ]
    assert list(ring) == events
    assert [ring.get(event.number) for event in events] == events


def test_the_newest_are_kept_in_order():
    ring = EventRing()
    for number in range(EVENTS_KEPT + 10):
        ring.file(float(number), "opened", KEY, client=number)
    assert len(ring) == EVENTS_KEPT
    assert [event.number for event in ring] == list(range(11, EVENTS_KEPT + 11))
    assert [event.facts["client"] for event in ring] == list(range(10, EVENTS_KEPT + 10))
    assert [event.number for event in ring.since(EVENTS_KEPT + 8)] == [EVENTS_KEPT + 9, EVENTS_KEPT + 10]
    assert ring.get(10) is None
    assert ring.get(0) is None
    assert ring.get(EVENTS_KEPT + 11) is None


def test_nothing_of_an_event_is_left_for_the_one_that_takes_its_slot():
    ring = EventRing()
    full = {
        **dict.fromkeys(NUMBERS, 1),
        **dict.fromkeys(SECONDS, 1.0),
        "why": "x", "by": "y", "call": "z", "room_for": KEY,
    }  # fmt: skip
    ring.file(0.0, "opened", KEY, "files", **full)
    for _ in range(EVENTS_KEPT):
        ring.file(1.0, "closed", "")
    assert list(ring)[-1] == Event(EVENTS_KEPT + 1, 1.0, "closed", "", {}, "")


def test_words_are_cut_and_long_ids_are_left_out_of_the_ring_and_of_what_is_returned():
    ring = EventRing()
    event = ring.file(0.0, "paused", KEY, why="w" * 1_000, by=None, call="c" * (CALL_KEPT + 1))
    assert event.facts == {"why": "w" * WORD_KEPT}
    assert list(ring) == [event]
    assert ring.file(0.0, "paused", KEY, call="c" * CALL_KEPT).facts == {"call": "c" * CALL_KEPT}


def test_a_fact_that_no_column_holds_is_a_mistake():
    with pytest.raises(TypeError, match="no such facts"):
        EventRing().file(0.0, "paused", KEY, reason="x")
