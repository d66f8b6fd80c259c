"""Redaction at every depth: what is named is found wherever it stands, and looking for it comes to an end."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool.tools._redaction import REDACTED_IN_TEXT, RedactionPolicy, RedactionRule, RedactionVerdict
from tests.tools.test_redaction import NAMES, PATHS, RECORDS

HIDDEN = REDACTED_IN_TEXT


def shown(record: Any, **policy: Any) -> Any:
    return RedactionRule(RedactionPolicy(**policy, deep=True)).retain_record(record)


def test_a_name_is_hidden_at_every_depth() -> None:
    record = {"secret": 1, "a": {"secret": {"x": 2}, "rows": [{"secret": 3, "n": 4}, [{"secret": 5}]]}}
    assert shown(record, keys=["secret"]) == {
        "secret": HIDDEN,
        "a": {"secret": HIDDEN, "rows": [{"secret": HIDDEN, "n": 4}, [{"secret": HIDDEN}]]},
    }


def test_patterns_look_at_names_and_at_dotted_paths() -> None:
    record = {"a": {"userToken": 1, "b": {"c": 2}}, "b": {"c": 3}, "rows": [{"c": 4}, {"c": 5}]}
    assert shown(record, patterns=["^userToken$"]) == {**record, "a": {"userToken": HIDDEN, "b": {"c": 2}}}
    assert shown(record, patterns=[r"^b\.c$"]) == {**record, "b": {"c": HIDDEN}}
    assert shown(record, patterns=[r"\.1\.c$"]) == {**record, "rows": [{"c": 4}, {"c": HIDDEN}]}
    assert shown({"a": {"b\n": 1, "b": 2}}, patterns=[r"^a\.b$"]) == {"a": {"b\n": HIDDEN, "b": HIDDEN}}


def test_an_index_is_a_place_and_no_name() -> None:
    record = {"rows": [1, [2]], "0": 3}
    assert shown(record, keys=["0"]) == {"rows": [1, [2]], "0": HIDDEN}
    assert shown(record, patterns=["^0$"]) == {"rows": [1, [2]], "0": HIDDEN}
    assert shown(record, keys=["rows.1"]) == {"rows": [1, HIDDEN], "0": 3}


def test_dotted_keys_are_paths_from_the_top() -> None:
    record = {"a": {"b": {"c": 1}}, "z": {"a": {"b": {"c": 2}}}}
    assert shown(record, keys=["a.b.c"]) == {"a": {"b": {"c": HIDDEN}}, "z": {"a": {"b": {"c": 2}}}}
    assert shown(record, keys=["a.b"]) == {"a": {"b": HIDDEN}, "z": {"a": {"b": {"c": 2}}}}


def test_fields_are_meant_under_their_key_at_every_depth() -> None:
    record = {"auth": {"token": 1}, "x": [{"auth": {"token": 2, "user": 3}}]}
    assert shown(record, fields={"auth": ["token"]}) == {
        "auth": {"token": HIDDEN}, "x": [{"auth": {"token": HIDDEN, "user": 3}}],
    }  # fmt: skip


def test_marks_count_at_every_depth_too() -> None:
    rule = RedactionRule(RedactionPolicy(deep=True))
    rule.mark("city")
    rule.mark("a.b")
    record = {"x": {"city": 1}, "a": {"b": 2, "c": 3}, "y": {"a": {"b": 4}}}
    assert rule.retain_record(record) == {
        "x": {"city": HIDDEN},
        "a": {"b": HIDDEN, "c": 3},
        "y": {"a": {"b": 4}},
    }


def test_only_the_way_to_what_is_hidden_is_copied() -> None:
    record = {"a": {"secret": 1, "keep": {"x": [1]}}, "b": {"c": [2]}, "t": ({"secret": 3}, [4])}
    before = copy.deepcopy(record)
    kept = shown(record, keys=["secret"])
    assert record == before
    assert kept["b"] is record["b"]
    assert kept["a"]["keep"] is record["a"]["keep"]
    assert kept["t"] == ({"secret": HIDDEN}, [4])
    assert kept["t"][1] is record["t"][1]


def test_an_object_that_stands_in_two_places_is_decided_in_each() -> None:
    both = {"v": 1}
    record = {"a": {"x": both}, "b": {"x": both}}
    kept = shown(record, keys=["a.x.v"])
    assert kept == {"a": {"x": {"v": HIDDEN}}, "b": {"x": {"v": 1}}}
    assert kept["b"]["x"] is both


def test_what_contains_itself_ends_in_the_placeholder() -> None:
    loop: dict[str, Any] = {"n": 1}
    loop["again"] = loop
    rows: list[Any] = [1]
    rows.append(rows)
    assert shown({"a": loop, "b": rows}, keys=["secret"]) == {
        "a": {"n": 1, "again": HIDDEN},
        "b": [1, HIDDEN],
    }
    assert loop["again"] is loop


def test_what_nests_too_deeply_ends_in_the_placeholder() -> None:
    deep: Any = {"secret": 1}
    for _ in range(100_000):
        deep = [deep]
    kept = shown({"a": deep, "b": {"c": 1}}, keys=["secret"])
    assert kept["b"] == {"c": 1}
    levels, at = 0, kept["a"]
    while isinstance(at, list):
        levels, (at,) = levels + 1, at
    assert (levels, at) == (128, HIDDEN)
    within: Any = {"secret": 1}
    for _ in range(126):
        within = [within]
    record = {"a": within}
    assert shown(record, keys=["other"]) is record


def test_a_long_path_is_held_against_patterns_up_to_256() -> None:
    name = "n" * 100
    record = {name: {name: {"x" * 53: {"secret": 1}, "x" * 54: {"t": 2}}}}
    assert len(f"{name}.{name}.{'x' * 54}") == 256
    kept = shown(record, patterns=[r"n\.x{53}", r"n\.x{54}$"])
    assert kept == {name: {name: {"x" * 53: HIDDEN, "x" * 54: HIDDEN}}}
    longer = {name: {name: {"x" * 55: {"t": 2}}}}
    assert shown(longer, patterns=[r"n\.x"]) is longer
    assert shown(longer, patterns=[r"^t$"]) == {name: {name: {"x" * 55: {"t": HIDDEN}}}}, "names still count"


class Odd:
    """What is no JSON."""


@pytest.mark.parametrize("value", [Odd(), {1, 2}, object()])
def test_what_cannot_be_looked_into_is_hidden(value: object) -> None:
    assert shown({"a": value, "b": [value], "c": b"raw"}, keys=["x"]) == {
        "a": HIDDEN,
        "b": [HIDDEN],
        "c": b"raw",
    }


@pytest.mark.parametrize(
    "large",
    [[1] * 2_000, [{"id": n} for n in range(2_000)], {f"n{n}": n for n in range(2_000)}],
    ids=range(3),
)
def test_a_used_up_budget_hides_the_argument_and_what_comes_after(
    large: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afpool.tools._redaction.VISITS", 1_000)
    record = {"first": [1, 2], "n": 1, "large": large, "plain": 2, "last": [1]}
    kept = shown(record, keys=["secret"])
    assert kept == {"first": [1, 2], "n": 1, "large": HIDDEN, "plain": 2, "last": HIDDEN}
    assert kept["first"] is record["first"]
    small = {"large": [1] * 999}
    assert shown(small, keys=["secret"]) is small, "every record has a budget of its own"


def test_shared_objects_that_would_be_met_without_end_come_to_one() -> None:
    doubled: Any = {"n": 1}
    for _ in range(64):
        doubled = {"a": doubled, "b": doubled}
    assert shown({"x": doubled, "y": 1}, keys=["secret"]) == {"x": HIDDEN, "y": 1}


def test_one_value_is_retained_at_every_depth() -> None:
    rule = RedactionRule(RedactionPolicy(keys=["secret", "a.b.c"], deep=True))
    assert rule.retain(["x"], {"y": [{"secret": 1}]}) == {"y": [{"secret": HIDDEN}]}
    assert rule.retain(["a"], {"b": {"c": 1, "d": 2}}) == {"b": {"c": HIDDEN, "d": 2}}
    assert rule.retain(["x", "secret", "y"], 1) == HIDDEN


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["x", "secret"], RedactionVerdict("whole", "x.secret")),
        (["x", "secret", "y"], RedactionVerdict("whole", "x.secret")),
        (["x", "auth"], RedactionVerdict("fields", "x.auth", ("token",))),
        (["x", "auth", "token"], RedactionVerdict("whole", "x.auth.token")),
        (["x", "token"], RedactionVerdict("clear")),
    ],
)
def test_verdicts_at_every_depth(path: list[str], expected: RedactionVerdict) -> None:
    rule = RedactionRule(RedactionPolicy(keys=["secret"], fields={"auth": ["token"]}, deep=True))
    assert rule.verdict(path) == expected


POLICIES = st.builds(
    RedactionPolicy,
    keys=st.lists(NAMES | PATHS, max_size=2),
    patterns=st.lists(
        st.sampled_from(["^a$", "(?i)TOKEN", "secret", r"a\.b", "b$", r"^a\..*b$"]), max_size=2
    ),
    deep=st.just(True),
)


def by_verdicts(rule: RedactionRule, value: Any, path: list[str], names: list[str]) -> Any:
    """The same, place by place: a name by itself, or the whole path, decides."""
    plain = RedactionRule(RedactionPolicy(rule.policy.keys, rule.policy.patterns))
    own = bool(names) and plain.verdict([names[-1]]).kind == "whole"
    if path and (own or plain.verdict(path).kind == "whole"):
        return HIDDEN
    if isinstance(value, dict):
        return {key: by_verdicts(rule, member, [*path, key], [*names, key]) for key, member in value.items()}
    if isinstance(value, list):
        return [by_verdicts(rule, member, [*path, str(n)], []) for n, member in enumerate(value)]
    return value


@given(policy=POLICIES, record=RECORDS)
@settings(max_examples=300)
def test_each_place_is_decided_by_its_name_and_its_path(
    policy: RedactionPolicy, record: dict[str, Any]
) -> None:
    rule = RedactionRule(policy)
    before = copy.deepcopy(record)
    kept = rule.retain_record(record)
    assert record == before
    assert kept == by_verdicts(rule, record, [], [])
    assert (kept is record) == (json.dumps(kept) == json.dumps(record))
    assert rule.retain_record(kept) is kept
