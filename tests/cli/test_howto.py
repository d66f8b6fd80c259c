"""The page on debugging is a session that happened: the demo is started as it says, all of it is typed anew.

Ids and times are others each time. An id of the page stands for the one that was met in its place, also in
the commands that follow in its block; a time, a duration, a number in a table stand for any of their kind.
Between two lines of the page anything may stand, since it is shortened. What is left is what the page points
at, and has to be there.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import time

from tests.cli.cli_kit import ROOT, Running, on_terminal, run
from tests.cli.test_pages import blocks, commands

PAGE = "debugging.md"
WITHIN = 60.0
"""Seconds until a question has its answer: so long somebody would ask who looks at what passes."""
IDS = re.compile(r"call-\d+|k:[0-9a-f]{12}|art_[A-Za-z0-9]{22}")
KEPT = re.compile(r"\d+ of \d+ places|over \d+|by \d+ check|\d+ bytes, `")
"""Numbers that mean something."""
OTHERS = (
    ("…", ".{0,400}?"),
    ("w:[0-9a-f]{12}", "w:[0-9a-f]{12}"),
    (r"\d\d:\d\d:\d\d", r"\d\d:\d\d:\d\d"),
    (r"[+-]?\d[\d.]* (?:µs|ms|s|m)(?: \d+ s)?(?!\w)", r"[+-]?\d[\d.]* (?:µs|ms|s|m)(?: \d+ s)?"),
    (r"\d[\d.]*/s", r"(?:\d[\d.]*/s|-)"),
    (r"\(\d+ %\)", r"\(\d+ %\)"),
    ("█+", "█+"),
    (r"(?<=generation )\d+(?: → \d+)?", r"\d+(?: → \d+)?"),
    (r"(?<=client )\d+|(?<=request of )\d+|(?<=in_flight )\d+", r"\d+"),
    # a cell of a table: of events, clients, lists, places
    (r"(?:(?<= )|^)\d+(?= |$)", r"(?:\d+|-)"),
)  # fmt: skip
TOKEN = re.compile(
    "|".join(
        [f"(?P<id>{IDS.pattern})", f"(?P<kept>{KEPT.pattern})"]
        + [f"(?P<other{number}>{seen})" for number, (seen, _) in enumerate(OTHERS)]
    )
)


def shown(lines, said, meant):
    """Look for the lines of the page in what was said, one after the other.

    Gives what the ids of the page stand for, those of `meant` included; `None` where a line is not there.
    """
    meant, text, at = dict(meant), " ".join(said.split()), 0
    for line in filter(None, (" ".join(line.split()) for line in lines)):
        pattern, groups = pattern_of(line, meant)
        found = pattern.search(text, at)
        if found is None:
            return None
        meant |= {name: found[group] for name, group in groups.items()}
        at = found.end()
    return meant


def pattern_of(line, meant):
    """A pattern for a line of the page, and the groups of ids that are met for the first time."""
    groups = {}

    def stands_for(found):
        kind, text = str(found.lastgroup), found[0]
        if kind == "kept":
            return re.escape(text)
        if kind != "id":
            return OTHERS[int(kind.removeprefix("other"))][1]
        if text in meant:
            return re.escape(meant[text]) + r"(?!\w)"
        if text in groups:
            return f"(?P={groups[text]})"
        groups[text] = f"id{len(groups)}"
        return f"(?P<{groups[text]}>{re.escape(re.split('[-:_]', text)[0])}[-:_][A-Za-z0-9]+)"

    pattern, at = "", 0
    for found in TOKEN.finditer(line):
        pattern += re.escape(line[at : found.start()]) + stands_for(found)
        at = found.end()
    return re.compile(pattern + re.escape(line[at:])), groups


def answered(folder, block, minute):
    """Type the commands of a block; `None` if all of them show what the page shows, else what one shows."""
    meant = {}
    for command, lines in commands(block):
        typed = IDS.sub(lambda found, known=meant: known[found[0]], command)
        typed = re.sub(r"(?<==)\d\d:\d\d\b", minute, typed)
        said, _ = on_terminal(folder, *shlex.split(typed)[1:], columns=128, NO_COLOR="1")
        found = shown(lines, said, meant)
        if found is None:
            return f"$ {typed}\n{said}\n--- the page has\n" + "\n".join(lines)
        meant = found
    return None


def minute_of_a_refusal(folder):
    """The minute in which a call of Alice's was refused, and the change before it announced."""
    words = ["tail", "refusals", "code=stale-tools", "tool=search", "tenant=acme", "last=200", "--json"]
    for number in (1, 2):  # the second is another change's, five seconds later
        done = run(folder, *words, "-n", str(number))
        assert done.returncode == 0, done.stderr
        at = [time.localtime(json.loads(line)["at"]) for line in done.stdout.splitlines()][-1]
        if at.tm_sec >= 3:
            break
    return time.strftime("%H:%M", at)


def test_the_session_can_be_repeated(tmp_path):
    text = (ROOT / "docs" / PAGE).read_text()
    [start] = re.findall(r"^```sh\nafpool (.*)\n```$", text, re.MULTILINE)
    asked = blocks(PAGE)
    assert len(asked) >= 9
    assert len(re.findall("^## ", text, re.MULTILINE)) == len(asked), "a question, an answer"
    with Running(tmp_path, *start.split(), "--bind", "127.0.0.1:0") as running:
        running.line(lambda line: line.startswith("look inside"))
        minute = minute_of_a_refusal(tmp_path)
        for block in asked:
            until = time.monotonic() + WITHIN
            while (missing := answered(tmp_path, block, minute)) is not None:
                assert time.monotonic() < until, missing
        assert running.end(signal.SIGTERM) == 0
    assert not [line for line in running.errors if line and " error " in line]


def test_what_the_page_points_at_has_to_be_there():
    lines = ["call-7  4 of 4 places  1.2 s …", "", "  +0 ms `x` at call-7"]
    said = "call-9  4 of 4\n  places  17 ms  and so on\nand more\n   +3 s  `x` at call-9"
    assert shown(lines, said, {}) == {"call-7": "call-9"}
    assert shown(lines, said, {"call-7": "call-9"}) == {"call-7": "call-9"}
    assert shown(lines, said, {"call-7": "call-90"}) is None
    assert shown(lines, said, {"call-7": "call-"}) is None
    for old, new in (("4 of 4", "3 of 4"), ("at call-9", "at call-8"), ("`x`", "`y`"), ("17 ms", "17 %")):
        assert shown(lines, said.replace(old, new), {}) is None, old
    assert shown(reversed(lines), said, {}) is None, "in the order of the page"
    assert shown(["client 3 has 5"], "client 88 has -", {}) == {}
