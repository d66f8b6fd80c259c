"""One call with mcp-pool."""

import asyncio
import sys

from mcpool import MCPPool


async def main(url: str, token: str) -> None:
    async with MCPPool(endpoint=url, auth=token, min_sessions=1) as pool:
        print((await pool.call_tool("echo", {"n": 1})).content[0].text)


asyncio.run(main(*sys.argv[1:]))
