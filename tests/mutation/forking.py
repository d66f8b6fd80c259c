"""The process that forks for each mutant (`server.py`), seen from outside: jobs go in, verdicts come out.

It runs in a copy of the project that nobody changes and that came without bytecode: what it compiles there is
of these sources, and is kept for the processes that follow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COPIED = ("afpool", "actors", "tests", "examples", "docs", "pyproject.toml", "README.md")
CONTROL = "no change"  # as the server says it
UNFIT = 10  # likewise


class Unfit(Exception):
    """Too many tests fail with no change."""


def copy_tree(tree: Path, into: Path) -> None:
    left_out = shutil.ignore_patterns("__pycache__", "peers", "browser", "node_modules", "images")
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, into / name, ignore=left_out)
        else:
            shutil.copy2(tree / name, into / name)


def environment(tree: Path) -> dict[str, str]:
    """For tests whose outcome depends on the code alone: nothing by chance."""
    chosen = {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    return {**os.environ, **chosen, "CI": "1"}  # hypothesis does not draw by chance where CI is set


def verdicts(
    tree: Path, jobs: list[dict[str, Any]], *, workers: int, control: int, alone: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield a verdict for each job, as they come, and one named `CONTROL` for each test that is unfit.

    Args:
        tree: The copy.
        jobs: Each with a `name`, a `change`, its `tests` in order, what they take (`usual`: seconds and
            seconds of work, by test) and whether what it changes is known to be `imports`.
        workers: How many are run at once.
        control: How many tests at most are run with no change first.
        alone: Run what has to be imported, in processes of their own; else it is only said.

    Raises:
        Unfit: `UNFIT` tests fail with no change.
        SystemExit: The process could not begin, or broke.
    """
    listed = tree / "jobs.jsonl"
    listed.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    needed = sorted({name.partition("::")[0] for job in jobs for name in job["tests"]})
    read, write = os.pipe()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-p", "tests.mutation.server", "--timeout=0", "--mutation-jobs", str(listed)]
    command += ["--mutation-workers", str(workers), "--mutation-control", str(control)]
    command += [*(() if alone else ("--mutation-not-alone",)), "--mutation-out", str(write), *needed]
    unfit = 0
    printed = tree / "printed.txt"  # no pipe: children write there, too, and nobody reads meanwhile
    with printed.open("w") as out, subprocess.Popen(
        command, cwd=tree, env=environment(tree), pass_fds=(write,),
        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
    ) as server:  # fmt: skip
        os.close(write)
        with os.fdopen(read) as said:
            for line in said:
                verdict = json.loads(line)
                yield verdict
                unfit += verdict["name"] == CONTROL
    if unfit >= UNFIT:
        raise Unfit
    if server.returncode not in {0, 5}:
        raise SystemExit(f"{printed.read_text()[-3000:]}\nthe server ended with {server.returncode}")
