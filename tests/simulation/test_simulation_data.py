"""Worlds, steps and stories survive their JSON form, and what is no such form is refused."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.plain import from_plain
from tests.simulation.steps import (
    FAULTS,
    KINDS,
    Call,
    ListTools,
    Story,
    describe,
    step_from_json,
    step_to_json,
)
from tests.simulation.world import Person, ServerSpec, World

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
NUMBERS = st.integers(-5, 2000).map(lambda whole: whole / 8)


def of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type as the fields of worlds and steps use them."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return st.lists(of_hint(inner[0]), max_size=3).map(tuple)
    if origin is Mapping:
        values = st.integers() | TEXTS if inner[1] is Any else of_hint(inner[1])
        return st.dictionaries(TEXTS, values, max_size=3)
    if inner:
        return st.one_of([st.none() if one is type(None) else of_hint(one) for one in inner])
    if attrs.has(hint):
        return of_class(hint)
    return {str: TEXTS, int: st.integers(-9, 9), float: NUMBERS, bool: st.booleans()}[hint]


def of_class(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: of_hint(hints[field.name]) for field in attrs.fields(kind)})


STEPS = st.sampled_from(sorted(KINDS)).flatmap(lambda name: of_class(KINDS[name]))
STORIES = st.builds(Story, of_class(World), st.lists(STEPS, max_size=4).map(tuple), st.integers(0), TEXTS)


@given(STORIES)
@settings(max_examples=60)
def test_a_story_is_what_its_file_says(story: Story) -> None:
    text = json.dumps(story.to_json())
    assert Story.from_json(json.loads(text)) == story
    assert len(str(story).splitlines()) >= len(story.steps)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_of_step_has_a_form(name: str) -> None:
    @given(of_class(KINDS[name]))
    @settings(max_examples=10)
    def one(step: Any) -> None:
        assert step_from_json(json.loads(json.dumps(step_to_json(step)))) == step
        assert name in describe(step)

    one()


def test_only_what_is_special_is_written() -> None:
    call = Call(at=1.5, id="c1", who="alice", server="files", tool="echo", args={"n": 1})
    expected = {"do": "Call", "at": 1.5, "id": "c1", "who": "alice", "server": "files", "tool": "echo"}
    assert step_to_json(call) == {**expected, "args": {"n": 1}}
    assert describe(call) == "    1.500 Call id=c1 who=alice server=files tool=echo args={n:1}"
    assert ServerSpec(name="a") == from_plain(ServerSpec, {"name": "a"})


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"do": "Call", "at": 1}, "missing"),
        ({"do": "Fly", "at": 1}, "no step 'Fly'"),
        ({"at": 1}, "no step None"),
        ({"do": "CutLink", "at": 1, "server": "a", "wich": "all"}, "no wich"),
        ({"do": "CutLink", "at": 1, "server": "a", "which": "some"}, "one of"),
        ({"do": "CutLink", "at": True, "server": "a"}, "at"),
        ({"do": "CutLink", "at": 1, "server": "a", "after": "7"}, "after"),
        ({"do": "CutLink", "at": 1, "server": "a", "place": "7"}, "place"),
    ],
)
def test_what_is_no_step_is_refused(plain: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        step_from_json(plain)


def test_a_story_of_another_format_is_refused() -> None:
    story = Story(World(people=(Person(name="alice"),), servers=()), (ListTools(at=0.0, who="alice"),))
    with pytest.raises(ValueError, match="format 0"):
        Story.from_json({**story.to_json(), "format": 0})


def test_every_step_is_work_of_the_host_or_a_fault() -> None:
    assert len(FAULTS) >= 25
    assert "CutLink" in FAULTS
    assert "Call" not in FAULTS
