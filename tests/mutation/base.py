"""The base: what each test file's tests run, gathered once and kept.

Rules:

* One entry per test file. It holds until the file changes, or a helper in `tests/` that it imports. So a new
  or changed test file costs its own gathering and no other.
* When afpool changes, an entry still holds: it keeps the sources that its lines are of, and those lines that
  are still there are found by comparing the texts (`moved`). A line that is new has its function's tests.
* A test that fails when it is gathered is tried once more, in a run of its own, and if it fails again is used
  for nothing: it can't tell a broken code from a whole one.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.mutation.forking import environment
from tests.mutation.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FOLDERS = (
    "base",
    "protocol",
    "transports",
    "credentials",
    "client",
    "pool",
    "tools",
    "runtime",
    "realfaults/local",
)
LEFT_OUT = (  # not even gathered: they walk through whole spaces, for minutes
    "tests/pool/test_machine_explored.py::test_every_order_of_messages",
    "tests/pool/test_machine_explored.py::test_the_command",
    "tests/pool/test_machine_explored.py::test_the_walk_catches",
    "tests/pool/test_machine_explored.py::test_every_line_of_the_turns_is_run",
    "tests/pool/test_machine_explored.py::test_a_crash_at_any_line",
    "tests/pool/test_machine_reduced.py::test_whatever_a_world_gets_to_was_met",
)
AT_ONCE = 8  # files in one run of pytest
GATHERING = 3600  # seconds, for one run

Lines = dict[str, list[int]]


def files_with_tests(tree: Path, folders: Iterable[str] = FOLDERS) -> list[str]:
    return [
        str(path.relative_to(tree))
        for folder in folders
        for path in sorted((tree / "tests" / folder).rglob("test_*.py"))
    ]


def gather(tree: Path, kept: Path, files: Iterable[str], *, jobs: int) -> Reach:
    """Read what is kept, and gather the rest.

    Args:
        tree: A copy of the project that nobody changes.
        kept: Where entries are kept.
        files: Test files, relative to the tree.
        jobs: How many are gathered at once.
    """
    (kept / "sources").mkdir(parents=True, exist_ok=True)
    wanted = {file: kept / f"{_stem(file)}-{digest(tree, file)}.json" for file in files}
    missing = [file for file, path in wanted.items() if not path.is_file()]
    groups = [missing[at : at + AT_ONCE] for at in range(0, len(missing), AT_ONCE)]
    if missing:
        print(f"gathering what the tests of {len(missing)} files run", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda group: _gather(tree, kept, {file: wanted[file] for file in group}), groups))
    now = Now(tree, kept)
    return Reach(now.of(json.loads(path.read_text())) for path in wanted.values())


class Now:
    """Entries as they are of today's sources."""

    def __init__(self, tree: Path, kept: Path) -> None:
        self.tree, self.kept = tree, kept
        self._moves: dict[tuple[str, str], dict[int, int] | None] = {}

    def of(self, entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        sources: dict[str, str] = entry["sources"]
        return {
            name: {
                **facts,
                "lines": {file: self._moved(file, sources[file], at) for file, at in facts["lines"].items()},
            }
            for name, facts in entry["tests"].items()
        }

    def _moved(self, file: str, digest: str, lines: list[int]) -> list[int]:
        if (file, digest) not in self._moves:
            path = self.tree / file
            text = path.read_text() if path.is_file() else ""
            same = _digest_of(text.encode()) == digest
            before = (self.kept / "sources" / digest).read_text()
            self._moves[file, digest] = None if same else moved(before.splitlines(), text.splitlines())
        moves = self._moves[file, digest]
        return lines if moves is None else [moves[line] for line in lines if line in moves]


def moved(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """Where each line of a text, counted from 1, is in another text; lines that are gone are left out."""
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {one + at + 1: two + at + 1 for one, two, size in blocks for at in range(size)}


# ------------------------------------------------------------------------------------------------ gathering


def _gather(tree: Path, kept: Path, files: Mapping[str, Path]) -> None:
    part = next(iter(files.values())).with_suffix(f".{os.getpid()}")
    said = _run(tree, part, list(files))
    tests, failed = said["tests"], said["failed"]
    if failed:
        again = _run(tree, part, failed)
        tests.update({name: facts for name, facts in again["tests"].items() if name in failed})
        left = [name for name in failed if name not in tests]
        print("\n".join(["not used, for they fail on the unbroken code:", *left] if left else ()), flush=True)
    for file, path in files.items():
        own = {name: facts for name, facts in tests.items() if name.startswith(f"{file}::")}
        sources = {}
        for source in sorted({source for facts in own.values() for source in facts["lines"]}):
            text = (tree / source).read_bytes()
            sources[source] = _digest_of(text)
            _put(kept / "sources" / sources[source], text)
        _put(path, json.dumps({"sources": sources, "tests": own}).encode())
        for old in kept.glob(f"{_stem(file)}-{'[0-9a-f]' * 20}.json"):
            if old != path:
                old.unlink(missing_ok=True)


def _run(tree: Path, out: Path, tests: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-p", "tests.mutation.gathering", "--timeout=0", *tests]
    command += [f"--deselect={test}" for test in LEFT_OUT]
    done = subprocess.run(
        command, cwd=tree, env={**environment(tree), "AFPOOL_MUTATION_OUT": str(out)},
        capture_output=True, text=True, timeout=GATHERING, check=False,
    )  # fmt: skip
    if not out.is_file():
        raise SystemExit(f"{', '.join(tests)}: not gathered:\n{(done.stdout + done.stderr)[-2000:]}")
    said: dict[str, Any] = json.loads(out.read_text())
    out.unlink()
    return said


def _put(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


def _stem(file: str) -> str:
    return file.replace("/", "-").removesuffix(".py")


# -------------------------------------------------------------------------------------------------- digests


def digest(tree: Path, file: str) -> str:
    """Of a test file and all it imports of `tests/`; what is there for all tests changes no line of one."""
    seen = {tree / file, (tree / file).parent / "conftest.py"}
    waiting = list(seen)
    while waiting:
        new = set(_imported(tree, waiting.pop())) - seen
        seen |= new
        waiting += new
    texts = [path.read_bytes() for path in sorted(seen) if path.is_file()]
    return _digest_of(b"\0".join([sys.version.encode(), *texts]))


@cache
def _imported(tree: Path, path: Path) -> tuple[Path, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())) if path.is_file() else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    paths = (tree.joinpath(*name.split(".")).with_suffix(".py") for name in names if name.startswith("tests"))
    return tuple(path for path in paths if path.is_file())


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]
