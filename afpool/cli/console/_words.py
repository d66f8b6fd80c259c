"""Command lines of the console: words of a shell as a line, and what of a line is done on this side."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTION: Final = re.compile(r"(?:--)?([a-z][a-z0-9_-]{0,30})(?:!=|>=|<=|=|>|<)")
_SPECIAL: Final = re.compile(r"([\s'\"\\])")
_SAFE: Final = re.compile(r"[A-Za-z0-9 _.:/=,@%+-]+")
_WATCH: Final = re.compile(r"watch(?:\s+([0-9]{1,6}(?:\.[0-9]{1,3})?)s?)?(?:\s+(.*))?", re.DOTALL)
_JSON: Final = re.compile(r"\s--json(?=\s|$)")

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
