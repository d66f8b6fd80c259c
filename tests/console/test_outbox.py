"""What is on its way to a console, in order and bounded; what streams may cost."""

from __future__ import annotations

import trio
import trio.testing

from afpool.console._outbox import Outbox, Purse


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
    purse = Purse(0.1)
    with trio.move_on_after(0.5):
        await purse.pay(100.0)
    with trio.fail_after(2000):
        await purse.pay(0.001)
