"""What a record may show of a call: the tool's own view of its arguments, and the names that differ."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool._base.model import ToolContext
from afpool.tools._derive import binding_of, derive
from afpool.tools._redaction import RedactionPolicy
from afpool.tools._shown import (
    args_redacted_by,
    carries_argument_view,
    changed_arg_keys,
    redacted,
    shown_args_of,
    with_argument_view,
)
from tests.pool.kit import ALICE, world
from tests.tools.recording import Recording

POLICY = RedactionPolicy(keys=["password"], patterns=["(?i)token"], fields={"auth": ["pin"]})


class Plain(Recording):
    """A tool whose arguments are shown somewhere."""

    def __init__(self) -> None:
        super().__init__({"type": "object", "properties": {"city": {"type": "string"}}})


# -- the view of a policy


def test_the_view_of_a_policy_gives_the_same_object_where_nothing_is_hidden() -> None:
    view = args_redacted_by(POLICY)
    args = {"city": "Ulm", "days": 3, "auth": {"user": 1}}
    assert view(args) is args


def test_the_view_of_a_policy_says_redacted() -> None:
    args = {"city": "Ulm", "password": None, "myToken": {"x": 1}, "auth": {"pin": 1, "user": 2}}
    before = copy.deepcopy(args)
    assert args_redacted_by(POLICY)(args) == {
        "city": "Ulm", "password": "REDACTED", "myToken": "REDACTED", "auth": {"pin": "REDACTED", "user": 2},
    }  # fmt: skip
    assert args == before


def test_no_call_leaves_anything_behind_for_the_next() -> None:
    view = args_redacted_by(POLICY)
    view({"password": "Ulm", "city": 1})
    args = {"city": "Ulm", "name": "password"}
    assert view(args) is args


def test_a_view_needs_a_policy() -> None:
    with pytest.raises(TypeError, match="by a RedactionPolicy, not dict"):
        args_redacted_by({"keys": ["password"]})  # type: ignore[arg-type]


# -- the view of a tool


def test_a_tool_without_a_view_shows_its_arguments_themselves() -> None:
    args = {"password": 1}
    for tool in (Plain(), None, "plain", 3, object()):
        assert not carries_argument_view(tool)
        assert shown_args_of(tool, args) is args


def test_a_tool_with_a_view_shows_what_the_view_gives() -> None:
    tool = with_argument_view(Plain(), lambda args: {"keys": len(args)})
    assert carries_argument_view(tool)
    assert shown_args_of(tool, {"a": 1, "b": 2}) == {"keys": 2}


def test_a_view_that_is_no_function_is_none() -> None:
    tool = derive(Plain(), facts={"argument-view": "REDACTED"})
    assert not carries_argument_view(tool)
    args = {"a": 1}
    assert shown_args_of(tool, args) is args


async def test_the_tool_runs_with_the_real_values() -> None:
    plain = Plain()
    tool = redacted(plain, POLICY)
    args = {"password": "s", "city": "Ulm"}
    await tool.execute(args, ToolContext(call_id="c"))
    assert plain.given == [args]
    assert plain.given[0] is args


def test_a_view_is_seen_by_nobody_but_whoever_asks_for_it() -> None:
    plain = Plain()
    tool = redacted(plain, RedactionPolicy(keys=["password"]))
    assert not carries_argument_view(plain), "the base stays as it was"
    assert (tool.name, tool.description, tool.input_schema) == (
        plain.name,
        plain.description,
        plain.input_schema,
    )
    assert "password" not in repr(tool)


def test_decorations_add_up() -> None:
    tool = redacted(redacted(Plain(), RedactionPolicy(keys=["a"])), RedactionPolicy(keys=["b"]))
    args = {"a": 1, "b": 2, "c": 3}
    assert shown_args_of(tool, args) == {"a": "REDACTED", "b": "REDACTED", "c": 3}
    clear = {"c": 3}
    assert shown_args_of(tool, clear) is clear
    seen: list[Any] = []
    tool = with_argument_view(
        redacted(Plain(), RedactionPolicy(keys=["a"])), lambda args: seen.append(args) or args
    )
    assert shown_args_of(tool, args) == {"a": "REDACTED", "b": 2, "c": 3}
    assert seen == [{"a": "REDACTED", "b": 2, "c": 3}], "a later view never sees what an earlier one hid"


def test_a_view_survives_other_derivations() -> None:
    tool = derive(redacted(Plain(), POLICY), name="other", facts={"x": 1})
    assert shown_args_of(tool, {"password": 1}) == {"password": "REDACTED"}


async def test_a_bound_tool_keeps_its_binding() -> None:
    async with world() as here:
        bound = (await here.pool.tools(ALICE))["echo"]
        tool = with_argument_view(redacted(bound, POLICY), lambda args: args)
        assert binding_of(tool) is bound.binding
        assert not carries_argument_view(bound)
        result = await tool.execute({"text": "hi"}, ToolContext(identity=ALICE))
        assert result.text == '{"text": "hi"}'


# -- what fails


class Unreadable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("hunter2")

    def __len__(self) -> int:
        return 1


async def _late(args: Any) -> Any:
    return args


@pytest.mark.parametrize(
    "view",
    [
        lambda args: 1 / 0,
        lambda args: args["gone"],
        lambda args: None,
        list,
        lambda args: "all clear",
        lambda args: _late([args]),
        lambda args: (_ for _ in ()).throw(RecursionError),
    ],
)
def test_a_view_that_fails_hides_every_key(view: Any, caplog: pytest.LogCaptureFixture) -> None:
    args = {"password": "hunter2", "city": "Ulm", "nested": {"a": "hunter2"}}
    with caplog.at_level(logging.DEBUG, "afpool"):
        shown = shown_args_of(with_argument_view(Plain(), view), args)
    assert shown == dict.fromkeys(args, "REDACTED")
    assert args["city"] == "Ulm"
    assert "shows none of them" in caplog.text
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(shown)


def test_a_view_that_fails_under_another_hides_every_key() -> None:
    for broken in (lambda args: 1 / 0, lambda args: None, list):
        tool = with_argument_view(with_argument_view(Plain(), broken), lambda args: {"all": "clear"})
        assert shown_args_of(tool, {"a": 1}) == {"a": "REDACTED"}


@pytest.mark.parametrize(("beneath", "above"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
def test_a_coroutine_instead_of_a_view_is_closed_wherever_it_stands(
    beneath: int, above: int, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Any] = []

    def late(args: Any) -> Any:
        given.append(_late(args))
        return given[0]

    tool: Any = Plain()
    for _ in range(beneath):
        tool = with_argument_view(tool, lambda args: args)
    tool = with_argument_view(tool, late)
    for _ in range(above):
        tool = with_argument_view(tool, lambda args: {"all": "clear"})
    assert shown_args_of(tool, {"a": 1}) == {"a": "REDACTED"}
    assert inspect.getcoroutinestate(given[0]) == inspect.CORO_CLOSED
    assert "it gave coroutine" in caplog.text


@pytest.mark.parametrize("args", [None, [], ["password"], "password", 3])
def test_arguments_that_are_no_mapping(args: Any) -> None:
    assert shown_args_of(redacted(Plain(), POLICY), args) is args
    assert shown_args_of(with_argument_view(Plain(), lambda _: 1 / 0), args) == {}


def test_arguments_that_cannot_be_read_show_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert shown_args_of(redacted(Plain(), POLICY), Unreadable()) == {}
    assert "hunter2" not in caplog.text


def test_names_that_are_no_json_hide_everything() -> None:
    assert shown_args_of(redacted(Plain(), POLICY), {(1, 2): "s", "a": 1}) == {
        "<tuple>": "REDACTED",
        "a": "REDACTED",
    }


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(args: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shown_args_of(with_argument_view(Plain(), interrupted), {})


class AsyncView:
    async def __call__(self, args: Any) -> Any:
        return args


@pytest.mark.parametrize(
    ("view", "says"),
    [(None, "is a function, not NoneType"), (_late, "synchronously"), (AsyncView(), "synchronously")],
)
def test_what_is_no_view_is_refused_where_it_is_given(view: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        with_argument_view(Plain(), view)


def test_only_tools_are_decorated() -> None:
    with pytest.raises(TypeError, match="only a tool can be derived from, not str"):
        redacted("plain", POLICY)  # type: ignore[arg-type]


# -- the names that differ


def test_one_object_differs_in_nothing() -> None:
    args = {"a": float("nan")}
    assert changed_arg_keys(args, args) == ()


def test_set_rewritten_removed_and_hidden_in_order() -> None:
    nested = {"x": 1}
    proposal = {"gone": 1, "kept": nested, "rewritten": "a", "password": "s", "same": "text"}
    shown = {"new2": 1, "kept": nested, "rewritten": "b", "password": "REDACTED", "same": "text", "new1": 2}
    assert changed_arg_keys(proposal, shown) == ("gone", "rewritten", "password", "new2", "new1")


def test_a_nested_value_that_was_built_anew_counts_as_changed() -> None:
    kept = [1]
    proposal = {"a": {"x": 1}, "b": kept, "c": (1,)}
    assert changed_arg_keys(proposal, {**proposal, "a": {"x": 1}}) == ("a",)
    assert changed_arg_keys(proposal, {**proposal}) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), (1, 1.0), ("1", 1), (None, 0), (None, ""), ("", False), ({}, []), (1, 2)],
)
def test_kinds_are_told_apart(one: object, other: object) -> None:
    assert changed_arg_keys({"a": one}, {"a": other}) == ("a",)
    assert changed_arg_keys({"a": other}, {"a": one}) == ("a",)


@pytest.mark.parametrize("value", ["x" * 3000, 10**30, 2.5, -0.0, "é"])
def test_plain_values_are_compared_by_value(value: Any) -> None:
    twin = "".join(list(value)) if isinstance(value, str) else type(value)(str(value))
    assert changed_arg_keys({"a": value}, {"a": twin}) == ()


def test_nan_is_never_the_same() -> None:
    nan = float("nan")
    assert changed_arg_keys({"a": nan}, {"a": nan}) == ("a",)


def test_an_added_none_is_an_added_argument() -> None:
    assert changed_arg_keys({}, {"a": None}) == ("a",)
    assert changed_arg_keys({"a": None}, {}) == ("a",)


def test_what_is_no_mapping_has_no_names() -> None:
    assert changed_arg_keys(None, {"a": 1}) == ("a",)
    assert changed_arg_keys({"a": 1}, [1]) == ("a",)
    assert changed_arg_keys(None, []) == ()


def test_the_names_are_plain_strings_apart_from_both_objects() -> None:
    class Name(str):
        __slots__ = ("secret",)

    name = Name("a")
    name.secret = "s"
    (told,) = changed_arg_keys({name: 1}, {})
    assert type(told) is str
    assert changed_arg_keys({1: 1, (2,): 2}, {}) == ("1", "<tuple>")


VALUES = st.none() | st.booleans() | st.integers(-1, 1) | st.sampled_from(["", "a", "s" * 40]) | st.floats()
ARGS = st.dictionaries(st.sampled_from("abcdef"), VALUES | st.lists(VALUES, max_size=2), max_size=5)


@given(proposal=ARGS, runs=ARGS, keys=st.sets(st.sampled_from("abcdef"), max_size=3))
def test_whatever_differs_is_named_and_no_value_is(proposal: Any, runs: Any, keys: set[str]) -> None:
    shown = shown_args_of(redacted(Plain(), RedactionPolicy(keys=keys)), runs)
    changed = changed_arg_keys(proposal, shown)
    for key in set(proposal) | set(shown):
        same = key in proposal and key in shown and repr(proposal[key]) == repr(shown[key])
        assert same or key in changed
    assert set(changed) <= set(proposal) | set(shown)
    assert len(set(changed)) == len(changed)
    order = [*proposal, *(key for key in shown if key not in proposal)]
    assert list(changed) == [key for key in order if key in changed]
