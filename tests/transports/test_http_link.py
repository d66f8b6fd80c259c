"""The connections of one client: used again, looked at, closed, never more than there are places."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._connection import MAX_TAIL, _announced
from afpool.transports._wire import WireClosed
from tests.transports.http_kit import Keeper, Rig, answer
from tests.transports.wire_kit import SwitchGate

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_kept_connection_is_used_again():
    with trio.fail_after(5):
        async with Rig() as rig:
            await rig.answered(answer(), answer(b""), CHUNKED + b"1\r\nx\r\n0\r\n\r\n", answer())
            statistics = rig.link.statistics()
            assert (statistics.opened, statistics.reused, statistics.idle) == (1, 3, 1)


async def test_a_gate_is_not_asked_about_a_connection_that_was_there():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:
            await rig.answered(answer())
            gate = SwitchGate()
            nursery.start_soon(rig.net.peers[0].serve, answer())
            await rig.call(gate=gate)
            assert gate.asked == ["write"]


async def test_a_connection_that_the_server_closed_is_not_used():
    with trio.fail_after(5):
        async with Rig() as rig:
            await rig.answered(answer())
            await rig.net.peers[0].close()
            await rig.answered(answer(), number=1)
            assert rig.link.statistics().opened == 2


@pytest.mark.parametrize("at_once", [True, False])
async def test_bytes_that_no_request_asked_for_cost_the_connection(at_once):
    with trio.fail_after(5):
        async with Rig() as rig:
            garbage = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"
            if at_once:
                await rig.answered(answer() + garbage)
            else:
                await rig.answered(answer())
                await rig.net.peers[0].send(garbage)
            [sink] = await rig.answered(answer(b"mine"), number=1)
            assert (sink.status, sink.body) == (200, b"mine")


@pytest.mark.parametrize(
    "data",
    [
        answer(b"x", b"connection: close"),
        answer(b"x", b"keep-alive: timeout=1"),
        answer(b"x", b"Keep-Alive: max=5, timeout=0"),
        answer(b"x").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["close", "timeout-1", "timeout-0", "http-1.0"],
)
async def test_a_server_that_keeps_no_connection_gets_a_new_one(data):
    with trio.fail_after(5):
        async with Rig() as rig:
            await rig.answered(data)
            await rig.answered(data, number=1)
            assert await rig.net.peers[0].closed_by_client()


@pytest.mark.parametrize(
    ("announced", "idle", "same"), [(0, 3.9, True), (0, 4.1, False), (3, 1.9, True), (3, 2.1, False)]
)
async def test_an_idle_connection_is_used_for_so_long(announced, idle, same, autojump_clock):
    async with Rig() as rig:
        headers = [b"keep-alive: timeout=%d" % announced] if announced else []
        await rig.answered(answer(b"x", *headers))
        await trio.sleep(idle)
        await rig.answered(answer(), number=0 if same else 1)
        assert rig.link.statistics().opened == (1 if same else 2)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"timeout=5", 4.0),
        (b"timeout=5, max=100", 4.0),
        (b'max=1,Timeout="7"', 6.0),
        (b"timeout=0", 0.0),
        (b"timeout=-3", float("inf")),
        (b"timeout=soon", float("inf")),
        (b"max=100", float("inf")),
        (b"", float("inf")),
        (b"timeout=99999999999999999999", 999999998.0),
    ],
)
def test_what_the_keep_alive_header_says(value, seconds):
    assert _announced(value) == seconds


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_a_strange_keep_alive_header_is_a_number_all_the_same(value):
    assert _announced(value) >= 0


async def test_the_newest_idle_connection_is_taken_first():
    with trio.fail_after(5):
        async with Rig(limit=2) as rig, trio.open_nursery() as nursery:
            nursery.start_soon(rig.call)
            nursery.start_soon(rig.call)
            await trio.testing.wait_all_tasks_blocked()
            for number in (1, 0):
                await rig.net.peers[number].serve(answer())
                await trio.testing.wait_all_tasks_blocked()
            await rig.answered(answer(), number=0)


async def test_taking_the_newest_closes_those_that_became_too_old(autojump_clock):
    async with Rig(limit=2) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(rig.call)
        nursery.start_soon(rig.call)
        await trio.testing.wait_all_tasks_blocked()
        await rig.net.peers[0].serve(answer())
        await trio.sleep(3)
        await rig.net.peers[1].serve(answer())
        await trio.sleep(2)
        await rig.answered(answer(), number=1)
        assert rig.link.statistics().idle == 1
        assert await rig.net.peers[0].closed_by_client()


async def test_calls_beyond_the_limit_wait_in_order():
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            done: list[int] = []

            async def call(number: int) -> None:
                await rig.call()
                done.append(number)

            for number in range(4):
                nursery.start_soon(call, number)
                await trio.testing.wait_all_tasks_blocked()
            assert rig.link.statistics().waiting == 3
            peer = await rig.net.peer()
            for count in range(4):
                await peer.serve(answer())
                await trio.testing.wait_all_tasks_blocked()
                assert done == list(range(count + 1))
            assert rig.link.statistics().opened == 1


async def test_control_and_stream_never_take_a_calls_place():
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            for lane in ("stream", "control", "control", "call"):
                nursery.start_soon(lambda lane=lane: rig.call(lane=lane))
                await trio.testing.wait_all_tasks_blocked()
            # One stream, one control exchange with one more waiting for it, and the call.
            assert len(rig.net.peers) == 3
            assert rig.link.statistics().waiting == 1
            for number in (2, 1):
                await rig.net.peers[number].serve(answer())
            # The second control exchange takes a connection that is there.
            await trio.testing.wait_all_tasks_blocked()
            assert rig.link.statistics().waiting == 0
            for peer in (rig.net.peers[1], rig.net.peers[2]):
                nursery.start_soon(_serve_if_asked, peer)
            await rig.net.peers[0].serve(answer())
            await trio.testing.wait_all_tasks_blocked()
            assert rig.link.statistics().opened == 3
            nursery.cancel_scope.cancel()


async def _serve_if_asked(peer):
    await peer.serve(answer())


async def test_waiting_for_a_place_ends_at_the_deadline(autojump_clock):
    async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(rig.call)
        await trio.testing.wait_all_tasks_blocked()
        exchange, _ = rig.exchange()
        start = trio.current_time()
        with pytest.raises(ConnectFailed) as caught:
            await exchange.run(SwitchGate(), start + 5)
        assert caught.value.reason == "timeout"
        assert trio.current_time() == pytest.approx(start + 5)
        await rig.net.peers[0].serve(answer())
        await trio.testing.wait_all_tasks_blocked()
        await rig.answered(answer())


async def test_a_place_handed_to_a_cancelled_task_is_not_lost():
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            holder, _ = rig.exchange()

            async def hold() -> None:
                with pytest.raises(WireClosed):
                    await holder.run(SwitchGate(), trio.current_time() + 60)

            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            scope = trio.CancelScope()

            async def wait() -> None:
                with scope:
                    await rig.call()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            # A held exchange gives its place back in this step, and the one it went to is cancelled.
            holder.wake()
            holder.close()
            await trio.lowlevel.checkpoint()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert rig.link.statistics().active == 0
            assert all(lane.used == 0 for lane in rig.link._lanes.values())
            await rig.answered(answer(), number=len(rig.net.peers))


async def test_an_answer_that_is_complete_before_its_end_returns_and_its_tail_is_read_later():
    with trio.fail_after(5):
        async with Rig() as rig:
            [sink] = await rig.answered(CHUNKED + b"5\r\nhello\r\n", sink=Keeper(enough=5))
            assert sink.body == b"hello"
            assert rig.link.statistics().idle == 1
            await rig.net.peers[0].send(b"0\r\n\r\n")
            await rig.answered(answer())
            assert rig.link.statistics().opened == 1


async def test_the_end_that_came_with_the_answer_leaves_no_tail():
    with trio.fail_after(5):
        async with Rig() as rig:
            more = CHUNKED + b"5\r\nhello\r\n6\r\nunread\r\n0\r\n\r\n"
            [sink] = await rig.answered(more, sink=Keeper(enough=5))
            assert sink.body == b"hello"
            [connection] = rig.link._idle
            assert connection.tail_since is None
            await rig.answered(answer())
            assert rig.link.statistics().opened == 1


async def test_a_tail_that_stays_open_is_passed_over_and_after_a_second_closed(autojump_clock):
    async with Rig(limit=1) as rig:
        await rig.answered(CHUNKED + b"5\r\nhello\r\n", sink=Keeper(enough=5))
        await trio.sleep(0.9)
        await rig.answered(answer(), number=1)
        assert rig.link.statistics().idle == 2
        await trio.sleep(0.2)
        rig.link.prune()
        assert rig.link.statistics().idle == 1
        assert await rig.net.peers[0].closed_by_client()
        await rig.answered(answer(), number=1)


async def test_a_tail_that_ended_long_ago_is_read_and_the_connection_used(autojump_clock):
    async with Rig() as rig:
        await rig.answered(CHUNKED + b"5\r\nhello\r\n", sink=Keeper(enough=5))
        await rig.net.peers[0].send(b"0\r\n\r\n")
        await trio.sleep(3)
        await rig.answered(answer())
        assert rig.link.statistics().opened == 1


@pytest.mark.parametrize(
    "tail",
    [
        b"%x\r\n" % (MAX_TAIL + 1) + b"t" * (MAX_TAIL + 1) + b"\r\n0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"0\r\n\r\nHTTP/1.1 200 OK\r\n",
    ],
    ids=["long", "bad", "garbage-behind"],
)
async def test_a_bad_tail_costs_the_connection(tail):
    with trio.fail_after(5):
        async with Rig() as rig:
            await rig.answered(CHUNKED + b"5\r\nhello\r\n", sink=Keeper(enough=5))
            await rig.net.peers[0].send(tail)
            [sink] = await rig.answered(answer(b"clean"), number=1)
            assert sink.body == b"clean"
            assert rig.link.statistics().idle == 1, "the bad one is closed at once"
            assert rig.link.statistics().idle == 1


async def test_open_tails_make_room_for_new_connections():
    with trio.fail_after(5):
        async with Rig(limit=1) as rig:
            for number in range(8):
                await rig.answered(CHUNKED + b"5\r\nhello\r\n", number=number, sink=Keeper(enough=5))
                # One place and the three of the other lanes.
                assert rig.link.statistics().idle <= 4
            assert await rig.net.peers[0].closed_by_client()


async def test_prune_closes_what_is_too_old(autojump_clock):
    async with Rig() as rig:
        await rig.answered(answer())
        rig.link.prune()
        assert rig.link.statistics().idle == 1
        await trio.sleep(4.5)
        rig.link.prune()
        assert rig.link.statistics().idle == 0
        assert await rig.net.peers[0].closed_by_client()


async def test_closing_the_link_closes_everything_at_once():
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            await rig.answered(answer())
            ended: list[bool] = []

            async def call(lane: str) -> None:
                with pytest.raises(WireClosed) as caught:
                    await rig.call(lane=lane)
                ended.append(caught.value.local)

            held, _ = rig.exchange(lane="control")
            nursery.start_soon(call, "stream")
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(2):
                nursery.start_soon(call, "call")
            await trio.testing.wait_all_tasks_blocked()

            async def leave_held() -> None:
                with trio.move_on_after(0.01):
                    await held.run(SwitchGate(), trio.current_time() + 60)

            await leave_held()
            assert held.held
            rig.link.close()
            rig.link.close()
            await trio.testing.wait_all_tasks_blocked()
            assert ended == [True] * 3
            with pytest.raises(WireClosed):
                await rig.call()
            for peer in rig.net.peers:
                while data := await peer.stream.receive_some():
                    assert data.startswith(b"POST")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["answer", "close", "chunked", "cancel", "garbage", "early"]), max_size=12))
def test_whatever_the_server_does_each_call_gets_its_own_answer_and_nothing_leaks(script):
    async def run() -> None:
        with trio.fail_after(10):
            async with Rig(limit=1) as rig:
                for number, step in enumerate(script):
                    await _one_call(rig, b"answer %d" % number, step)
                    statistics = rig.link.statistics()
                    assert (statistics.active, statistics.waiting) == (0, 0)
                    assert statistics.idle <= 4
                    assert all(lane.used == 0 for lane in rig.link._lanes.values())

    trio.run(run)


async def _one_call(rig: Rig, body: bytes, step: str) -> None:
    sink = Keeper(enough=len(body) if step == "early" else float("inf"))
    exchange, _ = rig.exchange(sink=sink)
    scope = trio.CancelScope()
    chunked = CHUNKED + b"%x\r\n%b\r\n" % (len(body), body)

    async def call() -> None:
        with scope:
            await exchange.run(SwitchGate(), trio.current_time() + 60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        connection = exchange._connection
        assert connection is not None
        peer = rig.net.peers[rig.net.ours.index(connection.wire._sock)]
        await peer.request()
        if step == "cancel":
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert exchange.held
            nursery.start_soon(exchange.finish)
        if step in {"answer", "cancel"}:
            await peer.send(answer(body))
        elif step == "close":
            await peer.send(answer(body, b"connection: close"))
        elif step == "chunked":
            await peer.send(chunked + b"0\r\n\r\n")
        elif step == "garbage":
            await peer.send(answer(body) + b"garbage")
        else:
            await peer.send(chunked)
    assert sink.body == body
