"""How a fake server runs: it takes connections, from a socket or handed over, serves and ends them."""

from __future__ import annotations

import errno
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import trio

from ._child_front import ChildFront
from ._http import HttpConnection
from ._line import Line, socket_line, stream_line
from ._service import Service
from ._websocket import WsConnection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from ._door import Door, MemoryDoor
    from ._engine import Engine
    from ._exchange import LostSpelling
    from ._ledger import Ledger
    from ._script import StdioScript
    from ._websocket import WebSocketManners

Connection: TypeAlias = HttpConnection | WsConnection | ChildFront


class Serving(Service):
    """The half of a fake server that has connections.

    Attributes:
        engine: The MCP half.
        ledger: Where everything is filed.
        ssl_context: See `FakeServer`.
        websocket: See `FakeServer`.
        child: See `FakeServer`.

    Args:
        door: Where connections come in.
    """

    engine: Engine
    ledger: Ledger
    ssl_context: ssl.SSLContext | None
    websocket: WebSocketManners | None
    child: StdioScript | None

    def __init__(self, door: Door | MemoryDoor) -> None:
        super().__init__()
        self._door = door
        self._started = False
        # In the order in which they came: a set's order would differ from run to run.
        self._open: dict[Connection, None] = {}
        self._alive: dict[Connection, None] = {}
        self._connections_total = 0
        self._connections_peak = 0

    @abstractmethod
    def _connection(self, line: Line, number: int) -> HttpConnection | WsConnection:
        """A connection of this server's kind."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports started when it listens.

        Raises:
            RuntimeError: It has run before.
            OSError: The address cannot be listened on.
        """
        if self._started:
            raise RuntimeError("a FakeServer runs once; make a new one")
        self._started = True
        await self.accept_connections()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await self._accept()
        finally:
            self.refuse_connections()

    async def _accept(self) -> None:
        while True:
            self._connected(socket_line(await self._door.accept(), self.ssl_context))

    def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Take one more connection, on any stream; served in the background until either side closes.

        A stream with a synchronous `close` (and `reset`) is ended by them, others by `aclose` a moment later.

        Raises:
            ConnectionRefusedError: The server does not run, or `refuse_connections` was called.
        """
        self._check_taking()
        self._connected(stream_line(stream, self.ssl_context, self.start_soon))

    async def serve_child(
        self,
        stdin: trio.abc.ReceiveStream,
        stdout: trio.abc.SendStream,
        stderr: trio.abc.SendStream | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Be one child of this server until it exits, and say with which code. Cancelled, it is killed.

        Args:
            stdin: Its input; whoever made the streams closes them.
            stdout: Its output.
            stderr: Where a scripted `stderr_flood` goes.
            environment: What it was started with; stands in the ledger as headers do elsewhere.

        Raises:
            ConnectionRefusedError: As `serve_stream`.
        """
        assert self.child is not None, "a server made by `FakeServer.stdio`"
        self._check_taking()
        number = self._connections_total + 1
        front = ChildFront(
            self.child, self.engine, stdin, stdout,
            peer=f"child-{number}", connection=number, environment=environment,
        )  # fmt: skip
        self._count_in(front)
        try:
            if stderr is not None and self.child.stderr_flood:
                with suppress(trio.BrokenResourceError):
                    await stderr.send_all(b"x" * (self.child.stderr_flood - 1) + b"\n")
            return await front.run()
        finally:
            self.connection_lost(front)
            self._count_out(front)

    @property
    def accepting(self) -> bool:
        """Whether it runs and takes connections (and starts children)."""
        return self._nursery is not None and self._door.is_open

    def _check_taking(self) -> None:
        if not self.accepting:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the server takes no connections")

    def _connected(self, line: Line) -> None:
        connection = self._connection(line, self._connections_total + 1)
        self._count_in(connection)
        self.start_soon(self._serve, connection)

    async def _serve(self, connection: HttpConnection | WsConnection) -> None:
        try:
            await connection.run()
        finally:
            self._count_out(connection)

    def _count_in(self, connection: Connection) -> None:
        self._connections_total += 1
        self._open[connection] = self._alive[connection] = None
        self._connections_peak = max(self._connections_peak, len(self._open))
        self.ledger.wake()

    def _count_out(self, connection: Connection) -> None:
        self._alive.pop(connection, None)
        self.ledger.wake()

    def start_soon(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """For the front itself: run something that outlives its connection."""
        assert self._nursery is not None
        self._nursery.start_soon(fn, *args)

    def connection_lost(self, connection: Connection) -> None:
        """For the connection itself: either side has closed it."""
        self._open.pop(connection, None)
        self.ledger.wake()

    # Its connections

    @property
    def connections(self) -> int:
        """How many TCP connections are open now."""
        return len(self._open)

    @property
    def connections_total(self) -> int:
        """How many TCP connections there have been."""
        return self._connections_total

    @property
    def connections_peak(self) -> int:
        """How many TCP connections were open at once, at most."""
        return self._connections_peak

    # What befalls it

    async def restart(self, spelling: LostSpelling = "404", *, spare: HttpConnection | None = None) -> None:
        """As if the process had died and come back: every connection, run and session ends, the port stays.

        Rules, tools and the log stay. Returns when everything has ended.
        """
        ending = [connection for connection in self._alive if connection is not spare]
        for connection in ending:
            connection.kill()
        self.engine.forget_sessions(spelling)
        await self.ledger.wait_until(lambda: not any(connection in self._alive for connection in ending))

    def close_connections(self, *, reset: bool = False) -> int:
        """Close every open connection now, whatever it is doing; says how many. Sessions stay."""
        closing = tuple(self._open)
        for connection in closing:
            connection.close(reset=reset)
        return len(closing)

    def close_idle_connections(self) -> int:
        """Close the connections that carry no request now, before they are used again; says how many."""
        closing = [connection for connection in self._open if connection.idle]
        for connection in closing:
            connection.close()
        return len(closing)

    def refuse_connections(self) -> None:
        """Stop listening: new connections are refused, those that are open stay."""
        self._door.shut()

    async def accept_connections(self) -> None:
        """Listen again, on the same port. Raises OSError if it has been taken in the meantime."""
        await self._door.open()
