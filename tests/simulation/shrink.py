"""Make a story that fails as short and plain as it can be while it still fails.

`fails` runs a story and says whether it still breaks the same rule. In turns, until nothing helps any more or
time is up:

1. Leave steps out: halves first, then ever smaller pieces (delta debugging), then single ones.
2. Leave out servers and people, with the steps that name them.
3. Put members of the world and of steps back to their defaults: limits, manners, weather, deadlines.
4. Move steps to rounder, earlier times, and make what they wait for shorter.

Every candidate is a story of its own that anybody could have written; order and names stay. `fails` decides
what counts as the same failure, so that one fault does not turn into another on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from tests.simulation.plain import default_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.steps import Step, Story
    from tests.simulation.world import World

T = TypeVar("T")
Fails: TypeAlias = Callable[["Story"], bool]


class TimeIsUp(Exception):
    """No candidate is tried any more."""


class Shrinker:
    """One shrinking.

    Attributes:
        story: The smallest one that failed so far.
        tried: How many candidates were run.
    """

    def __init__(self, story: Story, fails: Fails, seconds: float, clock: Callable[[], float]) -> None:
        self.story = story
        self.tried = 0
        self._fails = fails
        self._clock = clock
        self._until = clock() + seconds
        self._known: set[str] = {repr(story)}

    def attempt(self, story: Story) -> bool:
        """Take a candidate if it fails. Raises TimeIsUp."""
        text = repr(story)
        if text in self._known:
            return False
        self._known.add(text)
        if self._clock() >= self._until:
            raise TimeIsUp
        self.tried += 1
        if not self._fails(story):
            return False
        self.story = story
        return True

    def run(self) -> None:
        """Shrink until nothing helps any more."""
        while True:
            before = self.story
            self._fewer_steps()
            self._greedily(fewer_names)
            self._greedily(plainer_world)
            self._greedily(plainer_steps)
            self._greedily(rounder_times)
            if self.story == before:
                return

    def _fewer_steps(self) -> None:
        size = max(1, len(self.story.steps) // 2)
        while self.story.steps:
            start = 0
            while start < len(self.story.steps):
                steps = self.story.steps
                if not self.attempt(attrs.evolve(self.story, steps=steps[:start] + steps[start + size :])):
                    start += size
            if size == 1:
                return
            size = max(1, size // 2)

    def _greedily(self, simpler: Callable[[Story], Iterator[Story]]) -> None:
        """Take candidates as long as there is one that fails."""
        while any(self.attempt(candidate) for candidate in simpler(self.story)):
            pass


def shrink(
    story: Story,
    fails: Fails,
    *,
    seconds: float = 60.0,
    say: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Story:
    """Shrink a story.

    Args:
        story: It fails.
        fails: Runs a story and says whether it fails in the same way.
        seconds: How long to try, on `clock`.
        say: Is told how it went.
        clock: The clock.

    Returns:
        The smallest story found; the one given where nothing smaller fails.
    """
    shrinker = Shrinker(story, fails, seconds, clock)
    how = "nothing more can be left out"
    try:
        shrinker.run()
    except TimeIsUp:
        how = f"the {seconds:g} s for it are over"
    if say is not None:
        found = shrinker.story
        say(f"{len(story.steps)} steps became {len(found.steps)} in {shrinker.tried} runs; {how}")
    return shrinker.story


# ------------------------------------------------------------------------------------------ candidates


def fewer_names(story: Story) -> Iterator[Story]:
    """Without one server, or one person, and without the steps that need them."""
    world = story.world
    for server in world.servers if len(world.servers) > 1 else ():
        rest = tuple(other for other in world.servers if other is not server)
        steps = tuple(step for step in story.steps if getattr(step, "server", None) != server.name)
        yield attrs.evolve(story, world=attrs.evolve(world, servers=rest), steps=steps)
    for person in world.people if len(world.people) > 1 else ():
        others = tuple(other for other in world.people if other is not person)
        steps = tuple(step for step in story.steps if person.name not in _people(step))
        yield attrs.evolve(
            story, world=_without(attrs.evolve(world, people=others), person.name), steps=steps
        )


def _people(step: Step) -> set[Any]:
    return {getattr(step, name, None) for name in ("who", "caller", "only_for")}


def _without(world: World, name: str) -> World:
    servers = tuple(
        attrs.evolve(
            server,
            leads={who: place for who, place in server.leads.items() if who != name},
            share={who: role for who, role in server.share.items() if who != name},
        )
        for server in world.servers
    )
    return attrs.evolve(world, servers=servers)


def plainer_world(story: Story) -> Iterator[Story]:
    """With one thing about the world as by default."""
    world = story.world
    for candidate in _plainer(world, skip=("people", "servers", "limits")):
        yield attrs.evolve(story, world=candidate)
    for name in world.limits:
        limits = {other: value for other, value in world.limits.items() if other != name}
        yield attrs.evolve(story, world=attrs.evolve(world, limits=limits))
    for index, server in enumerate(world.servers):
        for plain in _plainer(server, skip=("name", "tools")):
            yield attrs.evolve(story, world=attrs.evolve(world, servers=_put(world.servers, index, plain)))
        used = {
            getattr(step, "tool", None) for step in story.steps if getattr(step, "server", 0) == server.name
        }
        tools = tuple(tool for tool in server.tools if tool.name in used) or server.tools[:1]
        fewer = attrs.evolve(server, tools=tools)
        yield attrs.evolve(story, world=attrs.evolve(world, servers=_put(world.servers, index, fewer)))


_LASTING: Final = ("at", "id", "who", "server", "tool", "call")


def plainer_steps(story: Story) -> Iterator[Story]:
    """With one member of one step as by default."""
    for index, step in enumerate(story.steps):
        for plain in _plainer(step, skip=_LASTING):
            yield attrs.evolve(story, steps=_put(story.steps, index, plain))
        if getattr(step, "args", None):
            for name in step.args:  # type: ignore[attr-defined]
                args = {other: value for other, value in step.args.items() if other != name}  # type: ignore[attr-defined]
                yield attrs.evolve(story, steps=_put(story.steps, index, attrs.evolve(step, args=args)))


def _plainer(thing: T, skip: Sequence[str]) -> Iterator[T]:
    """A frozen object with one member after the other as by default; of a member with members, one of its."""
    for field in attrs.fields(type(thing)):  # type: ignore[arg-type]
        default, value = default_of(field), getattr(thing, field.name)
        if field.name in skip or default is attrs.NOTHING or value == default:
            continue
        yield attrs.evolve(thing, **{field.name: default})  # type: ignore[type-var]
        if attrs.has(type(value)):
            for plain in _plainer(value, ()):
                yield attrs.evolve(thing, **{field.name: plain})  # type: ignore[type-var]


def rounder_times(story: Story) -> Iterator[Story]:
    """With everything earlier, or one time rounder or shorter. The order of steps stays."""
    steps = story.steps
    if steps and steps[0].at > 0:
        first = steps[0].at
        yield attrs.evolve(
            story, steps=tuple(attrs.evolve(step, at=round(step.at - first, 6)) for step in steps)
        )
    for index, step in enumerate(steps):
        earliest = steps[index - 1].at if index else 0.0
        latest = steps[index + 1].at if index + 1 < len(steps) else step.at
        for at in (earliest, round(step.at), round(step.at, 1), round(step.at, 2)):
            if earliest <= at <= latest and at != step.at:
                yield attrs.evolve(story, steps=_put(steps, index, attrs.evolve(step, at=float(at))))
        if index and step.at - earliest > 1:
            # a long silence becomes a shorter one, for all that follow
            gap = (step.at - earliest) / 2
            moved = tuple(attrs.evolve(later, at=round(later.at - gap, 6)) for later in steps[index:])
            yield attrs.evolve(story, steps=steps[:index] + moved)


def _put(row: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*row[:index], value, *row[index + 1 :])
