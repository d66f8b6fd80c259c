"""What a key costs that has nothing but a living bound tool: bytes each, and nothing left when it is gone.

    python benchmarks/memory.py [--keys N] [--lines] [--call]

Each key lists its tools through one shared entry; opens its client for real, handshake included, over a
wire in this process whose other end answers in the step in which it is written to; and loses its client to
the next ones (`max_clients` is small). One member's client stays open and listens for all, as in an app.

Memory is resident memory, read after a full collection and after glibc has given free pages back to the
kernel (`malloc_trim`), the least of a few readings. It counts everything, what CPython's allocator holds
and does not use included. The start is read with pool, server and rings in place and used.

Two runs, each in a process of its own, and both have to hold. Every object is malloc's in the first
(`PYTHONMALLOC=malloc`): the kernel gets a page back when nothing is on it, so resident memory says what is
held. The second has CPython's own allocator, as an app has it. That one gives memory back in arenas of a
megabyte, and one living object keeps its whole arena (a task of the pool that went to sleep while all tools
were alive is enough), so there resident memory after the drop says where the last few objects lie and is
shown, not judged. *Small objects* counts the blocks in use, *used again* lists as many keys once more: these
say in both runs whether anything is held.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import time
import tracemalloc
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from compare import environment, write
from instant import connect
from responders import TEXT

import afpool
from afpool import Identity, MemoryTransport, Plan, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from afpool import BoundTool, Pool

BYTES_PER_KEY = 1536
LEFT_MB = 5.0
BLOCKS_LEFT = 10_000  # in all; rings that have turned over since the start account for some thousands
MAX_CLIENTS = 32
WARM_KEYS = 1200
LIST_TTL = 1e6  # seconds; this is about memory, so no list goes stale meanwhile
RESIDENT = Identity(tenant="acme", principal="resident")
PAGE = os.sysconf("SC_PAGE_SIZE")
LIBC = ctypes.CDLL(None)


def resident() -> int:
    """Bytes of resident memory, the least of a few readings."""
    readings = []
    for _ in range(5):
        gc.collect()
        if hasattr(LIBC, "malloc_trim"):
            LIBC.malloc_trim(0)
        readings.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)
    return min(readings)


def quiet_runtime() -> None:
    """Empty what is CPython's and trio's own: small things, each of which holds the megabyte around it.

    trio keeps the deadlines of ended scopes in its heap until there are a thousand more of them than living
    ones, and offers no public way to look through it sooner; CPython keeps the names of attributes that were
    looked up last.
    """
    trio._core._run.GLOBAL_RUN_CONTEXT.runner.deadlines._prune()
    clear = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()


@asynccontextmanager
async def listener(pool: Pool) -> AsyncIterator[BoundTool]:
    """Keep one member's client open, which listens for the shared list; a paused key is not evicted.

    Kept open by calls it would file a record every few keys. Records live long, so each would pin a
    megabyte of small objects around it, and that is what would be measured when the tools are dropped.
    """
    tool = (await pool.tools(RESIDENT))["echo"]
    key = pool.key_of(RESIDENT, "memory")
    pool.pause(key)
    yield tool
    pool.resume(key)


async def list_keys(pool: Pool, count: int) -> list[BoundTool]:
    """A bound tool for each key, from the shared list; no client is needed for that."""
    tools: list[BoundTool] = []
    for number in range(count):
        who = Identity(
            tenant=f"tenant-{number % 97}", principal=f"person-{number}", conversation_id=f"c-{number}"
        )
        tool = (await pool.tools(who))["echo"]
        assert tool.binding.shared
        tools.append(tool)
    return tools


async def open_keys(pool: Pool, tools: list[BoundTool], *, call: bool) -> None:
    """Open a client for each key, as its first call would; the next ones evict it."""
    for tool in tools:
        who = tool.binding.actor.projection
        if call:
            await tool.call({"text": TEXT}, identity=who)
        else:
            await pool.warm(who)


async def evict_all(pool: Pool) -> None:
    """Close what is still open, so that only bound tools are left."""
    for actor in list(pool.kept):
        pool.evict(actor.key)
    while pool.kept:  # noqa: ASYNC110  (nothing announces the last one)
        await trio.sleep(0.01)
    await trio.sleep(0.1)  # tasks of the last clients end a little later


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    server = Server(name="memory", plan=Plan(transport=MemoryTransport(name="memory", connect=connect)))
    async with afpool.open_pool(
        [server], share=lambda _server, _who: "everybody", max_clients=MAX_CLIENTS, list_ttl=LIST_TTL
    ) as pool:
        async with listener(pool):
            await open_keys(pool, await list_keys(pool, WARM_KEYS), call=options.call)
        await evict_all(pool)
        opened_before = pool.statistics().opened
        quiet_runtime()
        start, blocks = resident(), sys.getallocatedblocks()
        if options.lines:
            tracemalloc.start()
        began = time.perf_counter()
        async with listener(pool) as shared:
            tools = await list_keys(pool, options.keys)
            await open_keys(pool, tools, call=options.call)
        await evict_all(pool)
        seconds = time.perf_counter() - began
        if options.lines:
            show_lines(options.keys)
        quiet_runtime()
        full = resident()
        numbers = pool.statistics()
        found = {
            "keys": options.keys,
            "opened": numbers.opened - opened_before,
            "alive": numbers.keys,
            "seconds": seconds,
            "start_mb": start / 1e6,
            "full_mb": full / 1e6,
            "bytes_per_key": (full - start) / options.keys,
        }
        del tools, shared
        quiet_runtime()
        left = resident()
        found["blocks_left"] = sys.getallocatedblocks() - blocks
        if options.lines:
            show_lines(options.keys, "left behind")
        after = pool.statistics()
        found |= {"left_mb": (left - start) / 1e6, "actors_left": after.keys, "kept": len(pool.kept)}
        found["shared_lists_left"] = after.shared_lists
        async with listener(pool):
            again = await list_keys(pool, options.keys)
        found["again_mb"] = (resident() - full) / 1e6
        del again
        return found


def show_lines(keys: int, what: str = "living") -> None:
    """Who holds memory, by the line that allocated it."""
    gc.collect()
    print(f"\n{'bytes/key':>10}{'blocks/key':>12}  {what}, by allocating line")
    for row in tracemalloc.take_snapshot().statistics("lineno")[:25]:
        where = row.traceback[0]
        name = "/".join(Path(where.filename).parts[-3:])
        print(f"{row.size / keys:>10.1f}{row.count / keys:>12.2f}  {name}:{where.lineno}")


def report(found: dict[str, Any], *, strict: bool) -> bool:
    """Print the table; whether everything was met."""
    rows = [
        ("clients opened for real", f">= {found['keys']}", found["opened"], found["opened"] >= found["keys"]),
        (
            "bytes per key with one living tool",
            f"<= {BYTES_PER_KEY}",
            round(found["bytes_per_key"]),
            found["bytes_per_key"] <= BYTES_PER_KEY,
        ),
        ("dropped: actors left", "0", found["actors_left"], found["actors_left"] == 0),
        ("dropped: actors held by the pool", "0", found["kept"], found["kept"] == 0),
        ("dropped: shared lists left", "0", found["shared_lists_left"], found["shared_lists_left"] == 0),
        (
            "dropped: small objects above the start",
            f"<= {BLOCKS_LEFT}",
            found["blocks_left"],
            found["blocks_left"] <= BLOCKS_LEFT,
        ),
        (
            "used again: MB above the first time",
            f"<= {LEFT_MB:g}",
            round(found["again_mb"], 2),
            found["again_mb"] <= LEFT_MB,
        ),
        (
            "dropped: MB resident above the start",
            f"<= {LEFT_MB:g}" if strict else "-",
            round(found["left_mb"], 2),
            not strict or found["left_mb"] <= LEFT_MB,
        ),
    ]
    print(f"\n{'what':<44}{'expected':>12}{'seen':>12}")
    for what, expected, seen, good in rows:
        mark = ("ok" if good else "NOT") if expected != "-" else "-"
        print(f"{what:<44}{expected:>12}{seen:>12}  {mark}")
    return all(row[3] for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory per key with one living bound tool.")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--lines", action="store_true", help="show by line what holds memory; slow")
    parser.add_argument("--call", action="store_true", help="also call each tool once")
    parser.add_argument("--one", action="store_true", help="this process alone, with the allocator it has")
    options = parser.parse_args()
    if options.one or options.lines:
        return 0 if run(options) else 1
    command = [sys.executable, __file__, "--keys", str(options.keys), "--one"]
    command += ["--call"] if options.call else []
    print("every object malloc's:", flush=True)
    first = subprocess.run(command, env={**os.environ, "PYTHONMALLOC": "malloc"}, check=False)
    print("\nCPython's own allocator:", flush=True)
    second = subprocess.run(command, env={**os.environ, "PYTHONMALLOC": "pymalloc"}, check=False)
    return first.returncode or second.returncode


def run(options: argparse.Namespace) -> bool:
    """Measure in this process; whether everything was met."""
    malloc = os.environ.get("PYTHONMALLOC") == "malloc"
    print(
        f"Python {environment()['python']}, {options.keys} keys, "
        "resident memory after collection and malloc_trim(0)"
    )
    found = trio.run(measure, options)
    print(
        f"{found['seconds']:.0f} s; {found['start_mb']:.1f} MB at the start, "
        f"{found['full_mb']:.1f} MB with all tools alive, {found['left_mb']:+.2f} MB when they were dropped"
    )
    write("memory-malloc" if malloc else "memory", found)
    return report(found, strict=malloc)


if __name__ == "__main__":
    sys.exit(main())
