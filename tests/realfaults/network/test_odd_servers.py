"""Servers that no library would write, on real sockets: what each costs its own call, and nobody else."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Seams, Server, TlsConfig, WebSocketTransport
from afpool.testing import Delay, FakeServer, in_memory
from tests.pool.kit import ALICE, BOB, quiet, refused
from tests.realfaults.chaos import tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from afpool import Pool

PATIENCE = 20.0
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]
LIMITS = {"close_timeout": 1.0, "settle_timeout": 0.5, "open_timeout": 5.0}


class Odd:
    """A server of a few lines that speaks MCP until a call comes, and then does what the test wants.

    Attributes:
        calls: The bodies of the calls that it has read.
    """

    def __init__(self, on_call: Callable[[Any, bytes], Awaitable[None]], *, delay: float = 0.0) -> None:
        self._on_call = on_call
        self._delay = delay
        self.calls: list[dict[str, Any]] = []

    async def serve(self, stream: Any) -> None:
        """Serve one connection."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                read = await _request(stream)
                if read is None:
                    return
                head, body = read
                if not head.startswith(b"POST"):
                    await stream.send_all(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                    continue
                message = json.loads(body)
                if message["method"] == "tools/call":
                    self.calls.append(message)
                    await self._on_call(stream, json.dumps(message["id"]).encode())
                    continue
                await stream.send_all(_answer(message))


async def _request(stream: Any) -> tuple[bytes, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        more = await stream.receive_some(65536)
        if not more:
            return None
        body += more
    return head, body


def _answer(message: dict[str, Any]) -> bytes:
    method, number = message["method"], message.get("id")
    if number is None:
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        },
        "tools/list": {"tools": TOOLS},
        "ping": {},
    }
    if method not in results:
        error = {"code": -32601, "message": "no"}
        return http(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())
    return http(json.dumps({"jsonrpc": "2.0", "id": number, "result": results[method]}).encode())


def http(body: bytes, *, length: int | None = None) -> bytes:
    """An answer with a body."""
    size = len(body) if length is None else length
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % size + body


def result(number: bytes, text: str = "fine") -> bytes:
    """A call's result."""
    content = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
    return b'{"jsonrpc":"2.0","id":' + number + b',"result":' + content + b"}"


async def listen(nursery: trio.Nursery, handle: Callable[[Any], Awaitable[None]]) -> int:
    """Serve with `handle` on a port of this machine; which one."""
    serve = functools.partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
    listeners = await nursery.start(serve)
    return listeners[0].socket.getsockname()[1]


@contextlib.asynccontextmanager
async def odd_pool(
    on_call: Callable[[Any, bytes], Awaitable[None]], *, secure: bool = False, **limits: Any
) -> AsyncIterator[tuple[Odd, Pool]]:
    """An odd server, a good one, and a pool over both; the good one serves BOB."""
    odd = Odd(on_call)
    context, trust = tls()

    async def handle(stream: Any) -> None:
        if secure:
            stream = trio.SSLStream(stream, context, server_side=True)
        await odd.serve(stream)
        with contextlib.suppress(trio.BrokenResourceError):
            await trio.aclose_forcefully(stream)

    async with FakeServer.http() as good, trio.open_nursery() as nursery:
        port = await listen(nursery, handle)
        scheme = "https" if secure else "http"
        config = trust if secure else TlsConfig()
        mine = HttpTransport(url=f"{scheme}://127.0.0.1:{port}/mcp", tls=config)

        def plan(_: str, who: Identity) -> Plan:
            if who == BOB:
                return Plan(transport=HttpTransport(url=good.url))
            return Plan(transport=mine, protocol_version="2025-11-25")

        async with afpool.open_pool([Server(name="files")], plan=plan, **{**LIMITS, **limits}) as pool:
            bobs = (await pool.tools(BOB))["echo"]
            yield odd, pool
            await bobs.call({"n": 1}, identity=BOB)
            quiet(pool)
        nursery.cancel_scope.cancel()


async def ends(pool: Pool, code: str, delivery: str, *, within: float | None = None) -> None:
    """A call of ALICE's ends so, beside one of BOB's that is answered; then the key serves on."""
    tool, bobs = (await pool.tools(ALICE))["echo"], (await pool.tools(BOB))["echo"]
    deadline = None if within is None else trio.current_time() + within
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: refused(tool.call({"n": 1}, identity=ALICE, deadline=deadline), code, delivery)
        )
        for n in range(5):
            assert (await bobs.call({"n": n}, identity=BOB)).text == json.dumps({"n": n})
    with trio.fail_after(3):
        while pool.settling:  # noqa: ASYNC110
            await trio.sleep(0.01)


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

    async def on_call(stream: Any, number: bytes) -> None:
        nonlocal answers
        answers += 1
        first = http(result(number, f"answer {answers}"))
        forged = http(result(number, "forged"))
        if gap:
            await stream.send_all(first)
            await trio.sleep(gap)
            await stream.send_all(forged)
        else:
            await stream.send_all(first + forged)

    with trio.fail_after(PATIENCE):
        async with odd_pool(on_call) as (_, pool):
            tool = (await pool.tools(ALICE))["echo"]
            for n in range(1, 6):
                assert (await tool.call({"n": n}, identity=ALICE)).text == f"answer {n}"
                await trio.sleep(gap * 20)


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
                    answer = (await tool.call({"n": n}, identity=ALICE)).text
                    assert answer == f"answer to {odd.calls[-1]['id']}"


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
                    reply = _answer(json.loads(body))
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


# ---------------------------------------------------------------------------- slow to begin


@pytest.mark.parametrize(("seconds", "opens"), [(29.0, True), (31.0, False)])
async def test_an_opening_has_its_thirty_seconds(seconds: float, opens: bool, autojump_clock: Any):
    server = FakeServer.http(memory=True, host="crm.test")
    server.on("initialize", Delay(seconds), times=1)
    async with server:
        plan = Plan(transport=HttpTransport(url=server.url), protocol_version="2025-11-25")
        async with afpool.open_pool([Server(name="crm", plan=plan)], seams=in_memory(server)) as pool:
            if opens:
                await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
            else:
                await refused(pool.tools(ALICE), "open-failed", within=40)
            quiet(pool)


# ---------------------------------------------------------------------------- two families


@contextlib.contextmanager
def deaf(family: socket.AddressFamily) -> Any:
    """An address that answers no SYN: its queue is full, and nobody takes from it."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(family))
        listening.bind((host, 0))
        listening.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        yield listening.getsockname()


@pytest.mark.parametrize("family", [socket.AF_INET6, socket.AF_INET], ids=["ipv6", "ipv4"])
async def test_a_family_that_hangs_costs_a_quarter_of_a_second_and_no_descriptor(
    family: socket.AddressFamily,
):
    """A name with an address of each family, the first of which answers no SYN."""
    host = "127.0.0.1" if family == socket.AF_INET6 else "::1"
    other = socket.AF_INET if family == socket.AF_INET6 else socket.AF_INET6
    tried: list[tuple[int, float]] = []
    with trio.fail_after(PATIENCE), deaf(family) as silent:
        async with FakeServer.http(host=host) as server:
            found = [(int(family), silent), (int(other), (host, server.port))]
            real = Seams().connect

            async def connect(chosen: int, address: Any) -> Any:
                tried.append((chosen, trio.current_time()))
                return await real(chosen, address)

            seams = Seams(resolve=lambda _host, _port: found, connect=connect)
            plan = Plan(transport=HttpTransport(url=f"http://two.test:{server.port}/mcp"))
            async with afpool.open_pool([Server(name="two", plan=plan)], seams=seams) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                assert (await tool.call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
            assert [chosen for chosen, _ in tried[:2]] == [family, other]
            assert tried[1][1] - tried[0][1] >= 0.24
            await server.wait_until(lambda: server.connections == 0)


async def test_a_name_with_no_address_that_answers_is_a_failed_opening():
    with trio.fail_after(PATIENCE), deaf(socket.AF_INET6) as first, deaf(socket.AF_INET) as second:
        found = [(int(socket.AF_INET6), first), (int(socket.AF_INET), second)]
        plan = Plan(transport=HttpTransport(url="http://two.test/mcp"))
        async with afpool.open_pool(
            [Server(name="two", plan=plan)], seams=Seams(resolve=lambda _host, _port: found), open_timeout=0.7
        ) as pool:
            await refused(pool.tools(ALICE), "open-failed")
            quiet(pool)


# ---------------------------------------------------------------------------- WebSocket


@pytest.mark.parametrize("flood", ["pings", "fragments", "pongs"])
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "reads nothing"])
async def test_a_websocket_that_floods_costs_its_own_key(flood: str, reads: bool):
    """Control frames without end, or one message without end: the call ends, memory does not grow."""
    frame = {
        "pings": b"\x89\x7d" + b"p" * 125,
        "pongs": b"\x8a\x7d" + b"p" * 125,
        "fragments": b"\x00\x7e\xff\xff" + b"x" * 65535,
    }[flood]

    async def misbehave(stream: Any) -> None:
        if flood == "fragments":
            await stream.send_all(b"\x01\x01{")
        while True:
            await stream.send_all(frame * 8)

    with trio.fail_after(PATIENCE):
        async with FakeServer.ws() as server, FakeServer.http() as calm, trio.open_nursery() as nursery:

            async def relay(stream: trio.SocketStream) -> None:
                """Carry a connection until a call comes; what follows is no answer to it."""
                upstream = await trio.open_tcp_stream("127.0.0.1", server.port)
                flooding = False

                async def up() -> None:
                    nonlocal flooding
                    async for data in stream:
                        if not flooding:
                            await upstream.send_all(data)
                            if started.is_set():
                                flooding = True
                                inner.start_soon(misbehave, stream)
                        elif not reads:
                            await trio.sleep_forever()

                async def down() -> None:
                    async for data in upstream:
                        if not flooding:
                            await stream.send_all(data)

                with contextlib.suppress(Exception):
                    async with upstream, trio.open_nursery() as inner:
                        inner.start_soon(down)
                        await up()
                        inner.cancel_scope.cancel()

            started = trio.Event()
            port = await listen(nursery, relay)
            transport = WebSocketTransport(url=f"ws://127.0.0.1:{port}/mcp")

            def plan(_: str, who: Identity) -> Plan:
                if who == BOB:
                    return Plan(transport=HttpTransport(url=calm.url))
                return Plan(transport=transport, protocol_version="2025-11-25")

            async with afpool.open_pool(
                [Server(name="files")], plan=plan, max_message=1_000_000, cancel_grace=0.2, **LIMITS
            ) as pool:
                tool, bobs = (await pool.tools(ALICE))["echo"], (await pool.tools(BOB))["echo"]
                started.set()
                before = resident()
                async with trio.open_nursery() as calls:
                    calls.start_soon(_doubtful, tool, trio.current_time() + 0.8)
                    for n in range(20):
                        assert (await bobs.call({"n": n}, identity=BOB)).text == json.dumps({"n": n})
                        await trio.sleep(0.02)
                assert resident() - before < 60_000_000
                server.clear_log()
                pool.evict(pool.key_of(ALICE, "files"))
            nursery.cancel_scope.cancel()


async def _doubtful(tool: afpool.BoundTool, deadline: float) -> None:
    with pytest.raises(afpool.AfpoolError) as caught:
        await tool.call({"n": 1}, identity=ALICE, deadline=deadline)
    assert (caught.value.code, caught.value.delivery) in {
        ("deadline-exceeded", "in-doubt"),
        ("session-handle-lost", "in-doubt"),
    }


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
