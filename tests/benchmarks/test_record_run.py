"""The harness of the record runs, counts what is in the sources, and tells what is missed. No time counts."""

from __future__ import annotations

import shutil

import pytest

from tests.benchmarks.test_benchmarks_run import load, run

SHORT = ("--rounds", "3", "--calls", "20")


def test_what_the_record_costs_a_call():
    printed = run("record.py", *SHORT, "--no-instructions", code=None)
    assert printed.count("at most") == 2
    for word in (
        "record off",
        "off once more, over it",
        "kept in the ring, over it",
        "JSONL and numbers",
        "filing one use, in the ring",
    ):
        assert word in printed


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_are_counted_of_what_is_in_the_sources(monkeypatch):
    record = load("record")
    monkeypatch.setattr(record, "LOOPS", 500)
    shown = {figure.what: figure.measured for figure in record.counted(1)}
    assert 50 < shown["instructions of hooks with nothing on them"] < 5_000


def test_a_hook_that_has_gone_from_its_source_is_an_error(monkeypatch):
    hooks = load("record_hooks")
    assert hooks.run_alone("hooks", 3) >= 0
    gone = (("afpool/pool/_records.py", "if nobody.listens:", 1),)
    monkeypatch.setattr(hooks, "HOOKS", gone)
    with pytest.raises(ValueError, match="does not hold"):
        hooks.hooks()
