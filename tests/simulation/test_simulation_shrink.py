"""A story that fails becomes short and plain, and still fails."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.simulation.generate import generate
from tests.simulation.shrink import shrink
from tests.simulation.steps import Call, KillKey, Step, Story
from tests.simulation.world import Person, ServerSpec, Weather, World


def failing(condition: Any) -> tuple[Any, list[Story]]:
    seen: list[Story] = []

    def fails(story: Story) -> bool:
        seen.append(story)
        return bool(condition(story))

    return fails, seen


def kills_under_a_call(story: Story) -> bool:
    """Somebody's key is killed after a call of the same server, in a world of few places."""
    kinds: list[Step] = list(story.steps)
    for kill in kinds:
        if isinstance(kill, KillKey):
            before = kinds[: kinds.index(kill)]
            if any(isinstance(step, Call) and step.server == kill.server for step in before):
                return True
    return False


def test_what_does_not_matter_is_left_out() -> None:
    story = next(story for story in map(generate, itertools.count()) if kills_under_a_call(story))
    fails, seen = failing(kills_under_a_call)
    said: list[str] = []
    small = shrink(story, fails, say=said.append)
    assert kills_under_a_call(small)
    assert [type(step).__name__ for step in small.steps] == ["Call", "KillKey"]
    call, kill = small.steps
    assert isinstance(call, Call)
    assert (call.at, kill.at, call.deadline, call.live, dict(call.args)) == (0.0, 0.0, None, False, {})
    assert len(small.world.servers) == 1
    assert len(small.world.people) <= 2
    assert small.world.weather == Weather()
    assert small.world.limits == {}
    assert small.seed == story.seed
    assert said == [f"{len(story.steps)} steps became 2 in {len(seen)} runs; nothing more can be left out"]
    assert len(set(map(repr, seen))) == len(seen), "a candidate was run twice"


def test_what_matters_stays() -> None:
    world = World(
        people=(Person(name="alice"), Person(name="bob")),
        servers=(ServerSpec(name="a", kind="sse"), ServerSpec(name="b", share={"alice": "x", "bob": "y"})),
        limits={"max_operations": 1, "deadline": 3.0},
        weather=Weather(latency=0.2, piece=7),
    )
    calls = tuple(
        Call(at=float(turn), id=f"c{turn}", who=who, server="b", tool="echo", deadline=2.0)
        for turn, who in enumerate(["alice", "bob", "alice"])
    )
    story = Story(world, calls, 5)

    def both(story: Story) -> bool:
        asked = {step.who for step in story.steps if isinstance(step, Call) and step.deadline}
        return (
            asked == {"alice", "bob"}
            and "max_operations" in story.world.limits
            and story.world.weather.piece == 7
        )

    fails, _ = failing(both)
    small = shrink(story, fails)
    assert both(small)
    assert len(small.steps) == 2
    assert [server.name for server in small.world.servers] == ["b"]
    assert small.world.servers[0].share == {}
    assert small.world.limits == {"max_operations": 1}
    assert small.world.weather == Weather(piece=7)


def test_a_person_takes_what_is_said_of_them_along() -> None:
    server = ServerSpec(name="a", leads={"alice": 1, "bob": 1}, share={"bob": "x"}, places=2)
    world = World(people=(Person(name="alice"), Person(name="bob")), servers=(server,))
    story = Story(world, ())
    fails, _ = failing(lambda story: story.world.servers[0].leads)
    small = shrink(story, fails)
    assert len(small.world.people) == 1
    assert set(small.world.servers[0].leads) == {small.world.people[0].name}


def test_it_ends_when_its_time_is_over() -> None:
    story = generate(3)
    ticks = itertools.count()
    fails, seen = failing(lambda story: True)
    said: list[str] = []
    shrink(story, fails, seconds=5, clock=lambda: float(next(ticks)), say=said.append)
    assert len(seen) == 4
    assert "the 5 s for it are over" in said[0]


def test_a_story_that_cannot_be_smaller_stays() -> None:
    story = generate(4)
    fails, _ = failing(lambda candidate: candidate == story)
    assert shrink(story, fails) == story


@pytest.mark.parametrize("seed", range(5))
def test_candidates_stay_in_order(seed: int) -> None:
    story = generate(seed)
    fails, seen = failing(lambda story: len(story.steps) >= 5)
    small = shrink(story, fails, seconds=20)
    assert len(small.steps) == 5
    for candidate in seen:
        assert [step.at for step in candidate.steps] == sorted(step.at for step in candidate.steps)
        assert all(step.at >= 0 for step in candidate.steps)
        assert Story.from_json(candidate.to_json()) == candidate
