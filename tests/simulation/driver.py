"""Runs a story: builds its world on the simulated kernel, carries out its steps, and has the oracle judge
the run.

The order of a run:

1. servers, host and pool; the clock of the story begins when the pool is open;
2. the steps, each at its time, work in tasks of its own;
3. the end (`driver_end.py`);
4. the facts are judged (`oracle.py`).
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import trio

import afpool
from afpool import Identity, Server
from afpool.pool import Limits
from tests.simulation import steps as s
from tests.simulation.driver_app import Ears
from tests.simulation.driver_config import Configuration
from tests.simulation.driver_door import Door
from tests.simulation.driver_end import End
from tests.simulation.driver_host import SECRET, Host, key_of
from tests.simulation.driver_places import Place
from tests.simulation.driver_service import SERVICE, ServiceRun
from tests.simulation.driver_steps import FaultSteps, HostSteps, Skip
from tests.simulation.driver_watch import Crashes, Logs, SeenWires, texts_of
from tests.simulation.driver_why import Whys
from tests.simulation.driver_work import CALL, Work
from tests.simulation.ground import Closed, Closing, Fact, Filed, Ground, line
from tests.simulation.kernel import Sim, run_world
from tests.simulation.oracle import judge, shown_around
from tests.simulation.oracle_law import Law, ServerLaw
from tests.simulation.oracle_wire import CALL_ID, Wires

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tests.simulation.pipe import Link
    from tests.simulation.world import ServerSpec


@attrs.frozen
class Report:
    """What came of a story.

    Attributes:
        violations: One line each, with the facts around it.
        counts: Calls, outcomes, verdicts, steps, faults.
        digest: Of the trace: two runs with the same digest are the same.
        facts: All of them, in order.
    """

    violations: list[str]
    counts: Counter[str]
    digest: str
    facts: Sequence[Fact]

    @property
    def lines(self) -> list[str]:
        """The facts, one line each."""
        return [line(fact) for fact in self.facts]


def run_story(story: s.Story, *, real_seconds: float = 20.0) -> Report:
    """Run a story and judge it."""
    run = Run(story)
    counts = run.counts
    facts: list[Fact] = []
    trace = b""
    try:
        with run.crashes, run.logs:
            trace = run_world(run.main, story.seed, real_seconds=real_seconds)
    except Exception as error:
        for leaf in leaves(error):
            run.failed("the run ended early", leaf)
    violations = list(run.failures)
    if run.ground is not None:
        facts = run.ground.facts
        violations += [f"{each}{shown_around(facts, each.seq)}" for each in judge(facts, run.law())]
        violations += run.end.secrets_shown()
    return Report(violations, counts, hashlib.sha256(trace).hexdigest(), facts)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """What was raised, out of all groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


class Run:
    """One run of a story."""

    def __init__(self, story: s.Story) -> None:
        self.story = story
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.shown: list[str] = []
        self.subscriptions: dict[Any, None] = {}
        self.crashes = Crashes(self)
        self.logs = Logs()
        self.limits = Limits(**story.world.limits)
        self.sim: Any = None
        self.ground: Any = None
        self.pool: Any = None
        self.places: dict[str, list[Place]] = {}
        self.tasks = 0
        self.tasks_of: dict[str, int] = {}
        self.closing = False
        self.stalled_until = 0.0
        self.left = trio.Event()
        self.ears = Ears(self)
        self.end = End(self)
        self.whys = Whys(self)
        self.configuration = Configuration(self)
        self._task_ended = trio.Event()
        self._block = trio.CancelScope()

    # ------------------------------------------------------------------ the run

    async def main(self, sim: Sim) -> None:
        """Everything that happens on the simulated kernel."""
        self.sim = sim
        sim.network.weather = self.story.world.weather
        self.ground = Ground(sim.clock.current_time, sim.trace.append)
        self.wires = Wires(self.ground, lambda: CALL.get(None))
        SeenWires(sim, self.wires, self.place_of)
        for spec in self.story.world.servers:
            self.places[spec.name] = [Place(sim, self.ground, spec, number) for number in range(spec.places)]
        for place in self.all_places():
            await place.start()
        world = self.story.world
        self.host = Host(sim, self.ground, world, self.places)
        self.work = Work(self)
        self.door = None if world.door is None else Door(self)
        self.service = None if world.service is None else ServiceRun(self, world.service)
        self.host_steps, self.fault_steps = HostSteps(self), FaultSteps(self)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._hold_pool)
            if self.service is not None:
                await nursery.start(self.service.open)
            await self._steps(nursery)
            if self.service is not None:
                await self.service.come()
            await self.end.come()
            nursery.cancel_scope.cancel()

    def all_places(self) -> Iterator[Place]:
        """Every place of every server."""
        for places in self.places.values():
            yield from places

    def pool_options(self) -> tuple[list[Server], dict[str, Any]]:
        """What `open_pool` is given."""
        world, host = self.story.world, self.host
        return [self._server(spec) for spec in world.servers], {
            "plan": host.plan if world.plan_waits else host.plan_at_once,
            "share": host.share if world.shares else None,
            "credentials": host,
            "signer": host.signer(),
            "secret": SECRET,
            "on_use": self._filed,
            "on_authorization": host.on_authorization,
            "on_in_doubt": self._in_doubt,
            **self.ears.options(),
            "seams": self.sim.seams,
            **world.limits,
        }

    async def _hold_pool(self, *, task_status: Any) -> None:
        servers, options = self.pool_options()
        self.configuration.base = {server.name: server for server in servers}
        with self._block:
            opened = (
                afpool.open_pool(servers, **options)
                if self.door is None
                else self.door.open(servers, options)
            )
            async with opened as pool:
                self.pool = pool
                self.ears.opened(pool)
                task_status.started()
                try:
                    await pool.closed.wait()
                except trio.Cancelled:
                    self.ground.file(Closing())
                    raise
        self.ground.file(Closed())
        self.left.set()

    def _server(self, spec: ServerSpec) -> Server:
        pins: dict[str, str] = {}
        if spec.pinned:
            pins = self.places[spec.name][0].pins(spec.pinned, spec.compare_without)
        return Server(
            name=spec.name,
            plan=self.host.fixed_plan(spec) if spec.fixed_plan else None,
            keyed_on=spec.keyed_on,
            on_list_change=spec.on_list_change,
            pins=pins,
            compare_without=spec.compare_without,
            call_id_key=CALL_ID,
            repeat=spec.repeat,
            max_repeats=spec.max_repeats,
            validate_output=spec.validate_output,
        )

    def _filed(self, use: Any) -> None:
        self.ground.file(Filed(call=use.call_id, outcome=use.outcome, code=use.code, delivery=use.delivery))
        self.shown += texts_of(use)

    def _in_doubt(self, use: Any) -> Any:
        return "repeat" if self.story.world.server(use.server).host_repeats else "raise"

    async def _steps(self, nursery: trio.Nursery) -> None:
        began = trio.current_time()
        self._nursery = nursery
        for step in self.story.steps:
            if began + step.at > trio.current_time():
                await trio.sleep_until(began + step.at)
            self._do(step)

    def _do(self, step: s.Step) -> None:
        name = type(step).__name__
        self.sim.note(f"STEP {s.describe(step)}")
        self.counts[f"step:{name}"] += 1
        if isinstance(step, SERVICE):
            if self.service is not None:
                self.service.pending += 1
            self.start(name, self.at_service, step)
            return
        if isinstance(step, s.Work):
            self.start(name, self.work.do, step)
            return
        stages = self._stages(getattr(step, "server", None))
        try:
            (self.fault_steps if isinstance(step, s.Fault) else self.host_steps).do(step)
        except Skip:
            self.counts["skipped"] += 1
            self.counts[f"skipped:{name}"] += 1
            return
        except (LookupError, afpool.AfpoolError) as error:
            self.failed(f"step {name} failed", error)
        if isinstance(step, s.Fault):
            self.counts[f"fault:{name}"] += 1
        self.counts.update(f"met:{stage} {name}" for stage in stages)

    def _stages(self, server: str | None) -> set[str]:
        """What running calls of a server wait for now, or calls of all."""
        uses = [call.use for call in self.pool.running.values()]
        return {use.waits_for for use in uses if use.waits_for and server in {None, use.server}}

    def start(self, what: str, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run something in a task of the run; it is waited for before all counts as quiet."""
        self.tasks += 1
        self._nursery.start_soon(self._task, what, fn, args)

    async def _task(self, what: str, fn: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        self.tasks_of[what] = self.tasks_of.get(what, 0) + 1
        try:
            await fn(*args)
        except Skip:
            self.counts[f"skipped:{what}"] += 1
        except Exception as error:
            self.failed(f"{what} failed", error)
        finally:
            self.tasks_of[what] -= 1
            self.tasks -= 1
            self._task_ended.set()

    async def at_door(self, step: s.Step) -> None:
        """Do work that is the door's. Raises Skip where there is none."""
        if self.door is None:
            raise Skip
        await self.door.do(step)

    async def at_service(self, step: s.Step) -> None:
        """Do what clients of the service do, and who runs it. Raises Skip where there is none."""
        if self.service is None:
            raise Skip
        try:
            await self.service.do(step)
        finally:
            self.service.pending -= 1

    async def next_end(self) -> None:
        """Wait until one of the run's tasks has ended."""
        self._task_ended = trio.Event()
        await self._task_ended.wait()

    def close_pool(self, how: str) -> None:
        """Leave the pool."""
        if self.closing:
            raise Skip
        self.closing = True
        if how == "cancelled":
            self._block.cancel()
        else:
            self.start("close", self._aclose)

    async def _aclose(self) -> None:
        self.ground.file(Closing())
        report = await self.pool.aclose()
        self.sim.note(repr(report))

    def failed(self, what: str, error: BaseException) -> None:
        """Something was raised that nobody may raise."""
        text = "".join(traceback.format_exception(error))
        self.shown.append(text)
        self.failures.append(f"E1 {what}: {type(error).__name__}: {error}\n{text[-3000:]}")

    # ------------------------------------------------------------------ names

    def identity(self, who: str) -> Identity:
        """The identity of a person."""
        return self.story.world.person(who).identity

    def key(self, who: str, server: str) -> str:
        """Their key at a server."""
        return key_of(self.story.world.server(server), self.identity(who))

    def pool_key(self, who: str, server: str) -> Any:
        """The same as the pool writes it. Raises Skip where there is none, or no such server now."""
        try:
            return self.pool.key_of(self.identity(who), server)
        except (afpool.IdentityMissing, LookupError):
            raise Skip from None

    def pool_key_or_none(self, who: str, server: str) -> Any:
        """The same, None where there is none."""
        try:
            return self.pool_key(who, server)
        except Skip:
            return None

    def actor(self, who: str, server: str) -> Any:
        """The key's actor, if there is one now."""
        return self.pool._actors.get(self.pool_key(who, server))

    def covered(self, identity: Identity | None, server: str | None) -> Iterator[str]:
        """The keys that `invalidate` of these would name, read from its contract."""
        for spec in self.story.world.servers:
            if server is not None and spec.name != server:
                continue
            for key in {key_of(spec, person.identity): None for person in self.story.world.people}:
                if identity is None or _names(identity, key.partition("|")[2].split("/")):
                    yield key

    def tickets(self, inside: str | None) -> tuple[int, ...]:
        """The chain of a call that is made from inside of another one."""
        return tuple(ticket for ticket, call in self.pool.running.items() if call.use.call_id == inside)

    def limit(self, name: str) -> float:
        """A limit of the pool."""
        value: float = getattr(self.limits, name)
        return value

    def place_of(self, host: str) -> Place | None:
        """The place of a host's name."""
        for place in self.all_places():
            if place.door.name == host:
                return place
        return None

    def links_to(self, place: Place) -> list[Link]:
        """The open links to a place that have carried something."""
        return [link for link in self.sim.network.links_to(place.door.name) if link.number in self.wires.taps]

    def updated(self, step: s.Subscribe, update: Any) -> None:
        """An update of a resource has come."""
        self.counts["updates"] += 1
        self.sim.note(f"{step.id} {update!r}")

    # ------------------------------------------------------------------ the law

    def law(self) -> Law:
        """What the run is held to."""
        limits = self.limits
        servers = {
            spec.name: ServerLaw(
                shared_stream=spec.shared_stream,
                posted=spec.kind == "sse",
                era=spec.era,
                refuses=spec.on_list_change == "refuse",
                without=spec.compare_without,
                weak=spec.way.over == "httpx",
                unseen=spec.kind == "http" and spec.way.version == "2026-07-28",
                named_by_plan=spec.kind == "memory",
            )
            for spec in self.story.world.servers
        }
        return Law(
            servers=servers,
            max_operations=limits.max_operations,
            settle_timeout=limits.settle_timeout,
            cancel_grace=limits.cancel_grace,
            ping_timeout=limits.ping_timeout,
            close_timeout=limits.close_timeout,
            max_connecting=limits.max_connecting,
            keepalive_expiry=limits.keepalive_expiry,
            door=self.story.world.door,
            tools={spec.name: {tool.name: tool for tool in spec.tools} for spec in self.story.world.servers},
            idle_timeout=limits.idle_timeout,
            max_age=limits.max_age,
            longest=limits.deadline,
            records=limits.records,
            shown=self.whys.shown(),
            people=self.whys.people(),
        )


def _names(identity: Identity, fields: list[str]) -> bool:
    named = [
        (value, there)
        for value, there in zip(
            (identity.tenant, identity.principal, identity.conversation_id), fields, strict=True
        )
        if value is not None
    ]
    return bool(named) and all(value == there for value, there in named)
