"""The ring of events: the newest are kept, read as objects, stored in columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afpool._base.identity import KeyDigest
from afpool.pool._events import EVENTS_KEPT, Event, EventRing

KEY = KeyDigest(b"k" * 32).show("files|a/b/c")
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "client": st.integers(0, 2**62),
        "list": st.integers(0, 2**62),
        "generation": st.integers(0, 2**31),
        "why": st.text(max_size=5),
    },
)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.sampled_from(["opened", "closed"]), FACTS), max_size=20))
def test_what_is_filed_is_read(filed):
    ring = EventRing()
    numbers = [ring.file(at, kind, KEY, **facts) for at, kind, facts in filed]
    assert numbers == list(range(1, len(filed) + 1))
    assert list(ring) == [
        Event(number, at, kind, KEY, facts) for number, (at, kind, facts) in enumerate(filed, start=1)
    ]


def test_the_newest_are_kept_in_order():
    ring = EventRing()
    for number in range(EVENTS_KEPT + 10):
        ring.file(float(number), "opened", KEY, client=number)
    assert len(ring) == EVENTS_KEPT
    assert [event.number for event in ring] == list(range(11, EVENTS_KEPT + 11))
    assert [event.facts["client"] for event in ring] == list(range(10, EVENTS_KEPT + 10))
