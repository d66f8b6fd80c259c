"""A record that tells what is not so is seen: it is broken in one place, and a story shows it.

The same story on the record as it is breaks nothing, so that it is the breakage that is seen. `EXPLAINED` is
what the record says of real calls, changed in one place; each has to be seen by the rule that it breaks.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from afpool.pool import _call, _operation, _records
from afpool.record import Explanation, _explain, _explain_definition, _record
from afpool.record._explained import Clause
from afpool.record._pointers import Difference, Place
from tests.simulation import steps as s
from tests.simulation.checks_why import check_why
from tests.simulation.driver import Run, run_story
from tests.simulation.ground_why import Explained
from tests.simulation.kernel import run_world
from tests.simulation.oracle import judge
from tests.simulation.simulate import STORIES
from tests.simulation.test_oracle_broken import call, listed, sleeping, story
from tests.simulation.world import Way

if TYPE_CHECKING:
    from collections.abc import Callable

REVOKED = story(listed(), s.Invalidate(at=1, who="alice"), call(2, 1))
CHANGED = story(
    listed(), s.ChangeTools(at=1, server="files"), s.Refresh(at=2, who="alice"), call(4, 1, binding="first")
)
WAITED = story(
    listed(), sleeping(1, 1, 5), call(1.5, 2, deadline=2.0), call(6, 3, caller="nobody"),
    limits={"max_operations": 1},
)  # fmt: skip
FAILED = story(listed(), s.StatusNext(at=1, server="files", status=503), call(2, 1))
SLOW_CREDENTIAL = story(
    listed(), s.RotateCredential(at=1, server="files", how="slow"), call(2, 1, deadline=0.5),
    server={"way": Way(credential="user")},
)  # fmt: skip
SLOWLY = story(
    listed(), s.RotateCredential(at=1, server="files", how="slow"),
    s.StatusNext(at=1, server="files", status=503), call(2, 1), server={"way": Way(credential="user")},
)  # fmt: skip
NO_PLAN = story(
    s.ListTools(at=0.0, who="alice"),
    s.ChangePlan(at=1, who="alice", server="files", how="raises"),
    s.EvictKey(at=1.5, who="alice", server="files"),
    call(3, 1),
)
PASSED = s.Story.from_json(
    json.loads((STORIES / "place-held-by-a-pass-before-another-one.json").read_text(encoding="utf-8"))
)
"""A call waits for a place of one whose door makes it once more."""


SOUND: dict[int, Run] = {}
"""Runs on the record as it is, by the story's identity."""


def rules(told: s.Story) -> set[str]:
    return {violation.split()[0] for violation in run_story(told).violations}


def sound(told: s.Story) -> Run:
    """The run of a story that breaks nothing; it is run once."""
    if id(told) not in SOUND:
        run = Run(told)
        with run.crashes, run.logs:
            run_world(run.main, told.seed)
        assert (run.failures, [str(each) for each in judge(run.ground.facts, run.law())]) == ([], [])
        SOUND[id(told)] = run
    return SOUND[id(told)]


# ------------------------------------------------------------------------------------------ a broken record


def explaining_raises(patch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Any:
        raise ZeroDivisionError

    patch.setattr(_record, "explain_use", failing)


def nothing_is_said(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_record, "explain_use", lambda *_: Explanation("", ()))


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_records.Records, "find", lambda self, call_id: [])


def other_codes_are_told(patch: pytest.MonkeyPatch) -> None:
    told = _record.use_as_json
    patch.setattr(_record, "use_as_json", lambda *a, **more: {**told(*a, **more), "code": "stale-tools"})


def events_of_another_kind(patch: pytest.MonkeyPatch) -> None:
    event = _records.Records.event
    patch.setattr(
        _records.Records,
        "event",
        lambda self, kind, *a, **more: event(self, "reconfigured" if kind == "revoked" else kind, *a, **more),
    )


def nothing_is_blamed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("afpool._base.use.Use.blame", lambda self, event: None)


def the_call_itself_held_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        _operation, "holders_of_key", lambda call: setattr(call.use, "held_by", (call.use.call_id,))
    )


def whatever_came_may_be_made_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_explain, "advice", lambda use: "the call may be made again")


def bytes_leave_before_they_do(patch: pytest.MonkeyPatch) -> None:
    recheck = _call.Call.recheck

    def early(self: Any, stage: str, *, gate: bool = True) -> None:
        recheck(self, stage, gate=gate)
        if stage == "start":
            self.use.marks += ("sent", self.checked_at)

    patch.setattr(_call.Call, "recheck", early)


def definitions_differ_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        _explain_definition,
        "difference",
        lambda *_: Difference((Place("/inputSchema/type", "changed"),)),
    )
    patch.setattr(_record, "difference_in_steps", _no_steps)


async def _no_steps(*_: object) -> Difference:
    return Difference((Place("/inputSchema/type", "changed"),))


def another_answer_is_noted(patch: pytest.MonkeyPatch) -> None:
    noted = _call.Call.noted
    patch.setattr(_call.Call, "noted", lambda self, stage, word: noted(self, stage, "http 418"))


def who_called_is_named(patch: pytest.MonkeyPatch) -> None:
    explain = _record.explain_use

    def telling(use: Any, *more: Any) -> Explanation:
        told = explain(use, *more)
        clause = Clause(None, f"it was called for {use.who.principal}", {}, "use")
        return attrs.evolve(told, clauses=(*told.clauses, clause))

    patch.setattr(_record, "explain_use", telling)


BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], s.Story]] = {
    "explaining raises": ("W1", explaining_raises, REVOKED),
    "nothing is said": ("W1", nothing_is_said, REVOKED),
    "nothing is kept": ("W1", nothing_is_kept, REVOKED),
    "other codes are told": ("W2", other_codes_are_told, REVOKED),
    "events of another kind": ("W3", events_of_another_kind, REVOKED),
    "nothing is blamed": ("W3", nothing_is_blamed, REVOKED),
    "a call held what it waited for": ("W4", the_call_itself_held_it, WAITED),
    "whatever came may be made again": ("W5", whatever_came_may_be_made_again, FAILED),
    "bytes leave before they do": ("W5", bytes_leave_before_they_do, SLOWLY),
    "definitions differ elsewhere": ("W6", definitions_differ_elsewhere, CHANGED),
    "another answer is noted": ("W7", another_answer_is_noted, FAILED),
    "who called is named": ("W8", who_called_is_named, REVOKED),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_record_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, breaks, told = BROKEN[what]
    assert sound(told)
    breaks(monkeypatch)
    assert rule in rules(told)


# ------------------------------------------------------------------------------------------ changed words


def _explained(told: s.Story) -> tuple[Run, Explained]:
    run = sound(told)
    return run, next(fact for fact in run.ground.facts if isinstance(fact, Explained))


def _clause(body: Any, source: str) -> Any:
    return next(clause for clause in body["clauses"] if clause["source"] == source)


def _stage(body: Any, name: str) -> Any:
    return next(clause for clause in body["clauses"] if clause["facts"].get("stage") == name)


def _later(body: Any) -> None:
    _clause(body, "event")["at"] += 0.5


def _other_event(body: Any) -> None:
    _clause(body, "event")["facts"]["kind"] = "killed"


def _invented_event(body: Any) -> None:
    _clause(body, "event")["facts"]["kind"] = "struck-by-lightning"


def _nobodys_key(body: Any) -> None:
    _clause(body, "event")["facts"]["key"] = "k:000000000000"


def _longer_ago(body: Any) -> None:
    body["headline"] = body["headline"].replace("1.00 s before the call", "2.00 s before the call")


def _other_tool(body: Any) -> None:
    body["use"]["tool"] = "sleep"


def _other_key(body: Any) -> None:
    body["use"]["key"] = "k:000000000000"


def _took_longer(body: Any) -> None:
    body["use"]["took"] += 1.0


def _other_verdict(body: Any) -> None:
    body["use"]["delivery"] = "answered"


def _another_holder(body: Any) -> None:
    body["use"]["held_by"] = ["c3"]


def _a_stranger_held(body: Any) -> None:
    body["use"]["held_by"] = ["somebody"]


def _holder_ended(body: Any) -> None:
    _clause(body, "sibling")["facts"]["ended"] = 0.1


def _holder_of_another_tool(body: Any) -> None:
    _clause(body, "sibling")["facts"]["tool"] = "echo"


def _no_generation(body: Any) -> None:
    _clause(body, "definition")["facts"]["generation"] = [1, 7]


def _too_few_places(body: Any) -> None:
    _clause(body, "definition")["facts"]["differs"].pop()


def _removed(body: Any) -> None:
    _clause(body, "definition")["facts"]["differs"][0]["how"] = "removed"


def _gone(body: Any) -> None:
    clause = _clause(body, "definition")
    clause["text"] = "the list does not hold `echo` any more"


def _shares(body: Any) -> None:
    spent = next(clause for clause in body["clauses"] if "spent" in clause["facts"])["facts"]["spent"]
    spent[next(iter(spent))] += 1.0


def _nothing_sent(body: Any) -> None:
    clause = next(clause for clause in body["clauses"] if clause["text"].startswith("a request of"))
    clause["text"] = "nothing was sent: no byte of its request left"


def _credential(body: Any) -> None:
    body["use"]["stages"] = [["start", 0.0], ["credential", 0.5]]


def _plan_raised(body: Any) -> None:
    body["clauses"].append(
        {"at": None, "text": "x", "facts": {"fact": ["plan", "AppFault"]}, "source": "use"}
    )


def _argument(body: Any) -> None:
    body["clauses"].append({"at": None, "text": "mark-of-c1.", "facts": {}, "source": "use"})


def _no_order(body: Any) -> None:
    body["clauses"][0]["at"] = 99.0


CHANGES: dict[str, tuple[str, s.Story, Callable[[Any], None]]] = {
    "an event was at another time": ("W3", REVOKED, _later),
    "another event was the cause": ("W3", REVOKED, _other_event),
    "an event that nobody knows": ("W3", REVOKED, _invented_event),
    "an event of nobody's key": ("W3", REVOKED, _nobodys_key),
    "the cause was earlier than it was": ("W3", REVOKED, _longer_ago),
    "another tool was called": ("W2", REVOKED, _other_tool),
    "for another key": ("W2", REVOKED, _other_key),
    "it took longer": ("W2", REVOKED, _took_longer),
    "with another verdict": ("W2", FAILED, _other_verdict),
    "a call that had not begun held the place": ("W4", WAITED, _another_holder),
    "a call that nobody made held the place": ("W4", WAITED, _a_stranger_held),
    "the holder had ended": ("W4", WAITED, _holder_ended),
    "the holder was of another tool": ("W4", WAITED, _holder_of_another_tool),
    "lists that never came": ("W6", CHANGED, _no_generation),
    "it differs in fewer places": ("W6", CHANGED, _too_few_places),
    "it was removed where it changed": ("W6", CHANGED, _removed),
    "the list does not hold it": ("W6", CHANGED, _gone),
    "parts that are more than the whole": ("W5", WAITED, _shares),
    "nothing was sent, though something was": ("W5", FAILED, _nothing_sent),
    "a credential that nobody asked for": ("W5", FAILED, _credential),
    "the plan raised, though nobody asked": ("W7", FAILED, _plan_raised),
    "an argument is told": ("W8", REVOKED, _argument),
    "clauses in no order": ("W1", REVOKED, _no_order),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_not_so_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, told, change = CHANGES[what]
    run, fact = _explained(told)
    body = copy.deepcopy(dict(fact.told))
    change(body)
    monkeypatch.setattr(fact, "told", body)
    assert rule in {violation.rule for violation in check_why(run.ground.facts, run.law())}


@pytest.mark.parametrize("told", [REVOKED, CHANGED, WAITED, FAILED, SLOW_CREDENTIAL, NO_PLAN])
def test_a_call_that_did_not_end_well_is_explained_twice(told: s.Story) -> None:
    run, fact = _explained(told)
    same = [each for each in run.ground.facts if isinstance(each, Explained) and each.call == fact.call]
    assert [(each.when, each.how) for each in same] == [
        ("ended", "explain"),
        ("over", "explain"),
        ("over", "why"),
    ]
    assert all(each.told["use"]["call_id"] == fact.call for each in same)


PASSES: dict[str, Callable[[Any], None]] = {
    "with another code": lambda clause: clause.update(
        text=clause["text"].replace("connection-lost", "overloaded")
    ),
    "as one that was answered": lambda clause: clause["facts"].update(outcome="ok"),
    "half a second later": lambda clause: clause["facts"].update(ended=clause["facts"]["ended"] + 0.5),
    "not at all": lambda clause: clause["facts"].pop("ended"),
    "before it began": lambda clause: clause["facts"].update(leased=-5.0),
}


@pytest.mark.parametrize("how", PASSES)
def test_how_a_pass_ended_that_another_one_followed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sound(PASSED)
    facts = run.ground.facts
    fact = next(each for each in facts if isinstance(each, Explained) and each.call == "c19")
    body = copy.deepcopy(dict(fact.told))
    PASSES[how](_clause(body, "sibling"))
    monkeypatch.setattr(fact, "told", body)
    assert "W4" in {violation.rule for violation in check_why(facts, run.law())}
