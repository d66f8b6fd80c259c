"""How long the command line takes to begin: the commands that people and shells wait for.

    python benchmarks/startup.py [--times N] [--json]

Each command is started N times, interleaved; a figure is the median, and `python` an interpreter that does
nothing. Exit code 1 when `afpool --help` takes more than 150 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_MS = 150.0
COMMANDS = {
    "python": ["-c", "pass"],
    "--help": ["-m", "afpool", "--help"],
    "call --help": ["-m", "afpool", "call", "--help"],
    "completion bash": ["-m", "afpool", "completion", "bash"],
    "version": ["-m", "afpool", "version"],
    "token list": ["-m", "afpool", "token", "list", "--file", "tokens.json"],
    "config check": ["-m", "afpool", "config", "check"],
}


def milliseconds(words: list[str], folder: str) -> float:
    """Start one command and wait for its end."""
    root = str(Path(__file__).resolve().parents[1])
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": root}, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.times):
            for name, words in COMMANDS.items():
                taken[name].append(milliseconds(words, folder))
    medians = {name: round(statistics.median(each), 1) for name, each in taken.items()}
    if options.json:
        print(json.dumps(medians))
    else:
        for name, median in medians.items():
            print(f"{name:<16} {median:7.1f} ms   best {min(taken[name]):7.1f} ms")
    return int(medians["--help"] > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
