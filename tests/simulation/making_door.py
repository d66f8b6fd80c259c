"""Doors by chance: what stands around the pool of a world, and the steps that go through it.

A door is drawn from a chance of its own, so that worlds without one are what they are without this module.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.door_vault import made_schema
from tests.simulation.making import Swarm
from tests.simulation.motifs import Scene
from tests.simulation.motifs_door import DOOR_MOTIFS, door_workload, uses_tools
from tests.simulation.steps import Story
from tests.simulation.world import ToolSpec
from tests.simulation.world_door import DoorSpec, HookMood, LocalKind, LocalSpec, RulesSpec

if TYPE_CHECKING:
    from tests.simulation.steps import Step
    from tests.simulation.world import ServerSpec, World

OFTEN: Final = frozenset({"needs", "asks", "filled", "takes", "wide", "shelf", "presents"})
"""Kinds of tools of the host's own that many motifs need."""

MOTIFS: Final = {
    "wide_calls": 0.5,
    "said_aloud": 0.6,
    "vault_moods": 0.6,
    "artifacts_change_hands": 0.5,
    "shelf_moods": 0.5,
}
"""Motifs that have many variants, and how many doors know them; others are known by 0.35."""

SHARE: Final = 0.4
"""So many of all worlds have a door."""


def with_door(story: Story, size: float = 1.0) -> Story:
    """The same story in a world with a door, and with steps that go through it; or as it is."""
    swarm = Swarm(f"{story.seed}/door")  # type: ignore[arg-type]
    if not swarm.chance(SHARE):
        return story
    world = make_door(swarm, story.world)
    span = max([step.at for step in story.steps], default=1.0) or 1.0
    scene = Scene(swarm, world, span)
    steps: list[Step] = [*story.steps]
    steps += door_workload(scene, max(3, int(swarm.random.gauss(10, 4) * size)))
    known = [motif for motif in DOOR_MOTIFS if swarm.has(motif.__name__, MOTIFS.get(motif.__name__, 0.35))]
    known = known or [swarm.pick(DOOR_MOTIFS)]
    for _ in range(max(1, int(swarm.random.gauss(4, 2) * size))):
        steps += swarm.pick(known)(scene)
    steps += uses_tools(scene)
    steps.sort(key=lambda step: step.at)
    return Story(world, tuple(steps), story.seed, story.note)


def make_door(swarm: Swarm, world: World) -> World:
    """A world with a door around its pool."""
    servers = tuple(_with_vault(swarm, server) for server in world.servers)
    store = swarm.chance(0.85)
    rules: dict[str, RulesSpec] = {}
    for server in servers:
        if any(tool.kind == "vault" for tool in server.tools) and swarm.chance(0.85):
            rules[server.name] = _rules(swarm)
        elif swarm.chance(0.2):
            rules[server.name] = RulesSpec(redact=("pad", "^mar"), ceiling=swarm.pick([0, 300, 5000]))
    door = DoorSpec(
        tools=_locals(swarm),
        rules=rules,
        hooks=_hooks(swarm),
        store=store,
        ttl=swarm.pick([None, 2.0, 60.0]) if swarm.has("expiry", 0.4) else None,
        shelf=swarm.pick([1, 2, 16, 16]),
        room=swarm.pick([200, 20_000, 1_000_000, 1_000_000]),
        qualify=swarm.has("qualify", 0.25),
        again=swarm.has("again", 0.5),
        patience=swarm.pick([5.0, 5.0, 0.05, 1.0]),
        inline=swarm.pick([100, 400, 3000]) if store and swarm.has("placement", 0.4) else 0,
        cut=swarm.pick([80, 500, 5000]) if swarm.has("cut", 0.3) else 0,
        events=swarm.weighted({"takes": 6, "none": 3, "raises": 1}),
        fields=swarm.weighted({"bearer": 5, "api-key": 1, "basic": 1, "headers": 1}),
    )
    return attrs.evolve(world, servers=servers, door=door)


def _with_vault(swarm: Swarm, server: ServerSpec) -> ServerSpec:
    if not swarm.chance(0.75):
        return server
    schema = made_schema(swarm.random) if swarm.has("odd schemas", 0.5) and swarm.chance(0.5) else ""
    vaults = [ToolSpec(name="vault", kind="vault", schema=schema)]
    if swarm.has("many schemas", 0.4):
        vaults += [
            ToolSpec(name=f"vault-{number}", kind="vault", schema=made_schema(swarm.random))
            for number in range(swarm.random.randint(1, 5))
        ]
    return attrs.evolve(server, tools=(*server.tools, *vaults))


def _rules(swarm: Swarm) -> RulesSpec:
    fill: dict[str, Any] = {}
    if swarm.chance(0.8):
        fill["account"] = swarm.pick(["principal", "principal", "tenant", "conversation_id"])
    if swarm.chance(0.7):
        fill["token"] = swarm.pick(["credential", "credential", "machine"])
    redact: tuple[str, ...] = ()
    if swarm.chance(0.7):
        redact = ("secret", "^pass", ".key")
        if swarm.chance(0.3):
            redact = (*redact, "^(?:a|b)+c{2,3}$", "note.0", "auth.other")
    return RulesSpec(
        fill=fill,
        wants={"doc": "doc"} if swarm.chance(0.6) else {},
        redact=redact,
        deep=swarm.chance(0.3),
        ceiling=swarm.pick([0, 0, 0, 800, 20_000]),
    )


def _locals(swarm: Swarm) -> tuple[LocalSpec, ...]:
    kinds: list[LocalKind] = ["says"]
    kinds += [
        kind
        for kind in typing.get_args(LocalKind)
        if kind != "says" and swarm.chance(0.6 if kind in OFTEN else 0.4)
    ]
    tools = [
        LocalSpec(name=f"own-{kind}", kind=kind, seed=swarm.random.randrange(10**6) if kind == "wide" else 0)
        for kind in kinds
    ]
    if "wide" in kinds:
        tools.append(LocalSpec(name="own-wider", kind="wide", seed=swarm.random.randrange(10**6)))
    if swarm.chance(0.2):
        tools.append(LocalSpec(name="echo", kind="says"))
    return tuple(tools)


def _hooks(swarm: Swarm) -> tuple[HookMood, ...]:
    if not swarm.has("hooks", 0.5):
        return ()
    some: tuple[HookMood, ...] = typing.get_args(HookMood)
    return tuple(
        "passes" if swarm.chance(0.8) else swarm.pick(some) for _ in range(swarm.random.randint(1, 4))
    )
