"""A pool in a process that may have little memory.

`python -m tests.realfaults.local.starving URL MEGABYTES SHARE LOG`, with `stdio` for the URL of a child. The
process may take SHARE times as much more memory as the answer has bytes. An answer that is too large for it
fails its call; then small ones are answered. Prints one line of JSON: how each ended, and what is left.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import trio

import afpool
from afpool import HttpTransport, Plan, Server, StdioTransport
from tests.realfaults.local.local_kit import ALICE, CHILD, person

MEGABYTE = 2**20


async def ended(tool: Any, who: Any, **arguments: Any) -> str:
    """How a call ends, with its verdict."""
    try:
        with trio.fail_after(30):
            result = await tool.call(arguments, identity=who)
    except afpool.AfpoolError as error:
        return f"{error.code} {error.delivery}"
    try:
        return f"answered {len(result.text)}"
    except MemoryError:  # it is decoded when it is read, by whoever reads it
        return "answered"


def allow(more: int) -> None:
    """Let this process take so many bytes more than it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


async def main(where: str, size: int, share: float, log: str) -> None:
    """Play it."""
    if where == "stdio":
        command = StdioTransport.of(sys.executable, "-S", "-E", str(CHILD), log)
        plan = Plan(transport=command, protocol_version="2025-11-25")
    else:
        plan = Plan(transport=HttpTransport(url=where, streaming="streamable"))
    big: dict[str, Any] = {"do": "big", "size": size * MEGABYTE, "n": 1}
    if where != "stdio":
        big = {"size": size * MEGABYTE}
    async with afpool.open_pool([Server(name="files", plan=plan)], max_message=2**30) as pool:
        tools = {who: (await pool.tools(who))["do"] for who in (ALICE, person(1))}
        small = {"n": 0} if where == "stdio" else {"size": 10}
        for who, tool in tools.items():
            await ended(tool, who, **small)
        allow(int(size * MEGABYTE * share))
        failed = [await ended(tools[ALICE], ALICE, **big) for _ in range(3)]
        sibling = await ended(tools[person(1)], person(1), **small)
        tool = (await pool.tools(ALICE))["do"]
        after = [await ended(tool, ALICE, **small) for _ in range(3)]
        left = len(pool.running)
    print(json.dumps({"failed": failed, "sibling": sibling, "after": after, "left": left}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
