"""One call with pydantic-ai."""

import asyncio
import sys

from pydantic_ai.mcp import MCPToolset


async def main(url: str, token: str) -> None:
    async with MCPToolset(url, headers={"Authorization": f"Bearer {token}"}) as toolset:
        print(await toolset.direct_call_tool("echo", {"n": 1}))


asyncio.run(main(*sys.argv[1:]))
