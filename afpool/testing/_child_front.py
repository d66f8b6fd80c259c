"""The stdio front: one JSON-RPC message per line, whoever carries the bytes.

Rules and invariants:

* Messages are handled as `_front.py` says; a line is one.
* A scripted exit is immediate: like a crash it loses what the writer has not written.
* The child ends at the end of its input, unless a script makes it ignore that.
* Nothing but `exit` knows what carries the child: a process of its own (`_stdio.py`), or a task of this one.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import trio

from ._actions import Answering, Drop, RawBytes, Truncate
from ._envelope import notification
from ._front import StreamFront

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._engine import Engine
    from ._script import StdioScript

_READ = 65536
_FLOOD_AHEAD = 4


class _ExitError(BaseException):
    """The child has exited: nothing of it runs on."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ChildFront(StreamFront):
    """One child, from its start to its exit.

    Attributes:
        gone: It has exited.
        idle: No line is being answered; never true, since nobody can tell from outside.

    Args:
        script: What it does wrong. Read as it goes on, so a change counts at once.
        engine: What the server is.
        stdin: Its input; closed by whoever runs this.
        stdout: Its output; closed likewise.
        peer: Tells its requests from those of others.
        connection: Its number in the ledger.
        environment: What it was started with; stands in the ledger as headers do elsewhere.
    """

    idle = False

    def __init__(
        self,
        script: StdioScript,
        engine: Engine,
        stdin: trio.abc.ReceiveStream,
        stdout: trio.abc.SendStream,
        *,
        peer: str = "stdio",
        connection: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(engine, peer, connection=connection)
        self.headers = environment or {}
        self.joins = True
        self.gone = False
        self._script = script
        self._stdin = stdin
        self._stdout = stdout
        self._scope = trio.CancelScope()
        self._code = 0
        # What to write, and whether it is an answer, or the last thing before a scripted exit.
        self._outbox, self._queue = trio.open_memory_channel[tuple[bytes, str]](math.inf)
        self._written = trio.lowlevel.ParkingLot()  # who waits for less to be queued
        self._answers = 0
        self._doomed = False
        self._opened = False

    # Life

    async def run(self) -> int:
        """Serve until the end of the input or an exit; says with which code. Cancelled, it just ends."""
        for line in self._script.garbage:
            self._outbox.send_nowait((line.encode() + b"\n", ""))
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._write_all)
                await self._read_all(nursery)
                await self.linger()
                nursery.cancel_scope.cancel()
        except* _ExitError as group:
            self._code = _first(group)
        finally:
            self.gone = True
            self.forget_streams()
        return self._code

    async def linger(self) -> None:
        """The input has ended. A child that ignores that goes on until somebody ends it."""
        if self._script.ignore_eof:
            await trio.sleep_forever()

    def exit(self, code: int) -> NoReturn:
        """End now, whatever is under way."""
        self.gone = True
        raise _ExitError(code)

    def close(self, *, reset: bool = False) -> None:
        """Let it exit with code 1, from outside."""
        del reset
        if not self.gone:
            self.gone = True
            self._code = 1
            self._scope.cancel()

    def kill(self) -> None:
        """See `close`: a child ends with all that runs for it."""
        self.close()

    async def _read_all(self, nursery: trio.Nursery) -> None:
        pieces: list[bytes | bytearray] = []
        # Input that breaks off is input that has ended.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._stdin.receive_some(_READ):
                head, *lines = data.split(b"\n")
                pieces.append(head)
                for line in lines:
                    self._take(b"".join(pieces), nursery)
                    pieces = [line]

    async def _write_all(self) -> None:
        with suppress(trio.BrokenResourceError):
            async for data, kind in self._queue:
                await self._stdout.send_all(data)
                self._written.unpark_all()
                self._answers += kind == "answer"
                if kind == "exit" or self._answers == self._script.exit_after:
                    self.exit(self._script.exit_code)

    def queue(self, data: bytes, kind: str) -> None:
        self._outbox.send_nowait((data + b"\n", kind))

    async def drained(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._outbox.statistics().current_buffer_used > _FLOOD_AHEAD:
            await self._written.park()

    async def misbehave(self, action: Answering, usual: bytes) -> None:
        match action:
            case Truncate():
                end = len(usual) // 2 if action.at is None else action.at
                self._outbox.send_nowait((usual[:end], "exit"))
            case RawBytes():
                self._outbox.send_nowait((action.data, "answer"))
            case Drop():
                self.exit(action.exit_code)
        await trio.lowlevel.checkpoint()

    # Messages

    def _take(self, line: bytes, nursery: trio.Nursery) -> None:
        if self._doomed:
            self.exit(1)
        if not line.strip():
            return
        arrival, message = self.file(line)
        if arrival.method == "server/discover":
            if self._script.exit_on_probe is True:
                self.exit(1)
            self._doomed = self._script.exit_on_probe == "next"
            if self._doomed or self._script.silent_probe:
                return
        self.take(arrival, message, nursery)

    def opened(self) -> None:
        if not self._opened and self._script.big_line:
            text = {"level": "info", "data": "x" * self._script.big_line}
            self.send(notification("notifications/message", text))
        self._opened = True


def check_stdio_actions(engine: Engine) -> None:
    """Refuse rules that mean nothing on stdio. Raises ValueError."""
    for rule in engine.rules.rules:
        if not rule.action.on_stdio:
            raise ValueError(f"{type(rule.action).__name__} has no meaning on stdio")


def _first(group: BaseExceptionGroup[_ExitError]) -> int:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, _ExitError)
    return error.code
