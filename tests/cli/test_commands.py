"""What the commands do: data on stdout, words on stderr, exit codes, against a real server process."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys

import pytest
import trio

from afpool.testing import FakeServer, sleep_tool
from tests.cli.cli_kit import AFPOOL, Running, document, on_terminal, run, run_all, surroundings, with_server

ECHO = {"tools": [{"name": "echo", "builtin": "echo", "description": "Says it again."}]}
WHO = ("--tenant", "acme", "--principal", "alice")


# ------------------------------------------------------------------ call


def test_a_call_gives_its_answer_as_data(tmp_path):
    with_server(tmp_path, script=ECHO)
    done = run(tmp_path, "call", "desk", "echo", '{"n": 1}', *WHO)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"n": 1}\n', "")
    told = document(run(tmp_path, "call", "desk", "echo", '{"n": 1}', *WHO, "--json"))
    assert (told["ok"], told["code"], told["delivery"]) == (True, "ok", "answered")
    assert told["result"]["content"] == [{"type": "text", "text": '{"n": 1}'}]


def test_arguments_come_from_a_file_or_stdin_too(tmp_path):
    with_server(tmp_path, script=ECHO)
    (tmp_path / "args.json").write_text('{"from": "file"}')
    assert run(tmp_path, "call", "desk", "echo", "@args.json", *WHO).stdout == '{"from": "file"}\n'
    done = run(tmp_path, "call", "desk", "echo", "-", *WHO, stdin='{"from": "stdin"}')
    assert done.stdout == '{"from": "stdin"}\n'


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        ('{"secret": 1', "", "ARGUMENTS: not JSON at character 12"),
        ('{"a": 1, "a": 2}', "", "ARGUMENTS: "),
        ("[1]", "", "the arguments of a tool are a JSON object"),
        ("@nowhere", "", "the file of arguments cannot be read: No such file"),
        ("-", "no json", "stdin: not JSON"),
    ],
)
def test_arguments_that_cannot_be_read_are_wrong_usage(tmp_path, arguments, stdin, says):
    with_server(tmp_path)
    done = run(tmp_path, "call", "desk", "echo", arguments, *WHO, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_a_tool_that_fails_ends_with_1_and_its_words_are_data(tmp_path):
    with_server(tmp_path, script={"tools": [{"name": "fail", "builtin": "fail"}]})
    done = run(tmp_path, "call", "desk", "fail", *WHO)
    assert done.returncode == 1
    assert done.stdout.strip()
    assert done.stderr == "error: the tool says that it failed\n"
    told = document(run(tmp_path, "call", "desk", "fail", *WHO, "--json"))
    assert (told["ok"], told["code"]) == (False, "tool-error")


def test_what_is_not_there_is_told_with_what_was_probably_meant(tmp_path):
    with_server(tmp_path, script=ECHO)
    unknown = run(tmp_path, "call", "desk", "ecko", *WHO)
    assert unknown.returncode == 1
    assert "did you mean 'echo'?" in unknown.stderr
    assert "nothing was sent" in unknown.stderr
    server = run(tmp_path, "call", "dezk", "echo", *WHO)
    assert server.returncode == 2
    assert "did you mean 'desk'?" in server.stderr


def test_a_long_result_becomes_an_artifact_unless_the_whole_is_wanted(tmp_path):
    path = with_server(tmp_path, script=ECHO)
    path.write_text(path.read_text() + "[runtime.results]\nmax_inline_chars = 50\n")
    long = json.dumps({"text": "x" * 200})
    done = run(tmp_path, "call", "desk", "echo", long, *WHO)
    assert re.search(r"the result is the artifact art_\w+; it is gone with this command", done.stderr)
    assert "x" * 200 not in done.stdout
    assert run(tmp_path, "call", "desk", "echo", long, *WHO, "--whole").stdout == long + "\n"


def test_a_call_has_a_deadline(tmp_path):
    with_server(tmp_path, script={"tools": [{"name": "nap", "builtin": "sleep"}]})
    done = run(tmp_path, "call", "desk", "nap", '{"seconds": 50}', *WHO, "--timeout", "1500ms")
    assert done.returncode == 1
    assert "deadline-exceeded" in done.stderr
    assert run(tmp_path, "call", "desk", "nap", "--timeout", "soon", *WHO).returncode == 2


async def test_interrupted_it_withdraws_its_call_and_ends_with_130(tmp_path):
    async with FakeServer.http(era="handshake", tools=[sleep_tool("nap")]) as server:
        (tmp_path / "afpool.toml").write_text(f'[servers.desk]\nurl = "{server.url}"\n')
        with Running(tmp_path, "call", "desk", "nap", '{"seconds": 50}', *WHO, "--debug") as running:
            with trio.fail_after(30):
                await server.wait_for("tools/call", 1)
                assert await trio.to_thread.run_sync(running.end, signal.SIGINT) == 130
                await server.wait_for("notifications/cancelled", 1)
        assert not [line for line in running.errors if line and "Traceback" in line]


def test_what_a_server_says_does_not_steer_the_terminal(tmp_path):
    with_server(tmp_path, script=ECHO)
    sent = json.dumps({"text": "\x1b]0;owned\x07"}, ensure_ascii=True)
    rule = {"tools": [{"name": "echo", "builtin": "echo", "description": "\x1b[2J\u202eevil"}]}
    path = tmp_path / "afpool.toml"
    path.unlink()
    with_server(tmp_path, script=rule)
    seen, code = on_terminal(tmp_path, "tools", *WHO, columns=120)
    assert code == 0
    assert "\\x1b[2J" in seen
    assert "\x1b[2J" not in seen
    assert "\u202e" not in seen
    assert run(tmp_path, "call", "desk", "echo", sent, *WHO).returncode == 0


# ------------------------------------------------------------------ tools, doctor


def test_tools_of_an_identity_and_what_could_not_be_listed(tmp_path):
    with_server(tmp_path, script=ECHO)
    with_server(tmp_path, "away")
    path = tmp_path / "afpool.toml"
    text = path.read_text().replace("[servers.away]\ncommand = ", '[servers.away]\ncommand = "/no/such"\n#')
    path.write_text(text)
    done = run(tmp_path, "tools", *WHO)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["echo", "desk", "-", "Says", "it", "again."]
    assert done.stderr.startswith("error: away: open-failed: ")
    told = document(run(tmp_path, "tools", *WHO, "--json"))
    assert [(one["name"], one["server"], one["listed"]) for one in told["tools"]] == [
        ("echo", "desk", "echo")
    ]
    assert told["problems"]["away"]["code"] == "open-failed"
    one = run(tmp_path, "tools", "desk", *WHO)
    assert (one.returncode, one.stderr) == (0, "")


def test_doctor_looks_at_every_server_by_itself(tmp_path):
    with_server(
        tmp_path, script=ECHO, more='keyed_on = []\n[servers.off]\nurl = "http://x.test"\ndisabled = true'
    )
    with_server(tmp_path, "mine", script=ECHO)
    path = tmp_path / "afpool.toml"
    path.write_text(path.read_text() + '[servers.away]\ncommand = "/no/such"\nkeyed_on = []\n')
    done = run(tmp_path, "doctor")
    rows = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:]}
    assert rows == {"desk": "ok", "mine": "broken", "away": "broken", "off": "disabled"}
    assert done.returncode == 1
    assert "mine: identity-missing" in done.stderr
    assert "--tenant --principal --conversation" in done.stderr
    told = document(run(tmp_path, "doctor", "desk", "mine", *WHO, "--json"))
    assert told["ok"] is True
    for one in told["servers"]:
        assert (one["era"], one["name"], one["tools"], one["transport"]) == (
            "handshake",
            "afpool-fake",
            1,
            "stdio",
        )
        assert one["protocolVersion"]
        assert one["openMs"] > 0
        assert one["listMs"] > 0
    assert run(tmp_path, "doctor", "desk", "mine", *WHO).returncode == 0


def test_doctor_finds_rules_that_fit_no_tool(tmp_path):
    with_server(tmp_path, script=ECHO, more='[servers.desk.fill]\ncustomer = { identity = "tenant" }')
    done = run(tmp_path, "doctor", *WHO)
    assert done.returncode == 1
    assert "error: desk: configuration: " in done.stderr
    assert "customer" in done.stderr


# ------------------------------------------------------------------ token, config, version


def test_a_token_is_printed_once_listed_without_itself_and_revoked(tmp_path):
    (tmp_path / "afpool.toml").write_text('[serve.identity.tokens]\nfile = "tokens.json"\n')
    made = run(tmp_path, "token", "new", "alice's laptop", *WHO, "--expires", "30d")
    token = made.stdout.strip()
    assert re.fullmatch(r"afp_\w{10}_\w{49}", token)
    assert token not in made.stderr
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600
    assert token not in (tmp_path / "tokens.json").read_text()
    (listed,) = document(run(tmp_path, "token", "list", "--json"))
    assert (listed["state"], listed["tenant"], listed["name"]) == ("good", "acme", "alice's laptop")
    assert token not in run(tmp_path, "token", "list").stdout
    assert run(tmp_path, "token", "revoke", "alice's laptop").returncode == 0
    assert document(run(tmp_path, "token", "list", "--json"))[0]["state"] == "revoked"
    again = run(tmp_path, "token", "revoke", "nobody's")
    assert again.returncode == 1
    assert "list them" in again.stderr
    wrong = run(tmp_path, "token", "revoke", token)
    assert wrong.returncode == 2
    assert token not in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [("token", "new", "x"), ("token", "new", "x", *WHO, "--expires", "yesterday"), ("token", "list")],
)
def test_a_token_needs_somebody_a_date_and_a_file(tmp_path, words):
    assert run(tmp_path, *words).returncode == 2


def test_a_configuration_that_cannot_be_used_is_told_line_by_line(tmp_path):
    (tmp_path / "afpool.toml").write_text(
        '[servers.x]\nurl = "http://a.test"\nkeyed_onn = []\n[serve]\nbnd = "x"\n'
    )
    done = run(tmp_path, "config", "check")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: afpool.toml:3: servers.x.keyed_onn: there is no such setting; did you mean 'keyed_on'?",
        "error: afpool.toml:5: serve.bnd: there is no such setting; did you mean 'bind'?",
    ]
    told = document(run(tmp_path, "config", "check", "--json"))
    assert [(one["line"], one["nearest"]) for one in told["problems"]] == [(3, "keyed_on"), (5, "bind")]
    other = run(tmp_path, "tools", "--json")
    assert other.returncode == 2
    assert document(other)["error"]["code"] == "config-invalid"


def test_values_are_shown_with_where_they_come_from(tmp_path):
    (tmp_path / "afpool.toml").write_text('[serve]\nbind = "127.0.0.1:1"\ndrain = "7s"\n')
    shown = document(
        run(tmp_path, "config", "show", "serve", "--json", "--set", "serve.path=/x", AFPOOL_SERVE_DRAIN="5s")
    )
    found = {one["key"]: (one["value"], one["origin"]["kind"]) for one in shown}
    assert found["serve.bind"] == ("127.0.0.1:1", "file")
    assert found["serve.drain"] == (5.0, "environment")
    assert found["serve.path"] == ("/x", "flag")
    assert found["serve.websocket_path"] == ("/ws", "default")
    changed = document(run(tmp_path, "config", "show", "--changed", "--json"))
    # the last one is of the surroundings that tests have
    assert {one["key"] for one in changed} == {"serve.bind", "serve.drain", "console.directory"}
    slip = run(tmp_path, "config", "show", "serve.bnd")
    assert slip.returncode == 2
    assert "did you mean 'serve.bind'?" in slip.stderr
    assert document(run(tmp_path, "config", "schema"))["title"] == "afpool.toml"


def test_the_version_is_asked_for_in_two_ways(tmp_path):
    first = run(tmp_path, "version")
    assert first.stdout == run(tmp_path, "--version").stdout
    assert document(run(tmp_path, "version", "--json"))["afpool"] == first.stdout.strip()


# ------------------------------------------------------------------ who reads


def test_a_reader_that_has_gone_is_no_word_worth(tmp_path):
    with subprocess.Popen(
        [*AFPOOL, "config", "schema"],
        cwd=tmp_path, env=surroundings(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "env", "colored"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"TERM": "dumb"}, False),
        (("--color", "never"), {}, False),
        (("--color=always",), {"NO_COLOR": "1"}, True),
    ],
)
def test_colour_is_for_terminals_and_may_be_refused(tmp_path, words, env, colored):
    seen, _ = on_terminal(tmp_path, "config", "show", "serve.bind", *words, **env)
    assert ("\x1b[" in seen) == colored
    piped = run(tmp_path, "config", "show", "serve.bind", *words, **env)
    assert ("\x1b[" in piped.stdout) == ("--color=always" in words)


def test_a_table_fits_its_terminal_and_is_whole_in_a_pipe(tmp_path):
    rule = {"tools": [{"name": "echo", "builtin": "echo", "description": "word " * 40}]}
    with_server(tmp_path, script=rule)
    seen, _ = on_terminal(tmp_path, "tools", *WHO, "--color=never", columns=60)
    lines = [line.rpartition("\x1b[K")[2] for line in seen.replace("\r\n", "\n").splitlines()]
    assert any(line.startswith("echo") and line.endswith("…") for line in lines)
    assert all(len(line) <= 60 for line in lines if line.startswith("echo"))
    assert "word " * 30 in run(tmp_path, "tools", *WHO).stdout


def test_progress_is_shown_to_who_watches_and_to_nobody_else(tmp_path):
    rule = {"tools": [{"name": "work", "builtin": "progress"}]}
    with_server(tmp_path, script=rule)
    sent = json.dumps({"steps": 3, "seconds": 0.3})
    seen, code = on_terminal(tmp_path, "call", "desk", "work", sent, *WHO)
    assert code == 0
    assert "\r\x1b[K" in seen
    assert "opening desk" in seen or "calling work" in seen
    piped = run(tmp_path, "call", "desk", "work", sent, *WHO)
    assert piped.stderr == ""


# ------------------------------------------------------------------ nothing secret


CANARY = "canary-9c1e-very-secret"


def test_no_command_shows_a_secret(tmp_path):
    (tmp_path / "afpool.toml").write_text(
        f"""
[servers.desk]
command = {json.dumps(sys.executable)}
args = ["-m", "afpool.testing", "stdio"]
env = {{ KEY = "{CANARY}", PYTHONPATH = "{os.environ.get("PYTHONPATH", "")}" }}
[servers.web]
url = "http://127.0.0.1:1/mcp?key={CANARY}"
headers = {{ Authorization = "Bearer ${{TOKEN}}", X-Key = "{CANARY}" }}
[servers.vended]
url = "http://127.0.0.1:1/mcp"
credential = "crm"
[credentials.crm]
type = "static"
token = "{CANARY}"
[runtime]
secret = "{CANARY}"
"""
    )
    (tmp_path / "bad.toml").write_text(f'[serve]\nbind = "{CANARY}"\nx = "{CANARY}"\n[{CANARY}\n')
    ways = [
        ("doctor", *WHO, "--timeout", "3s"), ("tools", *WHO), ("tools", *WHO, "--json"), ("config", "show"),
        ("config", "show", "--json"), ("config", "check"),
        ("call", "web", "x", *WHO), ("call", "vended", "x", *WHO),
        ("call", "desk", "echo", f'{{"{CANARY}": ', *WHO), ("call", "desk", CANARY, *WHO),
        ("call", CANARY, "x"), ("config", "check", "-c", "bad.toml"), ("serve", "--bind", CANARY),
        ("serve", "--set", f"serve.path={CANARY}"), ("serve", "--set", f"serve.x={CANARY}"),
        ("token", "revoke", CANARY, "--file", "tokens"), ("token", "new", "x", *WHO, "--expires", CANARY),
        ("config", "show", CANARY), ("completion", CANARY), (CANARY,), ("serve", "--demo", "--bind", CANARY),
        ("demo", "--bind", CANARY), ("tools", f"--{CANARY}"), ("serve",),
    ]  # fmt: skip
    # with --debug a command says all that it says without, and more
    loud = [((*words, "--debug"), {"TOKEN": CANARY}) for words in ways]
    plain = [(words, {"TOKEN": CANARY}) for words in ways[::4]]
    for done in (answers := run_all(tmp_path, *loud, *plain)):
        assert CANARY not in done.stdout + done.stderr, done
        assert done.stdout + done.stderr, done
    for done in answers[len(loud) :]:
        assert "Traceback" not in done.stderr, done
    # a fork does what a process of its own does
    alone = run(tmp_path, *ways[4], TOKEN=CANARY)
    forked = answers[len(loud) + 1]
    assert (alone.returncode, alone.stdout, alone.stderr) == (forked.returncode, forked.stdout, forked.stderr)
