"""What the record costs a call: off, kept in the ring, and handed to a JSONL file and to Prometheus' numbers.

    python benchmarks/record.py [--rounds N] [--calls N] [--no-instructions]

Exit code 1 when something costs more than it may. The same call goes to a server in this process through
pools that differ in their record alone; each has its turn in every round, and what is told is the median of
the differences of a round to the pool whose record is off. A turn is not over before its records are counted
and written: what a sink puts off would be another one's else. Two pools have it off, and what tells them
apart is told as well: the machine's own. Figures are microseconds of this thread's own time: what a sink's
thread does is not the call's.

What hooks cost while nobody has hung anything on them is too little for a clock. It is counted in
instructions, by valgrind (callgrind): the very statements, read from the sources, in a loop, over the same
loop without them. Beside it stands a loop whose time is known as well, which says what an instruction takes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from callgrind import instructions as executed
from figures import Figure, each, tell
from record_hooks import run_alone

import afpool
from afpool import Identity, MemoryTransport, Plan, Server, Use
from afpool.pool._records import Records
from afpool.record import JsonlSettings, RecordSettings, Sinks, open_sinks
from afpool.transports import MemoryWire, WireClosed, memory_link_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parent.parent
ALICE = Identity(tenant="acme", principal="alice", conversation_id="a-1")
ID = re.compile(rb'"id":(\d+)')
TOOL = b'{"name":"echo","inputSchema":{"type":"object"}}'
ANSWERS = {
    b'"initialize"': b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"here","version":"1"}}',
    b'"tools/list"': b'{"tools":[%b]}' % TOOL,
    b'"tools/call"': b'{"content":[{"type":"text","text":"fine"}],"isError":false}',
}

LOOPS = 20_000
KEPT = 4096
RING, WITH_SINKS, OFF = 4.0, 8.0, 0.3


# ---------------------------------------------------------------------------- calls


class Here:
    """A server in this process that answers at once, as cheaply as can be."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    async def connect(self) -> MemoryWire:
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_link_pair()
        self._nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, wire: MemoryWire) -> None:
        rest = b""
        try:
            while data := await wire.receive():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    found = ID.search(line)
                    if found is not None:
                        wire._write(_answer(line, found[1]))
        except WireClosed:
            return


def _answer(line: bytes, request_id: bytes) -> bytes:
    for method, result in ANSWERS.items():
        if method in line:
            return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request_id, result)
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"no"}}\n' % request_id


@asynccontextmanager
async def pools(folder: Path) -> AsyncIterator[tuple[dict[str, Any], Sinks]]:
    """One bound tool of each pool, by what becomes of its record; and where one of them writes it."""
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        plan = Plan(transport=MemoryTransport(name="here", connect=Here(nursery).connect))
        settings = RecordSettings(jsonl=JsonlSettings(path=folder / "record.jsonl"), numbers=True)
        sinks = await stack.enter_async_context(open_sinks(settings))
        tools = {}
        for name, records in (("off", 0), ("again", 0), ("ring", KEPT), ("sinks", KEPT)):
            servers = [Server(name="here", plan=plan)]
            pool = await stack.enter_async_context(afpool.open_pool(servers, records=records))
            if name == "sinks":
                sinks.attach(pool)
            tools[name] = (await pool.tools(ALICE))["echo"]
        try:
            yield tools, sinks
        finally:
            nursery.cancel_scope.cancel()


async def window(tool: Any, count: int, sinks: Sinks) -> float:
    """Microseconds of this thread that one call takes, until its record is where it goes."""
    began = time.thread_time()
    for _ in range(count):
        await tool.call({}, identity=ALICE)
    sinks.numbers().fold()
    while any(state.queued for state in sinks.states()):  # noqa: ASYNC110 -- a sink tells nobody that it is done
        await trio.sleep(0.02)
    return (time.thread_time() - began) / count * 1e6


async def calling(rounds: int, calls: int) -> list[Figure]:
    """What a call takes with the record off, and what it takes more with it."""
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with pools(Path(folder)) as (tools, sinks):
            for tool in tools.values():
                await window(tool, KEPT + 100, sinks)  # a ring that is not full yet is another matter
            for number in range(rounds):
                # whoever comes first in a round is another one each time
                first = number % len(tools)
                names = list(tools)[first:] + list(tools)[:first]
                for name in names:
                    taken.setdefault(name, []).append(await window(tools[name], calls, sinks))
    off = taken.pop("off")
    more = {
        name: statistics.median(one - base for one, base in zip(times, off, strict=True))
        for name, times in taken.items()
    }
    plain = statistics.median(off)
    return [
        Figure("a call with the record off", plain, "us"),
        Figure("off once more, over it", more["again"], "us"),
        Figure("kept in the ring, over it", more["ring"], "us", RING),
        Figure("with JSONL and numbers, over it", more["sinks"], "us", WITH_SINKS),
        Figure("kept in the ring, against off", 1 + more["ring"] / plain, "x"),
        Figure("with JSONL and numbers, against off", 1 + more["sinks"] / plain, "x"),
    ]


def filing(rounds: int, seconds: float) -> list[Figure]:
    """Filing one use by itself, in a ring that is full."""
    figures = []
    for name, kept in (("off", 0), ("in the ring", 4096)):
        records, use = _records(kept), _use()
        for _ in range(5_000):
            records.file(use)
        best = min(each(lambda: records.file(use), seconds) for _ in range(rounds))  # noqa: B023 -- run here
        figures.append(Figure(f"filing one use, {name}", best, "us"))
    return figures


def _records(kept: int) -> Records:
    return Records(kept, 16 * 2**20, time.monotonic, {})


def _use() -> Use:
    use = Use("call-1", "here", "echo", 1.0)
    use.ended_at = 2.0
    for number, stage in enumerate(("start", "leased", "attempt", "write", "sent", "answered")):
        use.marks += (stage, float(number))
    return use


# ---------------------------------------------------------------------------- instructions


def instructions(which: str, times: int) -> int:
    """Count what a process executes in which one loop is run so many times."""
    return executed("-I", str(ROOT / "benchmarks" / "record_hooks.py"), which, str(times))


def counted(rounds: int) -> list[Figure]:
    """What hooks cost that nothing is hung on."""
    base = instructions("empty", LOOPS)
    hooked = (instructions("hooks", LOOPS) - base) / LOOPS
    known = (instructions("known", LOOPS) - base) / LOOPS
    times = LOOPS * 20
    empty = min(run_alone("empty", times) for _ in range(rounds))
    took = (min(run_alone("known", times) for _ in range(rounds)) - empty) / times
    return [
        Figure("instructions of hooks with nothing on them", hooked, "", None),
        Figure("an instruction takes (a loop that is known)", took / known * 1e9, "ns"),
        Figure("hooks with nothing on them", hooked * took / known * 1e6, "us", OFF),
    ]


# ---------------------------------------------------------------------------- all of it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--calls", type=int, default=1000, help="of each turn: what a sink takes at once")
    parser.add_argument("--no-instructions", action="store_true", help="leave out what valgrind counts")
    options = parser.parse_args()
    figures = trio.run(calling, options.rounds, options.calls)
    figures += filing(max(1, options.rounds // 8), 0.01)
    if options.no_instructions:
        pass
    elif shutil.which("valgrind") is None:
        print("valgrind is not installed here: the instructions of hooks are left out")
    else:
        figures += counted(max(1, options.rounds // 8))
    return tell(figures, "record")


if __name__ == "__main__":
    sys.exit(main())
