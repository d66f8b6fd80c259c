"""One asker at one console: lines in, results out, an exit code for each.

Rules:

* Data on stdout, words on stderr, with `--json` one object on each line.
* A connection that is lost is made anew before the next line, by name where it was found by name. What was
  asked and not answered is asked again only where it changes nothing; of anything else it is said that
  nobody knows whether it was done.
* What changes something is confirmed by whoever sits at a terminal, unless `--yes` was said.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from ..._base.secret import Secret
from .._failures import DONE, FAILED, WRONG_USAGE, Failure, Usage
from .._text import one_line
from ._hang import ask_watchdog
from ._help import help_here, help_lines
from ._link import Link, Refused
from ._look import Look
from ._show import is_bad, lines_of, objects_of
from ._target import Target, choose
from ._watchdog import stacks_of, ticked
from ._wire import Lost
from ._words import as_command, level_of, sorted_by, watched, with_instants, without_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._output import Output

_SLIPS: Final = frozenset({"unknown-command", "unknown-table", "bad-option", "too-long"})
_CLOCKS: Final = 60.0
"""Seconds by which the clocks of one machine may have been set anew while a process runs; those that two
processes count from are further apart."""
_UNASKED: Final = frozenset({"resume", "trace", "refresh"})
"""What is not confirmed, though it needs the operate level: nobody loses anything by it."""


class Session:
    """Asks one console, over one connection after the other.

    Args:
        out: Where results go.
        which: The process, as it was named; `None` for the only one.
        token: For TCP.
        timeout: Seconds that an answer may take.
        yes: Nothing is confirmed.
        count: After how many events or drawings what goes on is ended; `None` for never.

    Attributes:
        link: The connection.
        target: Where it goes.
        last: The last result that was written.
        prompt: Lines are typed at a prompt; the caller's to set.

    Raises:
        Usage: It cannot be said which process is meant.
        Failure: There is none, or it cannot be reached.
    """

    def __init__(
        self,
        out: Output,
        which: str | None,
        *,
        token: Secret | None = None,
        timeout: float | None = None,
        yes: bool = False,
        count: int | None = None,
    ) -> None:
        self.out = out
        self.which = which
        self.token = token
        self.timeout = timeout
        self.yes = yes
        self.count = count
        self.prompt = False
        self._told = False
        self.last: dict[str, Any] = {}
        self.target = choose(which)
        if token is None and self.target.host:
            raise Usage(
                "a console over the network wants a token: name its file with --token-file, or set "
                "AFPOOL_CONSOLE_TOKEN"
            )
        if token is not None and self.target.clear:
            out.warn("the token goes over the network in clear: use https:// where others can listen")
        self.link = self._linked()

    @property
    def name(self) -> str:
        """What the process calls itself."""
        return one_line(str(self.link.hello.get("name") or self.target.label))[:60]

    @property
    def look(self) -> Look:
        """Who looks at what is written."""
        return Look(self.out, self.link.skew, hint=self.hint)

    def hint(self, line: str) -> str:
        """Give how a line of the console is typed: as it is at the prompt, with `afpool` in a shell."""
        return line if self.prompt else as_command(line, self.which)

    def close(self) -> None:
        """End the connection."""
        self.link.close()

    # ------------------------------------------------------------------ lines

    def run(self, line: str) -> int:
        """Do a line, write what comes of it, and give an exit code.

        Raises:
            Lost: The connection is lost, and there is no other.
            KeyboardInterrupt: ^C.
        """
        line, as_json = without_json(line.strip())
        before, self.out.json = self.out.json, self.out.json or as_json
        try:
            return self._run(line)
        except Refused as refused:
            return self._refused(refused)
        finally:
            self.out.json = before
            if self._told:
                self._told = False
                if self.out.watched:
                    self.out.show("")

    def _run(self, line: str) -> int:
        if not line:
            return DONE
        if line == "ping":
            return self._ping()
        if line == "stacks":
            return self._stacks()
        first, _, rest = line.partition(" ")
        if first == "help":
            lines = help_here(rest.strip()) if rest.strip() else help_lines(self.link.hello, self.look)
            if lines is not None:
                for text in lines:
                    self.out.line({"line": text}) if self.out.json else self.out.data(text)
                return DONE
        again = watched(line)
        if again is not None:
            from ._watch import watch

            return watch(self, *again)
        if not self._confirmed(line):
            self.out.say("nothing was done")
            return FAILED
        result = self.ask(line)
        if result.get("kind") == "stream":
            from ._streams import follow

            return follow(self, result.get("stream"))
        self.write(result, line)
        return FAILED if is_bad(result) else DONE

    def ask(self, line: str) -> dict[str, Any]:
        """Ask, over another connection where this one is lost."""
        if self.link.lost is not None:
            self._reconnected_for(line)
        line = with_instants(line, self.link.hello, time.time() + self.link.skew)
        try:
            return self.link.ask(line)
        except Lost as lost:
            if not lost.asked:
                self._reconnected_for(line)
                return self.link.ask(line)
            if level_of(line, self.link.hello)[1] != "read":
                raise Failure(f"{lost}; whether it was done is not known: `show events` may tell") from None
            self.reconnect()
            return self.link.ask(line)

    def reconnect(self) -> None:
        """Connect again, to the same process or to the one that took its place."""
        why = self.link.lost or "it was closed"
        self.out.warn(f"the connection to {self.name} is lost: {why}")
        self.link.close()
        try:
            self.link = self._linked()
        except Failure:
            if self.which is not None and (self.which.isdigit() or self.target.host):
                raise
            self.target = choose(self.which or self.name)
            self.link = self._linked()
        self.out.say(f"connected again: {self.target.label}")

    def _reconnected_for(self, line: str) -> None:
        """Connect again; what changes something is not done to another process, whose ids mean others."""
        before = self.link.hello
        self.reconnect()
        if level_of(line, self.link.hello)[1] != "read" and not _same(before, self.link.hello):
            raise Failure(f"this is another process ({self.target.label}): nothing was done; say it again")

    def write(self, result: dict[str, Any], line: str = "") -> None:
        """Write a result."""
        self.last = result
        if self.out.json:
            for one in objects_of(result):
                self.out.line(one)
            return
        for text in lines_of(result, self.look, sorted_by(line)):
            self.out.data(text)

    # ------------------------------------------------------------------ waiting

    def _linked(self) -> Link:
        return Link(self.target, self.token, timeout=self.timeout, on_quiet=self._quiet)

    def _quiet(self, waited: float) -> None:
        """Nothing came for a while: say what the watchdog knows; each time only where it can be replaced."""
        if self._told and not self.out.watched:
            return
        self._told = True
        found = ask_watchdog(self.target.hang, "ping")
        text = f"no answer for {waited:.0f} s; {ticked(found, self.target)}"
        if self.out.watched:
            self.out.show(text)
        else:
            self.out.say(text)

    def _ping(self) -> int:
        if self.link.lost is not None:
            self.reconnect()
        try:
            took: float | None = self.link.ping()
        except Lost:
            raise
        except Failure:
            took = None
        found = ask_watchdog(self.target.hang, "ping")
        if self.out.json:
            self.out.line({"took": took, "watchdog": found[0] if found else None})
        else:
            answered = "the loop does not answer" if took is None else f"answered in {took * 1000:.1f} ms"
            self.out.data(f"{answered}; {ticked(found, self.target)}")
        return FAILED if took is None else DONE

    def _stacks(self) -> int:
        return write_stacks(self.target, self.out)

    # ------------------------------------------------------------------ words

    def _confirmed(self, line: str) -> bool:
        command, level = level_of(line, self.link.hello)
        if level != "operate" or self.yes or command in _UNASKED or not _asks():
            return True
        self.out.ask(f"{one_line(line)} on {self.name}? [y/N] ")
        answer = sys.stdin.readline()
        return answer.strip().casefold() in {"y", "yes"}

    def _refused(self, refused: Refused) -> int:
        if self.out.json:
            self.out.line({"error": {"code": refused.code, "message": refused.message, "try": refused.tries}})
        self.out.error(str(refused))
        for each in refused.tries:
            self.out.say(f"try: {self.hint(each)}")
        return WRONG_USAGE if refused.code in _SLIPS else FAILED


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two greetings are of one process: in containers all of them may have one number."""
    if one.get("pid") != other.get("pid"):
        return False
    began = [_number(hello.get("unix")) - _number(hello.get("now")) for hello in (one, other)]
    return abs(began[0] - began[1]) < _CLOCKS


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def write_stacks(target: Target, out: Output) -> int:
    """Write where each thread of a process is, which needs no loop."""
    found = ask_watchdog(target.hang, "stacks")
    if not found:
        raise Failure(f"the watchdog of {target.label} does not answer{_far(target)}")
    for one in found:
        if out.json:
            out.line(one)
    if not out.json:
        for line in stacks_of(found, Look(out)):
            out.data(line)
    return DONE


def _far(target: Target) -> str:
    return "" if target.path else ": it listens only on the machine where the process runs"


def _asks() -> bool:
    """Whether somebody is there to answer."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:
        return False


def token_of(path: str | None, env: Mapping[str, str], out: Output) -> Secret | None:
    """Give the token that proves who asks.

    Args:
        path: A file that holds it.
        env: Variables, of which `AFPOOL_CONSOLE_TOKEN` may hold it.
        out: Where it is said that others can read the file.

    Raises:
        Usage: The file cannot be read, or holds no token.
    """
    token, problem = _token(path, env, out)
    del env  # a traceback that shows locals would show it
    if problem is not None:
        raise Usage(problem)
    return token


def _token(path: str | None, env: Mapping[str, str], out: Output) -> tuple[Secret | None, str | None]:
    """Give the token, or say what is wrong; raises nothing, so that no frame with it is in a traceback."""
    if path is None:
        text = env.get("AFPOOL_CONSOLE_TOKEN", "").strip()
        if not text:
            return None, None
    else:
        import os

        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- a path from the command line
                text = file.read(8192).strip()
                if os.fstat(file.fileno()).st_mode & 0o077:
                    out.warn(
                        "others on this machine can read the file of the token: chmod 600 makes it yours"
                    )
        except (OSError, UnicodeDecodeError):
            return None, "--token-file names no file that can be read"
    if not text or len(text) > 4096 or not text.isascii() or not text.isprintable() or " " in text:
        return None, "the token is one word in ASCII; what was given is not"
    return Secret(text), None
