"""Twenty tenants at one pool, in simulated time: how long the others wait while one of them is in trouble.

* Each tenant has a server of its own, of four transports and both eras in turn; or all have one.
* Nineteen live the same life in every run: two conversations each that call a tool which takes 100 ms, every
  half second, whether or not the call before has ended; a third conversation that begins in the middle, when
  the trouble is at its height; and a list that is asked for again. Each of these has a latency.
* The network draws no dice, so a latency can only differ where a neighbour made somebody wait.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

import afpool
from afpool import AfpoolError, HttpTransport, Identity, Plan, Server, StdioTransport, WebSocketTransport
from afpool.testing import FakeServer, sleep_tool
from tests.simulation.kernel import Sim, run_world
from tests.simulation.neighbour_troubles import NOISY, TENANT
from tests.simulation.world import Weather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulation.neighbour_troubles import Kind, Trouble

Form: TypeAlias = Literal["own", "one"]

TENANTS: Final = 20
KINDS: Final[tuple[Kind, ...]] = ("http", "http-sse", "http-stateless", "websocket", "stdio")
SERVICE: Final = 0.1
PERIOD: Final = 0.5
LASTS: Final = 2.25
MIDDLE: Final = 1.1
HEAD_START: Final = 0.5
OUTSIDE: Final = ("afpool.testing", "tests.simulation.network", "tests.simulation.children", "trio_websocket")


@attrs.frozen
class Latency:
    """How one request of a healthy tenant ended, and after how long."""

    outcome: str
    seconds: float


class Meter(trio.abc.Instrument):
    """The longest step of the loop that is not a fake server's or the network's, in CPU seconds.

    CPU and not wall time: what another process takes meanwhile is no fault of the step's.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self.longest = 0.0
        self.whose = ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._began
        if took > self.longest and not task.name.startswith(OUTSIDE):
            self.longest = took
            self.whose = task.name


@attrs.frozen
class Outcome:
    """What came of a run.

    Attributes:
        latencies: By tenant, conversation and which request.
        noisy: How the calls of the tenant in trouble ended.
        longest: CPU seconds of the longest step of the loop, and `whose`.
        seconds: CPU seconds of the run.
    """

    latencies: dict[tuple[str, str, str], Latency]
    noisy: Counter[str]
    longest: float
    whose: str
    seconds: float

    def percentile(self, part: float) -> float:
        """Of all latencies."""
        ordered = sorted(each.seconds for each in self.latencies.values())
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def fake(kind: Kind, name: str) -> FakeServer:
    """A server of that kind."""
    tools = [sleep_tool()]
    if kind == "stdio":
        return FakeServer.stdio({}, tools=tools, name=name)
    where: dict[str, Any] = {"tools": tools, "host": name, "port": 80, "memory": True}
    if kind == "websocket":
        return FakeServer.ws(**where)
    return FakeServer.http(
        era="stateless" if kind == "http-stateless" else "handshake",
        answer="sse" if kind == "http-sse" else "json",
        **where,
    )


def plan_to(server: FakeServer, kind: Kind, tenant: str) -> Plan:
    """How a tenant gets there."""
    if kind == "stdio":
        return Plan(transport=StdioTransport.of(server.host, env={TENANT: tenant}))
    if kind == "websocket":
        return Plan(transport=WebSocketTransport(url=server.url, headers={TENANT: tenant}))
    return Plan(transport=HttpTransport(url=server.url, headers={TENANT: tenant}))


def live(form: Form, kind: Kind, trouble: Trouble | None, **limits: Any) -> Outcome:
    """Run one world.

    Args:
        form: Each tenant has its `own` server, or all have `one`.
        kind: What that one is, or the server of the tenant in trouble.
        trouble: What befalls it; without one that tenant does not call.
        limits: Of the pool, where they are not the defaults.
    """
    life = _Life(form, kind, trouble, limits)
    meter = Meter()
    began = time.process_time()
    run_world(life.run, "neighbours", real_seconds=120.0, instruments=[meter])
    spent = time.process_time() - began
    return Outcome(life.latencies, life.noisy, meter.longest, meter.whose, spent)


class _Life:
    def __init__(self, form: Form, kind: Kind, trouble: Trouble | None, limits: dict[str, Any]) -> None:
        self.form = form
        self.trouble = trouble
        self.limits = limits
        self.latencies: dict[tuple[str, str, str], Latency] = {}
        self.noisy: Counter[str] = Counter()
        self.tenants = [f"t{number:02}" for number in range(TENANTS)]
        self.kinds: dict[str, Kind] = {"shared": kind}
        if form == "own":
            self.kinds = {f"of-{each}": KINDS[at % len(KINDS)] for at, each in enumerate(self.tenants)}
            self.kinds[f"of-{NOISY}"] = kind
        self.servers = {name: fake(each, f"{name}.sim") for name, each in self.kinds.items()}
        self.pool: Any = None
        self.began = 0.0

    def server_of(self, tenant: str) -> str:
        return f"of-{tenant}" if self.form == "own" else "shared"

    def plan(self, server: str, identity: Identity) -> Plan:
        return plan_to(self.servers[server], self.kinds[server], identity.tenant or "")

    async def run(self, sim: Sim) -> None:
        network = sim.network
        network.weather = Weather(connect=0.0)
        network.keeps_bytes = False
        for name, server in self.servers.items():
            await sim.nursery.start(server.run)
            if self.kinds[name] == "stdio":
                network.children.program(server.host, server)
            else:
                network.listen(server.host, server.serve_stream)
        seams = attrs.evolve(sim.seams, in_thread=_in_half_a_millisecond)
        servers = [Server(name=name) for name in self.servers]
        async with (
            afpool.open_pool(servers, plan=self.plan, seams=seams, **self.limits) as pool,
            trio.open_nursery() as nursery,
        ):
            self.pool = pool
            # what all share of an endpoint (its era, its address) is known in every run
            await pool.tools(Identity(tenant=NOISY, principal="before"), self.server_of(NOISY))
            if self.trouble is not None:
                self.trouble.begin(sim, self.servers[self.server_of(NOISY)], self.form == "one")
                self._make_noise(nursery, self.trouble)
            self.began = trio.current_time() + HEAD_START
            async with trio.open_nursery() as healthy:
                for at, tenant in enumerate(self.tenants[1:]):
                    for conversation, start in (("a", 0.0), ("b", 0.003), ("late", MIDDLE)):
                        healthy.start_soon(self._talk, tenant, conversation, start + 0.01 * at)
            nursery.cancel_scope.cancel()

    # ------------------------------------------------------------------ the healthy ones

    async def _timed(self, who: tuple[str, str], what: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        began = trio.current_time()
        result, outcome = None, "ok"
        try:
            result = await ask()
        except AfpoolError as error:
            outcome = error.code
        # a mock clock adds up its jumps: what is left of that is below a nanosecond
        self.latencies[(*who, what)] = Latency(outcome, round(trio.current_time() - began, 9))
        return result

    async def _talk(self, tenant: str, conversation: str, start: float) -> None:
        who = (tenant, conversation)
        identity = Identity(tenant=tenant, principal="someone", conversation_id=conversation)
        server = self.server_of(tenant)
        await trio.sleep_until(self.began + start)
        tools = await self._timed(who, "list", partial(self.pool.tools, identity, server))
        if tools is None:
            return
        call = partial(tools["sleep"].call, {"seconds": SERVICE}, identity=identity)
        async with trio.open_nursery() as calls:
            number, at = 0, self.began + start + PERIOD
            while at < self.began + LASTS:
                await trio.sleep_until(at)
                calls.start_soon(self._timed, who, f"call {number}", call)
                if "max_operations" in self.limits:  # a second one, which waits for the first
                    await trio.sleep(0.01)
                    calls.start_soon(self._timed, who, f"call {number} too", call)
                number, at = number + 1, at + PERIOD
        if conversation == "a":
            await self._timed(who, "list again", partial(self.pool.refresh, identity, server))

    # ------------------------------------------------------------------ the one in trouble

    def _make_noise(self, nursery: trio.Nursery, trouble: Trouble) -> None:
        for conversation in range(trouble.conversations):
            identity = Identity(tenant=NOISY, principal="someone", conversation_id=f"c{conversation}")
            for _ in range(trouble.callers):
                nursery.start_soon(self._noise, identity, trouble)

    async def _noise(self, identity: Identity, trouble: Trouble) -> None:
        for _ in range(trouble.calls):
            try:
                tools = await self.pool.tools(identity, self.server_of(NOISY))
                await tools[trouble.tool].call({"seconds": SERVICE}, identity=identity)
            except AfpoolError as error:
                self.noisy[error.code] += 1
            else:
                self.noisy["ok"] += 1
            await trio.sleep(0.05)


async def _in_half_a_millisecond(function: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
    async with limiter:
        await trio.sleep(0.0005)
        return function()
