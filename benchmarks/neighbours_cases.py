"""Who makes trouble for whom: twenty healthy tenants that live the same life throughout, and a noisy one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import trio

import afpool
from afpool import AfpoolError, HttpTransport, Identity, Plan, Server, StdioTransport, WebSocketTransport

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

HERE: Final = Path(__file__).parent
TENANTS: Final = 20
RATE: Final = 5.0
"""Calls of a healthy tenant in a second."""
SERVICE: Final = 0.02
"""Seconds that a call takes at a healthy server."""
KINDS: Final = ("http", "http-sse", "http-stateless", "websocket", "stdio")
OPENINGS: Final = 5
"""How often a healthy one tries to open, before anything is measured."""
CHILD: Final = (sys.executable, "-IS", str(HERE / "neighbours_child.py"))
NICE_CHILD: Final = ("nice", "-n", "10", *CHILD)
LIMITS: Final[Mapping[str, Any]] = {
    "open_timeout": 2.0, "close_timeout": 1.0, "settle_timeout": 1.0, "cancel_grace": 0.2, "deadline": 10.0,
}  # fmt: skip


@attrs.frozen
class Case:
    """One kind of trouble, and how its tenant goes on calling all the while.

    Attributes:
        name: What the noisy server is told.
        at: Where its tenant goes: the `noisy` server, the `deaf` address, a `child`, or the fast `responder`.
        conversations: Of the noisy tenant, each with a client of its own.
        callers: For each conversation.
        pause: Seconds between two calls of one caller.
        tool: What is called.
        deadline: Seconds of a noisy call.
        heavy: Its noise takes enough processor to ask what that alone does to the others: it is measured too.
        load: Calls a second that are offered, however long they take; in place of callers.
    """

    name: str
    at: str = "noisy"
    conversations: int = 8
    callers: int = 4
    pause: float = 0.05
    tool: str = "sleep"
    deadline: float = 1.0
    heavy: bool = False
    load: float = 0.0


CASES: Final = (
    Case("hangs in connect", at="deaf"),
    Case("hangs in calls"),
    Case("100 MB answers", conversations=2, callers=1, pause=0.25, deadline=5.0, heavy=True),
    Case("notifications", conversations=1, callers=1, deadline=10.0, heavy=True),
    Case("5,000 tools", conversations=2, callers=1, pause=0.2, deadline=5.0, heavy=True),
    Case("429 to calls", pause=0.2),
    Case("crash in call", at="child", conversations=4, callers=1, pause=0.2, tool="crash", heavy=True),
    Case("100 x the load", at="responder", load=100 * RATE, tool="echo"),
)


class Processes:
    """Every process beside this one, for the time of a block."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[str]] = []
        self.where: dict[str, str] = {}
        self.noisy: subprocess.Popen[str]

    def __enter__(self) -> Self:
        self.where |= self._started("neighbours_server.py", "healthy")[1]
        self.noisy, told = self._started("neighbours_server.py", "noisy")
        self.where |= told
        responder, port = self._started("responders.py", "http")
        subprocess.run(["renice", "-n", "10", str(responder.pid)], check=True, stdout=subprocess.DEVNULL)
        self.where["responder"] = f"http://127.0.0.1:{port}/mcp"
        return self

    def _started(self, script: str, *arguments: str) -> tuple[subprocess.Popen[str], Any]:
        command = [sys.executable, str(HERE / script), *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._all.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{script} {' '.join(arguments)} has not begun")
        return process, json.loads(line)

    def drain(self, case: Case) -> subprocess.Popen[str]:
        """Start whoever asks the noisy server without the pool."""
        callers = str(case.conversations * case.callers)
        return self._started(
            "neighbours_server.py", "drain", self.where["noisy"], case.name, callers, str(case.pause)
        )[0]

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def pids(self) -> list[int]:
        """Of those that make noise."""
        return [process.pid for process in self._all[1:]]


def tell(process: subprocess.Popen[str], word: str) -> None:
    """Steer a process."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


class Town:
    """The pool, and who lives there.

    Attributes:
        noisy: How the calls of the noisy tenant ended.
    """

    def __init__(self, processes: Processes, case: Case, noisy: Counter[str]) -> None:
        self._processes = processes
        self._case = case
        self._where = processes.where
        self._tools: list[Any] = []
        self.noisy = noisy
        self.pool: Any = None

    def plan(self, server: str, who: Identity) -> Plan:
        """How a tenant gets to its server."""
        if server == "loud":
            if self._case.at == "child":
                return Plan(transport=StdioTransport.of(*NICE_CHILD))
            return Plan(transport=HttpTransport(url=self._where[self._case.at]))
        kind = KINDS[int((who.tenant or "t0")[1:]) % len(KINDS)]
        if kind == "stdio":
            return Plan(transport=StdioTransport.of(*CHILD))
        if kind == "websocket":
            return Plan(transport=WebSocketTransport(url=self._where[kind]))
        return Plan(transport=HttpTransport(url=self._where[kind]))

    @property
    def servers(self) -> list[Server]:
        """A server of the healthy ones, each kind behind it, and one of the loud one."""
        return [Server(name="quiet"), Server(name="loud")]

    async def settle_in(self) -> None:
        """Open everything that the healthy ones hold."""
        for number in range(TENANTS):
            who = Identity(tenant=f"t{number}", principal="someone")
            self._tools.append(((await self._listed(who))["sleep"], who))

    async def _listed(self, who: Identity) -> Any:
        """The tools of a healthy one; a machine may be too busy to open everything within `open_timeout`."""
        for _ in range(OPENINGS):
            try:
                return await self.pool.tools(who, "quiet")
            except AfpoolError:
                await trio.sleep(1)
        return await self.pool.tools(who, "quiet")

    # ------------------------------------------------------------------ the healthy ones

    async def live(self, seconds: float) -> list[float]:
        """Call at a fixed rate, whether or not the calls before have ended; gives what each call took.

        It is counted from the moment at which the call was due: what makes everybody late counts too.
        """
        taken: list[float] = []
        period = 1 / (RATE * TENANTS)
        began = trio.current_time() + 0.01
        async with trio.open_nursery() as calls:
            for number in range(int(seconds / period)):
                due = began + number * period
                await trio.sleep_until(due)
                calls.start_soon(self._call, number, due, taken)
        return taken

    async def _call(self, number: int, due: float, taken: list[float]) -> None:
        tool, who = self._tools[number % TENANTS]
        await tool.call({"seconds": SERVICE}, identity=who)
        taken.append(trio.current_time() - due)

    # ------------------------------------------------------------------ the noisy one

    async def make_noise(self) -> None:
        """Call all the while; until cancelled."""
        case = self._case
        async with trio.open_nursery() as nursery:
            if case.load:
                await self._offer(nursery)
            for conversation in range(case.conversations):
                for _ in range(case.callers):
                    nursery.start_soon(self._call_again_and_again, f"c{conversation}")

    async def _offer(self, nursery: trio.Nursery) -> None:
        number, began = 0, trio.current_time()
        while True:
            number += 1
            await trio.sleep_until(began + number / self._case.load)
            nursery.start_soon(self._noise, f"c{number % self._case.conversations}")

    async def _call_again_and_again(self, conversation: str) -> None:
        while True:
            await self._noise(conversation)
            await trio.sleep(self._case.pause)

    async def _noise(self, conversation: str) -> None:
        who = Identity(tenant="loud", principal="someone", conversation_id=conversation)
        deadline = trio.current_time() + self._case.deadline
        arguments = {"text": "noise"} if self._case.at == "responder" else {"seconds": 0.1}
        try:
            tools = await self.pool.tools(who, "loud", deadline=deadline)
            await tools[self._case.tool].call(arguments, identity=who, deadline=deadline)
        except AfpoolError as error:
            self.noisy[error.code] += 1
        else:
            self.noisy["ok"] += 1

    async def quiet_down(self) -> None:
        """Let the noisy one's clients go, and wait until nothing of it is left."""
        pool = self.pool
        pool.invalidate(server="loud")
        with trio.move_on_after(5):
            while pool.settling or any(each.server == "loud" for each in pool.statistics().actors):  # noqa: ASYNC110
                await trio.sleep(0.02)


def opened(town: Town) -> Any:
    """Open the pool of a town."""
    return afpool.open_pool(town.servers, plan=town.plan, **LIMITS)
