"""A use and an event as plain data: names, digests, and that whatever is in them becomes one line."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from afpool import Identity
from afpool._base.definition_table import DefinitionTable
from afpool._base.identity import KeyDigest, identity_namespace
from afpool._base.use import Use
from afpool.pool import Event
from afpool.record import Digests, event_as_json, use_as_json
from afpool.record._json import MOST_CHARS, CallLine, as_lines, as_plain, call_line
from tests.record.sink_kit import WHO, use

DIGEST = KeyDigest(b"0123456789abcdef")
ALWAYS = {
    "kind", "at", "began", "took", "call_id", "server", "tool", "method", "outcome", "code", "delivery",
    "key", "who", "stages",
}  # fmt: skip


def plain(made: Use, unix: float = 1000.0) -> dict[str, object]:
    return use_as_json(made, digest=DIGEST, unix=unix)


def test_what_stands_always() -> None:
    bare = Use("call-1", "", "clock", 5.0)
    told = plain(bare)
    assert told == {
        "kind": "call", "at": 1005.0, "began": 1005.0, "took": None, "call_id": "call-1", "server": "",
        "tool": "clock", "method": "tools/call", "outcome": None, "code": None, "delivery": None, "key": None,
        "who": None, "stages": [],
    }  # fmt: skip
    assert set(told) == ALWAYS


def test_everything_that_there_may_be() -> None:
    table = DefinitionTable()
    was, became = table.intern(b'{"name":"find","a":1}'), table.intern(b'{"name":"find","a":2}')
    event = Event(7, 5.5, "list-changed", "k:0123456789ab", {"list": 3, "why": "told"}, "search")
    made = use(
        began=5.0, name="search__find", run_id="run-1", parent="call-0", repeated_of="call-9", repeat=2,
        waits_for="server", held_by=("call-2", "call-3"), opening=4, cause=7, happened=event, was=was,
        became=became, client_id=11, list_id=12, generation=3, epoch=1, context="c:1", attempts=2,
        bytes_out=10, bytes_in=20, reports=5, reported=(1.0, None), shown=b'{"q":1}', changed=("q",),
        minted=["art_1"], took=["art_0"], tool_error=True, trace="00-1-2-01", code="stale-tools",
    )  # fmt: skip
    made.note("answer", "http 503", 5.125)
    told = plain(made)
    assert {name: told[name] for name in set(told) - ALWAYS} == {
        "tenant": DIGEST.show("acme", "t"), "name": "search__find", "run_id": "run-1", "parent": "call-0",
        "repeated_of": "call-9", "repeat": 2, "waits_for": "server", "held_by": ["call-2", "call-3"],
        "opening": 4, "cause": 7,
        "happened": {
            "kind": "list-changed", "at": 1005.5, "n": 7, "key": "k:0123456789ab", "server": "search",
            "list": 3, "why": "told",
        },
        "was": was.digest[:12], "became": became.digest[:12], "client": 11, "list": 12, "generation": 3,
        "epoch": 1, "context": "c:1", "attempts": 2, "bytes_out": 10, "bytes_in": 20, "reports": 5,
        "reported": [1.0, None], "arguments": {"q": 1}, "changed": ["q"], "minted": ["art_1"],
        "taken": ["art_0"], "tool_error": True, "trace": "00-1-2-01",
        "facts": [["answer", "http 503", 0.125]],
    }  # fmt: skip
    assert (told["at"], told["began"], told["took"]) == (1005.25, 1005.0, 0.25)
    assert [stage for stage, _ in told["stages"]] == ["start", "leased", "answered"]
    # a console sends what a file holds
    assert json.loads(as_lines([call_line(made, Digests(DIGEST), 1000.0)])) == told


def test_nobody_is_named() -> None:
    text = json.dumps(plain(use()))
    for word in ("acme", "alice", "c-1"):
        assert word not in text
    told = plain(use())
    assert told["key"] == DIGEST.show("search|acme/alice/c-1")
    assert told["who"] == DIGEST.show(identity_namespace(WHO), "w")
    assert told["tenant"] == DIGEST.show("acme", "t")
    assert "tenant" not in plain(use(who=Identity(principal="alice")))


def test_digests_are_remembered_and_stay_true() -> None:
    digests = Digests(DIGEST)
    for number in range(10_000):
        key = f"search|t{number}/_/_"
        assert digests.show(key) == DIGEST.show(key)
        who = Identity(tenant=f"t{number}")  # one takes the place of another in memory
        assert digests.person(who)[1:] == (
            DIGEST.show(identity_namespace(who), "w"),
            DIGEST.show(f"t{number}", "t"),
        )
    assert digests.show("a", "w") == DIGEST.show("a", "w")


def test_names_are_cut() -> None:
    long = "x" * 5000
    told = plain(use(long, tool=long, name=long + "y"))
    for name in ("call_id", "tool", "name"):
        assert told[name] == "x" * (MOST_CHARS - 1) + "…"


def test_a_fact_of_an_event_that_is_named_like_one_of_its_own() -> None:
    told = event_as_json(Event(1, 2.0, "odd", "", {"kind": "x", "at": 1, "client": 4}), unix=0.0)
    assert told == {
        "kind": "odd",
        "at": 2.0,
        "n": 1,
        "key": None,
        "fact_kind": "x",
        "fact_at": 1,
        "client": 4,
    }


texts = st.text(st.characters(codec=None), max_size=20)


@given(
    st.lists(
        st.tuples(
            texts, st.one_of(st.none(), st.just(b'{"a":1}'), st.just(b'{"a":\n[1,\r2]}'), st.just(b"}"))
        ),
        max_size=5,
    )
)
def test_each_record_is_one_line_whatever_is_in_it(records: list[tuple[str, bytes | None]]) -> None:
    uses = [use(name, tool=name, code=name, shown=shown) for name, shown in records]
    lines = as_lines([call_line(one, Digests(DIGEST), 0.0) for one in uses]).split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == len(records)
    for line, (name, shown) in zip(lines, records, strict=True):
        if shown != b"}":
            assert json.loads(line)["call_id"] == name
    told = [use_as_json(one, digest=DIGEST, unix=0.0) for one in uses]
    assert [one["call_id"] for one in told] == [name for name, _ in records]


def test_what_json_cannot_hold_is_named_by_its_kind() -> None:
    lines = as_lines([{"kind": "x", "odd": object()}, {"kind": "y", "at": float("nan")}]).splitlines()
    assert json.loads(lines[0]) == {"kind": "x", "odd": "<object>"}
    assert json.loads(lines[1])["kind"] == "y"


def test_plain_records_for_the_host() -> None:
    made = call_line(use(shown=b'{"q":1}'), Digests(DIGEST), 0.0)
    assert isinstance(made, CallLine)
    event = {"kind": "evicted"}
    told = as_plain([made, event])
    assert told[0]["arguments"] == {"q": 1}
    assert told[1] is event
    assert msgspec.to_builtins(told) == told
