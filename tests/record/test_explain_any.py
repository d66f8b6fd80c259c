"""Any use at all is explained: without raising, bounded, by facts that are filed and by no other ones."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from afpool import Event, Use
from afpool.record._explain import CLAUSES, explain_use
from afpool.record._explain_causes import CODES
from tests.record.explaining import KEY, Given, definition

STAGES = (
    "start", "plan", "list", "admission", "runtime-admission", "leased", "adopted", "attempt", "credential",
    "sign", "input", "retry", "connect", "write", "sent", "answered", "woken", "server", "hooks", "run",
    "after", "limits", "odd`one",
)  # fmt: skip
KINDS = (
    "opened", "open-failed", "list", "list-changed", "evicted", "closed", "killed", "revoked", "paused",
    "plan-changed", "odd",
)  # fmt: skip
TIMES = st.floats(min_value=-10.0, max_value=5000.0)
ODD_TIMES = st.one_of(TIMES, st.sampled_from([math.inf, -math.inf, math.nan]))
TEXT = st.text(max_size=12)
MEMBERS = st.dictionaries(TEXT, st.one_of(st.integers(), st.booleans(), st.none(), TEXT), max_size=4)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "client": st.integers(), "list": st.integers(), "generation": st.integers(), "after": st.integers(),
        "took": TIMES, "connect": TIMES, "why": TEXT, "by": TEXT, "call": TEXT, "room_for": st.just(KEY),
    },
)  # fmt: skip
EVENTS = st.builds(
    Event,
    st.integers(1, 40),
    TIMES.map(lambda at: 100.0 + at),
    st.sampled_from(KINDS),
    st.sampled_from([KEY, ""]),
    FACTS,
)


@st.composite
def uses(draw: st.DrawFn, times: st.SearchStrategy[float] = TIMES) -> Use:
    use = Use(draw(TEXT), draw(st.sampled_from(["crm", ""])), draw(TEXT), 100.0)
    use.name = draw(st.sampled_from([use.tool, "another"]))
    use.method = draw(st.sampled_from(["tools/call", "", "prompts/get"]))
    use.key = draw(st.sampled_from([None, "whole key"]))
    use.client_id = draw(st.none() | st.integers(0, 9))
    use.generation = draw(st.none() | st.integers(0, 9))
    use.attempts = draw(st.integers(0, 4))
    use.bytes_out, use.bytes_in = draw(st.integers(0, 10**9)), draw(st.integers(0, 10**9))
    use.reports = draw(st.integers(0, 3))
    use.reported = draw(st.none() | st.tuples(TIMES, st.none() | TIMES))
    use.repeat = draw(st.integers(0, 3))
    for name in ("run_id", "parent", "repeated_of"):
        setattr(use, name, draw(st.none() | TEXT))
    for stage, at in draw(st.lists(st.tuples(st.sampled_from(STAGES), times), max_size=30)):
        use.marks += (stage, 100.0 + at)
    stages = st.sampled_from(["generation", "answer", "odd"]) | TEXT
    use.facts = draw(st.none() | st.lists(st.tuples(stages, st.just("4") | TEXT, times), max_size=12))
    use.held_by = tuple(draw(st.lists(st.sampled_from(["c-0", "c-1", "gone"]), max_size=12)))
    use.changed = tuple(draw(st.lists(TEXT, max_size=3)))
    use.opening, use.cause = (draw(st.none() | st.integers(1, 40)) for _ in range(2))
    use.happened = draw(st.none() | EVENTS)
    use.was = draw(st.none() | MEMBERS.map(lambda members: definition(x=members)))
    use.became = draw(st.none() | MEMBERS.map(lambda members: definition(x=members)))
    use.tool_error = draw(st.booleans())
    use.waits_for = draw(st.none() | st.sampled_from(STAGES))
    use.outcome = draw(st.sampled_from([None, "ok", "refused", "failed", "cancelled"]))
    use.code = draw(st.none() | st.sampled_from([*sorted(CODES), "KeyError"]))
    use.delivery = draw(st.sampled_from([None, "not-sent", "refused", "in-doubt", "answered"]))
    use.ended_at = draw(st.none() | times.map(lambda at: 100.0 + at))
    return use


FILED_IN_A_USE = {
    "call_id", "tool", "server", "key", "run_id", "parent", "repeat", "repeated_of", "changed", "stage",
    "took", "attempt", "stages", "waits_for", "since", "fact", "reports", "opening", "held_by", "cause",
    "delivery", "attempts", "bytes_out", "spent", "code",
}  # fmt: skip
FILED_OF_A_SIBLING = {"held_by", "tool", "outcome", "run_id", "leased", "ended", "repeated_of"}
FILED_OF_A_DEFINITION = {"was", "became", "generation", "differs", "more", "complete"}


@given(
    uses(),
    st.lists(uses(), max_size=3),
    st.lists(EVENTS, max_size=14),
    TIMES,
    st.lists(EVENTS, max_size=2),
    st.none() | st.tuples(st.none() | TEXT, TEXT, TIMES.map(lambda at: 100.0 + at)),
)
@settings(max_examples=120, deadline=None)
def test_every_clause_names_what_it_is_filed_under(
    use: Use,
    others: list[Use],
    events: list[Event],
    now: float,
    holding: list[Event],
    opening: tuple[str | None, str, float] | None,
) -> None:
    for number, other in enumerate(others):
        other.call_id = f"c-{number}"
    sources = Given(use, *others, events=events, now=100.0 + now, holding=holding, opening=opening)
    explanation = explain_use(use, sources)
    assert explanation.headline
    assert 2 <= len(explanation.clauses) + 1 <= CLAUSES + 1
    known = {event.number for event in (*events, *holding)} | (
        {use.happened.number} if use.happened else set()
    )  # type: ignore[attr-defined]
    for clause in explanation.clauses:
        assert clause.text
        assert clause.facts
        names = set(clause.facts)
        if clause.source == "event":
            assert clause.facts["event"] in known
        elif clause.source == "sibling":
            assert names <= FILED_OF_A_SIBLING
        elif clause.source == "definition":
            assert use.was is not None
            assert names <= FILED_OF_A_DEFINITION
        elif clause.source == "now":
            assert use.waits_for == "admission"
            assert names <= {"opening", "took", "call"}
        else:
            assert clause.source == "use"
            assert names <= FILED_IN_A_USE
    assert "whole key" not in json.dumps(explanation.as_json())
    times = [clause.at for clause in explanation.clauses if clause.at is not None]
    assert times == sorted(times)


@given(uses(times=ODD_TIMES))
@settings(max_examples=60, deadline=None)
def test_times_that_are_no_numbers_are_told_as_such(use: Use) -> None:
    assert explain_use(use, Given(use)).words()


def test_of_a_use_with_everything_in_it_only_so_much_is_told() -> None:
    use = Use("c" * 100_000, "crm", "t" * 100_000, 100.0)
    for number in range(20_000):
        use.marks += (STAGES[number % len(STAGES)], 100.0 + number / 1000)
    use.held_by = tuple(f"c-{number}" for number in range(5000))
    use.facts = [("s" * 10_000, "w" * 10_000, 101.0)] * 1000
    use.was = definition(x=[0] * 30_000)
    use.became = definition(x=[1] * 30_000)
    use.outcome, use.code, use.ended_at = "refused", "stale-tools", 130.0
    explanation = explain_use(use, Given(use))
    assert len(explanation.words()) < 20_000
    assert "they are too large to be compared here" in explanation.headline
