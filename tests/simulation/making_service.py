"""Services by chance: a service beside the pool of a world, its people and tokens, and what its clients do.

Drawn from a chance of its own, so that worlds without a service are what they are without this module.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import attrs

from tests.simulation import steps as s
from tests.simulation.making import Swarm
from tests.simulation.steps import Story
from tests.simulation.world_service import BehindSpec, ServiceSpec, Strange, TokenSpec

SHARE: Final = 0.15
"""So many of all worlds have a service."""

PEOPLE: Final = ("ann", "ben", "cyd", "dov")
STRANGE: Final[tuple[Strange, ...]] = ("half", "invented", "other-file", "none")
TOOLS: Final = {"echo": 5, "sleep": 6, "progress": 3, "chatty": 1, "fail": 1, "ask": 2, "big": 1}


def with_service(story: Story, size: float = 1.0) -> Story:
    """The same story in a world with a service and with its clients; or as it is."""
    swarm = Swarm(f"{story.seed}/service")  # type: ignore[arg-type]
    if not swarm.chance(SHARE):
        return story
    scene = Scene(swarm, size)
    steps = sorted([*story.steps, *scene.steps()], key=lambda step: step.at)
    return Story(attrs.evolve(story.world, service=scene.spec), tuple(steps), story.seed, story.note)


class Scene:
    """One service, and what happens to it.

    Args:
        swarm: Chance.
        size: 1 is some twenty steps.
    """

    def __init__(self, swarm: Swarm, size: float = 1.0) -> None:
        self.swarm, self.size = swarm, size
        self.span = swarm.pick([1.0, 5.0, 20.0])
        self._numbers = itertools.count(1)
        self.spec = self._spec()
        self.clients: dict[str, tuple[str, str]] = {}

    def _spec(self) -> ServiceSpec:
        swarm = self.swarm
        people = PEOPLE[: swarm.random.choices((1, 2, 3, 4), (1, 5, 3, 1))[0]]
        tokens = [TokenSpec(name=f"{who}-1", who=who) for who in people]
        for who in people:
            if swarm.has("more tokens", 0.5):
                expires = swarm.seconds(0.3, self.span) if swarm.has("expiry", 0.5) else None
                tokens.append(TokenSpec(name=f"{who}-2", who=who, expires=expires))
        if swarm.has("strange tokens", 0.6):
            tokens += [TokenSpec(name=strange, who=people[0], strange=strange) for strange in STRANGE]
        names = ("desk", "shop")[: 1 + swarm.chance(0.5)]
        limits: dict[str, Any] = {}
        if swarm.has("few places", 0.3):
            limits |= {"calls": swarm.pick([1, 2]), "call_wait": swarm.seconds(0.1, 3)}
        if swarm.has("few sessions", 0.2):
            limits["sessions_per_principal"] = swarm.pick([1, 2])
        if swarm.has("short sessions", 0.2):
            limits["idle_session"] = swarm.seconds(1, 10)
        pool: dict[str, Any] = {
            "deadline": swarm.pick([5.0, 20.0]),
            "open_timeout": 5.0,
            "close_timeout": 1.0,
        }
        if swarm.has("short lives", 0.3):
            pool |= {"idle_timeout": swarm.seconds(1, 10), "max_age": swarm.seconds(5, 30)}
        if swarm.has("few operations", 0.3):
            pool["max_operations"] = swarm.pick([1, 2])
        return ServiceSpec(
            people=people,
            tokens=tuple(tokens),
            behind=tuple(self._behind(name) for name in names),
            limits=limits,
            pool=pool,
        )

    def _behind(self, name: str) -> BehindSpec:
        swarm = self.swarm
        kinds = ["echo", "sleep"]
        for _ in range(swarm.random.randint(0, 4)):
            kind = swarm.weighted(TOOLS)
            if kind not in kinds:
                kinds.append(kind)
        return BehindSpec(
            name=name,
            kind=swarm.weighted({"http": 4, "http-sse-answers": 3, "websocket": 2, "stdio": 2}),
            era=swarm.weighted({"handshake": 3, "stateless": 3, "both": 2}),
            keyed_on=swarm.pick([("tenant", "principal"), ("tenant", "principal"), ("tenant",), ()]),
            tools=tuple(kinds),  # type: ignore[arg-type]
        )

    # ------------------------------------------------------------------ what happens

    def steps(self) -> list[s.Step]:
        """All of it."""
        swarm = self.swarm
        found: list[s.Step] = []
        for number in range(swarm.random.randint(1, 4)):
            found += self._client(f"k{number + 1}")
        for _ in range(max(3, int(swarm.random.gauss(12, 4) * self.size))):
            found.append(self._ask(self._when()))
        known = [motif for motif in MOTIFS if swarm.has(motif.__name__, 0.4)] or [swarm.pick(MOTIFS)]
        for _ in range(max(1, int(swarm.random.gauss(4, 2) * self.size))):
            found += swarm.pick(known)(self)
        return found

    def _when(self) -> float:
        return round(0.5 + self.swarm.random.random() * self.span, 3)

    def _id(self) -> str:
        return f"n{next(self._numbers)}"

    def _token(self) -> TokenSpec:
        good = [token for token in self.spec.tokens if not token.strange]
        return self.swarm.pick(self.spec.tokens if self.swarm.chance(0.1) else good)

    def _client(self, name: str) -> list[s.Step]:
        token = self._token()
        era: Any = self.swarm.pick(["handshake", "handshake", "stateless"])
        self.clients[name] = (token.name, era)
        answers = self.swarm.chance(0.6)
        at = round(self.swarm.random.random() * 0.4, 3)
        return [s.ServeOpen(at=at, client=name, token=token.name, era=era, answers=answers)]

    def _ask(self, at: float, **members: Any) -> s.ServeAsk:
        swarm = self.swarm
        behind = swarm.pick(self.spec.behind)
        tool = swarm.pick(behind.tools)
        args: dict[str, Any] = {}
        if tool == "sleep":
            args = {"seconds": swarm.seconds(0.01, 6)}
        elif tool == "progress":
            args = {"steps": swarm.random.randint(1, 5), "seconds": swarm.pick([0, 0.05, 0.5])}
        elif tool == "big":
            args = {"size": swarm.pick([1000, 90_000])}
        elif tool == "ask":
            args = {"method": "elicitation/create"}
        what: Any = swarm.weighted({"call": 8, "list": 2, "ping": 0.5, "resources": 0.5})
        if "slow" not in members and swarm.has("slow readers", 0.3) and swarm.chance(0.3):
            members["slow"] = swarm.seconds(0.01, 2)
        members.setdefault("client", swarm.pick(list(self.clients)))
        members.setdefault("what", what)
        return s.ServeAsk(at=at, id=self._id(), tool=tool, server=behind.name, args=args, **members)


def _after(scene: Scene, at: float, most: float = 1.0) -> float:
    share = scene.swarm.random.random()
    return round(at + (0.0 if share < 0.2 else share * 0.02 if share < 0.5 else share * most), 4)


def crowd(scene: Scene) -> list[s.Step]:
    """Many calls at once."""
    at = scene._when()
    return [scene._ask(_after(scene, at, 0.05), what="call") for _ in range(scene.swarm.random.randint(3, 8))]


def revoked(scene: Scene) -> list[s.Step]:
    """A token is revoked in the middle of what it asked for."""
    at = scene._when()
    token, _ = scene.clients[client := scene.swarm.pick(list(scene.clients))]
    steps: list[s.Step] = [
        scene._ask(_after(scene, at, 0.3), what="call", client=client),
        scene._ask(_after(scene, at, 0.3), what="call", client=client),
        s.RevokeToken(at=_after(scene, at, 0.5), token=token),
        scene._ask(_after(scene, at + 0.3, 0.5), what="call", client=client),
        scene._ask(_after(scene, at + 1.0, 0.5), client=client),
    ]
    return [s.ServeHear(at=at, client=client, id=scene._id(), seconds=8.0), *steps]


def stolen_session(scene: Scene) -> list[s.Step]:
    """A session is named by somebody who did not open it."""
    at = scene._when()
    thief, owner = (scene.swarm.pick(list(scene.clients)) for _ in range(2))
    token = scene._token().name
    return [
        scene._ask(_after(scene, at), client=thief, session_of=owner),
        scene._ask(_after(scene, at), client=owner, token=token),
        s.ServeHear(at=_after(scene, at), client=thief, id=scene._id(), seconds=2.0, session_of=owner),
    ]


def strange_tokens(scene: Scene) -> list[s.Step]:
    """Tokens that prove nobody."""
    at = scene._when()
    strange = [token.name for token in scene.spec.tokens if token.strange]
    return [scene._ask(_after(scene, at), token=name) for name in strange]


def listeners(scene: Scene) -> list[s.Step]:
    """Clients listen while tools change, several at once."""
    at = scene._when()
    steps: list[s.Step] = [
        s.ServeHear(
            at=_after(scene, at, 0.2), client=client, id=scene._id(), seconds=scene.swarm.seconds(1, 8)
        )
        for client in scene.clients
    ]
    for _ in range(scene.swarm.random.randint(1, 4)):
        behind = scene.swarm.pick(scene.spec.behind)
        tool = scene.swarm.pick(behind.tools)
        steps.append(s.ChangeBehind(at=_after(scene, at + 0.2), server=behind.name, tool=tool))
        steps.append(scene._ask(_after(scene, at + 0.2)))
    return steps


def reloads(scene: Scene) -> list[s.Step]:
    """The configuration is read anew in the middle of what runs."""
    at = scene._when()
    swarm = scene.swarm
    pairs = [("remove", "add"), ("limits", "limits-back"), ("tokens", "tokens-back"), ("nothing", "nothing")]
    first, then = swarm.pick(pairs)
    server = swarm.pick(scene.spec.behind).name
    steps: list[s.Step] = [scene._ask(_after(scene, at, 0.2)) for _ in range(3)]
    first_at = _after(scene, at, 0.3)
    steps.append(s.ReloadService(at=first_at, how=first, server=server))  # type: ignore[arg-type]
    steps += [scene._ask(_after(scene, first_at, 0.5)) for _ in range(2)]
    back = round(first_at + swarm.seconds(0.05, 3), 4)
    steps.append(s.ReloadService(at=back, how=then, server=server))  # type: ignore[arg-type]
    return [*steps, scene._ask(_after(scene, back, 0.5))]


def withdrawn(scene: Scene) -> list[s.Step]:
    """Clients do not want what they asked for, or go."""
    at = scene._when()
    swarm = scene.swarm
    steps: list[s.Step] = []
    for _ in range(swarm.random.randint(1, 3)):
        how = swarm.pick(["withdraw_after", "gone_after"])
        steps.append(scene._ask(_after(scene, at), what="call", **{how: swarm.seconds(0.001, 1.0)}))
    return steps


def broken(scene: Scene) -> list[s.Step]:
    """Connections to a server break under what runs."""
    at = scene._when()
    server = scene.swarm.pick(scene.spec.behind).name
    return [
        scene._ask(_after(scene, at, 0.2), what="call"),
        s.CutBehind(at=_after(scene, at, 0.5), server=server),
        scene._ask(_after(scene, at + 0.5)),
    ]


def ended(scene: Scene) -> list[s.Step]:
    """A session is ended under what runs in it."""
    at = scene._when()
    client = scene.swarm.pick(list(scene.clients))
    return [
        scene._ask(at, what="call", client=client),
        s.ServeEnd(at=_after(scene, at, 0.5), client=client),
        scene._ask(_after(scene, at + 0.5), client=client),
    ]


def drained(scene: Scene) -> list[s.Step]:
    """The service is shut down in the middle of what runs."""
    at = round(scene._when() + scene.span * 0.6, 3)
    steps: list[s.Step] = [scene._ask(_after(scene, at, 0.2), what="call") for _ in range(2)]
    steps.append(s.DrainService(at=_after(scene, at, 0.3), seconds=scene.swarm.seconds(0.01, 5)))
    return [*steps, scene._ask(_after(scene, at + 0.3, 0.5))]


MOTIFS: Final = (
    crowd, revoked, stolen_session, strange_tokens, listeners, reloads, withdrawn, broken, ended, drained,
)  # fmt: skip
