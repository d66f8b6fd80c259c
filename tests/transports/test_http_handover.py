"""An exchange outlives its task: cancelled or woken after the first byte, finished or closed by another."""

from __future__ import annotations

import pytest
import trio

from afpool.transports._http import HttpExchange, HttpRequest
from afpool.transports._wire import WireClosed, Woken
from tests.transports.http_kit import Keeper, Peer, Rig, answer
from tests.transports.wire_kit import SwitchGate


async def _start(rig: Rig, nursery: trio.Nursery, exchange: HttpExchange, log: list[str]) -> trio.CancelScope:
    """Run it in a task that can be cancelled; the log says how it came back."""
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            try:
                await exchange.run(SwitchGate(), trio.current_time() + 60)
                log.append("answered")
            except Woken:
                log.append("woken")
            except WireClosed as error:
                log.append("closed here" if error.local else "closed there")
            except trio.Cancelled:
                log.append("cancelled")
                raise

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    return scope


@pytest.mark.parametrize("how", ["cancelled", "woken"])
@pytest.mark.parametrize("when", ["before-head", "inside-body"])
async def test_another_task_finishes_what_was_begun(how, when):
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            log: list[str] = []
            exchange, sink = rig.exchange()
            scope = await _start(rig, nursery, exchange, log)
            peer = await rig.net.peer()
            await peer.request()
            data = answer(b"late answer")
            cut = 0 if when == "before-head" else len(data) - 4
            if cut:
                await peer.send(data[:cut])
                await trio.testing.wait_all_tasks_blocked()
            if how == "woken":
                exchange.wake()
            else:
                scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert log == [how]
            assert (exchange.begun, exchange.held, exchange.complete) == (True, True, False)
            # It keeps its connection and its place: the next call waits for it.
            other: list[Keeper] = []

            async def call() -> None:
                other.append(await rig.call())

            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            assert rig.link.statistics().waiting == 1
            assert len(rig.net.peers) == 1
            nursery.start_soon(exchange.finish)
            await trio.testing.wait_all_tasks_blocked()
            await peer.send(data[cut:])
            await peer.serve(answer(b"next"))
            await trio.testing.wait_all_tasks_blocked()
            assert exchange.complete
            assert sink.body == b"late answer"
            # The same connection served the one that waited.
            assert other[0].body == b"next"
            assert len(rig.net.peers) == 1


async def test_finishing_can_be_interrupted_and_taken_up_again():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:
            log: list[str] = []
            exchange, sink = rig.exchange()
            await _start(rig, nursery, exchange, log)
            exchange.wake()
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(3):
                with trio.move_on_after(0):
                    await exchange.finish()
                assert exchange.held
            peer = await rig.net.peer()
            nursery.start_soon(exchange.finish)
            await peer.serve(answer(b"at last"))
            await trio.testing.wait_all_tasks_blocked()
            assert sink.body == b"at last"
            assert rig.link.statistics().idle == 1


async def test_a_held_exchange_that_is_closed_gives_everything_back():
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            log: list[str] = []
            exchange, _ = rig.exchange()
            await _start(rig, nursery, exchange, log)
            exchange.wake()
            await trio.testing.wait_all_tasks_blocked()
            exchange.close()
            assert not exchange.held
            peer = await rig.net.peer()
            await peer.request()
            assert await peer.closed_by_client()
            await rig.answered(answer(), number=1)


async def test_closing_ends_the_running_task_at_once():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:
            log: list[str] = []
            exchange, _ = rig.exchange()
            await _start(rig, nursery, exchange, log)
            exchange.close()
            await trio.testing.wait_all_tasks_blocked()
            assert log == ["closed here"]
            assert (exchange.held, rig.link.statistics().active) == (False, 0)
            rig.net.hang = True
            connecting, _ = rig.exchange()
            await _start(rig, nursery, connecting, log)
            connecting.close()
            await trio.testing.wait_all_tasks_blocked()
            assert log == ["closed here", "closed here"]
            assert not connecting.begun


@pytest.mark.parametrize("how", ["cancelled", "woken"])
async def test_a_request_written_in_part_ends_with_its_connection(how):
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:
            log: list[str] = []
            exchange, _ = rig.exchange(HttpRequest(b"POST", b"/", [], b"x" * 3_000_000))
            scope = await _start(rig, nursery, exchange, log)
            if how == "woken":
                exchange.wake()
            else:
                scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert log == [how]
            assert (exchange.begun, exchange.held) == (True, True)
            with pytest.raises(WireClosed) as caught:
                await exchange.finish()
            assert caught.value.local
            assert not exchange.held
            peer: Peer = await rig.net.peer()
            got = 0
            while data := await peer.stream.receive_some():
                got += len(data)
            assert 0 < got < 3_000_000
            assert rig.link.statistics().active == 0


async def test_cancelled_before_a_byte_left_the_place_and_the_connection_are_free():
    """The kernel takes nothing, so nothing has begun; a second gate would be asked before it does."""
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            await rig.answered(answer())
            [connection] = rig.link._idle
            from tests.transports.wire_kit import fill

            await fill(connection.wire)
            log: list[str] = []
            exchange, _ = rig.exchange()
            scope = await _start(rig, nursery, exchange, log)
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert log == ["cancelled"]
            assert (exchange.begun, exchange.held) == (False, False)
            assert rig.link.statistics().active == 0
            assert rig.link.statistics().idle == 1


async def test_a_cancelled_call_comes_back_at_once_and_the_late_answer_frees_its_place(autojump_clock):
    async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
        exchange, sink = rig.exchange()

        async def serve() -> None:
            peer = await rig.net.peer()
            await peer.request()
            await trio.sleep(30)
            await peer.send(answer(b"late"))
            await peer.serve(answer(b"second"))

        nursery.start_soon(serve)
        start = trio.current_time()
        with trio.move_on_after(0.05) as scope:
            await exchange.run(SwitchGate(), start + 60)
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(0.05)
        nursery.start_soon(exchange.finish)
        second = await rig.call()
        assert trio.current_time() - start == pytest.approx(30)
        assert (sink.body, second.body) == (b"late", b"second")
        assert len(rig.net.peers) == 1
