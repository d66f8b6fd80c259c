"""One call with langchain-mcp-adapters."""

import asyncio
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(url: str, token: str) -> None:
    server = {"transport": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"lab": server}).get_tools()}
    print(await tools["echo"].ainvoke({"n": 1}))


asyncio.run(main(*sys.argv[1:]))
