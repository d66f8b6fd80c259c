"""One client that lists under one name and then under another: what it received last counts for it (L5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from afpool.pool._lists import SHOWN_OTHERWISE, ListState, Shown
from tests.simulation import steps as s
from tests.simulation.driver import run_story
from tests.simulation.test_oracle_broken import TOOLS
from tests.simulation.world import Manners, Person, ServerSpec, World

if TYPE_CHECKING:
    from afpool._base.definition import Catalog


class Listed:
    """As much of a catalog as a list compares."""

    def __init__(self, digest: str) -> None:
        self.digest = digest


def catalog(digest: str) -> Catalog:
    given: Any = Listed(digest)
    return given


def held(digest: str) -> ListState:
    state = ListState(1)
    state.received(catalog(digest), 0, 100.0)
    return state


def test_what_was_received_later_and_elsewhere_contradicts():
    state, other = held("a"), ListState(2)
    shown = Shown(catalog("b"), other)
    assert state.contradicted(shown)
    state.look_at(shown)
    assert state.doubt == SHOWN_OTHERWISE
    assert not state.settled(0.0)
    assert not state.noticed, "no gate of anybody else's closes"


def test_what_is_the_same_was_received_earlier_or_is_not_there_does_not():
    earlier = Shown(catalog("b"), ListState(2))
    state = held("a")
    for shown in (None, earlier, Shown(catalog("a"), ListState(2))):
        assert not state.contradicted(shown)
        state.look_at(shown)
    assert state.settled(0.0)
    assert not ListState(3).contradicted(Shown(catalog("b"), state)), "nothing was received yet"


def test_a_list_that_is_heard_again_counts_again():
    state = held("a")
    shown = Shown(catalog("b"), ListState(2))
    state.received(catalog("a"), 0, 100.0)
    assert not state.contradicted(shown)


@pytest.mark.parametrize(("first", "second"), [("role-a", None), (None, "role-a")])
def test_it_comes_while_a_call_waits_for_its_place(first, second):
    carol = Person(name="carol", tenant="zeta", principal="carol")
    server = ServerSpec(
        name="files", tools=TOOLS, manners=Manners(list_changed=False),
        share={} if first is None else {"carol": first},
    )  # fmt: skip
    story = s.Story(
        World(people=(carol,), servers=(server,), limits={"max_operations": 1}),
        (
            s.ListTools(at=0.0, who="carol"),
            s.Call(at=0.5, id="c0", who="carol", server="files", tool="sleep", args={"seconds": 2}),
            s.Call(at=0.9, id="c1", who="carol", server="files", tool="echo"),
            s.ChangeTools(at=1.0, server="files", tool="echo"),
            s.DelayNext(at=1.0, server="files", method="tools/list", seconds=1),
            s.ChangeShare(at=1.0, who="carol", server="files", name=second),
            s.ListTools(at=1.1, who="carol"),
            s.ChangeShare(at=2.2, who="carol", server="files", name=first),
        ),
    )
    report = run_story(story)
    assert report.violations == []
    assert report.counts["outcome:stale-tools"] == 1
