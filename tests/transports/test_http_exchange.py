"""One request: what is sent, what reaches the sink, what each way of ending leaves behind."""

from __future__ import annotations

import itertools
import socket

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool._base.errors import StaleTools
from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._http import BadHttp, HttpRequest, Truncated
from afpool.transports._wire import WireClosed, Woken
from tests.transports.http_kit import POST, Keeper, Rig, answer
from tests.transports.wire_kit import SwitchGate


async def test_a_request_and_its_answer():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:
            seen: list[bytes] = []

            async def serve() -> None:
                peer = await rig.net.peer()
                seen.append(await peer.request())
                await peer.send(answer(b"hello"))

            nursery.start_soon(serve)
            gate = SwitchGate()
            sink = await rig.call(gate=gate)
            assert (sink.status, sink.body) == (200, b"hello")
            assert (b"content-length", b"5") in sink.headers
            head, _, body = seen[0].partition(b"\r\n\r\n")
            assert head.split(b"\r\n") == [
                b"POST /mcp?x=1 HTTP/1.1",
                b"host: 127.0.0.1:8080",
                b"content-type: application/json",
                b"content-length: 8",
            ]
            assert body == b'{"id":1}'
            assert gate.asked == ["connect", "write"]
            assert gate.begun == 1


async def test_a_get_has_no_length():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:
            seen: list[bytes] = []

            async def serve() -> None:
                peer = await rig.net.peer()
                seen.append(await peer.request())
                await peer.send(answer(b"", status=b"405 Method Not Allowed"))

            nursery.start_soon(serve)
            sink = await rig.call(HttpRequest(b"GET", b"/mcp", []))
            assert sink.status == 405
            assert b"content-length" not in seen[0]


async def test_a_gate_that_closes_while_connecting_keeps_the_request_back():
    with trio.fail_after(5):
        async with Rig() as rig:
            gate = SwitchGate(closed=True)
            exchange, _ = rig.exchange()
            with pytest.raises(StaleTools):
                await exchange.run(gate, trio.current_time() + 60)
            assert gate.asked == ["connect"]
            assert (exchange.begun, exchange.held, gate.begun) == (False, False, 0)
            # The connection is as good as new and serves the next.
            assert rig.link.statistics().idle == 1
            await rig.answered(answer())
            assert len(rig.net.peers) == 1


async def test_a_gate_that_closes_before_the_write_keeps_the_request_back():
    class SecondThoughts(SwitchGate):
        def ask(self, stage: str, /) -> None:
            self.closed = stage == "write"
            super().ask(stage)

    with trio.fail_after(5):
        async with Rig() as rig:
            for _ in range(2):
                exchange, _ = rig.exchange()
                with pytest.raises(StaleTools):
                    await exchange.run(SecondThoughts(), trio.current_time() + 60)
                assert not exchange.begun
                assert rig.link.statistics().idle == 1
            [sink] = await rig.answered(answer(b"fine"))
            assert sink.body == b"fine"
            assert len(rig.net.peers) == 1


async def test_a_request_that_http_cannot_carry_is_refused_without_its_words():
    with trio.fail_after(5):
        async with Rig() as rig:
            exchange, _ = rig.exchange(
                HttpRequest(b"POST", b"/", [(b"authorization", b"secret\r\nx: y")], b"{}")
            )
            with pytest.raises(ValueError, match="cannot carry") as caught:
                await exchange.run(SwitchGate(), trio.current_time() + 60)
            error: BaseException | None = caught.value
            while error is not None:
                assert "secret" not in str(error)
                error = error.__cause__ or error.__context__
            await rig.answered(answer())
            assert len(rig.net.peers) == 1


async def test_interim_answers_are_passed_over():
    with trio.fail_after(5):
        async with Rig() as rig:
            interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
            [sink] = await rig.answered(interim + answer(b"final"))
            assert (sink.status, sink.body) == (200, b"final")


async def _fails(
    rig: Rig, data: bytes, *, then_close: bool = False, sink: Keeper | None = None
) -> BaseException:
    """The failure of a request that is answered so; checks that it cost its connection and nothing else."""
    exchange, _ = rig.exchange(sink=sink)
    caught: list[BaseException] = []
    number = len(rig.net.peers)

    async def serve() -> None:
        peer = await rig.net.peer(number)
        await peer.request()
        try:
            await peer.send(data)
        except trio.BrokenResourceError:
            return  # the client had seen enough, and closed before all of it was sent
        if then_close:
            await peer.close()
        else:
            assert await peer.closed_by_client()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            await exchange.run(SwitchGate(), trio.current_time() + 60)
        except Exception as error:
            caught.append(error)
    assert exchange.begun
    assert not exchange.held
    assert not exchange.complete
    assert rig.link.statistics().active == 0
    assert rig.link.statistics().idle == 0
    return caught[0]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: secret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nsecret\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n\r\nsecret",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 12_000,
    ],
    ids=["ssh", "http2", "101", "length", "chunks", "gzip", "head-open", "head-large", "interim-flood"],
)
async def test_what_is_not_http_is_bad_http_and_is_not_quoted(data):
    with trio.fail_after(5):
        async with Rig() as rig:
            error = await _fails(rig, data)
            assert type(error) is BadHttp
            link: BaseException | None = error
            while link is not None:
                assert "secret" not in str(link)
                assert "SSH" not in str(link)
                link = link.__cause__ or link.__context__


async def test_identity_is_no_content_encoding():
    with trio.fail_after(5):
        async with Rig() as rig:
            [sink] = await rig.answered(answer(b"plain", b"content-encoding: Identity"))
            assert sink.body == b"plain"


async def test_a_head_of_almost_the_limit_is_taken():
    with trio.fail_after(5):
        async with Rig() as rig:
            [sink] = await rig.answered(answer(b"ok", b"x: " + b"y" * 65_000))
            assert sink.body == b"ok"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n123",
    ],
    ids=["head", "length", "chunk", "in-chunk"],
)
async def test_an_answer_that_ends_early_is_truncated(data):
    with trio.fail_after(5):
        async with Rig() as rig:
            assert type(await _fails(rig, data, then_close=True)) is Truncated


@pytest.mark.parametrize(("sent", "kind"), [(answer(b"x" * 100)[:-50], Truncated), (b"", WireClosed)])
async def test_a_connection_that_breaks_inside_an_answer_is_truncated_as_well(sent, kind):
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await rig.net.peer()
                await trio.testing.wait_all_tasks_blocked()
                # Closed over an unread request, a socket pair breaks with a reset.
                if sent:
                    await peer.send(sent)
                await peer.close()

            nursery.start_soon(serve)
            exchange, _ = rig.exchange()
            with pytest.raises(kind):
                await exchange.run(SwitchGate(), trio.current_time() + 60)
            assert (exchange.begun, exchange.held) == (True, False)


async def test_no_answer_at_all_is_a_closed_wire():
    with trio.fail_after(5):
        async with Rig() as rig:
            error = await _fails(rig, b"", then_close=True)
            assert isinstance(error, WireClosed)
            assert not error.local


async def test_a_body_may_end_with_the_connection():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await rig.net.peer()
                await peer.request()
                await peer.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the ")
                await peer.send(b"end")
                await peer.close()

            nursery.start_soon(serve)
            sink = await rig.call()
            assert sink.body == b"until the end"
            assert rig.link.statistics().idle == 0


async def test_what_a_sink_raises_passes_and_costs_the_connection():
    class Full(Keeper):
        def data(self, chunk: bytes, /) -> bool:
            raise OverflowError("too large")

    with trio.fail_after(5):
        async with Rig() as rig:
            assert type(await _fails(rig, answer(b"x" * 100), sink=Full())) is OverflowError


async def test_an_early_answer_to_a_request_not_read_whole_counts():
    """A server may refuse a large request and close before it has read it; the refusal is an answer."""
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await rig.net.peer()
                assert await peer.stream.receive_some(1000)
                await peer.send(answer(b"too large", b"connection: close", status=b"413 Content Too Large"))
                # In one step: room for the writer, and nobody to read what it writes next.
                peer.sock.recv(1_000_000)
                peer.sock.shutdown(socket.SHUT_RD)

            nursery.start_soon(serve)
            sink = await rig.call(HttpRequest(b"POST", b"/", [], b"x" * 3_000_000))
            assert (sink.status, sink.body) == (413, b"too large")
            assert rig.link.statistics().idle == 0


async def test_a_request_not_read_whole_and_not_answered_is_a_closed_wire():
    with trio.fail_after(5):
        async with Rig() as rig, trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await rig.net.peer()
                assert await peer.stream.receive_some(1000)
                await peer.close()

            nursery.start_soon(serve)
            exchange, _ = rig.exchange(HttpRequest(b"POST", b"/", [], b"x" * 3_000_000))
            with pytest.raises(WireClosed) as caught:
                await exchange.run(SwitchGate(), trio.current_time() + 60)
            assert not caught.value.local
            assert (exchange.begun, exchange.held) == (True, False)


async def test_connecting_ends_at_the_deadline(autojump_clock):
    async with Rig() as rig:
        rig.net.hang = True
        exchange, _ = rig.exchange()
        with pytest.raises(ConnectFailed) as caught:
            await exchange.run(SwitchGate(), trio.current_time() + 7)
        assert caught.value.reason == "timeout"
        assert trio.current_time() == pytest.approx(autojump_clock.current_time())
        assert (exchange.begun, exchange.held) == (False, False)


async def test_a_refused_connection_is_a_failed_one():
    with trio.fail_after(5):
        async with Rig() as rig:
            rig.net.fail = ConnectionRefusedError(111, "Connection refused")
            exchange, _ = rig.exchange()
            with pytest.raises(ConnectFailed) as caught:
                await exchange.run(SwitchGate(), trio.current_time() + 7)
            assert caught.value.reason == "refused"
            assert rig.link.statistics().active == 0


async def test_an_exchange_runs_once_and_only_a_held_one_is_finished():
    with trio.fail_after(5):
        async with Rig() as rig:
            exchange, _ = rig.exchange()
            with pytest.raises(RuntimeError, match="held"):
                await exchange.finish()
            rig.net.fail = ConnectionRefusedError(111, "Connection refused")
            with pytest.raises(ConnectFailed):
                await exchange.run(SwitchGate(), 0)
            with pytest.raises(RuntimeError, match="once"):
                await exchange.run(SwitchGate(), 0)
            exchange.wake()
            exchange.close()


CHUNKED = b"".join(
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: 1\r\n\r\n",
        b"5\r\nhello\r\n1;ext=1\r\n \r\nb\r\nworld again\r\n0\r\nx-trailer: 1\r\n\r\n",
    ]
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=12), st.booleans())
def test_however_an_answer_is_cut_the_sink_gets_the_same(cuts, chunked):
    data = CHUNKED if chunked else answer(b"hello world again")

    async def run() -> None:
        with trio.fail_after(5):
            async with Rig() as rig, trio.open_nursery() as nursery:

                async def serve() -> None:
                    peer = await rig.net.peer()
                    await peer.request()
                    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
                    for start, end in itertools.pairwise(edges):
                        if start < end:
                            await peer.send(data[start:end])
                            await trio.testing.wait_all_tasks_blocked()

                nursery.start_soon(serve)
                sink = await rig.call()
                assert sink.body == b"hello world again"
                assert rig.link.statistics().idle == 1

    trio.run(run)


@pytest.mark.parametrize("moment", ["connecting", "handed-out"])
async def test_woken_before_a_byte_left_nothing_stays(moment):
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            exchange, _ = rig.exchange()
            raised: list[BaseException] = []

            async def run() -> None:
                with pytest.raises(Woken):
                    await exchange.run(SwitchGate(), trio.current_time() + 60)
                raised.append(Woken())

            if moment == "connecting":
                rig.net.hang = True
            else:
                # The only place is taken; the exchange waits for it.
                holder, _ = rig.exchange()

                async def hold() -> None:
                    with pytest.raises(WireClosed):
                        await holder.run(SwitchGate(), trio.current_time() + 60)

                nursery.start_soon(hold)
                await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            exchange.wake()
            await trio.testing.wait_all_tasks_blocked()
            assert len(raised) == 1
            assert (exchange.begun, exchange.held) == (False, False)
            if moment == "handed-out":
                holder.close()
                await trio.testing.wait_all_tasks_blocked()
            rig.net.hang = False
            assert rig.link.statistics().active == 0
            number = len(rig.net.peers)
            await rig.answered(answer(), number=number)


@pytest.mark.parametrize("how", ["woken", "closed"])
@pytest.mark.parametrize("moment", ["connected", "handed-out"])
async def test_a_wake_in_the_instant_in_which_the_wait_ends_is_not_lost(how, moment):
    with trio.fail_after(5):
        async with Rig(limit=1) as rig, trio.open_nursery() as nursery:
            raised: list[str] = []
            gate = SwitchGate()
            exchange, _ = rig.exchange()
            holder, _ = rig.exchange()

            async def run(which, gate: SwitchGate) -> None:
                try:
                    await which.run(gate, trio.current_time() + 60)
                except (Woken, WireClosed) as error:
                    raised.append(type(error).__name__)

            if moment == "connected":
                rig.net.hold = trio.Event()
            else:
                nursery.start_soon(run, holder, SwitchGate())
                await trio.testing.wait_all_tasks_blocked()
                holder.wake()
                await trio.testing.wait_all_tasks_blocked()
                raised.clear()
                # An idle connection, so that nothing but the wake keeps the request back.
                nursery.start_soon(lambda: rig.call(lane="control"))
                await (await rig.net.peer(1)).serve(answer())
                await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(run, exchange, gate)
            await trio.testing.wait_all_tasks_blocked()
            # The wait has ended and its task is scheduled; the wake comes before it runs.
            if rig.net.hold is not None:
                rig.net.hold.set()
            else:
                holder.close()
            if how == "woken":
                exchange.wake()
            else:
                exchange.close()
            await trio.testing.wait_all_tasks_blocked()
            assert raised == ["Woken" if how == "woken" else "WireClosed"]
            assert gate.asked == []
            assert (exchange.begun, exchange.held) == (False, False)
            assert rig.link.statistics().active == 0
            assert all(lane.used == 0 for lane in rig.link._lanes.values())
            if how == "woken" and moment == "connected":
                # The connection that came about is good for the next.
                assert rig.link.statistics().idle == 1


async def test_the_request_is_posted_whole_in_one_write(monkeypatch):
    writes: list[bytes] = []

    def send(sock: socket.socket, data: bytes, *flags: int) -> int:
        if bytes(data[:4]) == b"POST":
            writes.append(bytes(data))
        return super(socket.socket, sock).send(data, *flags)

    monkeypatch.setattr(socket.socket, "send", send, raising=False)
    with trio.fail_after(5):
        async with Rig() as rig:
            await rig.answered(answer())
    assert len(writes) == 1
    assert writes[0].endswith(POST.body)
