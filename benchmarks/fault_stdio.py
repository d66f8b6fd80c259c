"""Rows about child processes that die, or do not want to."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from fault_lab import ALICE, BOB, ERAS, Bench, Lab, letter

import afpool
from afpool import Identity, Plan, Server, StdioTransport
from afpool.testing import FakeServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from afpool.testing import ChildLog

CLOSE_TIMEOUT = 3.0


class Child:
    """What a child's log says; stands in for the server of a bench."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, who: Identity) -> ChildLog:
        return FakeServer.read_child_log(self.folder / f"{who.principal}.log")

    def pid(self, who: Identity) -> int:
        return self.log(who).processes["server"]

    async def called(self, who: Identity, count: int) -> None:
        """Wait until the log shows so many calls."""
        with trio.fail_after(10):
            while self.calls(who) < count:  # noqa: ASYNC110  (a file of another process)
                await trio.sleep(0.005)

    def calls(self, who: Identity) -> int:
        return sum(each.method == "tools/call" for each in self.log(who).arrivals)

    def book(self, lab: Lab) -> None:
        """Take over what every child's log says ran."""
        for log in self.folder.glob("*.log"):
            lab.book(FakeServer.read_child_log(log).executed)


@asynccontextmanager
async def children(lab: Lab, era: str, **script: Any) -> AsyncIterator[Bench]:
    """A pool whose keys each have a child; at the end the children's logs go into the books."""
    with tempfile.TemporaryDirectory(prefix="afpool-faults-") as name:
        folder = Path(name)
        listed = {"tools": [{"name": "pay", "builtin": "echo"}, "sleep"], **script}

        def plan(_: str, who: Identity) -> Plan:
            log = folder / f"{who.principal}.log"
            return Plan(transport=StdioTransport.of(*FakeServer.stdio_command(listed, era=era, log=log)))

        async with afpool.open_pool([Server(name="lab")], plan=plan, close_timeout=CLOSE_TIMEOUT) as pool:
            yield Bench(lab, pool, Child(folder))
        Child(folder).book(lab)


async def killed(lab: Lab) -> None:
    """A child that dies in a call: in doubt, nobody else's trouble, the next call has a new one."""
    for era in ERAS:
        async with children(lab, era) as place:
            child: Child = place.server
            await place.call(who=ALICE)
            await place.call(who=BOB)
            pid = child.pid(ALICE)
            ended = []
            async with trio.open_nursery() as nursery:

                async def struck(place: Bench = place, ended: list[Any] = ended) -> None:
                    ended.append(await place.call("sleep", ALICE, seconds=5))

                nursery.start_soon(struck)
                await child.called(ALICE, 2)
                os.kill(pid, signal.SIGKILL)
            other = await place.call(who=BOB)
            following = await place.call(who=ALICE)
            fresh = child.pid(ALICE) != pid
            lab.row(
                f"{letter(era)} child killed in a call",
                "session-handle-lost in-doubt",
                ended[0].word,
                good=ended[0].word == "session-handle-lost in-doubt",
            )
            lab.row(
                "     then another key, and it",
                "ok, ok in a new child",
                f"{other.word}, {following.word} in {'a new' if fresh else 'the SAME'} child",
                good=(other.word, following.word) == ("ok", "ok") and fresh,
            )


async def stubborn(lab: Lab) -> None:
    """Leaving the pool ends children that ignore the end of stdin, and those that ignore SIGTERM too."""
    for what, script in (
        ("ignores EOF", {"ignore_eof": True}),
        ("ignores EOF, TERM", {"ignore_eof": True, "ignore_sigterm": True}),
    ):
        async with children(lab, "handshake", **script) as place:
            await place.call()
            pid = place.server.pid(ALICE)
            began = trio.current_time()
        took = trio.current_time() - began
        lab.row(
            f"2025 child {what}",
            f"gone within {CLOSE_TIMEOUT:g} s",
            f"{'gone' if gone(pid) else 'ALIVE'} after {took:.2f} s",
            good=gone(pid) and took <= CLOSE_TIMEOUT + 0.25,
        )


def gone(pid: int) -> bool:
    """Whether there is no such process any more, and no zombie of it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


ROWS = (killed, stubborn)
