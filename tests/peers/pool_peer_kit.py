"""What the tests of the pool against real servers share: targets, their tools, and a proxy that remembers.

Claims about what was sent are read from the proxy's copy of the bytes, from `/proc`, or from the server's own
answer, never from the pool.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs
import httpx
import trio

import afpool
from afpool import HttpTransport, Identity, Plan, Server, StdioTransport, WebSocketTransport
from tests.peers.conftest import PEERS, command_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest

    from afpool import BoundTool, Pool
    from afpool.client import Client
    from tests.peers.conftest import StartHttpPeer

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")
MODERN = "2026-07-28"
LEGACY = "2025-11-25"

Kind: TypeAlias = Literal["http", "stdio", "ws"]


@attrs.frozen
class Target:
    """One peer, one transport, and the protocol version that the plan pins, if any."""

    peer: str
    kind: Kind
    version: str | None = None

    @property
    def stateless(self) -> bool:
        """Whether the two sides are to agree on the era without sessions."""
        return self.peer == "mcp2" and self.version in (None, MODERN)

    @property
    def python(self) -> bool:
        """Whether it has the tools of the two Python peers."""
        return self.peer != "everything"

    def __str__(self) -> str:
        pinned = "" if self.version is None else f"-{self.version}"
        return f"{self.peer}-{self.kind}{pinned}"


PINNED = (Target("mcp2", "http", LEGACY), Target("mcp2", "stdio", LEGACY))
HTTP = (*(Target(peer, "http") for peer in PEERS), PINNED[0])
STDIO = tuple(Target(peer, "stdio") for peer in PEERS)
WS = (Target("mcp1", "ws"), Target("mcp2", "ws"), Target("mcp2", "ws", LEGACY))
TARGETS = (*HTTP, *STDIO, PINNED[1], *WS)


def url_of(request: pytest.FixtureRequest, target: Target) -> str:
    """The endpoint of the running peer that the tests of one worker share."""
    name = f"{target.peer}_ws_url" if target.kind == "ws" else f"{target.peer}_url"
    url: str = request.getfixturevalue(name)
    return url


def transport_of(
    request: pytest.FixtureRequest, target: Target
) -> HttpTransport | StdioTransport | WebSocketTransport:
    """How to get to a target."""
    if target.kind == "ws":
        return WebSocketTransport(url=url_of(request, target))
    if target.kind == "http":
        return HttpTransport(url=url_of(request, target))
    return stdio_of(target)


def own_transport(
    start_http_peer: StartHttpPeer, target: Target
) -> HttpTransport | StdioTransport | WebSocketTransport:
    """How to get to a peer that the test has for itself."""
    if target.kind == "stdio":
        return stdio_of(target)
    url = start_http_peer(target.peer, target.kind).url
    return WebSocketTransport(url=url) if target.kind == "ws" else HttpTransport(url=url)


def stdio_of(target: Target, who: str | None = None) -> StdioTransport:
    """A child of its own; `who` goes into its environment, where `/proc` shows it."""
    command = command_of(target.peer, "stdio")
    env = dict(command.env) if who is None else {**command.env, "AFPOOL_TEST_WHO": who}
    return StdioTransport.of(*command.argv, env=env)


def server_of(
    target: Target, transport: HttpTransport | StdioTransport | WebSocketTransport, **more: Any
) -> Server:
    return Server(name="peer", plan=Plan(transport=transport, protocol_version=target.version), **more)


def only_client(pool: Pool) -> Client:
    """The one client that is open."""
    (client,) = pool.openings.clients.values()
    return client


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that no event tells of."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 -- other processes set no event
            await trio.sleep(0.005)


def kinds(pool: Pool) -> list[str]:
    """The kinds of the filed events, in order."""
    return [event.kind for event in pool.records.events]


# ---------------------------------------------------------------------------- the peers' tools


@attrs.frozen
class Work:
    """A call that any peer can do."""

    tool: str
    args: dict[str, Any]
    answer: str

    async def by(self, tools: Any, identity: Identity = ALICE, **options: Any) -> str:
        """Call it and return the text."""
        tool: BoundTool = tools[self.tool]
        result = await tool.call(self.args, identity=identity, **options)
        assert not result.is_error, result.text
        return result.text


def echo(target: Target, text: str) -> Work:
    if target.python:
        return Work("echo", {"text": text}, text)
    return Work("echo", {"message": text}, f"Echo: {text}")


def add(target: Target, a: int, b: int) -> Work:
    if target.python:
        return Work("add", {"a": a, "b": b}, str(a + b))
    return Work("get-sum", {"a": a, "b": b}, f"The sum of {a} and {b} is {a + b}.")


def steps(target: Target, count: int, seconds: float = 0.0) -> Work:
    """A call that reports progress `count` times; on `everything` it takes `seconds`, else none."""
    if target.python:
        return Work("count", {"steps": count}, f"counted {count}")
    return Work(
        "trigger-long-running-operation",
        {"duration": seconds or 0.3, "steps": count},
        f"Long running operation completed. Duration: {seconds or 0.3} seconds, Steps: {count}.",
    )


def sleep(target: Target, seconds: float) -> Work:
    if target.python:
        return Work("sleep", {"seconds": seconds}, f"slept {seconds}")
    return steps(target, 1, seconds)


# ---------------------------------------------------------------------------- a proxy that keeps what it saw


class Tunnel:
    """One TCP connection through the proxy, both ways; `cut` ends it."""

    def __init__(self) -> None:
        self.up = bytearray()
        self.down = bytearray()
        self.open = True
        self.cut: Callable[[], object] = lambda: None


class Proxy:
    """A TCP proxy in front of an HTTP peer; keeps every byte, per connection."""

    def __init__(self, upstream: str) -> None:
        self._upstream = httpx.URL(upstream)
        self.tunnels: list[Tunnel] = []
        self.peak = 0
        self.url = ""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        self.url = str(self._upstream.copy_with(port=port))
        task_status.started()
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, client: trio.SocketStream) -> None:
        tunnel = Tunnel()
        self.tunnels.append(tunnel)
        self.peak = max(self.peak, sum(other.open for other in self.tunnels))
        port = self._upstream.port
        assert port is not None
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async with (
                client,
                await trio.open_tcp_stream("127.0.0.1", port) as server,
                trio.open_nursery() as both,
            ):
                tunnel.cut = both.cancel_scope.cancel
                both.start_soon(self._pump, client, server, tunnel.up, both.cancel_scope)
                both.start_soon(self._pump, server, client, tunnel.down, both.cancel_scope)
        tunnel.open = False

    @staticmethod
    async def _pump(
        source: trio.SocketStream, sink: trio.SocketStream, copy: bytearray, scope: trio.CancelScope
    ) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in source:
                copy += chunk
                await sink.send_all(chunk)
        scope.cancel()

    def count(self, method: str) -> int:
        """How many requests of a JSON-RPC method went up."""
        pattern = re.compile(rb'"method":\s*"' + re.escape(method.encode()) + rb'"')
        return sum(len(pattern.findall(tunnel.up)) for tunnel in self.tunnels)

    def header_values(self, name: str) -> list[set[str]]:
        """The values of a request header, per connection."""
        pattern = re.compile(rb"\r\n" + re.escape(name.encode()) + rb": ([^\r]*)\r\n", re.IGNORECASE)
        return [{found.decode() for found in pattern.findall(tunnel.up)} for tunnel in self.tunnels]

    def statuses_of(self, verb: str) -> list[int]:
        """The statuses that requests of an HTTP method were answered with, on connections of their own."""
        found = []
        for tunnel in self.tunnels:
            asked = re.findall(rb"(?:^|\r\n\r\n|\})([A-Z]+) /\S* HTTP/1\.1\r\n", bytes(tunnel.up))
            answers = re.findall(rb"HTTP/1\.1 (\d{3})", bytes(tunnel.down))
            found += [
                int(status) for asked_verb, status in zip(asked, answers, strict=False)
                if asked_verb.decode() == verb
            ]  # fmt: skip
        return found


@contextlib.asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """Run a proxy for the time of the block."""
    proxy = Proxy(url)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        yield proxy
        nursery.cancel_scope.cancel()


# ---------------------------------------------------------------------------- processes


def alive(pid: int) -> bool:
    """Whether a process is there; one that has ended and was not reaped counts as there."""
    return Path(f"/proc/{pid}").exists()


def environ(pid: int) -> dict[str, str]:
    """What a process was started with."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.asynccontextmanager
async def pool_of(server: Server, **options: Any) -> AsyncIterator[Pool]:
    """A pool of one server, with every wait in the test bounded."""
    with trio.fail_after(60):
        async with afpool.open_pool([server], **options) as pool:
            yield pool
