"""How a run ends: quiet, recovery, everything dropped, the pool closed; and what is looked at on the way.

1. Quiet: whatever was asked has ended, and what may settle has settled: no place is held, nobody waits (I4).
2. Recovery (R1): every fault is mended, what the app says is in order again. After the times that a pool may
   be cautious for, each key has to be as good as that of a pool that was opened this moment: where a fresh
   pool can list and call, this one can. (What neither can do is the world's fault, such as a version that is
   not spoken.)
3. Dropped: nothing is held any more and idle time passes: no key is left (I11).
4. Closed: no task, no open end, no child is left (I9).

Of the servers it is asked what they have against their clients (V1).
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Final

import trio

import afpool
from tests.simulation import steps as s
from tests.simulation.driver_watch import count_tasks
from tests.simulation.ground import Rest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.driver import Run

SETTLED: Final = 10.0
"""Seconds more than every time-out, after which everything should have settled."""

ENOUGH: Final = 60.0
"""Seconds that each attempt to recover may take."""

LASTING: Final = frozenset({"actor-crashed", "server-error", "server-refused"})
PATIENCE: Final = (0.0, 45.0, 140.0)
"""Seconds between the tries of a key to recover: a back-off, what a kernel takes to give up a connection."""

PLAIN: Final = ("echo", "sleep", "fail", "big")
"""Kinds of tools that answer without asking anything."""


class End:
    """The end of a run.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.reprs: list[str] = []
        self._probes = 0

    async def come(self) -> None:
        """Go through all of it. Where a step has closed the pool, what is about an open one is left out."""
        run, limits = self.run, self.run.limits
        self._look()
        await self._until_idle()
        self._look()
        if run.subscriptions and not run.closing:
            # one that is being made again is a call of the pool's own, with a deadline as others have
            self._unsubscribe()
            await trio.sleep(limits.deadline)
        if run.door is not None and not run.closing:
            await run.door.landed()
        settled = limits.settle_timeout + limits.cancel_grace + limits.close_timeout + limits.ping_timeout
        await trio.sleep(settled + SETTLED)
        if not run.closing:
            run.ground.file(Rest(when="quiet", what=self._held()))
            await self._recover()
            await self._drop()
            run.close_pool("aclose")
        with trio.move_on_after(limits.close_timeout + SETTLED):
            await run.left.wait()
        run.ground.file(Rest(when="closed", what=self._remains()))
        await run.whys.come()
        for place in run.all_places():
            # what comes before `initialized` is a probe, or behind one that a fault has eaten
            said = [each for each in place.fake.violations if not each.endswith("notifications/initialized")]
            run.failures += [f"V1 {place.name} says: {each}" for each in said]
        if not run.crashes.happened:
            run.failures += [f"E3 {text}" for text in run.logs.failures]

    def _unsubscribe(self) -> None:
        # not in a coroutine, which would hold the last one
        for subscription in list(self.run.subscriptions):
            subscription.close()

    async def _until_idle(self) -> None:
        """Wait until all work has ended; what has not by then never will."""
        run, limits = self.run, self.run.limits
        longest = limits.deadline + limits.open_timeout + limits.settle_timeout + limits.close_timeout
        with trio.move_on_after(4 * longest + 100):
            while run.tasks > len(run.subscriptions):
                await run.next_end()
        for what, left in run.tasks_of.items():
            if left and what not in {"Subscribe", "Call", "AskServer"}:
                run.failures.append(f"I7 {what} never ended ({left})")

    async def _drop(self) -> None:
        run, limits = self.run, self.run.limits
        run.work.hands.drop(None)
        if run.door is not None:
            run.door.drop()
        crashed = run.crashes.happened
        await trio.sleep(limits.idle_timeout + limits.open_timeout + limits.close_timeout + 2 * SETTLED)
        if run.crashes.happened > crashed:
            # One that crashes for good as it is evicted refuses for another idle time.
            await trio.sleep(limits.idle_timeout + SETTLED)
        run.work.hands.drop(None)
        if run.door is not None:
            run.door.drop()
        gc.collect()
        run.ground.file(Rest(when="dropped", what=self._alive()))

    # ------------------------------------------------------------------ recovery

    async def _recover(self) -> None:
        run = self.run
        run.host.heal()
        if run.door is not None:
            run.door.heal()
        run.crashes.disarm()
        run.configuration.restore()
        for place in run.all_places():
            place.heal()
        for actor in run.pool.actors():
            if actor.machine.paused:
                run.host_steps.resume_key(actor.key)
        await trio.sleep_until(run.stalled_until)  # a stall that is scripted takes its time
        waiting = dict(self._keys())
        last: dict[str, str] = {}
        for patience in (*PATIENCE, run.limits.idle_timeout + PATIENCE[-1]):
            await trio.sleep(patience)
            for key, (who, server) in list(waiting.items()):
                last[key] = await self._try(who, server)
                if last[key] == "ok":
                    del waiting[key]
            # What ends with its idle time only: a key that crashed for good; a session whose server has
            # refused to hear that it is initialized; a client that was redirected to where nobody answers.
            if not waiting or (patience == PATIENCE[-1] and not LASTING & set(last.values())):
                break
        for key, (who, server) in waiting.items():
            if await self._try_fresh(who, server) == "ok":
                run.failures.append(f"R1 {key} does not come back: {last[key]}")

    def _keys(self) -> Iterator[tuple[str, tuple[str, str]]]:
        world = self.run.story.world
        seen = set()
        for server in world.servers:
            for person in world.people:
                key = self.run.key(person.name, server.name)
                if key not in seen and (not server.keyed_on or not key.endswith("|-/-/-")):
                    seen.add(key)
                    yield key, (person.name, server.name)

    async def _try(self, who: str, server: str) -> str:
        """List anew and call a plain tool, as work like any other; `ok`, or how it ended."""
        run = self.run
        tool = self._plain(server)
        if tool is None:
            return "ok"
        self._probes += 1
        call = f"r{self._probes}"
        handles = run.work.hands.handles
        before = len(handles.get((who, server), ()))
        # whether it comes back is asked, and not how fast in this world's weather
        await run.work.do(s.ListTools(at=0.0, who=who, server=server, refresh=True, deadline=ENOUGH))
        if len(handles.get((who, server), ())) == before:
            return run.work.last_refusal
        await run.work.do(s.Call(at=0.0, id=call, who=who, server=server, tool=tool, deadline=ENOUGH))
        ended = run.work.open.get(call)
        if ended is None:
            return "not listed"
        return "ok" if ended.code in {"ok", "tool-error"} else ended.code

    def _plain(self, server: str) -> str | None:
        tools = self.run.story.world.server(server).tools
        return next((tool.name for kind in PLAIN for tool in tools if tool.kind == kind), None)

    async def _try_fresh(self, who: str, server: str) -> str:
        """The same on a pool that is opened for it, of which nothing is filed."""
        run = self.run
        tool = self._plain(server)
        run.ground.muted = True
        try:
            servers, options = run.pool_options()
            options |= {"on_use": None, "on_log": None, "on_change": None, "on_tools": None}
            async with afpool.open_pool(servers, **options) as pool:
                try:
                    begun = trio.current_time()
                    tools = await pool.tools(run.identity(who), server)
                    if trio.current_time() - begun > run.limits.open_timeout:
                        return "slow"  # each of its steps is that near to its time that luck decides
                    await tools[tool or ""].call({"mark": "fresh"}, identity=run.identity(who))
                except (afpool.AfpoolError, KeyError) as error:
                    return repr(error)
        finally:
            run.ground.muted = False
        return "ok"

    # ------------------------------------------------------------------ what is looked at

    def _look(self) -> None:
        """Keep what an operator might look at: every object that a pool shows."""
        run = self.run
        pool = run.pool
        seen = [pool, pool.statistics(), pool.limits, pool.records, *pool.servers.values()]
        for actor in pool.actors():
            seen += [actor, actor.machine, actor.machine.snapshot()]
        for client in pool.openings.clients.values():
            seen += [client, client.plan, client.plan.transport, client.channel, client.requirement]
        for handles in run.work.hands.handles.values():
            for handle in handles:
                for tool in handle.tools.values():
                    seen += [tool, tool.binding, tool.binding.list, tool.binding.definition]
        self.reprs += [repr(each) for each in seen]

    def secrets_shown(self) -> Iterator[str]:
        """I6: where a secret stands that may stand nowhere."""
        run = self.run
        texts = [*run.shown, *run.logs.texts, *self.reprs]
        if run.pool is not None:
            texts += [repr(event) for event in run.pool.records.events]
        if run.door is not None:
            yield from run.door.hidden_shown([*run.logs.texts, *self.reprs])
        for canary in run.host.canaries:
            for text in texts:
                if canary in text:
                    at = text.index(canary)
                    yield f"I6 {canary!r} is shown: …{text[max(0, at - 200) : at + 200]}…"

    def _held(self) -> dict[str, Any]:
        pool = self.run.pool
        numbers = pool.statistics()
        machines = [actor.machine for actor in pool.actors()]
        return {
            "places": sum(machine.in_flight for machine in machines),
            "waiters": sum(len(machine.waiting or ()) for machine in machines),
            "running": len(pool.running),
            "in flight": numbers.in_flight,
            "waiting": numbers.waiting,
            "waiting for the runtime": numbers.waiting_runtime,
            "settling": numbers.settling,
            "clients of servers that went": sum(
                client.server not in pool.servers for client in pool.openings.clients.values()
            ),
            **({} if self.run.door is None else self.run.door.rest()),
        }

    def _alive(self) -> dict[str, Any]:
        numbers = self.run.pool.statistics()
        return {
            "keys": numbers.keys,
            "clients": numbers.clients,
            "shared lists": numbers.shared_lists,
            **self._outside(),
        }

    def _remains(self) -> dict[str, Any]:
        return {
            "not closed": int(not self.run.left.is_set()),
            "tasks": ", ".join(count_tasks()),
            "running": len(self.run.pool.running),
            **({} if self.run.door is None else self.run.door.rest()),
            **self._outside(),
        }

    def _outside(self) -> dict[str, Any]:
        return {
            "open ends": ", ".join(map(str, self.run.sim.network.open_client_ends())),
            "children": sum(place.children_left for place in self.run.all_places()),
        }
