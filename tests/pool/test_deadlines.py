"""The heap of deadlines: who is woken when, and what stays in the heap."""

from __future__ import annotations

import math

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from afpool.pool._deadlines import Deadlines


class Target:
    """Notes when it was woken."""

    def __init__(self, then=None):
        self.woken: list[float] = []
        self.then = then

    def on_deadline(self):
        self.woken.append(trio.current_time())
        if self.then is not None:
            self.then()


async def test_each_is_woken_at_its_time_and_once(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    start = trio.current_time()
    targets = {after: Target() for after in (5.0, 1.0, 3.0)}
    for after, target in targets.items():
        deadlines.add(start + after, target)
    await trio.sleep(10)
    assert {after: target.woken for after, target in targets.items()} == {
        after: [start + after] for after in targets
    }
    assert len(deadlines) == 0
    nursery.cancel_scope.cancel()


async def test_who_is_done_is_not_woken(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    target, other = Target(), Target()
    entry = deadlines.add(trio.current_time() + 1, target)
    deadlines.add(trio.current_time() + 2, other)
    deadlines.done(entry)
    await trio.sleep(5)
    assert not target.woken
    assert other.woken
    nursery.cancel_scope.cancel()


async def test_an_earlier_deadline_wakes_the_sleeping_task(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    start = trio.current_time()
    late, early, earliest = Target(), Target(), Target()
    deadlines.add(start + 100, late)
    await wait_all_tasks_blocked()
    deadlines.add(start + 10, early)
    deadlines.add(start + 5, earliest)
    await trio.sleep(20)
    assert (early.woken, earliest.woken, late.woken) == ([start + 10], [start + 5], [])
    nursery.cancel_scope.cancel()


async def test_a_deadline_that_is_not_earlier_leaves_the_task_asleep(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    start = trio.current_time()
    deadlines.add(start + 10, Target())
    await wait_all_tasks_blocked()
    deadlines.add(start + 10, Target())
    deadlines.add(start + 20, Target())
    assert deadlines._task is not None
    deadlines.add(start + 9, Target())
    assert deadlines._task is None  # on its way
    nursery.cancel_scope.cancel()


async def test_what_is_done_at_the_front_is_not_slept_for(nursery, autojump_clock):
    deadlines = Deadlines()
    start = trio.current_time()
    deadlines.done(deadlines.add(start + 1, Target()))
    kept = deadlines.add(start + 10, Target())
    nursery.start_soon(deadlines.run)
    await wait_all_tasks_blocked()
    assert deadlines._heap == [kept]
    assert deadlines._wake_at == start + 10
    nursery.cancel_scope.cancel()


async def test_one_may_be_added_in_the_step_in_which_the_task_is_cancelled(autojump_clock):
    deadlines = Deadlines()
    async with trio.open_nursery() as inner:
        inner.start_soon(deadlines.run)
        await wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
        deadlines.add(trio.current_time(), Target())
    assert len(deadlines) == 1


async def test_a_deadline_that_has_passed_is_served_at_once(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    await wait_all_tasks_blocked()
    now = trio.current_time()
    target = Target()
    deadlines.add(now - 5, target)
    await wait_all_tasks_blocked()
    assert target.woken == [now]
    nursery.cancel_scope.cancel()


async def test_what_was_added_before_the_task_ran_is_served(nursery, autojump_clock):
    deadlines = Deadlines()
    start = trio.current_time()
    target = Target()
    deadlines.add(start + 1, target)
    nursery.start_soon(deadlines.run)
    await trio.sleep(2)
    assert target.woken == [start + 1]
    nursery.cancel_scope.cancel()


async def test_no_deadline_at_all_is_never_served(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    target = Target()
    entry = deadlines.add(math.inf, target)
    await trio.sleep(80_000)
    assert not target.woken
    deadlines.done(entry)
    assert len(deadlines) == 0
    nursery.cancel_scope.cancel()


async def test_a_target_may_add_and_end_others_while_it_is_woken(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    start = trio.current_time()
    ended, added = Target(), Target()
    entries = [deadlines.add(start + 1, ended) for _ in range(3000)]

    def then():
        for entry in entries:  # more than half of the heap: it is put in order in the middle of a sweep
            deadlines.done(entry)
        deadlines.add(start + 2, added)
        deadlines.add(start + 1, added)

    deadlines.add(start + 0.5, Target(then))
    await trio.sleep(3)
    assert not ended.woken
    assert added.woken == [start + 1, start + 2]
    assert len(deadlines) == 0
    nursery.cancel_scope.cancel()


async def test_the_task_can_be_cancelled_and_another_takes_over(autojump_clock):
    deadlines = Deadlines()
    target = Target()
    start = trio.current_time()
    deadlines.add(start + 10, target)
    for _ in range(2):
        async with trio.open_nursery() as inner:
            inner.start_soon(deadlines.run)
            await wait_all_tasks_blocked()
            inner.cancel_scope.cancel()
    deadlines.add(start + 5, target)  # nobody sleeps now
    async with trio.open_nursery() as inner:
        inner.start_soon(deadlines.run)
        await trio.sleep(20)
        inner.cancel_scope.cancel()
    assert target.woken == [start + 5, start + 10]


def test_done_twice_counts_once():
    deadlines = Deadlines()
    entries = [deadlines.add(float(index), Target()) for index in range(3)]
    deadlines.done(entries[1])
    deadlines.done(entries[1])
    assert len(deadlines) == 2
    deadlines.done(entries[0])
    assert len(deadlines) == 1


async def test_done_after_it_was_woken_is_nothing(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    entry = deadlines.add(trio.current_time() + 1, Target())
    await trio.sleep(2)
    deadlines.done(entry)
    deadlines.add(trio.current_time() + 1, Target())
    assert len(deadlines) == 1
    nursery.cancel_scope.cancel()


def test_what_is_done_does_not_pile_up():
    """A thousand calls a second under a long deadline must not keep a minute of them."""
    deadlines = Deadlines()
    kept = [deadlines.add(1e9, Target()) for _ in range(100)]
    for _ in range(20_000):
        deadlines.done(deadlines.add(1e9, Target()))
        assert len(deadlines._heap) <= 2_200
    assert len(deadlines) == len(kept)
    assert sum(entry.target is not None for entry in deadlines._heap) == len(kept)


def test_the_heap_is_swept_when_more_than_1024_are_done_and_no_sooner():
    deadlines = Deadlines()
    for entry in [deadlines.add(1.0, Target()) for _ in range(1024)]:
        deadlines.done(entry)
    assert len(deadlines._heap) == 1024
    deadlines.done(deadlines.add(1.0, Target()))
    assert deadlines._heap == []
    assert len(deadlines) == 0


def test_the_heap_is_swept_when_more_than_half_is_done_and_no_sooner():
    deadlines = Deadlines()
    entries = [deadlines.add(1.0, Target()) for _ in range(4000)]
    for entry in entries[:2000]:
        deadlines.done(entry)
    assert len(deadlines._heap) == 4000
    deadlines.done(entries[2000])
    assert len(deadlines._heap) == len(deadlines) == 1999


def test_a_heap_that_was_swept_is_a_heap():
    deadlines = Deadlines()
    entries = [deadlines.add(index * 7919 % 4001, Target()) for index in range(4000)]
    for entry in sorted(entries)[:2001]:
        deadlines.done(entry)
    heap = deadlines._heap
    assert len(heap) == 1999
    assert all(heap[(at - 1) // 2].at <= heap[at].at for at in range(1, len(heap)))


def test_what_is_done_holds_its_target_no_longer():
    deadlines = Deadlines()
    entry = deadlines.add(1e9, Target())
    deadlines.done(entry)
    assert entry.target is None


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 60), st.booleans()), max_size=40),
)
@settings(deadline=None)
def test_whatever_is_added_and_ended_everybody_is_woken_in_time(plan):
    """Each item: added after so long, for a deadline so much later, and half of them ended half-way."""
    seen: list[tuple[Target, float, bool]] = []

    async def one(deadlines, after, due, ends):
        await trio.sleep(after)
        target = Target()
        at = trio.current_time() + due
        entry = deadlines.add(at, target)
        ended = ends and due > 0
        seen.append((target, at, ended))
        if ended:
            await trio.sleep(due / 2)
            deadlines.done(entry)

    async def main():
        deadlines = Deadlines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            async with trio.open_nursery() as inner:
                for item in plan:
                    inner.start_soon(one, deadlines, *item)
            await trio.sleep(200)
            assert len(deadlines) == 0
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert len(seen) == len(plan)
    for target, at, ended in seen:
        # The mock clock jumps by a difference, and so may arrive some rounding behind the deadline.
        in_time = len(target.woken) == 1 and at <= target.woken[0] <= at + 1e-6
        assert in_time or (ended and not target.woken)


async def test_a_clock_that_jumps_a_rounding_too_far_wakes_all_the_same(nursery, autojump_clock):
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    for seconds in (0.1, 0.7, 1.1, 2.3, 33.3):
        await trio.sleep(seconds / 3)
        target = Target()
        at = trio.current_time() + seconds
        deadlines.add(at, target)
        await trio.sleep(60)
        (woken,) = target.woken
        assert at <= woken <= at + 1e-6
    nursery.cancel_scope.cancel()
