"""The pages of the command line and of deployment: their `console` blocks print what stands in them.

A line that begins with `$` is run by bash; what follows is what it prints, errors first, `…` for anything,
and `exit N` where it does not end with 0. The blocks of a page share a folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from afpool.cli._commands import AFPOOL
from tests.cli.cli_kit import ROOT, surroundings

FILES = {
    ".mcp.json": """\
{"mcpServers": {"desk": {"command": "python3", "args": ["-m", "afpool.testing", "stdio"]}}}
""",
    "afpool.toml": """\
[serve]
bind = "127.0.0.1:9000"
drain = "20s"
[serve.identity.tokens]
file = "tokens.json"
""",
}


def blocks(page):
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(block):
    """Command and what it prints, in order."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def like(wanted):
    parts = [re.sub(r" +", " ", part) for part in wanted.split("…")]
    return re.compile(".+".join(map(re.escape, parts)), re.DOTALL)


@pytest.fixture
def console(tmp_path):
    """A process with a console, of which the page tells."""
    place = tmp_path / "c"  # as `surroundings` says
    place.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.console_process", str(place)],
        cwd=tmp_path, env=surroundings(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert b"ready" in process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("page", ["command-line.md", "deployment.md", "console.md"])
def test_what_a_page_shows_is_what_happens(page, tmp_path, request):
    if page == "console.md":
        request.getfixturevalue("console")
    shutil.copytree(ROOT / "examples" / "deploy", tmp_path / "examples" / "deploy")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("afpool", "-m afpool "), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (programs / name).chmod(0o755)
    env = surroundings(tmp_path, PATH=f"{programs}:{os.environ['PATH']}")
    if page != "console.md":  # they show what there is where nobody has set anything
        del env["AFPOOL_CONSOLE_DIRECTORY"]
    ran = 0
    for block in blocks(page):
        for command, lines in commands(block):
            name = command.removeprefix("cat ")
            if name in FILES:  # there from when the page shows it
                (tmp_path / name).write_text(FILES[name])
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            said = (done.stderr + done.stdout).rstrip("\n")
            if done.returncode:
                said += f"\nexit {done.returncode}"
            wanted = "\n".join(lines)
            spaced = re.sub(r" +", " ", said)
            assert like(wanted).fullmatch(spaced), f"$ {command}\n{said}\n--- the page has\n{wanted}"
            ran += 1
    assert ran >= 2


def test_the_table_of_commands_is_the_commands():
    text = (ROOT / "docs" / "command-line.md").read_text()
    cells = re.findall(r"^\| (`[^|]*`) \| ", text.partition("## The first")[0], re.MULTILINE)
    told = []
    for cell in cells:
        names = re.findall(r"`([a-z]+)[^`]*`", cell)
        command = AFPOOL.find(names[0])
        told += names[:1] if command is not None and command.below else names
    assert told == [command.name for command in AFPOOL.below]
