"""From changes to verdicts: which tests each is given."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.mutation.base import files_with_tests, gather
from tests.mutation.forking import CONTROL, Unfit, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.mutation.changes import Change
    from tests.mutation.reach import Test

IN_CONTROL = 300  # tests that are run with no change first
# They run no line of a function: they look at what a module or a class is made of.
LOOKING = (
    "tests/docs/test_docs_run.py::test_the_table_of_limits_is_the_limits",
    "tests/pool/test_bound_server.py::test_what_was_received_is_not_shown",
)


def run(
    tree: Path, kept: Path, changes: list[Change], *, jobs: int, budget: float, only: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield a verdict for each change, as they come."""
    files = [file for file in files_with_tests(tree) if not only or any(part in file for part in only)]
    reach = gather(tree, kept, files, jobs=jobs)
    places = Places(tree)
    given = []
    for change in changes:
        lines = places.of(change)
        tests = reach.of(lines)
        imports = [] if tests else reach.at_import(lines)
        # a line that is new since they were gathered has the tests of its function, and so has one that only
        # a test runs which traces for itself (`machine_tears`)
        tests = tests or imports or reach.of(places.around(change))
        tests = within(named_after(change.file, tests), budget)
        names = [test.name for test in tests]
        if places.outside(change):
            names += [name for name in LOOKING if not only or any(part in name for part in only)]
        if names:
            usual = {test.name: (test.seconds, test.work) for test in tests}
            job: dict[str, Any] = {
                "name": change.name,
                "change": change._asdict(),
                "tests": names,
                "usual": usual,
            }
            given.append({**job, "imports": bool(imports) or not tests})
        else:
            yield {"name": change.name, "verdict": "reached by no test", "by": "", "seconds": 0.0}
    if not given:
        return
    try:
        for verdict in verdicts(tree, given, workers=jobs, control=IN_CONTROL):
            if verdict["name"] != CONTROL:
                yield verdict
            else:
                print(f"left out, since it fails with no change, too: {verdict['by']}", flush=True)
    except Unfit:
        raise SystemExit("nothing was changed, and too many tests fail") from None


def named_after(file: str, tests: list[Test]) -> list[Test]:
    """The same tests, in front those whose file is named as the module is: a line that all run is theirs."""
    words = {word for word in file.rpartition("/")[2].removesuffix(".py").split("_") if len(word) > 3}

    def other(test: Test) -> bool:
        return words.isdisjoint(re.split(r"[_/.]", test.name.partition("::")[0]))

    return sorted(tests, key=other)


def within(tests: list[Test], budget: float) -> list[Test]:
    """Those of the tests, from the front, that fit into so many seconds; one at least."""
    taken = tests[:1]
    left = budget - sum(test.cost for test in taken)
    for test in tests[1:]:
        if test.cost <= left:
            taken.append(test)
            left -= test.cost
    return taken


class Places:
    """The lines by which the tests of a change are found.

    Of a change in a function: those of its statement. Of any other (a constant, a field, a default): those
    where its name is spoken of, in functions anywhere in the package.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.modules: dict[str, ast.Module] = {}
        self.words: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for path in sorted((tree / "afpool").rglob("*.py")):
            file = str(path.relative_to(tree))
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for word in set(re.findall(r"\w+", line)):
                    self.words[word].append((file, number))

    def outside(self, change: Change) -> bool:
        """Whether a change stands in no function: in what a module or a class is made of."""
        inside = _innermost(self._module(change.file), change.line)
        return not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in inside)

    def of(self, change: Change) -> list[tuple[str, int]]:
        inside = _innermost(self._module(change.file), change.line)
        statement = inside[-1]
        functions = [node for node in inside if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        if functions and functions[0] is not statement:
            return [(change.file, line) for line in _own_lines(statement)]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            last = statement.end_lineno or statement.lineno
            return [(change.file, line) for line in range(statement.body[0].lineno, last + 1)]
        names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _stored(node)]
        return [place for name in names for place in self._spoken_of(name)]

    def _spoken_of(self, name: str) -> Iterator[tuple[str, int]]:
        for file, number in self.words[name]:
            inside = _innermost(self._module(file), number)
            yield from ((file, line) for line in (_own_lines(inside[-1]) if inside else ()))

    def _module(self, file: str) -> ast.Module:
        if file not in self.modules:
            self.modules[file] = ast.parse((self.tree / file).read_text())
        return self.modules[file]

    def around(self, change: Change) -> list[tuple[str, int]]:
        """The lines of the whole function that a change stands in."""
        for node in _innermost(self._module(change.file), change.line):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                last = node.end_lineno or node.lineno
                return [(change.file, line) for line in range(node.body[0].lineno, last + 1)]
        return []


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _innermost(module: ast.Module, line: int) -> list[ast.stmt]:
    """The statements around a line, the outermost first."""
    found: list[ast.stmt] = []
    body: list[ast.AST] = list(module.body)
    while True:
        inner = [
            node
            for node in body
            if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case)
            and _first(node) <= line <= _last(node)
        ]
        if not inner:
            return found
        node = inner[-1]
        if isinstance(node, ast.stmt):
            found.append(node)
        body = [
            child
            for child in ast.iter_child_nodes(node)
            if hasattr(child, "lineno") or isinstance(child, ast.match_case)
        ]


def _first(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return int(node.lineno)  # type: ignore[attr-defined]


def _last(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return node.body[-1].end_lineno or 0
    return int(node.end_lineno or 0)  # type: ignore[attr-defined]


def _own_lines(statement: ast.stmt) -> range:
    """Of a compound statement its head alone."""
    body = getattr(statement, "body", None)
    last = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(last, statement.lineno + 1))
