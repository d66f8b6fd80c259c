"""Hostile and broken clients on real sockets: refused at the door, wordless, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import logging
import socket

import pytest
import trio

from afpool.config import ServeLimits
from afpool.testing import FakeTool, echo_tool
from tests.serve.serve_kit import ALICE, place, until

QUICK = ServeLimits(header_timeout=0.3, body_timeout=0.3, body=100_000)


@contextlib.asynccontextmanager
async def listening(tmp_path, limits=QUICK, **options):
    async with place(tmp_path, listen=True, serve={"limits": limits}, **options) as here:
        host, port = here.service.addresses[0].removeprefix("http://").removesuffix("/mcp").rsplit(":", 1)
        yield here, (host, int(port))
        # whatever came before, the next caller is served
        assert b"200" in (await spoken(here, (host, int(port)), call(here))).split(b"\r\n")[0]
        assert here.service.calls == 0
        assert here.service.health.report()["ready"]


def head(here, *more, host="127.0.0.1", length=None, method=b"POST", path=b"/mcp"):
    lines = [
        method + b" " + path + b" HTTP/1.1",
        b"Host: " + host.encode(),
        b"Authorization: Bearer " + here.texts[ALICE].encode(),
        b"Content-Type: application/json",
        b"Accept: application/json, text/event-stream",
        *more,
    ]
    if length is not None:
        lines.append(b"Content-Length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


STATELESS = (b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/call", b"Mcp-Name: echo")


def call(here, **how):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return head(here, *STATELESS, length=len(body), **how) + body


async def spoken(here, address, data, *, chunks=(), until_end=False):
    """Send, and give everything that is answered until the connection ends or an answer stands whole."""
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        heard = b""
        with trio.fail_after(10), contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data)
            for chunk in chunks:
                await stream.send_all(chunk)
        with trio.fail_after(10), contextlib.suppress(trio.BrokenResourceError):
            while piece := await stream.receive_some(65536):
                heard += piece
                if not until_end and _whole(heard):
                    break
        return heard


def _whole(heard):
    top, found, body = heard.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in top.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return False


async def test_a_slow_head_and_a_slow_body_are_waited_for_only_so_long(tmp_path):
    async with listening(tmp_path) as (here, address):
        assert await spoken(here, address, b"POST /mcp HTTP/1.1\r\nHost: 127", until_end=True) == b""
        silent = await spoken(here, address, b"", until_end=True)
        assert silent == b""
        slow = await spoken(here, address, head(here, length=1000) + b"{", until_end=True)
        assert slow.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("together", [False, True])
async def test_a_slow_head_on_a_kept_connection_is_not_an_idle_one(tmp_path, together):
    begun = b"POST /mcp HTT"
    async with listening(tmp_path) as (here, address), await trio.open_tcp_stream(*address) as stream:
        with trio.fail_after(10):
            await stream.send_all(call(here) + (begun if together else b""))
            heard = b""
            while not _whole(heard):
                heard += await stream.receive_some(65536)
            if not together:
                await until(lambda: not any(one.busy for one in here.service._front.connections))
                await stream.send_all(begun)
            assert await stream.receive_some(65536) == b""


async def test_a_client_that_goes_away_ends_its_call_in_that_instant(tmp_path, monkeypatch):
    # not by the time that is left to a connection's tasks
    monkeypatch.setattr("afpool.serve._connection._LINGER", 60.0)

    async def hang(arguments, arrival):
        await trio.sleep_forever()

    async with listening(tmp_path, servers={"desk": [echo_tool(), FakeTool("hang", hang)]}) as (
        here,
        address,
    ):
        body = call(here).partition(b"\r\n\r\n")[2].replace(b'"echo"', b'"hang"')
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(head(here, *STATELESS[:2], b"Mcp-Name: hang", length=len(body)) + body)
            with trio.fail_after(5):
                await here.server.wait_for("tools/call", 1)
        await until(lambda: len(here.server.cancelled) == 1 and here.service.calls == 0)


async def test_whatever_one_connection_raises_the_others_are_served(tmp_path, monkeypatch, caplog):
    from afpool.serve import _connection

    handle = _connection._Protocol.handle

    async def raising(self, event):
        if b"BOOM" in getattr(event, "data", b""):
            raise ValueError("secret")
        await handle(self, event)

    monkeypatch.setattr(_connection._Protocol, "handle", raising)
    caplog.set_level(logging.INFO)
    async with listening(tmp_path) as (here, address):
        assert await spoken(here, address, b"BOOM", until_end=True) == b""
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_body_beyond_the_limit_is_refused_unread_whether_or_not_it_says_so(tmp_path):
    async with listening(tmp_path) as (here, address):
        announced = await spoken(here, address, head(here, length=100_000_000), until_end=True)
        assert announced.startswith(b"HTTP/1.1 413")
        piece = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
        chunked = head(here, b"Transfer-Encoding: chunked")
        unannounced = await spoken(here, address, chunked, chunks=[piece] * 1600, until_end=True)
        assert unannounced == b"" or unannounced.startswith(b"HTTP/1.1 413")
        await until(lambda: not here.service._front.connections)


@pytest.mark.parametrize("number", [101, 10_000])
async def test_too_many_headers_are_refused(tmp_path, number):
    async with listening(tmp_path) as (here, address):
        many = [b"X-%d: y" % index for index in range(number)]
        heard = await spoken(here, address, head(here, *many, length=0), until_end=True)
        assert heard.startswith(b"HTTP/1.1 431")
        large = await spoken(here, address, head(here, b"X: " + b"y" * 200_000, length=0), until_end=True)
        assert large == b"" or large.startswith(b"HTTP/1.1 431")


async def test_pages_of_nobody_and_hosts_that_are_not_ours_are_refused_without_their_names(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    async with listening(tmp_path) as (here, address):
        for extra, host, status in [
            ((b"Origin: null",), "127.0.0.1", b"403"),
            ((b"Origin: http://secret-page.example",), "127.0.0.1", b"403"),
            ((), "secret-page.example", b"421"),
            ((b"Sec-Fetch-Site: cross-site",), "127.0.0.1", b"403"),
        ]:
            heard = await spoken(here, address, head(here, *extra, host=host, length=2) + b"{}")
            assert heard.split(b" ")[1] == status
            assert b"secret" not in heard
        assert "secret-page" not in caplog.text
        assert "refused at the door" in caplog.text


async def test_garbage_ends_its_connection_and_nothing_else(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    async with listening(tmp_path) as (here, address):
        for garbage in [
            b"\x16\x03\x01\x02\x00secret",
            b"GET secret\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            (
                b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                b"HTTP2-Settings: AAAA\r\n\r\n"
            ),
        ]:
            heard = await spoken(here, address, garbage, until_end=True)
            assert b"200" not in heard.split(b"\r\n")[0]
            assert b"secret" not in heard
        assert "secret" not in caplog.text
        assert "Traceback" not in caplog.text


async def test_a_client_that_takes_no_bytes_holds_nobody_up(tmp_path, monkeypatch):
    big = "x" * 3_000_000

    async with listening(tmp_path, servers={"desk": [echo_tool(), FakeTool("big", lambda *_: big)]}) as (
        here,
        address,
    ):
        here.service._front.limits = type(here.service._front.limits)(write_timeout=0.3)
        body = call(here).partition(b"\r\n\r\n")[2].replace(b'"echo"', b'"big"')
        said = (*STATELESS[:2], b"Mcp-Name: big")
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await sock.connect(address)
        stream = trio.SocketStream(sock)
        async with stream:
            await stream.send_all(head(here, *said, length=len(body)) + body)
            with trio.fail_after(5):
                await here.server.wait_for("tools/call", 1)
            await until(lambda: not here.service._front.connections, seconds=8)


async def test_half_open_connections_end_in_their_time(tmp_path):
    async with listening(tmp_path) as (here, address):
        streams = [await trio.open_tcp_stream(*address) for _ in range(50)]
        for stream in streams[::2]:
            await stream.send_all(b"POST ")
        await until(lambda: len(here.service._front.connections) >= 40)
        await until(lambda: not here.service._front.connections)
        for stream in streams:
            await stream.aclose()


async def test_two_requests_at_once_on_one_connection_are_answered_in_turn(tmp_path):
    async with listening(tmp_path) as (here, address):
        heard = await spoken(here, address, call(here) * 2)
        assert heard.count(b"HTTP/1.1 200") in (1, 2)
        await until(lambda: here.service.calls == 0)


async def test_the_number_of_connections_is_bounded(tmp_path):
    async with listening(tmp_path) as (here, address):
        here.service._front.limits = type(here.service._front.limits)(connections=2)
        held = [await trio.open_tcp_stream(*address) for _ in range(2)]
        await until(lambda: len(here.service._front.connections) == 2)
        assert await spoken(here, address, call(here), until_end=True) == b""
        assert here.service._front.refused >= 1
        for stream in held:
            await stream.aclose()
        await until(lambda: not here.service._front.connections)
