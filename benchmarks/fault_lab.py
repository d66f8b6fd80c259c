"""What the rows of the fault matrix share: servers, pools, numbered calls, and the books.

Every call carries a number of its own, so that the server's log can say which call ran how often. A row's
claim about what reached the server is read from that log; what the caller saw is read from the error.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

import afpool
from afpool import AfpoolError, HttpTransport, Identity, Plan, Server
from afpool.testing import FakeServer, FakeTool, big_tool, echo_tool, sleep_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from afpool import BoundTool, Pool
    from afpool.testing import Execution

ERAS = ("handshake", "stateless")
ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")
WHAT, EXPECTED, SEEN = 31, 33, 33


@attrs.frozen
class Row:
    """One line of the table."""

    what: str
    expected: str
    seen: str
    good: bool


@attrs.frozen
class Ended:
    """How a call ended.

    Attributes:
        word: `ok`, or the error's code and verdict.
        seconds: Until its caller had it.
    """

    word: str
    seconds: float


class Lab:
    """The books of all rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.runs: Counter[int] = Counter()  # by number of the call
        self.sent = 0  # calls made by a row
        self.wrong_owner = 0
        self._numbers = itertools.count(1)

    def row(self, what: str, expected: str, seen: str, *, good: bool) -> None:
        """Add a line to the table and print it."""
        row = Row(what, expected, seen, good)
        self.rows.append(row)
        lines = itertools.zip_longest(
            *(_cut(text, width) for text, width in ((what, WHAT), (expected, EXPECTED), (seen, SEEN))),
            fillvalue="",
        )
        for number, (left, middle, right) in enumerate(lines):
            mark = ("ok" if good else "NOT") if not number else ""
            print(f"{left:<{WHAT}}{middle:<{EXPECTED}}{right:<{SEEN}}{mark}".rstrip(), flush=True)

    def number(self) -> int:
        """A number for one call."""
        self.sent += 1
        return next(self._numbers)

    def book(self, executed: Iterable[Execution]) -> None:
        """Take over what a server's log says ran."""
        for run in executed:
            self.runs[int(run.arguments["n"])] += 1

    def check_owners(self, server: FakeServer) -> None:
        """Each session must have been used for one identity only."""
        owners: defaultdict[str, set[str | None]] = defaultdict(set)
        for arrival in server.log:
            if arrival.session_id is not None:
                owners[arrival.session_id].add(arrival.headers.get("x-who"))
        self.wrong_owner += sum(len(names) > 1 for names in owners.values())


def _cut(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) + 1 >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def head() -> None:
    """Print the head of the table."""
    print("2025: handshake era, 2026: stateless era. Where there are three words: the call that was")
    print("hit, a call of 1 s in flight beside it on the same key, and the next call of that key.")
    print(f"{'what the server does':<{WHAT}}{'expected':<{EXPECTED}}{'seen':<{SEEN}}")
    print("-" * (WHAT + EXPECTED + SEEN + 2))


def tools() -> list[FakeTool]:
    """What the servers of the lab offer."""
    return [echo_tool("pay"), sleep_tool("sleep"), big_tool("big")]


@attrs.define(eq=False)
class Bench:
    """One server, one pool over it."""

    lab: Lab
    pool: Pool
    server: Any
    held: dict[tuple[Identity, str], BoundTool] = attrs.field(factory=dict)

    async def tool(self, name: str = "pay", who: Identity = ALICE) -> BoundTool:
        """The bound tool that this identity holds; listed the first time."""
        if (who, name) not in self.held:
            self.held[who, name] = (await self.pool.tools(who))[name]
        return self.held[who, name]

    async def call(
        self,
        name: str = "pay",
        who: Identity = ALICE,
        *,
        within: float | None = None,
        **arguments: Any,
    ) -> Ended:
        """Make a numbered call and say how it ended.

        Args:
            name: The tool.
            who: Whose.
            within: Seconds until its deadline.
            **arguments: Further arguments.
        """
        began = trio.current_time()
        deadline = None if within is None else began + within
        try:
            tool = await self.tool(name, who)
            began = trio.current_time()
            await tool.call({"n": self.lab.number(), **arguments}, identity=who, deadline=deadline)
        except AfpoolError as error:
            word = f"{error.code} {error.delivery}"
        else:
            word = "ok"
        return Ended(word, trio.current_time() - began)

    async def beside(self, fault: Callable[[], Any]) -> tuple[Ended, Any]:
        """Run `fault` while a call of one second is in flight; gives how both ended."""
        await self.tool("sleep")
        ended: list[Ended] = []

        async def sibling() -> None:
            ended.append(await self.call("sleep", seconds=1))

        async with trio.open_nursery() as nursery:
            before = self.server.count("tools/call")
            nursery.start_soon(sibling)
            await self.server.wait_for("tools/call", before + 1)
            found = await fault()
        return ended[0], found

    def client_id(self, who: Identity = ALICE) -> int | None:
        """The incarnation of a key now."""
        shown = self.pool.digest.show(self.pool.key_of(who, "lab"))
        return next((row.client for row in self.pool.statistics().actors if row.key == shown), None)


@asynccontextmanager
async def bench(
    lab: Lab, era: str, *, limits: Mapping[str, Any] | None = None, **http: Any
) -> AsyncIterator[Bench]:
    """A fake server over loopback HTTP and a pool; at the end the server's log goes into the books."""
    async with FakeServer.http(**{"era": era, "tools": tools(), **http}) as server:

        def plan(_: str, who: Identity) -> Plan:
            # a header that names the identity, so that the server's log can tell whose a request was
            return Plan(transport=HttpTransport(url=server.url, headers={"x-who": str(who.principal)}))

        async with afpool.open_pool([Server(name="lab")], plan=plan, **(limits or {})) as pool:
            yield Bench(lab, pool, server)
        lab.check_owners(server)
        lab.book(server.executed)


async def at_once(count: int, fn: Callable[[int], Any]) -> list[Any]:
    """Run `fn` so many times at once; gives the results."""
    results: list[Any] = [None] * count

    async def one(index: int) -> None:
        results[index] = await fn(index)

    async with trio.open_nursery() as nursery:
        for index in range(count):
            nursery.start_soon(one, index)
    return results


def tally(ended: Iterable[Ended]) -> str:
    """How many ended how."""
    counts = Counter(each.word for each in ended)
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def middle(ended: Iterable[Ended]) -> float:
    """The median time, in seconds."""
    return statistics.median(each.seconds for each in ended)


def letter(era: str) -> str:
    """The era, short: as the table names it."""
    return {"handshake": "2025", "stateless": "2026", "-": "-"}[era]


def end(lab: Lab, seconds: float) -> int:
    """Print the bottom line; gives the exit code."""
    twice = sum(1 for times in lab.runs.values() if times > 1)
    lab.row(
        "calls that ran twice, by logs",
        f"0 of {lab.sent}",
        f"{twice}; the logs hold {lab.runs.total()} runs",
        good=twice == 0 and lab.runs.total() > 0,
    )
    lab.row(
        "sessions of two identities",
        "0",
        str(lab.wrong_owner),
        good=not lab.wrong_owner,
    )
    bad = [row for row in lab.rows if not row.good]
    print(f"\n{len(lab.rows)} rows, {len(bad)} not as expected, {seconds:.0f} s")
    sys.stdout.flush()
    return 1 if bad else 0
