"""The last gate: asked in the step of the write, on every kind of wire."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed

from afpool._base.errors import StaleTools
from afpool._base.gate import OpenGate
from afpool.transports._tls import TlsWire
from afpool.transports._wire import Outgoing, SocketWire, Wire, WireClosed
from tests.transports.wire_kit import KINDS, KernelSpy, Pair, SwitchGate, fill, make_pair, small_buffers
from tests.transports.ws_kit import held

TRIALS = 200
REQUEST = b"x" * 300


async def _rival_trials(spy: KernelSpy, wire: Wire, send: Any) -> tuple[int, int]:
    """How many of the trials left on a closed gate, and in how many the rival had its turn."""
    left = 0
    rivals = 0
    for _ in range(TRIALS):
        gate = SwitchGate()
        closed_at_write: list[bool] = []
        async with trio.open_nursery() as nursery:
            notice = trio.Event()

            async def rival(notice: trio.Event = notice, gate: SwitchGate = gate) -> None:
                await notice.wait()
                gate.closed = True

            nursery.start_soon(rival)
            await trio.testing.wait_all_tasks_blocked()
            spy.seen = lambda seen=closed_at_write, gate=gate: seen.append(gate.closed)
            # The rival is runnable from here on: it runs at the first checkpoint of the sender.
            notice.set()
            await send(wire, gate)
            spy.seen = None
        left += bool(closed_at_write and closed_at_write[0])
        rivals += gate.closed
    return left, rivals


async def _drained(pair: Pair, nursery: trio.Nursery) -> None:
    async def drain() -> None:
        while await pair.read():
            pass

    nursery.start_soon(drain)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_request_leaves_on_a_gate_that_a_rival_closed(kind, monkeypatch):
    with trio.fail_after(30):
        pair = await make_pair(kind)
        spy = KernelSpy(monkeypatch)
        async with trio.open_nursery() as nursery:
            await _drained(pair, nursery)

            async def send(wire: Wire, gate: SwitchGate) -> None:
                await wire.send(REQUEST, gate)

            assert await _rival_trials(spy, pair.wire, send) == (0, TRIALS)
            nursery.cancel_scope.cancel()
        pair.wire.close()
        await pair.close_peer()


async def test_the_rival_is_seen_when_a_wire_waits_between_gate_and_write(monkeypatch):
    """The control: with a checkpoint between the two, the trial above finds the hole."""
    with trio.fail_after(30):
        pair = await make_pair("socket")
        spy = KernelSpy(monkeypatch)
        async with trio.open_nursery() as nursery:
            await _drained(pair, nursery)

            async def send(wire: Wire, gate: SwitchGate) -> None:
                gate.ask("write")
                await trio.lowlevel.checkpoint()
                wire.push([Outgoing(REQUEST, OpenGate())])

            left, rivals = await _rival_trials(spy, pair.wire, send)
            assert rivals == TRIALS
            assert left > 0
            nursery.cancel_scope.cancel()
        pair.wire.close()
        await pair.close_peer()


@pytest.mark.parametrize("tls", [False, True], ids=["ws", "wss"])
async def test_no_frame_leaves_on_a_gate_that_a_rival_closed(tls, monkeypatch):
    """As above, through the WebSocket library, whose own send runs a checkpoint before it writes."""
    async with held(tls=tls, seconds=30) as h:
        spy = KernelSpy(monkeypatch)

        async def send(wire: Wire, gate: SwitchGate) -> None:
            message = h.submit(b"{}", gate)
            while not message.done and message.refusal is None:
                await trio.lowlevel.checkpoint()

        assert await _rival_trials(spy, h.wire, send) == (0, TRIALS)
        assert not h.link.ended


async def test_the_rival_is_seen_when_the_gate_is_asked_above_the_library(monkeypatch):
    """The control for WebSocket: whoever asks and then lets the library send has not asked last."""
    async with held(seconds=30) as h:
        spy = KernelSpy(monkeypatch)

        async def swallow() -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await h.server.get_message()

        h.nursery.start_soon(swallow)

        async def send(wire: Wire, gate: SwitchGate) -> None:
            gate.ask("write")
            message = h.submit(b"{}", OpenGate())
            while not message.done:
                await trio.lowlevel.checkpoint()

        left, rivals = await _rival_trials(spy, h.wire, send)
        assert rivals == TRIALS
        assert left > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_gate_refuses_and_the_wire_stays_good(kind):
    with trio.fail_after(5):
        pair = await make_pair(kind)
        gate = SwitchGate(closed=True)
        with pytest.raises(StaleTools):
            await pair.wire.send(REQUEST, gate)
        assert gate.asked == ["write"]
        assert gate.begun == 0
        await pair.wire.send(b"next", OpenGate())
        assert await pair.read_exactly(4) == b"next"
        pair.wire.close()
        await pair.close_peer()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_large_message_goes_out_in_parts_and_asks_once(kind):
    with trio.fail_after(10):
        pair = await make_pair(kind)
        gate = SwitchGate()
        message = os.urandom(700_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.wire.send, message, gate)
            await trio.testing.wait_all_tasks_blocked()
            assert gate.begun == 1, "the kernel took a part"
            # Once it has begun, a message is finished, whatever its gate says now.
            gate.closed = True
            assert await pair.read_exactly(len(message)) == message
        assert gate.asked == ["write"]
        assert gate.begun == 1
        pair.wire.close()
        await pair.close_peer()


@pytest.mark.parametrize("kind", ["socket", "pipe"])
async def test_the_gate_is_asked_again_when_the_kernel_took_nothing(kind):
    with trio.fail_after(5):
        pair = await make_pair(kind)
        filled = await fill(pair.wire)
        gate = SwitchGate()
        raised: list[BaseException] = []

        async def sender() -> None:
            try:
                await pair.wire.send(REQUEST, gate)
            except StaleTools as error:
                raised.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender)
            await trio.testing.wait_all_tasks_blocked()
            assert gate.asked == ["write"]
            gate.closed = True
            assert await pair.read_exactly(filled) == b"f" * filled
        assert len(raised) == 1
        assert gate.asked == ["write", "write"]
        assert gate.begun == 0
        # Nothing of it left, and the wire is as good as before.
        await pair.wire.send(b"after", OpenGate())
        assert await pair.read_exactly(5) == b"after"
        pair.wire.close()
        await pair.close_peer()


class _StubbornWire(TlsWire):
    """A kernel that takes nothing while `full` is set, or as much as there is `room`."""

    __slots__ = ("full", "room")

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        if getattr(self, "full", False):
            return 0
        return super()._write(bytes(data)[: getattr(self, "room", None)])


async def _stubborn_pair() -> tuple[_StubbornWire, trio.SSLStream[trio.SocketStream]]:
    from tests.transports.wire_kit import CLIENT_CONTEXT, SERVER_CONTEXT

    ours, theirs = socket.socketpair()
    server = trio.SSLStream(
        trio.SocketStream(trio.socket.from_stdlib_socket(theirs)), SERVER_CONTEXT, server_side=True
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        wire = await _StubbornWire.handshake(SocketWire(ours), CLIENT_CONTEXT, "localhost")
    assert isinstance(wire, _StubbornWire)
    return wire, server


async def test_tls_a_gate_that_closes_over_an_encrypted_record_costs_the_connection():
    with trio.fail_after(5):
        wire, server = await _stubborn_pair()
        wire.full = True
        gate = SwitchGate()
        message = Outgoing(REQUEST, gate)
        assert wire.push([message]) == 0
        assert not wire.alive(), "a record waits in it that cannot be taken back"
        gate.closed = True
        assert wire.push([message]) == 0
        assert isinstance(message.refusal, StaleTools)
        assert gate.begun == 0
        wire.full = False
        with pytest.raises(WireClosed) as caught:
            wire.push([Outgoing(b"another", OpenGate())])
        assert caught.value.local
        assert not wire.alive()
        wire.close()
        # The server saw the end and not one byte of the request.
        with contextlib.suppress(trio.BrokenResourceError):  # some builds of OpenSSL read a cut as an end
            assert await server.receive_some(100) == b""
        await trio.aclose_forcefully(server)


async def test_tls_a_refused_head_stops_the_batch_behind_it():
    with trio.fail_after(5):
        wire, server = await _stubborn_pair()
        wire.full = True
        batch = [Outgoing(REQUEST, SwitchGate()), Outgoing(b"behind", SwitchGate())]
        assert wire.push(batch) == 0
        assert batch[1].gate.asked == [], "one message at a time is encrypted"
        batch[0].gate.closed = True
        assert wire.push(batch) == 0
        assert isinstance(batch[0].refusal, StaleTools)
        assert batch[1].gate.asked == []
        with pytest.raises(WireClosed):
            wire.push(batch)
        wire.close()
        await trio.aclose_forcefully(server)


async def test_tls_what_the_protocol_says_goes_out_first_and_begins_no_message():
    with trio.fail_after(5):
        wire, server = await _stubborn_pair()
        wire._unsent += b"protocol"
        gate = SwitchGate()
        message = Outgoing(REQUEST, gate)
        wire.full = True
        assert wire.push([message]) == 0
        assert wire.alive(), "nothing of a request waits in it"
        wire.full = False
        wire.room = 5
        assert wire.push([message]) == 5
        assert (message.begun, gate.begun) == (False, 0)
        gate.closed = True
        assert wire.push([message]) == 0
        assert isinstance(message.refusal, StaleTools)
        wire.room = None
        following = SwitchGate()
        assert wire.push([Outgoing(b"next", following)]) > 0
        assert following.begun == 1
        raw = await server.transport_stream.receive_some(1000)
        assert raw[:8] == b"protocol"
        assert raw[8] == 23, "then one record of application data"
        wire.close()
        await trio.aclose_forcefully(server)


async def test_tls_a_gate_that_stays_open_lets_the_encrypted_record_out():
    with trio.fail_after(5):
        wire, server = await _stubborn_pair()
        wire.full = True
        gate = SwitchGate()
        message = Outgoing(REQUEST, gate)
        assert wire.push([message]) == 0
        assert (message.begun, gate.begun) == (False, 0)
        wire.full = False
        assert wire.push([message]) > 0
        assert message.done
        assert gate.asked == ["write", "write"]
        assert gate.begun == 1
        assert await server.receive_some(1000) == REQUEST
        wire.close()
        await trio.aclose_forcefully(server)


async def test_tls_a_record_that_was_given_up_spoils_the_wire_for_the_next_message():
    with trio.fail_after(5):
        wire, server = await _stubborn_pair()
        wire.full = True
        with trio.move_on_after(0):
            await wire.send(REQUEST, OpenGate())
        wire.full = False
        with pytest.raises(WireClosed):
            await wire.send(b"another", OpenGate())
        wire.close()
        await trio.aclose_forcefully(server)


async def test_a_peer_that_is_gone_is_said_so():
    with trio.fail_after(5):
        for kind in KINDS:
            pair = await make_pair(kind)
            await pair.close_peer()
            gate = SwitchGate()
            with pytest.raises(WireClosed) as caught:
                await pair.wire.send(REQUEST, gate)
            assert not caught.value.local
            assert gate.begun == 0
            pair.wire.close()


async def test_a_send_parked_on_a_full_kernel_can_be_woken_and_closed():
    with trio.fail_after(5):
        pair = await make_pair("socket")
        await fill(pair.wire)
        seen: list[str] = []
        gate = SwitchGate()

        async def sender() -> None:
            try:
                await pair.wire.send(REQUEST, gate)
            except Exception as error:
                seen.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender)
            await trio.testing.wait_all_tasks_blocked()
            pair.wire.wake()
            await trio.testing.wait_all_tasks_blocked()
            assert seen == ["Woken"]
            nursery.start_soon(sender)
            await trio.testing.wait_all_tasks_blocked()
            pair.wire.close()
        assert seen == ["Woken", "WireClosed"]
        assert gate.begun == 0
        await pair.close_peer()


async def test_a_gate_that_closes_the_wire_while_it_is_asked_lets_nothing_out():
    ours, theirs = socket.socketpair()
    small_buffers(ours, theirs)
    wire = SocketWire(ours)

    class Closing(SwitchGate):
        def ask(self, stage: str, /) -> None:
            wire.close()

    with pytest.raises(WireClosed) as caught:
        await wire.send(REQUEST, Closing())
    assert caught.value.local
    assert theirs.recv(10) == b""
    theirs.close()
