"""The harness of the neighbours runs in a short form, and judges what it is given. No time counts here."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.test_benchmarks_run import BENCHMARKS, load, run

neighbours = load("neighbours")
CASE = neighbours.CASES[0]
HEAVY = next(case for case in neighbours.CASES if case.heavy)


@pytest.mark.parametrize("only", ["hangs in connect", "100 MB", "crash in call"])
def test_a_case_is_made_in_all_its_windows(only):
    printed = run(
        "neighbours.py", "--only", only, "--rounds", "1", "--seconds", "0.3", "--tries", "1", code=None
    )
    for name in ("before", "again", "during", "after"):
        assert sum(line.startswith(f"  {name} ") for line in printed.splitlines()) == 1, printed
    assert ("noise alone" in printed) == (only != "hangs in connect")
    assert "A/A" in printed
    assert "1 cases; " in printed
    written = json.loads((BENCHMARKS / "results" / "neighbours.json").read_text())["cases"][0]
    assert all(window["calls"] == 30 for windows in written["windows"].values() for window in windows)


def outcome(case=CASE, *, again=1.0, during=1.0, alone=None):
    """What three rounds might have seen: a slow machine in the last."""
    made = neighbours.Outcome(case)
    factors = {"before": 1.0, "again": again, "during": again * during, "after": again}
    if alone is not None:
        factors["noise alone"] = again * alone
    for name, factor in factors.items():
        for slow in (1.0, 1.1, 5.0):
            made.windows[name].append(
                neighbours.Window(p50=0.02, p99=0.03 * factor * slow, calls=100, busy=0.4, own=0.2)
            )
    return made


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (outcome(), 0, "moved by +0.0%"),
        (outcome(during=1.19), 0, "moved by +19.0%"),
        (outcome(during=0.5), 0, "moved by -50.0%"),
        (outcome(during=1.21), 1, "MISSED"),
        (outcome(again=1.09), 0, "moved by +0.0%"),
        (outcome(again=1.11), 1, "does not count"),
        (outcome(again=0.89, during=3.0), 1, "does not count"),
        (outcome(HEAVY, during=1.3, alone=1.25), 1, "+25.0% by the noise's processor time alone"),
    ],
)
def test_what_counts_and_what_is_missed(given, code, said, capsys):
    assert neighbours.judged([outcome(), given]) == code
    neighbours.show(given)
    assert said in capsys.readouterr().out


def test_one_hiccup_of_the_machine_is_no_trouble():
    made = outcome()
    made.windows["during"][1] = neighbours.Window(p50=1.0, p99=2.0, calls=100, busy=1.0, own=0.2)
    assert made.kept
    assert made.counts
