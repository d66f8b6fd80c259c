"""Worlds by chance: people, servers and their manners, plans, limits, weather.

Swarm testing: a world does not have a little of everything. Each draws first which features it has at all
(`Swarm.has`), so that some worlds are full of what others lack, and no feature drowns all others.
"""

from __future__ import annotations

import random
import typing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from tests.simulation.world import Manners, Person, ServerSpec, Signing, ToolSpec, Way, Weather, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

KINDS: Final[Mapping[str, float]] = {
    "http": 6, "http-sse-answers": 4, "http-chunked": 2, "sse": 3, "websocket": 4, "stdio": 4, "memory": 1,
}  # fmt: skip
TOOLS: Final[Mapping[str, float]] = {
    "echo": 6, "sleep": 6, "progress": 2, "chatty": 1, "big": 1.5, "fail": 1, "error": 1, "ask": 2,
    "rounds": 2, "address": 1, "structured": 1.5, "strange": 0.5, "wordy": 0.4, "badschema": 0.4,
}  # fmt: skip

SLOW: Final = 64  # bytes on their way at once, with which a single request may take seconds


class Swarm:
    """Chance, and which features this world has. A feature that was drawn once stays as it was drawn."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._features: dict[str, bool] = {}

    def has(self, feature: str, share: float = 0.5) -> bool:
        """Whether this world has a feature at all; `share` of all worlds do."""
        if feature not in self._features:
            self._features[feature] = self.random.random() < share
        return self._features[feature]

    def chance(self, share: float) -> bool:
        """Heads, in so many of all throws."""
        return self.random.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return self.random.choice(choices)

    def weighted(self, weights: Mapping[str, float]) -> Any:
        """One of them, by weight."""
        return self.random.choices(list(weights), list(weights.values()))[0]

    def some(self, choices: Sequence[T], at_most: int) -> tuple[T, ...]:
        """One to `at_most` of them, in their order."""
        count = self.random.randint(1, min(at_most, len(choices)))
        wanted = sorted(self.random.sample(range(len(choices)), count))
        return tuple(choices[index] for index in wanted)

    def seconds(self, least: float, most: float) -> float:
        """A time between two, as likely among small ones as among large ones, to be read easily."""
        drawn = least * (most / least) ** self.random.random()
        return float(f"{drawn:.2g}")


def make_world(swarm: Swarm) -> World:
    """A world by chance."""
    people = _people(swarm)
    names = ["files", "wiki", "bank"][: swarm.random.choices((1, 2, 3), (5, 4, 1))[0]]
    servers = tuple(_server(swarm, name, people) for name in names)
    limits = _limits(swarm, servers)
    signer = swarm.pick(typing.get_args(Signing)) if swarm.chance(0.2) else "none"
    wordy = any(tool.kind == "wordy" for server in servers for tool in server.tools)
    weather = _weather(swarm, wordy=wordy)
    if "max_age" in limits and weather.buffer <= SLOW:
        # A client must live for longer than it takes to open it and to ask it something twice.
        limits["max_age"] = max(limits["max_age"], 60.0)
    return World(
        people=people,
        servers=servers,
        limits=limits,
        signer=signer,
        weather=weather,
        plan_waits=not swarm.chance(0.2),
        app=swarm.weighted({"hears": 5, "deaf": 1, "raises": 2, "traces": 2}),
        shares=any(server.share for server in servers) or swarm.chance(0.5),
    )


def _people(swarm: Swarm) -> tuple[Person, ...]:
    everybody = [
        Person(name="alice", tenant="acme", principal="alice", conversation="c1"),
        Person(name="bob", tenant="acme", principal="bob", conversation="c1"),
        Person(name="carol", tenant="zeta", principal="carol", conversation="c7"),
        Person(name="alice-2", tenant="acme", principal="alice", conversation="c2"),
        Person(name="dave", tenant="zeta", principal="alice", conversation="c1"),
    ]
    people = everybody[: swarm.random.choices((1, 2, 3, 4, 5), (2, 5, 4, 2, 1))[0]]
    if swarm.has("vague people", 0.25):
        people.append(Person(name="someone", tenant=swarm.pick(["acme", ""])))
    return tuple(people)


def _server(swarm: Swarm, name: str, people: tuple[Person, ...]) -> ServerSpec:
    kind = swarm.weighted(KINDS)
    era: Any = swarm.random.choices(("handshake", "stateless", "both"), (4, 4, 2))[0]
    if kind == "sse":
        era = "handshake"
    places = 1 + swarm.chance(0.4)
    keyed_on: Any = swarm.random.choices(
        (("tenant", "principal", "conversation_id"), ("tenant", "principal"), ("tenant",), ()), (4, 4, 2, 1)
    )[0]
    tools = _tools(swarm)
    repeats = swarm.has("repeats", 0.25)
    spec = ServerSpec(
        name=name,
        kind=kind,
        era=era,
        places=places,
        keyed_on=keyed_on,
        tools=tools,
        on_list_change=swarm.pick(["refuse", "recheck"]) if swarm.has("recheck lists") else "refuse",
        pinned=tuple(tool.name for tool in tools[:2]) if swarm.has("pins", 0.2) else (),
        compare_without=("/_meta",) if swarm.chance(0.15) else (),
        repeat="recognised" if repeats else "never",
        host_repeats=swarm.chance(0.8),
        max_repeats=swarm.pick([1, 1, 2]),
        validate_output=swarm.has("validation", 0.3),
    )
    spec = attrs.evolve(spec, manners=_manners(swarm, spec), way=_way(swarm, spec))
    if places > 1:
        leads = {person.name: 1 for person in people if swarm.chance(0.3)}
        spec = attrs.evolve(spec, leads=leads)
    if not keyed_on and swarm.chance(0.5):
        spec = attrs.evolve(spec, fixed_plan=True)
    if swarm.has("sharing", 0.4):
        roles = {person.name: swarm.pick(["role-a", "role-a", "role-b"]) for person in people}
        spec = attrs.evolve(spec, share={who: role for who, role in roles.items() if swarm.chance(0.8)})
    return spec


def _tools(swarm: Swarm) -> tuple[ToolSpec, ...]:
    kinds = ["echo", "sleep"]
    wanted = swarm.random.choices((0, 1, 2, 4, 8), (2, 3, 3, 2, 1))[0]
    while wanted > 0:
        kind = swarm.weighted(TOOLS)
        wanted -= 1
        if kind not in kinds:
            kinds.append(kind)
    return tuple(ToolSpec(name=kind, kind=kind) for kind in kinds)


def _manners(swarm: Swarm, spec: ServerSpec) -> Manners:
    random = swarm.random
    offers = swarm.has("beside tools", 0.4)
    return Manners(
        sessions=not swarm.has("no sessions", 0.15),
        dialect=random.choice(("python", "typescript")),
        get_stream=not swarm.has("no get stream", 0.2),
        list_changed=not swarm.has("says nothing of changes", 0.15),
        announces_at_once=swarm.has("announces at once", 0.15),
        ttl=swarm.pick([None, 0.0, 0.0, 2.0, 90.0]),
        page_size=swarm.pick([1, 2]) if swarm.has("pages", 0.25) else None,
        cursors="loop" if swarm.chance(0.03) else swarm.pick(["strict", "lenient", "empty-string"]),
        keep_alive=swarm.pick([1, 2, 5]) if swarm.has("short connections", 0.15) else None,
        strict=not swarm.chance(0.2),
        knows_resume=swarm.has("resumption", 0.3),
        resources=_resources(swarm) if offers else (),
        prompts=("greet", "ask") if offers and swarm.chance(0.7) else (),
        completes=offers and swarm.chance(0.7),
        logs=offers and swarm.chance(0.7),
        slow_start=swarm.pick([0.05, 0.5, 3.0]) if swarm.has("slow start", 0.2) else 0.0,
        posts=swarm.pick(["foreign", "gibberish"]) if spec.kind == "sse" and swarm.chance(0.08) else "usual",
        accepts_late=spec.kind == "sse" and swarm.chance(0.25),
    )


def _resources(swarm: Swarm) -> tuple[str, ...]:
    few = ("doc://a", "doc://b", "doc://c")
    return (*few, *(f"doc://{number}/{'x' * 60}" for number in range(120))) if swarm.chance(0.15) else few


def _way(swarm: Swarm, spec: ServerSpec) -> Way:
    over = "direct"
    if spec.over_http and swarm.has("other ways", 0.25):
        over = swarm.pick(["insecure", "proxy", "proxy-with-credential", "httpx", "unix"])
    credential = "none"
    if spec.kind not in {"stdio", "memory"} and swarm.has("credentials", 0.5):
        credential = swarm.pick(["machine", "user", "anonymous-first"])
        if credential == "user" and "principal" not in spec.keyed_on:
            credential = "machine"
    answers: tuple[Any, ...] = ()
    if swarm.has("answers to servers", 0.4):
        answers = swarm.some(("roots", "sample", "elicit", "url"), 4)
        if "url" in answers and "elicit" not in answers:
            answers = (*answers, "elicit")
    streaming = "auto"
    if spec.over_http and swarm.chance(0.3):
        streaming = "sse" if spec.kind == "sse" else "streamable"
    return Way(
        over=over,
        streaming=streaming,
        credential=credential,
        form=swarm.weighted({"bearer": 5, "basic": 1, "api-key": 1, "headers": 1}),
        answers=answers,
        answering=swarm.weighted(
            {"at-once": 5, "slowly": 3, "raises": 1, "misfit": 2, "never": 1, "declines": 3}
        ),
        version=swarm.pick(_versions(spec)) if swarm.has("pinned versions", 0.2) else "",
        own_key=credential == "none" and spec.kind not in {"stdio", "memory"} and swarm.has("own keys", 0.3),
        scopes=("read",) if credential != "none" and swarm.chance(0.5) else (),
    )


def _versions(spec: ServerSpec) -> list[Any]:
    """What a plan may pin: mostly what the server speaks."""
    handshake, stateless = ["2025-06-18", "2025-11-25"], ["2026-07-28"]
    if spec.kind == "sse":
        return ["2024-11-05", *handshake]
    return {"handshake": handshake * 3 + stateless, "stateless": handshake[:1] + stateless * 4}.get(
        spec.era, handshake + stateless
    )


def _limits(swarm: Swarm, servers: tuple[ServerSpec, ...]) -> Mapping[str, Any]:
    limits: dict[str, Any] = {}
    pick = swarm.pick
    if swarm.has("few places", 0.5):
        limits["max_operations"] = pick([1, 1, 2, 3])
    if swarm.has("few waiters", 0.3):
        limits["max_waiting"] = pick([1, 2, 4])
    if swarm.has("few in flight", 0.3):
        limits["max_in_flight"] = pick([1, 2, 4])
    if swarm.has("few waiters in all", 0.15):
        limits["max_waiting_total"] = pick([1, 2, 4])
    if swarm.has("few clients", 0.3):
        limits["max_clients"] = pick([1, 2, 3])
    if swarm.has("few openings", 0.2):
        limits["max_connecting"] = 1
    if swarm.has("short times", 0.5):
        limits["deadline"] = swarm.seconds(1, 30)
        limits["open_timeout"] = swarm.seconds(1, 20)
        limits["settle_timeout"] = swarm.seconds(0.5, 20)
        limits["cancel_grace"] = swarm.seconds(0.2, 5)
        limits["ping_timeout"] = swarm.seconds(0.2, 5)
        limits["close_timeout"] = swarm.seconds(0.5, 5)
    if swarm.has("short lives", 0.4):
        limits["idle_timeout"] = swarm.seconds(1, 60)
        limits["max_age"] = swarm.seconds(5, 200)
        limits["keepalive_expiry"] = swarm.seconds(0.5, 4)
    if swarm.has("short lists", 0.4):
        limits["min_list_ttl"] = swarm.seconds(0.5, 30)
        limits["list_ttl"] = swarm.seconds(1, 60)
    if swarm.has("small messages", 0.15):
        limits["max_message"] = 8192
    if swarm.has("few pages", 0.1):
        limits["max_pages"] = pick([1, 2])
    if swarm.has("short back-off", 0.2):
        limits["backoff"] = 0.1
        limits["backoff_max"] = pick([0.4, 2.0])
    if swarm.has("few subscriptions", 0.2):
        limits["max_subscriptions"] = 1
    if swarm.has("few records", 0.2):
        limits["records"] = 2
    # Where every request of an opening is slow, the opening has to have the time for it.
    slowest = max(spec.manners.slow_start for spec in servers)
    if slowest and "open_timeout" in limits:
        limits["open_timeout"] = max(limits["open_timeout"], 4 * slowest if swarm.chance(0.8) else slowest)
    return limits


def _weather(swarm: Swarm, *, wordy: bool) -> Weather:
    """By chance. Long lists in tiny pieces would show nothing but patience: minutes of it, at a real cost."""
    if swarm.has("calm", 0.3):
        return Weather()
    random = swarm.random
    weather = Weather(
        latency=swarm.pick([0.0, 0.001, 0.02, 0.2]),
        jitter=swarm.pick([0.0, 0.01, 0.3]),
        piece=swarm.pick([0, 0, 1000, 100, 7]),
        short_writes=swarm.pick([0.0, 0.0, 0.3]),
        buffer=swarm.pick([65536, 65536, 512, 64]),
        connect=swarm.pick([0.001, 0.05, 0.5]),
        resolve=random.choice((0.0, 0.0, 0.05)),
    )
    if not wordy:
        return weather
    return attrs.evolve(
        weather, piece=weather.piece and max(weather.piece, 100), buffer=max(weather.buffer, 512)
    )
