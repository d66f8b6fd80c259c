"""mcp-use: one `MCPClient` for each user, whose session is kept, with an `Auth` that gives the user's token
to each request; timeouts by `read_timeout_seconds`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"

import httpx
from adapting import Host, described, main
from mcp_use import MCPClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Bearer(httpx.Auth):
    """Asks for the token at each request."""

    def __init__(self, token: Callable[[], str]) -> None:
        self.token = token

    def auth_flow(self, request: Any) -> Iterator[Any]:
        request.headers["Authorization"] = f"Bearer {self.token()}"
        yield request


class McpUseHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.clients: dict[str, MCPClient] = {}
        self.sessions: dict[str, Any] = {}

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            config: dict[str, Any] = {"command": program, "args": rest}
        else:
            self.tokens[user] = where["token"]
            config = {"url": where["url"], "auth": Bearer(lambda: self.tokens[user])}
        await self._session(user, config)

    async def _session(self, user: str, config: dict[str, Any]) -> None:
        client = MCPClient.from_dict({"mcpServers": {"lab": config}})
        self.clients[user] = client
        self.sessions[user] = await client.create_session("lab")

    async def list(self, user: str) -> list[dict[str, Any]]:
        return [described(tool.name, tool.description) for tool in await self.sessions[user].list_tools()]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        result = await self.sessions[user].call_tool(tool, args, timedelta(seconds=timeout))
        return str(result.content[0].text)

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        self.sessions.pop(user, None)
        await self.clients.pop(user).close_all_sessions()

    async def shutdown(self) -> None:
        await asyncio.gather(*map(self.close, list(self.clients)))

    async def ambient(self, url: str) -> None:
        who.set("opener")
        await self._session("ambient", {"url": url, "auth": Bearer(who.get)})

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        who.set(token)
        return await self.call("ambient", "echo", args, 30.0)


if __name__ == "__main__":
    main(McpUseHost)
