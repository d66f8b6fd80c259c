"""The harnesses of the door and what stands around it run, and tell what is missed. No time is looked at."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_benchmarks_run import load, run

SHORT = ("--rounds", "1", "--seconds", "0.0005")


def test_the_door_alone():
    printed = run("tools.py", *SHORT, code=None)
    assert printed.count(" us") == 7
    assert printed.count("at most") == 2
    assert "argument filled in" in printed


def test_everything_beside_its_limit():
    printed = run("tools.py", *SHORT, "--all", "--puts", "0.02", "--listed", "100", code=None)
    assert printed.count("at most") == 2 + 4 + 3 + 8
    assert printed.count("at least") == 5 + 2
    for word in ("cancel scopes", "5 patterns", "resolving one ref", "scrub 1 MB", "fill both", "16 putters"):
        assert word in printed


def test_redaction_and_wants():
    printed = run("shown.py", *SHORT, code=None)
    assert printed.count(" us") == 8
    assert printed.count("at most") == 4


def test_filled_arguments():
    printed = run("scrub.py", "--rounds", "1", code=None)
    assert printed.count(" MB/s") == 8
    assert printed.count(" us") == 7
    assert (printed.count("at least"), printed.count("at most")) == (5, 3)


@pytest.mark.parametrize(
    ("measured", "limit", "at_least", "kept"),
    [
        (2.0, 2.0, False, True),
        (2.1, 2.0, False, False),
        (2.0, 2.0, True, True),
        (1.9, 2.0, True, False),
        (9e9, None, False, True),
    ],
)
def test_what_is_missed_is_told(capsys, measured, limit, at_least, kept):
    figures = load("figures")
    one = figures.Figure("that", measured, "us", limit, at_least)
    assert one.kept is kept
    assert figures.tell([figures.Figure("this", 1.0, "us"), one]) == (0 if kept else 1)
    printed = capsys.readouterr().out
    assert ("MISSED" in printed) is not kept
    assert ("missed: that" in printed) is not kept


@pytest.mark.parametrize("name", ["tools", "shown", "scrub", "artifacts"])
def test_a_miss_is_the_exit_code_of_its_harness(monkeypatch, capsys, name):
    harness = load(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    measure = "measured" if name == "artifacts" else "measure"
    for took, code in ((5.0, 0), (5.1, 1)):
        figures = [harness.Figure("short", took, "us", 5.0)]
        monkeypatch.setattr(harness, measure, lambda *_, figures=figures, **__: figures)
        assert harness.main() == code
    capsys.readouterr()


@pytest.mark.parametrize(("scope", "limit"), [(3.0, 25.0), (6.0, 25.0), (12.0, 50.0)])
def test_a_slow_machine_is_not_what_is_asked_about(scope, limit):
    tools = load("tools")
    assert tools.limit_of_the_door(scope) == limit
