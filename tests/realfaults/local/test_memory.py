"""A process that has no memory for an answer: the call fails by name, and the runtime lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.realfaults.local.local_kit import noted
from tests.realfaults.local.test_starved import http_server

ROOT = Path(__file__).resolve().parents[3]
IN_DOUBT = {"connection-lost in-doubt", "session-handle-lost in-doubt"}


def starved(where: str, share: float, log: Path) -> dict[str, list[str] | str | int]:
    """Play it in a process of its own, with an answer of 48 megabytes."""
    command = [sys.executable, "-m", "tests.realfaults.local.starving", where, "48", str(share), str(log)]
    found = subprocess.run(
        command,
        check=False,
        capture_output=True,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert found.returncode == 0, found.stderr.decode()
    told: dict[str, list[str] | str | int] = json.loads(found.stdout)
    return told


@pytest.mark.parametrize("share", [0.7, 2.2])
@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_an_answer_that_memory_does_not_hold(kind: str, share: float, tmp_path: Path):
    """It has run and is in doubt; siblings and later calls are answered, since nothing of it is kept."""
    log = tmp_path / "log"
    if kind == "stdio":
        told = starved("stdio", share, log)
        assert noted(log).ran == [0, 0, 1, 1, 1, 0, 0, 0, 0]
    else:
        with http_server(builtin="big") as url:
            told = starved(url, share, log)
    failed = told["failed"]
    assert isinstance(failed, list)
    assert set(failed) <= (IN_DOUBT | {"too-large answered", "answered", f"answered {48 * 2**20}"})
    if share < 1:
        assert set(failed) <= IN_DOUBT
    small = "answered 1" if kind == "stdio" else "answered 10"
    assert told["sibling"] == small
    assert told["after"] == [small] * 3
    assert told["left"] == 0
