"""Worlds whose configuration changes: servers that are configured by name, over as many fake servers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs

import afpool
from afpool import HttpTransport, Plan, Server
from afpool.testing import FakeServer, FakeTool, echo_tool
from tests.pool.kit import ALICE, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from afpool import BoundTool, Pool, Reconfigured, Use


@attrs.define(eq=False)
class Several:
    """A pool over some of several fake servers."""

    pool: Pool
    fakes: dict[str, FakeServer]

    def server(self, name: str, at: str | None = None, mark: str = "one", **members: Any) -> Server:
        """How a server is configured; `at` is the fake that its plan leads to, by default its namesake."""
        return Server(name=name, plan=self.plan(at or name, mark), **members)

    def plan(self, at: str, mark: str = "one", **members: Any) -> Plan:
        transport = HttpTransport(url=self.fakes[at].url, headers={"x-mark": mark})
        return Plan(transport=transport, **members)

    def configure(self, *names: str | Server, **how: Any) -> Reconfigured:
        servers = [self.server(each) if isinstance(each, str) else each for each in names]
        return self.pool.reconfigure(servers, **how)

    async def tool(self, server: str, name: str = "echo", who: Any = ALICE) -> BoundTool:
        return (await self.pool.tools(who, server))[name]

    def sent(self, at: str, tool: str = "echo") -> int:
        return len(self.fakes[at].arrivals("tools/call", tool))

    def actor(self, server: str, who: Any = ALICE) -> Any:
        return self.pool._existing(self.pool.key_of(who, server))

    def use(self, call_id: str) -> Use:
        return next(use for use in reversed(self.pool.records.uses) if use.call_id == call_id)

    async def alone(self, *servers: str) -> None:
        """Wait until no clients are open but those of these servers."""
        clients = self.pool.openings.clients
        await until(lambda: {client.server for client in clients.values()} <= set(servers))


@contextlib.asynccontextmanager
async def several(
    *names: str,
    fakes: tuple[str, ...] = ("files", "mail"),
    tools: list[FakeTool] | None = None,
    http: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Several]:
    """Open fake servers and a pool over those that are named, or all."""
    async with contextlib.AsyncExitStack() as stack:
        opened = {
            name: await stack.enter_async_context(
                FakeServer.http(tools=list(tools or [echo_tool(), FakeTool("block")]), **(http or {}))
            )
            for name in fakes
        }
        here = Several(None, opened)  # type: ignore[arg-type]
        servers = [here.server(name) for name in names or fakes]
        here.pool = await stack.enter_async_context(afpool.open_pool(servers, **options))
        yield here
