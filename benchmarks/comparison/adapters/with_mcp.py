"""The official `mcp` SDK: one `Client` for each user, in a task of its own, over an HTTP client whose `Auth`
gives the user's token to each request; timeouts by `read_timeout_seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

import httpx2
from adapting import Held, Host, described, main
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Bearer(httpx2.Auth):
    """Asks for the token at each request."""

    def __init__(self, token: Callable[[], str]) -> None:
        self.token = token

    def auth_flow(self, request: Any) -> Iterator[Any]:
        request.headers["Authorization"] = f"Bearer {self.token()}"
        yield request


@contextlib.asynccontextmanager
async def connected(url: str, token: Callable[[], str]) -> AsyncIterator[Client]:
    async with (
        create_mcp_http_client(auth=Bearer(token)) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


class SdkHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.held: dict[str, Held] = {}

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            manager: Any = Client(StdioServerParameters(command=program, args=rest))
        else:
            self.tokens[user] = where["token"]
            manager = connected(where["url"], lambda: self.tokens[user])
        held = Held(manager)
        await held.open()
        self.held[user] = held

    async def list(self, user: str) -> list[dict[str, Any]]:
        return [
            described(tool.name, tool.description)
            for tool in (await self.held[user].value.list_tools()).tools
        ]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        result = await self.held[user].value.call_tool(tool, args, read_timeout_seconds=timeout)
        return str(result.content[0].text)

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        await self.held.pop(user).close()

    async def shutdown(self) -> None:
        await asyncio.gather(*map(self.close, list(self.held)))

    async def ambient(self, url: str) -> None:
        who.set("opener")
        held = Held(connected(url, who.get))
        await held.open()
        self.held["ambient"] = held

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        who.set(token)
        return await self.call("ambient", "echo", args, 30.0)


if __name__ == "__main__":
    main(SdkHost)
