"""What it costs to call from asyncio, or from a thread, beside a call on trio's own side.

    python benchmarks/aio.py [--rounds N] [--seconds S]

All in one process and one run, windows interleaved: calls of a tool of the host's own, and of one over
HTTP; one after the other, and 64 at once. `bare portal` is the same call of the tool through anyio's blocking
portal and `asyncio.wrap_future`, without context, deadline or progress, as one would write it by hand.
Figures are medians of microseconds per call, wall and processor; beside them what is over trio's side.

Exit code 1 when the crossing costs more processor time than the bare portal's, by one call or by 64.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import trio
from anyio.from_thread import start_blocking_portal
from compare import responder

from afpool import HttpTransport, Identity, Plan, Runtime, Server, define_tool, open_runtime
from afpool.aio import open_runtime_sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WHO = Identity(tenant="acme", principal="alice")
AT_ONCE = (1, 64)
THREADS = 8
ALLOWED = 1.0


@define_tool
async def one(n: int) -> str:
    await trio.lowlevel.checkpoint()
    return str(n)


Taken = dict[tuple[str, int], list[tuple[float, float]]]


class Window:
    """Counts calls until the time is over; then says what one took."""

    def __init__(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()
        self._until = self._began + seconds
        self.calls = 0

    def over(self) -> bool:
        self.calls += 1
        return time.perf_counter() > self._until

    def taken(self) -> tuple[float, float]:
        wall, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        return wall / self.calls * 1e6, cpu / self.calls * 1e6


async def in_trio(call: Callable[[], Awaitable[Any]], at_once: int, seconds: float) -> tuple[float, float]:
    window = Window(seconds)

    async def caller() -> None:
        while not window.over():
            await call()

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(caller)
    return window.taken()


async def in_asyncio(call: Callable[[], Awaitable[Any]], at_once: int, seconds: float) -> tuple[float, float]:
    window = Window(seconds)

    async def caller() -> None:
        while not window.over():
            await call()

    await asyncio.gather(*(caller() for _ in range(at_once)))
    return window.taken()


def in_threads(call: Callable[[], Any], threads: int, seconds: float) -> tuple[float, float]:
    window = Window(seconds)

    def caller() -> None:
        while not window.over():
            call()

    callers = [threading.Thread(target=caller) for _ in range(threads)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    return window.taken()


def measure(rounds: int, seconds: float, url: str) -> Taken:
    servers = [Server(name="web", plan=Plan(transport=HttpTransport(url=url)), keyed_on=())]
    pool = {"max_operations": 64}
    taken: Taken = defaultdict(list)
    with (
        open_runtime_sync(servers=servers, tools=[one], pool=pool) as runtime,
        start_blocking_portal("trio") as portal,
    ):

        async def opened(*, task_status: trio.TaskStatus[tuple[Runtime, trio.Event]]) -> None:
            async with open_runtime(tools=[one]) as inner:
                done = trio.Event()
                task_status.started((inner, done))
                await done.wait()

        _, (bare, done) = portal.start_task(opened)
        toolset = runtime.toolset(WHO)
        web = next(name for name in toolset if name != "one")
        both = runtime.asyncio
        calls: dict[str, tuple[str, Any]] = {
            "the tool": ("one", {"n": 1}),
            "over HTTP": (web, {"text": "a line"}),
        }
        assert all(runtime.dispatch(WHO, *call).code == "ok" for call in calls.values())
        for _ in range(rounds):
            for what, (name, args) in calls.items():
                for at_once in AT_ONCE:

                    def direct(here: Runtime, name: str = name, args: Any = args, many: int = at_once) -> Any:
                        return in_trio(lambda: here.dispatch(WHO, name, args), many, seconds)

                    taken[f"{what}, on trio's side", at_once].append(runtime.run_in_trio(direct))

                    def across(name: str = name, args: Any = args) -> Any:
                        return both.dispatch(WHO, name, args)

                    taken[f"{what}, from asyncio", at_once].append(
                        asyncio.run(in_asyncio(across, at_once, seconds))
                    )

                    def blocking(name: str = name, args: Any = args) -> Any:
                        return runtime.dispatch(WHO, name, args)

                    threads = min(at_once, THREADS)
                    taken[f"{what}, from {THREADS if threads > 1 else 1} thread(s)", at_once].append(
                        in_threads(blocking, threads, seconds)
                    )
                    if what == "the tool":

                        def by_hand() -> Any:
                            return asyncio.wrap_future(
                                portal.start_task_soon(bare.dispatch, WHO, "one", {"n": 1})
                            )

                        taken["the tool, bare portal", at_once].append(
                            asyncio.run(in_asyncio(by_hand, at_once, seconds))
                        )
        portal.call(done.set)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    with responder(None) as url:
        taken = measure(options.rounds, options.seconds, url)
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}; microseconds per call")
    cpu: dict[tuple[str, int], float] = {}
    kept = True
    for at_once in AT_ONCE:
        print(f"\n{'one after the other' if at_once == 1 else f'{at_once} at once'}:")
        base = {
            what.partition(",")[0]: rounds
            for (what, many), rounds in taken.items()
            if many == at_once and "trio's side" in what
        }
        for (what, many), rounds in taken.items():
            if many != at_once:
                continue
            mine = base[what.partition(",")[0]]
            ratio = statistics.median(own[0] / other[0] for own, other in zip(rounds, mine, strict=True))
            wall = statistics.median(one[0] for one in rounds)
            cpu[what, many] = statistics.median(one[1] for one in rounds)
            over = statistics.median(own[1] - other[1] for own, other in zip(rounds, mine, strict=True))
            said = "" if rounds is mine else f"   x {ratio:.2f} wall, {over:+.0f} us of processor"
            print(f"  {what:<28} {wall:7.1f} wall {cpu[what, many]:7.1f} processor{said}")
        ours, theirs = cpu["the tool, from asyncio", at_once], cpu["the tool, bare portal", at_once]
        if ours > theirs * ALLOWED:
            kept = False
            print(f"  NOT KEPT: {ours:.0f} us beside {theirs:.0f} us of the bare portal")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
