"""FastMCP's client as a process: `PYTHON fastmcp_subject.py URL`; see `windows.py`.

Run with the interpreter of `.cache/interop/fastmcp4`, on asyncio, as its users run it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import windows
from fastmcp import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windows import Call

TEXT = "a short line of text, as tools take it"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Call]:
    async with Client(url) as client:

        async def call(_: int) -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            if result.content[0].text != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        yield call


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(windows.run(partial(connected, sys.argv[1]), windows.asyncio_tasks))
