"""Break the code in known ways and see that a test notices each.

    python tests/mutants/run.py [NAME ...] [--jobs N]

Each `tests/mutants/*.toml` holds mutants: an exact source replacement and the tests that must fail under it.
A replacement that does not apply exactly once is an error: the code has moved on and the mutant with it.
The named tests are run once on the unbroken code first; they must pass there.

Works on a copy that is made once, at the start: the tree that it is started from is never changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("afpool", "actors", "tests", "examples", "pyproject.toml", "README.md")
SECONDS = 900  # for all tests of a run
HANGS = 60  # for one test: a break that makes it hang is noticed too


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str


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


def copy_tree(tree: Path, into: Path) -> None:
    for name in COPIED:
        source = tree / name
        if source.is_dir():
            shutil.copytree(
                source, into / name, ignore=shutil.ignore_patterns("__pycache__", "mutants", "peers")
            )
        else:
            shutil.copy(source, into / name)


def run_tests(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
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
    return "" if found is None else found[1].removeprefix("tests/")


def judge(mutant: Mutant, unbroken: Path) -> tuple[str, float, str]:
    began = time.monotonic()
    changed = applied(mutant, unbroken)
    if changed is None:
        return "DOES NOT APPLY", 0.0, ""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        copy_tree(unbroken, tree)
        (tree / mutant.file).write_text(changed)
        code, output = run_tests(tree, mutant.tests)
    # 1: tests failed. 2 and above: interrupted, wrong usage, nothing collected; no proof of anything.
    verdict = {0: "SURVIVED", 1: "killed"}.get(code, f"NOT RUN (pytest exit {code})")
    by = killer(output) or ("the time limit" if code == 1 else "")
    return verdict, time.monotonic() - began, by


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    mutants = [mutant for mutant in load() if not options.names or mutant.name in options.names]
    unknown = set(options.names) - {mutant.name for mutant in mutants}
    if unknown:
        print(f"there is no mutant named {', '.join(sorted(unknown))}")
        return 2
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    began = time.monotonic()
    width = max(len(mutant.name) for mutant in mutants)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        unbroken = Path(folder)
        copy_tree(ROOT, unbroken)  # once, so that whoever edits the tree meanwhile disturbs nothing
        code, output = run_tests(unbroken, tests)
        if code != 0:
            print(output)
            print("the named tests do not pass on the unbroken code")
            return 2
        verdicts = pool.map(judge, mutants, [unbroken] * len(mutants))
        for mutant, (verdict, seconds, by) in zip(mutants, verdicts, strict=True):
            print(f"{mutant.name:<{width}}  {verdict:<14}  {seconds:5.1f} s  {by}", flush=True)
            wrong += verdict != "killed"
    print(f"{len(mutants) - wrong} of {len(mutants)} mutants killed in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
