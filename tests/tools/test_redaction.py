"""What a redaction policy hides: by name, whole or inside, without a trace in what it was given."""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afpool.tools import _redaction_names
from afpool.tools._redaction import (
    CLEAR,
    REDACTED,
    REDACTED_IN_TEXT,
    RedactionPolicy,
    RedactionRule,
    RedactionVerdict,
)

HIDDEN = REDACTED_IN_TEXT


def shown(record: Any, **policy: Any) -> Any:
    return RedactionRule(RedactionPolicy(**policy)).retain_record(record)


# -- keys, patterns, fields


def test_what_says_whole_says_so() -> None:
    assert repr(_redaction_names.WHOLE) == "WHOLE"


def test_keys_hide_exact_names_and_nothing_else() -> None:
    record = {"apiKey": "s", "apikey": "a", "apiKeys": "b", "key": 1}
    assert shown(record, keys=["apiKey"]) == {**record, "apiKey": HIDDEN}


def test_patterns_are_searched_for_anywhere_with_their_own_flags() -> None:
    record = {"myToken1": 1, "TOKEN": 2, "tok": 3}
    assert shown(record, patterns=["oken"]) == {"myToken1": HIDDEN, "TOKEN": 2, "tok": 3}
    ignoring = re.compile("^token", re.IGNORECASE)
    assert shown(record, patterns=[ignoring]) == {"myToken1": 1, "TOKEN": HIDDEN, "tok": 3}


def test_fields_hide_inside_the_value_of_their_key() -> None:
    record = {"auth": {"token": "s", "user": "u"}, "token": "t"}
    assert shown(record, fields={"auth": ["token"]}) == {"auth": {"token": HIDDEN, "user": "u"}, "token": "t"}


def test_all_three_together() -> None:
    record = {"password": 1, "x-secret": [2], "auth": {"token": 3, "user": 4}, "city": {"name": 5}}
    kept = shown(record, keys=["password"], patterns=["secret"], fields={"auth": ["token"]})
    assert kept == {
        "password": HIDDEN, "x-secret": HIDDEN, "auth": {"token": HIDDEN, "user": 4}, "city": {"name": 5},
    }  # fmt: skip
    assert list(kept) == list(record), "in the same order"
    assert kept["city"] is record["city"], "what is not hidden is the very object"


def test_whole_beats_fields() -> None:
    record = {"auth": {"token": 1, "user": 2}}
    assert shown(record, keys=["auth"], fields={"auth": ["token"]}) == {"auth": HIDDEN}
    assert shown(record, patterns=["^a"], fields={"auth": ["token"]}) == {"auth": HIDDEN}


@pytest.mark.parametrize("value", [None, 0, "", [], {}, [{"a": 1}], {"b": {"c": 1}}, object()])
def test_whatever_a_hit_name_holds_is_replaced(value: object) -> None:
    assert shown({"secret": value}, keys=["secret"]) == {"secret": HIDDEN}


def test_by_itself_a_policy_does_not_look_inside() -> None:
    record = {"wrapper": {"secret": 1}, "rows": [{"secret": 2}]}
    assert shown(record, keys=["secret"], patterns=["secret"]) is record


# -- paths


def test_paths_reach_three_levels_and_more() -> None:
    record = {"a": {"b": {"c": {"d": {"e": 1, "f": 2}}, "x": 3}}}
    kept = shown(record, fields={"a": ["b.c.d.e"]})
    assert kept == {"a": {"b": {"c": {"d": {"e": HIDDEN, "f": 2}}, "x": 3}}}


@pytest.mark.parametrize(
    "path", ["gone", "b.gone", "b.c.gone", "b.c.d", "b.0", "list.7", "list.-1", "list.00"]
)
def test_what_is_not_there_is_not_made_up(path: str) -> None:
    record = {"a": {"b": {"c": 1}, "list": [1, 2]}}
    assert shown(record, fields={"a": [path]}) is record


def test_a_dotted_part_may_be_one_name_or_two() -> None:
    record = {"a": {"b.c": 1, "b": {"c": 2, "d": 3}}}
    assert shown(record, fields={"a": ["b.c"]}) == {"a": {"b.c": HIDDEN, "b": {"c": HIDDEN, "d": 3}}}
    headers = {"a": {"x.y": {"token": 1}, "x": {"y.token": 2, "y": {"token": 3}}}}
    assert shown(headers, fields={"a": ["x.y.token"]}) == {
        "a": {"x.y": {"token": HIDDEN}, "x": {"y.token": HIDDEN, "y": {"token": HIDDEN}}}
    }


def test_a_field_that_is_none_is_hidden() -> None:
    assert shown({"a": {"b": None}}, fields={"a": ["b"]}) == {"a": {"b": HIDDEN}}


@pytest.mark.parametrize("value", ["text", 3, 2.5, True, None, b"raw"])
def test_a_plain_value_under_fields_stays(value: object) -> None:
    record = {"a": value}
    assert shown(record, fields={"a": ["b"]}) is record


def test_what_cannot_be_looked_into_is_hidden_where_something_inside_was_named() -> None:
    class Login:
        token = "s"

    assert shown({"a": Login()}, fields={"a": ["token"]}) == {"a": HIDDEN}
    assert shown({"a": {"b": Login()}}, fields={"a": ["b.token"]}) == {"a": {"b": HIDDEN}}


def test_indexes_reach_into_lists() -> None:
    record = {"items": [{"token": 1}, {"token": 2}], "pair": ({"t": 1}, 2), "raw": [1, 2, 3]}
    kept = shown(record, fields={"items": ["0.token"], "pair": ["0.t"], "raw": ["2"]})
    assert kept == {
        "items": [{"token": HIDDEN}, {"token": 2}],
        "pair": ({"t": HIDDEN}, 2),
        "raw": [1, 2, HIDDEN],
    }
    assert kept["items"][1] is record["items"][1]


def test_an_index_of_a_million_digits_is_no_work() -> None:
    record = {"a": [1]}
    assert shown(record, fields={"a": ["9" * 1_000_000]}) is record


def test_a_parent_and_a_child_may_both_be_named() -> None:
    for paths in (["b", "b.c"], ["b.c", "b"]):
        assert shown({"a": {"b": {"c": 1}, "d": 2}}, fields={"a": paths}) == {"a": {"b": HIDDEN, "d": 2}}


def test_a_value_in_two_places_is_hidden_where_it_was_named() -> None:
    both = {"token": 1}
    record = {"a": {"x": both, "y": both}}
    assert shown(record, fields={"a": ["x.token"]}) == {"a": {"x": {"token": HIDDEN}, "y": {"token": 1}}}


# -- the same object


def test_the_original_is_never_changed() -> None:
    record = {"password": [1], "a": {"b": [{"c": 1}, {"c": 2}]}, "x-secret": {"y": 1}}
    before = copy.deepcopy(record)
    shown(record, keys=["password"], patterns=["secret"], fields={"a": ["b.1.c", "b.0"]}, deep=True)
    assert record == before


def test_the_same_object_comes_back_where_nothing_is_hidden() -> None:
    record = {"city": "x", "days": 3, "a": {"b": {"c": 1}}}
    assert shown(record, keys=["password"], patterns=["secret"], fields={"a": ["b.d"], "z": ["y"]}) is record
    assert shown(record, keys=["password"], patterns=["secret"], fields={"a": ["b.d"]}, deep=True) is record


def test_a_value_that_reads_as_its_placeholder_already_is_nothing_hidden() -> None:
    record = {"password": f"[{'REDACTED'!s}]"}
    assert record["password"] is not HIDDEN
    assert shown(record, keys=["password"]) is record


@pytest.mark.parametrize("root", [None, 3, "password", ["password"], [{"password": 1}], {"password"}])
def test_what_is_no_mapping_at_the_root_passes(root: object) -> None:
    assert shown(root, keys=["password"], patterns=["."], deep=True) is root


def test_any_mapping_is_read_and_its_copy_is_a_dict() -> None:
    record = MappingProxyType({"password": 1, "a": MappingProxyType({"b": 1})})
    assert shown(record, keys=["other"], fields={"a": ["c"]}) is record
    kept = shown(record, keys=["password"], fields={"a": ["b"]})
    assert kept == {"password": HIDDEN, "a": {"b": HIDDEN}}


class Watched(Mapping[str, Any]):
    """A mapping that tells whether it was enumerated."""

    def __init__(self) -> None:
        self.seen = False

    def __getitem__(self, key: str) -> Any:
        self.seen = True
        return 1

    def __iter__(self) -> Iterator[str]:
        self.seen = True
        return iter(["password"])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("deep", [False, True])
def test_a_policy_that_names_nothing_touches_nothing(deep: bool) -> None:
    record = Watched()
    rule = RedactionRule(RedactionPolicy(fields={"password": []}, deep=deep))
    assert rule.inert
    assert rule.retain_record(record) is record
    assert not record.seen
    rule.mark("password")
    assert not rule.inert
    assert rule.retain_record(record) == {"password": HIDDEN}


# -- names


def test_a_name_of_256_is_held_against_patterns_and_one_of_257_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at, beyond = "secret" + "x" * 250, "secret" + "x" * 251
    policy = RedactionPolicy(patterns=["secret"])
    rule = RedactionRule(policy)
    assert rule.retain_record({at: 1}) == {at: HIDDEN}
    with caplog.at_level(logging.WARNING, "afpool"):
        assert rule.retain_record({beyond: 1}) == {beyond: 1}
        assert rule.retain_record({beyond + "y": 1}) == {beyond + "y": 1}
    (said,) = caplog.messages
    assert "256 characters" in said
    assert "`keys`" in said
    assert "secret" not in said, "and the name is not repeated"


def test_an_exact_name_may_be_of_any_length() -> None:
    name = "n" * 300
    assert shown({name: 1}, keys=[name]) == {name: HIDDEN}
    assert shown({name: {"a": 1}}, fields={name: ["a"]}) == {name: {"a": HIDDEN}}


def test_a_dotted_key_is_a_name_with_dots_as_well() -> None:
    assert shown({"a.b": 1, "a": {"b": 2}}, keys=["a.b"]) == {"a.b": HIDDEN, "a": {"b": 2}}


def test_a_catastrophic_pattern_costs_a_bounded_number_of_steps() -> None:
    names = {"a" * n + "!": n for n in range(1, 256)}
    assert shown(names, patterns=["(a+)+$", "(a|a)*b", "^(a|aa)+$"]) is names


def test_ten_thousand_long_names_come_to_an_end() -> None:
    record = {f"{n:05}" + "ab" * 125: n for n in range(10_000)}
    kept = shown(record, patterns=["secret", "(?i)token$", "^x-", "api.?key", "pass(word|wd)?"])
    assert kept is record


def test_what_there_is_no_budget_left_for_is_hidden_and_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("afpool.tools._redaction.VISITS", 20)
    policy = RedactionPolicy(keys=["k"], patterns=["a.{90}b"])
    rule = RedactionRule(policy)
    record = {"aaaaaaa": 1, "aaaaaab": 2, "c": 3}
    assert rule.retain_record(record) == dict.fromkeys(record, HIDDEN)
    monkeypatch.setattr("afpool.tools._redaction.VISITS", 1_000_000)
    assert rule.retain_record(record) is record


def test_what_is_kept_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_redaction_names, "KNOWN", 8)
    policy = RedactionPolicy(keys=["secret"], patterns=["tok"])
    rule = RedactionRule(policy)
    for number in range(100):
        assert rule.retain_record({f"n{number}": 1, "secret": 2}) == {f"n{number}": 1, "secret": HIDDEN}
        assert len(policy.names.known) <= 8
    rule.retain_record({"m" * 257: 1})
    assert "m" * 257 not in policy.names.known


def test_names_that_json_would_spell_are_judged_as_it_spells_them() -> None:
    record = {1: "a", None: "c", 1.5: "d"}
    assert shown({None: 1}, keys=["null"]) == {None: HIDDEN}
    assert shown({True: 1}, keys=["true"]) == {True: HIDDEN}
    assert shown({1: 1}, keys=["1"]) == {1: HIDDEN}
    assert shown(record, keys=["1.5"]) == {**record, 1.5: HIDDEN}

    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "other"

    assert shown({Name("secret"): 1}, keys=["secret"]) == {"secret": HIDDEN}
    with pytest.raises(TypeError, match="cannot be tuple"):
        shown({(1, 2): 1}, keys=["x"])


# -- verdicts


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([], CLEAR),
        (["city"], CLEAR),
        (["password"], RedactionVerdict("whole", "password")),
        (["auth"], RedactionVerdict("fields", "auth", ("token", "user.name", "user.id"))),
        (["auth", "token"], RedactionVerdict("whole", "auth.token")),
        (["auth", "user"], RedactionVerdict("fields", "auth.user", ("name", "id"))),
        (["auth", "user", "name"], RedactionVerdict("whole", "auth.user.name")),
        (["auth", "use"], CLEAR),
        (["auth", "user", "name", "first"], CLEAR),
        (["password", "anything", "below"], RedactionVerdict("whole", "password")),
        (["a", "b"], RedactionVerdict("whole", "a.b")),
        (["a", "b", "c"], RedactionVerdict("whole", "a.b")),
        (["a"], CLEAR),
        (["x", "deep_secret", "y"], RedactionVerdict("whole", "x.deep_secret")),
        (["x", "y"], RedactionVerdict("whole", "x.y")),
    ],
)
def test_verdicts(path: list[str], expected: RedactionVerdict) -> None:
    policy = RedactionPolicy(
        keys=["password", "a.b"],
        patterns=["secret", r"^x\.y$"],
        fields={"auth": ["token", "user.name", "user.id"]},
    )
    assert RedactionRule(policy).verdict(path) == expected


def test_the_shortest_hit_beginning_names_itself() -> None:
    rule = RedactionRule(RedactionPolicy(keys=["a.b.c", "a.b"], patterns=[r"a\.b\.c"]))
    assert rule.verdict(["a", "b", "c", "d"]) == RedactionVerdict("whole", "a.b")


def test_one_value_is_retained_by_its_verdict() -> None:
    rule = RedactionRule(RedactionPolicy(keys=["password"], fields={"auth": ["user.name"]}))
    assert rule.retain(["password", "x"], {"y": 1}) == HIDDEN
    assert rule.retain(["auth", "user"], {"name": 1, "id": 2}, "gone") == {"name": "gone", "id": 2}
    value = {"a": 1}
    assert rule.retain(["city"], value) is value
    assert rule.retain([], value) is value


# -- marks


def test_a_mark_makes_a_name_secret_for_the_life_of_the_rule() -> None:
    rule = RedactionRule(RedactionPolicy(keys=["password"]))
    record = {"city": 1, "password": 2}
    rule.mark("city")
    assert rule.verdict(["city"]) == RedactionVerdict("whole", "city")
    assert rule.retain_record(record) == {"city": HIDDEN, "password": HIDDEN}
    rule.unmark("city")
    rule.unmark("password")
    rule.unmark("never marked")
    assert rule.retain_record(record) == {"city": 1, "password": HIDDEN}, "the policy's word stays"


def test_a_mark_on_a_path_and_over_fields() -> None:
    rule = RedactionRule(RedactionPolicy(fields={"a": ["b"]}))
    rule.mark("a.c")
    assert rule.verdict(["a", "c", "d"]) == RedactionVerdict("whole", "a.c")
    rule.mark("a")
    assert rule.retain_record({"a": {"b": 1}}) == {"a": HIDDEN}


def test_rules_of_one_policy_share_no_marks_unless_they_are_given_the_same() -> None:
    policy = RedactionPolicy(keys=["password"])
    one, two = RedactionRule(policy), RedactionRule(policy)
    one.mark("city")
    assert two.verdict(["city"]) == CLEAR
    marks: set[str] = set()
    three, four = RedactionRule(policy, marks), RedactionRule(policy, marks)
    three.mark("city")
    assert four.retain_record({"city": 1}) == {"city": HIDDEN}


def test_a_report_has_names_and_no_values() -> None:
    policy = RedactionPolicy(keys=["k"], patterns=["(?i)tok", re.compile("x")], fields={"a": ["b.c"]})
    rule = RedactionRule(policy)
    rule.mark("zeta")
    rule.mark("city")
    rule.retain_record({"k": "the value", "city": "Ulm", "a": {"b": {"c": "inside"}}})
    report = rule.report()
    assert report.marked == ("city", "zeta")
    assert report.patterns == ("(?i)tok", "x")
    assert report.fields == {"a": ("b.c",)}
    for text in (repr(report), repr(rule), repr(policy), repr(policy.names)):
        assert not {"the value", "Ulm", "inside"} & set(re.findall(r"[\w ]+", text))


# -- what is refused


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"keys": "password"}, r"several names, such as \['password'\]"),
        ({"keys": 3}, "several names"),
        ({"keys": ["a", 3]}, "a key is a string, not int"),
        ({"patterns": "password"}, r"several expressions, such as \['password'\]"),
        ({"patterns": [b"x"]}, "a pattern is a string"),
        ({"fields": ["a.b"]}, "fields map a key to paths"),
        ({"fields": {"a": "b"}}, r"several paths: \{'a': \['a.b', ...\]\}"),
        ({"fields": {1: ["b"]}}, "several paths"),
        ({"fields": {"a": [1]}}, r"a path under fields\['a'\] is a string"),
        ({"deep": "yes"}, "deep is True or False"),
    ],
)
def test_what_is_not_of_its_kind_is_refused(given_: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        RedactionPolicy(**given_)


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 100 parts"):
        RedactionPolicy(fields={"a": [".".join("x" * 101)]})
    with pytest.raises(ValueError, match="linear time"):
        RedactionPolicy(patterns=[r"(a)\1"])
    with pytest.raises(TypeError, match="applies a RedactionPolicy, not dict"):
        RedactionRule({"keys": ["a"]})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a key is a string, not bytes"):
        RedactionRule(RedactionPolicy()).mark(b"a")  # type: ignore[arg-type]


def test_a_policy_does_not_follow_what_it_was_made_from() -> None:
    keys, fields = ["a"], {"b": ["c"]}
    policy = RedactionPolicy(keys, fields=fields)
    keys.append("z")
    fields["b"].append("z")
    fields["z"] = ["c"]
    record = {"z": {"c": 1}, "b": {"z": 1}}
    assert RedactionRule(policy).retain_record(record) is record
    with pytest.raises(TypeError):
        policy.fields["z"] = ("c",)  # type: ignore[index]


# -- laws

NAMES = st.sampled_from(["a", "b", "token", "x.token", "apiKey", "0", "1", "", "a.b", "secret" + "x" * 251])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
RECORDS = st.dictionaries(NAMES, JSON, max_size=5)
PATHS = st.lists(st.sampled_from(["a", "b", "0", "1", "token", "a.b", ""]), min_size=1, max_size=3).map(
    ".".join
)
POLICIES = st.builds(
    RedactionPolicy,
    keys=st.lists(NAMES | PATHS, max_size=2),
    patterns=st.lists(st.sampled_from(["^a$", "(?i)TOKEN", "secret", r"\.", "^$", "Key$"]), max_size=2),
    fields=st.dictionaries(NAMES, st.lists(PATHS, max_size=2), max_size=2),
    deep=st.just(False),
)


def naively(policy: RedactionPolicy, record: dict[str, Any]) -> dict[str, Any]:
    """The same, said as simply as can be."""
    kept = copy.deepcopy(record)
    for key in kept:
        found = len(key) <= 256 and any(pattern.search(key) for pattern in policy.patterns)
        if key in policy.keys or found:
            kept[key] = HIDDEN
        for path in policy.fields.get(key, ()):
            _naively_hide(kept[key], path.split("."))
    return kept


def _naively_hide(value: Any, parts: list[str]) -> None:
    for end in range(1, len(parts) + 1):
        name: Any = ".".join(parts[:end])
        if isinstance(value, list):
            name = int(name) if name in map(str, range(len(value))) else None
        there = (
            isinstance(value, dict | list) and name is not None and (isinstance(value, list) or name in value)
        )
        if there and end == len(parts):
            value[name] = HIDDEN
        elif there:
            _naively_hide(value[name], parts[end:])


@given(policy=POLICIES, record=RECORDS)
@settings(max_examples=300)
def test_it_hides_what_the_simple_reading_hides(policy: RedactionPolicy, record: dict[str, Any]) -> None:
    before = copy.deepcopy(record)
    kept = RedactionRule(policy).retain_record(record)
    assert record == before
    assert kept == naively(policy, record)
    assert (kept is record) == (json.dumps(kept) == json.dumps(record))
    assert list(kept) == list(record)
    assert RedactionRule(policy).retain_record(kept) is kept, "once hidden, there is nothing left to hide"


@given(policy=POLICIES, record=RECORDS, marks=st.sets(NAMES, max_size=2))
@settings(max_examples=200)
def test_a_record_is_each_of_its_values_by_its_verdict(
    policy: RedactionPolicy, record: dict[str, Any], marks: set[str]
) -> None:
    rule = RedactionRule(policy, marks)
    kept = rule.retain_record(record, REDACTED)
    assert kept == {key: rule.retain([key], value, REDACTED) for key, value in record.items()}
