"""Signals and forks that come whenever they like, in programs of their own: no child outlives them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.realfaults.local.local_kit import lives, noted, until_now

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
NEVER_SAID = ("Exception ignored", "RuntimeWarning", "ResourceWarning", "task failed", "TrioInternalError")


def program(name: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-X", "dev", "-m", f"tests.realfaults.local.{name}", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT
    )


@pytest.mark.parametrize("seed", range(4))
def test_interrupted_while_pools_are_opened_used_and_closed(seed: int, tmp_path: Path):
    """Once or twice, at any moment: it ends soon, by that, and every child of it with it."""
    chance = random.Random(seed)
    log = tmp_path / "log"
    with program("interrupted", log) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        time.sleep(chance.random())
        process.send_signal(signal.SIGINT)
        if seed % 2:
            time.sleep(chance.random() / 10)
            process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        finally:
            process.kill()
        assert process.stderr is not None
        said = process.stderr.read()
        drain.join(10)
    assert "KeyboardInterrupt" in said, said
    assert [word for word in NEVER_SAID if word in said] == [], said
    assert process.returncode in (1, -signal.SIGINT, 130)
    until_now(lambda: not [pid for pid in noted(log).started if lives(pid)])


def test_children_of_a_program_that_was_killed_end_by_themselves(tmp_path: Path):
    """SIGKILL leaves us no last word: the pipes end, and a server that reads them ends."""
    log = tmp_path / "log"
    with program("interrupted", log) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until_now(lambda: any(lives(pid) for pid in noted(log).started))
        process.kill()
        process.wait(10)
    try:
        until_now(lambda: not [pid for pid in noted(log).started if lives(pid)])
    finally:
        for pid in noted(log).started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_fork_in_the_middle_is_not_noticed(tmp_path: Path):
    """The child lets go of its copies: server, store, records and console go on for the parent."""
    tmp_path.chmod(0o700)
    with program("forking", tmp_path) as process:
        try:
            out, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (out, process.returncode) == ("well\n", 0), said
    assert not said
