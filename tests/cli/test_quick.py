"""What is imported for the commands that people and shells wait for: nothing that takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.cli_kit import ROOT, surroundings
from tests.cli.console_kit import StandIn

# each takes tens of milliseconds, or brings what does
HEAVY = {
    "trio",
    "httpx",
    "httpx2",
    "mcp",
    "mcp_types",
    "pydantic",
    "hypercorn",
    "starlette",
    "joserfc",
    "anyio",
    "msgspec",
    "jsonschema_rs",
    "ssl",
    "asyncio",
}
NOT_FOR_HELP = HEAVY | {
    "attrs",
    "attr",
    "json",
    "logging",
    "socket",
    "importlib.metadata",
    "inspect",
    "tempfile",
}
LOOK = (
    "from afpool.cli import main; code = main(sys.argv[1:]); "
    "print(code, *sorted(sys.modules), file=sys.stderr)"
)


def imported(folder, *words):
    packages = [place for place in sys.path if "site-packages" in place]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {packages!r}; {LOOK}", *words],
        cwd=folder, env=surroundings(folder), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    code, *names = done.stderr.splitlines()[-1].split()
    assert code == "0", done.stderr
    return set(names)


@pytest.mark.parametrize(
    "words", [["--help"], ["call", "--help"], ["completion", "bash"], ["completion", "zsh"]]
)
def test_help_and_completion_import_next_to_nothing(tmp_path, words):
    # `-S` leaves out what a site imports for itself
    assert not imported(tmp_path, *words) & NOT_FOR_HELP


@pytest.mark.parametrize(
    "words",
    [["version"], ["config", "check"], ["config", "show"], ["config", "schema"], ["completion", "names"],
     ["token", "new", "x", "--tenant", "a", "--file", "tokens"], ["token", "list", "--file", "tokens"]],
    ids=" ".join,
)  # fmt: skip
def test_what_starts_nothing_imports_neither_trio_nor_the_service(tmp_path, words):
    assert not imported(tmp_path, *words) & HEAVY


@pytest.mark.parametrize(
    "words",
    [["show", "servers"], ["show", "servers", "--json"], ["console", "-c", "ping"], ["console", "--list"]],
    ids=" ".join,
)  # fmt: skip
def test_what_asks_a_running_process_imports_neither_trio_nor_its_console(tmp_path, words):
    with StandIn(tmp_path):
        names = imported(tmp_path, *words)
    assert "afpool.cli.console._link" in names
    assert not names & HEAVY
    assert not {name for name in names if name.startswith(("afpool.console", "afpool.pool", "attr"))}


def test_the_look_can_fail(tmp_path):
    # a command that does open a server
    (tmp_path / "afpool.toml").write_text('[servers.x]\ncommand = "true"\n')
    run = "import afpool.cli._tools, sys; assert 'trio' in sys.modules"
    subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, env=surroundings(tmp_path), check=True, timeout=60
    )
    assert (ROOT / "afpool" / "cli" / "_tools.py").exists()
