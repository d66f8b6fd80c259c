"""What the tests of `afpool.aio` share: a loop in debug mode, bounds, servers in the runtime's own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import attrs
import trio

from afpool import Identity, Plan, RuntimeConfig, Server, define_tool
from afpool.client import HttpTransport
from afpool.testing import FakeServer, in_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from afpool.testing import FakeTool

WITHIN = 60.0
ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="globex", principal="bob")


def in_asyncio(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run in an asyncio loop in debug mode, within a bound."""

    async def bounded() -> Any:
        async with asyncio.timeout(WITHIN):
            return await main()

    return asyncio.run(bounded(), debug=True)


async def seen(event: threading.Event) -> None:
    """Wait in asyncio for something that happens in another thread."""
    assert await asyncio.to_thread(event.wait, WITHIN)


@attrs.define(eq=False)
class Fakes:
    """A configuration whose servers live in memory, in the runtime's own thread.

    Attributes:
        tools: Server to its tools.
        config: Further fields of the configuration.
        servers: The running ones.
    """

    tools: dict[str, list[FakeTool]]
    config: dict[str, Any] = attrs.field(factory=dict)
    options: dict[str, Any] = attrs.field(factory=dict)
    servers: dict[str, FakeServer] = attrs.field(factory=dict)
    left: threading.Event = attrs.field(factory=threading.Event)

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[RuntimeConfig]:
        async with contextlib.AsyncExitStack() as stack:
            for name, tools in self.tools.items():
                fake = FakeServer.http(tools=tools, memory=True, host=f"{name}.test")
                self.servers[name] = await stack.enter_async_context(fake)
            listed = [
                Server(name=name, plan=Plan(transport=HttpTransport(url=fake.url)), **self.options)
                for name, fake in self.servers.items()
            ]
            yield RuntimeConfig(servers=listed, seams=in_memory(*self.servers.values()), **self.config)
        self.left.set()


@attrs.define(eq=False)
class Stuck:
    """A tool of the host's own that waits until it is let go, or cancelled."""

    began: threading.Event = attrs.field(factory=threading.Event)
    cancelled: threading.Event = attrs.field(factory=threading.Event)
    runs: int = 0
    go: trio.Event = attrs.field(factory=trio.Event)

    def tool(self, name: str = "stuck") -> Any:
        async def wait(_args: Any, _ctx: Any) -> str:
            self.runs += 1
            self.began.set()
            try:
                await self.go.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise
            return "let go"

        return define_tool(execute=wait, name=name)


@define_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.lowlevel.checkpoint()
    return a + b


async def arrived(runtime: Any, fakes: Fakes, calls: int, server: str = "one") -> None:
    """Wait in asyncio until so many calls have reached a server."""
    fake = fakes.servers[server]
    await runtime.run_in_trio(lambda _: fake.wait_until(lambda: fake.count("tools/call") >= calls))
