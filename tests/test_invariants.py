"""`docs/invariants.md` names every invariant and tests that exist."""

from __future__ import annotations

import re

from tests.node_ids import ROOT, missing

ROW = re.compile(r"^\| (I\d+) \| (.+?) \| (.+) \|$")
NODE_ID = re.compile(r"`(tests/[^`]+)`")


def rows() -> list[tuple[str, str, list[str]]]:
    text = (ROOT / "docs" / "invariants.md").read_text()
    found = [ROW.match(line) for line in text.splitlines()]
    return [(row[1], row[2], NODE_ID.findall(row[3])) for row in found if row]


def test_each_invariant_has_one_row_and_at_least_one_test():
    assert [name for name, _, _ in rows()] == [f"I{number}" for number in range(1, 13)]
    for name, statement, tests in rows():
        assert statement.endswith("."), name
        assert tests, f"{name} is held by nothing"
        assert len(set(tests)) == len(tests), f"{name} names a test twice"


def test_every_test_that_is_named_exists():
    assert missing(test for _, _, tests in rows() for test in tests) == []


def test_a_test_that_does_not_exist_is_found():
    gone = [
        "tests/test_invariants.py::test_nothing",
        "tests/no_such_file.py::test_it",
        "tests/test_invariants.py::rows",
    ]
    assert missing([*gone, "tests/test_invariants.py::test_every_test_that_is_named_exists"]) == sorted(gone)
