"""The prompt: lines typed by a person, with history and completion, or read from a pipe.

^C ends what runs, or the line that is typed; ^D leaves. A console that goes away is said when the next line
is asked, and connected to again.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from .._failures import DONE, FAILED, WRONG_USAGE, Failure, Usage
from ._complete import candidates
from ._history import History, history_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._session import Session

_LEAVING: Final = frozenset({"exit", "quit", "bye", "\\q"})


def repl(session: Session) -> int:
    """Do lines until there are no more, and give the worst of their exit codes; 0 to a person."""
    if not sys.stdin.isatty():
        return _piped(session)
    session.prompt = True
    reader = _Reader(session)
    hello = session.link.hello
    level = "operate" if hello.get("level") == "operate" else "look only"
    session.out.say(f"{session.target.label}, {level}; `help` says what there is, ^D leaves")
    while True:
        try:
            line = reader.line(f"{session.name}> ")
        except EOFError:
            session.out.say("")
            return DONE
        except KeyboardInterrupt:
            session.out.say("")
            continue
        if line.strip() in _LEAVING:
            return DONE
        try:
            _do(session, line)
        except KeyboardInterrupt:
            session.out.say("")


def _do(session: Session, line: str) -> int:
    try:
        return session.run(line)
    except Usage as usage:
        session.out.error(usage.what)
        return WRONG_USAGE
    except Failure as failure:
        session.out.error(str(failure))
        return FAILED
    finally:
        session.out.flush()


def _piped(session: Session) -> int:
    worst = DONE
    for line in sys.stdin:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text in _LEAVING:
            break
        worst = max(worst, _do(session, text))
    return worst


def _interrupt_soon() -> None:
    """Interrupt `input` once readline waits for a key again: it passes over what its completer raises."""
    main = threading.main_thread().ident
    assert main is not None
    later = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    later.daemon = True
    later.start()


class _Reader:
    """Reads lines with readline, where there is one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._history = History(history_file(), session.token)
        self._found: list[str] = []
        self._readline: Any = None
        try:
            import readline
        except ImportError:
            return
        self._readline = readline
        readline.set_auto_history(False)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind("set show-all-if-ambiguous on")
        for line in self._history.load():
            readline.add_history(line)

    def line(self, prompt: str) -> str:
        """Read a line; the connection is kept meanwhile."""
        with self._kept():
            line = input(prompt)
        if self._history.add(line) and self._readline is not None:
            self._readline.add_history(line)
        return line

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Answer the console's pings in a thread of its own."""
        stop, stopping = socket.socketpair()
        keeper = threading.Thread(target=self._session.link.keep, args=(stop,), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            stopping.close()
            keeper.join(5.0)
            stop.close()

    def _complete(self, _text: str, state: int) -> str | None:
        if state == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            try:
                found = candidates(line, self._session.link)
            except KeyboardInterrupt:
                _interrupt_soon()
                found = []
            if len(found) == 1 and not found[0].endswith(("=", "=-")):
                found = [found[0] + " "]
            self._found = found
        return self._found[state] if state < len(self._found) else None
