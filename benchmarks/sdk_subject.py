"""The official SDK's client as a process: `PYTHON sdk_subject.py KIND URL`; see `windows.py`.

Run with the interpreter of `.cache/peers/mcp2`, which has the SDK and not this project. It runs on asyncio,
as its users run it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import windows
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

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


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(windows.run(partial(connected, *sys.argv[1:]), windows.asyncio_tasks))
