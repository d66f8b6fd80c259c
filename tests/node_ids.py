"""Whether tests that are named in documents and lists exist: by collecting, so that parameters count too.

What this run itself has collected is known to exist. A run of some tests knows of some: the files of what is
named beside these are collected by a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 100
_known: set[str] = set()


def known(items: Iterable[pytest.Item]) -> None:
    """Say what this run has collected."""
    _known.update(_with_tests(item.nodeid for item in items))


def missing(node_ids: Iterable[str]) -> list[str]:
    """Return those of the node ids that name no test; an id without parameters names all of its variants."""
    wanted = sorted(set(node_ids) - _known)
    files = sorted({node_id.partition("::")[0] for node_id in wanted})
    there = [file for file in files if (ROOT / file).is_file()]
    found = _collected(there) if there else set()
    return [node_id for node_id in wanted if node_id not in found]


def _collected(files: list[str]) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"collecting failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return _with_tests(line for line in done.stdout.splitlines() if "::" in line)


def _with_tests(ids: Iterable[str]) -> set[str]:
    """Node ids, and those of their tests without parameters."""
    return {name for node_id in ids for name in (node_id, node_id.partition("[")[0])}
