"""What this project adds to a call, by itself: no process, no socket, a server that answers in the same step.

    python benchmarks/layers.py [--rounds N] [--calls N]

*The server* is what answering takes. *The client* is one client of ours, called under a gate that is always
open: encode, write, read, decode, the verdict. *The pool* is a bound tool: identity, currency, a lease, the
gate at every boundary, the record. All three take turns in every round; figures are microseconds of this
thread's own time, medians of the differences within a round. Exit code 1 when a bar was missed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from figures import Figure, tell
from instant import connect
from responders import TEXT, answer

import afpool
from afpool import Identity, MemoryTransport, Plan, Server
from afpool._base.use import Use
from afpool.protocol import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from afpool import BoundTool, Pool
    from afpool.client import Client

ALICE = Identity(tenant="acme", principal="alice", conversation_id="a-1")
ALL = 35.0
POOL = {1: 15.0, 64: 25.0}


class Open:
    """Whoever calls a client, with nothing to refuse for: a `Caller` and `ToolCaller`."""

    interrupted = operation = call_id_key = on_progress = None

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self.args = b""
        self.use = Use("call", "here", "echo", 0.0)
        self.trip: Any = None
        self.deadline = trio.current_time() + 600

    def ask(self, _: str, /) -> None:
        """The gate is open."""

    def began(self) -> None:
        """Nobody asks."""

    def started(self, _: int) -> None:
        """Nobody asks."""


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[BoundTool, Client]]:
    """A bound tool, and the client behind it."""
    plan = Plan(transport=MemoryTransport(name="here", connect=connect))
    async with afpool.open_pool([Server(name="here", plan=plan)], max_operations=64) as pool:
        tool = (await pool.tools(ALICE))["echo"]
        await tool.call({"text": TEXT}, identity=ALICE)
        yield tool, client_of(pool)


def client_of(pool: Pool) -> Client:
    """The only client of a pool with one key."""
    (actor,) = pool.kept
    client: Client = actor.machine.client.handle
    return client


async def window(call: Callable[[], Awaitable[object]], count: int, at_once: int) -> float:
    """Microseconds of this thread that one call takes."""

    async def worker() -> None:
        for _ in range(count // at_once):
            await call()

    gc.collect()
    began = time.thread_time()
    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(worker)
    return (time.thread_time() - began) / count * 1e6


@asynccontextmanager
async def ways() -> AsyncIterator[dict[str, Callable[[], Awaitable[object]]]]:
    """One call by each way."""
    async with opened() as (tool, client):
        definition = tool.binding.definition
        request = msgspec.json.encode(
            {
                "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": {"name": "echo", "arguments": {"text": TEXT}},
            }
        )  # fmt: skip

        async def by_pool() -> None:
            result = await tool.call({"text": TEXT}, identity=ALICE)
            if result.text != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        async def by_client() -> None:
            caller = Open(definition)
            caller.args = encode_json({"text": TEXT})
            raw = await client.call(caller)
            if msgspec.json.decode(raw)["content"][0]["text"] != TEXT:
                raise RuntimeError("the answer is not the one to this request")

        async def by_server() -> None:
            answer(request)

        yield {"server": by_server, "client": by_client, "pool": by_pool}


async def measure(rounds: int, calls: int) -> list[Figure]:
    """Take the turns."""
    taken: dict[tuple[str, int], list[float]] = {}
    async with ways() as found:
        for number in range(-1, rounds):
            for at_once in POOL:
                for way, call in found.items():
                    took = await window(call, calls, at_once)
                    if number >= 0:
                        taken.setdefault((way, at_once), []).append(took)
    return figures(taken)


def figures(taken: dict[tuple[str, int], list[float]]) -> list[Figure]:
    """What was seen, and what is judged of it."""

    def over(way: str, base: str, at_once: int) -> float:
        pairs = zip(taken[way, at_once], taken[base, at_once], strict=True)
        return statistics.median(one - other for one, other in pairs)

    found = [
        Figure(f"{way}, {at_once} at once", statistics.median(times), "us")
        for (way, at_once), times in taken.items()
    ]
    found += [
        Figure(
            f"all of afpool over the server, {at_once} at once", over("pool", "server", at_once), "us", ALL
        )
        for at_once in POOL
    ]
    found += [
        Figure(f"the pool over the client, {at_once} at once", over("pool", "client", at_once), "us", most)
        for at_once, most in POOL.items()
    ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="What this project adds to a call.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=3200, help="in each window")
    options = parser.parse_args()
    return tell(trio.run(measure, options.rounds, options.calls), "layers")


if __name__ == "__main__":
    sys.exit(main())
