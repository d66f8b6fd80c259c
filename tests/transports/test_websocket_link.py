"""The WebSocket link: gates and frames, what a peer may send, pings, and how it ends."""

from __future__ import annotations

import contextlib
import contextvars
import json
import socket

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed
from wsproto.events import Pong

from afpool._base.errors import StaleTools
from afpool._base.gate import OpenGate
from afpool.transports._tls import TlsWire
from afpool.transports._websocket import MAX_PARTS
from afpool.transports._wire import SocketWire, WireClosed
from afpool.transports._ws_ends import PING_EVERY, PONG_WITHIN
from tests.transports.wire_kit import SwitchGate
from tests.transports.ws_kit import MAX, held

BIG = json.dumps({"big": "x" * 400_000}).encode()


class Stubborn(SocketWire):
    """A kernel that takes nothing while it is full, and lets itself be waited for meanwhile."""

    __slots__ = ("broken", "full", "opened")

    def fill(self) -> None:
        self.full = True
        self.opened = trio.Event()

    def drain(self) -> None:
        self.full = False
        self.opened.set()

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        if getattr(self, "broken", False):
            raise WireClosed("broken pipe", local=False)
        return 0 if getattr(self, "full", False) else super()._write(data)

    async def writable(self) -> None:
        await self.opened.wait()


class StubbornTls(TlsWire):
    __slots__ = ("full", "opened")
    fill = Stubborn.fill
    drain = Stubborn.drain

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        return 0 if getattr(self, "full", False) else super()._write(data)

    async def writable(self) -> None:
        if getattr(self, "full", False):
            await self.opened.wait()
        else:
            await super().writable()


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


# ---------------------------------------------------------------------------- sending


async def test_one_message_is_one_text_message_in_order():
    async with held() as h:
        for number in range(5):
            h.submit(b'{"n":%d,"t":"\xc3\xa4"}' % number, OpenGate())
        got = [await h.server.get_message() for _ in range(5)]
        assert got == [f'{{"n":{number},"t":"ä"}}' for number in range(5)]
        assert h.link.waiting == 0
        assert h.link.subprotocol == "mcp"


@pytest.mark.parametrize("tls", [False, True])
async def test_a_refused_message_leaves_nothing_and_the_connection_goes_on(tls):
    async with held(tls=tls) as h:
        closed = SwitchGate(closed=True)
        refused = h.submit(b'{"a":1}', closed)
        h.submit(b'{"b":2}', OpenGate())
        assert await h.server.get_message() == '{"b":2}'
        assert isinstance(refused.refusal, StaleTools)
        assert (refused.begun, closed.begun) == (False, 0)
        assert h.gone == [refused]
        assert closed.asked == ["write"]
        assert not h.link.ended


async def test_the_gate_is_asked_in_the_context_of_its_call():
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="writer")
    seen: list[str] = []

    class Looking(SwitchGate):
        def ask(self, stage: str, /) -> None:
            seen.append(var.get())

    async with held() as h:
        context = contextvars.copy_context()
        context.run(var.set, "call")
        h.submit(b"{}", Looking(), context)
        h.submit(b"{}", Looking())
        await settled()
        assert seen == ["call", "writer"]


async def test_a_gate_that_closes_while_the_kernel_takes_nothing_keeps_its_frame_back():
    async with held(make_wire=Stubborn) as h:
        assert isinstance(h.wire, Stubborn)
        h.wire.fill()
        gate = SwitchGate()
        message = h.submit(b'{"a":1}', gate)
        h.submit(b'{"b":2}', OpenGate())
        await settled()
        assert gate.asked == ["write"]
        gate.closed = True
        h.wire.drain()
        assert await h.server.get_message() == '{"b":2}'
        assert gate.asked == ["write", "write"]
        assert (message.begun, h.gone) == (False, [message])
        assert not h.link.ended


async def test_withdrawn_before_its_first_byte_a_message_never_leaves():
    async with held(make_wire=Stubborn) as h:
        assert isinstance(h.wire, Stubborn)
        h.wire.fill()
        gate = SwitchGate()
        parked = h.submit(b'{"a":1}', gate)
        behind = h.submit(b'{"b":2}', OpenGate())
        h.submit(b'{"c":3}', OpenGate())
        await settled()
        assert h.link.withdraw(parked)
        assert h.link.withdraw(behind)
        h.wire.drain()
        assert await h.server.get_message() == '{"c":3}'
        assert gate.asked == ["write"], "nobody asks for a message that was taken back"
        assert not h.link.ended


async def test_a_frame_that_has_begun_is_finished_although_its_gate_closes():
    async with held(small=True) as h:
        for _ in range(2):
            h.submit(b"{}", OpenGate())  # as many as the peer takes without being asked
        gate = SwitchGate()
        message = h.submit(BIG, gate)
        await settled()
        assert message.begun
        assert not message.done
        gate.closed = True
        assert not h.link.withdraw(message)
        assert [await h.server.get_message() for _ in range(3)][2] == BIG.decode()
        await settled()
        assert message.done
        assert gate.asked == ["write"]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("ending", ["refused", "withdrawn"])
async def test_under_tls_a_frame_that_was_encrypted_costs_the_connection(ending, alone, monkeypatch):
    monkeypatch.setattr("tests.transports.ws_kit.TlsWire", StubbornTls)
    async with held(tls=True) as h:
        assert isinstance(h.wire, StubbornTls)
        h.wire.fill()
        gate = SwitchGate()
        message = h.submit(b'{"a":1}', gate)
        behind = [] if alone else [h.submit(b'{"b":2}', OpenGate())]
        await settled()
        assert gate.asked == ["write"]
        if ending == "refused":
            gate.closed = True
        else:
            assert h.link.withdraw(message)
        h.wire.drain()
        await settled()
        assert h.link.ended
        assert len(h.lost) == 1
        assert not any(each.begun for each in [message, *behind])
        assert h.gone == ([message] if ending == "refused" else [])
        with pytest.raises(WireClosed):
            h.submit(b"{}", OpenGate())
        with contextlib.suppress(ConnectionClosed, trio.BrokenResourceError):
            pytest.fail(f"the peer got {await h.server.get_message()!r}")


async def test_a_gate_that_closes_the_link_lets_nothing_out():
    async with held() as h:

        class Closing(SwitchGate):
            def ask(self, stage: str, /) -> None:
                h.link.close()

        message = h.submit(b"{}", Closing())
        await settled()
        assert not message.begun
        assert h.lost == ["closed by this side"]
        with pytest.raises(ConnectionClosed):
            await h.server.get_message()


async def test_inside_a_gate_a_message_cannot_be_taken_back():
    async with held() as h:
        said: list[bool] = []

        class Withdrawing(SwitchGate):
            def ask(self, stage: str, /) -> None:
                said.append(h.link.withdraw(message))

        message = h.submit(b"{}", Withdrawing())
        assert await h.server.get_message() == "{}"
        assert said == [False]


async def test_pongs_pass_while_a_gate_is_closed_and_ask_none():
    async with held(make_wire=Stubborn) as h:
        assert isinstance(h.wire, Stubborn)
        gate = SwitchGate(closed=True)
        h.submit(b'{"a":1}', gate)
        with trio.fail_after(5):
            await h.server.ping(b"now")
        assert gate.asked == ["write"]


# ---------------------------------------------------------------------------- receiving


async def test_text_is_handed_over_and_everything_else_is_dropped_and_counted():
    async with held() as h:
        for message in ('{"a":1}', "npm notice", b'{"binary":1}', "", ' [{"b":"ä"}]', "\u2028"):
            await h.server.send_message(message)
        await settled()
        assert h.lines == [b'{"a":1}', ' [{"b":"ä"}]'.encode()]
        assert h.link.skipped == 4
        assert not h.link.ended


async def test_a_message_in_fragments_is_one_message():
    async with held() as h:
        for head, part in ((0x01, b'{"a"'), (0x89, b"ping"), (0x00, b":"), (0x80, b"1}")):
            await h.raw.send_all(bytes([head, len(part)]) + part)
        await settled()
        assert h.lines == [b'{"a":1}']


@pytest.mark.parametrize("text", ['{"x":"%s"}' % ("y" * MAX), '{"x":"%s"}' % ("ä" * (MAX // 2))])
async def test_a_message_beyond_the_cap_ends_the_stream(text):
    async with held() as h:
        await h.server.send_message('{"before":1}')
        await h.server.send_message(text)
        await settled()
        assert h.lines == [b'{"before":1}']
        assert len(h.lost) == 1
        assert "longer than 100000 bytes" in h.lost[0]


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x02\xff\xff",
        b"\x83\x00",
        b"\xc1\x01x",
        b"\x81\x81\x00\x00\x00\x00{",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_lost_and_nothing_is_raised(data):
    async with held() as h:
        await h.raw.send_all(data)
        await settled()
        assert len(h.lost) == 1
        assert h.lines == []


async def test_endless_empty_fragments_end_the_stream():
    async with held() as h:
        await h.raw.send_all(b"\x01\x01{")
        sent = 0
        with contextlib.suppress(trio.BrokenResourceError):
            while not h.lost and sent < 100_000:
                await h.raw.send_all(b"\x00\x00" * 1000)
                sent += 1000
                await settled()
        assert h.lost == ["a message came in too many pieces"]
        assert sent <= MAX_PARTS + MAX // 256 + 70_000


async def test_a_callback_that_raises_ends_the_stream_and_is_kept():
    async with held() as h:
        h.link._on_line = lambda line: {}[line]  # type: ignore[assignment]
        await h.server.send_message("{}")
        await settled()
        assert isinstance(h.link.fault, KeyError)
        assert h.lost == ["the stream failed inside: KeyError"]


# ---------------------------------------------------------------------------- pings


async def test_a_peer_that_answers_pings_stays_and_a_silent_one_is_lost(autojump_clock):
    async with held(seconds=1000) as h:
        send = h.server._send
        pongs: list[float] = []

        async def counting(event):
            if isinstance(event, Pong):
                pongs.append(trio.current_time())
                if len(pongs) > 3:
                    return
            await send(event)

        h.server._send = counting
        start = trio.current_time()
        await trio.sleep(3 * PING_EVERY + 1)
        assert not h.link.ended
        assert [round(at - start) for at in pongs] == [20, 40, 60]
        await trio.sleep(PING_EVERY + PONG_WITHIN)
        assert h.lost == ["the peer did not answer a ping within 20 s"]


# ---------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1000, "the peer closed the WebSocket (1000)"),
        (1001, "the peer closed the WebSocket (1001)"),
        (1011, "the WebSocket was lost (close code 1011)"),
        (4001, "the WebSocket was lost (close code 4001)"),
    ],
)
async def test_a_close_of_the_peer_says_how_and_never_its_words(code, words):
    async with held() as h:
        begun = h.submit(b'{"a":1}', OpenGate())
        await h.server.send_message('{"last":1}')
        await h.server.aclose(code, "token=secret")
        await settled()
        assert h.lost == [words]
        assert h.lines == [b'{"last":1}'], "what came before the end was handed over"
        assert begun.begun
        with pytest.raises(WireClosed):
            h.submit(b"{}", OpenGate())


async def test_a_connection_that_breaks_is_a_loss():
    async with held() as h:
        await h.server.send_message('{"last":1}')
        await trio.aclose_forcefully(h.raw)
        await settled()
        assert h.lost == ["the WebSocket was lost (close code 1006)"]
        assert h.lines == [b'{"last":1}']


async def test_what_a_peer_said_before_it_stopped_taking_bytes_is_still_read(autojump_clock):
    async with held(make_wire=Stubborn) as h:
        assert isinstance(h.wire, Stubborn)
        h.wire.broken = True
        message = h.submit(b'{"a":1}', OpenGate())
        await trio.sleep(0.1)
        await h.server.send_message('{"late":1}')
        await trio.sleep(0.1)
        assert h.lines == [b'{"late":1}']
        assert not message.begun
        await trio.sleep(1)
        assert h.lost == ["the peer takes no more bytes"]


async def test_leaving_in_order_sends_a_close_frame_and_waits_for_the_peers():
    async with held() as h:
        h.nursery.start_soon(h.link.aclose, trio.current_time() + 5)
        with pytest.raises(ConnectionClosed) as caught:
            await h.server.get_message()
        assert caught.value.reason is not None
        assert caught.value.reason.code == 1000
        await settled()
        assert h.lost == ["closed by this side"]
        assert h.link.fault is None


async def test_leaving_a_peer_that_does_not_answer_takes_no_longer_than_agreed(autojump_clock):
    async with held() as h:
        h.server._reader_running = False
        await h.server.send_message("{}")
        start = trio.current_time()
        await h.link.aclose(start + 60)
        assert trio.current_time() - start == pytest.approx(1.0)
        await settled()
        assert h.lost == ["closed by this side"]


async def test_after_our_close_frame_no_message_leaves():
    async with held(make_wire=Stubborn) as h:
        assert isinstance(h.wire, Stubborn)
        h.wire.fill()
        first = h.submit(b'{"a":1}', OpenGate())
        await settled()
        h.nursery.start_soon(h.link.aclose, trio.current_time() + 5)
        await settled()
        with pytest.raises(WireClosed):
            h.submit(b"{}", OpenGate())
        h.wire.drain()
        await settled()
        assert first.done, "it was in front of the close"
        assert len(h.lost) == 1


async def test_cancelled_the_link_closes_its_wire_and_tells_the_end():
    async with held() as h:
        message = h.submit(BIG, OpenGate())
        h.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await settled()
        assert h.lost == ["cancelled"]
        assert h.wire.closed
        assert isinstance(message.begun, bool)


async def test_a_link_is_opened_once():
    async with held() as h:
        ours, theirs = socket.socketpair()
        with pytest.raises(RuntimeError):
            await h.link.open(
                SocketWire(ours),
                authority="a",
                target="/",
                headers=[],
                subprotocols=(),
                spawn=h.nursery.start_soon,
            )
        ours.close()
        theirs.close()
