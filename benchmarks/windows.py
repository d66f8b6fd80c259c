"""Windows: short stretches of calls that a client process makes when it is told to.

A client process opens its client once and then reads lines from stdin, `CONCURRENT SECONDS`. For each it
keeps that many calls going for that long, and prints one JSON object. Between its windows it is blocked, so
that the clients that are compared can take turns on the same machine without being in each other's way.

Only the standard library is needed here: the SDK's client has an environment of its own.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    Call = Callable[[int], Awaitable[None]]
    Spawn = Callable[..., object]

WARM_UP = 0.1  # seconds before each window: connections, caches, the scheduler's habits


async def run(open_client: Callable[[], AbstractAsyncContextManager[Call]], tasks: Any) -> None:
    """Open the client, say `ready`, and run a window for each line of stdin."""
    async with open_client() as call:
        await call(0)
        print(json.dumps({"ready": True}), flush=True)
        for line in iter(sys.stdin.readline, ""):
            concurrent, seconds = line.split()
            found = await window(call, int(concurrent), float(seconds), tasks)
            print(json.dumps(found), flush=True)


async def window(call: Call, concurrent: int, seconds: float, tasks: Any) -> dict[str, float]:
    """Keep `concurrent` calls going for `seconds`.

    Returns:
        Calls per second, CPU of this process per call, and latencies, times in microseconds.
    """
    latencies: list[float] = []
    clock = time.perf_counter

    async def worker(place: int, until: float, kept: list[float] | None) -> None:
        while (began := clock()) < until:
            await call(place)
            if kept is not None:
                kept.append(clock() - began)

    async def stretch(length: float, kept: list[float] | None) -> tuple[float, float]:
        began, cpu = clock(), time.process_time()
        async with tasks() as spawn:
            for place in range(concurrent):
                spawn(worker, place, began + length, kept)
        return clock() - began, time.process_time() - cpu

    await stretch(WARM_UP, None)
    gc.collect()
    wall, cpu = await stretch(seconds, latencies)
    latencies.sort()
    calls = len(latencies)
    return {
        "calls": calls,
        "per_second": calls / wall,
        "cpu_us": cpu / calls * 1e6,
        "p50_us": latencies[calls // 2] * 1e6,
        "p99_us": latencies[calls * 99 // 100] * 1e6,
    }


async def openings(open_once: Callable[[], Awaitable[tuple[float, float]]]) -> None:
    """Say `ready`, and for each line of stdin open so many clients, one after the other.

    Args:
        open_once: Opens a client, makes its first call and closes it; returns when on the clock it began and
            when the answer was there.
    """
    for _ in range(3):
        await open_once()
    print(json.dumps({"ready": True}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        gc.collect()
        cpu = time.process_time()
        times = sorted(
            ended - began for began, ended in [await open_once() for _ in range(int(line.split()[0]))]
        )
        cpu = time.process_time() - cpu
        found = {"p50_us": times[len(times) // 2] * 1e6, "cpu_us": cpu / len(times) * 1e6}
        print(json.dumps(found), flush=True)


@asynccontextmanager
async def trio_tasks() -> AsyncIterator[Spawn]:
    """A trio nursery, as something that spawns."""
    import trio

    async with trio.open_nursery() as nursery:
        yield nursery.start_soon


@asynccontextmanager
async def asyncio_tasks() -> AsyncIterator[Spawn]:
    """An asyncio task group, as something that spawns."""
    import asyncio

    async with asyncio.TaskGroup() as group:
        yield lambda fn, *args: group.create_task(fn(*args))
