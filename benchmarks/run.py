"""All measurements, longer than `quick.py`: faults, calls on every path, openings, artifacts, memory.

    python benchmarks/run.py [--rounds N] [--seconds S] [--keys N] [--no-pin]

About a quarter of an hour. Results go to `benchmarks/results/`. Exit code 1 when any part missed what it
promises; the parts go on after one that did.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import attrs
from compare import compare, environment, show, usable, write
from quick import KEEPS, too_slow

HERE = Path(__file__).resolve().parent
MATRIX = {
    "http": (
        ["bare-http", "afpool-http", "afpool-http-keys", "afpool-http-full", "sdk-http"],
        (1, 8, 64),
    ),
    "stdio": (["bare-stdio", "afpool-stdio", "sdk-stdio"], (1, 8, 64)),
}


def part(name: str, *arguments: str) -> bool:
    """Run another harness in a process of its own; whether it kept its promise."""
    print(f"\n== {name} {' '.join(arguments)}".rstrip(), flush=True)
    return subprocess.run([sys.executable, str(HERE / name), *arguments], check=False).returncode == 0


def calls(rounds: int, seconds: float, *, pin: bool) -> bool:
    """Compare calls on every path; whether those over HTTP keep enough of the bare loop's rate."""
    print("\n== calls", flush=True)
    print("`-keys` is 64 identities with a client each; `-full` adds what an app may add: `share`, a caller")
    print("identity asked at every recheck, a credential per request, a sink for the record")
    found = {}
    for transport, (kinds, concurrent) in MATRIX.items():
        cells = compare(usable(kinds), concurrent=concurrent, rounds=rounds, seconds=seconds, pin=pin)
        show(transport, cells)
        found[transport] = cells
    write("calls", {name: [attrs.asdict(cell) for cell in cells] for name, cells in found.items()})
    slow = too_slow(found["http"])
    for cell in slow:
        print(f"NOT {KEEPS:g}: {cell.ratio:.2f} of the bare loop over HTTP with {cell.concurrent} at once")
    return not slow


def main() -> int:
    parser = argparse.ArgumentParser(description="All measurements.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--no-pin", action="store_true", help="leave processes where the system puts them")
    options = parser.parse_args()
    what = environment()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}")
    kept = {
        "faults": part("faults.py"),
        "calls": calls(options.rounds, options.seconds, pin=not options.no_pin),
        "openings": part("openings.py", *(["--no-pin"] if options.no_pin else [])),
        "artifacts": part("artifacts.py"),
        "memory": part("memory.py", "--keys", str(options.keys)),
    }
    print("\n" + ", ".join(f"{name}: {'ok' if good else 'NOT'}" for name, good in kept.items()))
    return 0 if all(kept.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
