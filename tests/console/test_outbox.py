"""What is on its way to a console, in order and bounded; what streams may cost."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from afpool.console._outbox import DEAREST, Outbox, Purse, Timed
from afpool.console._slices import Slices
from afpool.console._tree import tasks


async def test_what_was_put_first_leaves_first_and_what_has_no_room_waits() -> None:
    outbox = Outbox(10)
    put: list[bytes] = []

    async def one(data: bytes) -> None:
        await outbox.put(data)
        put.append(data)

    async with trio.open_nursery() as nursery:
        for data in (b"aaaa", b"bbbb", b"cccc", b"dddddddddddddddd", b"e"):
            nursery.start_soon(one, data)
            await trio.testing.wait_all_tasks_blocked()
        assert put == [b"aaaa", b"bbbb"]
        assert outbox.size == 8
        taken = []
        for _ in range(5):
            data = await outbox.take()
            outbox.sent(data)
            taken.append(data)
            await trio.testing.wait_all_tasks_blocked()
        # one that is larger than everything goes alone
        assert taken == [b"aaaa", b"bbbb", b"cccc", b"dddddddddddddddd", b"e"]
        assert put == taken
        assert outbox.size == 0
        assert outbox.most == 16


async def test_room_is_given_back_when_it_has_left_and_not_before() -> None:
    outbox = Outbox(10)
    await outbox.put(b"a" * 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.put, b"b")
        data = await outbox.take()
        await trio.testing.wait_all_tasks_blocked()
        assert outbox.size == 10
        outbox.sent(data)
        await trio.testing.wait_all_tasks_blocked()
        assert outbox.size == 1


async def test_whoever_stops_waiting_has_put_nothing_and_keeps_nobody() -> None:
    outbox = Outbox(10)
    await outbox.put(b"a" * 10)
    with trio.move_on_after(0) as scope:
        await outbox.put(b"b")
    assert scope.cancelled_caught
    outbox.sent(await outbox.take())
    await outbox.put(b"c")
    assert await outbox.take() == b"c"


async def test_streams_take_their_part_and_no_more(autojump_clock: trio.testing.MockClock) -> None:
    purse = Purse(0.1)
    began = trio.current_time()
    for _ in range(10):
        await purse.pay(0.001)
    assert abs(trio.current_time() - began - 0.1) < 1e-6
    assert abs(purse.spent - 0.01) < 1e-9
    # what was not spent meanwhile is not saved up
    await trio.sleep(60)
    began = trio.current_time()
    await purse.pay(0.002)
    assert abs(trio.current_time() - began - 0.02) < 1e-6


async def test_many_streams_share_one_purse_in_turn(autojump_clock: trio.testing.MockClock) -> None:
    purse = Purse(0.1)
    paid: list[int] = []

    async def stream(number: int) -> None:
        for _ in range(5):
            await purse.pay(0.001)
            paid.append(number)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(stream, number)
    assert abs(trio.current_time() - began - 8 * 5 * 0.01) < 1e-6
    for round_ in range(5):
        assert sorted(paid[round_ * 8 : round_ * 8 + 8]) == list(range(8))


async def test_whoever_goes_while_paying_keeps_nobody(autojump_clock: trio.testing.MockClock) -> None:
    purse = Purse(0.001)
    with trio.move_on_after(0.5):
        await purse.pay(DEAREST)
    with trio.fail_after(2000):
        await purse.pay(0.001)


async def test_who_pays_next_pays_for_what_is_owed(autojump_clock: trio.testing.MockClock) -> None:
    purse = Purse(0.1)
    began = trio.current_time()
    purse.owe(0.003)
    assert trio.current_time() == began
    await purse.pay(0.001)
    assert abs(trio.current_time() - began - 0.04) < 1e-6
    assert abs(purse.spent - 0.004) < 1e-9


async def test_a_process_that_was_stopped_in_the_middle_of_a_frame_goes_on_soon(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purse = Purse(0.1)
    began = trio.current_time()
    await purse.pay(3600.0)
    assert trio.current_time() - began <= 1.0


class Worked:
    """How long the loop was held."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


async def test_a_stream_pays_for_its_own_work_and_not_for_that_of_others() -> None:
    clock = Worked()

    async def others() -> None:
        while True:
            clock.at += 1000
            await trio.lowlevel.checkpoint()

    async def work() -> str:
        for _ in range(5):
            clock.at += 1
            await trio.lowlevel.checkpoint()
        clock.at += 2
        return "done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        timed = Timed(work(), clock)
        assert await timed == "done"
        nursery.cancel_scope.cancel()
    assert timed.spent == 7
    assert clock.at > 1000


async def test_what_is_measured_is_cancelled_and_fails_as_itself() -> None:
    ended: list[str] = []

    async def work(error: Exception | None) -> None:
        try:
            await trio.lowlevel.checkpoint()
            if error is not None:
                raise error
            await trio.sleep_forever()
        except trio.Cancelled:
            await trio.lowlevel.cancel_shielded_checkpoint()  # it may clean up
            ended.append("cancelled")
            raise
        finally:
            ended.append("over")

    with trio.CancelScope() as scope:
        scope.cancel()
        await Timed(work(None))
    assert scope.cancelled_caught
    assert ended == ["cancelled", "over"]
    with pytest.raises(KeyError, match="mine"):
        await Timed(work(KeyError("mine")))


async def test_the_tree_shows_what_is_measured_as_if_nobody_measured_it() -> None:
    async def stream() -> None:
        await trio.sleep_forever()

    async def session() -> None:
        await Timed(stream())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(session)
        await trio.testing.wait_all_tasks_blocked()
        lines, _ = await tasks(Slices(), limit=1000, depth=100)
        (waits,) = [line["waits"] for line in lines if line["name"].endswith("nobody_measured_it.session")]
        assert "stream:" in waits
        assert "sleep_forever" in waits
        nursery.cancel_scope.cancel()
