"""Command lines of the console: words of a shell as a line, and what of a line is done on this side."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTION: Final = re.compile(r"(?:--)?([a-z][a-z0-9_-]{0,30})(?:!=|>=|<=|=|>|<)")
_SPECIAL: Final = re.compile(r"([\s'\"\\])")
_SAFE: Final = re.compile(r"[A-Za-z0-9 _.:/=,@%+-]+")
_WATCH: Final = re.compile(r"watch(?:\s+([0-9]{1,6}(?:\.[0-9]{1,3})?)s?)?(?:\s+(.*))?", re.DOTALL)
_JSON: Final = re.compile(r"\s--json(?=\s|$)")
_CLOCK: Final = re.compile(
    r"(?<!\S)([a-z][a-z0-9_]{0,30})(!=|>=|<=|=|>|<)(\d{4}-\d\d-\d\dT)?(\d{1,2}:\d\d)(:\d\d)?(?!\S)", re.ASCII
)
_AHEAD: Final = 60.0

HERE: Final = {
    "watch": ("watch [N] COMMAND", "do a command again every N seconds, 2 unless said; ^C ends it"),
    "ping": ("ping", "how long the process takes to answer, and when its loop last ticked"),
    "stacks": ("stacks", "where each thread of the process is, also while its loop hangs"),
    "exit": ("exit", "leave, as ^D does"),
}
"""What is done on this side, with its usage and help."""


def line_of(words: Sequence[str]) -> str:
    """Make a line of words that a shell has taken apart, as the console takes it apart again."""
    return " ".join(_SPECIAL.sub(r"\\\1", word) if word else "''" for word in words)


def as_command(line: str, which: str | None = None) -> str:
    """Give what does a line of the console from a shell.

    Args:
        line: The line.
        which: The process, where it was named.
    """
    import shlex

    from .._commands import AFPOOL

    there = f" --process {shlex.quote(which)}" if which is not None else ""
    command = AFPOOL.find(line.partition(" ")[0])
    if command is not None and command.home == "console._open" and _SAFE.fullmatch(line):
        return f"afpool {line}{there}"
    which_first = "" if which is None else f" {shlex.quote(which)}"
    return f"afpool console{which_first} -c {shlex.quote(line)}"


def without_json(line: str) -> tuple[str, bool]:
    """Take `--json` out of a line, and say whether it was there."""
    found, count = _JSON.subn("", line)
    return found, count > 0


def watched(line: str) -> tuple[float | None, str] | None:
    """Read `watch [N] COMMAND`: the seconds, if they are said, and the command; `None` for any other line."""
    found = _WATCH.fullmatch(line)
    if found is None:
        return None
    return (None if found[1] is None else float(found[1])), (found[2] or "").strip()


def with_instants(line: str, hello: dict[str, Any], now: float) -> str:
    """Put instants in place of times of the clock, which are those of this machine, as they are written here.

    `at=14:03` is that minute, `at=14:03:20` that second, `at>14:03` is later than its beginning; a time that
    is still to come is yesterday's. `at=2026-11-30T14:03` names the day as well. Only columns that hold
    instants are looked at; anything else stays as it is.

    Args:
        line: The line.
        hello: Of the console, which names its columns.
        now: The console's clock, in seconds since 1970.
    """
    if ":" not in line:
        return line
    tables = hello.get("tables")
    columns = [
        column
        for table in (tables if isinstance(tables, list) else [])
        for column in (table.get("columns") or () if isinstance(table, dict) else ())
    ]
    names = {
        column.get("name") for column in columns if isinstance(column, dict) and column.get("kind") == "unix"
    }

    def instant(found: re.Match[str]) -> str:
        name, sign, day, minute, second = found.groups()
        if name not in names:
            return found[0]
        try:
            begins = _unix_of(day, minute + (second or ":00"), now)
        except (ValueError, OverflowError):
            return found[0]
        ends = begins + (1 if second else 60)
        value = (
            f"{begins:.0f}..{ends:.0f}" if sign in {"=", "!="} else f"{ends if sign == '<=' else begins:.0f}"
        )
        return f"{name}{sign}{value}"

    return _CLOCK.sub(instant, line)


def _unix_of(day: str | None, clock: str, now: float) -> float:
    local = time.localtime(now)
    if day is not None:
        return time.mktime(time.strptime(f"{day}{clock}", "%Y-%m-%dT%H:%M:%S"))
    today = time.strptime(clock, "%H:%M:%S")
    for before in (0, 1):
        # the calendar's day before, which is not always 24 hours ago
        found = time.mktime(
            (
                local.tm_year,
                local.tm_mon,
                local.tm_mday - before,
                today.tm_hour,
                today.tm_min,
                today.tm_sec,
                0,
                0,
                -1,
            )
        )
        if found <= now + _AHEAD:
            break
    return found


def sorted_by(line: str) -> set[str]:
    """Give the names of columns that a line asks for: those that it filters or sorts by."""
    names = set()
    for word in line.split():
        found = OPTION.match(word)
        if found is not None:
            names.add(found[1])
            if found[1] in {"sort", "columns"}:
                names |= {name.lstrip("-") for name in word.partition("=")[2].split(",")}
    return names


def level_of(line: str, hello: dict[str, Any]) -> tuple[str, str]:
    """Give the words of the command that a line begins with, and the level that it needs.

    Args:
        line: The line.
        hello: Of the console, which names its commands.
    """
    given = line.split()
    best: tuple[list[str], str] = ([], "read")
    commands = hello.get("commands")
    for command in commands if isinstance(commands, list) else []:
        words = command.get("words") if isinstance(command, dict) else None
        if isinstance(words, list) and len(words) > len(best[0]) and given[: len(words)] == words:
            best = (words, str(command.get("level", "read")))
    return " ".join(map(str, best[0])), best[1]
