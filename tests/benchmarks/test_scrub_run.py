"""The harness for filled arguments runs, and tells what is too slow. Nothing here looks at a time."""

from __future__ import annotations

from tests.benchmarks.test_benchmarks_run import load, run


def test_every_figure_is_shown():
    printed = run("scrub.py", "--rounds", "1", code=None)
    assert printed.count(" MB/s") == 8
    assert printed.count(" µs") == 7
    assert printed.count("promised") == 8


def test_what_is_too_slow_is_told(capsys, monkeypatch):
    scrub = load("scrub")
    monkeypatch.setattr("sys.argv", ["scrub.py"])
    for speed, took, code in ((200.0, 5.0, 0), (199.0, 5.0, 1), (200.0, 5.1, 1)):
        figures = [
            scrub.Figure("fast", speed, "MB/s", 200.0),
            scrub.Figure("short", took, "µs", 5.0),
            scrub.Figure("shown", 9.0, "µs"),
        ]
        monkeypatch.setattr(scrub, "measure", lambda _, figures=figures: figures)
        assert scrub.main() == code
        assert ("missed: " in capsys.readouterr().out) == bool(code)
