"""One call with the official SDK."""

import asyncio
import sys

from mcp.client import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(url: str, token: str) -> None:
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        print((await client.call_tool("echo", {"n": 1})).content[0].text)


asyncio.run(main(*sys.argv[1:]))
