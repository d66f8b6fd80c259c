"""One call with google-adk."""

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.adk.tools.tool_context import ToolContext


async def main(url: str, token: str) -> None:
    params = StreamableHTTPConnectionParams(url=url, headers={"Authorization": f"Bearer {token}"})
    toolset = McpToolset(connection_params=params)
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="app", user_id="alice")
    context = InvocationContext(
        invocation_id="1", agent=LlmAgent(name="agent"), session=session, session_service=sessions
    )
    tools = {tool.name: tool for tool in await toolset.get_tools()}
    print(await tools["echo"].run_async(args={"n": 1}, tool_context=ToolContext(context)))
    await toolset.close()


asyncio.run(main(*sys.argv[1:]))
