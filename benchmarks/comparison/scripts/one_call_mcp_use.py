"""One call with mcp-use."""

import asyncio
import sys

from mcp_use import MCPClient


async def main(url: str, token: str) -> None:
    client = MCPClient({"mcpServers": {"lab": {"url": url, "headers": {"Authorization": f"Bearer {token}"}}}})
    session = await client.create_session("lab")
    print((await session.call_tool("echo", {"n": 1})).content[0].text)
    await client.close_all_sessions()


asyncio.run(main(*sys.argv[1:]))
