"""The WebSocket front of the fake, asked by a client of the library's own."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from h11 import LocalProtocolError
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    wrap_client_stream,
)
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Ping, Request, TextMessage

from afpool.testing import (
    Body,
    CloseFrame,
    Drop,
    FakeServer,
    Flood,
    Hang,
    RawBytes,
    Sse,
    Status,
    Truncate,
    echo_tool,
    sleep_tool,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio_websocket import WebSocketConnection

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


@contextlib.asynccontextmanager
async def served(**options: Any) -> AsyncIterator[FakeServer]:
    with trio.fail_after(20):
        async with FakeServer.ws(tools=[echo_tool(), sleep_tool()], **options) as server:
            yield server


@contextlib.asynccontextmanager
async def client(
    server: FakeServer, path: str = "/mcp", **options: Any
) -> AsyncIterator[WebSocketConnection]:
    """The library's client, whose own way of opening leaves sockets behind where it is refused."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    try:
        async with trio.open_nursery() as nursery:
            yield await wrap_client_stream(
                nursery, stream, "localhost", path, **{"subprotocols": ["mcp"], **options}
            )
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None
    finally:
        await trio.aclose_forcefully(stream)


async def ask(socket: WebSocketConnection, number: int, method: str, params: Any = None) -> dict[str, Any]:
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    await socket.send_message(json.dumps(request))
    while True:
        message: dict[str, Any] = json.loads(await socket.get_message())
        if message.get("id") == number:
            return message


async def begin(socket: WebSocketConnection) -> None:
    assert "result" in await ask(socket, 0, "initialize", INITIALIZE)
    await socket.send_message('{"jsonrpc":"2.0","method":"notifications/initialized"}')


async def call(socket: WebSocketConnection, number: int = 1) -> dict[str, Any]:
    return await ask(socket, number, "tools/call", {"name": "echo", "arguments": {"n": number}})


async def called_until_it_ends(socket: WebSocketConnection) -> None:
    while await call(socket):
        pass


async def test_the_session_is_the_connection():
    async with served() as server:
        async with client(server) as socket:
            assert socket.subprotocol == "mcp"
            await begin(socket)
            assert (await call(socket))["result"]["content"][0]["text"] == '{"n": 1}'
            assert [arrival.name for arrival in server.log] == [
                "GET", "initialize", "notifications/initialized", "tools/call",
            ]  # fmt: skip
            assert {arrival.connection for arrival in server.log} == {1}
            assert (server.connections, server.streams) == (1, 1)
            assert await server.notify("notifications/tools/list_changed") == 1
            assert "list_changed" in await socket.get_message()
            async with client(server) as other:
                assert "error" in await ask(other, 1, "tools/list")
        await server.wait_until(lambda: server.connections == server.streams == 0)
        assert server.executions["echo"] == 1


async def test_a_call_ends_with_its_connection():
    async with served() as server:
        async with client(server) as socket:
            await begin(socket)
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            params = {"name": "sleep", "arguments": {"seconds": 1000}}
            await socket.send_message(json.dumps({**request, "params": params}))
            await server.wait_until(lambda: server.executions["sleep"] == 1)
        await server.wait_until(lambda: not server._alive)


async def test_a_binary_message_ends_the_connection():
    async with served() as server, client(server) as socket:
        await begin(socket)
        await socket.send_message(b"{}")
        with pytest.raises(ConnectionClosed):
            await socket.get_message()


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (Drop(), 1006),
        (Drop(reset=True), 1006),
        (Truncate(), 1006),
        (CloseFrame(4000, "why"), 4000),
    ],
)
async def test_scripted_endings(action, code):
    async with served() as server, client(server) as socket:
        await begin(socket)
        server.on("tools/call", action)
        with pytest.raises(ConnectionClosed) as caught:
            await called_until_it_ends(socket)
        assert caught.value.reason is not None
        assert caught.value.reason.code == code
        assert server.executions["echo"] == isinstance(action, Truncate)


class Reset(trio.abc.Stream):
    """The server's end of a connection that is reset on the way out, which nobody has read yet."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self.inner = inner
        self.reset = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self.reset:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self.inner.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.mark.parametrize("action", [Truncate(), RawBytes(b"\xff\xff"), RawBytes(b"\xff\xff", close=False)])
async def test_bytes_for_a_client_that_has_gone_fail_nobody(action):
    async with served(memory=True) as server, trio.open_nursery() as nursery:
        ours, theirs = trio.testing.memory_stream_pair()
        end = Reset(theirs)
        server.serve_stream(end)
        socket = await wrap_client_stream(nursery, ours, "localhost", "/mcp", subprotocols=["mcp"])
        await begin(socket)
        server.on("tools/call", action)
        end.reset = True
        call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "echo"}}
        await socket.send_message(json.dumps(call))
        await server.wait_for("tools/call")
        await trio.testing.wait_all_tasks_blocked()
        assert server.executions["echo"] == isinstance(action, Truncate)
        server.close_connections()
        nursery.cancel_scope.cancel()


async def test_a_flood_before_a_notification_is_taken_in_lets_it_be_taken_in():
    async with served() as server, client(server) as socket:
        server.on("*", Flood(b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}', times=2))
        for number, message in enumerate(
            [
                {"id": 1, "method": "initialize", "params": INITIALIZE},
                {"method": "notifications/initialized"},
                {"id": "srv-1", "result": {}},
                {"id": 2, "method": "ping"},
            ]
        ):
            await socket.send_message(json.dumps({"jsonrpc": "2.0", **message}))
            said = [json.loads(await socket.get_message()) for _ in range(2)]
            assert {each["method"] for each in said} == {"notifications/message"}
            if number in {0, 3}:
                assert "result" in json.loads(await socket.get_message())
        assert server.client_answers == [{"jsonrpc": "2.0", "id": "srv-1", "result": {}}]
        assert server.violations == []


async def test_a_ping_behind_the_servers_close_frame_is_no_fault_of_the_server():
    async with served() as server:
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        wire = WSConnection(ConnectionType.CLIENT)
        await stream.send_all(wire.send(Request(host="localhost", target="/mcp", subprotocols=["mcp"])))
        wire.receive_data(await stream.receive_some())
        assert [type(event) for event in wire.events()] == [AcceptConnection]
        server.on("*", CloseFrame(1000))
        called = wire.send(TextMessage('{"jsonrpc": "2.0", "id": 1, "method": "ping"}'))
        await stream.send_all(called + wire.send(Ping(b"x")))
        await server.wait_for("ping")
        await stream.send_all(wire.send(Ping(b"y")))
        await server.wait_until(lambda: server.connections == 0)
        await stream.aclose()
        server.clear_rules()
        async with client(server) as socket:
            await begin(socket)


async def test_scripted_bodies_and_silence():
    async with served() as server, client(server) as socket:
        await begin(socket)
        server.on("tools/call", Body(b'{"jsonrpc":"2.0","id":1,"result":{"own":1}}'), times=1)
        server.on("tools/call", Hang(), times=1)
        assert (await call(socket))["result"] == {"own": 1}
        with trio.move_on_after(0.05) as scope:
            await call(socket, 2)
        assert scope.cancelled_caught
        assert (await call(socket, 3))["id"] == 3


async def test_an_upgrade_is_an_arrival_and_may_be_refused():
    async with served() as server:
        server.on("GET", Status(401, {"www-authenticate": "Bearer"}, b"no"), times=1)
        with pytest.raises(ConnectionRejected) as caught:
            async with client(server, extra_headers=[(b"authorization", b"Bearer x")]):
                pass
        assert (caught.value.status_code, caught.value.body) == (401, b"no")
        assert dict(caught.value.headers)[b"www-authenticate"] == b"Bearer"
        assert server.log[0].headers["authorization"] == "Bearer x"
        with pytest.raises(ConnectionRejected) as caught:
            async with client(server, path="/other"):
                pass
        assert caught.value.status_code == 404
        await server.wait_until(lambda: server.connections == 0)


async def test_a_client_that_never_finishes_its_request_holds_nothing():
    async with served() as server:
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        await stream.send_all(b"GET /mcp HTTP/1.1\r\n")
        await server.wait_until(lambda: server.connections == 1)
        await stream.aclose()
        await server.wait_until(lambda: not server._alive)


async def test_no_subprotocol_is_chosen_and_one_that_nobody_offered():
    async with (
        served(subprotocol=None) as server,
        client(server) as socket,
    ):
        assert socket.subprotocol is None
    async with served(subprotocol="other") as server:
        with pytest.raises(LocalProtocolError):  # the library's client fails raw here
            async with client(server):
                pass


async def test_pings_that_are_not_answered():
    async with served() as server, client(server) as socket:
        await socket.ping()
        assert server.websocket is not None
        server.websocket.pongs = False
        with trio.move_on_after(0.05) as scope:
            await socket.ping()
        assert scope.cancelled_caught


async def test_closed_from_our_side_and_restarted():
    async with served() as server:
        async with client(server) as socket:
            assert server.close_connections() == 1
            with pytest.raises(ConnectionClosed):
                await socket.get_message()
        async with client(server) as socket:
            await server.restart()
            with pytest.raises(ConnectionClosed):
                await socket.get_message()
        server.refuse_connections()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", server.port)


async def test_what_means_nothing_on_a_websocket_is_a_fault_of_the_script():
    with pytest.RaisesGroup(TypeError, flatten_subgroups=True):
        async with served() as server:
            server.on("GET", Sse())
            async with client(server):
                pass
