"""Shared lists (S1 to S4): their keys, who lists into them, and how one is taken out of sharing."""

from __future__ import annotations

import gc
import json
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from afpool._base.definition_table import DefinitionTable
from afpool.pool._shares import Entry, Shares, entry_key

TABLE = DefinitionTable()


def catalog(*names: str):
    return TABLE.catalog([TABLE.intern(json.dumps({"name": name}).encode()) for name in names])


OLD, NEW = catalog("search"), catalog("search", "send")


@attrs.define(eq=False, slots=False)
class Member:
    """Stands for a client."""

    id: int
    listening: bool = True
    may_hear: bool = True


@attrs.define(eq=False)
class Key:
    """Stands for a key's actor, and for its pool, which takes events."""

    events: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)

    @property
    def pool(self):
        return self

    def event(self, kind, _actor, **facts):
        self.events.append((kind, facts))
        return len(self.events)


@pytest.fixture
def shares():
    return Shares(iter(range(1, 1000)).__next__)


@pytest.fixture
def key():
    return Key()


def filled(shares, key):
    """An entry that one member listens for and whose list is settled."""
    entry = shares.get("files", "team", "pc:1")
    listener = Member(1)
    entry.listener = listener
    shares.file(entry, key, listener, OLD, entry.list.notices, 100.0)
    return entry, listener


# ---------------------------------------------------------------------------- S1

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text("/%_|2F5", max_size=6)


@given(st.tuples(TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT))
@example(("a/b", "c", "d"), ("a", "b/c", "d"))
@example(("a", "_", "d"), ("a", "", "d"))
@example(("a", "%2F", "d"), ("a", "/", "d"))
def test_the_key_is_injective(one, other):
    assert (entry_key(*one) == entry_key(*other)) == (one == other)
    assert entry_key(*one).count("/") == 2


def test_one_entry_for_one_server_name_and_context(shares):
    entry = shares.get("files", "team", "pc:1")
    assert shares.get("files", "team", "pc:1") is entry
    assert shares.find("files", "team", "pc:1") is entry
    others = [
        shares.get(*other)
        for other in (("mail", "team", "pc:1"), ("files", "x", "pc:1"), ("files", "team", "y"))
    ]
    assert len({id(one) for one in (entry, *others)}) == 4
    assert len({one.list.id for one in (entry, *others)}) == 4
    assert len(shares) == 4


def test_its_list_is_a_shared_one(shares):
    entry = shares.get("files", "team", "pc:1")
    assert entry.list.shared
    assert entry.list.entry is entry


def test_neither_name_nor_context_is_shown(shares):
    entry = shares.get("files", "secret-team", "pc:secret")
    assert "secret" not in repr(entry)


def test_an_entry_lives_as_long_as_its_list_is_held_and_no_longer(shares):
    held = shares.get("files", "team", "pc:1").list
    gc.collect()
    assert shares.find("files", "team", "pc:1").list is held
    first = held.id
    del held
    gc.collect()
    assert shares.find("files", "team", "pc:1") is None
    assert len(shares) == 0
    assert shares.get("files", "team", "pc:1").list.id != first


def test_members_are_not_kept_alive(shares, key):
    entry = shares.get("files", "team", "pc:1")
    member = Member(1)
    shares.file(entry, key, member, OLD, 0, 100.0)
    assert list(entry.members) == [1]
    del member
    gc.collect()
    assert not entry.members


# ---------------------------------------------------------------------------- S2


def test_an_entry_is_current_until_another_takes_its_place(shares, key):
    entry = shares.get("files", "team", "pc:1")
    assert shares.current(entry)
    shares.take_out(entry, key)
    assert not shares.current(entry)
    successor = shares.get("files", "team", "pc:1")
    assert shares.current(successor)
    assert not shares.current(entry)


def test_an_entry_of_nobody_knows_is_not_current(shares):
    assert not shares.current(Entry("files", "team", "pc:1", 5))


def test_an_entry_whose_list_has_ended_is_not_current(shares):
    entry = shares.get("files", "team", "pc:1")
    entry.list.end()
    assert not shares.current(entry)


def test_filing_says_whether_the_list_moved(shares, key):
    entry = shares.get("files", "team", "pc:1")
    one, other = Member(1), Member(2)
    assert shares.file(entry, key, one, OLD, 0, 100.0)
    assert not shares.file(entry, key, other, OLD, 0, 100.0)
    assert entry.list.generation == 1
    assert sorted(entry.members) == [1, 2]


# ---------------------------------------------------------------------------- S3


def test_when_the_listener_leaves_the_list_is_in_doubt_and_the_place_free(shares, key):
    entry, listener = filled(shares, key)
    assert entry.list.settled(0.0)
    shares.left(entry, listener)
    assert entry.listener is None
    assert not entry.list.settled(0.0)
    assert not entry.list.noticed  # no gate is closed by it
    assert not entry.members


def test_when_another_member_leaves_nothing_is_in_doubt(shares, key):
    entry, listener = filled(shares, key)
    other = Member(2)
    shares.file(entry, key, other, OLD, 0, 100.0)
    shares.left(entry, other)
    assert entry.listener is listener
    assert entry.list.settled(0.0)
    assert list(entry.members) == [1]


def test_leaving_twice_is_nothing(shares, key):
    entry, listener = filled(shares, key)
    shares.left(entry, listener)
    shares.left(entry, listener)
    assert entry.listener is None


# ---------------------------------------------------------------------------- S4


def test_a_member_whose_list_differs_quietly_ends_the_sharing(shares, key):
    entry, _ = filled(shares, key)
    assert shares.file(entry, key, Member(2), NEW, entry.list.notices, 100.0)
    assert not entry.list.alive
    assert entry.list.catalog is OLD  # what it promised stays readable, and is no longer current
    assert not shares.may_share("files", "team", "pc:1")
    assert shares.find("files", "team", "pc:1") is None
    assert [kind for kind, _ in key.events] == ["unshared"]


def test_others_go_on_sharing(shares, key):
    entry, _ = filled(shares, key)
    shares.take_out(entry, key)
    assert shares.may_share("files", "team", "pc:2")
    assert shares.may_share("files", "others", "pc:1")
    assert shares.may_share("mail", "team", "pc:1")


def announced(entry, _listener):
    entry.list.unsettle("notice")


def doubted(entry, _listener):
    entry.list.unsettle("notification stream lost")


def deaf(_entry, listener):
    listener.listening = False


def nobody(entry, _listener):
    entry.listener = None


@pytest.mark.parametrize("why", [announced, doubted, deaf, nobody], ids=lambda why: why.__name__)
def test_a_difference_that_may_have_an_honest_reason_is_a_new_generation(shares, key, why):
    entry, listener = filled(shares, key)
    why(entry, listener)
    assert shares.file(entry, key, Member(2), NEW, entry.list.notices, 100.0)
    assert entry.list.alive
    assert entry.list.generation == 2
    assert shares.may_share("files", "team", "pc:1")
    assert not key.events


def test_a_forced_refresh_is_no_honest_reason(shares, key):
    entry, _ = filled(shares, key)
    entry.list.unsettle("refresh")
    shares.file(entry, key, Member(2), NEW, entry.list.notices, 100.0)
    assert not entry.list.alive


def test_a_notice_while_it_was_listed_is_an_honest_reason(shares, key):
    entry, _ = filled(shares, key)
    asked = entry.list.notices
    entry.list.unsettle("notice")
    shares.file(entry, key, Member(2), NEW, asked, 100.0)
    assert entry.list.alive
    assert entry.list.noticed


def test_the_listener_itself_may_see_another_list(shares, key):
    entry, listener = filled(shares, key)
    assert shares.file(entry, key, listener, NEW, entry.list.notices, 100.0)
    assert entry.list.alive
    assert entry.list.generation == 2


def test_an_equal_list_is_never_a_reason(shares, key):
    entry, _ = filled(shares, key)
    assert not shares.file(entry, key, Member(2), OLD, entry.list.notices, 100.0)
    assert entry.list.alive


def test_a_listener_that_never_heard_anything_leaves_no_doubt(shares, key):
    entry = shares.get("files", "team", "pc:1")
    listener = Member(1, may_hear=False)
    entry.listener = listener
    shares.file(entry, key, listener, OLD, 0, 9.0)
    shares.left(entry, listener)
    assert entry.listener is None
    assert entry.list.settled(0.0)
