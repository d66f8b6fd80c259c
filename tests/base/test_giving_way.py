"""Work in a thread rests so often that the loop need not wait for the interpreter."""

from __future__ import annotations

import threading

import pytest
import trio

from afpool._base import giving_way
from afpool._base.giving_way import REST, WORK, GivingWay


class Clock:
    """What the work sees of time: each look costs some, a rest what it lasts."""

    def __init__(self):
        self.now = 0.0
        self.rests = []

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.rests.append((self.now, seconds))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(giving_way, "time", made)
    return made


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_it_rests_after_each_piece_of_work(clock):
    def work():
        way = GivingWay()
        for _ in range(100):
            clock.now += WORK / 10
            way.look()

    in_a_thread(work)
    assert [seconds for _, seconds in clock.rests] == [REST] * len(clock.rests)
    assert 9 <= len(clock.rests) <= 10


def test_an_item_that_takes_long_is_followed_by_a_rest(clock):
    def work():
        way = GivingWay()
        clock.now += 10 * WORK
        way.look()
        way.look()

    in_a_thread(work)
    assert len(clock.rests) == 1


async def test_the_loops_own_thread_never_rests(clock):
    await trio.lowlevel.checkpoint()
    way = GivingWay()
    clock.now += 10 * WORK
    way.look()
    assert clock.rests == []
