"""Streams: pulled, bounded, spaced, and let go of once."""

from __future__ import annotations

import math
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from afpool.console import Queued, Stream
from afpool.console._stream import AT_ONCE, EVERY, KEPT


class Letters(Queued[str]):
    """Tells words, and counts how often it was let go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(lambda word: {"word": word}, **options)
        self.let = 0

    def let_go(self) -> None:
        self.let += 1


async def test_what_happens_between_two_frames_is_told_in_one(autojump_clock: MockClock) -> None:
    stream = Letters()
    began = trio.current_time()
    stream.put("a")
    stream.put("b")
    assert await stream.next() == {"events": [{"word": "a"}, {"word": "b"}], "dropped": 0}
    assert trio.current_time() == began
    stream.put("c")
    assert await stream.next() == {"events": [{"word": "c"}], "dropped": 0}
    assert math.isclose(trio.current_time() - began, EVERY)


async def test_a_stream_waits_for_something_to_tell(autojump_clock: MockClock) -> None:
    stream = Letters()
    frames: list[Any] = []

    async def read() -> None:
        while (found := await stream.next()) is not None:
            frames.append(found)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.sleep(5)
        assert frames == []
        stream.put("a")
        await trio.sleep(5)
        assert len(frames) == 1
        stream.close()
    assert stream.ended == "stopped"
    assert stream.let == 1


async def test_a_reader_that_does_not_read_loses_events_and_is_told_how_many(
    autojump_clock: MockClock,
) -> None:
    stream = Letters(kept=3)
    for word in "abcdef":
        stream.put(word)
    assert await stream.next() == {"events": [{"word": word} for word in "abc"], "dropped": 3}
    stream.put("g")
    assert await stream.next() == {"events": [{"word": "g"}], "dropped": 0}
    assert stream.dropped == 3
    assert KEPT * 2 > KEPT  # the default is bounded, too
    default = Letters()
    for at in range(KEPT + 10):
        default.put(str(at))
    assert default.dropped == 10


async def test_a_frame_is_bounded_and_the_rest_follows(autojump_clock: MockClock) -> None:
    stream = Letters()
    for at in range(AT_ONCE + 1):
        stream.put(str(at))
    first, second = await stream.next(), await stream.next()
    assert first is not None
    assert second is not None
    assert (len(first["events"]), len(second["events"])) == (AT_ONCE, 1)


async def test_only_what_is_wanted_is_kept(autojump_clock: MockClock) -> None:
    stream = Letters(wants=lambda word: word != "b")
    for word in "abc":
        stream.put(word)
    assert await stream.next() == {"events": [{"word": "a"}, {"word": "c"}], "dropped": 0}


async def test_what_waits_is_told_after_the_end_and_nothing_more(autojump_clock: MockClock) -> None:
    stream = Letters()
    stream.put("a")
    stream.close("enough")
    stream.close("again")
    stream.put("b")
    assert await stream.next() == {"events": [{"word": "a"}], "dropped": 0}
    assert await stream.next() is None
    assert await stream.next() is None
    assert (stream.ended, stream.let) == ("enough", 1)


async def test_closing_ends_the_wait_until_the_next_frame(autojump_clock: MockClock) -> None:
    class Hourly(Stream):
        async def make(self) -> dict[str, Any] | None:
            return None if self.ended else {"now": trio.current_time()}

    stream = Hourly(3600.0)
    assert await stream.next() is not None
    async with trio.open_nursery() as nursery:
        ended: list[Any] = []

        async def read() -> None:
            ended.append(await stream.next())

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        stream.close()
    assert ended == [None]
    assert trio.current_time() < 3600


async def test_one_that_is_cancelled_loses_nothing(autojump_clock: MockClock) -> None:
    stream = Letters()
    with trio.move_on_after(1):
        await stream.next()
    stream.put("a")
    assert await stream.next() == {"events": [{"word": "a"}], "dropped": 0}
