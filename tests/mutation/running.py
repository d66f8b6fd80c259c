"""From changes to verdicts: which tests each is given, and the process that runs them."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.mutation.reach import FOLDERS, environment, files_with_tests, gather

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.mutation.changes import Change
    from tests.mutation.reach import Test

COPIED = ("afpool", "actors", "tests", "examples", "docs", "pyproject.toml", "README.md")
CONTROL = "no change"  # as the server says it
UNFIT = 10  # likewise
ALONE = 8.0  # seconds of tests for a change that has to be imported


def copy_tree(tree: Path, into: Path) -> None:
    left_out = shutil.ignore_patterns("__pycache__", "peers", "browser", "node_modules", "images")
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, into / name, ignore=left_out)
        else:
            shutil.copy(tree / name, into / name)


def run(
    tree: Path, cache: Path, changes: list[Change], *, jobs: int, budget: float, moved: bool, only: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield a verdict for each change, as they come."""
    files = [
        file for file in files_with_tests(tree, FOLDERS) if not only or any(part in file for part in only)
    ]
    reach = gather(tree, cache, files, jobs=jobs, moved=moved)
    places = Places(tree)
    given = []
    for change in changes:
        # lines that were run before the file was changed say no more than which function it was
        lines = (moved and places.around(change)) or places.of(change)
        tests = reach.of(lines)
        imports = [] if tests else reach.at_import(lines)
        # who traces for itself (`machine_tears`) is not seen at a line that only it runs
        tests = tests or imports or reach.of(places.around(change))
        tests = within(named_after(change.file, tests), budget)
        if tests:
            names = [test.name for test in tests]
            seconds = {test.name: test.seconds for test in tests}
            job: dict[str, Any] = {
                "name": change.name,
                "change": change._asdict(),
                "tests": names,
                "seconds": seconds,
            }
            given.append({**job, "imports": bool(imports)})
        else:
            yield {"name": change.name, "verdict": "reached by no test", "by": "", "seconds": 0.0}
    if not given:
        return
    listed = tree / "changes.jsonl"
    listed.write_text("".join(json.dumps(job) + "\n" for job in given))
    needed = sorted({name.partition("::")[0] for job in given for name in job["tests"]})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-p", "tests.mutation.server", "--timeout=0", "--mutation-jobs", str(listed)]
    command += ["--mutation-workers", str(jobs)]
    read, write = os.pipe()
    with subprocess.Popen(
        [*command, "--mutation-out", str(write), *needed], cwd=tree, env=environment(tree), pass_fds=(write,),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        os.close(write)
        unfit: list[str] = []
        with os.fdopen(read) as said:
            for line in said:
                verdict = json.loads(line)
                if verdict["name"] != CONTROL:
                    yield verdict
                elif verdict["verdict"] != "survived":
                    unfit.append(verdict["by"])
                    print(f"left out, since it fails with no change, too: {verdict['by']}", flush=True)
                if len(unfit) == UNFIT:
                    server.terminate()
                    raise SystemExit("nothing was changed, and too many tests fail")
        assert server.stderr is not None
        errors = server.stderr.read()
    if server.returncode not in {0, 5}:
        raise SystemExit(f"{errors[-3000:]}\nthe server ended with {server.returncode}")


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
