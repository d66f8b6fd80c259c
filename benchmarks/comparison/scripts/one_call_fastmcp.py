"""One call with FastMCP."""

import asyncio
import sys

from fastmcp import Client


async def main(url: str, token: str) -> None:
    async with Client(url, auth=token) as client:
        print((await client.call_tool("echo", {"n": 1})).content[0].text)


asyncio.run(main(*sys.argv[1:]))
