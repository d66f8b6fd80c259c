"""One-shot commands at a stand-in: which process is meant, what is written, exit codes, tokens."""

from __future__ import annotations

import contextlib
import io
import json
import ssl
import sys
import time
from typing import NamedTuple

import pytest
import trustme

from afpool.cli import main
from tests.cli.console_kit import HELLO, SERVERS, StandIn

CHECKS = {
    "kind": "checks",
    "found": [
        {"level": "warn", "what": "lag", "detail": "81 ms", "try": "show overview"},
        {"level": "bad", "what": "waiters", "detail": "3 for 12 s", "try": ["show waiting", "show leases"]},
    ],
}


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def objects(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("AFPOOL_CONSOLE_DIRECTORY", str(tmp_path / "c"))
    monkeypatch.delenv("AFPOOL_CONSOLE_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def afpool(place, capsys, monkeypatch):
    def run(*words, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(words)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return run


# ---------------------------------------------------------------------- which process


def test_where_nothing_runs_it_is_said_how_to_start_one(afpool):
    for words in (["console"], ["show", "servers"], ["console", "--list"], ["console", "--stacks"]):
        done = afpool(*words)
        assert (done.code, done.out) == (1, "")
        assert "no process with a console is running here" in done.err
        assert "afpool serve --demo" in done.err
    assert afpool("console", "--list", "--json") == Done(0, "", "")


def test_the_socket_of_a_process_that_is_gone_is_passed_over(afpool, place):
    with StandIn(place, "gone", 1111) as gone:
        gone.die()
        with StandIn(place, "here", 2222) as here:
            assert gone.path.exists()
            assert afpool("show", "servers").code == 0
            assert here.lines == ["show servers"]
        assert afpool("show", "servers").code == 1


def test_a_folder_that_others_may_write_in_is_passed_over(afpool, place):
    with StandIn(place) as console:
        console.path.parent.chmod(0o777)
        assert afpool("show", "servers").code == 1
        console.path.parent.chmod(0o700)
        assert afpool("show", "servers").code == 0


def test_several_are_listed_and_one_is_named(afpool, place, monkeypatch):
    monkeypatch.setattr("afpool.cli.console._open._GLANCE", 30.0)  # however busy the machine is
    serves = {
        "show servers columns=server limit=50": {**SERVERS, "columns": [{"name": "server", "kind": "text"}]}
    }
    with StandIn(place, "blue", 1111, answers=serves) as blue, StandIn(place, "green", 2222) as green:
        done = afpool("show", "servers")
        assert done.code == 2
        assert done.out.splitlines()[0].split() == ["pid", "name", "age", "serves"]
        assert sorted(line.split()[:2] for line in done.out.splitlines()[1:]) == [
            ["1111", "blue"],
            ["2222", "green"],
        ]
        assert "desk, crm" in done.out
        assert "say which is meant" in done.err
        for which in ("blue", "1111", "bl", str(blue.path), f"unix:{blue.path}"):
            assert afpool("show", "servers", "--process", which).code == 0
            assert afpool("console", which, "-c", "show servers").code == 0
        assert blue.lines.count("show servers") == 10
        assert "show servers" not in green.lines
        done = afpool("show", "servers", "-p", "red")
        assert done.code == 1
        assert "blue (1111), green (2222)" in done.err
        listed = afpool("console", "--list", "--json").objects
        assert [one["name"] for one in listed] == ["blue", "green"]
        assert listed[0]["serves"] == ["desk", "crm"]
        assert listed[1]["socket"] == str(green.path)
        told = afpool("show", "servers", "--json")
        assert {one["pid"] for one in told.objects[0]["error"]["processes"]} == {1111, 2222}


def test_a_process_that_says_nothing_is_listed_with_the_others(afpool, place, monkeypatch):
    monkeypatch.setattr("afpool.cli.console._open._GLANCE", 0.05)
    with StandIn(place, "mute", 1111, hello=None), StandIn(place, "green", 2222):
        done = afpool("console", "--list")
        assert done.code == 0
        assert "it does not answer" in next(line for line in done.out.splitlines() if "mute" in line)


@pytest.mark.parametrize("which", ["ftp://a.test", "a/b", "a.test:99999", "https://u:p@a.test"])
def test_an_address_that_is_none_is_wrong_usage(afpool, which):
    done = afpool("show", "servers", "-p", which)
    assert done.code == 2
    assert which not in done.err


# ---------------------------------------------------------------------- what is written


def test_a_pipe_gets_numbers_and_json_one_object_for_each_row(afpool, place):
    with StandIn(place):
        lines = afpool("show", "servers").out.splitlines()
        assert lines[0].split() == [column["name"] for column in SERVERS["columns"]]
        assert lines[2].split() == ["crm", "paused", "0", "8", "2", "0.4125", "-", "0"]
        first, second = afpool("show", "servers", "--json").objects
        assert first == dict(zip(first, SERVERS["rows"][0], strict=True))
        assert second["oldest_wait"] == 0.4125
        assert list(second) == [column["name"] for column in SERVERS["columns"]]


def test_words_of_the_shell_reach_the_console_as_they_were_meant(afpool, place):
    line = "show actors tenant=acme\\ corp waited>1s --reveal"
    with StandIn(place, answers={line: SERVERS}) as console:
        assert afpool("show", "actors", "tenant=acme corp", "waited>1s", "--reveal").code == 0
        assert console.lines == [line]


@pytest.mark.parametrize(
    ("code", "ends"),
    [("unknown-command", 2), ("unknown-table", 2), ("bad-option", 2), ("too-long", 2), ("unknown-id", 1),
     ("not-allowed", 1), ("busy", 1), ("failed", 1), ("of-tomorrow", 1)],
)  # fmt: skip
def test_each_refusal_has_its_exit_code(afpool, place, code, ends):
    error = {"code": code, "message": "it is so", "try": ["show tables"]}
    with StandIn(place, answers={"why c1": error}):
        done = afpool("why", "c1")
        assert (done.code, done.out) == (ends, "")
        assert done.err.splitlines() == [f"error: {code}: it is so", "try: afpool show tables"]
        done = afpool("why", "c1", "--json")
        assert done.code == ends
        assert done.objects == [{"error": error}]


def test_check_ends_with_1_where_something_is_bad(afpool, place):
    with StandIn(place, answers={"check": CHECKS}):
        done = afpool("check")
        assert done.code == 1
        assert [line.split()[0] for line in done.out.splitlines()] == ["bad", "try:", "try:", "warn", "try:"]
        assert [one["level"] for one in afpool("check", "--json").objects] == ["warn", "bad"]
    with StandIn(place, pid=2, answers={"check": {**CHECKS, "found": CHECKS["found"][:1]}}):
        assert afpool("check").code == 0


def test_several_lines_end_with_the_worst_of_their_codes(afpool, place):
    bad = {"code": "unknown-id", "message": "no", "try": []}
    with StandIn(place, answers={"why c1": bad}) as console:
        assert afpool("console", "-c", "show servers", "-c", "why c1", "-c", "show servers").code == 1
        assert console.lines == ["show servers", "why c1", "show servers"]
        done = afpool("console", stdin="# of a script\nshow servers --json\n\nnonsense\nexit\nwhy c1\n")
        assert done.code == 2
        assert [one["server"] for one in done.objects] == ["desk", "crm"]
        assert console.lines[3:] == ["show servers", "nonsense"]


def test_who_is_no_terminal_is_not_asked(afpool, place):
    done = {
        "kind": "done",
        "what": "killed client 3",
        "before": {"state": "open"},
        "after": {"state": "gone"},
    }
    with StandIn(place, answers={"kill 3": done}):
        assert afpool("kill", "3").out.splitlines() == ["killed client 3", "  state open → gone"]


def test_a_pause_of_a_command_is_held_or_ends_with_the_command(afpool, place):
    def paused(peer, asked):
        until = __import__("time").time() + 0.05
        peer.answer(asked, {"kind": "done", "what": "paused desk", "until": until})

    held = {"kind": "done", "what": "paused desk", "ends": "not before `resume desk`"}
    with StandIn(place, answers={"pause desk hold": held, "pause desk for=1s": paused}) as console:
        assert "it ends not before `resume desk`" in afpool("pause", "desk").out
        assert afpool("pause", "desk", "hold").code == 0
        done = afpool("pause", "desk", "for=1s")
        assert done.code == 0
        assert "the pause is over" in done.err
        assert console.lines == ["pause desk hold", "pause desk hold", "pause desk for=1s"]


def test_watch_goes_on_until_an_error_and_changes_nothing_again_and_again(afpool, place):
    count = iter(range(3))

    def once_more(peer, asked):
        last = next(count) == 2
        peer.answer(asked, {"code": "failed", "message": "enough", "try": []} if last else SERVERS)

    with StandIn(place, answers={"show servers": once_more}) as console:
        done = afpool("watch", "0.1", "servers", "--json")
        assert done.code == 1
        assert [one.get("server") for one in done.objects] == ["desk", "crm", "desk", "crm", None]
        assert console.lines == ["show servers"] * 3
        done = afpool("watch", "1", "kill", "3")
        assert done.code == 2
        assert afpool("watch", "0.01", "servers").code == 2


# ---------------------------------------------------------------------- a connection that is none


@pytest.mark.parametrize(
    ("version", "says"),
    [(2, "newer than this program: its console speaks version 2 of the protocol, this one version 1"),
     (0, "the process is older than this program"), ("1", "is no console of afpool"), (None, "is no console"),
     (1.5, "is no console")],
)  # fmt: skip
def test_another_version_is_told_in_a_sentence(afpool, place, version, says):
    with StandIn(place, hello={**HELLO, "protocol": version}):
        done = afpool("show", "servers")
        assert done.code == 1
        assert says in done.err
        assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [(401, b"a token is needed\n", "does not take that token (a token is needed)"),
     (403, b"not this user", "refuses who asks (not this user)"),
     (426, b"", "another version of its protocol"),
     (503, b"64 consoles are attached\x1b[2J", "is full (64 consoles are attached\\x1b[2J)"),
     (404, b"<html>", "no console of afpool: HTTP 404")],
)  # fmt: skip
def test_an_answer_that_is_no_upgrade_is_told_with_what_to_do(afpool, place, status, body, says):
    with StandIn(place, reject=(status, body)):
        done = afpool("show", "servers")
        assert done.code == 1
        assert says in done.err


def test_what_answers_without_a_websocket_is_no_console(afpool, place):
    stranger = StandIn(place)

    def greet(conn):
        with conn, contextlib.suppress(OSError):  # the first one only looks whether somebody listens
            conn.recv(100)
            conn.sendall(b"220 mail\r\n")

    stranger._serve = greet
    with stranger:
        done = afpool("show", "servers")
        assert done.code == 1
        assert "the connection to the console is lost" in done.err


def test_a_connection_that_ends_before_the_answer_is_told(afpool, place):
    def leave(peer, asked):
        peer.socket.shutdown(2)

    with StandIn(place, answers={"kill 3": leave, "why c1": leave}) as console:
        done = afpool("kill", "3")
        assert done.code == 1
        assert "whether it was done is not known" in done.err
        assert console.lines == ["kill 3"]
        # what changes nothing is asked once more
        assert afpool("why", "c1").code == 1
        assert console.lines == ["kill 3", "why c1", "why c1"]


class Patience:
    """The client's clock: an hour passes once its watchdog was asked, and no wait is timed by the machine."""

    def __init__(self):
        self.time, self.perf_counter = time.time, time.perf_counter
        self.passed = 0.0

    def monotonic(self):
        return time.monotonic() + self.passed

    def end(self):
        self.passed += 3600.0


@pytest.fixture
def patience(monkeypatch):
    monkeypatch.setattr("afpool.cli.console._link.QUIET", 0.05)
    clock = Patience()
    monkeypatch.setattr("afpool.cli.console._link.time", clock)
    return clock


def test_a_loop_that_hangs_is_told_and_not_waited_for_for_ever(afpool, place, patience):
    with StandIn(place, answers={"show servers": lambda peer, asked: None}) as console:
        console.ticked = 4.2121
        console.on_watched = patience.end
        done = afpool("show", "servers", "--timeout", "3600")
        assert done.code == 1
        first, *_, last = done.err.splitlines()
        assert first.endswith(
            "the loop last ticked 4,212 ms ago: it hangs, and `afpool console --stacks` shows where"
        )
        assert last == "error: the process did not answer within 3600 s"
        console.wait(lambda asked: "stop" in asked)
        done = afpool("console", "--stacks")
        assert done.code == 0
        assert done.out.splitlines()[-2:] == ["MainThread (the loop)", "  stuck\\x1b[2J  app.py:12"]
        assert afpool("console", "--stacks", "--json").objects[1]["frames"] == [
            ["app.py", 12, "stuck\x1b[2J"]
        ]


def test_a_process_that_does_not_greet_is_told_too(afpool, place, patience):
    with StandIn(place, hello=None) as console:
        console.ticked = 9.0
        console.on_watched = patience.end
        done = afpool("show", "servers", "--timeout", "3600")
        assert done.code == 1
        assert "the loop last ticked 9,000 ms ago: it hangs" in done.err


def test_an_answer_that_is_too_deep_is_no_answer(afpool, place):
    deep = "[" * 200_000
    with StandIn(place, answers={"show servers": lambda peer, asked: peer.say(deep)}):
        done = afpool("show", "servers")
        assert done.code == 1
        assert "what came is no WebSocket of a console" in done.err
        assert "Traceback" not in done.err


def test_ping_asks_both(afpool, place):
    with StandIn(place) as console:
        done = afpool("console", "-c", "ping")
        assert done.code == 0
        assert "the loop last ticked 12 ms ago" in done.out
        told = afpool("console", "-c", "ping", "--json").objects[0]
        assert told["watchdog"]["ticked_ago"] == 0.012
        assert told["took"] > 0
        console.pongs = False
        assert "the loop does not answer" in afpool("console", "-c", "ping").out


def test_large_answers_and_answers_in_pieces_arrive_whole(afpool, place):
    rows = [[f"server-{n}", "open", 1, 8, 0, 0.5, 1.0, 2.0] for n in range(20_000)]

    def in_pieces(peer, asked):
        from wsproto.events import TextMessage

        text = json.dumps({"id": asked["id"], "ok": {**SERVERS, "rows": rows}})
        middle = len(text) // 2
        peer.send(TextMessage(text[:middle], message_finished=False))
        peer.send(TextMessage(text[middle:]))

    with StandIn(place, answers={"show servers": in_pieces}):
        assert len(afpool("show", "servers", "--json").objects) == 20_000


# ---------------------------------------------------------------------- tokens


def sent(console):
    return [dict(request.extra_headers).get(b"authorization") for request in console.requests]


def test_a_token_comes_from_a_file_or_a_variable_and_from_no_word(afpool, place, monkeypatch):
    file = place / "token"
    file.write_text("afc_secret-of-a-file\n")
    file.chmod(0o600)
    with StandIn(place) as console:
        assert afpool("show", "servers", "--token-file", str(file)).err == ""
        monkeypatch.setenv("AFPOOL_CONSOLE_TOKEN", "afc_secret-of-a-variable")
        assert afpool("show", "servers").code == 0
        assert sent(console) == [b"Bearer afc_secret-of-a-file", b"Bearer afc_secret-of-a-variable"]
        file.chmod(0o644)
        done = afpool("show", "servers", "--token-file", str(file))
        assert done.code == 0
        assert "others on this machine can read" in done.err
        assert afpool("show", "servers", "--token", "afc_x").code == 2


@pytest.mark.parametrize("text", ["", "two words", "ä", "a\nb", "x" * 5000])
def test_what_is_no_token_is_not_sent_and_not_repeated(afpool, place, text):
    file = place / "token"
    file.write_text(text)
    file.chmod(0o600)
    with StandIn(place) as console:
        done = afpool("show", "servers", "--token-file", str(file))
        assert done.code == 2
        assert not console.requests
        assert not text or text not in done.err
    assert afpool("show", "servers", "--token-file", str(place / "none")).code == 2
    done = afpool("show", "servers", "-p", "127.0.0.1:1")
    assert done.code == 2
    assert "wants a token: name its file with --token-file" in done.err


def test_over_tls_the_name_is_verified_and_a_token_goes_in_clear_only_with_a_warning(
    afpool, place, monkeypatch, tmp_path
):
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("AFPOOL_CONSOLE_TOKEN", "afc_secret")
    rows = [{"id": n} for n in range(3000)]  # more than a record of TLS holds
    table = {**SERVERS, "columns": [{"name": "id", "kind": "id"}], "rows": [[row["id"]] for row in rows]}
    with StandIn(place, answers={"show actors": table}) as console:
        port = console.listen_on_tcp(server)
        done = afpool("show", "servers", "-p", f"https://localhost:{port}")
        assert done.code == 1
        assert "cannot be reached over TLS" in done.err
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        done = afpool("show", "actors", "-p", f"https://localhost:{port}", "--json")
        assert (done.code, done.err) == (0, "")
        assert done.objects == rows
        assert afpool("show", "servers", "-p", f"wss://127.0.0.1:{port}").code == 1, "it is not its name"
        assert sent(console) == [b"Bearer afc_secret"]
        assert console.requests[0].target == "/console"
        assert console.requests[0].host == f"localhost:{port}"
        assert "in clear" not in afpool("show", "servers", "-p", f"127.0.0.1:{console.listen_on_tcp()}").err
    assert "goes over the network in clear" in afpool("show", "servers", "-p", "console.invalid:80").err
