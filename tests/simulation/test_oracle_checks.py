"""Every check of the oracle on small runs written by hand: what is right passes, what is wrong is seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.checks_causes import check_causes
from tests.simulation.checks_delivery import check_attempts, check_verdicts
from tests.simulation.checks_ends import check_answered, check_rest
from tests.simulation.checks_gate import check_gate, check_links
from tests.simulation.checks_limits import check_connecting, check_further, check_kept, check_listing
from tests.simulation.checks_lists import LIST_CHANGED, canonical, check_lists
from tests.simulation.checks_places import check_openings, check_places, check_rounds
from tests.simulation.counts import ELSEWHERE
from tests.simulation.ground import (
    RAISES,
    Answer,
    Began,
    Bound,
    Closing,
    Crashed,
    Ended,
    Fact,
    Filed,
    Heard,
    Hung,
    Killed,
    Linked,
    Named,
    Paused,
    PlanTold,
    Ran,
    Reconfigured,
    Request,
    Rest,
    Resumed,
    Revoked,
    Shared,
    Stopped,
    Unlinked,
    Vended,
    Withdrawn,
)
from tests.simulation.ground_door import Asked
from tests.simulation.oracle import CHECKS
from tests.simulation.oracle_law import CODES, Law, ServerLaw

ALICE, BOB = "files|acme/alice/-", "files|acme/bob/-"
TOOL = {"name": "echo", "description": "first"}
OTHER = {"name": "echo", "description": "second"}
LAW = Law(
    servers={"files": ServerLaw(), "old": ServerLaw(posted=True), "new": ServerLaw(era="stateless")},
    max_operations=2,
)


PLAYED_ELSEWHERE = {
    "check_why",  # in test_why_broken.py
    # in test_oracle_door.py
    "check_fills", "check_artifacts", "check_told", "check_runs", "check_back", "check_door_causes",
}  # fmt: skip


class Story:
    """Facts that come one after the other, a second apart unless told otherwise."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.clock = 0.0

    def add(self, fact: Any, at: float | None = None) -> Any:
        self.clock = self.clock + 1.0 if at is None else at
        fact.seq, fact.at = len(self.facts), self.clock
        self.facts.append(fact)
        return fact

    def opened(self, *, link: int = 1, key: str = ALICE, plan: str = "files-0/0") -> None:
        """A link, the plan that leads there, and tools that were handed out."""
        self.add(PlanTold(key=key, context="pc:1", place="files-0/0"))
        self.add(Linked(link=link, server="files", place="files-0", kind="http", key=key, plan=plan))
        self.bind(key)

    def bind(self, key: str = ALICE, tools: int = 1, **more: Any) -> None:
        more = {"name": None, "shared": False, "definitions": {"echo": canonical(TOOL)}, **more}
        self.add(Bound(tools=tools, key=key, context="pc:1", epoch_from=len(self.facts) - 1, **more))

    def began(self, call: str = "c1", key: str = ALICE, **more: Any) -> None:
        more = {"caller": None, "who": key, "deadline": self.clock + 60, "mark": f"mark-of-{call}.", **more}
        self.add(Began(call=call, tools=more.pop("tools", 1), key=key, tool="echo", **more))

    def sent(self, call: str | None = "c1", key: str = ALICE, **more: Any) -> Request:
        at = more.pop("at", None)
        more = {
            "link": 1, "server": "files", "place": "files-0", "verb": "POST", "method": "tools/call",
            "plan": "files-0/0", "whole": 0, "id": len(self.facts), **more,
        }  # fmt: skip
        request: Request = self.add(Request(call=call, key=key, **more), at)
        return request

    def answered(self, request: Request, at: float | None = None, **more: Any) -> None:
        more = {"status": 200, "message": {"id": request.id, "result": {"content": []}}, **more}
        request.answers.append(self.add(Answer(request=request, **more), at))

    def listed(self, *tools: Any, at: float | None = None, **more: Any) -> Request:
        request = self.sent(None, method="tools/list", **more)
        self.answered(request, message={"id": 1, "result": {"tools": list(tools)}}, at=at)
        return request

    def ended(self, code: str, delivery: str | None, call: str = "c1", **more: Any) -> None:
        at = more.pop("at", None)
        self.add(Ended(call=call, code=code, delivery=delivery, **more), at)

    def rules(self, check: Any, law: Law = LAW) -> list[str]:
        return [violation.rule for violation in check(self.facts, law)]


@pytest.fixture
def run() -> Story:
    return Story()


def test_every_check_is_played_through_here():
    assert {check.__name__ for check in CHECKS} - PLAYED_ELSEWHERE <= set(globals())


# ------------------------------------------------------------------------------------------ the gate


def test_what_leaves_through_an_open_gate(run):
    run.opened()
    run.began()
    run.sent()
    assert run.rules(check_gate) == []


CLOSED = {
    "the pool": [Closing()],
    "the key": [Revoked(keys=frozenset({ALICE}))],
    "the configuration": [Reconfigured(keys=frozenset({ALICE}))],
    "a kill": [Killed(key=ALICE)],
    "a crash": [Crashed(key=ALICE)],
    "another name": [Shared(key=ALICE, name="role")],
    "no name to be had": [Shared(key=ALICE, name=RAISES)],
    "a withdrawal": [Withdrawn(call="c1", found=True)],
    "its end": [Ended(call="c1", code="cancelled", delivery="not-sent")],
    "another plan": [PlanTold(key=ALICE, context="pc:2", place="files-1/0")],
}


@pytest.mark.parametrize("why", CLOSED)
def test_what_leaves_through_a_closed_gate(run, why):
    run.opened()
    run.began()
    run.listed(TOOL)
    for fact in CLOSED[why]:
        run.add(
            type(fact)(
                **{
                    name: getattr(fact, name)
                    for name in fact.__slots__
                    if name not in {"seq", "at"} and hasattr(fact, name)
                }
            )
        )
    run.sent()
    assert run.rules(check_gate) == ["I2"]


@pytest.mark.parametrize("why", ["the pool", "the key", "a kill", "a crash"])
def test_what_befalls_another_key_or_came_before_closes_no_gate(run, why):
    kind = {"the key": Revoked(keys=frozenset({BOB})), "a kill": Killed(key=BOB), "a crash": Crashed(key=BOB)}
    run.add(Revoked(keys=frozenset({ALICE})))
    run.add(Killed(key=ALICE))
    run.opened()
    run.began()
    if why in kind:
        run.add(kind[why])
    run.sent()
    assert run.rules(check_gate) == []


def test_a_plan_that_was_said_while_the_client_was_being_opened_may_be_the_older_one(run):
    run.opened()
    run.add(PlanTold(key=ALICE, context="pc:2", place="files-1/0"))
    run.listed(TOOL)
    run.began()
    run.sent()
    assert run.rules(check_gate) == []


def test_a_plan_counts_when_the_clock_has_moved_on(run):
    run.opened()
    run.listed(TOOL)
    run.began()
    told = run.add(PlanTold(key=ALICE, context="pc:2", place="files-1/0"))
    run.sent(at=told.at)
    assert run.rules(check_gate) == []


def test_a_caller_that_is_named_no_more(run):
    run.opened()
    run.add(Named(caller="alice", keys=frozenset({ALICE})))
    run.began(caller="alice", who=None)
    run.sent()
    run.add(Named(caller="alice", keys=frozenset()))
    run.sent()
    run.add(Named(caller="alice", keys=frozenset({BOB})))
    run.sent()
    assert run.rules(check_gate) == ["I2", "I2"]


def test_a_caller_who_is_somebody_else(run):
    run.opened()
    run.began(who=BOB)
    run.sent()
    assert run.rules(check_gate) == ["I2"]


def test_a_deadline_that_has_come(run):
    run.opened()
    run.began(deadline=100.0)
    run.sent(at=99.9)
    assert run.rules(check_gate) == []
    run.sent(at=100.0)
    assert run.rules(check_gate) == ["I2"]


def test_admission_that_is_held(run):
    run.opened()
    run.began("c1")
    run.add(Paused(key=ALICE))
    run.began("c2")
    run.sent("c1")
    assert run.rules(check_gate) == []
    run.sent("c2")
    assert run.rules(check_gate) == ["I2"]
    run.add(Resumed(key=ALICE))
    run.began("c3")
    run.sent("c3")
    assert run.rules(check_gate) == ["I2"]


def test_somebody_elses_link_plan_and_credential(run):
    run.opened()
    run.began()
    run.sent(key=BOB)
    assert run.rules(check_gate) == ["I1"]
    run.sent(plan="files-1/0")
    assert run.rules(check_gate) == ["I1", "I1"]
    run.add(Vended(owner="files:acme/bob", value="canary-7"))
    run.sent(headers={"authorization": "Bearer canary-7"})
    assert run.rules(check_gate) == ["I1", "I1", "I1"]
    run.sent("c9")
    assert run.rules(check_gate) == ["I1"] * 4, "nobody called c9"


def test_a_run_under_somebody_elses_name(run):
    run.opened()
    run.began()
    run.sent()
    run.add(Ran(server="files", place="files-0", tool="echo", call="c1", key=BOB, mark="mark-of-c1."))
    assert run.rules(check_gate) == ["I1"]


def test_one_link_and_one_session_serve_one_projection(run):
    run.sent(link=1, key=ALICE)
    run.sent(link=1, key=ALICE, session="s1")
    run.sent(link=2, key=BOB)
    assert run.rules(check_links) == []
    run.sent(link=1, key=BOB)
    assert run.rules(check_links) == ["I12"]
    run.sent(link=2, key=BOB, session="s1")
    assert run.rules(check_links) == ["I12", "I12"]


# ------------------------------------------------------------------------------------------ lists


def test_a_list_that_shows_another_definition(run):
    run.opened()
    run.listed(TOOL)
    run.began("c1")
    run.sent("c1")
    assert run.rules(check_lists) == []
    run.listed(OTHER)
    run.began("c2")
    run.sent("c2")
    assert "I5" in run.rules(check_lists)


def test_a_list_that_has_just_come_is_still_being_read(run):
    run.opened()
    run.listed(TOOL)
    run.began()
    newer = run.listed(OTHER)
    run.sent(at=newer.answers[0].at)
    assert run.rules(check_lists) == []


def test_a_list_that_lacks_the_tool_and_one_of_several_pages(run):
    run.opened()
    run.listed(TOOL)
    first = run.sent(None, method="tools/list")
    run.answered(first, message={"id": 1, "result": {"tools": [], "nextCursor": "p2"}})
    run.began("c1")
    run.sent("c1")
    assert run.rules(check_lists) == [], "half a list says nothing"
    second = run.sent(None, method="tools/list", params={"cursor": "p2"})
    run.answered(second, message={"id": 2, "result": {"tools": []}})
    run.began("c2")
    run.sent("c2")
    assert "I5" in run.rules(check_lists)


def test_a_change_of_another_tool_counts_where_any_change_refuses(run):
    neighbour = {"name": "more"}
    refusing = run.rules
    run.listed(TOOL, link=1)
    run.opened()
    run.listed(TOOL, neighbour | {"description": "new"})
    run.bind(tools=2, definitions={"echo": canonical(TOOL), "more": canonical(neighbour)})
    run.listed(TOOL, neighbour)
    run.began(tools=1)
    run.sent()
    assert refusing(check_lists) == []
    run.listed(TOOL, neighbour | {"description": "changed"})
    run.began("c2", tools=2)
    run.sent("c2")
    assert refusing(check_lists) == ["I5"]
    law = Law(servers={"files": ServerLaw(refuses=False)})
    assert refusing(check_lists, law) == []


def test_what_is_not_compared(run):
    assert canonical({"a": 1, "_meta": {"x": 1}}, ("/_meta",)) == canonical(
        {"_meta": {"x": 2}, "a": 1}, ("/_meta",)
    )
    assert canonical({"a": {"b": 1, "c": 2}}, ("/a/b",)) == canonical({"a": {"c": 2}})
    assert canonical({"a": 1}) != canonical({"a": 2})


def heard(run: Story, request: Request | None = None, **params: Any) -> None:
    run.add(Heard(link=1, place="files-0", key=ALICE, method=LIST_CHANGED, request=request, params=params))


def test_an_announced_change_closes_the_gate_until_it_is_asked_for(run):
    run.opened()
    stream = run.sent(None, verb="GET", method=None, session="s1")
    run.listed(TOOL, session="s1")
    heard(run, stream)
    run.began("c1")
    run.sent("c1", session="s1")
    assert run.rules(check_lists) == ["I2"]
    run.listed(TOOL, session="s1")
    run.began("c2")
    run.sent("c2", session="s1")
    assert run.rules(check_lists) == ["I2"]


def test_in_2026_a_change_is_announced_on_the_listening_stream(run):
    law = Law(servers={"files": ServerLaw(era="stateless")})
    run.opened()
    listen = run.sent(None, method="subscriptions/listen", id="l1")
    run.listed(TOOL)
    call = run.sent("c0")
    heard(run, call)
    run.began("c1")
    run.sent("c1")
    assert run.rules(check_lists, law) == []
    heard(run, listen, _meta={"io.modelcontextprotocol/subscriptionId": "l1"})
    run.began("c2")
    run.sent("c2")
    assert run.rules(check_lists, law) == ["I2"]


# ------------------------------------------------------------------------------------------ attempts and
# verdicts


def ran(run: Story, call: str = "c1") -> Ran:
    fact: Ran = run.add(Ran(server="files", place="files-0", tool="echo", call=call, key=ALICE, mark=None))
    return fact


def question(request: Request) -> dict[str, Any]:
    return {"id": request.id, "result": {"resultType": "input_required"}}


def test_a_tool_that_runs_twice(run):
    run.opened()
    run.began()
    run.sent()
    ran(run)
    assert run.rules(check_attempts) == []
    ran(run)
    assert run.rules(check_attempts) == ["I3"]


def test_a_server_that_recognises_calls_may_be_cut_short(run):
    run.opened()
    run.began(repeats=True)
    run.sent()
    first = ran(run)
    run.add(Stopped(ran=first.seq, done=False))
    ran(run)
    assert run.rules(check_attempts) == []
    ran(run)
    assert run.rules(check_attempts) == ["I3"]


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ({"status": 429, "message": None, "kind": "text"}, False),
        ({"status": 401, "message": None, "kind": "empty"}, False),
        ({"status": 403, "message": None, "headers": {"www-authenticate": "Bearer"}}, False),
        ({"status": 307, "message": None, "kind": "empty"}, False),
        ({"message": {"id": 1, "error": {"code": -32020}}}, False),
        ({"status": 503, "message": None, "kind": "text"}, True),
        ({"status": 403, "message": None, "kind": "text"}, True),
        ({"message": {"id": 1, "error": {"code": -32603}}}, True),
        ({"message": {"id": 1, "result": {}}}, True),
        ({"whole": False, "message": None}, True),
    ],
)
def test_what_may_be_followed_by_another_attempt(run, answer, wrong):
    run.opened()
    run.began()
    run.answered(run.sent(), **answer)
    run.sent()
    assert run.rules(check_attempts) == (["I3"] if wrong else [])


def test_no_attempt_follows_one_without_an_answer_unless_the_server_recognises_calls(run):
    run.opened()
    run.began("c1")
    run.sent("c1")
    run.sent("c1")
    assert run.rules(check_attempts) == ["I3"]
    run.began("c2", repeats=True)
    run.sent("c2")
    run.sent("c2")
    assert run.rules(check_attempts) == ["I3"]


def test_a_question_is_answered_once(run):
    run.opened()
    run.began()
    first = run.sent()
    run.answered(first, message=question(first))
    run.sent(params={"inputResponses": {}})
    assert run.rules(check_attempts) == run.rules(check_rounds) == []
    run.sent(params={"inputResponses": {}})
    assert run.rules(check_rounds) == ["I3"]


VERDICTS = [
    # code, verdict, what was sent and answered, whether it ran, whether that is true
    ("stale-tools", "not-sent", None, False, True),
    ("stale-tools", "not-sent", {}, False, False),
    ("deadline-exceeded", "not-sent", "sent", False, False),
    ("deadline-exceeded", "in-doubt", "sent", True, True),
    ("deadline-exceeded", "in-doubt", None, False, False),
    ("deadline-exceeded", "in-doubt", {}, True, False),
    ("deadline-exceeded", "answered", {}, True, False),
    ("server-refused", "refused", {"status": 429, "message": None}, False, True),
    ("server-refused", "refused", {"status": 429, "message": None}, True, False),
    ("server-refused", "refused", None, False, False),
    ("server-refused", "refused", {"status": 500, "message": None, "kind": "text"}, False, False),
    ("server-failed", "in-doubt", {"status": 503, "message": None, "kind": "text"}, True, True),
    ("server-error", "answered", {"message": {"id": 1, "error": {"code": -32603}}}, True, True),
    ("server-error", "answered", "sent", True, False),
    ("ok", "answered", {}, True, True),
    ("ok", "answered", "sent", True, False),
    ("ok", "answered", {"message": {"id": 1, "error": {"code": 1}}}, True, False),
    ("protocol-error", "answered", {"message": None, "hint": b"[["}, True, True),
    ("protocol-error", "answered", None, False, False),
    ("some-word", "not-sent", None, False, False),
    ("connection-lost", "refused", {"status": 429, "message": None}, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("code", "delivery", "answer", "ran_it", "true"), VERDICTS)
def test_what_a_caller_is_told(run, code, delivery, answer, ran_it, true):
    run.opened()
    run.began()
    if answer is not None:
        request = run.sent()
        if ran_it:
            ran(run)
        if answer != "sent":
            run.answered(request, **answer)
    run.ended(code, delivery, error_code=-32603 if code == "server-error" else None)
    assert bool(run.rules(check_verdicts)) is not true


def test_bytes_that_leave_after_a_call_was_said_to_be_not_sent(run):
    run.opened()
    run.began()
    run.ended("cancelled", "not-sent")
    assert run.rules(check_verdicts) == []
    run.sent()
    assert run.rules(check_verdicts) == ["I10"]


def test_an_answer_that_came_in_the_instant_of_the_end_may_have_come_too_late(run):
    run.opened()
    run.began()
    request = run.sent()
    run.answered(request, at=50.0)
    run.ended("deadline-exceeded", "in-doubt", at=50.0)
    assert run.rules(check_verdicts) == []


def test_the_text_of_another_call(run):
    run.opened()
    text = {"content": [{"type": "text", "text": "mark-of-c2."}]}
    run.began()
    run.answered(run.sent(), message={"id": 1, "result": text})
    run.ended("ok", "answered", text="mark-of-c2.")
    assert run.rules(check_verdicts) == ["I10"]


def test_a_text_that_nobody_sent(run):
    run.opened()
    run.began()
    run.answered(run.sent())
    run.ended("ok", "answered", text="mark-of-c1.")
    assert run.rules(check_verdicts) == ["I10"]


def test_after_a_question_nothing_is_said_to_have_run_nowhere(run):
    for call, code, delivery in (("c1", "stale-tools", "in-doubt"), ("c2", "stale-tools", "not-sent")):
        run.bind(tools=int(call[1]))
        run.began(call)
        request = run.sent(call)
        run.answered(request, message=question(request))
        run.ended(code, delivery, call)
    assert run.rules(check_verdicts) == ["I10"] * 2, "refused by no answer, and after a question"


def test_the_verdict_on_a_cancelled_caller_is_in_the_use(run):
    run.opened()
    run.began("c1")
    run.sent("c1")
    run.add(Filed(call="c1", outcome="cancelled", code="cancelled", delivery="not-sent"))
    run.ended("caller-cancelled", None, "c1")
    assert run.rules(check_verdicts) == ["I10"]
    run.began("c2")
    run.ended("caller-cancelled", None, "c2")
    assert run.rules(check_verdicts) == ["I10", "I10"], "and there has to be one"


def test_every_code_of_the_design_is_one_of_afpool_with_its_verdicts():
    import afpool

    def below(kind):
        return {each for one in kind.__subclasses__() for each in (one, *below(one))}

    classes = {
        each.code: set(each.deliveries)
        for each in below(afpool.AfpoolError)
        if each.__module__ == "afpool._base.errors"  # others are faults of the code, and reach nobody
        and each.code not in ELSEWHERE
    }
    assert classes == {code: set(deliveries) for code, deliveries in CODES.items() if code not in ELSEWHERE}


# ------------------------------------------------------------------------------------------ places, openings


def test_more_calls_at_work_than_there_are_places(run):
    run.opened()
    for number in (1, 2, 3):
        run.began(f"c{number}")
    first = run.sent("c1")
    run.sent("c2")
    assert run.rules(check_places) == []
    run.answered(first)
    run.sent("c3")
    assert run.rules(check_places) == []
    run.began("c4")
    run.sent("c4")
    assert run.rules(check_places) == ["I4"]


@pytest.mark.parametrize(
    "given_up",
    ["the link ends", "settle_timeout", "its notice and the grace", "a notice that got stuck", "nothing"],
)
def test_a_call_that_its_client_gave_up_on_holds_no_place(run, given_up):
    run.opened()
    verb = {"verb": "LINE"} if "notice" in given_up else {}
    for number in (1, 2):
        run.began(f"c{number}")
        run.sent(f"c{number}", link=number, **verb)
    run.ended("deadline-exceeded", "in-doubt", "c1")
    if given_up == "the link ends":
        run.add(Unlinked(link=1, by="client"))
    elif given_up == "settle_timeout":
        run.clock += LAW.settle_timeout
    elif "notice" in given_up:
        notice: dict[str, Any] = {"method": None, "whole": -1}
        if "stuck" not in given_up:
            notice = {"method": "notifications/cancelled", "params": {"requestId": run.facts[4].id}}
        run.sent(None, id=None, **notice, **verb)
        run.clock += LAW.cancel_grace
    run.began("c3")
    run.sent("c3", **verb)
    assert run.rules(check_places) == (["I4"] if given_up == "nothing" else [])


def test_two_openings_of_one_key_at_a_time(run):
    first = run.sent(None, link=1, method="initialize")
    run.sent(None, link=2, method="initialize", key=BOB)
    assert run.rules(check_openings) == []
    run.sent(None, link=3, method="server/discover", id=17)
    assert run.rules(check_openings) == [], "a sign of life"
    run.sent(None, link=4, method="server/discover", id=1)
    assert run.rules(check_openings) == ["I8"]
    run.answered(first)
    run.sent(None, link=5, method="initialize")
    assert run.rules(check_openings) == ["I8", "I8"], "the second still waits"


def test_an_opening_that_was_given_up_is_over(run):
    run.sent(None, link=1, method="initialize")
    run.add(Unlinked(link=1, by="client"))
    run.sent(None, link=2, method="initialize")
    assert run.rules(check_openings) == []


# ------------------------------------------------------------------------------------------ ends


def test_a_call_that_never_ends_or_ends_late(run):
    run.opened()
    run.began("c1", deadline=10.0)
    run.ended("ok", "answered", "c1", at=10.04)
    assert run.rules(check_answered) == []
    run.began("c2", deadline=20.0)
    run.ended("ok", "answered", "c2", at=20.2)
    assert run.rules(check_answered) == ["I7"]
    run.began("c3")
    assert run.rules(check_answered) == ["I7", "I7"]


@pytest.mark.parametrize(
    "end", [Hung(call="c1"), Withdrawn(call="c1", found=True)], ids=["cancelled", "withdrawn"]
)
def test_whoever_is_cancelled_is_back_at_once(end):
    for late in (0.01, 0.2):
        run = Story()
        run.opened()
        run.began()
        kind = type(end)
        run.add(kind(call="c1") if kind is Hung else kind(call="c1", found=True), at=30.0)
        run.ended("cancelled", "not-sent", at=30.0 + late)
        assert run.rules(check_answered) == ([] if late < 0.05 else ["I7"])


def test_what_is_left(run):
    run.add(Rest(when="quiet", what={"places": 0}))
    assert run.rules(check_rest) == []
    for when in ("quiet", "dropped", "closed"):
        run.add(Rest(when=when, what={"something": 1, "nothing": 0, "text": ""}))
    assert run.rules(check_rest) == ["I4", "I11", "I9"]


# ------------------------------------------------------------------------------------------ limits


def test_an_attempt_follows_only_so_often_and_not_too_soon(run):
    def attempts(count: int, gap: float = 1.0, **answer: Any) -> list[str]:
        run = Story()
        run.opened()
        run.began(deadline=1000.0)
        for _ in range(count):
            request = run.sent()
            run.answered(request, **{"message": None, "kind": "text", **answer})
            run.clock += gap - 1.0
        return run.rules(check_further)

    assert attempts(3, status=429) == []
    assert attempts(4, status=429) == ["I3"]
    assert attempts(2, status=429, headers={"retry-after": "2"}, gap=2.0) == []
    assert attempts(2, status=429, headers={"retry-after": "3"}, gap=2.0) == ["I3"]
    assert attempts(3, status=429, gap=6.0) == ["I3"], "twelve seconds of waiting"
    assert attempts(3, status=401) == []
    assert attempts(4, status=401) == ["I3"]
    assert attempts(4, status=308) == []
    assert attempts(5, status=308) == ["I3"]
    mismatch = {"message": {"id": 1, "error": {"code": -32020}}}
    assert attempts(2, **mismatch) == []
    assert attempts(3, **mismatch) == ["I3"]


@pytest.mark.parametrize(
    ("times", "wrong"),
    [((1.0, 1.1, 1.2), False), ((1.0, 1.1, 1.2, 1.3), True), ((1.0, 1.1, 2.0, 2.2), False)],
)
def test_lists_that_are_asked_for_too_often(run, times, wrong):
    for at in times:
        request = run.sent(None, method="tools/list", session="s1", at=at)
        run.answered(request, at=at, message={"id": 1, "result": {"tools": []}})
        run.sent(None, method="tools/list", session="s1", params={"cursor": "p2"}, at=at)
        run.sent(None, method="tools/list", session=f"other-{at}", at=at)
    assert run.rules(check_listing) == (["L1"] if wrong else [])


@pytest.mark.parametrize(
    ("key", "name", "wrong"), [(ALICE, "role", False), (ALICE, None, True), (BOB, "role", True)]
)
def test_the_list_of_another_authorization_is_another_list(run, key, name, wrong):
    for at in (1.0, 1.1, 1.2, 1.3):
        if at == 1.2:
            run.add(Shared(key=key, name=name))
        request = run.sent(None, method="tools/list", session="s1", at=at)
        run.answered(request, at=at, message={"id": 1, "result": {"tools": []}})
    assert run.rules(check_listing) == (["L1"] if wrong else [])


def test_more_openings_of_a_place_than_may_be(run):
    law = Law(max_connecting=1)
    first = run.sent(None, method="initialize", link=1)
    assert run.rules(check_connecting, law) == []
    run.sent(None, method="initialize", link=2, key=BOB)
    assert run.rules(check_connecting, law) == ["L2"]
    run.answered(first)
    run.add(Unlinked(link=2, by="client"))
    run.sent(None, method="server/discover", link=3)
    assert run.rules(check_connecting, law) == ["L2"]


def test_each_plan_of_a_server_in_memory_is_a_place(run):
    law = Law(max_connecting=1, servers={"files": ServerLaw(named_by_plan=True)})
    run.sent(None, method="initialize", link=1)
    run.sent(None, method="initialize", link=2, key=BOB, plan="files-0/1")
    assert run.rules(check_connecting, law) == []
    run.sent(None, method="initialize", link=3, key=BOB)
    assert run.rules(check_connecting, law) == ["L2"]


def test_a_sign_of_life_on_a_new_connection_is_no_opening(run):
    law = Law(max_connecting=1)
    run.sent(None, method="tools/list", link=1, id=13, key=ALICE)
    run.sent(None, method="server/discover", link=2, id=1, key=BOB)
    run.sent(None, method="server/discover", link=3, id=14, key=ALICE)
    assert run.rules(check_connecting, law) == []
    run.sent(None, method="server/discover", link=4, id=1, key=ALICE)
    assert run.rules(check_connecting, law) == ["L2"]


def test_a_connection_that_was_kept_for_too_long(run):
    law = Law(keepalive_expiry=4.0)
    run.answered(run.sent("c1", at=1.0), at=1.0)
    run.answered(run.sent("c2", at=5.0), at=5.0)
    assert run.rules(check_kept, law) == []
    run.sent("c3", at=9.1)
    assert run.rules(check_kept, law) == ["L3"]


# ------------------------------------------------------------------------------------------ causes

CAUSED = [
    ("identity-mismatch", {"who": BOB}, []),
    ("deadline-exceeded", {"deadline": 1.0}, []),
    ("share-failed", {}, [(Shared, {"key": ALICE, "name": RAISES})]),
    ("binding-changed", {}, [(Shared, {"key": ALICE, "name": "role"})]),
    ("binding-changed", {}, [(Revoked, {"keys": frozenset({ALICE})})]),
    ("binding-changed", {}, [(Reconfigured, {"keys": frozenset({ALICE})})]),
    ("binding-changed", {}, [(PlanTold, {"key": ALICE, "context": "pc:2", "place": "files-1/0"})]),
    ("stale-tools", {}, [(Heard, {"link": 1, "place": "files-0", "key": ALICE, "method": LIST_CHANGED})]),
    ("cancelled", {}, [(Withdrawn, {"call": "c1", "found": True})]),
    ("pool-closed", {}, [(Closing, {})]),
    ("actor-crashed", {}, [(Crashed, {"key": ALICE})]),
]


@pytest.mark.parametrize(("code", "call", "facts"), CAUSED)
def test_a_refusal_has_a_cause(code, call, facts):
    for caused in (True, False):
        run = Story()
        run.opened()
        run.listed(TOOL)
        run.began(**(call if caused else {}))
        for kind, members in facts if caused else ():
            run.add(kind(**members))
        run.ended(code, "not-sent")
        assert run.rules(check_causes) == ([] if caused else ["C1"])


def test_a_list_that_showed_another_definition_is_a_cause(run):
    run.opened()
    run.began()
    run.listed(OTHER)
    run.ended("stale-tools", "not-sent")
    assert run.rules(check_causes) == []


def test_a_caller_that_said_somebody_else_for_a_moment_is_a_cause(run):
    run.opened()
    run.add(Named(caller="alice", keys=frozenset({ALICE})))
    run.began("c1", caller="alice", who=None)
    run.add(Named(caller="alice", keys=frozenset()))
    run.add(Named(caller="alice", keys=frozenset({ALICE})))
    run.ended("identity-mismatch", "not-sent", "c1")
    assert run.rules(check_causes) == []
    run.began("c2", caller="alice", who=None)
    run.ended("identity-mismatch", "not-sent", "c2")
    assert run.rules(check_causes) == ["C1"]


@pytest.mark.parametrize("bare", [False, True])
def test_at_the_door_a_caller_is_another_by_any_of_his_names(run, bare):
    """Also by one that the server is not keyed on: what the host fills goes by all of them."""

    def asked() -> None:
        run.add(
            Asked(
                call="c1",
                scope="acme/alice/c1",
                caller="alice",
                server="files",
                tool="echo",
                said="echo",
                deadline=1000.0,
                way="execute" if bare else "dispatch",
            )
        )
        run.began("c1", caller="alice", who=None)

    run.opened()
    run.add(Named(caller="alice", keys=frozenset({ALICE}), scope="acme/alice/c1"))
    asked()
    run.add(Named(caller="bob", keys=frozenset({BOB}), scope="acme/bob/c1"))
    run.ended("identity-mismatch", "not-sent", "c1")
    assert run.rules(check_causes) == ["C1"]
    run.facts.pop()
    run.add(Named(caller="alice", keys=frozenset({ALICE}), scope="acme/alice/c2"))
    run.ended("identity-mismatch", "not-sent", "c1")
    assert run.rules(check_causes) == (["C1"] if bare else [])
