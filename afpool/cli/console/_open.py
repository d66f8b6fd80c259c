"""`afpool console`, and the commands that ask one thing of a running process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from .._failures import DONE, Failure, Usage
from .._reading import seconds
from .._text import one_line
from ._cells import plain
from ._link import Link, Refused
from ._pause import pause
from ._places import Process, running
from ._session import Session, token_of, write_stacks
from ._tables import lay_out
from ._target import START, Several, choose, of_process
from ._words import line_of

if TYPE_CHECKING:
    import argparse

    from .._output import Output

TIMEOUT: Final = 30.0
"""Seconds that a command of its own waits for an answer."""

_GLANCE: Final = 0.5


def run(options: argparse.Namespace, out: Output) -> int:
    """Do what a command line asks of a running process."""
    called = options.called.partition(" ")[2]
    try:
        return _console(options, out) if called == "console" else _once(called, options, out)
    except (Failure, Usage) as error:
        if out.json and not out.wrote:  # one line, as all that these commands write
            out.line({"error": _told(error)})
        if isinstance(error, Several) and not out.json:
            _list(error.processes, out)
        raise


def _told(error: Failure | Usage) -> dict[str, Any]:
    if isinstance(error, Failure):
        return {"code": "failed", "message": str(error)}
    told: dict[str, Any] = {"code": "usage", "message": error.what}
    if isinstance(error, Several):
        told["processes"] = [
            {"pid": one.pid, "name": one.name, "socket": one.path} for one in error.processes
        ]
    return told


def _console(options: argparse.Namespace, out: Output) -> int:
    token = token_of(options.token_file, dict(os.environ), out)
    if options.list:
        processes = running()
        if not processes and not out.json:
            raise Failure(f"no process with a console is running here: {START}")
        _list(processes, out)
        return DONE
    if options.stacks:
        return write_stacks(choose(options.process), out)
    if options.command:
        timeout = seconds(options.timeout, "--timeout", TIMEOUT)
        session = Session(out, options.process, token=token, timeout=timeout, yes=options.yes)
        try:
            worst = DONE
            for line in options.command:
                worst = max(worst, session.run(line))
            return worst
        finally:
            session.close()
    from ._repl import repl

    session = Session(
        out, options.process, token=token, timeout=seconds(options.timeout, "--timeout"), yes=options.yes
    )
    try:
        return repl(session)
    finally:
        session.close()


def _once(called: str, options: argparse.Namespace, out: Output) -> int:
    words = list(getattr(options, "words", []))
    line = f"{called} {line_of(words)}".rstrip()
    if getattr(options, "reveal", False):
        line += " --reveal"
    session = Session(
        out,
        options.process,
        token=token_of(options.token_file, dict(os.environ), out),
        timeout=seconds(options.timeout, "--timeout", _patience(called, words)),
        yes=getattr(options, "yes", False),
        count=_counted(getattr(options, "count", None)),
    )
    try:
        if called == "pause":
            return pause(session, line)
        return session.run(line)
    finally:
        session.close()


def _counted(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not text.isascii() or not 0 < int(text) <= 10**9:
        raise Usage("--count takes a whole number, 1 at least")
    return int(text)


def _patience(called: str, words: list[str]) -> float:
    """Seconds that an answer may take: of a command that waits itself, beside those that it was told to."""
    told = next((word.partition("=")[2] for word in words if word.startswith(("for=", "--for="))), "30s")
    return TIMEOUT + (seconds(told, "for", 0.0) or 0.0) if called == "drain" else TIMEOUT


def _list(processes: list[Process], out: Output) -> None:
    """Write what runs: number, name, age, and which servers it serves."""
    import time

    now = time.time()
    rows: list[list[Any]] = []
    for process in processes:
        served = _served(process)
        rows.append([process.pid, process.name, round(now - process.began, 1), served])
    if out.json:
        names = ("pid", "name", "age", "serves")
        for row, process in zip(rows, processes, strict=True):
            out.line({**dict(zip(names, row, strict=True)), "socket": process.path})
        return
    from ._look import Look

    columns = [("pid", "id"), ("name", "id"), ("age", "seconds"), ("serves", "text")]
    shown = [[*row[:3], "it does not answer" if row[3] is None else plain(row[3])] for row in rows]
    for line in lay_out(columns, shown, Look(out))[0]:
        out.data(line)


def _served(process: Process) -> list[str] | None:
    """Names of the servers that a process is a client of; `None` where it does not answer at once."""
    try:
        link = Link(of_process(process), timeout=_GLANCE)
    except Failure:
        return None
    try:
        result = link.ask("show servers columns=server limit=50", within=_GLANCE)
        return [one_line(str(row[0])) for row in result.get("rows", []) if isinstance(row, list) and row]
    except (Failure, Refused):
        return []
    finally:
        link.close()
