"""Stories by chance are the same for the same seed, name only what there is, and reach every kind of step."""

from __future__ import annotations

import json
import typing
from collections import Counter
from typing import Any

import attrs
import pytest

from afpool.testing import Rule
from tests.simulation.faulty_rules import Spot, rule_of
from tests.simulation.generate import generate
from tests.simulation.steps import KINDS, Call, CancelCall, Scripted, Step, Story
from tests.simulation.world import Kind, ServerSpec

SEEDS = range(1500)


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    return [generate(seed) for seed in SEEDS]


def test_the_same_seed_is_the_same_story(stories: list[Story]) -> None:
    for seed in (0, 7, 99):
        assert generate(seed) == stories[seed]
    assert len({str(story) for story in stories}) == len(stories)


def test_every_kind_of_step_is_reached(stories: list[Story]) -> None:
    kinds = Counter(type(step).__name__ for story in stories for step in story.steps)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 3, kinds.most_common()[-5:]


def test_every_variant_of_a_step_is_reached(stories: list[Story]) -> None:
    seen: dict[tuple[str, str], set[Any]] = {}
    for story in stories:
        for step in story.steps:
            for field in attrs.fields(type(step)):
                seen.setdefault((type(step).__name__, field.name), set()).add(
                    _hashable(getattr(step, field.name))
                )
    missing = [
        (name, member, value)
        for name, kind in KINDS.items()
        for member, hint in typing.get_type_hints(kind).items()
        if typing.get_origin(hint) is typing.Literal
        for value in typing.get_args(hint)
        if value not in seen[name, member]
    ]
    assert missing == []


def _hashable(value: Any) -> Any:
    return value if isinstance(value, typing.Hashable) else json.dumps(value, sort_keys=True)


def test_stories_name_what_there_is(stories: list[Story]) -> None:
    for story in stories:
        people = {person.name for person in story.world.people} | {"nobody", None}
        servers = {server.name: server for server in story.world.servers}
        service = story.world.service
        behind = () if service is None else tuple(each.name for each in service.behind)
        calls = {step.id for step in story.steps if isinstance(step, Call)}
        assert [step.at for step in story.steps] == sorted(step.at for step in story.steps)
        for step in story.steps:
            assert getattr(step, "who", None) in people
            assert getattr(step, "caller", None) in people
            assert getattr(step, "server", None) in {*servers, *behind, None}
            if isinstance(step, CancelCall):
                assert step.call in calls
            if isinstance(step, Call):
                assert step.tool in {tool.name for tool in servers[step.server].tools}


def test_size_makes_stories_longer() -> None:
    small = sum(len(generate(seed, 0.3).steps) for seed in range(30))
    large = sum(len(generate(seed, 3.0).steps) for seed in range(30))
    assert small * 3 < large


@pytest.mark.parametrize("kind", typing.get_args(Kind))
def test_a_scripted_fault_is_a_rule_wherever_it_means_something(kind: Any, stories: list[Story]) -> None:
    spot = Spot(
        spec=ServerSpec(name="a", kind=kind),
        whose=lambda arrival, who: arrival.headers.get("x-who") == who,
        url="http://a.test/mcp",
        elsewhere="http://b.test/mcp",
        unix_now=lambda: 1.8e9,
        max_message=8192,
    )
    found: Counter[str] = Counter()
    for story in stories:
        for step in story.steps:
            if isinstance(step, Scripted):
                rule = rule_of(step, spot)
                assert rule is None or isinstance(rule, Rule)
                found[f"{type(step).__name__} {rule is not None}"] += 1
    everywhere = {"DropNext", "TruncateAnswer", "HangNext", "DelayNext", "RpcErrorNext", "InputNext"}
    assert all(found[f"{name} True"] and not found[f"{name} False"] for name in everywhere)
    assert bool(found["CloseFrameNext True"]) == (kind == "websocket")
    assert bool(found["StatusNext False"]) == (kind in {"stdio", "memory", "websocket"})


def test_whose_rule_it_is() -> None:
    step: Step = KINDS["HangNext"](at=0.0, server="a", who="alice")
    assert isinstance(step, Scripted)
    spot = Spot(
        spec=ServerSpec(name="a"), whose=lambda _arrival, who: who == "bob", url="http://a.test/mcp",
        elsewhere="", unix_now=lambda: 0.0,
    )  # fmt: skip
    rule = rule_of(step, spot)
    assert rule is not None
    assert rule.when is not None
    assert not rule.when(None)  # type: ignore[arg-type]
