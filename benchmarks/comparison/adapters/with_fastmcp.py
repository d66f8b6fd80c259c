"""FastMCP: one `Client` for each user, kept entered, with an `Auth` that gives the user's token to each
request; timeouts by the `timeout` of `call_tool`.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import httpx2
from adapting import Host, described, main
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

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


class FastMcpHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.clients: dict[str, Client[Any]] = {}

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            client: Client[Any] = Client(StdioTransport(program, rest, keep_alive=False))
        else:
            self.tokens[user] = where["token"]
            client = Client(StreamableHttpTransport(where["url"], auth=Bearer(lambda: self.tokens[user])))
        await client.__aenter__()
        self.clients[user] = client

    async def list(self, user: str) -> list[dict[str, Any]]:
        return [described(tool.name, tool.description) for tool in await self.clients[user].list_tools()]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        result = await self.clients[user].call_tool(tool, args, timeout=timeout)
        return str(result.content[0].text)

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        await self.clients.pop(user).__aexit__(None, None, None)

    async def shutdown(self) -> None:
        await asyncio.gather(*map(self.close, list(self.clients)))

    async def ambient(self, url: str) -> None:
        who.set("opener")
        client: Client[Any] = Client(StreamableHttpTransport(url, auth=Bearer(who.get)))
        await client.__aenter__()
        self.clients["ambient"] = client

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        who.set(token)
        return await self.call("ambient", "echo", args, 30.0)


if __name__ == "__main__":
    main(FastMcpHost)
