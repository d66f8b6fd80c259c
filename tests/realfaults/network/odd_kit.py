"""A server of a few lines, for what no library would write, and a pool over it and over a good one."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any

import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server, TlsConfig
from afpool.testing import FakeServer
from tests.pool.kit import ALICE, BOB, quiet, refused
from tests.realfaults.running import tls

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
                read = await request(stream)
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
                await stream.send_all(answer(message))


async def request(stream: Any) -> tuple[bytes, bytes] | None:
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


def answer(message: dict[str, Any]) -> bytes:
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
