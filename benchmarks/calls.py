"""Warm calls on every wire, beside a loop by hand on the same wire and beside other clients.

    python benchmarks/calls.py [--rounds N] [--seconds S] [--no-pin] [--only http|stdio|websocket|large]

Everything that is on by default is on: pool, actor, leases, rechecks, the gate at every boundary, the record.
Every client is a process, takes its turn in every round and calls the same responder; a figure is the median
of what it has of another's within a round. Exit code 1 when a bar was missed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import attrs
from compare import cells_of, collect, environment, ratio_of, show, usable, write
from figures import Figure, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from compare import Samples

KINDS = {
    "http": [
        "bare-http", "afpool-http", "afpool-http-keys", "afpool-http-sse", "afpool-http-full", "sdk-http",
        "fastmcp-http", "httpx-http",
    ],
    "stdio": ["bare-stdio", "afpool-stdio", "sdk-stdio"],
    "websocket": ["bare-websocket", "afpool-websocket"],
    "large": ["bare-http-large", "afpool-http-large"],
}  # fmt: skip
AT_ONCE = {"http": (1, 16, 64), "stdio": (1, 8, 64), "websocket": (1, 64), "large": (1,)}


@attrs.frozen
class Bar:
    """What one client has to have of another's calls per second; at most, where `what` is a latency."""

    kind: str
    base: str
    places: int
    least: float

    def judged(self, samples: Samples) -> Figure | None:
        """The figure; `None` where one of them was not there."""
        if not samples.get((self.kind, self.places)) or not samples.get((self.base, self.places)):
            return None
        seen = ratio_of(samples, self.kind, self.base, self.places)
        return Figure(
            f"{self.kind}, {self.places} at once, of {self.base}", seen, "x", self.least, at_least=True
        )


BARS = (
    Bar("afpool-http", "sdk-http", 1, 4.0),
    Bar("afpool-http", "bare-http", 1, 1.3),
    Bar("afpool-http", "sdk-http", 16, 6.0),
    Bar("afpool-http", "bare-http", 16, 1.8),
    Bar("afpool-http", "sdk-http", 64, 6.0),
    Bar("afpool-http", "bare-http", 64, 1.8),
    Bar("afpool-http-keys", "sdk-http", 64, 6.0),
    Bar("afpool-http-keys", "bare-http", 64, 1.8),
    *(Bar("afpool-http-sse", "afpool-http", places, 0.85) for places in AT_ONCE["http"]),
    Bar("afpool-stdio", "sdk-stdio", 1, 2.2),
    Bar("afpool-stdio", "bare-stdio", 1, 0.75),
    Bar("afpool-stdio", "sdk-stdio", 64, 9.0),
    Bar("afpool-stdio", "bare-stdio", 64, 0.65),
    Bar("afpool-websocket", "bare-websocket", 1, 0.85),
    Bar("afpool-websocket", "bare-websocket", 64, 0.95),
    Bar("afpool-http-large", "bare-http-large", 1, 0.8),
)
TAIL = 1.2
"""What p99 over p50 may be at 64 at once, of what it is for the loop by hand."""


def tails(samples: Samples) -> list[Figure]:
    """How much longer the slowest calls take, beside the same of the loop by hand."""
    figures = []
    for wire in ("http", "stdio", "websocket"):
        kind, base = f"afpool-{wire}", f"bare-{wire}"
        if samples.get((kind, 64)) and samples.get((base, 64)):
            slow, usual = (ratio_of(samples, kind, base, 64, name) for name in ("p99_us", "p50_us"))
            figures.append(Figure(f"{kind}, 64 at once: p99 / p50, of {base}'s", slow / usual, "x", TAIL))
    return figures


def measure(
    wires: list[str], rounds: int, seconds: float, *, pin: bool, told: Callable[[str], None] = print
) -> list[Figure]:
    """Compare on each wire; the figures of all."""
    samples: Samples = {}
    for wire in wires:
        kinds = usable(KINDS[wire])
        for missing in sorted({*KINDS[wire]} - {*kinds}):
            told(f"{missing} is not installed here (`make bench` does it) and is left out")
        found = collect(kinds, concurrent=AT_ONCE[wire], rounds=rounds, seconds=seconds, pin=pin)
        show(wire, cells_of(found, kinds[0]))
        samples |= found
    write(
        "calls-windows",
        {
            "samples": [
                {"kind": kind, "at_once": places, "windows": windows}
                for (kind, places), windows in samples.items()
            ]
        },
    )
    return [*filter(None, (bar.judged(samples) for bar in BARS)), *tails(samples)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Warm calls on every wire.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--only", choices=sorted(KINDS))
    parser.add_argument("--no-pin", action="store_true", help="leave processes where the system puts them")
    options = parser.parse_args()
    what = environment()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}; ", end="")
    print(f"{options.rounds} interleaved windows of {options.seconds:g} s each, medians")
    wires = [options.only] if options.only else [*KINDS]
    figures = measure(wires, options.rounds, options.seconds, pin=not options.no_pin)
    print()
    return tell(figures, "calls")


if __name__ == "__main__":
    sys.exit(main())
