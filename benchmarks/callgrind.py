"""Counting the instructions of a process: the same number in every run, however busy the machine."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile

SECONDS = 900


def instructions(*arguments: str, **environment: str) -> int:
    """Run this interpreter under valgrind; gives what it executed.

    Args:
        arguments: Of the interpreter.
        environment: Variables beside the few that are set.

    Raises:
        RuntimeError: Nothing was counted, or the process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", sys.executable, "-B"]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS,
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", **environment},
        )  # fmt: skip
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"callgrind counted nothing: {done.stderr[-2000:]}")
    return int(found[1])
