"""A console that was greeted: questions and their answers, streams.

Rules:

* An answer that nobody waits for any more is dropped by its number; what is given up is withdrawn.
* Whoever waits longer than `QUIET` is told so once and again (`on_quiet`), and goes on waiting: only a
  deadline of one's own ends a wait.
* One thread at a time: `lock` is held for a question and its answer. A second thread (`keep`) answers pings
  while a person types.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .._failures import Failure
from .._text import cut, one_line
from ._wire import Lost, Wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..._base.secret import Secret
    from ._target import Target

PROTOCOL: Final = 1
QUIET: Final = 2.0
"""Seconds without an answer after which the watchdog is asked."""

_WORDS: Final = 300


class Silent(Failure):
    """There was no answer in the time that was given."""


class Refused(Exception):
    """The console answered with an error.

    Attributes:
        code: For programs.
        message: For people, on one line.
        tries: What could be typed instead.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code = one_line(str(error.get("code", "failed")))[:64]
        self.message = one_line(str(error.get("message", "it did not say why")))
        tries = error.get("try")
        self.tries = [one_line(str(each)) for each in tries] if isinstance(tries, list) else []
        super().__init__(f"{self.code}: {self.message}")


class Link:
    """A connection to one console, greeted.

    Args:
        target: Where it is.
        token: Proves who asks, over TCP.
        timeout: Seconds that each answer may take; `None` for as long as it takes.
        on_quiet: Told after each `QUIET` seconds without an answer, with the seconds waited for.

    Attributes:
        hello: What the server said first.
        skew: Seconds that the server's clock is ahead of this one's.

    Raises:
        Failure: It cannot be reached, refuses, or speaks another version.
        Silent: It did not greet in time.
    """

    def __init__(
        self,
        target: Target,
        token: Secret | None = None,
        *,
        timeout: float | None = None,
        on_quiet: Callable[[float], object] = lambda waited: None,  # noqa: ARG005 -- tells nobody
    ) -> None:
        self.target = target
        self.timeout = timeout
        self.on_quiet = on_quiet
        self.lock = threading.RLock()
        self._asked = 0
        self._wire = Wire(target, token)
        try:
            self.hello = self._greeted()
        except BaseException:
            self.close()
            raise
        unix = self.hello.get("unix")
        self.skew = unix - time.time() if isinstance(unix, int | float) else 0.0

    def ask(
        self,
        do: str | Sequence[str],
        options: Mapping[str, str] | None = None,
        *,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Ask for one command and wait for its answer.

        Args:
            do: A line, or words.
            options: `name=value`, beside them.
            within: Seconds that it may take, and nobody is told of the wait: for completion.

        Raises:
            Refused: It answered with an error.
            Lost: The connection ended before the answer came.
            Silent: There was none in time; what was asked is withdrawn.
            KeyboardInterrupt: ^C; what was asked is withdrawn.
        """
        with self.lock:
            self._asked += 1
            number = self._asked
            asked: dict[str, Any] = {"id": number, "do": do if isinstance(do, str) else list(do)}
            if options:
                asked["with"] = dict(options)
            sent = False
            try:
                self._wire.say(asked)
                sent = True
                answer = self._awaited(
                    lambda said: said.get("id") == number,
                    self.timeout if within is None else within,
                    quietly=within is not None,
                )
            except Lost as lost:
                lost.asked = sent
                raise
            except (KeyboardInterrupt, Silent):
                self._withdraw(number)
                raise
            if isinstance(answer.get("error"), dict):
                raise Refused(answer["error"])
            result = answer.get("ok")
            if not isinstance(result, dict):
                raise Failure("the console answered with what is no result")
            return result

    def frames(self, stream: object, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """Give the frames of a stream as they come, up to the one that ends it.

        Args:
            stream: Its number, as the result of the kind `stream` says it.
            timeout: Seconds that the next frame may take; an empty one is given then. `None` for ever.

        Raises:
            Lost: The connection ended.
            KeyboardInterrupt: ^C; the stream goes on until `stop`.
        """
        while True:
            try:
                with self.lock:
                    frame = self._awaited(
                        lambda said: said.get("stream") == stream and "id" not in said, timeout, quietly=True
                    )
            except Silent:
                frame = {}
            yield frame
            if "end" in frame:
                return

    def stop(self, stream: object) -> None:
        """End a stream, and drop what of it is on the way."""
        with self.lock:
            self._withdraw(stream)
            self._wire.said = deque(said for said in self._wire.said if said.get("stream") != stream)

    def ping(self, timeout: float = QUIET) -> float:
        """Give the seconds to the process's loop and back.

        Raises:
            Silent: It did not answer in time.
            Lost: The connection ended.
        """
        with self.lock:
            began = time.perf_counter()
            until = time.monotonic() + timeout
            pongs = self._wire.pongs
            self._wire.ping()
            while self._wire.pongs == pongs:
                if time.monotonic() >= until:
                    raise Silent("the process did not answer a ping")
                self._wire.pump(until)
            return time.perf_counter() - began

    def rest(self, until: float) -> None:
        """Wait until then, on the monotonic clock, or until the terminal has another size.

        Raises:
            Lost: The connection ended.
            KeyboardInterrupt: ^C.
        """
        with self.lock:
            self._wire.pump(until, resized=True)

    @property
    def lost(self) -> str | None:
        """Why the connection ended, if it has; what has come is looked at first."""
        with self.lock:
            with suppress(Lost):
                self._wire.pump(time.monotonic())
            return self._wire.ended

    def keep(self, stop: socket.socket) -> None:
        """Answer pings until `stop` can be read or the connection ends. For a thread of its own."""
        while self._wire.ended is None:
            ready, _, _ = select.select([self._wire.socket, stop], [], [])
            if stop in ready:
                return
            _ = self.lost

    def close(self) -> None:
        """End it."""
        with self.lock:
            self._wire.close()

    # ------------------------------------------------------------------ inside

    def _greeted(self) -> dict[str, Any]:
        try:
            said = self._awaited(lambda said: "hello" in said or "error" in said, self.timeout)
        except Lost:
            if self._wire.rejected is not None:
                raise Failure(_why_rejected(*self._wire.rejected)) from None
            raise
        if isinstance(said.get("error"), dict):
            raise Failure(f"the console refuses: {Refused(said['error'])}")
        hello = said.get("hello")
        if not isinstance(hello, dict):
            raise Failure("what answers there is no console of afpool")
        if hello.get("protocol") != PROTOCOL:
            raise Failure(_other_version(hello.get("protocol")))
        return hello

    def _withdraw(self, number: object) -> None:
        self._asked += 1
        with suppress(Lost):
            self._wire.say({"id": self._asked, "stop": number})

    def _awaited(
        self, wanted: Callable[[dict[str, Any]], bool], timeout: float | None, *, quietly: bool = False
    ) -> dict[str, Any]:
        began = told = time.monotonic()
        until = None if timeout is None else began + timeout
        while True:
            while self._wire.said:
                said = self._wire.said.popleft()
                if wanted(said):
                    return said
            now = time.monotonic()
            if until is not None and now >= until:
                raise Silent(f"the process did not answer within {timeout:g} s")
            if not quietly and now - told >= QUIET:
                told = now
                self.on_quiet(now - began)
            turn = (now if quietly else told) + QUIET
            self._wire.pump(turn if until is None else min(turn, until))


def _why_rejected(status: int, body: bytearray) -> str:
    words = cut(one_line(bytes(body).decode("utf-8", "replace")), _WORDS)
    said = f" ({words})" if words and not words.startswith("<") else ""
    if status == 401:
        return f"the console does not take that token{said}"
    if status == 403:
        return f"the console refuses who asks{said}"
    if status == 426:
        return (
            f"the console speaks another version of its protocol{said}: use the afpool that the process runs"
        )
    if status == 503:
        return f"the console is full{said}"
    return f"what answers there is no console of afpool: HTTP {status}{said}"


def _other_version(version: object) -> str:
    if isinstance(version, int) and not isinstance(version, bool):
        which = "newer" if version > PROTOCOL else "older"
        return (
            f"the process is {which} than this program: its console speaks version {version} of the "
            f"protocol, this one version {PROTOCOL}; use the afpool that the process runs"
        )
    return "what answers there is no console of afpool: it greets without a version"
