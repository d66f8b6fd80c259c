"""mcp-pool: one `MCPPool` for all users, each call with the user's token in `headers` and the user as
`affinity_key`; timeouts around the call. The pool itself opens its sessions with the token of the user
who came first.
It is installed with line 1 of the SDK: with line 2, which it allows, it opened no session.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from adapting import Host, described, main
from mcpool import MCPPool, PoolConfig

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class McpPoolHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.pools: dict[str, MCPPool] = {}
        self.of: dict[str, str] = {}

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            name, config = (
                user,
                PoolConfig(endpoint=program, transport="stdio", stdio_args=rest, min_sessions=1),
            )
        else:
            name = where["url"]
            self.tokens[user] = where["token"]
            config = PoolConfig(endpoint=name, auth=where["token"])
        self.of[user] = name
        if name not in self.pools:
            self.pools[name] = MCPPool(config=config)
            await self.pools[name].start()

    async def list(self, user: str) -> list[dict[str, Any]]:
        found = await self.pools[self.of[user]].list_tools()
        return [described(tool.name, tool.description) for tool in found.tools]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        headers = {"Authorization": f"Bearer {self.tokens[user]}"} if user in self.tokens else None
        async with (
            asyncio.timeout(timeout),
            self.pools[self.of[user]].session(headers=headers, affinity_key=user) as session,
        ):
            result = await session.call_tool(tool, args)
        return str(result.content[0].text)

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        name = self.of.pop(user)
        if name not in self.of.values():
            await self.pools.pop(name).shutdown()

    async def shutdown(self) -> None:
        for name in list(self.pools):
            await self.pools.pop(name).shutdown()


if __name__ == "__main__":
    main(McpPoolHost)
