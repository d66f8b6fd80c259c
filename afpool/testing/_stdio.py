"""The stdio front: a child process that speaks one JSON-RPC message per line.

Rules and invariants:

* A line is filed when it has been read; notifications are taken in at once (unless a rule concerns them),
  requests each in a task of their own, so a slow tool holds up nobody. Requests that come in one piece
  may be served in any order.
* Everything that leaves goes through one queue and one writer: lines never mix.
* A scripted exit is immediate (`os._exit`): like a crash it loses what the writer has not written.
* The child ends at the end of stdin, or with its parent where a script makes it ignore that.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from ._actions import (
    SAME_ID,
    Answering,
    Body,
    Drop,
    JsonRpcError,
    RawBytes,
    Result,
    Truncate,
)
from ._envelope import PARSE_ERROR, Message, encode, error_message, notification, result_message
from ._exchange import Exchange, Listener, Session
from ._script import StdioScript, build_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._engine import Engine
    from ._ledger import Arrival

_READ = 65536
_PEER = "stdio"


class _StdioExchange(Exchange):
    __slots__ = ("_server",)

    def __init__(self, server: _StdioServer, arrival: Arrival) -> None:
        era = server.engine.era_of(arrival, server.session)
        super().__init__(arrival, era, server.session, _PEER)
        self._server = server

    async def emit(self, message: Message) -> None:
        self._server.send(message)
        await trio.lowlevel.checkpoint()


class _StdioServer:
    def __init__(self, script: StdioScript, engine: Engine) -> None:
        self.engine = engine
        self.session = Session(None)
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

    def send(self, message: Message, kind: str = "") -> None:
        self._outbox.send_nowait((encode(message) + b"\n", kind))

    # Messages

    def _take(self, line: bytes, nursery: trio.Nursery) -> None:
        if self._doomed:
            self.exit(1)
        if not line.strip():
            return
        message: Any = None
        with suppress(ValueError):
            message = json.loads(line)
        engine = self.engine
        arrival = engine.ledger.arrive(message, line)
        if arrival.method == "server/discover":
            if self._script.exit_on_probe is True:
                self.exit(1)
            self._doomed = self._script.exit_on_probe == "next"
            if self._doomed or self._script.silent_probe:
                return
        if arrival.kind == "invalid":
            self.send(error_message(None, PARSE_ERROR, "Parse error"))
            return
        exchange = _StdioExchange(self, arrival)
        if arrival.kind == "request":
            engine.begin(exchange)
        elif not engine.rules.concern(arrival):
            # In the reader's own step: what follows on the line may depend on it.
            self._take_in(exchange, message)
            return
        nursery.start_soon(self._handle, exchange, message)

    def _take_in(self, exchange: Exchange, message: Message) -> None:
        if exchange.arrival.kind == "response":
            self.engine.resolve(message)
        else:
            self.engine.notified(exchange)

    async def _handle(self, exchange: Exchange, message: Message) -> None:
        engine, arrival = self.engine, exchange.arrival
        is_request = arrival.kind == "request"
        try:
            with exchange.scope:
                action = await engine.rules.decide(arrival)
                if action is not None:
                    await self._scripted(exchange, action, message)
                elif is_request:
                    answer = await self._respond(exchange)
                    exchange.cancellable = False
                    self._answer(exchange, answer)
                else:
                    self._take_in(exchange, message)
            if exchange.scope.cancelled_caught and (late := engine.cancelled_answer(exchange)) is not None:
                self.send(late.message, "answer")
        finally:
            if is_request:
                engine.end(exchange)

    async def _respond(self, exchange: Exchange) -> Message:
        answer = await self.engine.respond(exchange)
        if answer.listen is not None:
            self._listen(exchange, answer.listen)
        return answer.message

    def _listen(self, exchange: Exchange, methods: frozenset[str]) -> None:
        subscription = exchange.arrival.id

        def finish(final: Message | None) -> None:
            self.engine.streams.remove(listener)
            self.send(
                notification("notifications/cancelled", {"requestId": subscription})
                if final is None
                else final
            )

        listener = Listener(self.send, finish, subscription_id=subscription, methods=methods)
        self.engine.streams.add(listener)

    def _answer(self, exchange: Exchange, message: Message) -> None:
        self.send(message, "answer")
        method = exchange.arrival.method
        if method not in {"initialize", "server/discover"} or "error" in message:
            return
        if method == "initialize" and self.session.listener is None:
            self.engine.streams.add(Listener(self.send, _stays_open, session=self.session))
        if not self._opened and self._script.big_line:
            text = {"level": "info", "data": "x" * self._script.big_line}
            self.send(notification("notifications/message", text))
        self._opened = True

    async def _scripted(self, exchange: Exchange, action: Answering, message: Message) -> None:
        is_request = exchange.arrival.kind == "request"
        usual: Message | None = None
        if action.after_execution or isinstance(action, Truncate):
            if is_request:
                usual = await self._respond(exchange)
            else:
                self._take_in(exchange, message)
        exchange.cancellable = False
        rpc_id = exchange.arrival.id
        match action:
            case Drop():
                self.exit(action.exit_code)
            case Truncate():
                line = b"" if usual is None else encode(usual)
                end = len(line) // 2 if action.at is None else action.at
                self._outbox.send_nowait((line[:end], "exit"))
            case RawBytes():
                self._outbox.send_nowait((action.data, "answer"))
            case Body():
                self._outbox.send_nowait((action.data + b"\n", "answer"))
            case Result():
                answer_id = rpc_id if action.id is SAME_ID else action.id
                self._answer(exchange, result_message(answer_id, action.result))
            case JsonRpcError():
                answer_id = rpc_id if action.id is SAME_ID else action.id
                self.send(error_message(answer_id, action.code, action.message, action.data), "answer")
            case _:
                # Hang and HoldStream: never an answer.
                return


def _stays_open(final: Message | None) -> None:
    """A child's stdout ends with the child only."""
    del final


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
