"""The mutants keep up with the code: each still applies, is one change, and names tests that exist.

That a test notices each of them is what `python tests/mutants/run.py` shows; it takes minutes and is no part
of the suite.
"""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path

import pytest

from tests.node_ids import missing

_spec = importlib.util.spec_from_file_location("afpool_mutant_runner", Path(__file__).with_name("run.py"))
assert _spec is not None
assert _spec.loader is not None
runner = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runner)

MUTANTS = runner.load()


def test_there_are_enough_and_each_has_its_own_name():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= 30
    assert len(set(names)) == len(names)


def test_no_two_are_the_same_change():
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS]
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_applies_once_and_is_still_python(mutant):
    changed = runner.applied(mutant)
    assert changed is not None, "the text that it replaces is not there, or not once: the code has moved on"
    before = ast.dump(ast.parse((runner.ROOT / mutant.file).read_text()))
    assert ast.dump(ast.parse(changed)) != before, "it changes nothing but comments or layout"
    assert mutant.why.strip()
    assert mutant.tests


def test_every_named_test_exists():
    assert missing(test for mutant in MUTANTS for test in mutant.tests) == []


def test_none_is_left_to_chance():
    # A search may miss today what it found yesterday: one test at least has the case written down.
    left = [mutant.name for mutant in MUTANTS if all(_only_searches(test) for test in mutant.tests)]
    assert left == []


@cache
def _decorators(path: str) -> dict[str, str]:
    tree = ast.parse((runner.ROOT / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: " ".join(map(ast.unparse, node.decorator_list)) for node in functions}


def _only_searches(test: str) -> bool:
    path, _, name = test.partition("::")
    decorators = _decorators(path).get(name.partition("[")[0], "")
    return "given(" in decorators and "example(" not in decorators
