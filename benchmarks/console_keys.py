"""How long what is asked of a great many keys holds the event loop: the longest step, in ms of this thread.

    python benchmarks/console_keys.py [--keys N] [--clients N] [--rounds N]

A pool with so many keys, some of which have a client, is asked everything that goes through all of them, and
the answers are written as they go out. Beside it a task looks how much the thread has done since its last
turn. The best of the rounds counts: garbage that the rest of the process has made is not what is asked about.
"""

from __future__ import annotations

import argparse
import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio
from figures import Figure, tell

from afpool import HttpTransport, Identity, Plan, Server
from afpool.console import Asker, Registry, Stream, build_registry
from afpool.console._slices import Slices, encode
from afpool.pool import open_pool
from afpool.record import Record
from afpool.testing import FakeServer, echo_tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from afpool import Pool

LIMIT = 5.0
FRAMES = 30
ASKED = (
    "show actors",
    "show actors state=open sort=-idle",
    "show actors sort=-waiting limit=20000",
    "show actors tenant=acme sort=turns limit=20000 --reveal",
    "show servers",
    "show actor KEY",
    "check",
    "tree limit=10000",
    "watch actors",
)


class Steps:
    """Looks how long the longest step of the loop took since it was last asked."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        last = time.thread_time()
        while True:
            await trio.lowlevel.checkpoint()
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


async def ask(registry: Registry, line: str, by: Asker) -> None:
    """Ask, and write the answer as it goes out."""
    answer: Any = await registry.run(line, by)
    if not isinstance(answer, Stream):
        await encode({"id": 1, "ok": answer}, Slices())
        return
    answer.every = 0.0
    with trio.move_on_after(0.5):
        for _ in range(FRAMES):
            frame = await answer.next()
            assert frame is not None
            await encode({"stream": 1, **frame}, Slices())
    answer.close()


async def keys(pool: Pool, count: int, clients: int) -> list[object]:
    """Make so many keys, of which some have a client; they live as long as what is given."""
    who = [Identity("acme", f"user-{number}") for number in range(count)]
    held: list[object] = [pool.actor_for("desk", one) for one in who]
    held += [await pool.tools(one, "desk") for one in who[:clients]]
    return held


@contextmanager
def without_old_garbage() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def measure(count: int, clients: int, rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    async with FakeServer.http(era="both", tools=[echo_tool()]) as fake:
        plan = Plan(transport=HttpTransport(url=fake.url))
        async with open_pool([Server(name="desk", plan=plan)], max_clients=clients + 1) as pool:
            registry = build_registry(pool=pool, record=Record(pool))
            asker = Asker("operate", "benchmark")
            held = await keys(pool, count, clients)
            shown = pool.actors()[count // 2].shown
            async with registry.serving(), trio.open_nursery() as nursery:
                steps = Steps()
                nursery.start_soon(steps.run)
                for line in ASKED:
                    best = float("inf")
                    with without_old_garbage():
                        for _ in range(rounds):
                            steps.longest = 0.0
                            await ask(registry, line.replace("KEY", shown), asker)
                            await trio.lowlevel.checkpoint()
                            best = min(best, steps.longest)
                    figures.append(Figure(line, best * 1e3, "ms", LIMIT))
                nursery.cancel_scope.cancel()
            assert len(held) == count + clients
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200, help="keys that have a client")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"longest step of the loop over {options.keys:,} keys, {options.clients:,} of them with a client")
    return tell(trio.run(measure, options.keys, options.clients, options.rounds))


if __name__ == "__main__":
    raise SystemExit(main())
