"""What a call asks to learn that nobody listens and nobody traces, by itself: for counting instructions.

    python benchmarks/record_hooks.py hooks|known|empty TIMES

Prints the seconds that a loop took; `record.py` has valgrind count the same. The statements are those of the
sources, and it is an error where one is not in its source any more. Nothing of the project is imported, so
that little else is counted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# Where it is asked, the statement, and how often in one call.
HOOKS = (
    ("afpool/pool/_operation.py", "if pool.records.tracers and use is not ctx.use:", 1),
    ("afpool/pool/_records.py", "for tracer in self.tracers:", 1),
    ("afpool/pool/_records.py", "if self._on_use:", 1),
    ("afpool/client/_client.py", "if call.use.trace is not None:", 1),
    ("actors/_observe.py", "if self.hooks:", 2),  # of the turns that give a place and take it back
)
KNOWN = """
def run(times, *_):
    total = 0
    for number in range(times):
        total = (total * 31 + number) % 251
"""
EMPTY = """
def run(times, *_):
    for _ in range(times):
        pass
"""


def hooks() -> str:
    """A function that runs every statement of `HOOKS` so many times as a call does.

    Raises:
        ValueError: One of them is not in its source any more.
    """
    lines = ["def run(times, pool, use, ctx, self, call):", "    for _ in range(times):"]
    for path, statement, times in HOOKS:
        if statement not in (ROOT / path).read_text(encoding="utf-8"):
            raise ValueError(f"{path} does not hold {statement!r} any more")
        lines += [f"        {statement}", "            pass"] * times
    return "\n".join(lines)


class Bare:
    """What the statements are asked of: slots as the real objects have them, nothing hung on any."""

    __slots__ = ("_on_use", "hooks", "records", "trace", "tracers", "use")


def bare() -> Bare:
    held, use = Bare(), Bare()
    use.trace = None
    held.use, held.records = use, held
    held.tracers = held._on_use = ()
    held.hooks = {}
    return held


def run_alone(which: str, times: int) -> float:
    """Run one loop so many times; gives the seconds of it."""
    place: dict[str, Any] = {}
    exec({"hooks": hooks(), "known": KNOWN, "empty": EMPTY}[which], place)
    held, use = bare(), Bare()
    began = time.thread_time()
    place["run"](times, held, use, held, held, held)
    return time.thread_time() - began


if __name__ == "__main__":
    print(run_alone(sys.argv[1], int(sys.argv[2])))
