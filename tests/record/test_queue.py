"""The queue in front of what writes: what it promises to calls, to writers, and at the end."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.seams import Seams
from afpool.record._queue import (
    BATCH,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Block,
    QueuedSink,
    Written,
)
from tests.record.sink_kit import Hand, Source, settled, use

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def named(records: list[Any]) -> list[Block]:
    return [Block(one if isinstance(one, dict) else one.call_id, 1) for one in records]


@contextlib.asynccontextmanager
async def running(made: QueuedSink) -> AsyncIterator[None]:
    """Run a sink, and close it whatever happens."""
    async with trio.open_nursery() as nursery:
        made.begin(nursery)
        try:
            yield
        finally:
            await made.aclose()


def sink(hand: Hand, source: Source, **options: Any) -> QueuedSink:
    made = QueuedSink("test", hand, plain=named, seams=source.seams, **options)
    made.attach(source)
    return made


async def test_what_is_filed_is_written_in_order_and_in_few_writes(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source)
    async with running(made):
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3000):
            source.records.file(use(f"c{number}"))
        source.records.event("evicted", "k:0123456789ab", "search")
        await settled(lambda: made.written == 3001)
    assert hand.got[:3000] == [f"c{number}" for number in range(3000)]
    assert hand.got[3000]["kind"] == "evicted"
    assert hand.writes <= 4
    assert hand.closed
    assert made.state.queued == made.dropped == 0


async def test_it_is_written_in_a_thread_of_the_sinks_own() -> None:
    hand, source = Hand(), Source(in_thread=Seams().in_thread)
    made = sink(hand, source)
    async with running(made):
        for number in range(10):
            source.records.file(use(f"c{number}"))
    assert len(hand.got) == 10
    assert threading.get_ident() not in hand.threads


async def test_filing_does_not_wait_for_a_writer_that_hangs_and_drops_the_newest(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source, most=10)
    source.gate = trio.Event()
    async with running(made):
        source.records.file(use("first"))
        await trio.sleep(10)
        for number in range(30):
            source.records.file(use(f"c{number}"))
        assert made.dropped == 20
        assert made.state.queued == 11
        source.gate.set()
        await settled(lambda: made.written == 11)
        source.records.file(use("late"))
        await settled(lambda: made.written == 12)
    ten = [f"c{number}" for number in range(10)]
    gap = hand.got[11]
    assert hand.got == ["first", *ten, gap, "late"]
    assert gap == {"kind": "dropped", "at": gap["at"], "records": 20}
    assert 1e9 <= gap["at"] < 1e9 + 60
    assert made.dropped == 20
    assert source.records.failures == 0


async def test_bytes_bound_the_queue_as_well(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source, most_bytes=10_000)
    for _ in range(3):
        source.records.file(use(shown=b'"' + b"x" * 4000 + b'"'))
    assert (made.state.queued, made.dropped) == (1, 2)
    source.records.file(use())
    assert made.dropped == 2
    async with running(made):
        await settled(lambda: made.written == 2)
        for _ in range(3):  # each of them has room again, and no more than that
            source.records.file(use(shown=b'"' + b"x" * 8900 + b'"'))
            source.records.file(use())
            await trio.sleep(1)
    assert (made.written, made.dropped) == (5, 5)


async def test_definitions_that_a_refused_call_holds_count_as_well(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source, most_bytes=10_000)
    before, after = (SimpleNamespace(raw=b"x" * 4_000, digest=digest) for digest in ("a" * 64, "b" * 64))
    source.records.file(use(was=before, became=after))
    source.records.file(use(was=before, became=None))
    assert (made.state.queued, made.dropped) == (1, 1)


async def test_what_could_not_be_written_is_tried_again_after_pauses_that_grow(
    autojump_clock, caplog
) -> None:
    caplog.set_level(logging.INFO, "afpool.record")
    hand, source = Hand(), Source()
    tried: list[float] = []

    def does(batch: list[Block]) -> Written | None:
        tried.append(source.seams.now())
        if len(tried) == 1:
            return Written(batch[1:], trouble="ENOSPC: no space")
        return Written(batch, trouble="ENOSPC: no space") if len(tried) < 9 else None

    hand.does = does
    made = sink(hand, source)
    async with running(made):
        for name in ("a", "b", "c"):
            source.records.file(use(name))
        await settled(lambda: made.trouble is not None)
        assert made.state.trouble == "ENOSPC: no space"
        assert made.state.queued == 2
        await settled(lambda: made.written == 3)
        assert made.trouble is None
    assert hand.got == ["a", "b", "c"]
    waits = [round(later - before) for before, later in pairwise(tried)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert (FIRST_PAUSE, LONGEST_PAUSE) == (1.0, 30.0)
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "cannot write (ENOSPC: no space)" in text]) == 1
    assert len([text for text in said if "writes again" in text]) == 1


async def test_a_writer_that_raises_costs_its_batch_and_no_other(autojump_clock, caplog) -> None:
    hand, source = Hand(), Source()

    def does(batch: list[Block]) -> None:
        if hand.writes == 1:
            raise RuntimeError("the secret is 42")

    hand.does = does
    made = sink(hand, source)
    async with running(made):
        source.records.file(use("a"))
        await settled(lambda: made.refused == 1)
        source.records.file(use("b"))
        await settled(lambda: made.written == 1)
    assert hand.got == ["b"]
    assert "RuntimeError" in caplog.text
    assert "42" not in caplog.text


async def test_a_record_that_cannot_be_made_plain_costs_itself_only(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source)
    async with running(made):
        for number in range(200):
            source.records.file(use(f"c{number}", who="nobody" if number == 77 else None))
        await settled(lambda: made.written == 199)
    assert made.refused == 1
    assert hand.got == [f"c{number}" for number in range(200) if number != 77]


async def test_closing_writes_what_waits_without_waiting_for_more(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source)
    async with running(made):
        for number in range(3 * BATCH):
            source.records.file(use(f"c{number}"))
        began = trio.current_time()
        await made.aclose()
        assert trio.current_time() == began
    assert len(hand.got) == 3 * BATCH
    assert hand.closed
    source.records.file(use("too late"))
    assert made.dropped == 1
    assert len(hand.got) == 3 * BATCH


async def test_a_gap_at_the_end_is_told_too(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source, most=2)
    for number in range(5):
        source.records.file(use(f"c{number}"))
    async with running(made):
        pass
    assert hand.got[:2] == ["c0", "c1"]
    assert hand.got[2]["records"] == made.dropped == 3


async def test_closing_is_bounded_and_says_what_was_lost(autojump_clock, caplog) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source, close_timeout=2.0)
    async with running(made):
        source.gate = trio.Event()
        for number in range(5):
            source.records.file(use(f"c{number}"))
        await trio.sleep(1)
        source.records.file(use("one more"))
        began = trio.current_time()
        await made.aclose()
        assert trio.current_time() - began == pytest.approx(2.0)
    assert made.dropped == 6
    assert "6 records of it were not written" in caplog.text
    assert not hand.closed


async def test_closing_in_trouble_tries_once_more_and_no_longer(autojump_clock, caplog) -> None:
    hand, source = Hand(lambda batch: Written(batch, trouble="EIO: broken")), Source()
    made = sink(hand, source)
    async with running(made):
        source.records.file(use("a"))
        await settled(lambda: made.trouble is not None)
        tries, began = hand.writes, trio.current_time()
        await made.aclose()
        assert trio.current_time() == began
    assert hand.writes == tries + 1
    assert made.dropped == 1
    assert "1 records of it were not written" in caplog.text


async def test_a_cancelled_task_goes_on_writing_until_it_is_closed(autojump_clock) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source)
    async with trio.open_nursery() as nursery:
        made.begin(nursery)
        nursery.cancel_scope.cancel()
        source.records.file(use("a"))
        await made.aclose()
    assert hand.got == ["a"]


async def test_one_that_was_never_run_closes_and_says_what_was_lost(caplog) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source)
    source.records.file(use("a"))
    await made.aclose()
    assert made.dropped == 1
    assert "1 records" in caplog.text


Step = tuple[str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.integers(1, 40)),
        st.tuples(st.just("pass"), st.integers(1, 50)),
        st.tuples(st.just("fails"), st.integers(0, 3)),
    ),
    max_size=25,
)


@given(steps, st.integers(1, 50), st.data())
def test_whatever_happens_each_record_is_written_once_in_order_or_counted(
    moves: list[Step], most: int, data: st.DataObject
) -> None:
    """Filed is what was written, in order and once, and what is counted as dropped; gaps say how many."""
    failing: deque[bool] = deque()

    def does(batch: list[Block]) -> Written | None:
        if failing and failing.popleft():
            return Written(batch[len(batch) // 2 :], trouble="ENOSPC")
        return None

    async def play() -> None:
        hand, source = Hand(does), Source()
        made = sink(hand, source, most=most)
        filed = 0
        async with running(made):
            for move, number in moves:
                if move == "file":
                    for _ in range(number):
                        source.records.file(use(str(filed)))
                        filed += 1
                        assert made.state.queued <= most + BATCH
                elif move == "pass":
                    await trio.sleep(number / 10)
                else:
                    failing.extend([True] * number)
            failing.clear()
        records = [one for one in hand.got if isinstance(one, str)]
        gaps = [one["records"] for one in hand.got if isinstance(one, dict)]
        assert [int(one) for one in records] == sorted({int(one) for one in records})
        assert len(records) + made.dropped == filed
        assert sum(gaps) == made.dropped  # all was written in the end
        # a gap stands where the records are missing
        at, missing = 0, 0
        for one in hand.got:
            if isinstance(one, dict):
                missing += one["records"]
            else:
                assert int(one) == at + missing
                at += 1

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("size", [1, 7])
async def test_filing_costs_no_thread_while_nothing_is_filed(autojump_clock, size: int) -> None:
    hand, source = Hand(), Source()
    made = sink(hand, source)
    async with running(made):
        await trio.sleep(100)
        assert hand.writes == 0
        for _ in range(size):
            source.records.file(use())
        await trio.sleep(1)
        assert hand.writes == 1
