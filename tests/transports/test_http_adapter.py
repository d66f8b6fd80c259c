"""afpool's HTTP layer as an httpx transport: what it sends, streams, bounds and raises."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import httpx
import pytest
import trio

from afpool import HttpxAdapter, Proxy, StaleTools
from afpool._base.seams import Seams
from afpool.testing import FakeProxy, FakeServer
from afpool.transports import _httpx_adapter
from tests.transports.http_kit import Net, answer
from tests.transports.wire_kit import SwitchGate

URL = "http://mcp.example:8080/a?b=c"


@contextlib.asynccontextmanager
async def client_on(net: Net, **options: Any) -> Any:
    def resolve(_host: str, _port: int) -> list[tuple[int, Any]]:
        return [(int(socket.AF_INET), ("127.0.0.1", 8080))]

    async def at_once(fn: Any, _limiter: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return fn()

    adapter = HttpxAdapter(seams=Seams(connect=net.connect, resolve=resolve, in_thread=at_once), **options)
    try:
        async with httpx.AsyncClient(transport=adapter) as client:
            yield client
    finally:
        await net.close()


async def served(net: Net, client: Any, raw: bytes, method: str = "GET", **options: Any) -> Any:
    """One request and its answer; gives both."""
    seen: list[bytes] = []
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            peer = await net.peer(len(net.peers) - 1 if net.peers else 0)
            seen.append(await peer.request())
            await peer.send(raw)

        nursery.start_soon(serve)
        response = await client.request(method, URL, **options)
    return seen[0], response


async def test_what_is_sent_and_what_comes_back():
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client:
            sent, response = await served(net, client, answer(), "POST", json={"a": 1})
            assert (response.status_code, response.json()) == (200, {"ok": True})
            head, _, body = sent.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            assert lines[:2] == [b"POST /a?b=c HTTP/1.1", b"host: mcp.example:8080"]
            assert body == b'{"a":1}'
            assert b"content-length: 7" in lines
            assert lines.count(b"accept-encoding: identity") == 1
            assert not [line for line in lines if line.startswith((b"connection", b"transfer-encoding"))]
            sent, _ = await served(net, client, answer())
            assert b"content-length" not in sent
            assert len(net.peers) == 1, "the connection was used again"


async def test_a_body_is_streamed_as_it_comes():
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client, trio.open_nursery() as nursery:
            got: list[bytes] = []
            more = trio.Event()

            async def read() -> None:
                async with client.stream("GET", URL) as response:
                    assert response.headers["content-type"] == "text/event-stream"
                    async for chunk in response.aiter_raw():
                        got.append(chunk)
                        more.set()

            nursery.start_soon(read)
            peer = await net.peer()
            await peer.request()
            await peer.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            for piece in (b"data: 1\n\n", b"data: 2\n\n"):
                more = trio.Event()
                await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                await more.wait()
                assert got[-1] == piece
            await peer.send(b"0\r\n\r\n")
        assert got == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_an_answer_that_is_not_read_to_its_end_costs_the_connection():
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client, trio.open_nursery() as nursery:
            done = trio.Event()

            async def read() -> None:
                async with client.stream("GET", URL):
                    pass
                done.set()

            nursery.start_soon(read)
            peer = await net.peer()
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx")
            await done.wait()
            assert await peer.closed_by_client()


async def test_a_cancelled_request_closes_its_connection():
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client, trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def get() -> None:
                with scope:
                    await client.get(URL)

            nursery.start_soon(get)
            peer = await net.peer()
            await peer.request()
            scope.cancel()
            assert await peer.closed_by_client()


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", httpx.ReadError),
        (b"nonsense\r\n\r\n", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", httpx.RemoteProtocolError),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx",
            httpx.RemoteProtocolError,
        ),
    ],
)
async def test_what_goes_wrong_after_the_request_left(raw, error):
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client, trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await net.peer()
                await peer.request()
                await peer.send(raw)
                await peer.close()

            nursery.start_soon(serve)
            with pytest.raises(error):
                await client.get(URL)


async def test_what_goes_wrong_before():
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client:
            net.fail = ConnectionRefusedError(111, "Connection refused")
            with pytest.raises(httpx.ConnectError, match="nothing was sent"):
                await client.get(URL)
            with pytest.raises(httpx.LocalProtocolError):
                await client.get(URL, headers={"host": "other.example"})
            with pytest.raises(httpx.UnsupportedProtocol):
                await client.get("ftp://mcp.example/")
            net.fail = None
            with pytest.raises(httpx.LocalProtocolError, match="nothing was sent"):
                await client.get(URL, headers={"x-a": "y" * 70_000})


async def test_time_outs_of_httpx(autojump_clock):
    net = Net()
    with trio.fail_after(100):
        async with client_on(net) as client:
            net.hang = True
            with pytest.raises(httpx.ConnectTimeout):
                await client.get(URL, timeout=3)
            net.hang = False
            with pytest.raises(httpx.ReadTimeout):
                await client.get(URL, timeout=3)
            async with trio.open_nursery() as nursery:

                async def serve() -> None:
                    peer = await net.peer(1)
                    await peer.request()
                    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx")

                nursery.start_soon(serve)
                with pytest.raises(httpx.ReadTimeout):
                    await client.get(URL, timeout=3)


async def test_its_gate_is_asked_in_the_step_of_the_write():
    net = Net()
    gate = SwitchGate()
    with trio.fail_after(10):
        async with client_on(net, gate=gate) as client:
            await served(net, client, answer())
            assert gate.asked == ["connect", "write"]
            gate.closed = True
            with pytest.raises(StaleTools):
                await client.get(URL)
            assert gate.begun == 1


async def test_origins_are_bounded_and_closing_closes(monkeypatch):
    monkeypatch.setattr(_httpx_adapter, "ORIGINS_KEPT", 2)
    with trio.fail_after(20):
        async with contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(FakeServer.http()) for _ in range(4)]
            adapter = HttpxAdapter()
            async with httpx.AsyncClient(transport=adapter) as client:
                for server in servers:
                    assert (await client.get(server.url)).status_code in (400, 405, 406)
                await servers[0].wait_until(lambda: servers[0].connections == 0)
                assert sum(server.connections for server in servers) == 2
            for server in servers:
                await server.wait_until(lambda server=server: server.connections == 0)
            with pytest.raises(RuntimeError, match="closed"):
                await adapter.handle_async_request(httpx.Request("GET", servers[0].url))


@pytest.mark.parametrize("way", ["proxy", "uds"])
async def test_it_knows_the_ways(way, tmp_path):
    path = str(tmp_path / "s")
    with trio.fail_after(10):
        async with FakeServer.http(uds=path if way == "uds" else None) as server, FakeProxy() as proxy:
            options: Any = {"uds": path} if way == "uds" else {"proxy": Proxy(url=proxy.url)}
            async with httpx.AsyncClient(transport=HttpxAdapter(**options)) as client:
                assert (await client.post(server.url, json={})).status_code >= 400
            assert len(server.log) == 1
            assert len(proxy.tunnels) == (way == "proxy")


async def test_early_answers_are_bounded(monkeypatch):
    """A server that answers before it has the request, and closes, is read on without being asked."""
    monkeypatch.setattr(_httpx_adapter, "MAX_AHEAD", 1000)
    net = Net()
    with trio.fail_after(10):
        async with client_on(net) as client, trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await net.peer()
                await peer.send(b"HTTP/1.1 413 No\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000)
                await peer.close()

            nursery.start_soon(serve)
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await client.post(URL, content=b"y" * 5_000_000)
