"""One HTTP request on one connection, and who owns it until it has settled.

A request is written in one piece under its gate, and its exchange outlives the task that began it:

* Before the kernel took a byte (`begun` is false) whatever happens leaves nothing behind: the connection
  goes back, or is closed when it was half open, and the place on the lane is free again.
* After it, a task that is cancelled or woken leaves the exchange *held*. Its connection and its place
  stay with it until somebody calls `finish`, in any task, or `close`. Neither may be forgotten.
* A request that was written in part when its task went away is not completed: its connection is closed,
  and a server that got half a request runs nothing.
* Who is woken first reads what has come: an answer that was there goes first, whoever slept.
* Everything but connecting and waiting for a place runs without a scope: a deadline is kept by whoever
  calls `wake`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import trio

from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._connection import BadHttp, HttpConnection, Sink, Truncated
from afpool.transports._wire import WireClosed, Woken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from afpool._base.gate import Gate
    from afpool.transports._http import HttpLink
    from afpool.transports._lane import Lane
    from afpool.transports._request import HttpRequest

_AT_LAST: Final = 16  # reads of what has come, when no more is waited for


class _Phase(Enum):
    NEW = "new"
    RUNNING = "running"
    HELD = "held"
    DONE = "done"


class HttpExchange:
    """One request and its answer. Made by `HttpLink.exchange`.

    Attributes:
        begun: The kernel took a byte of the request.
        complete: The sink has its answer, or the message ended.
    """

    __slots__ = (
        "_closed",
        "_connection",
        "_gate",
        "_lane",
        "_link",
        "_phase",
        "_placed",
        "_request",
        "_scope",
        "_sink",
        "_wake_asked",
        "_written",
        "begun",
        "complete",
    )

    def __init__(self, link: HttpLink, request: HttpRequest, sink: Sink, lane: Lane) -> None:
        self.begun = False
        self.complete = False
        self._link = link
        self._request = request
        self._sink = sink
        self._lane = lane
        self._gate: Gate | None = None
        self._connection: HttpConnection | None = None
        self._scope: trio.CancelScope | None = None
        self._phase = _Phase.NEW
        self._placed = False
        self._written = False
        self._wake_asked = False
        self._closed = False

    @property
    def held(self) -> bool:
        """Whether `finish` or `close` must be called."""
        return self._phase is _Phase.HELD

    async def run(self, gate: Gate, deadline: float) -> None:
        """Send the request and read its answer into the sink.

        Args:
            gate: Asked `connect` after a connection was made for this request, and `write` in the step
                that hands its first byte to the kernel.
            deadline: On trio's clock; holds while waiting for a place and while connecting. Later waits
                end by `wake`.

        Raises:
            ConnectFailed: No connection; nothing was sent.
            WireClosed: The connection broke, or `close` was called; `begun` says whether bytes left.
            Truncated: The answer ended early.
            BadHttp: The answer is not HTTP/1.1.
            Woken: `wake` was called. `held` says whether the exchange waits for `finish`.
            trio.Cancelled: Likewise.
            Unsendable: The request cannot be said in HTTP/1.1; nothing was sent.
            Exception: What the gate raised (nothing was sent), or the sink.
        """
        if self._phase is not _Phase.NEW:
            raise RuntimeError("an exchange runs once")
        self._phase = _Phase.RUNNING
        self._gate = gate
        link = self._link
        try:
            link.enter(self)
            if not self._lane.take():
                await self._scoped(self._lane.wait, deadline, "no connection became free in time")
            self._placed = True
            self._check_wanted()
            connection = link.take_idle()
            if connection is None:
                await self._scoped(self._connect, deadline, "no connection to the server came about in time")
                self._check_wanted()
                gate.ask("connect")
                connection = self._connection
                assert connection is not None
            else:
                self._connection = connection
            try:
                # The bytes are held by no frame of ours: a failure carries its frames, and they their locals.
                await connection.wire.send(connection.encode(self._request, link.host), self)
            except WireClosed as error:
                if error.local or not self.begun:
                    raise
                await self._read_early_answer(error)
                return
            self._written = True
            await self._read()
        except BaseException as error:
            self._stopped(error)
            raise

    async def finish(self) -> None:
        """Read the rest of a held exchange, in whatever task; raises what `run` raises.

        A request that was written in part ends here: its connection is closed and `WireClosed` (local)
        raised. Cancelled or woken, the exchange is held again.
        """
        if self._phase is not _Phase.HELD:
            raise RuntimeError("only an exchange that is held can be finished")
        if not self._written:
            self._end(reusable=False)
            raise WireClosed("a request written in part was given up", local=True)
        self._phase = _Phase.RUNNING
        try:
            await self._read()
        except BaseException as error:
            self._stopped(error)
            raise

    def wake(self) -> None:
        """Make the task in `run` or `finish` come back with `Woken`; nothing when there is none.

        Also where that task is not waiting just now (the sink is being told): then at its next wait.
        """
        if self._phase is _Phase.RUNNING:
            self._wake_asked = True
            if self._scope is not None:
                self._scope.cancel()
            elif self._connection is not None:
                self._connection.wire.wake()

    def close(self) -> None:
        """Drop the connection. A task in `run` or `finish` gets `WireClosed(local=True)`."""
        self._closed = True
        if self._phase is _Phase.RUNNING:
            if self._scope is not None:
                self._scope.cancel()
            if self._connection is not None:
                self._connection.wire.close()
        elif self._phase is not _Phase.DONE:
            self._end(reusable=False)

    def ask(self, stage: str, /) -> None:
        """Ask the request's own gate; the wire's side of this object."""
        assert self._gate is not None
        self._gate.ask(stage)

    def began(self) -> None:
        """Note that the kernel took a byte; the wire's side of this object."""
        self.begun = True
        assert self._gate is not None
        self._gate.began()

    async def _scoped(self, wait: Callable[[], Awaitable[None]], deadline: float, late: str) -> None:
        """Await what comes before the first byte, within the deadline and open to `wake` and `close`."""
        with trio.CancelScope(deadline=deadline) as scope:
            self._scope = scope
            try:
                await wait()
            finally:
                self._scope = None
        if scope.cancelled_caught:
            self._check_wanted()
            raise ConnectFailed("timeout", late)

    async def _connect(self) -> None:
        link = self._link
        wire = await link.connector.connect(link.origin)
        self._connection = link.opened(wire)

    def _check_wanted(self) -> None:
        if self._closed:
            raise WireClosed("the exchange was closed", local=True)
        if self._wake_asked:
            self._wake_asked = False
            raise Woken

    async def _read(self) -> None:
        connection = self._connection
        assert connection is not None
        receive = connection.wire.receive
        feed = connection.feed
        sink = self._sink
        try:
            try:
                self._check_wanted()
                while not feed(await receive(connection.read_size), sink):
                    connection.wire.hurry()
                    self._check_wanted()
            except Woken:
                if not self._has_come(connection):
                    raise
        except WireClosed as error:
            if error.local or not connection.answering:
                raise
            raise Truncated("the connection broke in the middle of an answer") from error
        self.complete = True
        self._end(reusable=connection.rest(self._link.now()))

    def _has_come(self, connection: HttpConnection) -> bool:
        """Read what the kernel holds already; whether the answer is whole with it.

        Where the loop was held past a deadline, an answer that came in time lies there unread: it goes first.
        """
        for _ in range(_AT_LAST):
            data = connection.wire.receive_nowait(connection.read_size)
            if data is None:
                return False
            if connection.feed(data, self._sink):
                return True
            if self._closed:
                raise WireClosed("the exchange was closed", local=True)
        return False

    async def _read_early_answer(self, broken: WireClosed) -> None:
        """A server may refuse a request before it has read all of it, and close; its answer still counts."""
        connection = self._connection
        assert connection is not None
        try:
            while not connection.feed(await connection.wire.receive(), self._sink):
                pass
        except (WireClosed, Truncated, BadHttp):
            raise broken from None
        self.complete = True
        self._end(reusable=False)

    def _stopped(self, error: BaseException) -> None:
        """Decide what stays after `run` or `finish` was left by an exception."""
        self._wake_asked = False
        connection = self._connection
        if self.begun and isinstance(error, (Woken, trio.Cancelled)) and not self._closed:
            self._phase = _Phase.HELD
        elif connection is not None and not self.begun and not self._closed:
            self._end(reusable=connection.rest_unsent())
        else:
            self._end(reusable=False)

    def _end(self, *, reusable: bool) -> None:
        self._phase = _Phase.DONE
        connection = self._connection
        self._connection = None
        if connection is not None:
            self._link.give_back(connection, reusable=reusable)
        self._link.leave(self)
        if self._placed:
            self._placed = False
            self._lane.give_back()
