"""Completion scripts, asked as the shells ask them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from afpool.cli._commands import AFPOOL, EVERYWHERE, LEVELS, SHELLS
from tests.cli.cli_kit import run, surroundings
from tests.cli.console_kit import StandIn

ASK = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={at}
_afpool afpool {current} '' 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def ask(tmp_path):
    """Ask bash what it offers for the last word of a line."""
    script = tmp_path / "afpool.bash"
    script.write_text(run(tmp_path, "completion", "bash").stdout)
    program = tmp_path / "bin" / "afpool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m afpool "$@"\n')
    program.chmod(0o755)

    def asked(*words):
        quoted = " ".join(f"'{word}'" for word in ("afpool", *words))
        text = ASK.format(script=script, words=quoted, at=len(words), current=f"'{words[-1]}'")
        done = subprocess.run(
            ["bash", "--norc", "-c", text],
            cwd=tmp_path, env={**surroundings(tmp_path), "PATH": f"{program.parent}:/usr/bin:/bin"},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return set(done.stdout.split())

    return asked


def test_bash_offers_what_there_is(ask, tmp_path):
    everywhere = {name for option in EVERYWHERE for name in option.names}
    commands = {command.name for command in AFPOOL.below}
    assert ask("") == commands | everywhere
    assert ask("to") == {"token", "tools"}
    assert ask("pause", "--y") == {"--yes"}
    assert ask("token", "") == {"new", "list", "revoke"} | everywhere
    assert ask("--json", "token", "n") == {"new"}
    assert ask("serve", "--lo") == {"--log-level", "--log-format"}
    assert ask("serve", "--log-level", "") == set(LEVELS)
    assert ask("serve", "--color", "a") == {"auto", "always"}
    assert ask("completion", "") == set(SHELLS)
    assert ask("call", "desk", "echo", "--te") == {"--tenant"}
    assert ask("call", "--tenant", "--j") == set()
    (tmp_path / "some.toml").write_text("")
    assert ask("doctor", "--config", "so") == {"some.toml"}
    assert ask("call", "desk", "echo", "@so") == {"@some.toml"}
    # bash itself parts words at these signs
    assert ask("call", "desk", "echo", "@", "so") == {"some.toml"}
    assert ask("doctor", "--config", "=", "so") == {"some.toml"}
    assert ask("serve", "--color", "=", "a") == {"auto", "always"}
    assert ask("serve", "--color", "=") == {"auto", "always", "never"}
    assert ask("serve", "--color", "=", "auto", "--log-l") == {"--log-level"}


def test_bash_offers_names_of_servers(ask, tmp_path):
    assert ask("doctor", "") == set()
    (tmp_path / "afpool.toml").write_text(
        '[servers.wiki]\nurl = "http://a.test"\n[servers.desk]\ncommand = "x"\n'
    )
    assert ask("call", "") == {"wiki", "desk"}
    assert ask("doctor", "wiki", "d") == {"desk"}
    assert ask("call", "wiki", "d") == set()
    (tmp_path / "afpool.toml").write_text("no configuration")
    assert ask("doctor", "") == set()


def test_bash_offers_processes_and_what_the_only_one_shows(ask, tmp_path):
    assert ask("console", "") == set()
    with StandIn(tmp_path, "blue", 1111):
        assert ask("console", "") == {"blue"}
        assert ask("why", "--process", "b") == {"blue"}
        assert ask("show", "") == {"actor", "servers"}
        assert ask("show", "serv") == {"servers"}
        with StandIn(tmp_path, "blue", 2222), StandIn(tmp_path, "green", 3333):
            assert ask("console", "") == {"1111", "2222", "green"}
            # it cannot be known whose
            assert ask("show", "") == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_names_every_command_and_option_and_is_one(shell, tmp_path):
    script = run(tmp_path, "completion", shell).stdout

    def walk(command):
        for below in command.below:
            assert below.name in script
            walk(below)
        for option in command.options:
            if not option.positional:
                assert any(name.lstrip("-") in script for name in option.names)

    walk(AFPOOL)
    if shutil.which(shell) is not None:
        done = subprocess.run(
            [shell, "-n"], input=script, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_zsh_loads_the_script_where_there_is_one(tmp_path):
    script = tmp_path / "afpool.zsh"
    script.write_text(run(tmp_path, "completion", "zsh").stdout)
    if shutil.which("zsh") is None:
        return
    text = (
        f"autoload -Uz compinit && compinit -u -D && source {script} && "
        "whence -w _afpool_token_new && print $_comps[afpool]"
    )
    done = subprocess.run(
        ["zsh", "-f", "-c", text],
        env=surroundings(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["_afpool_token_new:", "function", "_afpool"], done.stderr


def test_fish_offers_what_there_is_where_there_is_one(tmp_path):
    if shutil.which("fish") is None:
        return
    script = tmp_path / "afpool.fish"
    script.write_text(run(tmp_path, "completion", "fish").stdout)

    def offered(line):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
            cwd=tmp_path, env=surroundings(tmp_path), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    assert offered("afpool to") == {"token", "tools"}
    assert offered("afpool token ") == {"new", "list", "revoke"}
    assert offered("afpool serve --log") == {"--log-level", "--log-format"}
    assert offered("afpool serve --log-level ") == set(LEVELS)
    assert offered("afpool --json completion ") == set(SHELLS)
