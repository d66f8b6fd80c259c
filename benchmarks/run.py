"""All measurements, each bar marked as met or not, in one table at the end.

    python benchmarks/run.py [--quick] [--only PART] [--keys N]

Each part is a harness of its own and can be run by itself; what it found is in `benchmarks/results/`, with
what it was taken on. Some parts promise something that is in no such table. Exit code 1 when something was
missed; the parts go on after one that did.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from compare import RESULTS, environment
from figures import Figure

HERE = Path(__file__).resolve().parent
PARTS: dict[str, tuple[str, ...]] = {
    "calls": (),
    "layers": (),
    "openings": (),
    "crowds": (),
    "idle": (),
    "record": ("--no-instructions",),
    "artifacts": (),
    "memory": (),
    "faults": (),
}
"""What is run, and with what."""

QUICK: dict[str, tuple[str, ...]] = {
    "calls": ("--rounds", "3", "--seconds", "0.4"),
    "layers": ("--rounds", "5"),
    "openings": ("--rounds", "3"),
    "crowds": ("--rounds", "3"),
    "idle": ("--keys", "200"),
}
"""Of these a short form says something, too."""


def part(name: str, arguments: tuple[str, ...]) -> bool:
    """Run a harness in a process of its own; whether it kept its promise."""
    print(f"\n== {name} {' '.join(arguments)}".rstrip(), flush=True)
    return subprocess.run([sys.executable, str(HERE / f"{name}.py"), *arguments], check=False).returncode == 0


def found(name: str, since: float) -> list[Figure]:
    """The figures that a part has written down since then."""
    path = RESULTS / f"{name}.json"
    if not path.exists() or path.stat().st_mtime < since:
        return []
    return [Figure(**figure) for figure in json.loads(path.read_text()).get("figures", ())]


def main() -> int:
    parser = argparse.ArgumentParser(description="All measurements.")
    parser.add_argument("--quick", action="store_true", help="a few minutes; says less")
    parser.add_argument("--only", action="append", choices=sorted(PARTS))
    parser.add_argument("--keys", type=int, default=100_000, help="of `memory.py`")
    options = parser.parse_args()
    what = environment()
    began = time.time()
    print(f"Python {what['python']}, {what['processors']} processors, load {what['load']:.1f}")
    arguments = QUICK if options.quick else {**PARTS, "memory": ("--keys", str(options.keys))}
    wanted = [name for name in arguments if not options.only or name in options.only]
    kept = {name: part(name, arguments[name]) for name in wanted}
    judged = [figure for name in wanted for figure in found(name, began) if figure.limit is not None]
    print("\n== bars")
    for figure in judged:
        print(f"{'met' if figure.kept else 'NOT':<5}{figure.line.removesuffix('MISSED').rstrip()}")
    missed = sum(not figure.kept for figure in judged)
    print(f"{len(judged) - missed} of {len(judged)} bars met", end="; ")
    print(", ".join(f"{name}: {'ok' if good else 'NOT'}" for name, good in kept.items()))
    return 0 if all(kept.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
