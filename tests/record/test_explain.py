"""Explanations of uses made by hand: the fact that caused an outcome, and nothing that is not filed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import afpool.artifacts
import afpool.tools
from afpool import AfpoolError
from afpool.record._explain import CLAUSES, explain_use
from afpool.record._explain_causes import CODES
from tests.record.explaining import KEY, Given, a_use, an_event, definition, refused

if TYPE_CHECKING:
    from afpool.record import Explanation


ROOT = Path(__file__).resolve().parents[2]


def texts(explanation: Explanation) -> str:
    return "\n".join(clause.text for clause in explanation.clauses)


def test_a_list_that_changed_while_the_credential_was_fetched() -> None:
    use = refused(
        "stale-tools",
        ("start", 0.0),
        ("leased", 0.001),
        ("attempt", 0.202),
        ("credential", 0.412),
        ended=0.412,
        generation=3,
        cause=17,
        happened=an_event(17, "list", 0.374, list=4, generation=4),
        was=definition(inputSchema={"properties": {"limit": {"maximum": 100}}}),
        became=definition(inputSchema={"properties": {"limit": {"maximum": 50}}}),
    )
    explanation = explain_use(use, Given(use))
    assert explanation.headline == (
        "refused `stale-tools` at the gate `credential`, 412 ms after the call began: a changed list, "
        "generation 4, came 38 ms earlier, while the credential was being fetched (210 ms); "
        "generation 3 → 4; the definition of `search` differs at `/inputSchema/properties/limit/maximum`"
    )
    assert "now: list the tools again and decide anew" in texts(explanation)
    assert "nothing was sent" in texts(explanation)


def test_a_change_that_was_announced_and_not_seen_is_told_from_the_list_that_came_later() -> None:
    use = refused(
        "stale-tools",
        ("start", 0.0),
        ("credential", 0.2),
        ended=0.2,
        generation=3,
        happened=an_event(17, "list-changed", 0.1, client=7),
        was=definition(description="old"),
    )
    unseen = explain_use(use, Given(use)).headline
    assert "the server announced a changed tool list 100 ms earlier" in unseen
    assert "definition" not in unseen
    assert "does not hold" not in unseen
    use.note("generation", "4", 100.4)
    use.became = definition(description="new")
    assert explain_use(use, Given(use)).headline.endswith(
        "since then generation 3 → 4; the definition of `search` differs at `/description`"
    )
    use.became = None
    gone = explain_use(use, Given(use)).headline
    assert gone.endswith("since then generation 3 → 4; the list does not hold `search` any more")
    use.became = use.was
    same = explain_use(use, Given(use)).headline
    assert "`search` is defined as before" in same


def test_an_event_before_the_call_began_is_told_so() -> None:
    use = refused(
        "binding-changed",
        ("start", 0.0),
        ended=0.0,
        happened=an_event(9, "revoked", -2.5, why="left the company", by="console uid 1000"),
    )
    assert explain_use(use, Given(use)).headline == (
        "refused `binding-changed` at the gate `start`, 0 ms after the call began: the key was revoked by "
        "console uid 1000 (left the company) 2.50 s before the call began"
    )


def test_an_event_that_has_left_the_record_is_said_to_have() -> None:
    use = refused("binding-changed", ("start", 0.0), ended=0.0, cause=9)
    explanation = explain_use(use, Given(use))
    assert "event 9 caused it, and has left the record since" in explanation.headline
    assert {"cause": 9} in [clause.facts for clause in explanation.clauses]


def test_who_held_the_places_and_what_became_of_them() -> None:
    first = a_use(("start", 0.0), ("leased", -2.0), ended=0.5, outcome="ok", call_id="c-0", run_id="r-9")
    first.began_at = 98.0
    running = a_use(("start", 0.0), ("leased", 0.1), call_id="c-2", waits_for="server")
    use = refused(
        "deadline-exceeded",
        ("start", 0.0),
        ("admission", 2.0),
        ended=2.0,
        held_by=("c-0", "c-2", "c-3"),
    )
    explanation = explain_use(use, Given(use, first, running, now=103.0))
    assert "its deadline passed; 2.00 s of it (100 %) while it waited for a place of its key" in (
        explanation.headline
    )
    assert explanation.headline.endswith(
        "the place that it waited for was one of those held by call `c-0`, call `c-2` and call `c-3`"
    )
    told = texts(explanation)
    assert (
        "call `c-0` of `search` held a place, in run `r-9`, since 2.00 s before this call began; it ended "
        in told
    )
    assert "1.50 s before this call ended (ok)" in told
    assert (
        "call `c-2` of `search` held a place, since +100 ms; it runs still, for 3.00 s, at `server` now"
        in told
    )
    assert "call `c-3` held a place; its facts have left the record" in told
    siblings = [clause for clause in explanation.clauses if clause.source == "sibling"]
    assert [clause.facts["held_by"] for clause in siblings] == ["c-0", "c-2"]


def test_a_running_call_says_where_it_waits_since_when_and_for_whom() -> None:
    use = a_use(("start", 0.0), waits_for="admission", held_by=("c-0",))
    explanation = explain_use(use, Given(use, now=102.5))
    assert explanation.headline == (
        "`search` has run for 2.50 s, and for 2.50 s now has been waiting for a place of its key; "
        "the place that it waits for is held by call `c-0`"
    )
    assert "where the time went: `admission` 2.50 s (100 %)" in texts(explanation)
    assert "now:" not in texts(explanation)
    begun = a_use(("start", 0.0), ("leased", 0.0), ("sent", 0.5), waits_for="server")
    assert explain_use(begun, Given(begun, now=102.5)).headline == (
        "`search` has run for 2.50 s, and for 2.00 s now has been waiting for the server's answer"
    )
    at_the_door = a_use(waits_for="hooks")
    assert "waiting for the host's hooks" in explain_use(at_the_door, Given(at_the_door)).headline
    still = a_use(("start", 0.0))
    assert "waits for nothing that is filed" in explain_use(still, Given(still)).headline


def test_a_call_that_has_got_its_place_waits_for_none_any_more() -> None:
    first = a_use(("start", 0.0), ("leased", -2.0), ended=0.5, outcome="ok", call_id="c-0")
    use = a_use(("start", 0.0), ("admission", 2.0), waits_for="server", held_by=("c-0",))
    explanation = explain_use(use, Given(use, first, now=103.0))
    assert explanation.headline.endswith("the place that it waited for was held by call `c-0`")
    assert "it ended 2.50 s ago (ok)" in texts(explanation)


def test_a_running_call_says_who_paused_its_key_and_which_opening_is_under_way() -> None:
    use = a_use(("start", 0.0), waits_for="admission")
    paused = an_event(4, "paused", -2.0, by="console uid 1000")
    given = Given(use, now=101.5, holding=[paused], opening=("c-0", "initialize", 100.25))
    explanation = explain_use(use, given)
    assert explanation.headline.endswith(
        "; the key was paused by console uid 1000 2.00 s before the call began"
        "; an opening of its client is under way, at `initialize` now"
    )
    told = texts(explanation)
    assert "the key was paused by console uid 1000, and is so still" in told
    assert "begun for call `c-0`, for 1.25 s, at `initialize` now" in told
    use.waits_for = "credential"  # which no pause holds up
    assert "paused" not in explain_use(use, given).words()


def test_a_slow_call_says_where_its_time_went() -> None:
    use = a_use(
        ("hooks", 0.1),
        ("start", 0.1),
        ("admission", 0.4),
        ("leased", 0.4),
        ("attempt", 0.4),
        ("credential", 0.5),
        ("connect", 0.6),
        ("write", 0.6),
        ("sent", 0.6),
        ("answered", 2.6),
        ("after", 2.7),
        ended=2.7,
        outcome="ok",
        delivery="answered",
        attempts=1,
        bytes_out=120,
        bytes_in=5000,
        opening=5,
    )
    opened = an_event(5, "opened", 0.39, client=7, call="c-0", took=0.29, plan=0.01, connect=0.08)
    explanation = explain_use(use, Given(use, events=[opened]))
    assert explanation.headline == (
        "answered 2.70 s after the call began; 2.00 s of it (74 %) while the server worked"
    )
    told = texts(explanation)
    assert "the opening that it waited for: client 7 was opened, begun for call `c-0`, after 290 ms" in told
    assert "(the plan 10 ms and connecting 80 ms)" in told
    assert "a request of 120 bytes was sent, and 5000 bytes of an answer came" in told
    spent = next(clause.facts["spent"] for clause in explanation.clauses if "spent" in clause.facts)
    assert spent["server"] == pytest.approx(2.0)
    assert sum(spent.values()) == pytest.approx(2.7)
    when = [clause.at for clause in explanation.clauses if clause.at is not None]
    assert when == sorted(when)
    gone = explain_use(use, Given(use))
    assert "event 5 ended the opening that it waited for, and has left the record since" in texts(gone)


def test_what_else_happened_to_the_key_is_told_and_nothing_of_other_keys() -> None:
    use = a_use(
        ("start", 0.0), ("sent", 0.1), ("answered", 0.5), ended=0.5, outcome="ok", delivery="answered"
    )
    events = [
        an_event(1, "list-changed", -0.1),
        an_event(2, "list-changed", 0.2),
        an_event(3, "paused", 0.3, by="console uid 7"),
        an_event(4, "evicted", 0.4, key="k:00000000dead"),
        an_event(5, "closed", 0.6),
    ]
    told = texts(explain_use(use, Given(use, events=events)))
    assert "meanwhile the server announced a changed tool list" in told
    assert "meanwhile the key was paused by console uid 7" in told
    assert "evicted" not in told
    assert "closed" not in told


def test_many_events_are_told_by_their_number() -> None:
    use = a_use(("start", 0.0), ended=1.0, outcome="ok", delivery="answered")
    events = [an_event(number, "list-changed", number / 100) for number in range(1, 31)]
    assert "22 more events of its key happened meanwhile" in texts(
        explain_use(use, Given(use, events=events))
    )


def test_attempts_are_told_apart() -> None:
    use = a_use(
        ("start", 0.0),
        ("attempt", 0.0),
        ("sent", 0.1),
        ("retry", 1.2),
        ("attempt", 1.2),
        ("sent", 1.3),
        ended=1.4,
        outcome="refused",
        code="server-refused",
        delivery="refused",
        attempts=2,
        bytes_out=10,
        facts=[("answer", "http 429", 100.2), ("answer", "http 429", 101.4)],
    )
    explanation = explain_use(use, Given(use))
    assert "the answer was `http 429` and `http 429`" in explanation.headline
    told = texts(explanation)
    assert "the first byte of attempt 1 left" in told
    assert "attempt 2 began" in told
    assert "the last of 2 attempts, and what was answered proves that nothing ran" in told
    assert "now: the call may be made again" in told


def test_an_answer_that_was_followed_by_something_ends_the_wait_for_the_server() -> None:
    use = a_use(
        ("start", 0.0), ("attempt", 0.0), ("sent", 0.1), ("retry", 2.1), ("attempt", 2.1), ("sent", 2.2),
        ("input", 5.2), ended=5.2, outcome="failed", code="input-required", delivery="answered", attempts=2,
        facts=[("answer", "http 429", 100.6), ("answer", "input-required", 102.7)],
    )  # fmt: skip
    explanation = explain_use(use, Given(use))
    spent = next(clause.facts["spent"] for clause in explanation.clauses if "spent" in clause.facts)
    assert spent == pytest.approx({"input": 2.5, "retry": 1.5, "server": 1.0, "write": 0.2})
    assert sum(spent.values()) == pytest.approx(5.2)


def test_an_opening_that_went_on_without_the_call_is_told() -> None:
    use = refused("deadline-exceeded", ("start", 0.0), ("admission", 0.5), ended=0.5)
    opened = an_event(7, "opened", 2.0, client=3, took=1.8, initialize=1.7)
    later = an_event(8, "opened", 3.0, client=4, took=0.5)
    told = texts(explain_use(use, Given(use, events=[opened], now=104.0)))
    assert "the opening that it had waited for went on: client 3 was opened" in told
    assert "went on" not in texts(explain_use(use, Given(use, events=[later], now=104.0)))


@pytest.mark.parametrize(
    ("delivery", "sent", "now"),
    [
        ("not-sent", "nothing was sent: no byte of its request left", "may be made again, with more time"),
        ("in-doubt", "a request of 9 bytes was sent, and nothing proves what became of it", "think first"),
    ],
)
def test_the_verdict_and_what_may_be_done(delivery: str, sent: str, now: str) -> None:
    use = a_use(("start", 0.0), ended=5.0, code="deadline-exceeded", delivery=delivery)
    use.outcome = "refused" if delivery == "not-sent" else "failed"
    use.attempts, use.bytes_out = 1, 9
    told = texts(explain_use(use, Given(use)))
    assert sent in told
    assert now in told


def test_a_tool_of_the_hosts_own_was_run_or_not() -> None:
    use = a_use(("run", 0.3), ended=0.3, code="tool-failed", delivery="answered", outcome="failed")
    use.server = use.method = ""
    use.key = None
    use.facts = [("run", "KeyError", 100.3)]
    explanation = explain_use(use, Given(use))
    assert explanation.headline == (
        "failed `tool-failed` while the tool ran, 300 ms after the call began: the host's own tool raised, "
        "or gave what is no result; it raised `KeyError`"
    )
    assert "the tool was run" in texts(explanation)
    use.delivery, use.outcome = "not-sent", "refused"
    assert "the tool was not run" in texts(explain_use(use, Given(use)))


def test_a_call_of_a_call_a_repeat_and_a_second_attempt() -> None:
    first = refused("stale-tools", ("start", 0.0), ended=0.1, call_id="c-0")
    use = a_use(("start", 0.2), ended=0.3, outcome="ok", repeated_of="c-0", parent="c-9", run_id="r-1")
    told = texts(explain_use(use, Given(use, first)))
    assert "it is the second attempt of call `c-0`, which ended with `stale-tools`" in told
    assert "in run `r-1`, from inside of call `c-9`" in told
    use.repeat = 2
    assert "it is number 2 of the repeats of a call that ended in doubt" in texts(explain_use(use, Given()))


def test_what_a_stranger_named_stands_on_one_line_and_moves_no_terminal() -> None:
    use = refused("unknown-tool", ended=0.0)
    use.tool = use.name = "a\x1b[2J`\n" * 40
    explanation = explain_use(use, Given(use))
    whole = explanation.words()
    assert "\x1b" not in whole
    assert len(whole) < 3000
    assert json.loads(json.dumps(explanation.as_json()))["kind"] == "explanation"


def test_words_are_wrapped_and_every_clause_is_in_them() -> None:
    use = refused("overloaded", ("start", 0.0), ended=0.1, held_by=tuple(f"c-{n}" for n in range(30)))
    use.facts = [("limit", "max_waiting 256", 100.1)]
    explanation = explain_use(use, Given(use))
    assert "the limit is `max_waiting 256`" in explanation.headline
    lines = explanation.words(60).splitlines()
    assert max(map(len, lines)) <= 60
    joined = " ".join(" ".join(lines).split())
    for clause in explanation.clauses:
        assert " ".join(clause.text.split()) in joined
    assert str(explanation) == explanation.words()


def test_no_more_clauses_than_people_read() -> None:
    use = a_use(*[(f"stage-{n % 7}", n / 10) for n in range(1, 3000)], ended=300.0, outcome="ok")
    use.facts = [("odd", "word", 100.0)] * 50
    use.held_by = tuple(f"c-{n}" for n in range(1000))
    events = [an_event(n, "list", n / 10, generation=n) for n in range(1, 500)]
    assert len(explain_use(use, Given(use, events=events)).clauses) <= CLAUSES


def classes(root: type[AfpoolError]) -> list[type[AfpoolError]]:
    return [root, *(each for sub in root.__subclasses__() for each in classes(sub))]


def test_every_code_of_a_call_has_words() -> None:
    for package in (afpool.artifacts, afpool.tools):
        for name in package.__all__:  # their classes are loaded when they are touched
            getattr(package, name)
    own = ("afpool._base", "afpool.client", "afpool.pool", "afpool.tools", "afpool.artifacts")
    codes = {each.code for each in classes(AfpoolError) if each.__module__.startswith(own)}
    assert codes - CODES == {"afpool-error"}
    assert CODES - codes == set()


def filed_kinds() -> set[str]:
    """The kinds of events that the code files."""
    found: set[str] = set()
    for path in (ROOT / "afpool").rglob("*.py"):
        for call in re.findall(r"\bevent\(\s*((?:\"[a-z-]+\"[^,()]*)+),", path.read_text(encoding="utf-8")):
            found.update(re.findall(r"(?<!== )\"([a-z-]+)\"", call))
    return found


def test_every_kind_of_event_has_words() -> None:
    kinds = filed_kinds()
    assert {"list", "list-changed", "stream-lost", "killed", "traced", "closing"} <= kinds
    kinds |= {"opened", "open-failed"}  # whose kind is no word where they are filed
    use = a_use(("start", 0.0), ended=1.0, outcome="ok")
    for kind in sorted(kinds):
        told = texts(explain_use(use, Given(use, events=[an_event(1, kind, 0.5, client=3)])))
        assert f"`{kind}` was filed" not in told, kind


def all_codes() -> list[Any]:
    found = []
    for each in classes(AfpoolError):
        found += [(each.code, delivery) for delivery in each.deliveries]
    return sorted(set(found))


@pytest.mark.parametrize(("code", "delivery"), all_codes())
def test_every_code_explains_itself_with_its_verdict(code: str, delivery: str) -> None:
    use = a_use(("start", 0.0), ended=0.1, code=code, delivery=delivery)
    use.outcome = "refused" if delivery in ("not-sent", "refused") else "failed"
    explanation = explain_use(use, Given(use))
    assert f"`{code}`" in explanation.headline
    assert explanation.clauses[-1].text.startswith("now: ")
    assert explanation.clauses[-1].facts == {"code": code, "delivery": delivery}
    assert KEY in explanation.clauses[0].text
