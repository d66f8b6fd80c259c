"""The pages say what is so: examples run and print what stands below them, tables equal the code.

A `python` block is a whole program and is run. One that is not is marked by `<!-- fragment: why -->` on the
line before it. A `text` block right after a program is what it prints.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

import afpool
from afpool import AfpoolError, Limits
from afpool._base import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITHIN = 60.0
LINES = 200
# written by `make seeds` from lists that are as long as they are, one line for each promise
GENERATED = {"coverage-of-the-seeds.md"}


@attrs.frozen
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    fragment: str | None
    prints: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks(page: Path) -> list[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    number = 0
    while number < len(lines):
        opening = re.fullmatch(r"```(\w+)", lines[number])
        if opening is None:
            number += 1
            continue
        end = lines.index("```", number)
        mark = re.fullmatch(r"<!-- fragment: (.+) -->", lines[number - 1]) if number else None
        prints = None
        if lines[end + 1 : end + 3] == ["", "```text"]:
            prints = "\n".join(lines[end + 3 : lines.index("```", end + 3)])
        found.append(
            Block(
                page.relative_to(ROOT).as_posix(),
                number + 1,
                opening[1],
                "\n".join(lines[number + 1 : end]) + "\n",
                None if mark is None else mark[1],
                prints,
            )
        )
        number = end + 1
    return found


BLOCKS = [block for page in PAGES for block in _blocks(page)]
PROGRAMS = [block for block in BLOCKS if block.language == "python" and block.fragment is None]


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported the project, and runs each example in a fork."""
    command = [sys.executable, "-W", "error", "-m", "tests.forks"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WITHIN) == 0
        finally:
            if process.poll() is None:  # an example that does not end is in the same group
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_an_example_runs_and_prints_what_the_page_says(
    block: Block, tmp_path: Path, forks: subprocess.Popen[str]
) -> None:
    program = tmp_path / "example.py"
    program.write_text(block.text, encoding="utf-8")
    asked = {
        "program": str(program),
        "folder": str(tmp_path),
        "surroundings": {**os.environ, "PYTHONPATH": str(ROOT)},
        "stdin": "",
    }
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps(asked) + "\n")
    forks.stdin.flush()
    code, said, told = json.loads(forks.stdout.readline())  # the time of a test is bounded for all
    assert code == 0, told
    assert told == ""
    assert said, "an example shows something"
    if block.prints is not None:
        assert said.rstrip("\n") == block.prints


def test_every_page_with_a_program_was_found() -> None:
    # a fence that the reader above does not understand must not look like a page without examples
    for page in PAGES:
        fences = len(re.findall(r"^```python\b", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert fences == sum(
            block.page == page.relative_to(ROOT).as_posix() for block in BLOCKS if block.language == "python"
        )
    assert {"README.md", "docs/embedding.md", "docs/concepts.md"} <= {block.page for block in PROGRAMS}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "sh"], ids=str)
def test_a_shell_block_names_what_exists(block: Block) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", block.text))
    assert named <= targets, named - targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_links_and_length(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`((?:examples|tests|scripts|benchmarks)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    assert len(text.splitlines()) < LINES or page.name in GENERATED


def _rows(page: str, head: str) -> list[list[str]]:
    """The rows of every table of a page whose head begins with `head`."""
    rows: list[list[str]] = []
    inside = False
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(head):
            inside = True
        elif inside and not line.startswith("| ---"):
            rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


def test_the_table_of_errors_is_the_classes() -> None:
    built = {
        (cls.code, name, ", ".join(cls.deliveries))
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, AfpoolError) and cls is not AfpoolError
    }
    rows = _rows("errors.md", "| code |")
    assert {(code, name, deliveries) for code, name, deliveries, _, _ in rows} == built
    assert len(rows) == len(built)
    assert all(getattr(afpool, name).code == code for code, name, *_ in rows)


def test_the_table_of_limits_is_the_limits() -> None:
    told = {name: float(default) for name, default, _ in _rows("embedding.md", "| limit |")}
    assert told == {field.name: float(field.default) for field in attrs.fields(Limits)}


def _filed_events() -> set[str]:
    filed: set[str] = set()
    for source in (ROOT / "afpool" / "pool").glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "event" and node.args:
                kind = node.args[0]
                choices = [kind.body, kind.orelse] if isinstance(kind, ast.IfExp) else [kind]
                filed |= {str(choice.value) for choice in choices if isinstance(choice, ast.Constant)}
    return filed


def test_the_events_that_are_told_are_the_events_that_are_filed() -> None:
    text = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    told = re.search(r"events: (.+?)\.\s", text, re.DOTALL)
    assert told is not None
    assert set(re.findall(r"`([a-z-]+)`", told[1])) == _filed_events()


def test_the_actions_that_are_told_exist() -> None:
    from afpool import testing

    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    told = {
        name for first, *_ in _rows("testing.md", "| action |") for name in re.findall(r"([A-Z]\w+)\(", first)
    }
    actions = {
        name
        for name, cls in inspect.getmembers(testing, inspect.isclass)
        if issubclass(cls, testing.Action) and cls is not testing.Action
    }
    assert told == actions
    for method, *_ in _rows("testing.md", "| call |"):
        for name in re.findall(r"(\w+)\(", method):
            assert hasattr(testing.FakeServer, name), name
    for name in re.findall(r"`(\w+_tool)`", text):
        assert hasattr(testing, name), name
