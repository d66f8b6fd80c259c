"""Rules for the whole run, whatever is tested.

With AFPOOL_NO_SKIPS=1 a run that left a test out fails, and says which one and why: a component that could
not be installed must not look like a pass.
"""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

import hypothesis
import pytest

from tests import node_ids

# A deadline per example measures how busy the machine is, not the code; each test bounds its own waits.
hypothesis.settings.register_profile("afpool", deadline=None, print_blob=True)
hypothesis.settings.load_profile("afpool")

# A shell that runs something in the background lets it ignore ^C: tests that send one would wait for nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Say what there is; and have the collector look only at what tests make, from now on.

    Thousands of collected tests are a million objects that live until the end, and many tests ask for whole
    rounds of the collector: each would go through all of them.
    """
    node_ids.known(session.items)
    gc.collect()
    gc.freeze()


def _left_out(config: pytest.Config) -> list[Any]:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or os.environ.get("AFPOOL_NO_SKIPS") != "1":
        return []
    return list(reporter.stats.get("skipped", []))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _left_out(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left_out = _left_out(config)
    if left_out:
        terminalreporter.section("tests left out, which fails this run", red=True)
    for report in left_out:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        terminalreporter.write_line(f"{report.nodeid}: {reason}")
