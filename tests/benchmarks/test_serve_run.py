"""The harness for the service tells what is slower than it has to be. Nothing here looks at a time."""

from __future__ import annotations

import pytest

from tests.benchmarks.test_benchmarks_run import load


def row(serve, kind, ratio, at_once=8):
    return serve.Row("handshake", at_once, kind, 100.0, 900.0, 80.0, ratio, ratio)


@pytest.mark.parametrize(
    ("kind", "ratio", "taken", "code"),
    [
        ("sdk", 0.7, 1, 0),
        ("sdk", 0.69, 1, 1),
        ("fastmcp", 10.0, 1, 0),
        ("fastmcp", 9.9, 1, 1),
        ("fastmcp-kept", 0.99, 1, 1),
        ("sdk-json", 0.1, 1, 0),
        ("sdk", 1.0, 60 * 2**20, 0),
        ("sdk", 1.0, 60 * 2**20 + 1, 1),
    ],
)
def test_what_is_slower_or_larger_than_its_limit_is_told(
    capsys, monkeypatch, tmp_path, kind, ratio, taken, code
):
    serve = load("serve")
    monkeypatch.setattr("sys.argv", ["serve.py"])
    monkeypatch.setattr(serve, "FASTMCP_PYTHON", tmp_path)
    monkeypatch.setattr(serve, "write", lambda *_: "nowhere")
    monkeypatch.setattr(serve, "measure", lambda *_: [row(serve, "afpool", None), row(serve, kind, ratio)])
    monkeypatch.setattr(serve, "idle", lambda *_: taken)
    assert serve.main() == code
    assert ("NOT (at" in capsys.readouterr().out) == bool(code)


def test_ratios_are_of_the_best_windows_and_the_median_of_rounds():
    serve = load("serve")
    found = {"p50_us": 1.0, "front_us": 1.0}
    samples = {
        ("legacy", 8, "afpool"): [{"per_second": rate, **found} for rate in (100.0, 300.0, 200.0)],
        ("legacy", 8, "sdk"): [{"per_second": rate, **found} for rate in (50.0, 150.0, 400.0)],
    }
    made = serve._row(samples, "legacy", 8, "sdk")
    assert (made.ratio, made.median, made.per_second) == (0.75, 2.0, 400.0)
    assert serve._row(samples, "legacy", 8, "afpool").ratio is None


def test_one_call_at_a_time_before_fastmcp_is_only_shown():
    serve = load("serve")
    assert row(serve, "fastmcp", 1.0, at_once=1).kept
    assert not row(serve, "sdk", 0.1, at_once=1).kept
