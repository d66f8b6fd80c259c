"""The measurements behind the bars run, at tiny sizes, and say what was missed; no test looks at a time."""

from __future__ import annotations

import json
import os

import attrs
import pytest
import trio

from tests.benchmarks.test_benchmarks_run import BENCHMARKS, load, run


@pytest.mark.parametrize("wire", ["websocket", "large"])
def test_calls_are_compared_on_each_wire(wire):
    printed = run("calls.py", "--rounds", "1", "--seconds", "0.02", "--no-pin", "--only", wire, code=None)
    for kind in load("calls").KINDS[wire]:
        if not kind.startswith(("sdk", "fastmcp")):
            assert f"\n{kind} " in printed
    assert "of bare-" in printed


def test_what_is_less_than_its_bar_is_missed():
    calls = load("calls")
    bar = calls.Bar("mine", "theirs", 64, 2.0)

    def judged(mine: float, theirs: float):
        samples = {("mine", 64): [{"per_second": mine}] * 3, ("theirs", 64): [{"per_second": theirs}] * 3}
        return bar.judged(samples)

    assert judged(20.0, 10.0).kept
    assert not judged(19.9, 10.0).kept
    assert bar.judged({}) is None
    assert bar.judged({("mine", 64): [{"per_second": 1.0}], ("theirs", 1): []}) is None


def test_tails_are_those_beside_the_loop_by_hand():
    calls = load("calls")

    def samples(p50, p99, base50, base99):
        mine = {"p50_us": p50, "p99_us": p99}
        return {("afpool-http", 64): [mine], ("bare-http", 64): [{"p50_us": base50, "p99_us": base99}]}

    (kept,) = calls.tails(samples(100.0, 240.0, 50.0, 100.0))
    assert kept.kept
    assert kept.measured == pytest.approx(1.2)
    (missed,) = calls.tails(samples(100.0, 250.0, 50.0, 100.0))
    assert not missed.kept


def test_layers_are_told_apart():
    printed = run("layers.py", "--rounds", "1", "--calls", "64", code=None)
    for what in ("server, 1 at once", "client, 64 at once", "pool, 64 at once"):
        assert what in printed
    assert printed.count("at most 35") == 2
    assert "the pool over the client, 64 at once" in printed


def test_crowds(monkeypatch):
    crowds = load("crowds")
    for name, value in (
        ("WINDOW", 128), ("SHARED_BY", 30), ("SHARED_TOOLS", 20), ("NEW_TOOLS", 50), ("SECONDS", 0.3),
    ):  # fmt: skip
        monkeypatch.setattr(crowds, name, value)
    figures = trio.run(crowds.measure, 1, 80)
    assert [figure.unit for figure in figures] == ["", "B", "x", "x", "x"]
    assert figures[0].measured == 1  # one list on the wire, whoever asks
    assert all(figure.limit is not None for figure in figures)
    assert all(figure.measured > 0 for figure in figures[2:])


@pytest.mark.parametrize(("way", "descriptors"), [("http", 1.0), ("stream", 2.0), ("tls", 1.0)])
def test_idle_keys_keep_their_connections(way, descriptors):
    run("idle.py", "--keys", "20", "--only", way, code=None)
    memory, fds, _ = json.loads((BENCHMARKS / "results" / "idle.json").read_text())["figures"]
    assert fds["measured"] == descriptors
    assert memory["limit"] is not None


def test_bars_are_gathered(monkeypatch, tmp_path, capsys):
    bench, figures = load("run"), load("figures")
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench.sys, "argv", ["run.py", "--only", "layers", "--only", "idle"])

    def part(name, _arguments):
        good = figures.Figure("good", 1.0, "x", 2.0)
        bad = figures.Figure("bad", 3.0, "x", 2.0)
        shown = figures.Figure("shown", 3.0, "x")
        wanted = {"layers": [good, shown], "idle": [bad]}[name]
        text = json.dumps({"figures": [attrs.asdict(one) for one in wanted]})
        (tmp_path / f"{name}.json").write_text(text)
        return name == "layers"

    monkeypatch.setattr(bench, "part", part)
    (tmp_path / "calls.json").write_text(json.dumps({"figures": []}))
    assert bench.main() == 1
    told = capsys.readouterr().out
    assert "met  good" in told
    assert "NOT  bad" in told
    assert "shown" not in told
    assert "1 of 2 bars met; layers: ok, idle: NOT" in told


def test_what_was_measured_before_is_not_gathered(monkeypatch, tmp_path):
    bench = load("run")
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"figures": [{"what": "old", "measured": 1.0, "unit": "x", "limit": 2.0}]}))
    os.utime(path, (1000.0, 1000.0))
    assert bench.found("layers", 2000.0) == []
    assert [figure.what for figure in bench.found("layers", 500.0)] == ["old"]
    assert bench.found("idle", 0.0) == []
