"""The measuring harnesses run, at tiny sizes. Nothing here looks at a time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(name: str, *arguments: str, code: int | None = 0, timeout: float = 100) -> str:
    """Run a harness; gives what it printed. `code=None` takes whatever its figures make of it, 0 or 1."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode in ({0, 1} if code is None else {code}), done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


def load(name: str):
    """Import a harness's module as the harness itself would, and leave no trace in this process."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(BENCHMARKS))
        for other in set(sys.modules) - before:
            if str(BENCHMARKS) in str(getattr(sys.modules[other], "__file__", None)):
                del sys.modules[other]


@pytest.mark.parametrize("rows", ["sessions", "throttled", "first_calls", "closed_before_use", "killed"])
def test_rows_of_the_fault_matrix(rows):
    printed = run("faults.py", "--only", rows)
    assert "0 not as expected" in printed
    assert "calls that ran twice, by logs" in printed
    assert all(len(line) <= 100 for line in printed.splitlines())


def test_stores_of_artifacts():
    # this small, neither a rate nor a ratio says anything: only that every part was measured
    printed = run("artifacts.py", "--seconds", "0.05", "--rounds", "1", "--listed", "200", code=None)
    for word in (
        "bare commits",
        "one putter",
        "16 putters",
        "memory, a page",
        "SQLite, a page",
        "a small get",
    ):
        assert word in printed
    assert printed.count("at least") == 2
    assert printed.count("at most") == 8


def test_puts_that_are_too_slow_are_said_so():
    artifacts = load("artifacts")

    def missed(**rates: list[float]) -> list[str]:
        return [figure.what for figure in artifacts.judged_puts({**given, **rates}) if not figure.kept]

    given = {"plain": [5000.0], "bare": [4000.0] * 3, "one": [2100.0] * 3, "sixteen": [5100.0] * 3}
    assert missed() == []
    assert missed(one=[1900.0] * 3) == ["one putter, of bare commits"]
    assert missed(sixteen=[4900.0] * 3) == ["16 putters"]
    # a slow disk is judged by itself
    given = {"plain": [300.0], "bare": [200.0] * 3, "one": [150.0] * 3, "sixteen": [500.0] * 3}
    assert missed() == []
    assert missed(sixteen=[390.0] * 3) == ["16 putters"]


def test_a_call_that_ran_twice_is_found(capsys):
    fault_lab = load("fault_lab")
    for runs, code in (([1, 2], 0), ([1, 2, 2], 1)):
        lab = fault_lab.Lab()
        lab.runs.update(runs)
        assert fault_lab.end(lab, 1.0) == code
    assert "NOT" in capsys.readouterr().out


def test_a_row_that_is_not_as_expected_is_told(capsys):
    fault_lab = load("fault_lab")
    lab = fault_lab.Lab()
    lab.runs.update([1])
    lab.row("a server that does this", "that", "something else", good=False)
    assert fault_lab.end(lab, 1.0) == 1
    assert "1 not as expected" in capsys.readouterr().out


def test_openings_at_once_are_counted_from_a_log():
    fault_keys = load("fault_keys")

    class Arrival:
        def __init__(self, name, connection):
            self.name, self.connection = name, connection

    began, done = "initialize", "notifications/initialized"
    log = [Arrival(began, 1), Arrival(began, 2), Arrival(done, 1), Arrival(began, 3), Arrival(done, 2)]
    assert fault_keys.openings(log) == (3, 2)


def test_quick_compares_both_transports():
    printed = run("quick.py", "--rounds", "1", "--seconds", "0.05", "--no-pin", code=None)
    for kind in ("bare-http", "afpool-http", "bare-stdio", "afpool-stdio"):
        assert printed.count(kind) >= 2
    written = json.loads((BENCHMARKS / "results" / "quick.json").read_text())
    assert {cell["concurrent"] for cell in written["http"]} == {1, 64}
    assert all(cell["per_second"] > 0 for cell in written["http"] + written["stdio"])


def test_a_slow_client_is_told():
    quick, compare = load("quick"), load("compare")

    def cell(kind, concurrent, ratio):
        return compare.Cell(kind, concurrent, 1.0, 1.0, 1.0, 1.0, ratio, ratio)

    slow = cell("afpool-http", 64, 0.79)
    cells = [
        cell("bare-http", 1, None),
        cell("afpool-http", 1, 0.8),
        slow,
        cell("afpool-http", 8, 0.1),
        cell("sdk-http", 1, 0.1),
    ]
    assert quick.too_slow(cells) == [slow]


def test_memory_opens_every_key_and_leaves_no_actor():
    printed = run("memory.py", "--keys", "50", code=None)
    for what in ("clients opened for real", "dropped: actors left", "dropped: actors held by the pool"):
        row = next(line for line in printed.splitlines() if line.startswith(what))
        assert row.endswith("ok")


@pytest.mark.peer
def test_openings_are_compared_over_both_schemes():
    printed = run("openings.py", "--rounds", "1", "--openings", "3", "--no-pin", code=None)
    for client in ("afpool ", "afpool-crowd ", "afpool-lists ", "sdk "):
        assert len(re.findall(rf"^https? +{client}", printed, re.MULTILINE)) == 2
    figures = json.loads((BENCHMARKS / "results" / "openings.json").read_text())["figures"]
    assert [figure["limit"] for figure in figures] == [0.45, 1.25, 0.35, 1.25]
    assert all(figure["measured"] > 0 for figure in figures)


@pytest.mark.parametrize("wire", ["http", "sse", "stdio", "websocket"])
def test_the_profile_shows_every_layer(wire):
    printed = run("profile_call.py", "--calls", "50", "--functions", "3", "--wire", wire)
    for layer in ("afpool/pool", "afpool/client", "afpool/transports", "trio", "kernel"):
        assert f"  {layer}\n" in printed


@pytest.mark.parametrize("kind", ["afpool-http-full", "afpool-http-keys", "afpool-http-sse", "httpx-http"])
def test_the_longer_comparisons_have_their_clients(kind):
    compare = load("compare")
    cells = compare.compare(["bare-http", kind], concurrent=(4,), rounds=1, seconds=0.05, pin=False)
    assert [cell.kind for cell in cells] == ["bare-http", kind]
    assert cells[1].ratio is not None
