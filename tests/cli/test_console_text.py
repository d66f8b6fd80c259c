"""Words, cells, tables and explanations of the console's client, without a console."""

from __future__ import annotations

import io
import json
import re
import shlex
import stat
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from afpool.cli._output import Output
from afpool.cli._parsing import parse
from afpool.cli._text import width_of
from afpool.cli.console._cells import bar, duration, for_people, plain, size
from afpool.cli.console._events import event_line
from afpool.cli.console._explained import explained, waterfall
from afpool.cli.console._history import KEPT, History, may_be_kept
from afpool.cli.console._look import Look
from afpool.cli.console._show import lines_of, objects_of
from afpool.cli.console._tables import lay_out
from afpool.cli.console._words import (
    as_command,
    level_of,
    line_of,
    sorted_by,
    watched,
    with_instants,
    without_json,
)
from afpool.console._parse import parse_line

STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
KINDS = ("text", "key", "id", "count", "seconds", "unix", "bytes", "flag", "rate", "percent", "of-tomorrow")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


class Seen(io.StringIO):
    """What a person looks at."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def look(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return Look(Output(stdout=Seen(), stderr=io.StringIO(), env={"NO_COLOR": "1", "TERM": "xterm"}))


@pytest.fixture
def piped():
    return Look(Output(stdout=io.StringIO(), stderr=io.StringIO(), env={}))


# ---------------------------------------------------------------------- words


@hypothesis.given(
    st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=12), min_size=1, max_size=6)
)
def test_words_of_a_shell_are_words_of_the_console(given):
    """Each word arrives as it was: as itself, or as the option that it says."""
    words, options = parse_line(line_of(given)) if len(set(given)) == len(given) else ([], None)
    if options is None or any(word.startswith("--") for word in given):
        return
    said = [*words, *options.values()]
    assert len(said) == len(given)
    for word in given:
        assert word in words or any(word.endswith(value.lstrip("!<>=") or word) for value in options.values())


def test_options_with_blanks_and_signs_are_told_apart():
    line = line_of(["show", "actors", "tenant=acme corp", "waited>1s", "it's", 'a"b', "back\\slash", ""])
    assert parse_line(line) == (
        ["show", "actors", "it's", 'a"b', "back\\slash", ""],
        {"tenant": "acme corp", "waited": ">1s"},
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("watch", (None, "")),
        ("watch 2 show actors", (2.0, "show actors")),
        ("watch 0.5s show x", (0.5, "show x")),
        ("watch overview", (None, "overview")),
        ("watch 5", (5.0, "")),
        ("show watch", None),
        ("watching", None),
    ],
)
def test_watch_is_read(line, found):
    assert watched(line) == found


@pytest.mark.parametrize(
    ("line", "which", "command"),
    [("show servers", None, "afpool show servers"),
     ("resume desk", "blue", "afpool resume desk --process blue"),
     ("show waiting waited>1s", None, "afpool console -c 'show waiting waited>1s'"),
     ("cancel c1", "a b", "afpool console 'a b' -c 'cancel c1'"),
     ("help show", None, "afpool console -c 'help show'"),
     ("show actors tenant='a b'", None, """afpool console -c 'show actors tenant='"'"'a b'"'"''"""),
     ("$(reboot)", None, "afpool console -c '$(reboot)'")],
)  # fmt: skip
def test_a_hint_of_the_console_works_in_a_shell(line, which, command):
    assert as_command(line, which) == command
    parsed = parse(shlex.split(command)[1:])
    assert parsed.command.home == "console._open"
    told = getattr(parsed.options, "command", None) or [
        shlex.join([parsed.command.name, *parsed.options.words])
    ]
    assert told == [line]


CLOCKED = {"tables": [{"name": "recent", "columns": [{"name": "at", "kind": "unix"}, {"name": "tool"}]}, 3]}
NOON = time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("show recent at=11:58", f"show recent at={NOON - 120:.0f}..{NOON - 60:.0f}"),
        ("show recent at=11:58:07 tool=a", f"show recent at={NOON - 113:.0f}..{NOON - 112:.0f} tool=a"),
        ("show recent at!=9:30", f"show recent at!={NOON - 9000:.0f}..{NOON - 8940:.0f}"),
        ("show recent at>11:58 limit=3", f"show recent at>{NOON - 120:.0f} limit=3"),
        ("show recent at<11:58", f"show recent at<{NOON - 120:.0f}"),
        ("show recent at<=11:58", f"show recent at<={NOON - 60:.0f}"),
        # what is still to come was yesterday
        ("show recent at>13:00", f"show recent at>{NOON - 23 * 3600:.0f}"),
        ("show recent at>=2026-11-29T12:00", f"show recent at>={NOON - 24 * 3600:.0f}"),
        # no instant, no time, no column of instants, no word of its own
        *[(line, line) for line in ("show recent at=25:00", "show recent at=1:99", "show recent tool=11:58",
                                    "show recent 'at=11:58'", "why at:11:58", "show recent at=11:58x",
                                    "show recent at=2026-02-31T11:58", "show recent at>9")],
    ],
)  # fmt: skip
def test_times_of_the_clock_become_instants(line, becomes):
    assert with_instants(line, CLOCKED, NOON) == becomes
    assert with_instants(line, {}, NOON) == line


def test_json_of_one_line_columns_and_levels_are_read():
    assert without_json("show servers --json sort=-rate") == ("show servers sort=-rate", True)
    assert without_json("why a--json") == ("why a--json", False)
    assert sorted_by("show actors state=busy waiting>3 sort=-idle columns=key,max") == {
        "state", "waiting", "sort", "columns", "idle", "key", "max",
    }  # fmt: skip
    commands = [
        {"words": ["show"], "level": "read"}, {"words": ["trace", "on"], "level": "operate"}, "nonsense",
    ]  # fmt: skip
    assert level_of("trace on k:1", {"commands": commands}) == ("trace on", "operate")
    assert level_of("show servers", {"commands": commands}) == ("show", "read")
    assert level_of("other", {"commands": None}) == ("", "read")


# ---------------------------------------------------------------------- history


@pytest.mark.parametrize(
    "line",
    ["show x token=abc", "show x password: abc", "Authorization: Bearer abc", "bearer abc", "why afp_abc123",
     "x eyJhbGciOiJIUzI1", "call https://u:p@host/", "api_key=1", " show servers", "", "  ", "a\x1b[2J",
     "x" * 5000, "set client_secret=x", "sk-abcdefghij", "credential=x"],
)  # fmt: skip
def test_what_looks_like_a_secret_is_not_kept(line, tmp_path):
    assert not may_be_kept(line)
    file = tmp_path / "afpool" / "history"
    assert not History(file).add(line)
    assert not file.exists()


@pytest.mark.parametrize(
    "line",
    ["show actors tenant=acme", "why 6f1c", "show tokens", "show credentials", "kill 3", "tail code=denied"],
)
def test_other_lines_are_kept(line):
    assert may_be_kept(line)


def test_history_is_bounded_and_nobody_elses(tmp_path):
    file = tmp_path / "state" / "history"
    first, second = History(file), History(file)
    for number in range(3 * KEPT):
        (first if number % 2 else second).add(f"why {number}")
    assert not first.add(f"why {3 * KEPT - 1}"), "the line before is not kept twice"
    assert History(file).load() == [f"why {number}" for number in range(2 * KEPT, 3 * KEPT)]
    assert len(file.read_text().splitlines()) == KEPT
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    assert len(History(file).load()) == KEPT
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_history_that_is_a_link_is_left_alone(tmp_path):
    other = tmp_path / "other"
    other.write_text("show servers\n")
    (tmp_path / "history").symlink_to(other)
    history = History(tmp_path / "history")
    assert history.load() == []
    assert history.add("why 1")
    assert other.read_text() == "show servers\n"


# ---------------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.00004, "40 µs"),
        (0.0000026, "2.6 µs"),
        (0.00012, "0.12 ms"),
        (0.0042, "4.2 ms"),
        (0.4125, "412 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (3.21, "3.2 s"),
        (59.4, "59 s"),
        (59.6, "1 m"),
        (252, "4 m 12 s"),
        (7500, "2 h 5 m"),
        (273_600, "3 d 4 h"),
        (-0.4, "-400 ms"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("kind", "value", "people", "program"),
    [
        ("seconds", 0.4125, "412 ms", "0.4125"),
        ("bytes", 16_777_216, "16.8 MB", "16777216"),
        ("flag", True, "yes", "yes"),
        ("flag", False, "-", "no"),
        ("rate", 12.5, "12.5/s", "12.5"),
        ("percent", 7.25, "7.2 %", "7.25"),
        ("count", 1_234_567, "1,234,567", "1234567"),
        ("id", 1_234_567, "1234567", "1234567"),
        ("text", None, "-", "-"),
        ("key", "k:3f", "k:3f", "k:3f"),
        ("text", ["a", "b"], "a, b", "a, b"),
        ("text", {"a": 1}, '{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_cell_is_in_words_for_people_and_a_number_for_programs(kind, value, people, program):
    assert for_people(kind, value, lambda: 0.0) == people
    assert plain(value) == program


@hypothesis.given(value=VALUES, kind=st.sampled_from(KINDS))
def test_no_value_of_any_kind_steers_or_breaks(value, kind):
    for text in (for_people(kind, value, lambda: 1e9), plain(value)):
        assert text
        assert not STEERING.search(text)


def test_sizes_and_bars():
    assert [size(n) for n in (0, 999, 1000, 99_500, 1.5e9, 2e12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "100 kB",
        "1.5 GB",
        "2 TB",
    ]
    assert bar(0, 8, drawn=True) == "░░░░░░░░ 0/8"
    assert bar(1, 1000, drawn=True) == "█░░░░░░░ 1/1000", "what is there is seen"
    assert bar(16, 8, drawn=False) == "######## 16/8"
    assert bar(1, 0, drawn=False) == "........ 1/0" or bar(1, 0, drawn=False).startswith("#")


# ---------------------------------------------------------------------- tables


@hypothesis.given(
    rows=st.lists(st.lists(VALUES, min_size=0, max_size=5), max_size=5),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    columns=st.integers(40, 120),
)
def test_a_table_fits_whatever_is_in_it(rows, kinds, columns):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        look = Look(Output(stdout=Seen(), stderr=io.StringIO(), env={"NO_COLOR": "1"}))
        names = [(f"column-{n}", kind) for n, kind in enumerate(kinds)]
        lines, left_out = lay_out(names, rows, look)
    assert len(lines) == len(rows) + 1
    assert all(width_of(line) <= columns for line in lines)
    assert not any(STEERING.search(line) for line in lines)
    shown = lines[0].split()
    assert len(shown) + len(left_out) == len(kinds)
    assert shown[0].startswith("column"), "the first column stays"


def test_what_gives_way_is_text_first_then_columns_from_the_right(look):
    columns = [
        ("key", "key"),
        ("place", "text"),
        ("waiting", "count"),
        ("idle", "seconds"),
        ("stream", "text"),
    ]
    key = "k:" + "f" * 30
    rows = [[key, "http://a-long-host.example.com/of/a/path", 12, 3.5, "listening"]]
    lines, left_out = lay_out(columns, rows, look)
    assert left_out == []
    assert key in lines[1], "ids are there to be copied"
    assert "…" in lines[1]
    more = [*columns, ("more", "id"), ("last", "id")]
    rows = [[*rows[0], "m" * 20, "l" * 4]]
    assert lay_out(more, rows, look)[1] == ["more", "last"]
    assert lay_out(more, rows, look, keep={"last"})[1] == ["more"]


def test_columns_go_before_a_code_is_cut(look):
    columns = [("call", "id"), ("code", "text"), ("tool", "text"), ("client", "id")]
    rows = [["c" * 40, "deadline-exceeded", "t" * 30, "5" * 8]]
    lines, left_out = lay_out(columns, rows, look)
    assert left_out == ["client"]
    assert "deadline-exceeded" in lines[1]
    rows[0][1] = "ERR_HOST_FILLED_VALUE_MISSING"  # the longest there is, and it gives way at last
    lines, left_out = lay_out(columns, rows, look)
    assert left_out == ["client"]
    assert "ERR_HOST_FILLED_VAL" in lines[1]
    assert "…" in lines[1]


def test_in_flight_and_max_are_one_bar_for_people_and_two_numbers_in_a_pipe(look, piped):
    columns = [("key", "key"), ("in_flight", "count"), ("max", "count")]
    assert lay_out(columns, [["k:1", 4, 8]], look)[0] == ["key  in_flight", "k:1  ████░░░░ 4/8"]
    assert lay_out(columns, [["k:1", 4, 8]], piped)[0] == ["key  in_flight  max", "k:1          4    8"]


def test_wide_signs_keep_the_columns_below_each_other(look):
    lines, _ = lay_out([("tool", "text"), ("n", "count")], [["日本語", 1], ["e\u0301te", 22]], look)
    assert [width_of(line) for line in lines] == [10, 10, 10]


# ---------------------------------------------------------------------- results


KINDS_OF_RESULTS = "table actor explanation tree checks done overview text of-tomorrow"
MEMBERS = (
    "columns rows total shown headline clauses use lines found what before after until ends note lag servers "
    "stages refusals sinks outcomes running events list"
)
RESULTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS_OF_RESULTS.split(" "))},
    optional=dict.fromkeys(MEMBERS.split(" "), VALUES),
)


@hypothesis.given(RESULTS)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_whatever_a_console_answers_is_written_and_steers_nothing(result):
    for stream in (Seen(), io.StringIO()):
        look = Look(Output(stdout=stream, stderr=io.StringIO(), env={"NO_COLOR": "1", "TERM": "xterm"}))
        for line in lines_of(result, look):
            assert not STEERING.search(line)
    out = io.StringIO()
    for one in objects_of(result):
        Output(json=True, stdout=out, stderr=io.StringIO(), env={}).line(one)
    for line in out.getvalue().splitlines():
        assert isinstance(json.loads(line), dict)
        assert not STEERING.search(line)


@hypothesis.given(
    st.dictionaries(st.sampled_from(["at", "kind", "server", "key", "took", "code", "tool", "x"]), VALUES)
)
def test_whatever_happens_is_one_line(event):
    for kind in ("call", "turn", "opened", event.get("kind")):
        look = Look(Output(stdout=Seen(), stderr=io.StringIO(), env={"NO_COLOR": "1"}))
        line = event_line({**event, "kind": kind}, look)
        assert not STEERING.search(line)


def test_an_explanation_is_a_headline_facts_and_a_waterfall(look):
    use = {
        "took": 0.412,
        "outcome": "refused",
        "stages": [["admission", 0.1], ["leased", 0.1001], ["credential", 0.412]],
    }
    result = {
        "kind": "explanation",
        "headline": "refused `stale-tools` at the gate `credential`, 412 ms after the call began",
        "clauses": [
            {"at": 0.374, "text": "the server announced a changed tool list", "facts": {}, "source": "event"},
            {"at": None, "text": "the definition of `search` differs", "facts": {}, "source": "definition"},
        ],
        "use": use,
    }
    lines = explained(result, look)
    assert lines[0].startswith("refused `stale-tools`")
    assert "   +374 ms  the server announced a changed tool list" in lines
    assert "            the definition of `search` differs" in lines
    bars = waterfall(use, look)
    assert [line.split()[0] for line in bars] == ["admission", "credential"]
    assert [line.split("  ")[-1].strip() for line in bars] == ["100 ms", "312 ms"]
    # the second begins where the first ends
    assert bars[0].index("█") < bars[1].index("█")
    assert bars[0].rindex("█") - bars[1].index("█") in (-1, 0)


def test_a_call_that_runs_shows_where_it_waits(look):
    bars = waterfall(
        {"took": None, "outcome": None, "stages": [["admission", 0.1]], "waits_for": "server"}, look
    )
    assert bars[-1].split()[:2] == ["server", "…"]
    assert waterfall({"took": 1.0, "stages": []}, look) == []
