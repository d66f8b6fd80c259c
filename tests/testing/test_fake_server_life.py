"""Connections, restarts, TLS, crowds, and the server as a context manager."""

from __future__ import annotations

import ssl

import pytest
import trio
import trustme

from afpool.testing import Delay, FakeServer, FakeTool, counter_tool, echo_tool, sleep_tool


async def test_restart_ends_everything_but_the_port(connect, autojump_clock, nursery):
    async def doomed(client) -> None:
        with pytest.raises(ConnectionError):
            await client.call("sleep", {"seconds": 1000})
        ended.append(1)

    ended: list[int] = []
    with trio.fail_after(60):
        async with FakeServer.http(tools=[sleep_tool(), echo_tool()]) as server:
            idle, busy, stream = [await connect(server) for _ in range(3)]
            await idle.initialize()
            busy.session = stream.session = idle.session
            nursery.start_soon(doomed, busy)
            await stream.open_stream()
            await server.wait_until(lambda: server.streams == 1 and server.executions["sleep"] == 1)
            port = server.port
            await server.restart("400-text")
            assert (server.port, server.connections, server.sessions, server.streams) == (port, 0, [], 0)
            with pytest.raises(ConnectionError):
                await stream.receive_end()
            with pytest.raises(ConnectionError):
                await idle.call("echo")
            await trio.testing.wait_all_tasks_blocked()
            assert ended == [1]
            again = await connect(server)
            again.session = idle.session
            assert (await again.call("echo")).status == 400
            await again.initialize()
            assert (await again.call("echo")).status == 200
            assert server.count("initialize") == 2


async def test_idle_connections_can_be_closed_under_the_client(connect, autojump_clock, nursery):
    with trio.fail_after(60):
        async with FakeServer.http(tools=[sleep_tool(), echo_tool()]) as server:
            idle, busy = await connect(server), await connect(server)
            await idle.initialize()
            busy.session = idle.session
            done = []

            async def call() -> None:
                done.append(await busy.call("sleep", {"seconds": 5}))

            nursery.start_soon(call)
            await server.wait_until(lambda: server.executions["sleep"] == 1)
            assert server.close_idle_connections() == 1
            assert server.connections == 1
            with pytest.raises(ConnectionError):
                await idle.call("echo")
            await trio.sleep(6)
            assert done[0].status == 200
            assert server.close_connections(reset=True) == 1
            with pytest.raises(trio.BrokenResourceError):
                await busy.stream.receive_some(1)


async def test_connections_end_after_so_many_requests(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            server.keep_alive_max_requests = 3
            client = await connect(server)
            await client.initialize()
            seen = await client.call("echo")
            assert seen.headers["connection"] == "close"
            assert await client.stream.receive_some(1) == b""


async def test_a_server_that_is_down_and_comes_back(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            await client.initialize()
            server.refuse_connections()
            with pytest.raises(OSError, match="connect"):
                await connect(server)
            assert (await client.call("echo")).status == 200
            await server.accept_connections()
            await server.accept_connections()
            other = await connect(server)
            other.session = client.session
            assert (await other.call("echo")).status == 200


async def test_tls(connect, autojump_clock):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with trio.fail_after(5):
        async with FakeServer.http(ssl_context=context) as server:
            assert server.url.startswith("https://127.0.0.1:")
            client = await connect(server, trust=trust)
            await client.initialize()
            assert (await client.call("echo")).status == 200
            stranger = await connect(server, trust=ssl.create_default_context())
            with pytest.raises(trio.BrokenResourceError):
                await stranger.rpc("ping")
            await trio.aclose_forcefully(stranger.stream)
            await server.wait_until(lambda: server.connections == 1)
            server.keep_alive_max_requests = 1
            await client.call("echo")
            assert await client.stream.receive_some(1) == b""


async def test_two_hundred_connections_at_once(connect, autojump_clock):
    with trio.fail_after(3600):
        async with FakeServer.http(tools=[counter_tool(), sleep_tool()]) as server:

            async def one() -> None:
                client = await connect(server)
                await client.initialize()
                await client.call("sleep", {"seconds": 1})
                for _ in range(4):
                    assert (await client.call("counter")).status == 200

            async with trio.open_nursery() as nursery:
                for _ in range(200):
                    nursery.start_soon(one)
            assert server.executions == {"counter": 800, "sleep": 200}
            assert server.connections_peak == 200
            texts = {run.session_id for run in server.executed}
            assert len(texts) == 200


async def test_pipelined_requests_are_answered_in_order(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            ping = b'{"jsonrpc":"2.0","id":%d,"method":"initialize"}'
            data = b""
            for number in (1, 2):
                body = ping % number
                data += (
                    b"POST /mcp HTTP/1.1\r\nhost: x\r\naccept: application/json, text/event-stream\r\n"
                    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
                )
            await client.stream.send_all(data)
            got = b""
            while got.count(b'"id":') < 2:
                got += await client.stream.receive_some(65536)
            assert got.index(b'"id":1,') < got.index(b'"id":2,')


async def test_what_is_not_http_is_filed_and_refused(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            await client.stream.send_all(b"\x16\x03\x01 nonsense\r\n\r\n")
            assert (await client.stream.receive_some(100)).startswith(b"HTTP/1.1 400")
            assert [arrival.kind for arrival in server.log] == ["invalid"]
            assert (await connect(server)).server is server


async def test_a_large_body_may_ask_first(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            await client.stream.send_all(
                b"POST /mcp HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
            )
            assert (await client.stream.receive_some(100)).startswith(b"HTTP/1.1 100")


async def test_an_exception_of_the_body_leaves_as_itself(autojump_clock):
    with pytest.raises(KeyError, match="mine"):
        async with FakeServer.http():
            raise KeyError("mine")


async def test_a_cancelled_body_leaves_cancelled(autojump_clock):
    with trio.move_on_after(1) as scope:
        async with FakeServer.http():
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_fault_of_the_script_is_loud(connect, autojump_clock):
    def wrong(arrival):
        raise RuntimeError("a fault of the test")

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="fault"), flatten_subgroups=True):
        async with FakeServer.http() as server:
            server.on("*", Delay(0), when=wrong)
            client = await connect(server)
            with trio.fail_after(5):
                await client.rpc("ping")
                await trio.sleep_forever()


async def test_in_a_nursery_of_ones_own_and_only_once(connect, autojump_clock):
    with trio.fail_after(5):
        server = FakeServer.http(tools=[FakeTool("t")])
        with pytest.raises(RuntimeError, match="listen"):
            _ = server.url
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            await (await connect(server)).initialize()
            nursery.cancel_scope.cancel()
        with pytest.raises(RuntimeError, match="once"):
            await server.run()


async def test_a_taken_port_is_an_os_error(autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            with pytest.raises(OSError, match="in use"):
                async with FakeServer.http(port=server.port):
                    pass


async def test_the_log_can_be_cleared(connect, autojump_clock):
    with trio.fail_after(5):
        async with FakeServer.http() as server:
            client = await connect(server)
            await client.initialize()
            await client.call("echo")
            server.clear_log()
            assert (server.log, server.executed, server.count("initialize")) == ([], [], 0)
            await client.call("echo")
            assert [arrival.number for arrival in server.arrivals(tool="echo")] == [3]
