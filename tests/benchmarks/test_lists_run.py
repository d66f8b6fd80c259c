"""Long lists are read, replaced and let go of in a short form. No time counts here."""

from __future__ import annotations

import re

import pytest

from tests.benchmarks.test_benchmarks_run import run


@pytest.mark.parametrize("kind", [[], ["--plain"]], ids=["schemas", "plain"])
def test_no_list_brings_a_round_of_the_oldest_generation(kind):
    printed = run("lists.py", "--tools", "300", "--lists", "1", *kind, code=None)
    rows = re.findall(r"^(first|replaced|let go) +(\d+) / (\d+) / (\d+) ", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["first", "replaced", "let go"]
    assert {row[3] for row in rows} == {"0"}
