"""The official SDK's client as a process: `python serve_subject.py ERA URL TOKEN...`; see `windows.py`.

One client for each token, all in this process and on asyncio, as the SDK's users run them. Place n of a
window calls as identity n modulo their number.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import httpx2
import windows
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from responders import TEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from windows import Call


@asynccontextmanager
async def connected(era: str, url: str, tokens: Sequence[str]) -> AsyncIterator[Call]:
    """Open a client for each token, and list the tools as each."""
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for token in tokens:
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60)
            )
            client = Client(streamable_http_client(url, http_client=http), mode=era)
            clients.append(await stack.enter_async_context(client))
            await client.list_tools()

        async def call(place: int) -> None:
            result = await clients[place % len(clients)].call_tool("echo", {"text": TEXT})
            first = result.content[0]
            if not isinstance(first, TextContent) or first.text != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        yield call


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    era, url, *tokens = sys.argv[1:]
    asyncio.run(windows.run(partial(connected, era, url, tokens), windows.asyncio_tasks))
