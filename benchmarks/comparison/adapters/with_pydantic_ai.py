"""pydantic-ai: one `MCPToolset` whose `headers` function takes the token from the run's dependencies, so
that each user's run has a copy of its own (`for_run`), kept entered until the user goes or has a new
token; timeouts around the call.
"""

from __future__ import annotations

import asyncio
from typing import Any

from adapting import Host, described, main
from fastmcp.client.transports import StdioTransport
from pydantic_ai import RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage


class PydanticHost(Host):
    def __init__(self) -> None:
        self.shared: dict[str, MCPToolset[dict[str, str]]] = {}
        self.runs: dict[str, Any] = {}
        self.where: dict[str, Any] = {}
        self.tools: dict[str, Any] = {}

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            toolset: Any = MCPToolset(StdioTransport(program, rest, keep_alive=False), read_timeout=30)
        else:
            url = where["url"]
            if url not in self.shared:
                self.shared[url] = MCPToolset(
                    url,
                    headers=lambda ctx: {"Authorization": f"Bearer {ctx.deps['token']}"},
                    read_timeout=30,
                )
            toolset = self.shared[url]
        ctx: RunContext[dict[str, str]] = RunContext(
            deps={"token": where.get("token", "")}, model=TestModel(), usage=RunUsage()
        )
        run = await toolset.for_run(ctx)
        await run.__aenter__()
        self.runs[user], self.where[user] = (run, ctx), where

    async def list(self, user: str) -> list[dict[str, Any]]:
        run, ctx = self.runs[user]
        self.tools[user] = await run.get_tools(ctx)
        return [described(name, tool.tool_def.description) for name, tool in self.tools[user].items()]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        run, ctx = self.runs[user]
        async with asyncio.timeout(timeout):
            if user not in self.tools:
                await self.list(user)
            result = await run.call_tool(tool, args, ctx, self.tools[user][tool])
        return str(result)

    async def rotate(self, user: str, token: str) -> None:
        where = {**self.where[user], "token": token}
        await self.close(user)
        await self.open(user, **where)

    async def close(self, user: str) -> None:
        run, _ = self.runs.pop(user)
        self.tools.pop(user, None)
        await run.__aexit__(None, None, None)

    async def shutdown(self) -> None:
        await asyncio.gather(*map(self.close, list(self.runs)))


if __name__ == "__main__":
    main(PydanticHost)
