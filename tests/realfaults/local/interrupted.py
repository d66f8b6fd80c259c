"""A program that opens pools, calls and closes them, over and over, until it is interrupted.

`python -m tests.realfaults.local.interrupted LOG`. Says `ready` once, when the first call was answered.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import afpool
from afpool import Server
from tests.realfaults.local.local_kit import LIMITS, child_plan, person


async def main(log: Path) -> None:
    """Go on for ever."""
    people = [person(number) for number in range(3)]
    number = 0
    while True:
        servers = [Server(name="files", plan=child_plan(log))]
        async with afpool.open_pool(servers, **LIMITS) as pool, trio.open_nursery() as nursery:

            async def use(who: afpool.Identity, number: int) -> None:
                tool = (await pool.tools(who))["do"]
                arguments = {"do": "sleep", "seconds": 0.05, "n": number}
                for _ in range(2):
                    await tool.call(arguments, identity=who)

            for who in people:
                nursery.start_soon(use, who, number)
                number += 1
        print("ready", flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
