"""A cable that is pulled: nothing is said any more, by nobody, and it is noticed all the same.

Needs a network namespace of its own, as root or by user namespaces; where neither may be had the test is left
out, which fails a run that may leave nothing out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.peer

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("cable_script.py")


def namespace() -> list[str]:
    """The command that runs another one in a network of its own."""
    if shutil.which("unshare") and shutil.which("ip"):
        for command in (["unshare", "-n"], ["unshare", "-rn"]):
            probe = [*command, "ip", "link", "set", "lo", "up"]
            if subprocess.run(probe, capture_output=True, check=False, timeout=30).returncode == 0:
                return command
    pytest.skip("no network namespace may be made here (needs `ip`, `unshare`, and root or user namespaces)")


def test_a_pulled_cable_is_noticed_and_what_was_cut_is_replaced():
    done = subprocess.run(
        [*namespace(), sys.executable, str(SCRIPT)],
        capture_output=True,
        check=False,
        timeout=90,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = json.loads(done.stdout)
    # idle 1 s, two probes 1 s apart, or 2 s without an acknowledgement: the kernel's timers, shortened
    assert found["ends"][0] == "connection-lost in-doubt"
    assert found["noticed"] < 10
    assert found["stream"] < 10
    assert found["ends"][1] == "not-sent"
    assert found["text"] == '{"n": 1}'
