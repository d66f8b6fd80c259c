"""Where the time of one warm call goes, layer by layer.

    python benchmarks/profile_call.py [--calls N] [--concurrent C] [--wire http|sse|stdio|websocket]
                                      [--functions N]

Three views of the same calls. *Stages* are the marks that each call's record holds anyway, so they cost
nothing extra. *Layers* is a profile by function, summed over modules and scaled to the CPU per call that was
measured without the profiler; a builtin counts for the module that called it, the system calls for `kernel`.
*Functions* are the dearest ones. The bare loop (`bare.py`) goes through the same views for comparison.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bare
import trio
from compare import responder
from responders import TEXT
from subjects import ALICE

import afpool
from afpool import HttpTransport, Plan, Server, StdioTransport, WebSocketTransport

if TYPE_CHECKING:
    from windows import Call

ROOT = str(Path(__file__).resolve().parent.parent)
KERNEL = ("_socket.socket", "select.epoll", "posix.write", "posix.read")
LAYERS = (
    "afpool/pool", "actors", "afpool/client", "afpool/transports", "afpool/protocol", "afpool/_base",
    "h11", "trio", "trio_websocket", "wsproto", "kernel", "msgspec, re, other",
)  # fmt: skip


async def calls(call: Call, count: int, concurrent: int) -> None:
    """Make so many calls, so many at once."""

    async def worker(place: int) -> None:
        for _ in range(count // concurrent):
            await call(place)

    async with trio.open_nursery() as nursery:
        for place in range(concurrent):
            nursery.start_soon(worker, place)


class Profile:
    """One client's calls: plain cost first, then the profile."""

    def __init__(self) -> None:
        self.cpu_us = 0.0
        self.wall_us = 0.0
        self.stats: Any = None

    async def take(self, call: Call, count: int, concurrent: int) -> None:
        """Measure, then profile."""
        await calls(call, max(count // 10, concurrent), concurrent)
        best: list[tuple[float, float]] = []
        for _ in range(5):
            gc.collect()
            began, cpu = time.perf_counter(), time.process_time()
            await calls(call, count, concurrent)
            best.append(
                (
                    (time.process_time() - cpu) / count * 1e6,
                    (time.perf_counter() - began) / count * 1e6,
                )
            )
        self.cpu_us, self.wall_us = min(best)  # the one that was disturbed least
        profiler = cProfile.Profile(time.process_time)
        profiler.enable()
        await calls(call, count, concurrent)
        profiler.disable()
        self.stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]

    def total(self) -> float:
        """Seconds under the profiler."""
        return sum(entry[2] for entry in self.stats.values())

    def layers(self) -> dict[str, float]:
        """Microseconds per call by layer, scaled to the plain cost."""
        found: dict[str, float] = defaultdict(float)
        for function, (_, _, own, _, callers) in self.stats.items():
            if function[0] != "~":
                found[layer_of(function)] += own
            elif any(name in function[2] for name in KERNEL):
                found["kernel"] += own
            elif not callers:
                found["msgspec, re, other"] += own
            else:
                for caller, entry in callers.items():
                    found[layer_of(caller)] += entry[2]
        scale = self.cpu_us / self.total()
        return {layer: seconds * scale for layer, seconds in found.items()}

    def functions(self, count: int) -> list[tuple[float, float, str]]:
        """The dearest: own microseconds per call (scaled), times called per call, name."""
        scale = self.cpu_us / self.total()
        rows = [
            (own * scale, ncalls, shown(function)) for function, (_, ncalls, own, _, _) in self.stats.items()
        ]
        return sorted(rows, reverse=True)[:count]


def layer_of(function: tuple[str, int, str]) -> str:
    """The layer that a function belongs to."""
    path = function[0]
    if path.startswith(ROOT + "/afpool/"):
        return "afpool/" + path[len(ROOT) + len("/afpool/") :].split("/")[0].removesuffix(".py")
    if path.startswith(ROOT + "/actors/"):
        return "actors"
    for name in ("h11", "trio", "trio_websocket", "wsproto"):
        if f"/site-packages/{name}/" in path:
            return name
    return "msgspec, re, other"


def shown(function: tuple[str, int, str]) -> str:
    """A short name."""
    path, line, name = function
    if path == "~":
        return name.strip("<>")
    where = path.removeprefix(ROOT + "/").rpartition("site-packages/")[2]
    return f"{where}:{line} {name}"


async def measure(url: str, options: argparse.Namespace) -> None:
    by_hand: Any
    transport: Any
    if options.wire == "stdio":
        by_hand, transport = bare.stdio, StdioTransport.of(sys.executable, bare.RESPONDERS, "stdio")
    elif options.wire == "websocket":
        by_hand, transport = bare.websocket, WebSocketTransport(url=url)
    else:
        by_hand = bare.http
        transport = HttpTransport(url=url.replace("/mcp", "/sse") if options.wire == "sse" else url)
    floor, ours = Profile(), Profile()
    async with by_hand(url) as call:
        await floor.take(call, options.calls, options.concurrent)
    server = Server(name="responder", plan=Plan(transport=transport))
    async with afpool.open_pool([server], max_operations=64) as pool:
        tool = (await pool.tools(ALICE))["echo"]

        async def pooled(_: int) -> None:
            result = await tool.call({"text": TEXT}, identity=ALICE)
            if result.text != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        await ours.take(pooled, options.calls, options.concurrent)
        pool.records.clear()
        await calls(pooled, min(options.calls, 2000), options.concurrent)
        show_stages(list(pool.records.uses))
    show_layers(floor, ours)
    print(f"\n{'own us':>8}{'calls':>8}  dearest functions (scaled)")
    for own, times, name in ours.functions(options.functions):
        print(f"{own:>8.1f}{times / options.calls:>8.2f}  {name}")


def show_stages(uses: list[Any]) -> None:
    """The medians of the marks."""
    steps: dict[str, list[float]] = {}
    for use in uses:
        before = 0.0
        for number, (stage, at) in enumerate(use.stages):
            steps.setdefault(f"{number} {stage}", []).append((at - before) * 1e6)
            before = at
    print(f"{'us':>8}  stages of one call, wall clock, median of {len(uses)}")
    for stage, found in steps.items():
        print(f"{statistics.median(found):>8.1f}  until {stage[stage.index(' ') + 1 :]}")


def show_layers(floor: Profile, ours: Profile) -> None:
    """Layer by layer, beside the bare loop."""
    print(f"\n{'us':>8}{'bare':>8}  CPU of one call by layer")
    mine, theirs = ours.layers(), floor.layers()
    for layer in [*LAYERS, *sorted({*mine, *theirs} - {*LAYERS})]:
        print(f"{mine.get(layer, 0.0):>8.1f}{theirs.get(layer, 0.0):>8.1f}  {layer}")
    print(f"{ours.cpu_us:>8.1f}{floor.cpu_us:>8.1f}  CPU in all; wall {ours.wall_us:.1f}", end="")
    print(f" and {floor.wall_us:.1f}; the bare loop's CPU is {floor.cpu_us / ours.cpu_us:.2f} of ours")


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of one warm call goes.")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--concurrent", type=int, default=1)
    parser.add_argument("--wire", choices=["http", "sse", "stdio", "websocket"], default="http")
    parser.add_argument("--functions", type=int, default=25)
    options = parser.parse_args()
    with responder(None, kind="websocket" if options.wire == "websocket" else "http") as url:
        trio.run(measure, url, options)


if __name__ == "__main__":
    main()
