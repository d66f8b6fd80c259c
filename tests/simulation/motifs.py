"""What motifs are made with: a scene knows the world, who is on stage, and when things happen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.simulation.making import SLOW
from tests.simulation.steps import Call, Step

if TYPE_CHECKING:
    from tests.simulation.making import Swarm
    from tests.simulation.world import ServerSpec, World

Motif: TypeAlias = Callable[["Scene"], list[Step]]


class Scene:
    """Hands out names and times. One pair of person and server is hot: half of all that happens befalls it.

    Attributes:
        swarm: Chance.
        world: The world.
        span: Seconds of the busy part.
    """

    def __init__(self, swarm: Swarm, world: World, span: float) -> None:
        self.swarm = swarm
        self.world = world
        self.span = span
        self._numbers = itertools.count(1)
        self._hot = (swarm.pick(world.people).name, swarm.pick(world.servers))

    def when(self) -> float:
        """A time of the busy part."""
        return round(self.swarm.random.random() * self.span, 3)

    def after(self, at: float, most: float = 1.0) -> float:
        """A time soon after another one: in the same step, within a moment, or within `most` seconds."""
        share = self.swarm.random.random()
        gap = 0.0 if share < 0.2 else share * 0.01 if share < 0.5 else share * most
        return round(at + gap, 4)

    def number(self) -> int:
        """A number that was not used yet."""
        return next(self._numbers)

    def pair(self, fits: Callable[[ServerSpec], bool] | None = None) -> tuple[str, ServerSpec] | None:
        """Somebody and a server that fits; None where no server does."""
        who, server = self._hot
        if self.swarm.chance(0.5) and (fits is None or fits(server)):
            return who, server
        fitting = [server for server in self.world.servers if fits is None or fits(server)]
        if not fitting:
            return None
        return self.swarm.pick(self.world.people).name, self.swarm.pick(fitting)

    def some_pair(self) -> tuple[str, ServerSpec]:
        """Somebody and a server."""
        pair = self.pair()
        assert pair is not None
        return pair

    def pair_that_resumes(self) -> tuple[str, ServerSpec] | None:
        """Somebody and a server with streams as answers, rather of an era that takes them up again."""
        may = self.pair(
            lambda server: (
                _streams(server)
                and server.era != "stateless"
                and server.way.version in {"", "2025-06-18", "2025-11-25"}
            )
        )
        return may or self.pair(_streams)

    def others(self, who: str) -> list[str]:
        """Everybody else."""
        return [person.name for person in self.world.people if person.name != who]

    def place(self, server: ServerSpec) -> int | None:
        """A place of a server, or all."""
        return None if self.swarm.chance(0.6) else self.swarm.random.randrange(server.places)

    def tool(self, server: ServerSpec, *kinds: str) -> str:
        """A tool of one of these kinds, or any."""
        names = [tool.name for tool in server.tools if tool.kind in kinds]
        if not names:
            names = [tool.name for tool in server.tools if tool.kind != "strange"]
        return self.swarm.pick(names)

    def call(self, at: float, who: str, server: ServerSpec, *kinds: str, **members: Any) -> Call:
        """A call of a tool of one of these kinds, where the server has one, with arguments that fit it."""
        tool = members.pop("tool", None) or self.tool(server, *kinds)
        members.setdefault("args", self.arguments(server, tool))
        if "progress" not in members and self.swarm.has("progress", 0.4) and self.swarm.chance(0.3):
            members["progress"] = "raises" if self.swarm.chance(0.3) else "takes"
        if "live" not in members and self.swarm.has("live identities", 0.5):
            members["live"] = self.swarm.chance(0.4)
        number = f"c{self.number()}"
        if self.swarm.has("long ids", 0.08) and self.swarm.chance(0.4):
            number += f"-{'0' * 70}"
        return Call(id=number, at=at, who=who, server=server.name, tool=tool, **members)

    def arguments(self, server: ServerSpec, tool: str) -> dict[str, Any]:
        """Arguments that a tool makes something of."""
        kind = next((spec.kind for spec in server.tools if spec.name == tool), "echo")
        swarm = self.swarm
        if kind == "sleep":
            return {"seconds": swarm.seconds(0.01, 8 if self.span > 1 else 1)}
        if kind in {"progress", "chatty"}:
            return {"steps": swarm.random.randint(1, 5), "seconds": swarm.pick([0, 0, 0.05, 0.5])}
        weather = self.world.weather
        # What is long takes minutes of simulated time there, at a real cost, and shows nothing but patience.
        narrow = weather.buffer <= SLOW or 0 < weather.piece < 100
        if kind == "big":
            return {"size": swarm.pick([1000, 9000] if narrow else [1000, 9000, 40000])}
        if kind == "ask":
            methods = [
                "elicitation/create",
                "sampling/createMessage",
                "roots/list",
                "elicitation-url",
                "unknown",
            ]
            return {"method": swarm.pick(methods)}
        if kind == "rounds":
            return {"rounds": swarm.pick([1, 1, 2, 3, 12])}
        if kind == "structured":
            return swarm.pick([{}, {}, {"bad": True}, {"none": True}, {"size": 9000 if narrow else 90_000}])
        return {"pad": swarm.pick([3000, 9000 if narrow else 70000])} if swarm.chance(0.05) else {}

    def binding(self) -> Any:
        """Which of the bound tools in hand a call holds."""
        return self.swarm.weighted({"latest": 6, "first": 2, "previous": 1, "listed": 2})

    def calls(self, at: float, who: str, server: ServerSpec, count: int, most: float = 0.5) -> list[Step]:
        """Some calls around a time."""
        return [self.call(self.after(at, most), who, server, binding=self.binding()) for _ in range(count)]


def _streams(server: ServerSpec) -> bool:
    return server.over_http and server.kind != "sse"


def flat(*parts: Step | Sequence[Step]) -> list[Step]:
    """Steps and lists of steps as one list."""
    steps: list[Step] = []
    for part in parts:
        steps += [part] if isinstance(part, Step) else part
    return steps
