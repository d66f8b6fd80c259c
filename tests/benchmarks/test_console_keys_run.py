"""The harness of what is asked of many keys runs, and asks everything. No time is looked at."""

from __future__ import annotations

from tests.benchmarks.test_benchmarks_run import run


def test_asking_a_few_keys():
    printed = run("console_keys.py", "--keys", "40", "--clients", "2", "--rounds", "1", code=None)
    assert printed.count("at most 5") == 9
    for asked in ("show actors sort=-waiting limit=20000", "check", "tree", "watch actors"):
        assert asked in printed
