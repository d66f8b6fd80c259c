"""What the scenarios share: rows and cells, a bench (one adapter at one server), and numbered calls.

Every call carries a number, so that the server's log says which call ran how often and under which token.
A cell about what reached the server is read from that log; one about what a caller saw, from what the
adapter reports.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs
import trio

from afpool.testing import FakeServer, echo_tool, sleep_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from child import Asked, Child, Said

    from afpool.testing import Arrival

BAD = 1e9  # the score of a cell that ended in nothing
LATE = 6.0  # seconds that a call, an opening or an ending may take where nothing else is said


@attrs.frozen
class Row:
    """One line of the table.

    Attributes:
        key: Stable name.
        group: `faults`, `isolation`, `service` or `costs`.
        title: As printed.
        slack: A score worse than another's by no more than this part of it is no worse.
        least: Nor is one that is worse by no more than this.
    """

    key: str
    group: str
    title: str
    slack: float = 0.0
    least: float = 0.0


@attrs.frozen
class Cell:
    """What was seen.

    Attributes:
        text: As printed.
        score: Lower is better; None where nothing is better or worse.
    """

    text: str
    score: float | None = None


@attrs.define(eq=False)
class Bench:
    """One adapter at one server.

    Attributes:
        child: The adapter.
        server: Its own, of this scenario.
        cells: What was found so far, by the row's key.
    """

    child: Child
    server: FakeServer
    cells: dict[str, Cell] = attrs.field(factory=dict)
    numbers: itertools.count[int] = attrs.field(factory=lambda: itertools.count(100_001))

    def cell(self, key: str, text: str, score: float | None = None) -> None:
        """Fill a cell."""
        self.cells[key] = Cell(text, score)

    async def open(self, user: str, *, within: float = LATE, **more: Any) -> Said:
        """Let a user in, at the server unless `command` says otherwise. His token is `token-of-` him."""
        where = {} if "command" in more else {"url": self.server.url, "token": f"token-of-{user}"}
        return await self.child.ask("open", within, user=user, **where, **more)

    async def opened(self, *users: str) -> None:
        """Let users in and have each make a call.

        Raises:
            NotOpenError: One was not let in, or his call failed.
        """
        for user in users:
            for said in (await self.open(user), await self.child.ask("list", LATE, user=user)):
                if not said.ok:
                    raise NotOpenError(f"{user}: {said.ended} {said.learned[:200]}")
            said = await self.call(user)
            if not said.ok:
                raise NotOpenError(f"{user}'s first call: {said.ended} {said.learned[:200]}")

    async def begin(
        self, user: str, tool: str = "echo", *, n: int | None = None, timeout: float = 5.0, **args: Any
    ) -> Asked:
        """Begin a call. `timeout` is the library's to keep."""
        given = {"n": next(self.numbers) if n is None else n, **args}
        return await self.child.begin("call", user=user, tool=tool, args=given, timeout=timeout)

    async def call(
        self,
        user: str,
        tool: str = "echo",
        *,
        n: int | None = None,
        timeout: float = 5.0,
        within: float = LATE,
        **args: Any,
    ) -> Said:
        """Call and wait."""
        return await (await self.begin(user, tool, n=n, timeout=timeout, **args)).said(within)

    async def again(self, user: str) -> Said:
        """A call after the user was let go and in once more."""
        await self.child.ask("close", LATE, user=user)
        said = await self.open(user)
        return await self.call(user) if said.ok else said

    async def afresh(self) -> None:
        """Go on with a host that nobody has used."""
        await self.child.ask("shutdown", 2)
        await self.child.ask("renew", 2)

    async def at_once(self, *begun: Asked, within: float = LATE) -> list[Said]:
        """How all of them ended."""
        found: dict[int, Said] = {}

        async def wait(number: int, asked: Asked) -> None:
            found[number] = await asked.said(within)

        async with trio.open_nursery() as nursery:
            for number, asked in enumerate(begun):
                nursery.start_soon(wait, number, asked)
        return [found[number] for number in range(len(begun))]

    def runs(self, n: int) -> int:
        """How often the call of this number ran."""
        return sum(run.arguments.get("n") == n for run in self.server.executed)

    def arrived(self, n: int) -> int:
        """How often the call of this number reached the server."""
        return sum(each.arguments.get("n") == n for each in self.server.arrivals("tools/call"))

    async def seen(self, condition: Callable[[], bool], within: float = 2.0) -> bool:
        """Whether this came to hold at the server."""
        with trio.move_on_after(within):
            await self.server.wait_until(condition)
        return condition()


class NotOpenError(Exception):
    """A scenario did not get as far as its fault."""


def numbered(n: int) -> Callable[[Arrival], bool]:
    """A condition of a rule: only the call of this number."""
    return lambda arrival: arrival.arguments.get("n") == n


def token_of(arrival: Arrival) -> str:
    """The token that came with it."""
    return arrival.headers.get("authorization", "none").removeprefix("Bearer ")


def word(said: Said) -> str:
    """How it ended, in a word."""
    return {"ok": "ok", "late": "hangs", "cancelled": "cancelled"}.get(said.ended, "error")


def seconds(value: float) -> str:
    """As printed."""
    return f"{value:.2f} s"


@attrs.frozen
class Scenario:
    """A function that fills the cells of some rows.

    Attributes:
        limit: Seconds, after which what is not filled yet is `no end`.
        fresh: It is played in a process that has played nothing before.
    """

    run: Callable[[Bench], Awaitable[None]]
    rows: tuple[Row, ...]
    limit: float = 25.0
    fresh: bool = False

    @property
    def name(self) -> str:
        """For the command line."""
        return getattr(self.run, "__name__", "")


def server() -> FakeServer:
    """The server of a scenario: the protocol of 2025-11-25, with sessions."""
    return FakeServer.http(era="handshake", tools=[echo_tool(), echo_tool("pay"), sleep_tool()])
