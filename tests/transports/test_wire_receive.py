"""Reading: what a cancelled or woken receive leaves behind, ends of streams, and whether a wire is alive."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool._base.gate import OpenGate
from afpool.transports._tls import TlsWire
from afpool.transports._wire import PipeWire, SocketWire, WireClosed, Woken
from tests.transports.wire_kit import CLIENT_CONTEXT, KINDS, SERVER_CONTEXT, make_pair


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_receive_loses_nothing(kind):
    with trio.fail_after(5):
        pair = await make_pair(kind)
        got: list[bytes] = []

        async def read(scope: trio.CancelScope) -> None:
            with scope:
                got.append(await pair.wire.receive())

        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, scope)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await pair.write(b"late answer")
        assert scope.cancelled_caught
        assert got == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, trio.CancelScope())
        assert got == [b"late answer"]
        pair.wire.close()
        await pair.close_peer()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_woken_receive_loses_nothing(kind):
    with trio.fail_after(5):
        pair = await make_pair(kind)
        raised: list[str] = []

        async def reader() -> None:
            with pytest.raises(Woken):
                await pair.wire.receive()
            raised.append("woken")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            await trio.testing.wait_all_tasks_blocked()
            pair.wire.wake()
            await pair.write(b"answer")
        assert raised == ["woken"]
        assert await pair.wire.receive() == b"answer"
        pair.wire.close()
        await pair.close_peer()


@pytest.mark.parametrize("kind", ["socket", "pipe"])
async def test_a_wake_is_not_lost_on_a_reader_whose_bytes_came_in_the_same_pass(kind):
    """The reader is scheduled already, and another task that runs before it calls `wake`."""
    raced = 0
    with trio.fail_after(20):
        pair = await make_pair(kind)
        assert pair.write_now is not None
        other, signal = socket.socketpair()
        for _ in range(200):
            order: list[str] = []

            async def reader(order: list[str] = order) -> None:
                try:
                    assert await pair.wire.receive() == b"answer"
                    order.append("read")
                except Woken:
                    order.append("woken")

            async def waker(order: list[str] = order) -> None:
                await trio.lowlevel.wait_readable(other)
                order.append("wake")
                pair.wire.wake()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader)
                nursery.start_soon(waker)
                await trio.testing.wait_all_tasks_blocked()
                pair.write_now(b"answer")
                signal.send(b"!")
            assert other.recv(1) == b"!"
            assert order in (["read", "wake"], ["wake", "woken"])
            if order[0] == "wake":
                raced += 1
                assert await pair.wire.receive() == b"answer"
        other.close()
        signal.close()
        pair.wire.close()
        await pair.close_peer()
    assert raced > 0


async def test_waking_a_wire_in_which_nobody_is_parked_does_nothing():
    with trio.fail_after(5):
        pair = await make_pair("socket")
        pair.wire.wake()
        await pair.write(b"x")
        assert await pair.wire.receive() == b"x"
        pair.wire.close()
        pair.wire.wake()
        await pair.close_peer()


@pytest.mark.parametrize("kind", KINDS)
async def test_closing_wakes_the_reader_and_is_final(kind):
    with trio.fail_after(5):
        pair = await make_pair(kind)
        raised: list[WireClosed] = []

        async def reader() -> None:
            with pytest.raises(WireClosed) as caught:
                await pair.wire.receive()
            raised.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            await trio.testing.wait_all_tasks_blocked()
            pair.wire.close()
            pair.wire.close()
        assert raised[0].local
        assert pair.wire.closed
        assert not pair.wire.alive()
        with pytest.raises(WireClosed):
            await pair.wire.receive()
        with pytest.raises(WireClosed):
            pair.wire.receive_nowait()
        with pytest.raises(WireClosed):
            await pair.wire.send(b"x", OpenGate())
        await pair.close_peer()


@pytest.mark.parametrize("kind", ["socket", "pipe"])
async def test_the_end_of_the_stream(kind):
    with trio.fail_after(5):
        pair = await make_pair(kind)
        await pair.write(b"last words")
        await pair.close_peer()
        assert await pair.wire.receive(4) == b"last"
        assert await pair.wire.receive() == b" words"
        assert await pair.wire.receive() == b""
        assert pair.wire.receive_nowait() == b""
        assert not pair.wire.alive()
        pair.wire.close()


async def test_a_reset_connection_is_closed_and_not_by_us():
    with trio.fail_after(5):
        listener = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        theirs.close()
        wire = SocketWire(ours)
        with pytest.raises(WireClosed) as caught:
            await wire.receive()
        assert not caught.value.local
        wire.close()
        listener.close()


async def test_a_quiet_connection_is_alive_and_one_that_speaks_unasked_is_not():
    with trio.fail_after(5):
        for kind in ("socket", "tls"):
            pair = await make_pair(kind)
            assert pair.wire.alive()
            assert pair.wire.receive_nowait() is None
            await pair.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            assert not pair.wire.alive()
            pair.wire.close()
            await pair.close_peer()


async def test_a_pipe_with_unread_output_is_alive_until_the_child_is_gone():
    with trio.fail_after(5):
        pair = await make_pair("pipe")
        assert pair.wire.alive()
        await pair.write(b"unasked")
        assert pair.wire.alive()
        assert await pair.wire.receive() == b"unasked"
        await pair.close_peer()
        assert not pair.wire.alive()
        pair.wire.close()


async def test_half_closing_a_pipe_ends_the_childs_input_and_goes_on_reading():
    with trio.fail_after(5):
        pair = await make_pair("pipe")
        wire = pair.wire
        assert isinstance(wire, PipeWire)
        await wire.send(b"bye", OpenGate())
        wire.close_write()
        wire.close_write()
        assert await pair.read() == b"bye"
        assert await pair.read() == b""
        with pytest.raises(WireClosed) as caught:
            await wire.send(b"more", OpenGate())
        assert caught.value.local
        assert not wire.alive()
        await pair.write(b"last output")
        assert await wire.receive() == b"last output"
        wire.close()
        await pair.close_peer()


def _descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


async def test_closing_closes_every_descriptor():
    before = _descriptors()
    with trio.fail_after(5):
        for kind in KINDS:
            pair = await make_pair(kind)
            pair.wire.close()
            await pair.close_peer()
    assert _descriptors() <= before


async def test_tls_session_tickets_leave_a_connection_alive():
    with trio.fail_after(5):
        ours, theirs = socket.socketpair()
        served: list[ssl.SSLSocket] = []

        async def serve() -> None:
            # OpenSSL's own server side sends its tickets with the end of the handshake.
            served.append(
                await trio.to_thread.run_sync(lambda: SERVER_CONTEXT.wrap_socket(theirs, server_side=True))
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            wire = await TlsWire.handshake(SocketWire(ours), CLIENT_CONTEXT, "localhost")
        assert wire.tls_version == "TLSv1.3"
        # The tickets lie unread in the socket: a bare peek would call the connection spent.
        assert ours.recv(1, socket.MSG_PEEK)
        assert wire.alive()
        with pytest.raises(BlockingIOError):
            ours.recv(1, socket.MSG_PEEK)
        await wire.send(b"ping", OpenGate())
        assert served[0].recv(10) == b"ping"
        wire.close()
        served[0].close()


async def test_tls_goodbye_is_the_end_and_a_cut_is_not():
    with trio.fail_after(5):
        for goodbye in (True, False):
            ours, theirs = socket.socketpair()
            server = trio.SSLStream(
                trio.SocketStream(trio.socket.from_stdlib_socket(theirs)),
                SERVER_CONTEXT,
                server_side=True,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.do_handshake)
                wire = await TlsWire.handshake(SocketWire(ours), CLIENT_CONTEXT, "localhost")
            await server.send_all(b"body")
            if goodbye:
                await server.aclose()
            else:
                await server.transport_stream.aclose()
            assert await wire.receive() == b"body"
            if goodbye:
                assert await wire.receive() == b""
            else:
                with pytest.raises(WireClosed) as caught:
                    await wire.receive()
                assert not caught.value.local
            assert not wire.alive()
            wire.close()


async def test_tls_our_close_says_goodbye():
    with trio.fail_after(5):
        pair = await make_pair("tls")
        await pair.wire.send(b"all of it", OpenGate())
        pair.wire.close()
        assert await pair.read() == b"all of it"
        assert await pair.read() == b""
        await pair.close_peer()


async def test_tls_large_answers_come_whole_and_in_slices_asked_for():
    with trio.fail_after(10):
        pair = await make_pair("tls")
        blob = os.urandom(300_000)
        got = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.write, blob)
            while len(got) < len(blob):
                part = await pair.wire.receive(1000)
                assert 0 < len(part) <= 1000
                got += part
        assert got == blob
        pair.wire.close()
        await pair.close_peer()


async def test_tls_a_receive_with_bytes_at_hand_still_passes_a_checkpoint_and_loses_nothing():
    with trio.fail_after(5):
        pair = await make_pair("tls")
        await pair.write(b"abcdef")
        assert await pair.wire.receive(3) == b"abc"
        with trio.CancelScope() as scope:
            scope.cancel()
            await pair.wire.receive(3)
        assert scope.cancelled_caught
        assert await pair.wire.receive(3) == b"def"
        pair.wire.close()
        await pair.close_peer()


async def test_tls_a_failed_handshake_closes_the_socket():
    with trio.fail_after(5):
        ours, theirs = socket.socketpair()
        server = trio.SSLStream(
            trio.SocketStream(trio.socket.from_stdlib_socket(theirs)), SERVER_CONTEXT, server_side=True
        )

        async def serve() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await server.do_handshake()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with pytest.raises(ssl.SSLCertVerificationError):
                await TlsWire.handshake(SocketWire(ours), CLIENT_CONTEXT, "another.example")
        assert ours.fileno() == -1
        await trio.aclose_forcefully(server)


async def test_tls_a_cancelled_handshake_closes_the_socket():
    with trio.fail_after(5):
        ours, theirs = socket.socketpair()
        with trio.move_on_after(0.01):
            await TlsWire.handshake(SocketWire(ours), CLIENT_CONTEXT, "localhost")
        assert ours.fileno() == -1
        theirs.close()


async def test_tls_garbage_instead_of_records_closes_the_wire():
    with trio.fail_after(5):
        pair = await make_pair("tls")
        wire = pair.wire
        assert isinstance(wire, TlsWire)
        wire._incoming.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(WireClosed) as caught:
            await wire.receive()
        assert "400" not in str(caught.value)
        assert not wire.alive()
        # What OpenSSL has to say while reading goes out: here an alert that tells the peer why.
        with pytest.raises(trio.BrokenResourceError) as broken:
            await pair.read()
        assert "ALERT" in str(broken.value.__cause__).upper()
        wire.close()
        await pair.close_peer()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["send", "wake", "cancel", "read"]), max_size=20), st.booleans())
def test_whatever_interrupts_reading_the_bytes_come_whole_and_in_order(steps, tls):
    async def run() -> None:
        pair = await make_pair("tls" if tls else "socket")
        sent = bytearray()
        got = bytearray()

        async def read_once(scope: trio.CancelScope) -> None:
            with scope, contextlib.suppress(Woken):
                got.extend(await pair.wire.receive(3))

        with trio.fail_after(5):
            for number, step in enumerate(steps):
                async with trio.open_nursery() as nursery:
                    scope = trio.CancelScope()
                    if step != "send":
                        nursery.start_soon(read_once, scope)
                        await trio.testing.wait_all_tasks_blocked()
                    if step != "read" or len(got) == len(sent):
                        part = b"%d." % number
                        await pair.write(part)
                        sent.extend(part)
                    if step == "wake":
                        pair.wire.wake()
                    elif step == "cancel":
                        scope.cancel()
            while len(got) < len(sent):
                got.extend(await pair.wire.receive())
        assert got == sent
        pair.wire.close()
        await pair.close_peer()

    trio.run(run)
