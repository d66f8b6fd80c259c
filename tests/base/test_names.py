"""Every tool has one name, every name means one tool, and no server takes another one's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from afpool._base.names import assert_valid_tool_name, is_valid_tool_name, name_tools

if TYPE_CHECKING:
    import random

SERVERS = st.sampled_from(["a", "b", "a__b", "files", "my server"])
NAMES = st.one_of(
    st.sampled_from(["x", "a__x", "b__x", "b__c", "a__b__c", "c", "files__read", "read", "re.ad", "x" * 80]),
    st.text(max_size=70).filter(lambda text: "\ud800" not in text),
)
LISTED = st.dictionaries(
    st.one_of(st.none(), SERVERS), st.lists(NAMES, unique=True, max_size=8), max_size=4
).map(
    # the host's own names are checked where they are given
    lambda listed: {
        server: [name for name in names if server is not None or is_valid_tool_name(name)]
        for server, names in listed.items()
    }
)


@given(LISTED, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_names_are_one_to_one_and_do_not_depend_on_the_order(
    listed: dict[str | None, list[str]], always: bool, portable: bool, shuffled: random.Random
) -> None:
    named = name_tools(listed.items(), always=always, portable=portable)
    assert sorted(named.places.values(), key=repr) == sorted(
        ((server, name) for server, names in listed.items() for name in names), key=repr
    )
    if portable:
        assert all(is_valid_tool_name(shown) for shown in named.places)
    assert named.renamed == {shown: place for shown, place in named.places.items() if shown != place[1]}
    other = [(server, shuffled.sample(names, len(names))) for server, names in listed.items()]
    shuffled.shuffle(other)
    assert dict(name_tools(other, always=always, portable=portable).places) == dict(named.places)


@given(LISTED)
def test_a_qualified_name_is_that_servers_tool_or_nobodys(listed: dict[str | None, list[str]]) -> None:
    places = name_tools(listed.items()).places
    for server in listed:
        if server is None or "__" in server:
            continue
        for shown, (owner, name) in places.items():
            if owner is not None and "__" not in owner and shown == f"{server}__{name}":
                assert owner == server


def test_a_name_is_qualified_only_where_two_would_collide() -> None:
    places = name_tools([("a", ["x", "y"]), ("b", ["x", "z"])]).places
    assert dict(places) == {"a__x": ("a", "x"), "y": ("a", "y"), "b__x": ("b", "x"), "z": ("b", "z")}
    assert set(name_tools([("a", ["y"])], always=True).places) == {"a__y"}


def test_the_hosts_own_tool_keeps_its_name() -> None:
    named = name_tools([(None, ["x"]), ("a", ["x"])])
    assert dict(named.places) == {"x": (None, "x"), "a__x": ("a", "x")}
    assert dict(named.renamed) == {"a__x": ("a", "x")}


def test_no_server_takes_the_name_of_another_ones_tool() -> None:
    # b lists by itself what a's tool is called when qualified
    places = name_tools([("a", ["x"]), ("b", ["x", "a__x"])]).places
    assert dict(places) == {"a__x": ("a", "x"), "b__x": ("b", "x"), "b__a__x": ("b", "a__x")}
    # also while a cannot be listed
    assert set(name_tools([("b", ["a__x"])], servers=["a"]).places) == {"b__a__x"}


def test_what_providers_do_not_take_is_written_so_that_they_do() -> None:
    named = name_tools([("a", ["repo.search", "x" * 65, "größe"])])
    assert [shown[:-8] for shown in named.places] == ["repo_search_", "x" * 55 + "_", "gr__e_"]
    assert list(named.renamed.values()) == [("a", "repo.search"), ("a", "x" * 65), ("a", "größe")]
    # the same beside other neighbours
    assert set(named.places) <= set(name_tools([("a", ["größe", "x" * 65, "z", "repo.search"])]).places)
    assert set(name_tools([("a", ["repo.search"])], portable=False).places) == {"repo.search"}


def test_two_qualified_names_that_read_the_same_are_told_apart() -> None:
    places = name_tools([("a", ["b__c"]), ("a__b", ["c"])], always=True).places
    assert len(places) == 2
    assert all(shown.startswith("a__b__c_") for shown in places)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is empty"), ("x" * 65, "has 65 characters, and at most 64"), ("a.b c/d", "' ', '.', '/'"),
        (None, "not NoneType"), ("x\n", r"'\\n'"), ("é", "'é'"),
    ],
)  # fmt: skip
def test_a_name_that_providers_refuse_is_refused_with_the_reason(name: object, says: str) -> None:
    assert not is_valid_tool_name(name)
    with pytest.raises(ValueError, match=says):
        assert_valid_tool_name(name)


def test_a_name_that_they_take_is_taken() -> None:
    assert_valid_tool_name("Az09_-" + "x" * 58)
