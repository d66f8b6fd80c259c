"""The stdio front: a child process that speaks one JSON-RPC message per line.

Rules and invariants:

* Messages are handled as `_front.py` says; a line is one.
* A scripted exit is immediate (`os._exit`): like a crash it loses what the writer has not written.
* The child ends at the end of stdin, or with its parent where a script makes it ignore that.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import trio

from ._actions import Answering, Drop, RawBytes, Truncate
from ._envelope import encode, notification
from ._front import StreamFront
from ._script import StdioScript, build_engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._engine import Engine

_READ = 65536
_FLOOD_AHEAD = 4


class _StdioServer(StreamFront):
    def __init__(self, script: StdioScript, engine: Engine) -> None:
        super().__init__(engine, "stdio")
        self.joins = True
        self._script = script
        # What to write, and whether it is an answer, or the last thing before a scripted exit.
        self._outbox, self._queue = trio.open_memory_channel[tuple[bytes, str]](math.inf)
        self._answers = 0
        self._doomed = False
        self._opened = False

    # Life

    async def run(self) -> None:
        parent = os.getppid()
        for line in self._script.garbage:
            self._outbox.send_nowait((line.encode() + b"\n", ""))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_all)
            await self._read_all(nursery)
            # Nothing wakes a process when its parent dies, so this looks.
            while self._script.ignore_eof and os.getppid() == parent:  # noqa: ASYNC110 - see above
                await trio.sleep(0.2)
            nursery.cancel_scope.cancel()

    async def _read_all(self, nursery: trio.Nursery) -> None:
        pieces: list[bytes | bytearray] = []
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            while data := await stdin.receive_some(_READ):
                head, *lines = data.split(b"\n")
                pieces.append(head)
                for line in lines:
                    self._take(b"".join(pieces), nursery)
                    pieces = [line]

    async def _write_all(self) -> None:
        with suppress(trio.BrokenResourceError):
            async with trio.lowlevel.FdStream(os.dup(1)) as stdout:
                async for data, kind in self._queue:
                    await stdout.send_all(data)
                    self._answers += kind == "answer"
                    if kind == "exit" or self._answers == self._script.exit_after:
                        self.exit(self._script.exit_code)

    def exit(self, code: int) -> NoReturn:
        # Not sys.exit: a crash runs no clean-up and waits for no task.
        os._exit(code)

    def queue(self, data: bytes, kind: str) -> None:
        self._outbox.send_nowait((data + b"\n", kind))

    async def drained(self) -> None:
        # The queue has no room to wait for, so this looks.
        while self._outbox.statistics().current_buffer_used > _FLOOD_AHEAD:  # noqa: ASYNC110 - see above
            await trio.sleep(0.001)
        await trio.lowlevel.checkpoint()

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


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def run_stdio(script: StdioScript, log: str | None) -> None:
    """Serve on stdin and stdout until stdin ends; blocks.

    Args:
        script: What to be.
        log: File to append to, one JSON object per line, each in one write.
    """
    engine = build_engine(script)
    check_stdio_actions(engine)
    if script.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if log is not None:
        descriptor = _open_log(log)

        def sink(entry: Mapping[str, Any]) -> None:
            os.write(descriptor, encode(entry) + b"\n")

        sink({"process": {"role": "server", "pid": os.getpid()}})
        engine.ledger.sink = sink
    if script.fork_child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        if engine.ledger.sink is not None:
            engine.ledger.sink({"process": {"role": "child", "pid": child.pid}})
    left = script.stderr_flood
    while left > 0:
        left -= os.write(2, b"x" * (min(left, 4096) - 1) + b"\n")
    trio.run(_StdioServer(script, engine).run)
