"""The prompt in a real terminal: completion, history, ^C and ^D, resizing, a console that dies."""

from __future__ import annotations

import signal
import threading

import pytest

from tests.cli.console_kit import SERVERS, StandIn
from tests.cli.terminal_kit import END_OF_FILE, ENTER, INTERRUPT, KILL_LINE, TAB, UP, Terminal


def completions(*words):
    def answer(peer, asked):
        line = asked["with"]["line"]
        word = line.rpartition(" ")[2]
        peer.answer(
            asked,
            {"kind": "completions", "line": line, "words": [w for w in words if w.startswith(word)]},
        )

    return answer


def stream(peer, asked):
    """Answers with a stream of one event, and goes on with it."""
    peer.answer(asked, {"kind": "stream", "stream": asked["id"]})
    event = {
        "at": 1_700_000_000.5, "kind": "call", "outcome": "refused", "code": "stale-tools", "server": "desk",
        "tool": "search", "took": 0.412, "key": "k:3f9a", "call_id": "c17",
    }  # fmt: skip
    peer.say({"stream": asked["id"], "events": [event], "dropped": 2})


@pytest.fixture
def place(tmp_path):
    return tmp_path


def prompt(tmp_path, place, *words, **more):
    return Terminal(tmp_path, "console", *words, **more)


def test_a_line_is_answered_and_the_end_of_file_leaves(tmp_path, place):
    with StandIn(place) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        lines = terminal.do("show servers")
        desk = next(line for line in lines if line.startswith("desk "))
        # times in words, the two numbers as a bar
        assert "███░░░░░ 3/8" in desk
        assert "12.5/s" in desk
        assert "412 ms" in next(line for line in lines if line.startswith("crm "))
        assert console.lines == ["show servers"]
        terminal.type(END_OF_FILE)
        assert terminal.end()[0] == 0


def test_tab_completes_what_the_console_says_and_words_of_this_side(tmp_path, place):
    answers = {"complete": completions("show", "servers", "server=desk", "state=open", "state=paused")}
    with StandIn(place, answers=answers) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        terminal.type("sh" + TAB)
        terminal.wait(lambda lines: lines[-1].endswith("> show"))
        terminal.type("servers ser" + TAB)
        # a whole word, though a sign stands in it
        terminal.wait(lambda lines: lines[-1].endswith("show servers server"))
        terminal.type("=" + TAB)
        terminal.wait(lambda lines: lines[-1].endswith("show servers server=desk"))
        terminal.type("state=" + TAB)
        terminal.wait(lambda lines: any("state=open" in line and "state=paused" in line for line in lines))
        terminal.type(KILL_LINE + "pi" + TAB)
        terminal.wait("> ping")
        asked = [each["with"]["line"] for each in console.asked if each.get("do") == ["complete"]]
        assert asked[0] == "sh"
        assert "show servers server=" in asked


def test_tab_offers_nothing_where_the_console_does_not_answer(tmp_path, place):
    with (
        StandIn(place, answers={"complete": lambda peer, asked: None}) as console,
        prompt(tmp_path, place) as terminal,
    ):
        terminal.prompt()
        terminal.type("show ac" + TAB)
        console.wait(lambda asked: asked.get("do") == ["complete"])
        # the prompt goes on, and the late answer is nobody's
        terminal.interrupt_line()
        terminal.type("show servers" + ENTER)
        terminal.wait("crm ")


def test_history_lasts_over_two_runs_and_keeps_no_secret(tmp_path, place):
    file = tmp_path / "state" / "afpool" / "console-history"
    with StandIn(place):
        with prompt(tmp_path, place) as terminal:
            terminal.prompt()
            terminal.do("show servers")
            terminal.do("show servers token=canary-7f")
            terminal.type(END_OF_FILE)
            terminal.end()
        assert file.read_text() == "show servers\n"
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        with prompt(tmp_path, place) as terminal:
            terminal.prompt()
            terminal.type(UP)
            terminal.wait("> show servers")
            terminal.type(ENTER)
            terminal.wait("crm ")
            assert "canary" not in "\n".join(terminal.lines)


def test_an_interrupt_ends_the_stream_and_not_the_prompt(tmp_path, place):
    with StandIn(place, answers={"tail": stream}) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        terminal.type("tail" + ENTER)
        line = next(line for line in terminal.wait("k:3f9a") if "k:3f9a" in line)
        assert line.split()[1:] == ["refused", "desk/search", "stale-tools", "412", "ms", "k:3f9a", "c17"]
        terminal.wait("2 events were left out")
        terminal.type(INTERRUPT)
        console.wait(lambda asked: "stop" in asked)
        terminal.prompt()
        terminal.type("show servers" + ENTER)
        terminal.wait("crm ")
        (stop,) = [asked["stop"] for asked in console.asked if "stop" in asked]
        assert stop == next(asked["id"] for asked in console.asked if asked.get("do") == "tail")


def test_an_interrupt_withdraws_what_was_asked(tmp_path, place):
    with (
        StandIn(place, answers={"why c17": lambda peer, asked: None}) as console,
        prompt(tmp_path, place) as terminal,
    ):
        terminal.prompt()
        terminal.type("why c17" + ENTER)
        console.wait(lambda asked: asked.get("do") == "why c17")
        terminal.type(INTERRUPT)
        console.wait(lambda asked: asked.get("stop") == 1)
        terminal.prompt()


def test_an_interrupt_at_the_prompt_drops_the_line(tmp_path, place):
    with StandIn(place) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        terminal.type("pause desk")
        terminal.wait("> pause desk")
        terminal.interrupt_line()
        terminal.type("exit" + ENTER)
        assert terminal.end()[0] == 0
        assert console.lines == []


def test_a_console_that_dies_is_said_and_its_follower_is_found(tmp_path, place):
    with PromptAt(tmp_path, place, StandIn(place, pid=1111)) as (terminal, console):
        console.die()
        with StandIn(place, pid=2222) as follower:
            terminal.type("show servers" + ENTER)
            terminal.wait("crm ")
            text = "\n".join(terminal.lines)
            assert "the connection to desk-pool is lost" in text
            assert "connected again: desk-pool (2222)" in text
            assert follower.lines == ["show servers"]
            follower.die()
            terminal.prompt()
            terminal.type("show servers" + ENTER)
            terminal.wait("no process with a console is running here")
            terminal.prompt()


def test_what_changes_something_is_not_done_to_the_process_that_took_the_place(tmp_path, place):
    asked = "pause desk on desk-pool? [y/N]"
    with PromptAt(tmp_path, place, StandIn(place, pid=1111)) as (terminal, console):
        console.die()
        done = {"kind": "done", "what": "paused desk", "before": {}, "after": {}, "until": None}
        with StandIn(place, pid=2222, answers={"pause desk": done}) as follower:
            terminal.type("pause desk" + ENTER)
            terminal.wait(asked)
            terminal.type("yes" + ENTER)
            terminal.wait("this is another process (desk-pool (2222)): nothing was done; say it again")
            assert follower.lines == []
            terminal.prompt()
            terminal.type("pause desk" + ENTER)
            terminal.wait(lambda lines: sum(asked in line for line in lines) == 2)
            terminal.type("yes" + ENTER)
            terminal.wait("paused desk")
            assert follower.lines == ["pause desk"]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"pid": 7, "now": 1000.5, "unix": 5000.4}, True),
        ({"pid": 8, "now": 1000.0, "unix": 5000.0}, False),
        ({"pid": 7, "now": 90000.0, "unix": 5000.0}, False),  # another container's first process
        ({"now": "x"}, False),
    ],
)
def test_one_process_is_told_from_another(other, same):
    from afpool.cli.console._session import _same

    assert _same({"pid": 7, "now": 1000.0, "unix": 5000.0}, other) is same


def test_a_console_that_dies_in_the_middle_of_a_change_is_not_asked_again(tmp_path, place):
    def die(peer, asked):
        threading.Thread(target=console.die).start()

    console = StandIn(place, pid=1111, answers={"pause desk": die})
    with PromptAt(tmp_path, place, console) as (terminal, _), StandIn(place, pid=2222) as follower:
        terminal.type("pause desk" + ENTER)
        terminal.wait("[y/N]")
        terminal.type("y" + ENTER)
        terminal.wait("whether it was done")
        terminal.prompt()
        assert follower.lines == []


class PromptAt:
    """A prompt at a stand-in that may die before the block ends."""

    def __init__(self, tmp_path, place, console):
        self.console = console
        self.make = lambda: prompt(tmp_path, place)

    def __enter__(self):
        self.console.__enter__()
        self.terminal = self.make()
        self.terminal.prompt()
        return self.terminal, self.console

    def __exit__(self, *failure):
        self.terminal.__exit__(*failure)
        self.console.__exit__(*failure)


def test_what_changes_something_is_confirmed(tmp_path, place):
    done = {"kind": "done", "what": "desk is paused", "before": "open", "after": "paused"}
    with StandIn(place, answers={"pause desk": done}) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        terminal.type("pause desk" + ENTER)
        terminal.wait("pause desk on desk-pool? [y/N]")
        terminal.type(ENTER)
        terminal.wait("nothing was done")
        assert console.lines == []
        terminal.prompt()
        terminal.type("pause desk" + ENTER)
        terminal.wait(lambda lines: "[y/N]" in lines[-1])
        terminal.type("yes" + ENTER)
        terminal.wait("desk is paused")
        terminal.wait("state open → paused")
        assert console.lines == ["pause desk"]


def test_watch_draws_in_place_follows_the_width_and_gives_the_terminal_back(tmp_path, place):
    wide = {
        **SERVERS,
        "columns": SERVERS["columns"],
        "rows": [[f"server-{n}", "open", 1, 8, 0, 2.0, 1.0, 3.0] for n in range(40)],
    }
    with StandIn(place, answers={"show servers": wide}) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        terminal.type("watch 60 show servers" + ENTER)
        lines = terminal.wait("more lines")
        assert lines[0].startswith("show servers   every 60 s")
        assert "rate" in lines[1]
        assert len(lines) == 30
        terminal.resize(46, 20)
        lines = terminal.wait(
            lambda lines: len(lines) == 20 and "rate" not in lines[1] and "more lines" in lines[-1]
        )
        assert all(len(line) <= 46 for line in lines)
        terminal.resize(100, 20)
        terminal.wait(lambda lines: len(lines) > 1 and "rate" in lines[1])
        assert console.lines == ["show servers"], "another size is drawn at once, and nothing is asked for it"
        terminal.type(INTERRUPT)
        terminal.prompt()
        assert terminal.seen.count(b"\x1b[?1049h") == terminal.seen.count(b"\x1b[?1049l") == 1
        assert terminal.seen.rindex(b"\x1b[?25h") > terminal.seen.rindex(b"\x1b[?25l")


def test_a_loop_that_hangs_is_told_by_the_watchdog(tmp_path, place):
    with StandIn(place, answers={"show servers": lambda peer, asked: None}) as console:
        console.ticked = 4.2121
        with prompt(tmp_path, place) as terminal:
            terminal.prompt()
            terminal.type("show servers" + ENTER)
            terminal.wait("the loop last ticked 4,212 ms ago: it hangs")
            terminal.type(INTERRUPT)
            terminal.prompt()
            terminal.type("stacks" + ENTER)
            lines = terminal.wait("(the loop)")
            assert any("app.py:12" in line for line in lines)


def test_pings_are_answered_while_nobody_types(tmp_path, place):
    from wsproto.events import Ping

    with StandIn(place) as console, prompt(tmp_path, place) as terminal:
        terminal.prompt()
        console.peers[0].send(Ping(b"are you there"))
        console.wait(lambda asked: asked.get("pong") == "are you there")


def test_nothing_that_a_console_says_steers_the_terminal(tmp_path, place):
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\n"
    table = {
        **SERVERS,
        "columns": [{"name": evil, "kind": evil}, *SERVERS["columns"][1:]],
        "rows": [[evil, evil, 1, 8, 0, 1.0, 1.0, 1.0]],
    }
    answers = {
        "show servers": table,
        "show actor x": {"kind": evil, evil: evil, "inner": {evil: [evil]}, "list": [{evil: evil}]},
        "why x": {
            "kind": "explanation",
            "headline": evil,
            "clauses": [{"at": 0.1, "text": evil}],
            "use": {"took": 1.0, "outcome": evil, "stages": [[evil, 0.5]]},
        },
        "check": {"kind": "checks", "found": [{"level": evil, "what": evil, "detail": evil, "try": evil}]},
        "show": {"code": evil, "message": evil, "try": [evil]},
        "tail": lambda peer, asked: (
            peer.answer(asked, {"kind": "stream", "stream": asked["id"]}),
            peer.say(
                {"stream": asked["id"], "events": [{"kind": evil, "at": 1.0, "server": evil, evil: evil}]}
            ),
            peer.say({"stream": asked["id"], "end": evil}),
        ),
        "show text": {"kind": "text", "lines": [evil, f"  {evil}"]},
    }
    with StandIn(place, answers=answers):
        with prompt(tmp_path, place, NO_COLOR="1") as terminal:
            terminal.prompt()
            for line in answers:
                for more in ("", " --json"):
                    terminal.do(line + more)
            terminal.type(END_OF_FILE)
            terminal.end()
            seen = terminal.seen
        assert b"owned" in seen
        for sign in (b"\x1b]0", b"\x1b[2J", b"\x1b[31", b"\x07\x1b[2J", "\x9b".encode(), "\u202e".encode()):
            assert sign not in seen


def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(tmp_path, place):
    with (
        StandIn(place) as console,
        Terminal(tmp_path, "watch", "0.2", "show", "servers") as terminal,
    ):
        terminal.wait("every 0.2 s")
        console.wait(lambda asked: asked.get("do") == "show servers")
        terminal.process.send_signal(signal.SIGINT)
        code, lines = terminal.end()
        assert code == 130
        assert b"\x1b[?1049l" in terminal.seen
        assert any(line.startswith("desk ") for line in lines)
