"""What the app, its operators, the servers and the network do in a story.

Each step is carried out in the step of its time, as far as that needs no wait; what it changes is filed as a
fact before anything else can run. A step that means nothing (any more) is counted as skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from afpool import Identity
from tests.simulation import steps as s
from tests.simulation.driver_look import look
from tests.simulation.faulty_rules import question
from tests.simulation.ground import Killed, Paused, Resumed, Revoked, Withdrawn
from tests.simulation.ground_host import ServerFreed, ServerHeld
from tests.simulation.ground_why import Evicted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.driver import Run
    from tests.simulation.driver_places import Place
    from tests.simulation.pipe import Link

ASKED_FOR: Final = 30.0
"""Seconds after which a server stops waiting for what it asked of a client."""


class Skip(Exception):
    """The step means nothing (any more)."""


def stranger(number: int) -> Identity:
    """One of those who only take room."""
    return Identity(tenant=f"s-{number}", principal=f"stranger-{number}", conversation_id="c0")


class HostSteps:
    """What the app and its operators do."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def do(self, step: s.Step) -> None:
        """Carry out one step. Raises Skip."""
        run, host = self.run, self.run.host
        pool = run.pool
        match step:
            case s.CancelCall():
                found = pool.cancel(step.call)
                run.ground.file(Withdrawn(call=step.call, found=found))
                if not found:
                    raise Skip
            case s.RotateCredential():
                self._rotate(step)
            case s.ChangePlan():
                self._plan(step)
            case s.ChangeShare():
                key = run.key(step.who, step.server)
                host.change_share(key, step.how, step.name)
            case s.WithdrawCaller():
                host.caller(step.who).state = step.how
                host.said(step.who)
            case s.Invalidate():
                self._invalidate(step)
            case s.Reconfigure():
                run.configuration.do(step)
            case s.PauseKey():
                key = self._known(step.who, step.server)
                run.ground.file(Paused(key=run.key(step.who, step.server)))
                pool.pause(key)
            case s.ResumeKey():
                self.resume(step.who, step.server)
            case s.HoldServer():
                if step.server in run.configuration.gone:
                    raise Skip
                run.ground.file(ServerHeld(server=step.server))
                pool.pause_server(step.server)
                run.start("hold", self._free, step)
            case s.Look():
                look(run, step.call)
            case s.KillKey():
                self._kill(step)
            case s.EvictKey():
                known = self._known(step.who, step.server)
                run.ground.file(Evicted(key=run.key(step.who, step.server)))
                pool.evict(known)
            case s.EvictPressure():
                self._strangers(step)
            case s.CrashActor():
                run.crashes.arm(run.pool_key(step.who, step.server), step, run.key(step.who, step.server))
            case s.DropTools():
                run.work.hands.drop(step.who)
                if run.door is not None:
                    run.door.drop()
            case s.ClosePool():
                run.close_pool(step.how)
            case _:
                if run.door is None:
                    raise Skip
                run.door.change(step)

    def resume(self, who: str, server: str) -> None:
        """Admission of a key goes on."""
        key = self._known(who, server)
        self.run.ground.file(Resumed(key=self.run.key(who, server)))
        self.run.pool.resume(key)

    async def _free(self, step: s.HoldServer) -> None:
        await trio.sleep(step.seconds)
        self.free(step.server)

    def free(self, server: str) -> None:
        """Admission of a whole server goes on."""
        run = self.run
        if server in run.pool.servers:
            run.ground.file(ServerFreed(server=server))
            run.pool.resume_server(server)

    def resume_key(self, pool_key: Any) -> None:
        """The same of a key as the pool writes it."""
        run = self.run
        for spec in run.story.world.servers:
            for person in run.story.world.people:
                known = run.key(person.name, spec.name)
                if run.pool_key_or_none(person.name, spec.name) == pool_key:
                    run.ground.file(Resumed(key=known))
        run.pool.resume(pool_key)

    def _known(self, who: str, server: str) -> Any:
        key = self.run.pool_key(who, server)
        if self.run.actor(who, server) is None:
            raise Skip
        return key

    def _rotate(self, step: s.RotateCredential) -> None:
        run, host = self.run, self.run.host
        server = run.story.world.server(step.server)
        if server.way.credential == "none":
            raise Skip
        if step.who is None:
            for (name, _), token in list(host.tokens.items()):
                if name == server.name:
                    host.rotate(server, token, step.how)
            return
        identity = run.identity(step.who)
        host.rotate(server, host.token(server, host.owner(server, identity)), step.how)

    def _plan(self, step: s.ChangePlan) -> None:
        run = self.run
        server = run.story.world.server(step.server)
        truth = run.host.plans[run.key(step.who, step.server)]
        truth.mood = "good"
        if step.how == "place":
            truth.place = step.place % server.places
        elif step.how == "context":
            truth.variant += 1
        elif step.how == "good":
            truth.place, truth.variant = server.leads.get(step.who, 0), 0
        else:
            truth.mood = step.how
        if step.invalidate:
            self._revoke(identity=run.identity(step.who), server=step.server)

    def _invalidate(self, step: s.Invalidate) -> None:
        run = self.run
        if step.exact:
            if step.who is None or step.server is None:
                raise Skip
            key = run.pool_key(step.who, step.server)
            run.ground.file(Revoked(keys=frozenset({run.key(step.who, step.server)})))
            run.pool.invalidate(key=key)
            return
        identity = None if step.who is None else run.identity(step.who)
        if identity is not None and step.wide:
            identity = Identity(tenant=identity.tenant, principal=identity.principal)
        if identity is None and step.server is None:
            raise Skip
        self._revoke(identity=identity, server=step.server)

    def _revoke(self, *, identity: Identity | None, server: str | None) -> None:
        run = self.run
        keys = frozenset(run.covered(identity, server))
        run.ground.file(Revoked(keys=keys))
        run.pool.invalidate(identity=identity, server=server)

    def _kill(self, step: s.KillKey) -> None:
        run = self.run
        actor = run.actor(step.who, step.server)
        client = None if actor is None else actor.machine.client
        if client is None:
            raise Skip
        run.ground.file(Killed(key=run.key(step.who, step.server), client=client.id))
        run.pool.kill(client.id)

    def _strangers(self, step: s.EvictPressure) -> None:
        run = self.run
        for number in range(step.strangers):
            run.start("strangers", self._stranger, stranger(number), step.server)

    async def _stranger(self, identity: Identity, server: str) -> None:
        run = self.run
        await run.work.ask("strangers", lambda: run.pool.tools(identity, server))


class FaultSteps:
    """What servers and the network do."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def do(self, step: s.Step) -> None:
        """Carry out one step. Raises Skip."""
        assert isinstance(step, s.AtServer)
        places = self._places(step)
        match step:
            case s.Scripted():
                self._script(step, places)
            case s.ChangeTools():
                key = None if step.only_for is None else self.run.key(step.only_for, step.server)
                for place in places:
                    place.change_tools(step, key)
                    if step.notify:
                        place.announce()
            case s.ExpireSession():
                self._expire(step, places)
            case s.RestartServer():
                for place in places:
                    self.run.start("restart", place.restart, step.down)
            case s.EndStreams():
                if not sum(place.fake.end_streams(graceful=step.graceful) for place in places):
                    raise Skip
            case s.AskClient():
                self._ask(step, places)
            case s.Announce():
                self._announce(step, places)
            case s.CloseIdle():
                if not sum(place.fake.close_idle_connections() for place in places):
                    raise Skip
            case s.RefuseConnections():
                for place in places:
                    self.run.start("away", place.refuse, step.how, step.seconds)
            case s.CutLink():
                for link in self._links(step, places):
                    link.cut(reset=step.reset, towards=step.direction, after=step.after)
            case s.StallLink():
                self._stall(step, places)
            case s.KillChild():
                self._kill(step, places)
            case s.ChildManners():
                if not sum(place.child_manners(step) for place in places):
                    raise Skip
            case _:
                raise Skip

    def _places(self, step: s.AtServer) -> list[Place]:
        places = self.run.places[step.server]
        return places if step.place is None else [places[step.place % len(places)]]

    def _script(self, step: s.Scripted, places: list[Place]) -> None:
        run = self.run

        def whose(arrival: Any, who: str, place: Place) -> bool:
            return place.whose(arrival) == run.key(who, step.server)

        cap = int(run.limit("max_message"))
        everywhere = run.places[step.server]
        took = 0
        for place in places:
            elsewhere = everywhere[(place.number + 1) % len(everywhere)]
            took += place.script(
                step, elsewhere.url, lambda arrival, who, place=place: whose(arrival, who, place), cap
            )
        if not took:
            raise Skip

    def _expire(self, step: s.ExpireSession, places: list[Place]) -> None:
        forgotten = 0
        for place in places:
            if place.spec.over_http:
                forgotten += len(place.fake.sessions)
                place.fake.forget_sessions(step.spelling)
        if not forgotten:
            raise Skip

    def _links(self, step: s.CutLink | s.StallLink, places: list[Place]) -> Iterable[Link]:
        run = self.run
        found = [link for place in places for link in run.links_to(place)]
        if step.who is not None:
            key = run.key(step.who, step.server)
            found = [link for link in found if run.wires.taps[link.number].linked.key == key]
        if not found:
            raise Skip
        return found if step.which == "all" else found[-1:] if step.which == "newest" else found[:1]

    def _stall(self, step: s.StallLink, places: list[Place]) -> None:
        towards = ("to-server", "to-client") if step.direction == "both" else (step.direction,)
        for link in self._links(step, places):
            for each in towards:
                if step.blackhole and not link.kernel:  # no pipe loses bytes
                    link.blackhole(each)
                else:
                    link.stall(each, step.seconds)
                    self.run.stalled_until = max(self.run.stalled_until, trio.current_time() + step.seconds)

    def _kill(self, step: s.KillChild, places: list[Place]) -> None:
        key = None if step.who is None else self.run.key(step.who, step.server)
        if not sum(place.kill_children(key, step.code, killed=step.killed) for place in places):
            raise Skip

    def _announce(self, step: s.Announce, places: list[Place]) -> None:
        method, params = {
            "resources": ("notifications/resources/list_changed", None),
            "prompts": ("notifications/prompts/list_changed", None),
            "log": ("notifications/message", {"level": "warning", "data": {"text": "said by itself"}}),
            "update": ("notifications/resources/updated", {"uri": step.name}),
            "elicitation-complete": ("notifications/elicitation/complete", {"elicitationId": "e-1"}),
            "stray-progress": ("notifications/progress", {"progressToken": 987_654, "progress": 1}),
            "unknown": ("notifications/sim/unknown", {"x": [1]}),
        }[step.what]
        told = sum(place.announce(method, params) for place in places for _ in range(step.times))
        if not told:
            raise Skip

    def _ask(self, step: s.AskClient, places: list[Place]) -> None:
        asked = 0
        for place in places:
            for engine in place.engines:
                for listener in [each for each in engine.streams.open if each.session is not None]:
                    for _ in range(step.times):
                        self.run.start("question", self._question, engine, listener, step)
                    asked += 1
        if not asked:
            raise Skip

    async def _question(self, engine: Any, listener: Any, step: s.AskClient) -> None:
        asked = question(step.method)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message["id"])
            listener.deliver(message)

        with trio.move_on_after(ASKED_FOR if step.withdraw_after is None else step.withdraw_after) as scope:
            await engine.questions.ask(send, asked["method"], asked["params"])
        if scope.cancelled_caught and step.withdraw_after is not None and listener in engine.streams.open:
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": sent[0]}}
            listener.deliver(notice)
