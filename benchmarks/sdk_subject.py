"""The official SDK's client as a process: `PYTHON sdk_subject.py KIND URL [AUTHORITY]`; see `windows.py`.

Run with the interpreter of `.cache/peers/mcp2`, which has the SDK and not this project. It runs on asyncio,
as its users run it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import windows
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windows import Call

TEXT = "a short line of text, as tools take it"
VERSION = "2026-07-28"
RESPONDERS = str(Path(__file__).with_name("responders.py"))


@asynccontextmanager
async def connected(kind: str, url: str) -> AsyncIterator[Call]:
    # the responder needs msgspec, so it runs with the interpreter that started the comparison
    target = url if kind == "sdk-http" else StdioServerParameters(command=url, args=[RESPONDERS, "stdio"])
    async with Client(target, mode=VERSION) as client:

        async def call(_: int) -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            if result.content[0].text != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        yield call


async def opened(url: str, authority: str) -> None:
    """Open clients one after the other, with one SSL context for all."""
    context = ssl.create_default_context(cafile=authority)

    async def once() -> tuple[float, float]:
        began = time.perf_counter()
        async with (
            httpx2.AsyncClient(verify=context, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http), mode="auto") as client,
        ):
            result = await client.call_tool("echo", {"text": TEXT})
            ended = time.perf_counter()
            if result.content[0].text != TEXT:
                raise RuntimeError("the answer is not the one to this request")
        return began, ended

    await windows.openings(once)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "open-sdk":
        asyncio.run(opened(*sys.argv[2:]))
        sys.exit()
    asyncio.run(windows.run(partial(connected, *sys.argv[1:]), windows.asyncio_tasks))
