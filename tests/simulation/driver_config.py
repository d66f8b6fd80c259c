"""How the pool of a run is configured, as steps change it.

What is changed means nothing to the servers of the world: a pin of a tool that there is none of, a member
that no definition has, another function that says the same. So everything else that is judged stays as it
was, and what ends does so because of the configuration alone.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs

from afpool import PoolClosed, Server
from tests.simulation.driver_host import key_of
from tests.simulation.driver_mistakes import PLANS, SERVERS, confused, taken
from tests.simulation.driver_steps import Skip
from tests.simulation.ground import Reconfigured, Resumed
from tests.simulation.ground_host import ServerFreed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation import steps as s
    from tests.simulation.driver import Run
    from tests.simulation.driver_host import Host


class Configuration:
    """See the module.

    Args:
        run: The run.

    Attributes:
        base: The servers as the pool was opened with them.
        gone: Those that are not configured now.
        changes: How often another one came into force.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.base: dict[str, Server] = {}
        self.gone: dict[str, None] = {}
        self.changes = 0
        self._pins: Counter[str] = Counter()
        self._members: Counter[str] = Counter()
        self._plan: Any = ...
        self._share: Any = ...
        self._credentials: Any = ...
        self._limits: Any = None

    def do(self, step: s.Reconfigure) -> None:
        """Carry out a step. Raises Skip."""
        name, how = step.server, step.how
        if self.run.closing:
            self._too_late()
        if self.run.closing or (name in self.gone) != (how == "add"):
            raise Skip
        self.run.counts[f"reconfigure:{how}"] += 1
        if how == "wrong":
            self._wrong()
            return
        if how in {"replan", "credentials", "limits"} and self.run.door is not None:
            raise Skip  # the runtime around the pool is told otherwise
        changed = [] if how in {"share", "limits", "nothing", "add", "remove"} else [name]
        if how == "bindings":
            self._pins[name] += 1
        elif how == "clients":
            self._members[name] += 1
        elif how == "remove":
            self.gone[name] = None
        elif how == "add":
            del self.gone[name]
        elif how == "plan":
            world, host = self.run.story.world, self.run.host
            self._plan = functools.partial(host.plan if world.plan_waits else host.plan_at_once)
            changed = self._present(lambda server: server.plan is None)
        elif how == "replan":
            changed = self._present(lambda server: server.name == name and server.plan is None)
        elif how == "credentials":
            self._credentials = Through(self.run.host)
            changed = self._present(lambda server: server.plan is None or server.plan.credential is not None)
        elif how == "limits":
            self._limits = attrs.evolve(self.run.pool.limits, backoff=0.3, list_ttl=200.0 + self.changes)
        elif how == "share" and self.run.story.world.shares:
            self._share = functools.partial(self.run.host.share)
        ended = [name] if how in {"add", "remove"} else changed
        rebind = [name] if how == "named" else []
        replan = [name] if how == "replan" else None
        done = self._put(ended, rebind, resumed=ended if how == "remove" else [], replan=replan)
        told = (list(done.added), list(done.removed), list(done.changed))
        right = ([name] if how == "add" else [], [name] if how == "remove" else [], changed)
        if told != right:
            self.run.failures.append(f"E4 {how} of {name} came to {told}, not {right}")

    def restore(self) -> None:
        """Let every server be configured again."""
        for name in list(self.gone):
            del self.gone[name]
            self._put([name], [])

    def _present(self, whether: Callable[[Server], bool]) -> list[str]:
        """The servers that are configured now and are so."""
        return [name for name, server in self.base.items() if name not in self.gone and whether(server)]

    def _put(
        self,
        ended: list[str],
        rebind: list[str],
        resumed: list[str] | None = None,
        replan: list[str] | None = None,
    ) -> Any:
        run = self.run
        self.changes += 1
        keys = frozenset(key for name in ended for key in self._keys(name))
        run.ground.file(Reconfigured(keys=keys))
        for name in resumed or ():
            run.ground.file(ServerFreed(server=name))
            for key in self._keys(name):
                run.ground.file(Resumed(key=key))
        if run.door is not None and not rebind:
            return run.door.reconfigured(self._servers(), plan=self._plan, share=self._share)
        return run.pool.reconfigure(
            self._servers(),
            plan=self._plan,
            share=self._share,
            credentials=self._credentials,
            limits=self._limits,
            replan=replan,
            rebind=rebind,
        )

    def rebound(self, server: str | None) -> None:
        """The runtime around the pool is configured otherwise; what was bound of a server ends, if any is."""
        self.changes += 1
        self.run.ground.file(Reconfigured(keys=frozenset(() if server is None else self._keys(server))))

    def _too_late(self) -> None:
        """A pool that closes has no other configuration any more."""
        if self.run.pool.closing:
            try:
                self.run.pool.reconfigure([], plan=None)
            except PoolClosed:
                return
            self.run.failures.append("E4 a pool that closes was configured otherwise")

    def _wrong(self) -> None:
        servers = self._servers()
        if not servers:
            raise Skip
        pool, limits = self.run.pool, self.run.pool.limits
        before = run_state(pool)
        plan = functools.partial(self.run.host.plan)
        unplanned = Server(name="unplanned")
        others: list[tuple[list[Any], dict[str, Any]]] = [
            ([*servers, servers[0]], {"plan": plan}),
            ([*servers, "no server"], {"plan": plan}),
            ([*servers, unplanned], {"plan": None}),
            (servers, {"plan": 7}),
            (servers, {"share": "nobody's"}),
            (servers, {"limits": {"max_operations": 3}}),
            (servers, {"limits": attrs.evolve(limits, max_operations=limits.max_operations + 1)}),
            (servers, {"rebind": ["no-such-server"]}),
            (servers, {"replan": ["no-such-server"], "plan": plan}),
        ]
        for named, options in others:
            try:
                pool.reconfigure(named, **{"plan": ..., "share": ..., "credentials": ..., **options})
            except (TypeError, ValueError):
                continue
            self.run.failures.append(f"E4 a configuration that is wrong was taken: {options}")
        wrong = taken((*SERVERS, *PLANS))
        if wrong:
            self.run.failures.append(f"E4 what cannot be was taken: {wrong}")
        if alike := confused():
            self.run.failures.append(f"E4 two plans are one, or one is two: {alike}")
        if run_state(pool) != before:
            self.run.failures.append("E4 a configuration that is wrong has changed something")

    def _servers(self) -> list[Server]:
        return [self._server(server) for name, server in self.base.items() if name not in self.gone]

    def _server(self, server: Server) -> Server:
        pins, members = self._pins[server.name], self._members[server.name]
        if pins:
            server = attrs.evolve(server, pins={**server.pins, f"no-such-tool-{pins}": "0" * 64})
        if members:
            more = (*server.compare_without, f"/no-such-member-{members}")
            server = attrs.evolve(server, compare_without=more)
        return server

    def _keys(self, server: str) -> Iterator[str]:
        world = self.run.story.world
        yield from {key_of(world.server(server), person.identity): None for person in world.people}


class Through:
    """Another provider, which vends what the host does.

    Args:
        host: The host.
    """

    def __init__(self, host: Host) -> None:
        self.get = host.get
        self.drop = host.drop


def run_state(pool: Any) -> tuple[Any, ...]:
    """What of a pool a configuration decides."""
    epochs = tuple(actor.machine.epoch for actor in pool.actors())
    return pool.servers, pool.plan, pool.share, pool.limits, pool.reconfigured, epochs
