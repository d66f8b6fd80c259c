"""The main numbers in about a minute: what a call costs beside a loop by hand, and beside the official SDK.

    python benchmarks/quick.py [--rounds N] [--seconds S] [--no-pin] [--only http|stdio]

Exit code 1 when a call over HTTP keeps less than 0.8 of the bare loop's rate, alone or with 64 at once.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import attrs
from compare import compare, environment, show, usable, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compare import Cell

KEEPS = 0.8
TRANSPORTS = {
    "http": ["bare-http", "afpool-http", "sdk-http"],
    "stdio": ["bare-stdio", "afpool-stdio", "sdk-stdio"],
}


def too_slow(cells: Sequence[Cell]) -> list[Cell]:
    """The plain client's cells, alone or with 64 at once, that keep less of the bare rate than promised."""
    return [
        cell
        for cell in cells
        if cell.kind == "afpool-http"
        and cell.concurrent in {1, 64}
        and cell.ratio is not None
        and cell.ratio < KEEPS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare calls with a bare loop and with the official SDK.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--no-pin", action="store_true", help="leave processes where the system puts them")
    parser.add_argument("--only", choices=sorted(TRANSPORTS))
    options = parser.parse_args()
    what = environment()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}", end="; ")
    print(f"{options.rounds} interleaved windows of {options.seconds:g} s each, medians")
    print("`x base` is calls per second against the bare loop, `CPU x` its CPU per call against ours")
    found = {}
    for transport, kinds in TRANSPORTS.items():
        if options.only in {None, transport}:
            here = usable(kinds)
            if len(here) < len(kinds):
                print("\nthe official SDK is not installed here (`make peers` does it) and is left out")
            cells = compare(
                here,
                concurrent=(1, 64),
                rounds=options.rounds,
                seconds=options.seconds,
                pin=not options.no_pin,
            )
            show(transport, cells)
            found[transport] = cells
    path = write("quick", {name: [attrs.asdict(cell) for cell in cells] for name, cells in found.items()})
    print(f"\nwritten to {path}")
    slow = too_slow(found.get("http", []))
    for cell in slow:
        print(f"NOT {KEEPS:g}: {cell.ratio:.2f} of the bare loop over HTTP with {cell.concurrent} at once")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
