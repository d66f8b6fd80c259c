"""Where two definitions differ: each place exactly, nothing else, and never for long in one step."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool._base.canonical import canonical_json
from afpool.record._pointers import (
    MAX_POINTER,
    NODES,
    READ_AT_ONCE,
    READ_IN_STEPS,
    TOLD,
    Difference,
    Place,
    difference,
    difference_in_steps,
)
from tests.record.explaining import definition
from tests.turns import turns_of_another


def places(
    was: dict[str, Any], became: dict[str, Any], without: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    found = difference(definition(**was), definition(**became), without)
    assert found.complete
    return [(place.pointer, place.how) for place in found.places]


def test_a_schema_that_changed() -> None:
    was = {"inputSchema": {"properties": {"limit": {"maximum": 100}, "q": {}}, "required": ["q", "limit"]}}
    became = {"inputSchema": {"properties": {"limit": {"maximum": 50}, "p/~": {}}, "required": ["limit"]}}
    assert places(was, became) == [
        ("/inputSchema/properties/limit/maximum", "changed"),
        ("/inputSchema/properties/q", "removed"),
        ("/inputSchema/properties/p~1~0", "added"),
        ("/inputSchema/required/0", "removed"),
    ]


@pytest.mark.parametrize(
    ("was", "became", "found"),
    [
        (1, True, [("/x", "changed")]),
        (0, False, [("/x", "changed")]),
        (1, 1.0, []),
        (None, 0, [("/x", "changed")]),
        ("1", 1, [("/x", "changed")]),
        ([], {}, [("/x", "changed")]),
        ([1, 2, 3], [1, 9, 2, 3], [("/x/1", "added")]),
        ([1, 2, 3], [2, 3], [("/x/0", "removed")]),
        ([1, 2, 3], [1, 7, 3], [("/x/1", "changed")]),
        ([1, [True]], [1, 5, [1]], [("/x/1", "changed"), ("/x/2", "added")]),
        ([{"a": 1}], [{"a": 2}], [("/x/0/a", "changed")]),
        ([1, 1], [1], [("/x/1", "removed")]),
    ],
)
def test_values_are_compared_as_json(was: Any, became: Any, found: list[tuple[str, str]]) -> None:
    assert places({"x": was}, {"x": became}) == found


def test_what_is_left_out_of_the_comparison_is_no_difference() -> None:
    was, became = {"_meta": {"a": 1}, "x": 1}, {"_meta": {"a": 2}, "x": 2}
    assert places(was, became, ("/_meta",)) == [("/x", "changed")]
    assert places(was, became, ("/_meta/a", "/x")) == []


def test_only_so_many_places_are_told_and_the_others_counted() -> None:
    found = difference(definition(x=list(range(40))), definition(x=list(range(100, 140))))
    assert len(found.places) == TOLD
    assert found.more == 40 - TOLD
    assert found.as_json()["more"] == found.more


def test_a_long_pointer_is_cut() -> None:
    name = "n" * 1000
    was, became = ({name: number} for number in (1, 2))
    (place,) = difference(definition(x=was), definition(x=became)).places
    assert len(place.pointer) == MAX_POINTER + 1


def test_what_is_too_large_is_not_read() -> None:
    was, became = definition(x="a" * READ_AT_ONCE), definition(x="b" * READ_AT_ONCE)
    found = difference(was, became)
    assert not found.complete
    assert found.places == ()
    assert "too large to be compared here" in found.reason


def test_no_more_values_are_compared_than_a_step_allows() -> None:
    was, became = definition(x=[0] * NODES, y=1), definition(x=[0] * NODES, y=2)
    found = difference(was, became)
    assert not found.complete
    assert found.reason == f"only the first {NODES} values were compared"


def test_what_is_no_json_is_said_to_be_unreadable() -> None:
    from afpool import Definition

    torn = Definition("search", "1", b'{"name": ', "1")
    deep = Definition("search", "2", b'{"x":' + b"[" * 12_000 + b"]" * 12_000 + b"}", "2")
    for each in (torn, deep):
        found = difference(each, definition())
        assert (found.places, found.complete) == ((), False)


def test_the_same_definition_has_no_difference() -> None:
    assert difference(definition(x=1), definition(x=1)) == Difference(())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, JSON)
@settings(max_examples=400, deadline=None)
def test_there_is_a_difference_where_canonical_json_says_so(was: Any, became: Any) -> None:
    found = difference(definition(x=was), definition(x=became))
    assert found.complete
    assert bool(found.places) == (canonical_json(was) != canonical_json(became))
    for place in found.places:
        assert place.pointer == "/x" or place.pointer.startswith("/x/")


def leaves(value: Any, pointer: str = "") -> list[str]:
    if isinstance(value, dict) and value:
        return [
            each
            for key, inner in value.items()
            for each in leaves(inner, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
        ]
    if isinstance(value, list) and value:
        return [each for index, inner in enumerate(value) for each in leaves(inner, f"{pointer}/{index}")]
    return [pointer]


def put(document: Any, pointer: str, value: Any) -> Any:
    document = copy.deepcopy(document)
    *path, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
    holder = document
    for part in path:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    holder[int(last) if isinstance(holder, list) else last] = value
    return document


@given(st.data(), JSON)
@settings(max_examples=300, deadline=None)
def test_one_changed_value_is_one_place_at_its_own_pointer(data: st.DataObject, value: Any) -> None:
    document = {"name": "search", "x": value}
    pointer = data.draw(st.sampled_from([each for each in leaves(document) if each != "/name"]))
    changed = put(document, pointer, "another")
    found = difference(definition(x=value), definition(x=changed["x"]))
    assert found.places == (Place(pointer, "changed"),)


async def test_larger_ones_are_compared_in_steps() -> None:
    items = {f"key {number}": number for number in range(3000)}
    was, became = definition(x=items, y=1), definition(x=items, y=2)
    assert READ_AT_ONCE < len(was.raw) < READ_IN_STEPS
    assert not difference(was, became).complete
    async with turns_of_another() as turns:
        found = await difference_in_steps(was, became)
    assert found == Difference((Place("/y", "changed"),))
    assert turns.had >= 2  # reading one, reading the other, and the comparison are steps of their own


async def test_steps_end_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afpool.record._pointers.NODES_IN_STEPS", NODES)
    was, became = definition(x=[0] * 2 * NODES, y=1), definition(x=[0] * 2 * NODES, y=2)
    found = await difference_in_steps(was, became)
    assert not found.complete
    assert "only the first" in found.reason
    large = await difference_in_steps(definition(x="a" * READ_IN_STEPS), definition(x="b" * READ_IN_STEPS))
    assert "too large" in large.reason


def test_a_difference_is_plain_data() -> None:
    found = difference(definition(x=1), definition(y=1))
    assert json.loads(json.dumps(found.as_json())) == {
        "differs": [{"pointer": "/x", "how": "removed"}, {"pointer": "/y", "how": "added"}],
        "more": 0,
        "complete": True,
    }


def test_a_name_in_a_pointer_is_looked_through_as_its_server_wrote_it() -> None:
    long = "n" * 190
    was = definition(x=1)
    became = definition(x=1, **{"a/s3cret~": 1, "plain": 1}, b={"s3cret": 1}, **{long: {"s3cret": 1}})
    found = difference(was, became).cleaned(lambda name: name.replace("s3cret", "[hidden]"))
    assert {place.pointer for place in found.places} >= {"/a~1[hidden]~0", "/plain"}
    assert "s3cret" not in json.dumps(found.as_json())
    inner = difference(definition(b={}), definition(b={"a s3cret that is cut " + "n" * 190: 1}))
    assert [place.pointer for place in inner.cleaned(str).places] == ["/b/…"]
