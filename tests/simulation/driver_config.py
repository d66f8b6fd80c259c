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

from tests.simulation.driver_host import key_of
from tests.simulation.driver_steps import Skip
from tests.simulation.ground import Reconfigured, Resumed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from afpool import Server
    from tests.simulation import steps as s
    from tests.simulation.driver import Run


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

    def do(self, step: s.Reconfigure) -> None:
        """Carry out a step. Raises Skip."""
        name, how = step.server, step.how
        if self.run.closing or (name in self.gone) != (how == "add"):
            raise Skip
        self.run.counts[f"reconfigure:{how}"] += 1
        if how == "wrong":
            self._wrong()
            return
        changed = [] if how in {"share", "nothing", "add", "remove"} else [name]
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
            changed = [each for each, server in self.base.items() if server.plan is None]
            changed = [each for each in changed if each not in self.gone]
        elif how == "share" and self.run.story.world.shares:
            self._share = functools.partial(self.run.host.share)
        ended = [name] if how in {"add", "remove"} else changed
        rebind = [name] if how == "named" else []
        done = self._put(ended, rebind, resumed=ended if how == "remove" else [])
        told = (list(done.added), list(done.removed), list(done.changed))
        right = ([name] if how == "add" else [], [name] if how == "remove" else [], changed)
        if told != right:
            self.run.failures.append(f"E4 {how} of {name} came to {told}, not {right}")

    def restore(self) -> None:
        """Let every server be configured again."""
        for name in list(self.gone):
            del self.gone[name]
            self._put([name], [])

    def _put(self, ended: list[str], rebind: list[str], resumed: list[str] | None = None) -> Any:
        run = self.run
        self.changes += 1
        keys = frozenset(key for name in ended for key in self._keys(name))
        run.ground.file(Reconfigured(keys=keys))
        for name in resumed or ():
            for key in self._keys(name):
                run.ground.file(Resumed(key=key))
        return run.pool.reconfigure(self._servers(), plan=self._plan, share=self._share, rebind=rebind)

    def _wrong(self) -> None:
        servers = self._servers()
        if not servers:
            raise Skip
        before = run_state(self.run.pool)
        try:
            self.run.pool.reconfigure([*servers, servers[0]], plan=functools.partial(self.run.host.plan))
        except ValueError:
            if run_state(self.run.pool) == before:
                return
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


def run_state(pool: Any) -> tuple[Any, ...]:
    """What of a pool a configuration decides."""
    epochs = tuple(actor.machine.epoch for actor in pool.actors())
    return pool.servers, pool.plan, pool.share, pool.limits, pool.reconfigured, epochs
