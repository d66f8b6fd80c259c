"""How many instructions one warm call takes, by callgrind: the same in every run, however busy the machine.

    python benchmarks/instructions.py [--way pool|client|known]

The script is fixed: so many calls in this process through `layers.py`'s client or pool, and the same script
with a few calls less; what tells the two apart is counted. *Known* is a loop of plain Python whose work
never changes: what a call takes of it is a ratio that another Python or another processor moves little.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from callgrind import instructions

ROOT = Path(__file__).resolve().parent.parent
CALLS = 200
WARM = 40


def count(way: str, calls: int) -> int:
    """Instructions of a process that makes so many calls."""
    return instructions(__file__, "--run", way, "--calls", str(calls), PYTHONPATH=str(ROOT))


def of_one(way: str) -> float:
    """Instructions of one call."""
    return (count(way, WARM + CALLS) - count(way, WARM)) / CALLS


def run(way: str, calls: int) -> None:
    """Make the calls; what is counted."""
    gc.disable()
    if way == "known":
        for _ in range(calls):
            known()
        return
    import trio
    from layers import ways

    async def made() -> None:
        async with ways() as found:
            for _ in range(calls):
                await found[way]()

    trio.run(made)


def known() -> int:
    """Work of plain Python that never changes."""
    total = 0
    for number in range(1000):
        total = (total * 31 + number) % 251
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Instructions of one warm call.")
    parser.add_argument("--way", choices=["pool", "client", "known"], action="append")
    parser.add_argument("--run", choices=["pool", "client", "known"], help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=int, default=CALLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run, options.calls)
        return 0
    for way in options.way or ["known", "client", "pool"]:
        print(f"{way:<8}{of_one(way):>12,.0f} instructions", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
