"""Whether tests that are named in documents and lists exist: by collecting, so that parameters count too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 100


def missing(node_ids: Iterable[str]) -> list[str]:
    """Return those of the node ids that name no test; an id without parameters names all of its variants."""
    wanted = sorted(set(node_ids))
    files = sorted({node_id.partition("::")[0] for node_id in wanted})
    there = [file for file in files if (ROOT / file).is_file()]
    found = _collected(there) if there else set()
    return [node_id for node_id in wanted if node_id not in found]


def _collected(files: list[str]) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"collecting failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    return {*ids, *(node_id.partition("[")[0] for node_id in ids)}
