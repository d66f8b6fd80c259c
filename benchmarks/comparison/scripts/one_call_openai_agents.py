"""One call with openai-agents."""

import asyncio
import sys

from agents.mcp import MCPServerStreamableHttp


async def main(url: str, token: str) -> None:
    params = {"url": url, "headers": {"Authorization": f"Bearer {token}"}}
    async with MCPServerStreamableHttp(params) as server:
        print((await server.call_tool("echo", {"n": 1})).content[0].text)


asyncio.run(main(*sys.argv[1:]))
