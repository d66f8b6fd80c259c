"""openai-agents: one `MCPServerStreamableHttp` for each user, connected and cleaned up by an
`MCPServerManager`, with an `Auth` that gives the user's token to each request; timeouts around the call,
as its own is one for the server.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from typing import TYPE_CHECKING, Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

import httpx2
from adapting import Host, described, main
from agents.mcp import MCPServerManager, MCPServerStdio, MCPServerStreamableHttp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Bearer(httpx2.Auth):
    """Asks for the token at each request."""

    def __init__(self, token: Callable[[], str]) -> None:
        self.token = token

    def auth_flow(self, request: Any) -> Iterator[Any]:
        request.headers["Authorization"] = f"Bearer {self.token()}"
        yield request


class AgentsHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.managers: dict[str, MCPServerManager] = {}
        self.servers: dict[str, Any] = {}

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            server: Any = MCPServerStdio(
                {"command": program, "args": rest}, client_session_timeout_seconds=30
            )
        else:
            self.tokens[user] = where["token"]
            server = self._server(where["url"], lambda: self.tokens[user])
        await self._manage(user, server)

    def _server(self, url: str, token: Callable[[], str]) -> Any:
        return MCPServerStreamableHttp(
            {"url": url, "timeout": 30, "auth": Bearer(token)}, client_session_timeout_seconds=30
        )

    async def _manage(self, user: str, server: Any) -> None:
        manager = MCPServerManager([server], strict=True)
        await manager.__aenter__()
        self.managers[user], self.servers[user] = manager, server

    async def list(self, user: str) -> list[dict[str, Any]]:
        return [described(tool.name, tool.description) for tool in await self.servers[user].list_tools()]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        async with asyncio.timeout(timeout):
            result = await self.servers[user].call_tool(tool, args)
        return str(result.content[0].text)

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        self.servers.pop(user)
        await self.managers.pop(user).__aexit__(None, None, None)

    async def shutdown(self) -> None:
        await asyncio.gather(*map(self.close, list(self.managers)))

    async def ambient(self, url: str) -> None:
        who.set("opener")
        await self._manage("ambient", self._server(url, who.get))

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        who.set(token)
        return await self.call("ambient", "echo", args, 30.0)


if __name__ == "__main__":
    main(AgentsHost)
