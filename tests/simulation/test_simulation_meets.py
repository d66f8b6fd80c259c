"""What an operator sees, a whole server that is held, an app that makes mistakes or raises; and each of the
checks of these is seen to fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from afpool import Server
from afpool.pool import _operators, _records
from tests.simulation import steps as s
from tests.simulation.checks_gate import check_gate
from tests.simulation.counts import apart
from tests.simulation.driver import run_story
from tests.simulation.driver_mistakes import PLANS, SERVERS, taken
from tests.simulation.ground_host import ServerFreed, ServerHeld
from tests.simulation.test_oracle_broken import call, listed, rules, sleeping, story
from tests.simulation.test_oracle_checks import Story
from tests.simulation.world import Manners

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_server_that_is_held():
    run = Story()
    run.opened()
    run.began("c1")
    run.add(ServerHeld(server="files"))
    run.began("c2")
    run.sent("c1")
    assert run.rules(check_gate) == []
    run.sent("c2")
    assert run.rules(check_gate) == ["I2"]
    run.add(ServerFreed(server="files"))
    run.began("c3")
    run.sent("c3")
    assert run.rules(check_gate) == ["I2"]


def a_held_server_that_admits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_operators, "_limit", lambda pool, name, *, halted: 0)


def keys_that_nobody_finds(patch: pytest.MonkeyPatch) -> None:
    def found(pool: Any, shown: str) -> Any:
        raise LookupError

    patch.setattr(_operators, "shown_as", found)


def events_that_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_records.EventRing, "since", lambda self, number: iter(()))


def calls_that_are_not_traced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_records.Records, "begin", lambda self, use: None)


def configurations_that_nobody_checks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Server, "__attrs_post_init__", lambda self: None)


HELD = s.HoldServer(at=1, server="files", seconds=3)
BROKEN: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], s.Story]] = {
    "I2 held": (a_held_server_that_admits, story(listed(), HELD, call(2, 1))),
    "E5 keys": (keys_that_nobody_finds, story(listed(), s.Look(at=1))),
    "E5 events": (events_that_go, story(listed(), s.Look(at=1))),
    "E5 traces": (calls_that_are_not_traced, story(listed(), call(1, 1), app="traces")),
    "E4 servers": (
        configurations_that_nobody_checks,
        story(listed(), s.Reconfigure(at=1, server="files", how="wrong")),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_seen(case, monkeypatch):
    break_it, told = BROKEN[case]
    assert rules(told) == set(), "the pool as it is"
    break_it(monkeypatch)
    assert case.split()[0] in rules(told)


def test_calls_wait_while_their_server_is_held():
    report = run_story(story(listed(), sleeping(0.5, 1, 0.1), HELD, call(2, 2), call(3, 3)))
    assert report.violations == []
    ran = [float(line.split()[0]) for line in report.lines if " Ran " in line]
    assert ran[0] < HELD.at
    assert min(ran[1:]) >= HELD.at + HELD.seconds
    assert report.counts["met:admission HoldServer"] == 0, "nobody waited when it was held"


def test_a_held_server_that_is_taken_out_is_held_no_more():
    back = [s.Reconfigure(at=2, server="files", how="remove"), s.Reconfigure(at=3, server="files", how="add")]
    held = s.HoldServer(at=1, server="files", seconds=50)
    report = run_story(story(listed(), held, *back, call(4, 1, binding="listed")))
    assert report.violations == []
    assert report.counts["outcome:ok"] == 1 + 2, "and those of the recovery"


@pytest.mark.parametrize("how", ["replan", "credentials", "limits"])
def test_what_else_is_configured(how):
    told = story(listed(), call(1, 1), s.Reconfigure(at=2, server="files", how=how), call(3, 2))
    report = run_story(told)
    assert report.violations == []
    assert report.counts[f"reconfigure:{how}"] == 1
    assert report.counts["outcome:binding-changed"] == (0 if how == "limits" else 1)


@pytest.mark.parametrize("app", ["deaf", "raises", "hears", "traces"])
def test_what_an_app_makes_of_it_changes_nothing(app):
    changed = s.ChangeTools(at=1.5, server="files", tool="sleep")
    said = s.Announce(at=1.2, server="files", what="log", times=3)
    told = story(
        listed(), call(1, 1), said, changed, call(2, 2, binding="listed"), app=app,
        server={"kind": "websocket", "manners": Manners(logs=True)},
    )  # fmt: skip
    report = run_story(told)
    assert report.violations == []
    assert report.counts["outcome:ok"] >= 2


def test_what_an_app_raises_is_no_fault_of_the_pool(caplog):
    with caplog.at_level(logging.CRITICAL):
        assert rules(story(listed(), call(1, 1), app="raises")) == set()


def test_mistakes_are_refused():
    assert taken(PLANS) == []
    assert taken(SERVERS) == []
    assert taken((lambda: 7,)) == ["7"]


def test_what_never_met():
    pairs, never = apart({"met:admission KillKey": 3, "met:list CutLink": 1, "calls": 4})
    assert len(never) == pairs - 2
    assert "admission+CutLink" in never
    assert "admission+KillKey" not in never
    assert not any(each.endswith("+Call") for each in never)
