"""What many keys cost those that call, and what one key's large list costs the others.

    python benchmarks/crowds.py [--rounds N] [--keys N]

In this process, with a server that answers in the same step, so that what is seen is the pool's own. Pools
that are compared take turns in every round, and figures are medians of the ratios within a round. Exit code
1 when a bar was missed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from figures import Figure, tell
from instant import InstantWire
from memory import resident
from responders import TEXT, answer

import afpool
from afpool import Identity, MemoryTransport, Plan, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from afpool import BoundTool, Pool

CALLING = 64
WINDOW = 6_400  # calls
MANY_EXIST, ROUND_ROBIN, LISTS = 1.05, 1.35, 1.3
BYTES_PER_VIEW = 2048
SHARED_TOOLS, SHARED_BY = 200, 1_000
NEW_TOOLS, VERSIONS = 5_000, 4
SECONDS = 2.0
ROBIN_CLIENTS = 12_000


class Counted:
    """A server whose lists are as long as wanted, and that counts how often it is asked for one."""

    def __init__(self, tools: int, lists: Callable[[], int] = lambda: 0) -> None:
        self.asked = 0
        self._tools = tools
        self._version = lists

    async def connect(self) -> InstantWire:
        await trio.lowlevel.checkpoint()
        return InstantWire(self.answer)

    def answer(self, line: bytes) -> bytes | None:
        if b'"tools/list"' not in line or self._tools == 1:
            return answer(line)
        self.asked += 1
        # made beforehand: what it costs the server is not what is asked about
        result = encoded(self._tools, self._version() % VERSIONS)
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (msgspec.json.decode(line)["id"], result)


@cache
def encoded(count: int, version: int) -> bytes:
    """The result of a list."""
    return msgspec.json.encode({"tools": tools(count, version)})


def tools(count: int, version: int) -> list[dict[str, Any]]:
    """A list of so many tools, each as large as tools are; another version has other descriptions."""
    return [
        {
            "name": f"tool_{number}",
            "description": f"Looks up record {number} as of {version} and gives what is known of it.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "record": {"type": "string", "description": "Which one", "minLength": 1},
                    "fields": {"type": "array", "items": {"type": "string"}, "maxItems": 50},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
                },
                "required": ["record"],
            },
        }
        for number in range(count)
    ]


@asynccontextmanager
async def pool_of(server: Counted, **options: Any) -> AsyncIterator[Pool]:
    """A pool before a server in this process."""
    plan = Plan(transport=MemoryTransport(name="here", connect=server.connect))
    limits = {"max_clients": ROBIN_CLIENTS, "idle_timeout": 3600.0, "list_ttl": 3600.0, **options}
    async with afpool.open_pool([Server(name="here", plan=plan)], **limits) as pool:
        yield pool


def person(number: int) -> Identity:
    return Identity(tenant=f"t{number % 97}", principal=f"p{number}")


async def bound(pool: Pool, count: int, name: str = "echo") -> list[tuple[BoundTool, Identity]]:
    """A bound tool for each of so many people."""
    found = []
    for number in range(count):
        who = person(number)
        found.append(((await pool.tools(who))[name], who))
    return found


async def window(tools: list[tuple[BoundTool, Identity]], calls: int) -> float:
    """Microseconds of this thread that one call takes, going round."""
    gc.collect()
    began = time.thread_time()
    for tool, who in itertools.islice(itertools.cycle(tools), calls):
        await tool.call({"text": TEXT}, identity=who)
    return (time.thread_time() - began) / calls * 1e6


async def existing(rounds: int, keys: int) -> list[Figure]:
    """Calls of 64 keys while many exist; calls that go round all of them."""
    taken: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        few = await bound(await stack.enter_async_context(pool_of(Counted(1))), CALLING)
        many = await bound(await stack.enter_async_context(pool_of(Counted(1), share=everybody)), keys)
        one = few[:1]
        ways = {"few": few, "many": many[:CALLING], "one": one, "all": many}
        for tools in ways.values():
            await window(tools, len(tools))  # opens the clients
        for number in range(rounds):
            names = list(ways)
            first = number % len(names)
            for name in names[first:] + names[:first]:
                taken.setdefault(name, []).append(await window(ways[name], max(WINDOW, len(ways[name]))))
    return [
        Figure(
            f"64 keys calling while {keys:,} exist, of while 64 do",
            _of(taken, "many", "few"),
            "x",
            MANY_EXIST,
        ),
        Figure(f"going round {keys:,} keys, of calling one", _of(taken, "all", "one"), "x", ROUND_ROBIN),
    ]


def everybody(_server: str, _who: Identity) -> str:
    return "everybody"


def _of(taken: dict[str, list[float]], one: str, other: str) -> float:
    return statistics.median(a / b for a, b in zip(taken[one], taken[other], strict=True))


async def views() -> list[Figure]:
    """What a shared list of 200 tools costs each of 1,000 keys that list it."""
    server = Counted(SHARED_TOOLS)
    async with pool_of(server, share=everybody) as pool:
        held: list[Any] = [await pool.tools(person(number)) for number in range(20)]
        before = resident()
        held += [await pool.tools(person(20 + number)) for number in range(SHARED_BY)]
        used = (resident() - before) / SHARED_BY
        assert all(len(view) == SHARED_TOOLS for view in held)
    return [
        Figure("1,000 keys listing 200 shared tools: lists on the wire", server.asked, "", 1),
        Figure("1,000 keys listing 200 shared tools: bytes of each", used, "B", BYTES_PER_VIEW),
    ]


async def listing(rounds: int) -> list[Figure]:
    """How long the slowest calls of 63 keys take while another one gets lists of 5,000 new tools."""
    version = itertools.count()
    for number in range(VERSIONS):
        encoded(NEW_TOOLS, number)
    small, large = Counted(1), Counted(NEW_TOOLS, lambda: next(version))
    moved = []
    async with pool_of(small) as pool, pool_of(large, min_list_ttl=0.01, list_ttl=0.05) as other:
        callers = await bound(pool, CALLING - 1)
        for tool, who in callers:
            await tool.call({"text": TEXT}, identity=who)
        for _ in range(rounds):
            quiet = await tail(callers)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(list_all_the_time, other)
                busy = await tail(callers)
                nursery.cancel_scope.cancel()
            moved.append(busy / quiet)
    return [
        Figure(
            "p99 of 63 keys while one lists 5,000 new tools, of without", statistics.median(moved), "x", LISTS
        )
    ]


async def list_all_the_time(pool: Pool) -> None:
    while True:
        await pool.tools(person(0))
        await trio.sleep(0.25)


async def tail(callers: list[tuple[BoundTool, Identity]]) -> float:
    """The p99 of calls that each begin at their time, 10 a second of each key."""
    taken: list[float] = []
    ends = trio.current_time() + SECONDS

    async def live(number: int, tool: BoundTool, who: Identity) -> None:
        at = trio.current_time() + number / len(callers) / 10
        while at < ends:
            await trio.sleep_until(at)
            await tool.call({"text": TEXT}, identity=who)
            taken.append(trio.current_time() - at)
            at += 0.1

    async with trio.open_nursery() as nursery:
        for number, (tool, who) in enumerate(callers):
            nursery.start_soon(live, number, tool, who)
    taken.sort()
    return taken[len(taken) * 99 // 100]


async def measure(rounds: int, keys: int) -> list[Figure]:
    """All of it."""
    # memory first, while nothing else has left any
    return [*await views(), *await existing(rounds, keys), *await listing(rounds)]


def main() -> int:
    parser = argparse.ArgumentParser(description="What many keys cost, and a large list.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keys", type=int, default=10_000)
    options = parser.parse_args()
    return tell(trio.run(measure, options.rounds, options.keys), "crowds")


if __name__ == "__main__":
    sys.exit(main())
