"""Servers without a kernel: no socket, no process, no thread, and a clock that may jump at once."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import attrs
import pytest
import trio
import trio.testing

import afpool
from afpool import (
    HttpTransport,
    Identity,
    Plan,
    Proxy,
    Seams,
    Server,
    StdioTransport,
    WebSocketTransport,
    open_pool,
)
from afpool.testing import (
    Drop,
    FakeProxy,
    FakeServer,
    FakeTool,
    Flood,
    echo_tool,
    in_memory,
    progress_tool,
    sleep_tool,
    whoami_tool,
)
from afpool.testing._memory import WireStream
from afpool.transports import memory_link_pair

ALICE = Identity(tenant="acme", principal="alice")
TOOLS = [echo_tool(), sleep_tool(), progress_tool(), FakeTool("pay")]

KINDS: dict[str, dict[str, Any]] = {
    "http": {},
    "http-stateless": {"era": "stateless"},
    "http-chunked": {"answer": "json-chunked"},
    "http-events": {"answer": "sse"},
    "http+sse": {"streaming": "sse"},
    "websocket": {},
    "websocket-stateless": {"era": "stateless"},
    "stdio": {},
    "stdio-stateless": {"era": "stateless"},
}


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any, **_options: Any) -> Any:
        raise AssertionError("this test reaches for the kernel")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket.socket, "bind", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setattr(trio.to_thread, "run_sync", refused)


def make(kind: str, **options: Any) -> FakeServer:
    options = {"tools": TOOLS, **KINDS[kind], **options}
    if kind.startswith("stdio"):
        return FakeServer.stdio(**options)
    if kind.startswith("websocket"):
        return FakeServer.ws(memory=True, host="desk.test", **options)
    return FakeServer.http(memory=True, host="desk.test", **options)


def plan_for(server: FakeServer) -> Plan:
    if server.child is not None:
        return Plan(transport=StdioTransport.of(*server.command, env={"WHO": "alice"}))
    if server.websocket is not None:
        return Plan(transport=WebSocketTransport(url=server.url))
    return Plan(transport=HttpTransport(url=server.url, headers={"who": "alice"}))


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_is_served_without_a_kernel(kind: str, clock: trio.testing.MockClock) -> None:
    steps = []
    async with make(kind) as server:
        seams = in_memory(server)
        async with open_pool([Server(name="desk", plan=plan_for(server))], seams=seams) as pool:
            tools = await pool.tools(ALICE)
            assert (await tools["echo"].call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
            await tools["sleep"].call({"seconds": 5}, identity=ALICE)
            await tools["progress"].call({"steps": 2}, identity=ALICE, on_progress=steps.append)
            assert server.connections >= 1
            assert trio.current_time() >= 5
        assert steps
        await server.wait_until(lambda: server.connections == 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_whose_answer_is_lost_is_in_doubt(kind: str, clock: trio.testing.MockClock) -> None:
    async with make(kind) as server:
        server.on("tools/call", Drop(after_execution=True), tool="pay", times=1)
        plan = plan_for(server)
        async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
            pay = (await pool.tools(ALICE))["pay"]
            with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(60):
                await pay.call({}, identity=ALICE)
            assert caught.value.delivery == "in-doubt"
            assert server.executions["pay"] == 1


async def test_a_reset_and_a_restart_are_seen(clock: trio.testing.MockClock) -> None:
    async with make("http") as server:
        server.get_stream = False  # else its end tells the pool of the restart before the next call does
        plan = plan_for(server)
        async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
            tools = await pool.tools(ALICE)
            server.on("tools/call", Drop(reset=True), tool="pay", times=1)
            with pytest.raises(afpool.ConnectionLost):
                await tools["pay"].call({}, identity=ALICE)
            await server.restart()
            with pytest.raises(afpool.SessionExpiredError):
                await tools["echo"].call({}, identity=ALICE)
            server.refuse_connections()
            server.close_connections()
            with pytest.raises(afpool.OpenFailed):
                await pool.tools(ALICE, refresh=True)
            await server.accept_connections()
            assert await pool.tools(ALICE, refresh=True)


async def test_who_is_not_there_is_not_found(clock: trio.testing.MockClock) -> None:
    async with make("http") as server:
        seams = in_memory(server)
        for url, why in (
            ("http://elsewhere.test/mcp", "cannot be resolved"),
            (server.url.replace(f":{server.port}", ":9"), "refused"),
        ):
            plan = Plan(transport=HttpTransport(url=url))
            async with open_pool([Server(name="desk", plan=plan)], seams=seams) as pool:
                with pytest.raises(afpool.OpenFailed, match=why):
                    await pool.tools(ALICE)
        plan = Plan(transport=StdioTransport.of("nothing"))
        async with open_pool([Server(name="desk", plan=plan)], seams=seams) as pool:
            with pytest.raises(afpool.OpenFailed, match="was not found"):
                await pool.tools(ALICE)


async def test_tls_is_refused_in_words(clock: trio.testing.MockClock) -> None:
    async with make("http") as server:
        plan = Plan(transport=HttpTransport(url=server.url.replace("http:", "https:")))
        async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
            with pytest.raises(afpool.OpenFailed, match="needs a socket"):
                await pool.tools(ALICE)
        await server.wait_until(lambda: server.connections == 0)


async def test_two_servers_without_a_name_do_not_get_mixed_up(clock: trio.testing.MockClock) -> None:
    one = FakeServer.http(memory=True, tools=[FakeTool("one")])
    two = FakeServer.http(memory=True, tools=[FakeTool("two")])
    async with one, two:
        servers = [
            Server(name="one", plan=Plan(transport=HttpTransport(url=one.url))),
            Server(name="two", plan=Plan(transport=HttpTransport(url=two.url))),
        ]
        async with open_pool(servers, seams=in_memory(one, two)) as pool:
            assert sorted(await pool.tools(ALICE)) == ["one", "two"]


async def test_session_ids_can_be_told(clock: trio.testing.MockClock) -> None:
    numbers = iter(range(100))
    async with make("http", ids=lambda: f"session-{next(numbers)}") as server:
        plan = plan_for(server)
        async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
            await pool.tools(ALICE)
            assert [session.partition("-")[0] for session in server.sessions] == ["session"]


class TestChildren:
    async def test_its_environment_stands_where_headers_do(self, clock: trio.testing.MockClock) -> None:
        async with make("stdio", tools=[whoami_tool(headers=["who"])]) as server:
            plan = plan_for(server)
            async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
                result = await (await pool.tools(ALICE))["whoami"].call(identity=ALICE)
                assert "alice" in result.text
            assert {arrival.connection for arrival in server.log} == {1}

    @pytest.mark.parametrize(
        ("manners", "ending", "within"),
        [
            ({}, "exited", 0.1),
            ({"ignore_eof": True}, "terminated", 3),
            ({"ignore_eof": True, "ignore_sigterm": True}, "killed", 5),
        ],
    )
    async def test_it_is_ended_as_it_lets_itself_be_ended(
        self, manners: dict[str, Any], ending: str, within: float, clock: trio.testing.MockClock
    ) -> None:
        async with make("stdio", script=manners) as server:
            plan = plan_for(server)
            pool_cm = open_pool([Server(name="desk", plan=plan)], seams=in_memory(server))
            async with pool_cm as pool:
                await (await pool.tools(ALICE))["echo"].call({}, identity=ALICE)
                before = trio.current_time()
                report = await pool.aclose()
            assert (report.killed == 1) is (ending == "killed")
            assert trio.current_time() - before <= within
            if ending != "exited":
                assert trio.current_time() - before >= 1
            assert server.connections == 0

    async def test_its_complaints_are_kept(self, clock: trio.testing.MockClock) -> None:
        """More than a pipe holds: it would wait for ever if nobody read it."""
        async with make("stdio", script={"stderr_flood": 200_000, "exit_after": 4, "exit_code": 9}) as server:
            plan = plan_for(server)
            async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
                tools = await pool.tools(ALICE)
                await tools["echo"].call({}, identity=ALICE)
                await server.wait_until(lambda: server.connections == 0)
                assert server.connections_total == 1

    async def test_each_child_is_a_session_of_its_own(self, clock: trio.testing.MockClock) -> None:
        bob = Identity(tenant="acme", principal="bob")
        async with make("stdio") as server:
            plan = plan_for(server)
            async with open_pool([Server(name="desk", plan=plan)], seams=in_memory(server)) as pool:
                for who in (ALICE, bob):
                    await (await pool.tools(who))["echo"].call({}, identity=who)
                assert (server.connections, server.count("initialize")) == (2, 2)
                await server.restart()
                with pytest.raises(afpool.AfpoolError):
                    await (await pool.tools(ALICE))["echo"].call({}, identity=ALICE)
                assert server.connections <= 1

    def test_what_needs_a_process_is_refused(self) -> None:
        with pytest.raises(ValueError, match="process of its own"):
            FakeServer.stdio({"fork_child": True})
        with pytest.raises(ValueError, match="no meaning"):
            FakeServer.stdio({"rules": [{"method": "*", "action": {"do": "Status", "code": 500}}]})


async def test_the_other_seams_stay(clock: trio.testing.MockClock) -> None:
    given = Seams(unix_now=lambda: 5.0)
    async with make("http") as server:
        assert in_memory(server, seams=given).unix_now() == 5.0


async def test_a_server_that_does_not_run_takes_nobody(clock: trio.testing.MockClock) -> None:
    server = make("http")
    left, _ = trio.testing.memory_stream_pair()
    with pytest.raises(ConnectionRefusedError):
        server.serve_stream(left)


async def test_any_stream_is_served(clock: trio.testing.MockClock) -> None:
    """A stapled stream is closed by its halves, at once; one without a close of its own a moment later."""

    class Slow(trio.abc.Stream):
        def __init__(self, below: trio.abc.Stream) -> None:
            self.below = below
            self.closed = False

        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await self.below.send_all(data)

        async def wait_send_all_might_not_block(self) -> None:
            await self.below.wait_send_all_might_not_block()

        async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
            return await self.below.receive_some(max_bytes)

        async def aclose(self) -> None:
            self.closed = True
            await self.below.aclose()

    async with make("http") as server:
        for wrap in (lambda stream: stream, Slow):
            ours, theirs = trio.testing.memory_stream_pair()
            server.serve_stream(wrap(theirs))
            await ours.send_all(b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await ours.receive_some()).startswith(b"HTTP/1.1 404")
            server.close_connections()
            assert await ours.receive_some() == b""
            assert server.connections == 0


class Steps(trio.abc.Instrument):
    """Counts what tasks do."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_flood_that_nobody_reads_costs_nothing_while_it_waits(clock: trio.testing.MockClock) -> None:
    async with make("stdio") as server:
        server.on("*", Flood(b"x" * 100_000 + b"\n", times=20))
        ours, theirs = memory_link_pair()
        server.start_soon(server.serve_child, WireStream(theirs), WireStream(theirs))
        await WireStream(ours).send_all(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        await server.wait_for("ping")
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(10_000)
        trio.lowlevel.remove_instrument(steps)
        assert steps.count < 100
        ours.close()


async def test_a_proxy_needs_no_socket_either(clock: trio.testing.MockClock) -> None:
    async with make("http") as server:
        to_server = in_memory(server)

        async def dial(host: str, port: int) -> trio.abc.Stream:
            wire = await to_server.connect(socket.AF_INET, to_server.resolve(host, port)[0][1])
            return WireStream(wire)

        proxy = FakeProxy(memory=True, host="gate.test", port=3128, connect=dial)
        left, right = memory_link_pair()
        with pytest.raises(ConnectionRefusedError):
            proxy.serve_stream(WireStream(right))

        async def to_proxy(family: int, address: Any) -> Any:
            assert address == ("127.9.9.9", 3128)
            ours, theirs = memory_link_pair()
            proxy.serve_stream(WireStream(theirs))
            return ours

        seams = attrs.evolve(
            to_server, connect=to_proxy, resolve=lambda host, port: [(socket.AF_INET, ("127.9.9.9", port))]
        )
        async with proxy:
            transport = HttpTransport(url=server.url, proxy=Proxy(url=proxy.url))
            async with open_pool([Server(name="desk", plan=Plan(transport=transport))], seams=seams) as pool:
                assert (await (await pool.tools(ALICE))["echo"].call({}, identity=ALICE)).text == "{}"
        assert {tunnel.target for tunnel in proxy.tunnels} == {f"desk.test:{server.port}"}
        left.close()
