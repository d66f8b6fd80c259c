"""What a library costs before anything is called: its import, its size, the lines and the seconds of one
call.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import trio
from child import environment
from lab import Cell, Row
from peers import ROOT, Peer

from afpool.testing import FakeServer

if TYPE_CHECKING:
    from pathlib import Path

TIMES = 3
TOKEN = "token-of-alice"  # a name
ROWS = (
    Row(
        "import",
        "costs",
        "its import, beyond Python's own start; what it loads at first use is not in it",
        0.2,
        0.05,
    ),
    Row("one-call", "costs", "a program that makes one call, from start to end", 0.2, 0.1),
    Row("lines", "costs", "lines of that program", 0, 1),
    Row("size", "costs", "installed with what it needs", 0.1, 1),
    Row("packages", "costs", "packages that it needs", 0, 1),
)
# what every environment holds from its making
OWN = {"pip", "setuptools", "wheel"}
LISTED = """
import importlib.metadata, json
print(json.dumps(sorted(each.metadata["Name"].lower() for each in importlib.metadata.distributions())))
"""


def fastest(command: list[str]) -> float:
    """The fastest of some runs, in seconds; CalledProcessError where one fails."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment())
        took.append(time.perf_counter() - began)
    return min(took)


def size(folder: Path) -> int:
    """Bytes of what lies in a folder, without compiled copies."""
    files = (each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
    return sum(each.stat().st_size for each in files if each.suffix != ".pyc")


def counted(script: Path) -> int:
    """Lines of a program, without empty ones, comments, and the docstring of its one line."""
    lines = (line.strip() for line in script.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)


async def one_call(peer: Peer) -> float:
    """The fastest of some runs of the program that makes one call, which has to reach the server as asked."""
    async with FakeServer.http() as server:
        took = await trio.to_thread.run_sync(
            fastest, [str(peer.python), str(peer.script), server.url, TOKEN], abandon_on_cancel=True
        )
        calls = server.arrivals("tools/call", "echo")
        if len(calls) != TIMES or any(
            call.headers.get("authorization") != f"Bearer {TOKEN}" for call in calls
        ):
            raise RuntimeError(f"the program of {peer.name} made {len(calls)} calls in {TIMES} runs")
        return took


def imported(peer: Peer) -> dict[str, Cell]:
    """The cell of the import."""
    python = str(peer.python)
    took = max(0.0, fastest([python, "-c", peer.imports]) - fastest([python, "-c", "pass"]))
    return {"import": Cell(f"{took:.2f} s", took)}


def measured(peer: Peer) -> dict[str, Cell]:
    """The cells of these rows."""
    python = str(peer.python)
    whole = trio.run(one_call, peer)
    (packages_of,) = peer.python.parent.parent.glob("lib/python*/site-packages")
    done = subprocess.run(
        [python, "-c", LISTED], capture_output=True, text=True, check=True, env=environment()
    )
    names = set(json.loads(done.stdout)) - OWN
    left_out = sum(size(packages_of / name) for name in OWN if (packages_of / name).is_dir())
    total = size(packages_of) - left_out
    if peer.name == "afpool":  # it runs from the checkout
        total += size(ROOT / "afpool") + size(ROOT / "actors")
    else:
        names.discard(peer.package or peer.name)
    lines = counted(peer.script)
    return {
        **imported(peer),
        "one-call": Cell(f"{whole:.2f} s", whole),
        "lines": Cell(str(lines), lines),
        "size": Cell(f"{total / 1e6:.0f} MB", total / 1e6),
        "packages": Cell(str(len(names)), len(names)),
    }
