"""Stores that loop, hang, fail, lie or tell of others: bounded time, and nothing of anybody else."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from afpool import AfpoolError, DeadlineExceeded
from afpool.artifacts._types import Artifact, ArtifactMeta, ArtifactPage, ArtifactStoreError
from afpool.tools import _live_refs, _wants
from afpool.tools._wants import WantsRefused, resolve_wants
from tests.tools.store_kit import OTHER, ROWS, SCOPE, Store, ref_number

WANTS = {"rows": ROWS}
GONE = {"rows": ref_number(99_999)}


async def refusal(store: Any, args: Any = GONE, wants: Any = WANTS, **more: Any) -> str:
    outcome = await resolve_wants(store, SCOPE, "report", wants, args, **more)
    assert isinstance(outcome, WantsRefused)
    return outcome.refusal


def page(cursor: str | None, *rows: ArtifactMeta) -> ArtifactPage:
    return ArtifactPage(tuple(rows), cursor)


async def never(*_: Any) -> Any:
    await trio.sleep_forever()


# -- how much is looked at


async def test_ten_refs_are_told_and_no_more_are_looked_for() -> None:
    store = Store()
    metas = [store.add() for _ in range(300)]
    said = await refusal(store)
    told = [meta.ref for meta in metas if meta.ref in said]
    assert told == [meta.ref for meta in metas[-10:]]
    assert store.count("list") == 1
    assert store.count("head") == 10


async def test_two_hundred_rows_are_looked_at() -> None:
    store = Store()
    store.ignores_kind = True
    old, within = store.add(), store.add()
    for _ in range(199):
        store.add("chart/svg")
    said = await refusal(store)
    assert within.ref in said
    assert old.ref not in said
    limits = [call[4] for call in store.calls if call[0] == "list"]
    assert limits == [50, 50, 50, 50]


async def test_a_page_of_more_rows_than_were_asked_for() -> None:
    store = Store()
    metas = [store.add("chart/svg") for _ in range(200)]
    last = store.add()

    async def everything(cursor: str | None, limit: int) -> ArtifactPage:
        return page("more", *metas, last)

    store.on_list = everything
    assert "No artifact of kind" in await refusal(store)
    assert store.count("list") == 1


async def test_a_page_that_never_ends_is_read_up_to_the_bound() -> None:
    store = Store()
    chart = store.add("chart/svg")

    class Endless(tuple):  # noqa: SLOT001
        def __iter__(self) -> Any:
            while True:
                yield chart

    async def endless(cursor: str | None, limit: int) -> ArtifactPage:
        return ArtifactPage(Endless())

    store.on_list = endless
    assert "No artifact of kind" in await refusal(store)


async def test_a_cursor_that_comes_again_ends_it() -> None:
    store = Store()
    chart = store.add("chart/svg")
    cursors = iter(["a", "b", "a", "b", "c"])

    async def looping(cursor: str | None, limit: int) -> ArtifactPage:
        return page(next(cursors), chart)

    store.on_list = looping
    assert "No artifact of kind" in await refusal(store)
    assert [call[3] for call in store.calls if call[0] == "list"] == [None, "a", "b"]


async def test_fifty_pages_without_a_row_end_it() -> None:
    store = Store()

    async def empty(cursor: str | None, limit: int) -> ArtifactPage:
        return page(str(int(cursor or 0) + 1))

    store.on_list = empty
    assert "No artifact of kind" in await refusal(store)
    assert store.count("list") == 50


async def test_a_row_that_comes_on_every_page_is_told_once() -> None:
    store = Store()
    meta = store.add()

    async def same(cursor: str | None, limit: int) -> ArtifactPage:
        return page(str(int(cursor or 0) + 1), meta)

    store.on_list = same
    said = await refusal(store)
    assert said.count(meta.ref) == 1


# -- what is not told


async def test_a_row_of_another_scope_is_not_told() -> None:
    store = Store()
    mine, theirs = store.add(label="mine"), store.add(scope=OTHER, label="theirs")

    async def mixed(cursor: str | None, limit: int) -> ArtifactPage:
        return page(None, theirs, mine)

    store.on_list = mixed
    said = await refusal(store)
    assert mine.ref in said
    assert theirs.ref not in said
    assert "theirs" not in said
    assert {call[1] for call in store.calls} == {SCOPE}


async def test_what_has_gone_since_the_list_was_made_is_not_told() -> None:
    store = Store()
    meta = store.add()

    async def gone(ref: str) -> None:
        return None

    store.on_head = gone
    assert meta.ref not in await refusal(store)


async def test_a_row_of_another_kind_or_with_an_odd_ref_is_not_told() -> None:
    store = Store()
    meta = store.add()
    rows = [
        attrs.evolve(meta, kind="chart/svg"),
        attrs.evolve(meta, ref="x" * 65),
        attrs.evolve(meta, ref=None),
    ]

    async def odd(cursor: str | None, limit: int) -> ArtifactPage:
        return page(None, *rows)

    store.on_list = odd
    assert "No artifact of kind" in await refusal(store)
    assert store.count("head") == 0


async def test_an_answer_to_another_question_is_no_answer() -> None:
    store = Store()
    other = store.add(data="somebody's")

    async def wrong(ref: str) -> Artifact:
        return Artifact(other, "somebody's")

    store.on_get = wrong
    said = await refusal(store, {"rows": ref_number(7)})
    assert "named nothing" in said
    assert "somebody's" not in said


# -- what fails


class Failing(Exception):
    """Raised by a store; its text must go nowhere."""


SECRET = "redis://:hunter2@store.internal"


async def _fails(*_: Any) -> Any:
    raise Failing(SECRET)


async def test_a_store_that_fails_has_not_refused_anybody() -> None:
    store = Store()
    store.on_get = _fails
    with pytest.raises(ArtifactStoreError) as failed:
        await refusal(store)
    assert failed.value.delivery == "not-sent"
    assert "the tool was not run" in failed.value.message
    assert "Failing" in failed.value.message
    assert SECRET not in str(failed.value)
    assert isinstance(failed.value.__cause__, Failing)


async def test_what_a_store_raises_on_purpose_is_raised_as_it_is() -> None:
    error = ArtifactStoreError("the disk is gone")
    store = Store()

    async def gone(_: str) -> Artifact:
        raise error

    store.on_get = gone
    with pytest.raises(ArtifactStoreError) as failed:
        await refusal(store)
    assert failed.value is error


async def test_a_store_that_fails_in_the_middle_gives_nothing() -> None:
    store = Store()
    one, two = store.add(data="one"), store.add(data="two")
    held = store.kept[SCOPE]

    async def second_fails(ref: str) -> Artifact | None:
        if ref == two.ref:
            raise Failing(SECRET)
        return held[ref]

    store.on_get = second_fails
    args = {"a": one.ref, "b": two.ref}
    with pytest.raises(ArtifactStoreError, match='the ref in "b"'):
        await resolve_wants(store, SCOPE, "report", {"a": ROWS, "b": ROWS}, args)
    assert args == {"a": one.ref, "b": two.ref}


@pytest.mark.parametrize("verb", ["on_list", "on_head"])
async def test_a_refusal_stands_where_the_live_refs_cannot_be_found_out(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    meta = store.add()
    setattr(store, verb, _fails)
    said = await refusal(store)
    assert 'Which artifacts of kind "dataset/rows" there were could not be found out.' in said
    assert meta.ref not in said
    assert "Failing" in caplog.text
    assert "hunter2" not in said + caplog.text


async def test_a_listing_that_fails_later_tells_nothing_half() -> None:
    store = Store()
    meta = store.add()

    async def second_fails(cursor: str | None, limit: int) -> ArtifactPage:
        if cursor is None:
            return page("more", meta)
        raise Failing(SECRET)

    store.on_list = second_fails
    assert "could not be found out" in await refusal(store)


# -- what hangs


async def test_a_store_that_hangs_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    store = Store()
    store.on_get = never
    began = trio.current_time()
    with pytest.raises(DeadlineExceeded, match=r"in time.*the tool was not run") as late:
        await refusal(store)
    assert late.value.delivery == "not-sent"
    assert trio.current_time() - began == pytest.approx(_wants.WITHIN)


async def test_the_calls_deadline_counts_where_it_is_earlier(autojump_clock: trio.testing.MockClock) -> None:
    store = Store()
    store.on_get = never
    began = trio.current_time()
    with pytest.raises(DeadlineExceeded):
        await refusal(store, deadline=began + 3)
    assert trio.current_time() - began == pytest.approx(3)
    with pytest.raises(DeadlineExceeded):
        await refusal(store, deadline=began + 1_000)
    assert trio.current_time() - began == pytest.approx(3 + _wants.WITHIN)


async def test_several_slow_answers_have_one_time_together(autojump_clock: trio.testing.MockClock) -> None:
    store = Store()

    async def slow(ref: str) -> None:
        await trio.sleep(_wants.WITHIN * 0.4)

    store.on_get = slow
    wants = dict.fromkeys("abcd", ROWS)
    with pytest.raises(DeadlineExceeded):
        await refusal(store, dict.fromkeys(wants, ref_number(1)), wants)
    assert store.count("get") == 3


async def test_whoever_bounds_the_time_itself_is_left_to_do_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store()
    store.on_get = never
    with trio.move_on_after(3 * _wants.WITHIN) as scope:
        await refusal(store, deadline=math.inf)
    assert scope.cancelled_caught
    store.on_get, store.on_list = None, never
    began = trio.current_time()
    assert "could not be found out" in await refusal(store, deadline=math.inf)
    assert trio.current_time() - began == pytest.approx(_wants.TEACHING)


@pytest.mark.parametrize("verb", ["on_list", "on_head"])
async def test_a_listing_that_hangs_costs_two_seconds_for_all_kinds(
    verb: str, autojump_clock: trio.testing.MockClock
) -> None:
    store = Store()
    for number in range(8):
        store.add(f"k{number}")
    setattr(store, verb, never)
    wants = {f"a{number}": f"k{number}" for number in range(8)}
    began = trio.current_time()
    said = await refusal(store, dict.fromkeys(wants, ref_number(99)), wants)
    assert said.count("could not be found out") == 8
    assert trio.current_time() - began == pytest.approx(_wants.TEACHING)


async def test_a_deadline_that_passes_while_teaching_keeps_the_refusal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store()
    store.on_list = never
    began = trio.current_time()
    assert "could not be found out" in await refusal(store, deadline=began + 0.5)
    assert trio.current_time() - began == pytest.approx(0.5)


async def test_what_was_found_before_a_listing_hung_is_told(autojump_clock: trio.testing.MockClock) -> None:
    store = Store()
    meta = store.add()

    async def first_only(cursor: str | None, limit: int) -> ArtifactPage:
        return page("more", meta) if cursor is None else await never()

    store.on_list = first_only
    assert meta.ref in await refusal(store)


@pytest.mark.parametrize("verb", ["on_get", "on_list", "on_head"])
async def test_a_cancellation_goes_through(verb: str, autojump_clock: trio.testing.MockClock) -> None:
    store = Store()
    store.add()
    setattr(store, verb, never)
    with trio.move_on_after(0.1) as scope:
        await refusal(store)
    assert scope.cancelled_caught


async def test_every_bound_is_what_is_promised() -> None:
    assert (_live_refs.SHOWN, _live_refs.ROWS, _live_refs.PAGES) == (10, 200, 50)
    assert issubclass(DeadlineExceeded, AfpoolError)
