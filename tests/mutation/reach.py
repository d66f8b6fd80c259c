"""Which tests run a line: gathered once with the tests, kept by a digest of the sources.

Rules:

* One entry of the cache per test file. Its digest covers the file, everything in `tests/` that is no
  test file, and all of afpool and actors: what a test runs depends on all of these.
* A test that fails when it is gathered is used for nothing: it can't tell a broken code from a whole one.
* A test of more than `SLOW` seconds is left out: searches that walk through everything find much, but a
  mutant that only they find has no test that says what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FOLDERS = ("base", "protocol", "client", "pool", "tools", "runtime")
LEFT_OUT = (  # not even gathered: they walk through whole spaces, for minutes
    "tests/pool/test_machine_explored.py::test_every_order_of_messages",
    "tests/pool/test_machine_explored.py::test_the_command",
    "tests/pool/test_machine_explored.py::test_the_walk_catches",
    "tests/pool/test_machine_explored.py::test_every_line_of_the_turns_is_run",
    "tests/pool/test_machine_explored.py::test_a_crash_at_any_line",
    "tests/pool/test_machine_reduced.py::test_whatever_a_world_gets_to_was_met",
)
SLOW = 8.0
AT_IMPORT = "<import>"  # in the place of a test's name
AT_ONCE = 8  # files in one run of pytest
GATHERING = 3600  # seconds, for one run


class Test(NamedTuple):
    name: str
    seconds: float  # as it was measured, on a machine that may have been busy
    cost: float  # at most that, and no more than three times what the processor worked for it
    breadth: int  # lines that it runs, of all files: the fewer, the nearer it is to each


class Reach:
    """Tests by line."""

    def __init__(self, gathered: Iterable[Mapping[str, Mapping[str, object]]]) -> None:
        self.tests: dict[str, Test] = {}
        self._by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
        self._at_import: dict[tuple[str, int], list[str]] = defaultdict(list)
        for tests in gathered:
            for name, facts in tests.items():
                lines: dict[str, list[int]] = facts["lines"]  # type: ignore[assignment]
                seconds = float(facts["seconds"])  # type: ignore[arg-type]
                if name.endswith(AT_IMPORT):
                    for file, numbers in lines.items():
                        for number in numbers:
                            self._at_import[file, number].append(name.removesuffix(AT_IMPORT))
                    continue
                work = float(facts.get("work", seconds))  # type: ignore[arg-type]
                cost = min(seconds, 3 * work + 0.1)
                if cost > SLOW:
                    continue
                self.tests[name] = Test(name, seconds, cost, sum(map(len, lines.values())))
                for file, numbers in lines.items():
                    for number in numbers:
                        self._by_line[file, number].append(name)

    def of(self, places: Iterable[tuple[str, int]]) -> list[Test]:
        """The tests that run one of these lines: fastest and nearest first, of each function one in front."""
        return self._ordered({name for place in places for name in self._by_line.get(place, ())})

    def at_import(self, places: Iterable[tuple[str, int]]) -> list[Test]:
        """The tests of the files whose import alone runs one of these lines."""
        files = tuple({file for place in places for file in self._at_import.get(place, ())})
        return self._ordered({name for name in self.tests if name.startswith(files)}) if files else []

    def _ordered(self, names: Iterable[str]) -> list[Test]:
        # the n-th set of parameters of a function counts as n times as far away: others are asked before it
        turns: dict[str, int] = defaultdict(int)
        scored = []
        for test in sorted(map(self.tests.__getitem__, names), key=lambda test: (_distance(test), test.name)):
            function = test.name.partition("[")[0]
            turns[function] += 1
            scored.append((_distance(test) * turns[function], test.name, test))
        return [test for _, _, test in sorted(scored)]


def _distance(test: Test) -> float:
    return (test.cost + 0.02) * (test.breadth + 50)


def files_with_tests(tree: Path, folders: Iterable[str]) -> list[str]:
    return [
        str(path.relative_to(tree))
        for folder in folders
        for path in sorted((tree / "tests" / folder).rglob("test_*.py"))
    ]


def gather(tree: Path, cache: Path, files: Iterable[str], *, jobs: int, moved: bool = False) -> Reach:
    """Read what is kept, and gather the rest.

    Args:
        tree: A copy of the project that nobody changes.
        cache: Where it is kept.
        files: Test files, relative to the tree.
        jobs: How many are gathered at once.
        moved: Take what was kept of an unchanged test file though afpool has changed since.
    """
    cache.mkdir(parents=True, exist_ok=True)
    common = _digest(tree, moved=moved)

    def kept(file: str) -> Path:
        digest = hashlib.sha256(common + (tree / file).read_bytes()).hexdigest()[:20]
        return cache / f"{file.replace('/', '-').removesuffix('.py')}-{digest}.json"

    wanted = {file: kept(file) for file in files}
    missing = [file for file, path in wanted.items() if not path.is_file()]
    groups = [missing[at : at + AT_ONCE] for at in range(0, len(missing), AT_ONCE)]
    if missing:
        print(f"gathering what the tests of {len(missing)} files run", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda group: _run(tree, {file: wanted[file] for file in group}), groups))
    return Reach(json.loads(path.read_text()) for path in wanted.values())


def _run(tree: Path, files: Mapping[str, Path]) -> None:
    part = next(iter(files.values())).with_suffix(".part")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-p", "tests.mutation.gathering", "--timeout=0", *files]
    command += [f"--deselect={test}" for test in LEFT_OUT]
    done = subprocess.run(
        command, cwd=tree, env={**environment(tree), "AFPOOL_MUTATION_OUT": str(part)},
        capture_output=True, text=True, timeout=GATHERING, check=False,
    )  # fmt: skip
    if not part.is_file():
        raise SystemExit(f"{', '.join(files)}: not gathered:\n{(done.stdout + done.stderr)[-2000:]}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if failed:
        print("\n".join(["not used, for they fail on the unbroken code:", *failed]), flush=True)
    tests = json.loads(part.read_text())
    for file, path in files.items():
        path.write_text(json.dumps({name: tests[name] for name in tests if name.startswith(f"{file}::")}))
    part.unlink()


def environment(tree: Path) -> dict[str, str]:
    """For tests whose outcome depends on the code alone: nothing by chance, no bytecode of other sources."""
    chosen = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    return {**os.environ, **chosen, "CI": "1"}  # hypothesis does not draw by chance where CI is set


def _digest(tree: Path, *, moved: bool) -> bytes:
    digest = hashlib.sha256(sys.version.encode())
    if moved:
        return b"moved"
    for part in ("actors", "afpool", "tests"):
        for path in sorted((tree / part).rglob("*.py")):
            if part != "tests" or not path.name.startswith("test_"):
                digest.update(str(path.relative_to(tree)).encode() + path.read_bytes())
    return digest.digest()
