"""google-adk: one `McpToolset` for all, whose `header_provider` gives the token of the invocation's user;
timeouts around the call, as its own is one for the server.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

os.environ["OTEL_SDK_DISABLED"] = "true"

from adapting import Host, described, main
from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.tool_context import ToolContext
from mcp import StdioServerParameters


class AdkHost(Host):
    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.toolsets: dict[str, McpToolset] = {}
        self.of: dict[str, str] = {}
        self.tools: dict[str, dict[str, Any]] = {}
        self.contexts: dict[str, InvocationContext] = {}
        self.sessions = InMemorySessionService()
        self.agent = LlmAgent(name="agent")

    async def open(self, user: str, **where: Any) -> None:
        if "command" in where:
            program, *rest = where["command"]
            name = user
            self.toolsets[name] = McpToolset(
                connection_params=StdioConnectionParams(
                    server_params=StdioServerParameters(command=program, args=rest), timeout=30
                )
            )
        else:
            name = where["url"]
            self.tokens[user] = where["token"]
            if name not in self.toolsets:
                self.toolsets[name] = McpToolset(
                    connection_params=StreamableHTTPConnectionParams(url=name, timeout=30),
                    header_provider=lambda ctx: {"Authorization": f"Bearer {self.tokens[ctx.user_id]}"},
                )
        self.of[user] = name
        session = await self.sessions.create_session(app_name="app", user_id=user)
        self.contexts[user] = InvocationContext(
            invocation_id=f"of-{user}", agent=self.agent, session=session, session_service=self.sessions
        )
        await self.list(user)

    async def list(self, user: str) -> list[dict[str, Any]]:
        found = await self.toolsets[self.of[user]].get_tools(ReadonlyContext(self.contexts[user]))
        self.tools[user] = {tool.name: tool for tool in found}
        return [described(tool.name, tool.description) for tool in found]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        async with asyncio.timeout(timeout):
            result = await self.tools[user][tool].run_async(
                args=args, tool_context=ToolContext(self.contexts[user], function_call_id="call")
            )
        if "error" in result:  # what its agents are told instead of an exception
            raise RuntimeError(result["error"])
        return str(result["content"][0]["text"])

    async def rotate(self, user: str, token: str) -> None:
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        self.tools.pop(user, None)
        name = self.of.pop(user)
        if name not in self.of.values():
            await self.toolsets.pop(name).close()

    async def shutdown(self) -> None:
        for name in list(self.toolsets):
            await self.toolsets.pop(name).close()


if __name__ == "__main__":
    main(AdkHost)
