"""Rules for the whole run, whatever is tested."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """With AFPOOL_NO_SKIPS=1 a run that left a test out fails, and says which one and why.

    A component that could not be installed must not turn a red run green.
    """
    result = yield
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("AFPOOL_NO_SKIPS") == "1" and reporter is not None:
        skipped = reporter.stats.get("skipped", [])
        if skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reporter.write_line("")
            for report in skipped:
                reporter.write_line(
                    f"left out, which fails this run: {report.nodeid}: {report.longrepr}", red=True
                )
    return result
