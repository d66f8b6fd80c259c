"""`docs/threats.md` names who might do harm, and for each threat tests that exist."""

from __future__ import annotations

import re

from tests.node_ids import ROOT, missing

KINDS = (
    "A malicious server",
    "A malicious model",
    "A curious tenant",
    "A local user, and pages in a browser",
    "Whoever is on the way",
    "A dependency",
)
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
NODE_ID = re.compile(r"`(tests/[^`]+)`")


def page() -> str:
    return (ROOT / "docs" / "threats.md").read_text()


def test_each_threat_has_something_against_it_and_tests():
    found = ROW.findall(page())
    assert len({name for name, *_ in found}) == len(found) > 30
    for name, threat, against, held in found:
        assert threat.endswith("."), name
        assert against.endswith("."), name
        tests = NODE_ID.findall(held)
        assert tests, f"{name} is held by nothing"
        assert len(set(tests)) == len(tests), f"{name} names a test twice"


def test_every_kind_is_there_and_every_letter_has_one_number_after_the_other():
    text = page()
    assert [title for title in re.findall(r"^## (.+)$", text, re.MULTILINE) if title in KINDS] == list(KINDS)
    names = [name for name, *_ in ROW.findall(text)]
    for letter in {name[0] for name in names}:
        of_it = [name for name in names if name[0] == letter]
        assert of_it == [f"{letter}{number}" for number in range(1, len(of_it) + 1)]


def test_every_test_that_is_named_exists():
    assert missing(test for *_, held in ROW.findall(page()) for test in NODE_ID.findall(held)) == []
