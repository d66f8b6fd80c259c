"""The tool changes what it says, tells what is noticed from what is not, and keeps to its list."""

from __future__ import annotations

import argparse
import ast
import os
from pathlib import Path

import pytest
import trio

from tests.mutation import reach as reaching
from tests.mutation import run, survivors
from tests.mutation.alive import NotAlive, functions, make
from tests.mutation.base import digest, moved
from tests.mutation.changes import Change, changes_of, still_python
from tests.mutation.hangs import BACKSTOP, Limit, Spent, spent
from tests.mutation.reach import Reach
from tests.mutation.running import Places, named_after, within

ROOT = Path(__file__).resolve().parents[2]

TEXT = '''\
LIMIT = 3


async def give(self, place, count=1):
    """Give it back: 1."""
    assert count > 0
    if (count < LIMIT and not self.gone) or place is None:  # é, and so on
        raise Overloaded("none is left")
    try:
        await self.wait(place)
        self.count -= count
        return self.swap(place, count)
    except KeyError:
        return False
'''

CHANGES = {
    ("constant", "LIMIT = 4"),
    ("constant", "LIMIT = 2"),
    ("constant", "async def give(self, place, count=2):"),
    ("constant", "async def give(self, place, count=0):"),
    ("boundary", "if (count <= LIMIT and not self.gone) or place is None: # é, and so on"),
    ("connective", "if (count < LIMIT or not self.gone) or place is None: # é, and so on"),
    ("connective", "if (count < LIMIT and not self.gone) and place is None: # é, and so on"),
    ("condition", "if (not ((count < LIMIT and not self.gone) or place is None)): # é, and so on"),
    ("condition", "if (count < LIMIT and bool(self.gone)) or place is None: # é, and so on"),
    ("operand", "if (((not self.gone))) or place is None: # é, and so on"),
    ("operand", "if (((count < LIMIT))) or place is None: # é, and so on"),
    ("operand", "if ((place is None)): # é, and so on"),
    ("operand", "if ((count < LIMIT and not self.gone)): # é, and so on"),
    ("comparison", "if (count < LIMIT and not self.gone) or place is not None: # é, and so on"),
    ("statement", "pass"),
    ("statement", 'await __import__("trio").lowlevel.checkpoint()'),
    ("arithmetic", "self.count += count"),
    ("return", "return None"),
    ("arguments", "return self.swap(count, place)"),
    ("handler", "raise"),
    ("constant", "return True"),
}


def test_every_kind_of_change_at_its_exact_place():
    found = changes_of("a.py", TEXT)
    assert {(change.operator, change.becomes) for change in found} == CHANGES
    assert len({change.name for change in found}) == len(found)
    for change in found:
        assert still_python(change, TEXT)
        assert change.was in " ".join(TEXT.split())


def test_a_change_keeps_its_name_when_the_file_moves():
    before = {change.name for change in changes_of("a.py", TEXT)}
    after = {change.name for change in changes_of("a.py", f"import os\n\n\n{TEXT}")}
    assert before == after


def limit(count: int) -> int:
    def more(by: int) -> int:
        return count + by

    return more(1)


def stepped(count: int, by: int = 1) -> int:
    return count - by


@trio.lowlevel.enable_ki_protection
def protected() -> tuple[bool, int]:
    return trio.lowlevel.currently_ki_protected(), 1


def changes_here(was: str) -> list[Change]:
    text = Path(__file__).read_text()
    return [
        change for change in changes_of("tests/mutation/test_mutation_tool.py", text) if change.was == was
    ]


def made(change: Change) -> None:
    text = Path(__file__).read_text()
    make(text, change.applied(text), Path(__file__), functions(ROOT, ["tests/mutation"]))


@pytest.mark.parametrize(
    ("was", "becomes", "function", "value"),
    [
        ("return count + by", "return count - by", limit, 4),
        ("return more(1)", "return more(2)", limit, 7),
        (
            "return trio.lowlevel.currently_ki_protected(), 1",
            "return trio.lowlevel.currently_ki_protected(), 2",
            protected,
            (True, 2),
        ),
    ],
)
def test_what_is_imported_is_changed_where_it_lives(was, becomes, function, value):
    before = function.__code__
    (change,) = [change for change in changes_here(was) if change.becomes == becomes]
    try:
        made(change)
        assert function(*([5] if function is limit else [])) == value
    finally:
        function.__code__ = before
        trio.lowlevel.enable_ki_protection(protected)


@pytest.mark.parametrize(
    "was", ["ROOT = Path(__file__).resolve().parents[2]", "def stepped(count: int, by: int = 1) -> int:"]
)
def test_what_stands_in_no_function_has_to_be_imported(was):
    (change, *_) = changes_here(was)
    with pytest.raises(NotAlive):
        made(change)


def test_lines_are_found_where_they_are_by_now():
    before = ["import os", "", "def one():", "    return 1", "", "def two():", "    return 2"]
    after = [
        "def two():",
        "    return 2",
        "",
        "def one():",
        "    return one",
        "",
        "def two():",
        "    return 2",
    ]
    places = moved(before, after)
    assert {before[line - 1] for line in places} == {"", "def one():", "def two():", "    return 2"}
    assert [places[3], places[6], places[7]] == [4, 7, 8]
    assert all(before[one - 1] == after[two - 1] for one, two in places.items())


def test_an_entry_of_the_base_holds_until_its_tests_or_their_helpers_change(tmp_path):
    tests = tmp_path / "tests"
    (tests / "a").mkdir(parents=True)
    (tests / "a" / "test_a.py").write_text("from tests.a.kit import one\n")
    (tests / "a" / "kit.py").write_text("from tests.a import deep\n")
    (tests / "a" / "deep.py").write_text("one = 1\n")
    (tests / "a" / "other.py").write_text("")
    before = digest(tmp_path, "tests/a/test_a.py")
    (tests / "a" / "other.py").write_text("two = 2\n")
    assert digest(tmp_path, "tests/a/test_a.py") == before
    (tests / "a" / "deep.py").write_text("one = 2\n")
    assert digest(tmp_path, "tests/a/test_a.py") != before


@pytest.mark.parametrize(
    ("took", "over"),
    [
        (Spent(clock=30, worked=9, waited=20), False),  # it got a third of a processor
        (Spent(clock=30, worked=29, waited=1), True),
        (Spent(clock=30, worked=1, waited=1), True),
        (Spent(clock=BACKSTOP + 1, worked=0, waited=BACKSTOP), True),
    ],
)
def test_a_child_hangs_by_its_own_time_and_not_by_that_of_others(monkeypatch, took, over):
    limit = Limit.of_test(os.getpid(), work=0.5, seconds=1.0)
    monkeypatch.setattr(limit, "took", lambda: took)
    assert limit.over() is over


def test_work_is_told_from_being_idle():
    before = spent(os.getpid())
    while spent(os.getpid()).since(before).worked < 0.05:
        sum(range(10_000))
    now = spent(os.getpid()).since(before)
    assert now.idle < now.clock


def test_the_nearest_and_fastest_go_first_and_of_each_function_one():
    lines = {"a.py": [1, 2]}
    reach = Reach(
        [
            {
                "t::one[a]": {"seconds": 0.1, "lines": lines},
                "t::one[b]": {"seconds": 0.1, "lines": lines},
                "t::slow": {"seconds": 3, "lines": lines},
                "t::search": {"seconds": 60, "lines": lines},
                "t::wide": {"seconds": 0.1, "lines": {"a.py": [2, *range(10, 2000)]}},
                "t::other": {"seconds": 0.1, "lines": {"a.py": [3]}},
            }
        ]
    )
    tests = reach.of([("a.py", 2)])
    assert [test.name for test in tests] == ["t::one[a]", "t::one[b]", "t::slow", "t::wide"]
    assert [test.name for test in within(tests, 1.0)] == ["t::one[a]", "t::one[b]", "t::wide"]
    assert reach.of([("a.py", 9)]) == []


def test_tests_that_are_named_as_the_module_go_before_all_others():
    names = ["tests/a/test_far.py::one", "tests/a/test_pool_openings.py::two", "tests/a/test_far.py::three"]
    tests = [reaching.Test(name, 0.1, 0.1, 0.1, 1) for name in names]
    ordered = named_after("afpool/pool/_openings.py", tests)
    assert [test.name for test in ordered] == [names[1], names[0], names[2]]


def test_a_constant_is_looked_for_where_it_is_spoken_of(tmp_path):
    package = tmp_path / "afpool"
    package.mkdir()
    (package / "a.py").write_text(TEXT)
    (package / "b.py").write_text("from a import LIMIT\n\n\ndef far():\n    return LIMIT\n")
    places = Places(tmp_path)
    by = {change.becomes: set(places.of(change)) for change in changes_of("afpool/a.py", TEXT)}
    assert ("afpool/b.py", 5) in by["LIMIT = 4"]
    outside = {change.becomes for change in changes_of("afpool/a.py", TEXT) if places.outside(change)}
    assert outside == {"LIMIT = 4", "LIMIT = 2"}
    assert by["self.count += count"] == {("afpool/a.py", 11)}
    assert ("afpool/a.py", 11) in by["async def give(self, place, count=2):"]


def test_the_sample_is_the_same_and_the_parts_are_all():
    changes = changes_of("a.py", TEXT)
    assert run.in_sample(changes, 1.0) == changes
    assert set(run.in_sample(changes, 0.3)) < set(run.in_sample(changes, 0.8)) < set(changes)
    options = [
        argparse.Namespace(parts=[], file=[], scope="", all=False, part=f"{part}/3") for part in (1, 2, 3)
    ]
    parts = [run.chosen(changes, option) for option in options]
    assert sorted(change for part in parts for change in part) == sorted(changes)


def test_an_explanation_that_belongs_to_nothing_is_wrong():
    (change, other, *_) = changes_of("a.py", TEXT)
    known = survivors.Survivor("a.py", change.scope, change.was, change.becomes, "for a reason")
    reasons, wrong = survivors.explained([known], [change, other])
    assert reasons == {change.name: "for a reason"}
    assert wrong == []
    moved = known._replace(was="LIMIT = 9")
    empty = known._replace(becomes=other.becomes, why=" ")
    _, wrong = survivors.explained([known, known, moved, empty], [change, other])
    assert [entry.split(":")[0] for entry in wrong] == [
        "twice in the list",
        "no such change any more",
        "no reason",
    ]


def test_the_list_belongs_to_the_code_of_today():
    entries = survivors.load()
    changes = [
        change
        for file in sorted({entry.file for entry in entries})
        for change in changes_of(file, (ROOT / file).read_text())
    ]
    assert survivors.explained(entries, changes)[1] == []


def test_what_is_changed_stays_python():
    file = "afpool/pool/_operation.py"
    text = (ROOT / file).read_text()
    changes = changes_of(file, text)
    assert len(changes) > 150
    for change in changes[::9]:
        ast.parse(change.applied(text))
        assert still_python(change, text), change
