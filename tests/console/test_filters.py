"""Filters and orders of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from afpool import Identity, Seams
from afpool.console import Asker, Column, CommandError, Registry, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS: list[tuple[Any, ...]] = [
    ("k:aa11", "desk", 0, 0.5, True, 100, Identity("acme", "alice")),
    ("k:aa22", "desk", 3, 12.0, False, 5000, Identity("acme", "bob")),
    ("k:bb33", "crm", 7, None, False, None, Identity("globex", "carol", "c-1")),
    ("k:cc44", "crm_two", None, 2.0, None, 3_000_000, None),
]


def registry(rows: list[tuple[Any, ...]] = ROWS, **options: Any) -> Registry:
    made = Registry(Seams())

    def go(_: object) -> Iterator[tuple[Any, ...]]:
        return iter(rows)

    made.table(
        Table(
            name="things",
            help="things",
            columns=(
                Column("key", "key"), Column("server"), Column("waiting", "count"), Column("age", "seconds"),
                Column("shared", "flag"), Column("size", "bytes"),
            ),
            rows=go,
            identities=True,
            older="age",
            **options,
        )
    )  # fmt: skip
    return made


async def keys(line: str, level: Any = "operate") -> list[str]:
    result = await registry().run(f"show things {line}", Asker(level, "test"))
    assert isinstance(result, dict)
    return [row[0] for row in result["rows"]]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", ["k:aa11", "k:aa22", "k:bb33", "k:cc44"]),
        ("server=desk", ["k:aa11", "k:aa22"]),
        ("server=desk,crm", ["k:aa11", "k:aa22", "k:bb33"]),
        ("server=crm*", ["k:bb33", "k:cc44"]),
        ("server=c?m", []),
        ("server=!desk", ["k:bb33", "k:cc44"]),
        ("server!=desk", ["k:bb33", "k:cc44"]),
        ("key=k:aa", ["k:aa11", "k:aa22"]),
        ("waiting=3", ["k:aa22"]),
        ("waiting>0", ["k:aa22", "k:bb33"]),
        ("waiting>=3 waiting<=3", None),
        ("waiting<=3", ["k:aa11", "k:aa22"]),
        ("waiting!=3", ["k:aa11", "k:bb33"]),
        ("waiting=0..3", ["k:aa11"]),
        ("waiting=3..8", ["k:aa22", "k:bb33"]),
        ("waiting!=0..3", ["k:aa22", "k:bb33"]),
        ("age=500ms..12s", ["k:aa11", "k:cc44"]),
        ("size=100..5000", ["k:aa11"]),
        ("size=200..5k", ["k:aa22"]),
        ("waiting=none", ["k:cc44"]),
        ("waiting!=none", ["k:aa11", "k:aa22", "k:bb33"]),
        ("age>1s", ["k:aa22", "k:cc44"]),
        ("older=2s", ["k:aa22", "k:cc44"]),
        ("older=1m", []),
        ("shared=yes", ["k:aa11"]),
        ("shared=no", ["k:aa22", "k:bb33", "k:cc44"]),
        ("shared=!yes", ["k:aa22", "k:bb33", "k:cc44"]),
        ("size>4k", ["k:aa22", "k:cc44"]),
        ("size>1M", ["k:cc44"]),
        ("tenant=acme", ["k:aa11", "k:aa22"]),
        ("tenant=acme principal=bob", ["k:aa22"]),
        ("conversation=c-1", ["k:bb33"]),
        ("conversation=none", ["k:aa11", "k:aa22"]),
        ("tenant=acm", []),
        ("tenant=acm*", []),
        ("sort=-waiting", ["k:bb33", "k:aa22", "k:aa11", "k:cc44"]),
        ("sort=waiting", ["k:aa11", "k:aa22", "k:bb33", "k:cc44"]),
        ("sort=-age", ["k:aa22", "k:cc44", "k:aa11", "k:bb33"]),
        ("sort=server limit=1", ["k:bb33"]),
        ("limit=2", ["k:aa11", "k:aa22"]),
    ],
)
async def test_what_is_found(line: str, found: list[str] | None) -> None:
    if found is None:
        with pytest.raises(CommandError, match="twice"):
            await keys(line)
    else:
        assert await keys(line) == found
        assert await keys(line, "read") == found


@pytest.mark.parametrize(
    ("line", "tries"),
    [
        ("wating=3", ["help things"]), ("sort=wating", ["sort=waiting"]),
        ("columns=key,sever", ["columns=server"]),
        ("waiting=many", ["waiting>1"]), ("server>3", []), ("shared=perhaps", ["shared=yes"]),
        ("age=3x", ["age>1"]), ("limit=0", ["limit=200"]), ("limit=x", ["limit=200"]),
        ("limit=99999999", ["limit=200"]), ("older=x", ["older=0s"]), ("tenant=!acme", []),
        ("tenant=>a", []), ("tenant=", []), ("server=", []), ("server=*a*b*c*d*e", []),
        ("waiting=4k", ["waiting>1"]), ("sort=tenant", []), ("sort=", []),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_refused_with_what_could_be_meant(line: str, tries: list[str]) -> None:
    with pytest.raises(CommandError) as caught:
        await keys(line)
    assert caught.value.code == "bad-option"
    assert [line.removeprefix("show things ") for line in caught.value.tries] == tries
    for suggested in caught.value.tries:
        assert await registry().run(suggested, Asker("read", "test"))


async def test_identities_are_shown_to_an_operator_who_asks_and_to_nobody_else() -> None:
    made = registry()
    result = await made.run("show things --reveal limit=3", Asker("operate", "test"))
    assert isinstance(result, dict)
    assert [column["name"] for column in result["columns"]][-3:] == ["tenant", "principal", "conversation"]
    assert [tuple(row[-3:]) for row in result["rows"]] == [
        ("acme", "alice", None), ("acme", "bob", None), ("globex", "carol", "c-1"),
    ]  # fmt: skip
    with pytest.raises(CommandError) as caught:
        await made.run("show things --reveal", Asker("read", "test"))
    assert caught.value.code == "not-allowed"
    plain = await made.run("show things reveal=no", Asker("read", "test"))
    assert isinstance(plain, dict)
    assert len(plain["columns"]) == 6


async def test_an_identity_is_never_sorted_by_nor_shown_by_naming_its_column() -> None:
    made = registry()
    for line in ("sort=principal", "columns=tenant"):
        with pytest.raises(CommandError) as caught:
            await made.run(f"show things {line}", Asker("operate", "test"))
        assert caught.value.code == "bad-option"


async def test_columns_are_chosen_in_the_order_in_which_they_are_named() -> None:
    result = await registry().run("show things columns=waiting,key limit=1", Asker("read", "test"))
    assert isinstance(result, dict)
    assert result["columns"] == [{"name": "waiting", "kind": "count"}, {"name": "key", "kind": "key"}]
    assert [tuple(row) for row in result["rows"]] == [(0, "k:aa11")]
    assert (result["total"], result["shown"]) == (4, 1)


@given(
    st.text(max_size=60),
    st.sampled_from(
        ["server", "waiting", "age", "shared", "size", "key", "sort", "tenant", "limit", "columns", "older"]
    ),
)
def test_any_value_of_a_filter_is_taken_or_refused(value: str, name: str) -> None:
    async def main() -> None:
        try:
            result = await registry().run(["show", "things"], Asker("operate", "test"), {name: value})
        except CommandError as refusal:
            result = {"shown": 0, "total": 0, "code": refusal.code}
        assert isinstance(result, dict)
        assert result.get("code") in (None, "bad-option", "too-long")
        assert result["shown"] <= result["total"] <= len(ROWS)

    trio.run(main)


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(-5, 5)), st.integers(0, 99)), max_size=60),
    st.booleans(),
    st.integers(1, 70),
)
def test_sorted_and_cut_is_the_front_of_what_is_sorted(
    values: list[tuple[int | None, int]], reverse: bool, limit: int
) -> None:
    rows = [(f"k:{at}", "s", value, None, None, other, None) for at, (value, other) in enumerate(values)]
    expected = sorted(
        (row for row in rows if row[2] is not None), key=lambda row: row[2] or 0, reverse=reverse
    ) + [row for row in rows if row[2] is None]

    async def main() -> None:
        sort = "-waiting" if reverse else "waiting"
        result = await registry(rows).run(f"show things sort={sort} limit={limit}", Asker("read", "test"))
        assert isinstance(result, dict)
        assert [row[0] for row in result["rows"]] == [row[0] for row in expected[:limit]]
        assert result["total"] == len(rows)

    trio.run(main)


async def test_what_is_shown_of_identities_can_be_chosen_like_columns() -> None:
    made = registry()
    asker = Asker("operate", "test")
    result = await made.run("show things limit=3 columns=key,conversation,tenant --reveal", asker)
    assert isinstance(result, dict)
    assert [column["name"] for column in result["columns"]] == ["key", "tenant", "conversation"]
    assert result["rows"][0] == ("k:aa11", "acme", None)
    assert result["rows"][2] == ("k:bb33", "globex", "c-1")
    with pytest.raises(CommandError, match="--reveal") as caught:
        await made.run("show things columns=key,tenant", asker)
    assert caught.value.tries == ("show things columns=key,tenant --reveal",)
    assert isinstance(await made.run(caught.value.tries[0], asker), dict)
    with pytest.raises(CommandError) as caught:
        await made.run("show things columns=key,tenant", Asker("read", "test"))
    assert caught.value.code == "bad-option"


@pytest.mark.parametrize("line", ["waiting=..3", "waiting=3..", "waiting=a..b", "waiting>1..3"])
async def test_a_range_has_two_ends_and_no_sign(line: str) -> None:
    with pytest.raises(CommandError):
        await registry().run(f"show things {line}", Asker("operate", "test"))
