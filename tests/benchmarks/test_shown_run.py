"""The harness for redaction and wants runs, and tells what costs too much. Nothing here looks at a time."""

from __future__ import annotations

from tests.benchmarks.test_benchmarks_run import load, run


def test_every_figure_is_shown():
    printed = run("shown.py", "--rounds", "1", "--seconds", "0.0005", code=None)
    assert printed.count(" us") == 8
    assert printed.count("promised") == 4


def test_what_costs_too_much_is_told(capsys, monkeypatch):
    shown = load("shown")
    monkeypatch.setattr("sys.argv", ["shown.py"])
    for measured, code in ((2.0, 0), (2.1, 1)):
        figures = [shown.Figure("that", measured, "us", 2.0), shown.Figure("this", 9.0, "us")]
        monkeypatch.setattr(shown, "redaction", lambda *_, figures=figures: figures)
        monkeypatch.setattr(shown, "wants", lambda *_: [])
        assert shown.main() == code
        assert ("NOT KEPT" in capsys.readouterr().out) == bool(code)
