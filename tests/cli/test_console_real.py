"""The client at a real console: a process with an answered call, a refused one, and one that waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.cli.cli_kit import AFPOOL, Running, surroundings
from tests.cli.console_process import OPERATE, READ
from tests.cli.terminal_kit import END_OF_FILE, ENTER, INTERRUPT, KILL_LINE, TAB, Terminal


class Process(NamedTuple):
    folder: object
    tcp: str
    process: subprocess.Popen

    def run(self, *words, stdin="", **env):
        return subprocess.run(
            [*AFPOOL, *words],
            cwd=self.folder, env=surroundings(self.folder, **env),
            input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def rows(self, *words):
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def terminal(self, *words, **more):
        return Terminal(self.folder, *words, **more)


def started(folder):
    place = folder / "c"  # as `surroundings` says
    place.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.console_process", str(place)],
        env=surroundings(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    ready = json.loads(process.stdout.readline())["ready"]
    return Process(folder, next(each for each in ready if each.startswith("http")), process)


def ended(one):
    one.process.kill()
    one.process.wait(30)
    one.process.stdin.close()
    one.process.stdout.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    one = started(tmp_path_factory.mktemp("console"))
    yield one
    ended(one)


@pytest.fixture
def mortal(tmp_path):
    one = started(tmp_path)
    yield one
    ended(one)


def test_every_table_can_be_shown(running):
    names = [row["table"] for row in running.rows("show")]
    assert {"servers", "actors", "clients", "leases", "waiting", "lists", "memory", "config"} <= set(names)
    for name in names:
        done = running.run("show", name)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_rows_are_objects_with_seconds_and_filters_work(running):
    (row,) = running.rows("show", "recent", "outcome=refused")
    assert row["call"] == "call-2"
    assert row["code"] == "stale-tools"
    assert 0 < row["took"] < 30
    (lease,) = running.rows("show", "leases", "since>0.001s")
    assert lease["call"] == "call-3"
    assert running.rows("show", "leases", "tenant=globex") == [
        {**lease, "age": running_time(), "since": running_time(), "left": running_time()}
    ]
    assert running.rows("show", "leases", "tenant=acme") == []
    (named,) = running.rows("show", "leases", "tenant=globex", "--reveal")
    assert named["principal"] == "bob"


class running_time:  # noqa: N801 -- it stands for a value
    def __eq__(self, other):
        return isinstance(other, float) and other > 0

    __hash__ = None


def test_why_names_the_cause_and_draws_the_stages(running):
    done = running.run("why", "call-2")
    assert done.returncode == 0
    assert done.stdout.startswith("refused `stale-tools` at the gate")
    assert "`/inputSchema/properties/limit/maximum`" in done.stdout
    assert "█" in done.stdout
    (told,) = running.rows("why", "call-2")
    assert told["use"]["outcome"] == "refused"
    assert running.run("why", "call-9").returncode == 1


def test_one_actor_one_check_one_tree(running):
    (busy,) = running.rows("show", "actors", "state=busy")
    done = running.run("show", "actor", busy["key"][:6])
    assert done.returncode == 0
    assert busy["key"] in done.stdout
    assert "call-3" in done.stdout
    done = running.run("check", "--json")
    assert done.returncode == any(json.loads(line)["level"] == "bad" for line in done.stdout.splitlines())
    assert any(row["name"] == "__main__.main" for row in running.rows("tree"))
    assert running.run("show", "nothing").returncode == 2


def test_keys_tables_and_filters_are_completed_in_the_terminal(running):
    (busy,) = running.rows("show", "actors", "state=busy")
    with running.terminal("console", columns=80) as terminal:
        terminal.prompt()
        terminal.type("show serv" + TAB)
        terminal.wait(lambda lines: lines[-1].endswith("> show servers"))
        terminal.type(KILL_LINE + f"show actor {busy['key'][:4]}" + TAB)
        terminal.wait(lambda lines: lines[-1].endswith(busy["key"]))
        terminal.type(KILL_LINE + "show actors sta" + TAB + "b" + TAB)
        terminal.wait(lambda lines: lines[-1].endswith("state=busy"))
        terminal.type(KILL_LINE + "why call-2" + TAB)
        terminal.wait(lambda lines: lines[-1].endswith("why call-2"))
        terminal.type(ENTER)
        terminal.wait("stale-tools")
        terminal.prompt()
        # a table wider than the terminal
        lines = terminal.do("show recent")
        assert any("no room for" in line for line in lines)
        head = next(line for line in lines if "outcome" in line)
        assert len(head) <= 80
        terminal.do("help show")
        terminal.wait("show TABLE")
        terminal.type(END_OF_FILE)
        assert terminal.end()[0] == 0


def test_events_are_followed_until_an_interrupt_and_the_prompt_goes_on(running):
    with running.terminal("console", columns=120) as terminal:
        terminal.prompt()
        terminal.type("tail kind=event" + ENTER)
        terminal.wait("> tail kind=event")
        while running.run("pause", "desk").returncode:
            pass
        terminal.wait("paused")
        assert running.run("resume", "desk").returncode == 0
        line = next(line for line in terminal.wait("resumed") if "resumed" in line)
        assert f"by=console uid {os.getuid()}" in line
        terminal.type(INTERRUPT)
        terminal.prompt()
        assert terminal.do("show servers")[-1] == "desk-pool>"


def test_watch_shows_the_overview_in_place(running):
    with running.terminal("watch", rows=24) as terminal:
        terminal.wait("in flight 1")
        terminal.wait("loop lag")
        terminal.resize(60, 24)
        terminal.wait(lambda lines: any("in flight" in line for line in lines))
        assert all(len(line) <= 60 for line in terminal.lines)
        terminal.type(INTERRUPT)
        code, lines = terminal.end()
        assert code == 130
        assert any("in flight 1" in line for line in lines), "what was last seen stays"


def test_over_tcp_a_token_says_what_one_may(running, tmp_path):
    address = running.tcp
    done = running.run("show", "servers", "-p", address)
    assert done.returncode == 2
    done = running.run("show", "servers", "-p", address, AFPOOL_CONSOLE_TOKEN="canary-of-a-wrong-token")
    assert done.returncode == 1
    assert "does not take that token" in done.stderr
    assert "canary" not in done.stderr
    assert running.run("show", "servers", "-p", address, AFPOOL_CONSOLE_TOKEN=READ).returncode == 0
    done = running.run("pause", "desk", "-p", address, AFPOOL_CONSOLE_TOKEN=READ)
    assert done.returncode == 1
    assert "not-allowed" in done.stderr
    token = tmp_path / "token"
    token.write_text(OPERATE)
    token.chmod(0o600)
    for command in ("pause", "resume"):
        done = running.run(command, "desk", "-p", address, "--token-file", str(token))
        assert (done.returncode, done.stderr) == (0, "")


def test_a_loop_that_hangs_is_told_with_where_it_hangs(mortal):
    with Running(
        mortal.folder,
        "show",
        "servers",
    ) as before:
        assert before.end() == 0
    mortal.process.send_signal(signal.SIGUSR1)
    done = mortal.run("console", "--stacks")
    while "stuck_in_a_loop" not in done.stdout:
        done = mortal.run("console", "--stacks")
    assert done.returncode == 0
    assert "MainThread (the loop)" in done.stdout
    with Running(
        mortal.folder,
        "show",
        "servers",
    ) as asking:
        asking.line(
            lambda line: "ms ago: it hangs, and `afpool console --stacks` shows where" in line, errors=True
        )
        mortal.process.stdin.write("\n")
        mortal.process.stdin.flush()
        # and once it goes on, the answer comes
        assert asking.end() == 0
        assert any(line and line.startswith("desk") for line in asking.said)


def test_a_process_that_is_killed_is_told_at_the_prompt(mortal):
    with mortal.terminal("console") as terminal:
        terminal.prompt()
        mortal.process.kill()
        mortal.process.wait(30)
        terminal.type("show servers" + ENTER)
        terminal.wait("the connection to desk-pool is lost")
        terminal.wait("no process with a console is running here")
        terminal.prompt()
        terminal.type("tail" + ENTER)
        terminal.prompt()
        terminal.type(END_OF_FILE)
        assert terminal.end()[0] == 0


def test_a_stream_whose_process_is_killed_ends_with_1(mortal):
    with Running(mortal.folder, "tail") as tail:
        while not any(row["streams"] for row in mortal.rows("show", "consoles")):
            pass
        mortal.process.kill()
        assert tail.end() == 1
        assert any(line and "the connection to the console is lost" in line for line in tail.errors)
