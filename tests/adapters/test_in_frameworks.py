"""The adapters with their real frameworks, and the page about them: run in the frameworks' environment.

`make test` and `make frameworks` install it. Where it is missing the tests are skipped, unless
AFPOOL_REQUIRE_PEERS=1: then they fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".cache" / "frameworks"
PAGE = ROOT / "docs" / "frameworks.md"
WITHIN = 100.0

pytestmark = pytest.mark.peer


@pytest.fixture
def interpreter() -> Path:
    if not (PLACE / ".packages").exists():
        message = "the agent frameworks are not installed: run `make test` or `make frameworks`"
        if os.environ.get("AFPOOL_REQUIRE_PEERS") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return PLACE / "bin" / "python"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


@pytest.mark.parametrize("framework", ["langchain", "message_loop", "openai_agents", "pydantic_ai"])
def test_an_adapter_in_its_frameworks_own_loop(framework: str, interpreter: Path) -> None:
    file = f"tests/frameworks/test_{framework}.py"
    done = run(interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", file)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed[1]) == len(
        re.findall(r"^def test_|^@WAYS$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ) + (2 if framework == "message_loop" else 0), "all of them were run, and none was left out"


def programs() -> list[tuple[str, str]]:
    """The programs of the page, with what stands below them."""
    return re.findall(
        r"<!-- fragment: [^\n]+ -->\n```python\n(.*?)```\n\n```text\n(.*?)```",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )


@pytest.mark.parametrize("number", range(len(programs())))
def test_a_program_of_the_page_prints_what_the_page_says(
    number: int, interpreter: Path, tmp_path: Path
) -> None:
    text, prints = programs()[number]
    program = tmp_path / "example.py"
    program.write_text(text, encoding="utf-8")
    done = run(interpreter, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == prints


def test_the_page_has_a_program_for_each_framework() -> None:
    assert len(programs()) == 3


def test_a_framework_that_is_missing_is_named() -> None:
    program = """
import asyncio
from afpool.adapters import langchain_tools, openai_agents_tools, pydantic_ai_toolset
for call in (pydantic_ai_toolset, openai_agents_tools, langchain_tools):
    try:
        made = call(None)
        if asyncio.iscoroutine(made):
            asyncio.run(made)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = run(sys.executable, "-c", program)
    assert done.stdout.splitlines() == [
        f"{package} is not installed: pip install {package}"
        for package in ("pydantic-ai-slim", "openai-agents", "langchain-core")
    ], done.stderr
