"""The harness that compares clients plays, judges by the server's log, and writes what it found.

Only this project's adapter is played here. Nothing looks at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPARISON = ROOT / "benchmarks" / "comparison"


@pytest.fixture
def load(monkeypatch):
    """Import modules of the harness as it does itself, and leave no trace in this process."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(COMPARISON))
    kept = {name: sys.modules.pop(name) for name in ("faults", "service") if name in sys.modules}
    yield __import__
    for other in set(sys.modules) - before:
        if str(COMPARISON) in str(getattr(sys.modules[other], "__file__", None)):
            del sys.modules[other]
    sys.modules.update(kept)


def test_this_project_is_played():
    scenarios = ("forgotten_unseen", "dropped", "list_changed", "two_users", "ambient", "leaving")
    asked = [word for name in scenarios for word in ("--scenario", name)]
    done = subprocess.run(
        [sys.executable, str(COMPARISON / "run.py"), "--only", "afpool", "--here", *asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    for found in (
        "forgotten-unseen: error, then ok",
        "sibling: ok, after-drop: ok, drop-runs: 1x (error)",
        "removed-tool: refused, nothing sent, changed-tool: refused, nothing sent, next-list: the new one",
        "own-token: 0 of 40 under another's token, shared-sessions: 0",
        "ambient: 4 of 4",
        "ended: 5 of 5, sockets-left: 0",
    ):
        assert found in done.stdout


# An adapter that does what its name says it does not do.
BROKEN = """
import sys
sys.path.insert(0, {folder!r})
from adapting import Host, main

class Broken(Host):
    async def open(self, user, **where):
        {opens}
    async def shutdown(self):
        pass

main(Broken)
"""


async def played(load, tmp_path, opens: str, limit: float):
    lab, faults, playing = load("lab"), load("faults"), load("playing")
    adapter = tmp_path / "broken.py"
    adapter.write_text(BROKEN.format(folder=str(COMPARISON / "adapters"), opens=opens), encoding="utf-8")
    scenario = lab.Scenario(faults.forgotten, faults.SCENARIOS[0].rows, limit=limit)
    return await playing.play([scenario], adapter, sys.executable, tmp_path / "log")


async def test_what_never_answers_costs_its_row_only(load, tmp_path):
    cells = await played(load, tmp_path, "import asyncio; await asyncio.sleep(60)", 0.2)
    assert cells["forgotten"].text == "no end (0.2 s)"


async def test_what_does_not_let_a_user_in_makes_no_call(load, tmp_path, capsys):
    cells = await played(load, tmp_path, "raise ValueError('no such door')", 10)
    assert cells["forgotten"].text == "no call at all"
    assert "no such door" in capsys.readouterr().err


async def test_a_process_that_ends_in_a_row_is_said_to_have_ended(load, tmp_path):
    cells = await played(load, tmp_path, "import os; os._exit(1)", 10)
    assert cells["forgotten"].text == "its process ended"


async def test_what_does_not_start_says_why(load, tmp_path):
    adapter = tmp_path / "absent.py"
    adapter.write_text("raise SystemExit('nothing to import here')", encoding="utf-8")
    with pytest.raises(load("child").ChildGoneError, match="nothing to import here"):
        await load("playing").play([load("faults").SCENARIOS[0]], adapter, sys.executable, tmp_path / "log")


@pytest.mark.parametrize(
    ("mine", "other", "is_worse"),
    [
        (1, 0, True),
        (0, 1, False),
        (1, 1, False),
        (1.1, 1, False),
        (1.3, 1, True),
        (None, 0, False),
        (1, None, False),
    ],
)
def test_a_cell_is_worse_beyond_its_slack(load, mine, other, is_worse):
    lab, page = load("lab"), load("page")
    row = lab.Row("a", "faults", "a row", slack=0.2)
    assert page.worse(row, lab.Cell("mine", mine), lab.Cell("other", other)) is is_worse


def test_a_small_difference_is_none(load):
    lab, page = load("lab"), load("page")
    row = lab.Row("a", "faults", "a row", slack=0.2, least=0.1)
    assert not page.worse(row, lab.Cell("mine", 0.05), lab.Cell("other", 0.0))
    assert page.worse(row, lab.Cell("mine", 0.15), lab.Cell("other", 0.0))


def test_the_page_says_where_this_project_loses_and_who_was_not_played(load):
    lab, page = load("lab"), load("page")
    rows = [lab.Row("a", "faults", "first"), lab.Row("b", "costs", "second")]
    found = {
        "afpool": {"a": lab.Cell("bad", 1), "b": lab.Cell("good", 0)},
        "one": {"a": lab.Cell("fine", 0), "b": lab.Cell("dear", 1)},
        "two": "it did not start: no wheel",
    }
    text = page.text(
        rows,
        found,
        versions=dict.fromkeys(found, "1.0"),
        ways=dict.fromkeys(found, "it: in some way"),
        features={"one": ["a loop"]},
        cores=2,
        load=(1.0, 3.0),
    )
    assert "| first | bad | fine |" in text
    assert "load average was 1 to\n3 during" in text
    assert "* first: afpool bad; one fine" in text
    assert "second: afpool" not in text
    assert "two was not played: it did not start: no wheel." in text
    assert "* one: a loop" in text


def test_every_library_has_its_files_and_stands_on_the_page_as_locked(load):
    peers = load("peers").PEERS
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert {peer.name for peer in peers} == {lock.stem for lock in COMPARISON.glob("*.txt")}
    for peer in peers:
        assert peer.script.is_file()
        assert ": " in peer.way
        assert f"**{peer.name} {peer.version}**" in page


def test_rows_that_are_played_anew_take_the_place_of_their_own_only(load):
    run = load("run")
    before = {"afpool": {"a": 1, "b": 2}, "one": "it is not installed"}
    assert run.merged(before, {"afpool": {"b": 3}, "one": {"b": 4}}) == {
        "afpool": {"a": 1, "b": 3},
        "one": "it is not installed",
    }


def test_an_import_that_is_measured_loads_what_a_user_needs(load):
    # this project's package is lazy: its name alone loads next to nothing
    (afpool,) = (peer for peer in load("peers").PEERS if peer.name == "afpool")
    assert "open_pool" in afpool.imports


async def test_a_call_that_does_not_come_is_not_one_under_the_wrong_token(load, monkeypatch):
    lab, isolation = load("lab"), load("isolation")

    class Slow(lab.Bench):
        async def opened(self, *users):
            pass

        async def begin(self, *_, **__):
            return None

        async def at_once(self, *_, **__):
            return []

    async with lab.server() as server:
        bench = Slow(None, server)
        await isolation.two_users(bench)
    assert bench.cells["own-token"] == lab.Cell("0 of 0 under another's token; 40 did not come in 20 s", 0)
