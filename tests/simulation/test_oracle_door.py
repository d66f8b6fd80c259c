"""The oracle's checks of the door on small runs written by hand: what is right passes, what is wrong is
seen.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import afpool
import afpool.artifacts
import afpool.tools
from tests.simulation.checks_delivery import check_attempts, check_verdicts
from tests.simulation.checks_door import check_artifacts, check_back, check_fills, check_runs, check_told
from tests.simulation.checks_door_causes import CAUSES, check_door_causes
from tests.simulation.checks_gate import check_gate
from tests.simulation.checks_lists import check_lists
from tests.simulation.ground import Answer, Began, Bound, Closing, Ended, Fact, Ran, Request, Revoked, Vended
from tests.simulation.ground_door import (
    ANY,
    Acknowledged,
    Asked,
    DoorChanged,
    HookSaid,
    LocalEnded,
    LocalRan,
    Refilled,
    SchemaChanged,
    ShelfAsked,
    Shelved,
    Told,
    Unshelved,
    VaultSaid,
)
from tests.simulation.oracle import CHECKS
from tests.simulation.oracle_law import DOOR_CODES, Law, ServerLaw
from tests.simulation.world_door import DoorSpec, LocalSpec, RulesSpec

ALICE, BOB, NOBODY = "acme/alice/c1", "acme/bob/c1", "-/-/-"
KEY = "files|acme/alice/c1"
FILL = {"account": "principal", "token": "credential"}
REF = "art_" + "a" * 22
TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
LAW = Law(
    servers={"files": ServerLaw()},
    door=DoorSpec(
        tools=(
            LocalSpec(name="own", kind="says"),
            LocalSpec(name="own-filled", kind="filled"),
            LocalSpec(name="own-needs", kind="needs"),
            LocalSpec(name="own-takes", kind="takes"),
        ),
        rules={"files": RulesSpec(fill=FILL)},  # type: ignore[arg-type]
    ),
)


class Story:
    """Facts that come one after the other, a second apart."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def add(self, fact: Any) -> Any:
        fact.seq, fact.at = len(self.facts), float(len(self.facts))
        self.facts.append(fact)
        return fact

    def asked(self, call: str = "d1", scope: str | None = ALICE, tool: str = "own", **more: Any) -> Any:
        more = {"server": None, "said": tool, "deadline": 1000.0, **more}
        return self.add(Asked(call=call, scope=scope, tool=tool, **more))

    def ran(self, call: str = "d1", tool: str = "own", scope: str = ALICE, **more: Any) -> None:
        more = {"args": {"mark": f"mark-of-{call}."}, **more}
        self.add(LocalRan(call=call, tool=tool, scope=scope, **more))

    def at_server(self, call: str = "d1", args: Any = None, tool: str = "vault") -> None:
        args = {"mark": f"mark-of-{call}.", **(args or {})}
        self.add(Ran(server="files", place="files-0", tool=tool, call=call, key=KEY, mark=None, args=args))

    def told(
        self, code: str = "ok", delivery: str | None = "answered", call: str = "d1", text: str = ""
    ) -> Any:
        return self.add(Told(call=call, code=code, delivery=delivery, text=text))

    def vended(self, value: str, whose: str = "acme/alice") -> None:
        self.add(Vended(owner=f"door-deep:{whose}", value=value))

    def fills(self) -> None:
        self.add(Refilled(server="files", fill=FILL))

    def shelved(self, ref: str = REF, scope: str = ALICE, **more: Any) -> None:
        more = {"kind": "doc", "call": None, "expires": None, "text": f"owned-by:{scope};", **more}
        self.add(Shelved(ref=ref, scope=scope, **more))

    def rules(self, check: Any, law: Law = LAW) -> list[str]:
        return [violation.rule for violation in check(self.facts, law)]


@pytest.fixture
def run() -> Story:
    return Story()


def test_every_check_of_the_door_is_played_through_here() -> None:
    of_the_door = {check.__name__ for check in CHECKS if "_door" in check.__module__}
    assert of_the_door
    assert of_the_door <= set(globals())


# ------------------------------------------------------------------------------------------ D1: fills


@pytest.mark.parametrize(
    ("args", "right"),
    [
        ({"account": "alice", "token": "of-alice"}, True),
        ({"token": "of-alice"}, True),
        ({"account": "bob"}, False),
        ({"token": "of-bob"}, False),
        ({"token": "nobody's"}, False),
        ({"account": "model-value-d1."}, False),
    ],
)
def test_what_is_filled_is_the_callers(run: Story, args: Any, right: bool) -> None:
    run.fills()
    run.vended("of-alice")
    run.vended("of-bob", "acme/bob")
    run.asked(server="files", tool="vault")
    run.at_server(args=args)
    run.asked("d2", tool="own-filled")
    run.ran("d2", "own-filled", args={"account": "alice", "token": "of-alice"})
    assert run.rules(check_fills) == ([] if right else ["D1"])


def test_what_is_filled_is_of_who_he_was_when_the_call_began(run: Story) -> None:
    run.fills()
    run.asked(server="files", tool="vault", scope=None)
    run.at_server(args={"account": "alice"})
    assert run.rules(check_fills) == ["D1"], "he could not be asked"


def test_what_a_model_says_for_a_filled_argument_never_leaves(run: Story) -> None:
    run.fills()
    run.asked(server="files", tool="vault")
    params = {"name": "vault", "arguments": {"token": "model-value-d1."}}
    request = {"link": 1, "place": "files-0", "verb": "POST", "call": "d1", "key": KEY}
    run.add(Request(server="files", params=params, **request))
    assert run.rules(check_fills) == ["D1"]
    run.add(Acknowledged(server="files"))
    assert run.rules(check_fills) == [], "the host has looked at what the server declares now"


def test_the_hosts_own_filled_tool_does_not_run_without(run: Story) -> None:
    run.vended("of-alice")
    run.asked(tool="own-filled")
    run.ran(tool="own-filled", args={"account": "alice"})
    assert run.rules(check_fills) == ["D1"]


# ------------------------------------------------------------------------------------------ D2: artifacts


def test_the_store_is_asked_in_the_callers_scope(run: Story) -> None:
    run.asked()
    run.add(ShelfAsked(scope=ALICE, verb="get", ref=REF, call="d1"))
    assert run.rules(check_artifacts) == []
    run.add(ShelfAsked(scope=BOB, verb="get", ref=REF, call="d1"))
    assert run.rules(check_artifacts) == ["D2"]


def test_calls_of_nobody_share_no_scope(run: Story) -> None:
    run.asked(scope=NOBODY)
    run.asked("d1:inner:1", scope=NOBODY, outer="d1")
    run.asked("d2", scope=NOBODY)
    for call, made_up in (("d1", "-/-/run-1"), ("d1:inner:1", "-/-/run-1"), ("d2", "-/-/run-2")):
        run.add(ShelfAsked(scope=made_up, verb="put", ref=None, call=call))
    assert run.rules(check_artifacts) == []
    run.add(ShelfAsked(scope="-/-/run-1", verb="list", ref=None, call="d2"))
    assert run.rules(check_artifacts) == ["D2"]


def test_what_belongs_to_another_comes_to_no_tool_and_back_to_nobody(run: Story) -> None:
    run.shelved(scope=BOB)
    run.asked(tool="own-takes", args={"doc": REF})
    run.ran(tool="own-takes", args={"doc": f"owned-by:{ALICE}; x"})
    run.told(text=f"owned-by:{ALICE}; x {REF}")
    assert run.rules(check_artifacts) == [], "he has named the reference himself"
    run.ran(tool="own-takes", args={"doc": f"owned-by:{BOB}; x"})
    run.told(text=f"owned-by:{BOB}; x")
    assert run.rules(check_artifacts) == ["D2", "D2"]


def test_no_reference_of_another_is_told(run: Story) -> None:
    run.shelved(scope=BOB)
    run.shelved("art_" + "b" * 22)
    run.asked()
    run.told("wants-refused", "not-sent", text="there is art_" + "b" * 22)
    assert run.rules(check_artifacts) == []
    run.told("wants-refused", "not-sent", text=f"there is {REF}")
    assert run.rules(check_artifacts) == ["D2"]


def test_what_a_store_that_strays_lists_is_told_by_a_tool_that_lists_and_by_nobody_else(run: Story) -> None:
    run.shelved(scope=BOB)
    for call in ("d1", "d2"):
        run.asked(call)
    run.add(LocalRan(call="d1", tool="own-shelf", scope=ALICE, args={}))
    for call in ("d1", "d2"):
        run.add(ShelfAsked(scope=ALICE, verb="list", ref=None, call=call, mood="strays"))
    run.add(LocalEnded(call="d1", how="returned"))
    run.told(call="d1", text=f"there is {REF}")
    assert run.rules(check_artifacts) == []
    run.told(call="d2", text=f"there is {REF}")
    assert run.rules(check_artifacts) == ["D2"]


# ------------------------------------------------------------------------------------------ D3, D4, D5, D7


def test_an_answer_is_of_the_very_call(run: Story) -> None:
    run.asked()
    run.asked("d2")
    run.asked("d1:inner:1", outer="d1")
    run.told(text="mark-of-d1. mark-of-d1:inner:1.")
    assert run.rules(check_told) == []
    run.told(text="mark-of-d2.")
    assert run.rules(check_told) == ["D3"]


def test_what_another_call_left_in_an_artifact_may_be_read_in_its_scope(run: Story) -> None:
    run.asked("d2")
    run.asked("d3", scope=BOB)
    run.asked(args={"doc": REF})
    run.shelved(text="mark-of-d2. mark-of-d3.")
    run.told(text="mark-of-d2.")
    assert run.rules(check_told) == []
    run.told(text="mark-of-d3.")
    assert run.rules(check_told) == ["D3"]


def test_a_tool_runs_with_its_own_arguments(run: Story) -> None:
    run.asked()
    run.ran(args={"mark": "mark-of-d9."})
    assert run.rules(check_told) == ["D3"]


def test_a_tool_of_the_hosts_own_runs_once(run: Story) -> None:
    run.asked()
    run.ran()
    assert run.rules(check_runs) == []
    run.ran()
    assert run.rules(check_runs) == ["D4"]


@pytest.mark.parametrize(("server", "tool"), [("files", "echo"), (None, "own-takes")])
def test_a_name_means_its_tool(run: Story, server: str | None, tool: str) -> None:
    run.asked(server=server, tool=tool)
    run.at_server(tool="echo") if server else run.ran(tool=tool)
    assert run.rules(check_runs) == []
    run.asked("d2", server=server, tool=tool)
    run.at_server("d2", tool="other") if server else run.ran("d2", tool="own")
    assert run.rules(check_runs) == ["D4"]
    run.asked("d3", server=server, tool=tool, intended=False)
    run.at_server("d3", tool="other") if server else run.ran("d3", tool="own")
    assert run.rules(check_runs) == ["D4"], "what was said was not its name"


def test_a_tool_runs_for_a_call_that_was_made(run: Story) -> None:
    run.asked("d2")
    run.ran()
    assert run.rules(check_runs) == ["D4"]


@pytest.mark.parametrize(
    ("runs", "delivery", "right"),
    [
        (True, "answered", True), (True, "in-doubt", True), (False, "not-sent", True),
        (True, "not-sent", False), (True, "refused", False), (False, "answered", False),
    ],
)  # fmt: skip
def test_verdicts_of_the_hosts_own_tools_are_true(run: Story, runs: bool, delivery: str, right: bool) -> None:
    run.asked()
    if runs:
        run.ran()
    run.told("tool-failed", delivery)
    assert run.rules(check_runs) == ([] if right else ["D5"])


def test_a_tool_runs_for_its_caller_with_his_credential(run: Story) -> None:
    run.vended("of-alice")
    run.vended("of-bob", "acme/bob")
    run.asked(tool="own-needs")
    run.ran(tool="own-needs", credential="of-alice")
    run.asked("d2", scope="-/-/run-1", run="run-1")
    run.ran("d2", scope=NOBODY)
    assert run.rules(check_runs) == [], "the scope of a run of nobody's is no caller"
    run.asked("d3", tool="own-needs")
    run.ran("d3", "own-needs", credential="of-bob")
    run.asked("d4")
    run.ran("d4", scope=BOB)
    run.asked("d5", scope="-/-/run-1", run="run-1")
    run.ran("d5", scope="-/-/run-1")
    assert run.rules(check_runs) == ["D7", "D7", "D7"]


# ------------------------------------------------------------------------------------------ D6


def test_every_call_comes_back_once_in_time(run: Story) -> None:
    run.asked()
    run.told()
    assert run.rules(check_back) == []
    run.told()
    run.asked("d2")
    run.asked("d3", deadline=2.0)
    run.told(call="d3")
    assert run.rules(check_back) == ["D6", "D6", "D6"]


# ------------------------------------------------------------------------------------------ C1


def _refused(run: Story, code: str, delivery: str = "not-sent", **asked: Any) -> None:
    run.told(code, delivery, run.asked(**asked).call)


CASES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "unknown-tool": ({}, "not-sent", lambda run: run.add(DoorChanged(how="fewer-tools", server="files"))),
    "denied": ({}, "not-sent", lambda run: run.add(HookSaid(call="d1", hook=0, after=False, how="raises"))),
    "invalid-arguments": ({}, "not-sent", None),
    "ERR_HOST_FILLED_ARGUMENT": (
        {}, "not-sent", lambda run: run.add(HookSaid(call="d1", hook=0, after=False, how="puts-filled")),
    ),
    "ERR_HOST_FILLED_VALUE_MISSING": (
        {}, "not-sent", lambda run: run.add(VaultSaid(call="d1", owner="o", how="several")),
    ),
    "wants-refused": ({"ref": REF}, "not-sent", lambda run: run.add(Unshelved(ref=REF))),
    "ERR_NO_ARTIFACT_STORE": ({}, "not-sent", None),
    "ERR_ARTIFACT_STORE": (
        {}, "not-sent",
        lambda run: run.add(ShelfAsked(scope=ALICE, verb="get", ref=REF, call="d1", mood="fails")),
    ),
    "pool-closed": ({}, "not-sent", lambda run: run.add(Closing())),
    "deadline-exceeded": ({}, "in-doubt", None),
    "tool-failed": ({}, "answered", lambda run: run.ran()),
    "credential-failed": (
        {"tool": "own-needs"}, "not-sent", lambda run: run.add(VaultSaid(call="d1", owner="o", how="raises")),
    ),
    "authorization-required": (
        {"tool": "own-needs"}, "not-sent",
        lambda run: run.add(VaultSaid(call="d1", owner="o", how="needs-consent")),
    ),
}  # fmt: skip


def test_every_cause_is_played_through_here() -> None:
    assert set(CASES) == set(CAUSES)


@pytest.mark.parametrize("code", CASES)
def test_a_refusal_has_a_cause(run: Story, code: str) -> None:
    asked, delivery, cause = CASES[code]
    run.shelved()
    run.asked(**asked)
    run.told(code, delivery)
    assert run.rules(check_door_causes) == ["C1"]
    if cause is None:
        return
    other = Story()
    other.shelved()
    other.asked(**asked)
    cause(other)
    other.told(code, delivery)
    assert other.rules(check_door_causes) == []


def test_causes_that_lie_in_how_a_call_was_made(run: Story) -> None:
    _refused(run, "invalid-arguments", call="d1", shape="list")
    _refused(run, "ERR_HOST_FILLED_ARGUMENT", call="d2", sets=("token",))
    _refused(run, "wants-refused", call="d3", ref="art_gone")
    _refused(run, "deadline-exceeded", "in-doubt", call="d4", deadline=5.0)
    _refused(run, "unknown-tool", call="d5", said="no-such", intended=False)
    assert run.rules(check_door_causes) == []


@pytest.mark.parametrize(
    "gone",
    [
        {"scope": BOB}, {"kind": "note"}, {"expires": 1.5},
    ],
)  # fmt: skip
def test_a_reference_is_good_in_its_scope_of_its_kind_until_it_expires(run: Story, gone: Any) -> None:
    run.shelved(**gone)
    run.asked(ref=REF)
    run.told("wants-refused", "not-sent")
    assert run.rules(check_door_causes) == []


def _listed(run: Story, tool: Any = TOOL) -> None:
    request = run.add(
        Request(
            link=1, server="files", place="files-0", verb="POST", method="tools/list", id=1, key=KEY,
            session="s",
        )
    )  # fmt: skip
    message = {"id": 1, "result": {"tools": [tool]}}
    request.answers.append(run.add(Answer(request=request, status=200, message=message)))


def test_arguments_that_the_schema_takes_are_not_refused(run: Story) -> None:
    _listed(run)
    _refused(run, "invalid-arguments", server="files", tool="echo", args={"n": "one"})
    assert run.rules(check_door_causes) == []
    run.asked("d2", server="files", tool="echo", args={"n": 1})
    run.told("invalid-arguments", "not-sent", "d2")
    assert run.rules(check_door_causes) == ["C1"]


def test_arguments_that_the_schema_refuses_do_not_run(run: Story) -> None:
    _listed(run)
    run.asked(server="files", tool="echo", args={"n": 1})
    run.at_server(tool="echo")
    assert run.rules(check_door_causes) == []
    run.asked("d2", server="files", tool="echo", args={"n": "one"})
    run.at_server("d2", tool="echo")
    assert run.rules(check_door_causes) == ["C1"]
    run.facts.insert(0, SchemaChanged(server="files", how="other"))
    assert run.rules(check_door_causes) == [], "which of its schemas it was is not known"


def test_what_is_denied_does_not_run(run: Story) -> None:
    run.asked()
    run.add(HookSaid(call="d1", hook=0, after=False, how="denies"))
    run.ran()
    assert run.rules(check_door_causes) == ["C1"]


def test_what_is_no_object_does_not_run(run: Story) -> None:
    run.asked(shape="text")
    run.ran()
    assert run.rules(check_door_causes) == ["C1"]


def test_a_call_that_brings_a_filled_value_does_not_run(run: Story) -> None:
    run.fills()
    run.asked(server="files", tool="vault", sets=("TOKEN",))
    run.at_server()
    assert run.rules(check_door_causes) == ["C1"]


# ------------------------------------------------------------------------------------------ with the pool's


def _began(run: Story, call: str = "d1", tools: int = ANY, **more: Any) -> None:
    more = {"caller": None, "who": KEY, "deadline": 1000.0, "mark": f"mark-of-{call}.", **more}
    run.add(Began(call=call, tools=tools, key=KEY, tool="echo", **more))


def _sent(run: Story, call: str = "d1", **more: Any) -> Any:
    more = {"link": 1, "server": "files", "place": "files-0", "verb": "POST", "method": "tools/call", **more}
    return run.add(Request(call=call, key=KEY, whole=len(run.facts), id=len(run.facts), **more))


def test_a_call_by_name_stands_on_a_list_of_its_own(run: Story) -> None:
    from tests.simulation.ground import Linked

    run.add(Linked(link=1, server="files", place="files-0", kind="http", key=KEY, plan=""))
    _began(run)
    run.add(Revoked(keys=frozenset({KEY})))
    _sent(run)
    assert run.rules(check_gate) == [], "it lists after that"
    run.add(Closing())
    _sent(run)
    assert run.rules(check_gate) == ["I2"]


def test_a_second_call_is_made_only_where_nothing_ran(run: Story) -> None:
    _began(run, tools=1)
    first = _sent(run)
    first.answers.append(run.add(Answer(request=first, status=401)))
    _sent(run, again=True)
    assert run.rules(check_attempts) == []
    lost = Story()
    _began(lost, tools=1)
    _sent(lost)
    _sent(lost, again=True)
    assert lost.rules(check_attempts) == ["I3"]


def test_a_second_call_stands_on_a_list_of_its_own_and_on_the_same_definition(run: Story) -> None:
    text = json.dumps(TOOL, sort_keys=True)
    _listed(run)
    run.add(
        Bound(
            tools=1, key=KEY, context="pc", name=None, shared=False, epoch_from=len(run.facts),
            definitions={"echo": text, "other": "{}"},
        )
    )  # fmt: skip
    _began(run, tools=1)
    _listed(run)
    _sent(run, again=True, session="s")
    assert run.rules(check_lists) == []
    _sent(run, session="s")
    assert run.rules(check_lists) == ["I5"], "the first one stands on the list that it was bound by"
    _listed(run, {**TOOL, "description": "another"})
    _sent(run, again=True, session="s")
    assert run.rules(check_lists) == ["I5", "I5"]


def test_what_the_door_refuses_has_a_verdict_of_its_class(run: Story) -> None:
    _began(run)
    run.add(Ended(call="d1", code="denied", delivery="not-sent"))
    assert run.rules(check_verdicts) == []
    _began(run, "d2")
    run.add(Ended(call="d2", code="wants-refused", delivery="answered"))
    assert "I10" in run.rules(check_verdicts)


def test_every_code_of_the_door_is_one_of_afpool_with_its_verdicts() -> None:
    for module in (afpool.tools, afpool.artifacts):
        for name in module.__all__:
            getattr(module, name)
    known: dict[str, set[str]] = {}

    def below(kind: type[afpool.AfpoolError]) -> None:
        for one in kind.__subclasses__():
            known[one.code] = set(one.deliveries)
            below(one)

    below(afpool.AfpoolError)
    assert {code: known[code] for code in DOOR_CODES} == {
        code: set(each) for code, each in DOOR_CODES.items()
    }
