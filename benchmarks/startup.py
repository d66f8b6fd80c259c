"""How long the command line takes to begin: the commands that people and shells wait for.

    python benchmarks/startup.py [--times N] [--json]

Each command is started N times, interleaved; a figure is the median, and `python` an interpreter that does
nothing. `show servers` asks an idle process that runs meanwhile. Exit code 1 when `afpool --help` or
`afpool show servers` takes more than 150 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_MS = 150.0
COMMANDS = {
    "python": ["-c", "pass"],
    "--help": ["-m", "afpool", "--help"],
    "call --help": ["-m", "afpool", "call", "--help"],
    "completion bash": ["-m", "afpool", "completion", "bash"],
    "version": ["-m", "afpool", "version"],
    "token list": ["-m", "afpool", "token", "list", "--file", "tokens.json"],
    "config check": ["-m", "afpool", "config", "check"],
    "show servers": ["-m", "afpool", "show", "servers", "--process", "bench"],
}
BOUND = ("--help", "show servers")
IDLE = """
import sys, trio
from afpool import HttpTransport, Plan, Server
from afpool.console import ConsoleSettings, open_console
from afpool.pool import open_pool

async def main():
    plan = Plan(transport=HttpTransport(url="http://127.0.0.1:9/"))
    servers = [Server(name=name, plan=plan) for name in ("a", "b")]
    async with open_pool(servers) as pool:
        async with open_console(pool, settings=ConsoleSettings(name="bench", directory=sys.argv[1])):
            print("ready", flush=True)
            await trio.sleep_forever()

trio.run(main)
"""


def surroundings(folder: str) -> dict[str, str]:
    """Give the environment of the commands."""
    root = str(Path(__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": root, "AFPOOL_CONSOLE_DIRECTORY": f"{folder}/c"}


@contextlib.contextmanager
def idle(folder: str) -> Iterator[None]:
    """Have a process with a console run, that does nothing."""
    (Path(folder) / "c").mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE, str(Path(folder) / "c")],
        env=surroundings(folder), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the idle process did not start")
        yield
    finally:
        process.kill()
        process.communicate()


def milliseconds(words: list[str], folder: str) -> float:
    """Start one command and wait for its end."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        cwd=folder, env=surroundings(folder), capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder, idle(folder):
        for _ in range(options.times):
            for name, words in COMMANDS.items():
                taken[name].append(milliseconds(words, folder))
    medians = {name: round(statistics.median(each), 1) for name, each in taken.items()}
    if options.json:
        print(json.dumps(medians))
    else:
        for name, median in medians.items():
            print(f"{name:<16} {median:7.1f} ms   best {min(taken[name]):7.1f} ms")
    return int(any(medians[name] > MOST_MS for name in BOUND))


if __name__ == "__main__":
    sys.exit(main())
