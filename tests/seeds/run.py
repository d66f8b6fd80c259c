"""Run the tests that hold the promises, no other ones, and write the page about them.

    python tests/seeds/run.py [--jobs N] [--only NAME] [--check]

`--only` takes one document (`wants`, say) and writes nothing. `--check` only says whether every test that is
named exists and whether the page is up to date. Exit code 1 where a promise is not held: its test is missing,
was left out or failed; 2 where a list is not what it has to be.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest

from tests.node_ids import missing
from tests.seeds import promises
from tests.seeds.promises import ROOT, ListError


class Outcomes:
    """What became of each test, by node id."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.left_out: set[str] = set()
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.left_out.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def of(self, test: str) -> str | None:
        """Say what is wrong with a test that was named, or `None` where all of its variants passed."""
        for what, ids in (("failed", self.failed), ("was left out", self.left_out)):
            if any(_is(test, node_id) for node_id in ids):
                return what
        return None if any(_is(test, node_id) for node_id in self.passed) else "did not run"


def _is(test: str, node_id: str) -> bool:
    return node_id == test or node_id.startswith(f"{test}[")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    try:
        documents = promises.read()
    except ListError as error:
        print(error)
        return 2
    if options.only is not None:
        documents = [document for document in documents if document.name == options.only]
    tests = promises.named(documents)
    if not tests:
        print("no test holds anything here")
        return 2
    wrong = dict.fromkeys(missing(tests), "does not exist")
    page = promises.build(documents)
    if options.check:
        current = promises.PAGE.exists() and promises.PAGE.read_text(encoding="utf-8") == page
        if options.only is None and not current:
            print(f"{promises.PAGE.relative_to(ROOT)} is not what the lists say; `make seeds` writes it")
            return 1
        return _tell(documents, wrong)
    outcomes = Outcomes()
    run = [test for test in tests if test not in wrong]
    options_of_pytest = ["-q", "-p", "no:cacheprovider", "-n", str(options.jobs), "--rootdir", str(ROOT)]
    pytest.main([*options_of_pytest, *(str(ROOT / test) for test in run)], plugins=[outcomes])
    wrong |= {test: why for test in run if (why := outcomes.of(test)) is not None}
    code = _tell(documents, wrong)
    if code == 0 and options.only is None:
        promises.PAGE.write_text(page, encoding="utf-8")
        print(f"written to {promises.PAGE.relative_to(ROOT)}")
    return code


def _tell(documents: list[promises.Document], wrong: dict[str, str]) -> int:
    print()
    broken = 0
    for document in documents:
        held = sum(promise.not_held is None for promise in document.promises)
        print(f"{document.name}: {len(document.promises)} promises, {held} held, ", end="")
        print(f"{len(document.promises) - held} not, each with its reason")
        for promise in document.promises:
            for test in promise.held_by:
                if test in wrong:
                    broken += 1
                    print(f"  NOT HELD {promise.number}: {test} {wrong[test]}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
