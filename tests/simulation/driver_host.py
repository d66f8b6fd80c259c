"""The app of a simulated world: plans, authorization names, caller identities, credentials, signatures,
answers.

Everything is kept by key, as the driver encodes it; what a step changes is true from that step on, and filed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import trio

from afpool import (
    Anonymous,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    NeedsAuthorization,
    Plan,
    ServerRequests,
    WebSocketTransport,
)
from afpool.client import SampleAnswer
from tests.simulation.driver_mistakes import PLANS
from tests.simulation.driver_secrets import AppFault, bad_credential, credential, make_signer
from tests.simulation.driver_ways import PASSWORD
from tests.simulation.ground import RAISES, Ground, Named, PlanTold, Shared, Vended
from tests.simulation.ground_door import scope_of
from tests.simulation.ground_why import asked
from tests.simulation.oracle_wire import PLAN, WHO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from afpool import CredentialRequest
    from tests.simulation.driver_places import Place
    from tests.simulation.kernel import Sim
    from tests.simulation.world import ServerSpec, World

SECRET: Final = b"the simulation's secret of digests"

NOWHERE: Final = Identity(tenant="nowhere", principal="stranger")
"""Somebody whom a world does not know."""


def key_of(server: ServerSpec, identity: Identity) -> str:
    """A key, written down without the pool."""
    fields = [
        (getattr(identity, name) or "-") if name in server.keyed_on else "-"
        for name in ("tenant", "principal", "conversation_id")
    ]
    return f"{server.name}|{'/'.join(fields)}"


@attrs.define
class PlanTruth:
    """What `plan` says for one key now."""

    place: int
    variant: int = 0
    mood: str = "good"


@attrs.define
class Token:
    """The credential of one owner at one server.

    Attributes:
        owner: Whose, as facts say it.
        value: What the server takes, and `given` what the provider gives.
        mood: What the provider does: `good`, or a `RotateCredential.how`.
    """

    owner: str
    value: str
    given: str
    mood: str = "good"


class Caller:
    """A live caller identity."""

    def __init__(self, host: Host, name: str) -> None:
        self.name = name
        self.state = "back"
        self._host = host

    @property
    def is_who(self) -> bool:
        """Whether it names whom it is called after."""
        return self.state == "back"

    def __call__(self) -> Identity | None:
        """Who it is now."""
        if self.state == "raises":
            raise AppFault("the session is gone")
        if self.state == "none":
            return None
        people = self._host.world.people
        person = self._host.world.person(self.name)
        if self.state == "other":
            others = [each for each in people if each.identity != person.identity]
            return others[0].identity if others else NOWHERE
        return person.identity


class Host:
    """See the module.

    Args:
        sim: The kernel.
        ground: Where truths are filed.
        world: The world.
        places: The places of each server.
    """

    def __init__(self, sim: Sim, ground: Ground, world: World, places: Mapping[str, list[Place]]) -> None:
        self.sim = sim
        self.ground = ground
        self.world = world
        self.places = places
        self.plans: dict[str, PlanTruth] = {}
        self.names: dict[str, tuple[str, str | None]] = {}
        self.tokens: dict[tuple[str, str], Token] = {}
        self.callers: dict[str, Caller] = {}
        self.canaries: list[str] = []
        self.shown_addresses = 0
        self._rubbish = sim.random.randrange(len(PLANS))
        self._canary = 0
        if any(server.way.over == "proxy-with-credential" for server in world.servers):
            self.canaries.append(PASSWORD)
        for server in world.servers:
            for person in reversed(world.people):
                key = key_of(server, person.identity)
                self.plans[key] = PlanTruth(server.leads.get(person.name, 0))
                self.names[key] = ("name", server.share.get(person.name))
        for key, (_, name) in self.names.items():
            if name is not None and world.shares:
                ground.file(Shared(key=key, name=name))
        for server in world.servers:
            if server.way.credential != "none":
                for place in places[server.name]:
                    place.accepted = set()

    def heal(self) -> None:
        """Let everything be in order again; who leads where and shares what stays as it is."""
        for truth in self.plans.values():
            truth.mood = "good"
        for key, (how, name) in self.names.items():
            if how != "name":
                self.change_share(key, "name", name)
        for token in self.tokens.values():
            token.mood, token.given = "good", token.value
        for caller in self.callers.values():
            caller.state = "back"
            self.said(caller.name)

    # ------------------------------------------------------------------ identities

    def caller(self, name: str) -> Caller:
        """The live identity of a person."""
        if name not in self.callers:
            self.callers[name] = Caller(self, name)
            self.said(name)
        return self.callers[name]

    def said(self, name: str) -> None:
        """File what a live identity encodes to now."""
        caller = self.callers[name]
        keys: frozenset[str] = frozenset()
        try:
            identity = caller()
        except AppFault:
            identity = None
        if identity is not None:
            keys = frozenset(key_of(server, identity) for server in self.world.servers)
        scope = None if identity is None else scope_of(identity)
        self.ground.file(Named(caller=name, keys=keys, scope=scope))

    # ------------------------------------------------------------------ plans

    async def plan(self, name: str, projection: Identity) -> Any:
        """The pool's plan function."""
        _, key, truth = self._truth(name, projection)
        mood = truth.mood
        with asked(self.ground, "plan", key):
            if mood == "hangs":
                await trio.sleep_forever()
            if mood == "slow":
                await trio.sleep(1.0)
            return self._plan(name, projection)

    def _truth(self, name: str, projection: Identity) -> tuple[ServerSpec, str, PlanTruth]:
        server = self.world.server(name)
        key = key_of(server, projection)
        return server, key, self.plans.setdefault(key, PlanTruth(0))

    def fixed_plan(self, server: ServerSpec) -> Plan:
        """The plan of a server that has one of its own."""
        key = key_of(server, Identity())
        mark = f"{server.name}-0/0"
        plan = self.make_plan(server, key, mark, PlanTruth(0))
        self.ground.file(PlanTold(key=key, context=plan.context(SECRET), place=mark))
        return plan

    def plan_at_once(self, name: str, projection: Identity) -> Any:
        """A plan function that never waits."""
        with asked(self.ground, "plan", self._truth(name, projection)[1]):
            return self._plan(name, projection)

    def _plan(self, name: str, projection: Identity) -> Any:
        server, key, truth = self._truth(name, projection)
        mood = truth.mood
        if mood == "raises":
            raise AppFault("there is no plan")
        if mood == "rubbish":
            self._rubbish += 1
            return PLANS[self._rubbish % len(PLANS)]() if self._rubbish % 4 else "no plan"
        mark = f"{name}-{truth.place}/{truth.variant}{'/nowhere' if mood == 'nowhere' else ''}"
        plan = self.make_plan(server, key, mark, truth)
        self.ground.file(PlanTold(key=key, context=plan.context(SECRET), place=mark))
        return plan

    def make_plan(self, server: ServerSpec, key: str, mark: str, truth: PlanTruth) -> Plan:
        """A plan that says whose it is and which."""
        way = server.way
        place = self.places[server.name][truth.place % server.places]
        marks = {WHO: key, PLAN: mark}
        url = place.url if truth.mood != "nowhere" else place.url.replace(place.host, "nowhere.sim")
        requirement = None
        if way.own_key:
            marks["x-api-key"] = self._own_key(key)
        if way.credential != "none":
            mode: Literal["user", "machine"] = "user" if way.credential == "user" else "machine"
            requirement = CredentialRequirement(server.name, way.scopes, mode)
        transport: Any
        if server.kind == "websocket":
            transport = WebSocketTransport(url=url, headers=marks)
        elif server.kind in {"stdio", "memory"}:
            transport = place.child_transport(marks, nowhere=truth.mood == "nowhere")
        else:
            there = place.way_there()
            if truth.mood == "nowhere" and "httpx_transport" in there:
                there["httpx_transport"] = dict  # which makes something, but no transport
            transport = HttpTransport(url=url, headers=marks, streaming=way.streaming, **there)
        return Plan(
            transport=transport,
            credential=requirement,
            requests=self._requests(server),
            protocol_version=way.version or None,
        )

    def _own_key(self, key: str) -> str:
        value = f"canary-of-the-plan-{key}"
        if value not in self.canaries:
            self.canaries.append(value)
        return value

    # ------------------------------------------------------------------ sharing

    def share(self, name: str, projection: Identity) -> Any:
        """The pool's share function."""
        how, given = self.names.get(key_of(self.world.server(name), projection), ("name", None))
        if how == "raises":
            raise AppFault("the directory is away")
        return 7 if how == "rubbish" else given

    def change_share(self, key: str, how: str, name: str | None) -> None:
        """It gives something else from now on."""
        self.names[key] = (how, name)
        if self.world.shares:
            self.ground.file(Shared(key=key, name=name if how == "name" else RAISES))

    # ------------------------------------------------------------------ credentials

    def owner(self, server: ServerSpec, identity: Identity) -> str:
        """Whose credential serves an identity at a server, as facts say it."""
        if server.way.credential == "user":
            return f"{server.name}:{identity.tenant or '-'}/{identity.principal or '-'}"
        return f"{server.name}:machine"

    def token(self, server: ServerSpec, owner: str) -> Token:
        """The credential of an owner; made up when it is asked for first."""
        token = self.tokens.get((server.name, owner))
        if token is None:
            value = self.new_secret(server, owner)
            token = self.tokens[server.name, owner] = Token(owner, value, value)
        return token

    def new_secret(self, server: ServerSpec, owner: str) -> str:
        """A new value that the server takes from now on."""
        self._canary += 1
        value = f"canary-{self._canary}-{owner.replace('/', '.')}"
        self.canaries.append(value)
        for place in self.places[server.name]:
            if place.accepted is not None:
                place.accepted.add(value)
        self.ground.file(Vended(owner=owner, value=value))
        return value

    def forget_secret(self, server: ServerSpec, value: str) -> None:
        """The server takes that value no more."""
        for place in self.places[server.name]:
            if place.accepted is not None:
                place.accepted.discard(value)

    async def get(self, request: CredentialRequest) -> Any:
        """The pool's credential provider."""
        server = self.world.server(request.service)
        token = self.token(server, self.owner(server, request.identity))
        with asked(self.ground, "credential", token.owner):
            return await self._credential(request, server, token)

    async def _credential(self, request: CredentialRequest, server: ServerSpec, token: Token) -> Any:
        mood = token.mood
        if mood == "hangs":
            await trio.sleep_forever()
        if mood == "slow":
            await trio.sleep(1.0)
        else:
            await trio.lowlevel.checkpoint()
        if mood == "raises":
            raise AppFault("the vault is sealed")
        if mood == "needs-consent":
            self._canary += 1
            address = f"https://consent.test/canary-{self._canary}-address"
            self.canaries.append(address)
            return NeedsAuthorization(address, "consent-1")
        if mood == "anonymous" or (server.way.credential == "anonymous-first" and request.reason == "call"):
            return Anonymous()
        if mood == "rubbish":
            return "no credential"
        if mood == "bad-header":
            return Issued(bad_credential(server.way.form, token.value))
        if request.rejected:
            token.given = token.value
        return Issued(credential(server.way.form, token.given))

    def drop(self, *, service: str | None, identity: Identity) -> None:
        """The pool was told to invalidate: what is held is not given again before it was asked for anew."""
        for (name, _), token in self.tokens.items():
            if service in {None, name}:
                if token.mood == "raises":
                    raise AppFault("the vault is sealed")
                token.given = token.value

    def rotate(self, server: ServerSpec, token: Token, how: str) -> None:
        """See `RotateCredential`."""
        if how in {"new", "revoked", "stale"}:
            old = token.value
            token.value = self.new_secret(server, token.owner)
            token.mood = "good"
            if how != "new":
                self.forget_secret(server, old)
            if how != "stale":
                token.given = token.value
        else:
            token.mood = how

    def on_authorization(self, server: str, identity: Identity, needs: NeedsAuthorization) -> None:
        """Somebody has to consent."""
        self.shown_addresses += 1

    # ------------------------------------------------------------------ signing

    def signer(self) -> Any:
        """The pool's signer, or None."""
        return make_signer(self.world.signer, self._signature)

    def _signature(self) -> str:
        self._canary += 1
        value = f"canary-{self._canary}-signature"
        self.canaries.append(value)
        return value

    # ------------------------------------------------------------------ what servers ask

    def _requests(self, server: ServerSpec) -> ServerRequests | None:
        way = server.way
        if not way.answers:
            return None
        elicits = {"elicit", "url"} & set(way.answers)
        modes = [mode for mode, name in (("form", "elicit"), ("url", "url")) if name in way.answers]
        roots: Any = None
        if "roots" in way.answers:
            roots = (
                ["file:///srv/sim"]
                if way.answering == "at-once"
                else self._answered(way.answering, self._roots)
            )
        return ServerRequests(
            roots=roots,
            sample=self._answered(way.answering, self._sample) if "sample" in way.answers else None,
            elicit=self._answered(way.answering, self._elicit) if elicits else None,
            elicitation_modes=modes or ["form"],
            on_elicitation_complete=lambda which: None,
            max_handlers=2,
            timeout=20.0,
        )

    def _answered(self, how: str, answer: Callable[[Any, str], Any]) -> Any:
        async def handler(request: Any) -> Any:
            if how == "never":
                await trio.sleep_forever()
            await trio.sleep(1.0 if how == "slowly" else 0.0)
            if how == "raises":
                raise AppFault("the user is away")
            return answer(request, how)

        return handler

    @staticmethod
    def _roots(request: Any, how: str) -> Any:
        return 7 if how == "misfit" else ["file:///srv/sim"]

    @staticmethod
    def _sample(request: Any, how: str) -> Any:
        if how == "declines":
            return None
        if how == "misfit":
            return {"role": "assistant"}
        if how == "slowly":
            return {"role": "assistant", "content": {"type": "text", "text": "said"}, "model": "sim-1"}
        return SampleAnswer(content={"type": "text", "text": "said"}, model="sim-1")

    @staticmethod
    def _elicit(request: Any, how: str) -> Any:
        if how == "declines":
            return request.decline()
        if how == "misfit":
            if request.mode == "url":
                return 7 if request.server < "g" else request.accept({"sure": True})
            return {"action": "accept", "content": {"sure": "no boolean"}}
        if how == "slowly":
            return {"action": "accept", "content": {} if request.mode == "url" else {"sure": True}}
        return request.accept()
