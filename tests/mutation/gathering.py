"""A pytest plugin: which test runs which lines, and how long it takes. Used by `reach.py`, one run per file.

Each test is a context of its own, and so is the import of a file with tests, where tools are made, say.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage
import pytest

from tests.mutation.reach import AT_IMPORT

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path.cwd()
WATCHED = ("afpool/pool", "afpool/client", "afpool/tools")

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background

_coverage = coverage.Coverage(
    data_file=None, config_file=False, include=[f"{ROOT / part}/*" for part in WATCHED]
)
_coverage.set_option("run:core", "ctrace")  # the only one that knows contexts on every Python
_coverage.set_option("run:disable_warnings", ["no-data-collected"])  # some files run none of it
_coverage.start()
_seconds: dict[str, float] = {}
_work: dict[str, float] = {}
_failed: set[str] = set()


def _worked() -> float:
    """Seconds that a processor worked for this process and its ended children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    if isinstance(collector, pytest.Module):
        _seconds[f"{collector.nodeid}::{AT_IMPORT}"] = 0.0
        _coverage.switch_context(f"{collector.nodeid}::{AT_IMPORT}")
    try:
        return (yield)
    finally:
        _coverage.switch_context("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _coverage.switch_context(item.nodeid)
    began, worked = time.monotonic(), _worked()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.monotonic() - began
        _work[item.nodeid] = _worked() - worked
        _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    _coverage.stop()
    data = _coverage.get_data()
    lines: dict[str, dict[str, list[int]]] = {test: {} for test in _seconds if test not in _failed}
    for file in data.measured_files():
        name = str(Path(file).relative_to(ROOT))
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                if test in lines:
                    lines[test].setdefault(name, []).append(line)
    out = {
        test: {
            "seconds": round(_seconds[test], 4),
            "work": round(_work.get(test, 0.0), 4),
            "lines": lines[test],
        }
        for test in lines
    }
    said = {"tests": out, "failed": sorted(_failed)}
    Path(os.environ["AFPOOL_MUTATION_OUT"]).write_text(json.dumps(said))
