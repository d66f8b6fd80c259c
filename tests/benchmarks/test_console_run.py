"""The harness of the console's cost runs, and tells of both kinds of calls. No time is looked at."""

from __future__ import annotations

from tests.benchmarks.test_benchmarks_run import run


def test_following_everything():
    printed = run("console.py", "--rounds", "2", "--seconds", "0.05", code=None)
    assert printed.count("told of") == 2
    assert printed.count("at most") == 2
    assert printed.count("calls a second against alone") == 2
