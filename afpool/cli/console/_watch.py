"""`watch [N] COMMAND`: a command done again and again, drawn in place. ^C ends it, and so does an error."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

from .._failures import DONE, Usage
from ._cells import clock
from ._screen import Screen
from ._show import lines_of, objects_of
from ._words import level_of, sorted_by

if TYPE_CHECKING:
    from ._session import Session

EVERY: Final = 2.0
_LEAST: Final = 0.1
_MOST: Final = 86_400.0
_TURN: Final = 0.5


def watch(session: Session, every: float | None, line: str) -> int:
    """Do a command every so many seconds.

    Args:
        session: Who asks.
        every: The seconds; 2 unless said.
        line: The command. `overview` is told by the process each second; a name of a table shows it.

    Raises:
        Usage: It is done no command again, or one that changes something.
        Refused: The console refuses it.
        KeyboardInterrupt: ^C.
    """
    line = line or "overview"
    if session.out.json and every is None and line.partition(" ")[0] in {"overview", "actors"}:
        return _stream(session, f"watch {line}")
    if line.partition(" ")[0] == "overview":
        return _stream(session, f"watch {line}" + (f" every={every:g}" if every else ""))
    every = EVERY if every is None else every
    if not _LEAST <= every <= _MOST:
        raise Usage("watch takes seconds from 0.1 to 86400")
    tables = [table.get("name") for table in session.link.hello.get("tables", []) if isinstance(table, dict)]
    if line.partition(" ")[0] in tables:
        line = f"show {line}"
    if level_of(line, session.link.hello)[1] != "read":
        raise Usage("watch does a command again and again: one that changes something is done once")
    return _again(session, every, line)


def _again(session: Session, every: float, line: str) -> int:
    screen = Screen(session.out)
    left = session.count
    keep = sorted_by(line)
    try:
        while True:
            result = session.ask(line)
            due = time.monotonic() + every
            if result.get("kind") == "stream":
                session.link.stop(result.get("stream"))
                raise Usage("watch does what ends: `tail` and `trace` go on by themselves")
            if session.out.json:
                for one in objects_of(result):
                    session.out.line(one)
                session.out.flush()
            left = None if left is None else left - 1
            title = f"{line}   every {every:g} s   {clock(time.time())[:8]}   ^C ends"
            while True:
                size = shutil.get_terminal_size()
                look = session.look
                if not session.out.json:
                    screen.draw(lines_of(result, look, keep), look.clip(title))
                if left == 0:
                    return DONE
                while (now := time.monotonic()) < due and shutil.get_terminal_size() == size:
                    # in short turns: a signal of another size may come just before it is waited for
                    session.link.rest(min(due, now + _TURN))
                if time.monotonic() >= due:
                    break
    finally:
        screen.close()


def _stream(session: Session, line: str) -> int:
    from ._streams import follow

    result = session.ask(line)
    if result.get("kind") == "stream":
        return follow(session, result.get("stream"))
    session.write(result)
    return DONE
