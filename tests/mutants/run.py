"""Break the code in known ways and see that a test notices each.

    python tests/mutants/run.py [NAME ...] [--jobs N]

Each `tests/mutants/*.toml` holds mutants: an exact source replacement and the tests that must fail under it.
A replacement that does not apply exactly once is an error: the code has moved on and the mutant with it.
The named tests are run once on the unbroken code first; they must pass there.

Rules:

* Works on copies that are made once, at the start: the tree that it is started from is never changed.
* First each mutant is tried in a fork of a process that has imported everything (`mutation/forking.py`).
  A test that fails there has noticed.
* What a fork does not show is tried on disk: the file is changed in a copy, and pytest started there. So is
  what has to be imported, what only tests see that start processes of their own or read sources, and what
  ends the process.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutation import forking  # noqa: E402 -- it is started as a script
from tests.mutation.changes import Change  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 900  # for all tests of a run
HANGS = 60  # for one test: a break that makes it hang is noticed too


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str


class Verdict(NamedTuple):
    mutant: Mutant
    word: str
    seconds: float
    by: str
    way: str


def load() -> list[Mutant]:
    mutants: list[Mutant] = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        with path.open("rb") as source:
            mutants += [
                Mutant(**{**entry, "tests": tuple(entry["tests"])})
                for entry in tomllib.load(source)["mutant"]
            ]
    names = [mutant.name for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SystemExit(f"two mutants of one name: {', '.join(sorted(twice))}")
    return mutants


def applied(mutant: Mutant, tree: Path = ROOT) -> str | None:
    """The changed source, or `None` when the replacement does not apply exactly once."""
    text = (tree / mutant.file).read_text()
    return text.replace(mutant.old, mutant.new) if text.count(mutant.old) == 1 else None


# ---------------------------------------------------------------------------------------------- in a fork


def _job(mutant: Mutant, tree: Path) -> dict[str, Any]:
    text = (tree / mutant.file).read_text()
    start = text.index(mutant.old)
    change = Change(
        file=mutant.file, start=start, end=start + len(mutant.old), new=mutant.new, operator="by hand",
        scope=mutant.name, line=text.count("\n", 0, start) + 1, was=mutant.old, becomes=mutant.new,
    )  # fmt: skip
    job: dict[str, Any] = {"name": mutant.name, "change": change._asdict(), "tests": list(mutant.tests)}
    return {**job, "usual": {}, "imports": False}


def in_forks(mutants: list[Mutant], tree: Path, workers: int, unfit: list[str]) -> Iterator[Verdict]:
    """Yield those that are noticed there; named tests that fail on the unbroken code are put into `unfit`."""
    by_name = {mutant.name: mutant for mutant in mutants}
    jobs = [_job(mutant, tree) for mutant in mutants]
    named = sum(len(mutant.tests) for mutant in mutants)
    for said in forking.verdicts(tree, jobs, workers=workers, control=100 * named, alone=False):
        if said["name"] == forking.CONTROL:
            unfit.append(said["by"])
            print(f"fails on the unbroken code: {said['by']}", flush=True)
        elif said["verdict"] == "killed" and not said["by"].startswith("end of process"):
            yield Verdict(by_name[said["name"]], "killed", said["seconds"], said["by"], "fork")


# ------------------------------------------------------------------------------------------------ on disk


def run_tests(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    # without bytecode of the changed file, whose length and time may be those of another
    environment = {**forking.environment(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += [f"--timeout={HANGS}", "-rfE", "--tb=short", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, "timed out"
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def killer(output: str) -> str:
    """The test that noticed, from pytest's summary; empty where there was none to name."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return "" if found is None else found[1]


def judge(mutant: Mutant, tree: Path) -> Verdict:
    """Change the file in that tree, run the tests, and put the file back."""
    began = time.monotonic()
    path = tree / mutant.file
    before, changed = path.read_text(), applied(mutant, tree)
    if changed is None:
        return Verdict(mutant, "DOES NOT APPLY", 0.0, "", "")
    for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        bytecode.unlink()
    path.write_text(changed)
    try:
        code, output = run_tests(tree, mutant.tests)
    finally:
        path.write_text(before)
    # 1: tests failed. 2 and above: interrupted, wrong usage, nothing collected; no proof of anything.
    word = {0: "SURVIVED", 1: "killed"}.get(code, f"NOT RUN (pytest exit {code})")
    by = killer(output) or ("the time limit" if code == 1 else "")
    return Verdict(mutant, word, time.monotonic() - began, by, "disk")


def on_disk(mutants: list[Mutant], unbroken: Path, workers: int) -> Iterator[Verdict]:
    """Yield a verdict for each."""
    trees: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def one(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            return judge(mutant, tree)
        finally:
            trees.put(tree)

    with tempfile.TemporaryDirectory(prefix="mutant-") as folder, ThreadPoolExecutor(workers) as pool:
        for worker in range(workers):
            tree = Path(folder).resolve() / str(worker)
            shutil.copytree(unbroken, tree)  # with the bytecode that is there by now
            trees.put(tree)
        yield from pool.map(one, mutants)


# --------------------------------------------------------------------------------------------------- all


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    mutants = [mutant for mutant in load() if not options.names or mutant.name in options.names]
    unknown = set(options.names) - {mutant.name for mutant in mutants}
    if unknown:
        print(f"there is no mutant named {', '.join(sorted(unknown))}")
        return 2
    began = time.monotonic()
    width = max(len(mutant.name) for mutant in mutants)
    verdicts: list[Verdict] = []
    unfit: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        unbroken = Path(folder).resolve()
        forking.copy_tree(ROOT, unbroken)  # once, so that whoever edits the tree meanwhile disturbs nothing
        try:
            for verdict in _all(mutants, unbroken, options.jobs, unfit):
                verdicts.append(verdict)
                mutant, word, seconds, by, way = verdict
                shown = f"{mutant.name:<{width}}  {word:<14}  {seconds:5.1f} s  {way:<4}  "
                print(shown + by.removeprefix("tests/"), flush=True)
        except forking.Unfit:
            print("the named tests do not pass on the unbroken code")
            return 2
    wrong = sum(verdict.word != "killed" for verdict in verdicts)
    ways = Counter(verdict.way for verdict in verdicts)
    shown = f"{len(mutants) - wrong} of {len(mutants)} mutants killed in {time.monotonic() - began:.0f} s"
    print(f"{shown}; {ways['fork']} in forks, {ways['disk']} on disk")
    if unfit:
        print("the named tests do not pass on the unbroken code")
        return 2
    return 1 if wrong else 0


def _all(mutants: list[Mutant], unbroken: Path, workers: int, unfit: list[str]) -> Iterator[Verdict]:
    apply = [mutant for mutant in mutants if applied(mutant, unbroken) is not None]
    left = {mutant.name: mutant for mutant in mutants}
    for verdict in in_forks(apply, unbroken, workers, unfit) if apply else ():
        del left[verdict.mutant.name]
        yield verdict
    yield from on_disk(list(left.values()), unbroken, workers)


if __name__ == "__main__":
    sys.exit(main())
