"""A thread that still answers when the loop does not.

Rules:

* It has a socket of its own and asks nothing of the loop: all it knows of it is when it ticked last, and what
  Python says of every thread.
* One line in, lines of JSON out: `ping`, `stacks`. Stacks are files, lines and functions, never a value.
* Who may ask is who may operate: the user of the process, and root. A peer that dawdles is given up.
* It ends when it is told to, within a moment, and never keeps the process. The child of a fork has the socket
  and not the thread; there it is closed, so that nobody is kept waiting by it.
* Code that holds the interpreter's lock (a C function that does not let go of it) silences every thread.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, final

from ._door import Entered, peer_uid

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ..record import LoopLag
    from ._door import Door
    from ._sockets import Listening

logger = logging.getLogger("afpool.console")

HANGING: Final = 1.0
"""Seconds without a tick after which the loop counts as hanging."""

_PATIENCE: Final = 1.0
_LINE: Final = 256
_DEPTH: Final = 200


@final
class Watchdog:
    """Answers `ping` and `stacks` on a socket of its own.

    Args:
        listening: The socket, bound and listening.
        name: What the console is called.
        lag: Says when the loop ticked last.
        door: Says who may ask.

    `start` belongs to the loop's own thread.
    """

    def __init__(self, listening: Listening, name: str, lag: LoopLag, door: Door) -> None:
        self._listening = listening
        self._name = name
        self._lag = lag
        self._door = door
        self._loop = threading.get_ident()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"afpool-watchdog-{name}", daemon=True)

    def start(self) -> None:
        """Begin to answer.

        Raises:
            RuntimeError: There can be no further thread; nothing is left open but what it was given.
        """
        self._loop = threading.get_ident()
        try:
            self._thread.start()
        except RuntimeError:
            self._wake.close()
            self._waker.close()
            raise

    def stop(self) -> None:
        """End the thread, and wait for it for a moment. Synchronous."""
        if self._listening.forked:
            return
        # said and not closed: the child of a fork may hold a copy, which keeps it open
        self._waker.send(b"x")
        self._thread.join(_PATIENCE * 2)
        self._waker.close()
        self._listening.close()

    @property
    def alive(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive()

    # ------------------------------------------------------------------ in its thread

    def _run(self) -> None:
        listener = self._listening.sock
        with self._wake, select.epoll() as ready:
            ready.register(listener, select.EPOLLIN)
            ready.register(self._wake, select.EPOLLIN)
            while True:
                try:
                    found = [number for number, _ in ready.poll()]
                    if self._wake.fileno() in found:
                        return
                    peer, _ = listener.accept()
                except OSError:
                    if self._listening.closed:
                        return
                    time.sleep(0.1)  # out of descriptors, most likely
                    continue
                try:
                    with peer:
                        self._answer(peer)
                except Exception as error:  # noqa: BLE001 -- one peer's trouble is not the next one's
                    logger.debug("the watchdog could not answer (%s)", type(error).__name__)

    def _answer(self, peer: socket.socket) -> None:
        deadline = time.monotonic() + _PATIENCE
        if not isinstance(self._door.by_user(peer_uid(peer)), Entered):
            return
        peer.setblocking(False)
        line = b""
        while b"\n" not in line and len(line) < _LINE and self._ready(peer, select.POLLIN, deadline):
            more = peer.recv(_LINE)
            if not more:
                break
            line += more
        asked = line.partition(b"\n")[0].strip().decode("utf-8", "replace")
        said = memoryview(b"".join(json.dumps(answer).encode() + b"\n" for answer in self.answers(asked)))
        deadline = time.monotonic() + _PATIENCE
        while said and self._ready(peer, select.POLLOUT, deadline):
            said = said[peer.send(said) :]

    def _ready(self, peer: socket.socket, what: int, deadline: float) -> bool:
        """Wait for a peer; false where it is too late, or where the end was told: the loop waits for that."""
        either = select.poll()
        either.register(peer, what)
        either.register(self._wake, select.POLLIN)
        left = max(0.0, deadline - time.monotonic())
        found = [number for number, _ in either.poll(left * 1000)]
        return peer.fileno() in found and self._wake.fileno() not in found

    def answers(self, asked: str) -> list[dict[str, Any]]:
        """Answer one line. From any thread."""
        ask: Callable[[], list[dict[str, Any]]] | None = {"ping": list, "stacks": self._stacks}.get(asked)
        if ask is None:
            return [{"error": {"code": "unknown-command", "message": "ask `ping` or `stacks`"}}]
        ago = self._lag.ticked_ago()
        head = {
            "name": self._name, "pid": os.getpid(), "unix": time.time(), "ticked_ago": round(ago, 6),
            "hanging": ago > HANGING, "threads": threading.active_count(),
        }  # fmt: skip
        return [head, *ask()]

    def _stacks(self) -> list[dict[str, Any]]:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        found = []
        for number, newest in sys._current_frames().items():  # noqa: SLF001 -- there is no other way
            frames: list[list[Any]] = []
            frame: FrameType | None = newest
            while frame is not None and len(frames) < _DEPTH:
                code = frame.f_code
                frames.append([code.co_filename, frame.f_lineno, code.co_qualname])
                frame = frame.f_back
            where = {"thread": names.get(number, "unknown"), "loop": number == self._loop, "frames": frames}
            found.append(where)
        # the loop's own first: it is what one asks for
        return sorted(found, key=lambda one: not one["loop"])
