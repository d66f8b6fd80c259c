"""The fault matrix: what each failure of a server costs the call it hits, the others, and the next one.

    python benchmarks/faults.py [--only WORD]

Against scripted servers on this machine, over loopback HTTP and in child processes; 2025 and 2026 are the
protocol's eras (2025-11-25 with sessions, 2026-07-28 without). Exit code 1 when a row is not as expected.
"""

from __future__ import annotations

import argparse
import sys
import time

import fault_http
import fault_keys
import fault_stdio
import trio
from fault_lab import Lab, end, head

ROWS = (*fault_http.ROWS, *fault_keys.ROWS, *fault_stdio.ROWS)
ROW_LIMIT = 60.0  # seconds for one function of rows: a hang is a row that fails, not a harness that hangs


async def run(wanted: str) -> int:
    lab = Lab()
    began = time.perf_counter()
    head()
    for rows in ROWS:
        if wanted in rows.__name__:
            with trio.move_on_after(ROW_LIMIT) as scope:
                await rows(lab)
            if scope.cancelled_caught:
                lab.row(rows.__name__, f"done within {ROW_LIMIT:g} s", "it hangs", good=False)
    return end(lab, time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description="What failures cost.")
    parser.add_argument("--only", default="", metavar="WORD", help=", ".join(row.__name__ for row in ROWS))
    return trio.run(run, parser.parse_args().only)


if __name__ == "__main__":
    sys.exit(main())
