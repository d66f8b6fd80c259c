"""Servers that no library would write, on real sockets: what each costs its own call, and nobody else."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Plan, Server
from tests.pool.kit import ALICE, quiet, refused
from tests.realfaults.network.odd_kit import (
    LIMITS,
    PATIENCE,
    answer,
    ends,
    http,
    listen,
    odd_pool,
    result,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def piecewise(first: bytes, piece: bytes) -> Callable[[Any, bytes], Awaitable[None]]:
    """Send something, and then a piece every few milliseconds for as long as somebody listens."""

    async def on_call(stream: Any, _: bytes) -> None:
        await stream.send_all(first)
        while True:
            await stream.send_all(piece)
            await trio.sleep(0.005)

    return on_call


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED_EVENTS = CHUNKED.replace(b"application/json", b"text/event-stream")
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"y"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (CHUNKED, b"1\r\n \r\n"),
        (CHUNKED + b"1;x=", b"y"),
        (CHUNKED + b"0\r\n", b"t: u\r\n"),
        (EVENTS, b": keep waiting\n\n"),
        (EVENTS, b"data:\n"),
        (http(b"", length=1000), b" "),
    ],
    ids=[
        "hints", "processing", "header", "headers", "chunks", "extension", "trailers", "comments", "event",
        "body",
    ],
)  # fmt: skip
async def test_an_answer_that_comes_for_ever_byte_by_byte_ends_at_the_deadline(first: bytes, piece: bytes):
    """Each byte is a sign of life, and none of them an answer: nothing but the caller's deadline ends it."""
    with trio.fail_after(PATIENCE):
        async with odd_pool(piecewise(first, piece)) as (odd, pool):
            await ends(pool, "deadline-exceeded", "in-doubt", within=0.3)
            assert len(odd.calls) == 1


@pytest.mark.parametrize("gap", [0.0, 0.001])
async def test_what_comes_behind_an_answer_is_no_answer_to_the_next_call(gap: float):
    """A second answer behind the first, at once or a moment later: nobody who looks takes it for his own."""
    answers = 0
    forged_sent = trio.Event()

    async def on_call(stream: Any, number: bytes) -> None:
        nonlocal answers, forged_sent
        answers += 1
        first = http(result(number, f"answer {answers}"))
        forged = http(result(number, "forged"))
        if gap:
            await stream.send_all(first)
            await trio.sleep(gap)
            await stream.send_all(forged)
        else:
            await stream.send_all(first + forged)
        forged_sent.set()

    with trio.fail_after(PATIENCE):
        async with odd_pool(on_call) as (_, pool):
            tool = (await pool.tools(ALICE))["echo"]
            for n in range(1, 6):
                assert (await tool.call({"n": n}, identity=ALICE)).text == f"answer {n}"
                await (
                    forged_sent.wait()
                )  # on loopback it is there then: the next call finds it before it asks
                forged_sent = trio.Event()


@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
async def test_an_answer_that_is_one_behind_is_nobodys(events: bool):
    """Somebody on the way gives each call the answer to the one before; nobody believes it."""
    earlier: list[bytes] = []

    async def on_call(stream: Any, number: bytes) -> None:
        earlier.append(result(number, f"answer to {number.decode()}"))
        body = earlier[-2] if len(earlier) == 3 else earlier[-1]
        if events:
            event = b"data: " + body + b"\n\n"
            await stream.send_all(CHUNKED_EVENTS + b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))
        else:
            await stream.send_all(http(body))

    with trio.fail_after(PATIENCE):
        async with odd_pool(on_call) as (odd, pool):
            tool = (await pool.tools(ALICE))["echo"]
            for n in range(1, 6):
                if n == 3:
                    await refused(tool.call({"n": n}, identity=ALICE), "server-failed", "in-doubt")
                    actor = pool._existing(pool.key_of(ALICE, "files"))
                    link = actor.machine.client.handle.channel.link
                    assert link.statistics().idle == 0
                else:
                    text = (await tool.call({"n": n}, identity=ALICE)).text
                    assert text == f"answer to {odd.calls[-1]['id']}"


CUTS = {
    "before the answer": (b"", "connection-lost"),
    "in the head": (b"HTTP/1.1 200 OK\r\ncontent-type: applica", "connection-lost"),
    "in the body": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", "connection-lost"),
    "in a chunk": (CHUNKED + b"5\r\n{", "connection-lost"),
}


@pytest.mark.parametrize("goodbye", [False, True], ids=["cut", "goodbye"])
async def test_under_tls_only_a_goodbye_ends_a_body_without_a_length(goodbye: bool):
    """A body that ends with its connection can be cut short by anybody on the way; TLS says if it was not."""

    async def on_call(stream: Any, number: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
        await stream.send_all(head + result(number))
        if goodbye:
            await stream.aclose()  # says goodbye, and waits for ours
        else:
            await stream.transport_stream.aclose()

    with trio.fail_after(PATIENCE):
        async with odd_pool(on_call, secure=True) as (odd, pool):
            tool = (await pool.tools(ALICE))["echo"]
            if goodbye:
                assert (await tool.call({"n": 1}, identity=ALICE)).text == "fine"
            else:
                await refused(tool.call({"n": 1}, identity=ALICE), "connection-lost", "in-doubt")
            assert len(odd.calls) == 1


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_an_answer_that_is_cut(cut: str, secure: bool):
    sent, code = CUTS[cut]

    async def on_call(stream: Any, _: bytes) -> None:
        await stream.send_all(sent)
        await (stream.transport_stream if secure else stream).aclose()

    with trio.fail_after(PATIENCE):
        async with odd_pool(on_call, secure=secure) as (odd, pool):
            await ends(pool, code, "in-doubt")
            assert len(odd.calls) == 1


@pytest.mark.parametrize("status", [b"413 Too Large", b"401 No", b"429 Later"])
async def test_a_server_that_answers_early_and_resets_what_it_does_not_read(status: bytes):
    """The answer may be lost to the reset; what is said of the call is true either way: it never ran."""

    async def handle(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            data = await stream.receive_some(4096)
            while b"tools/call" not in data:
                if not data:
                    return
                head, _, body = data.partition(b"\r\n\r\n")
                reply = b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n"
                if head.startswith(b"POST"):
                    reply = answer(json.loads(body))
                await stream.send_all(reply)
                data = await stream.receive_some(4096)
            await stream.send_all(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
            await stream.aclose()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            port = await listen(nursery, handle)
            plan = Plan(
                transport=HttpTransport(url=f"http://127.0.0.1:{port}/mcp"), protocol_version="2025-11-25"
            )
            async with afpool.open_pool([Server(name="files", plan=plan)], **LIMITS) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                with pytest.raises(afpool.AfpoolError) as caught:
                    await tool.call({"pad": "x" * 8_000_000}, identity=ALICE)
                assert caught.value.delivery in {"in-doubt", "refused"}
                quiet(pool)
            nursery.cancel_scope.cancel()
