"""What a call pays for the places that its record goes to beside the ring: a file, and metrics' counters.

    python benchmarks/sinks.py [--rounds N] [--calls N]

Exit code 1 when ring, file and counters together cost more than 8 us a call over no record at all; on a
machine on which one of trio's cancel scopes takes more than 6 us in the same run, as much more as that.
Figures are microseconds of the whole process's own time, threads included, from filing to the last byte in
the file; the best of the rounds. The uses are of real calls, through a runtime and a server in this process.
What calls themselves take meanwhile, and how they share the loop with all this, is in `record.py`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from figures import Figure, each, tell

from afpool import HttpTransport, Identity, Plan, Seams, Server, open_runtime
from afpool._base.identity import KeyDigest
from afpool.pool._records import Records
from afpool.record import JsonlSettings, RecordSettings, open_sinks
from afpool.testing import FakeServer, FakeTool

if TYPE_CHECKING:
    from afpool._base.use import Use

MOST = 8.0
SCOPE = 6.0
ALL = "ring, file and counters"
WHO = Identity(tenant="acme", principal="alice")
CHUNK = 500
"""Calls between two pauses, as 5,000 calls a second have them in a tenth of one."""


class Source:
    """What a sink sees of a pool."""

    def __init__(self, kept: int) -> None:
        self.seams = Seams(now=trio.lowlevel.current_clock().current_time)
        self.digest = KeyDigest()
        self.records = Records(kept, 2**24, self.seams.now, {})


async def real_uses(count: int) -> list[Use]:
    """The uses of so many calls."""
    async with FakeServer.http(tools=[FakeTool("find", lambda _args, _arrival: "found")]) as fake:
        plan = Plan(transport=HttpTransport(url=fake.url))
        async with open_runtime(servers=[Server(name="search", plan=plan)]) as runtime:
            toolset = await runtime.toolset(WHO)
            for _ in range(count):
                await toolset.call("find", {"query": "weather", "limit": 10})
            return list(runtime.pool.records.uses)


async def cost(uses: list[Use], calls: int, kept: int, settings: RecordSettings) -> float:
    """Microseconds of the process's time for each call."""
    source: Any = Source(kept)
    gc.collect()
    async with open_sinks(settings, seams=source.seams) as sinks:
        sinks.attach(source)
        file = source.records.file
        began = time.process_time()
        for start in range(0, calls, CHUNK):
            for number in range(start, start + CHUNK):
                file(uses[number % len(uses)])
            await trio.sleep(0.001)
        await sinks.aclose()
        spent = time.process_time() - began
        assert all(state.dropped == 0 for state in sinks.states()), "the queue is long enough for all"
    return spent / calls * 1e6


def scoped() -> None:
    with trio.CancelScope(deadline=trio.current_time() + 60):  # noqa: ASYNC100 -- it is what is measured
        pass


async def measure(rounds: int, calls: int) -> list[Figure]:
    """All figures; each round asks for all of them, one after the other."""
    uses = await real_uses(200)
    ways: dict[str, tuple[int, Any]] = {
        "no record": (0, {}),
        "the ring": (4096, {}),
        "ring and counters": (4096, {"numbers": True}),
        "ring and file": (4096, {"jsonl": True}),
        ALL: (4096, {"numbers": True, "jsonl": True}),
    }
    best = dict.fromkeys(ways, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, (kept, said) in ways.items():
                given = dict(said)
                path = Path(folder) / f"{number}-{len(given)}.jsonl"
                if given.pop("jsonl", False):
                    given["jsonl"] = JsonlSettings(path=path, queue=calls + CHUNK)
                best[name] = min(best[name], await cost(uses, calls, kept, RecordSettings(**given)))
                path.unlink(missing_ok=True)
    bare = best.pop("no record")
    scope = each(scoped, 0.2)
    stages = len(uses[0].marks) // 2
    print(f"calls with {stages} stages; over no record at all, which costs {bare:.2f} us to file\n")
    return [
        Figure(name, value - bare, "us", MOST * max(1.0, scope / SCOPE) if name == ALL else None)
        for name, value in best.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the record of a call costs on its way out.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    return tell(trio.run(measure, options.rounds, options.calls))


if __name__ == "__main__":
    sys.exit(main())
