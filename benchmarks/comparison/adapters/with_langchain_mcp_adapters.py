"""langchain-mcp-adapters: one `MultiServerMCPClient` for each user, with an `Auth` that gives the user's
token to each request, and its tools, which open a session for each call; timeouts by
`read_timeout_seconds` and around the call.
"""

from __future__ import annotations

import asyncio
import contextvars
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
from adapting import Host, described, main
from langchain_mcp_adapters.client import MultiServerMCPClient

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


class LangchainHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.clients: dict[str, MultiServerMCPClient] = {}
        self.tools: dict[str, dict[str, Any]] = {}

    async def open(self, user: str, **where: Any) -> None:
        common = {"session_kwargs": {"read_timeout_seconds": timedelta(seconds=where.get("timeout", 30.0))}}
        if "command" in where:
            program, *rest = where["command"]
            connection: Any = {"transport": "stdio", "command": program, "args": rest, **common}
        else:
            self.tokens[user] = where["token"]
            auth = Bearer(lambda: self.tokens[user])
            connection = {"transport": "streamable_http", "url": where["url"], "auth": auth, **common}
        self.clients[user] = MultiServerMCPClient({"lab": connection})
        await self.list(user)

    async def list(self, user: str) -> list[dict[str, Any]]:
        found = await self.clients[user].get_tools()
        self.tools[user] = {tool.name: tool for tool in found}
        return [described(tool.name, tool.description) for tool in found]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        async with asyncio.timeout(timeout):
            content = await self.tools[user][tool].ainvoke(args)
        return str(content[0]["text"] if isinstance(content, list) else content)

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        self.clients.pop(user)
        self.tools.pop(user, None)

    async def shutdown(self) -> None:
        for user in list(self.clients):
            await self.close(user)

    async def ambient(self, url: str) -> None:
        who.set("opener")
        connection: Any = {"transport": "streamable_http", "url": url, "auth": Bearer(who.get)}
        self.clients["ambient"] = MultiServerMCPClient({"lab": connection})
        await self.list("ambient")

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        who.set(token)
        return await self.call("ambient", "echo", args, 30.0)


if __name__ == "__main__":
    main(LangchainHost)
