"""`FakeServer`: an MCP server over real loopback HTTP or WebSocket whose every misbehaviour is scripted."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import trio

from ._door import Door, MemoryDoor
from ._engine import Engine, Eras
from ._http import HttpConnection
from ._ledger import Arrival, ChildLog, Execution, read_log_file
from ._line import Line, socket_line, stream_line
from ._replies import Kept, Reply
from ._scripted import Scripted
from ._seen import Seen
from ._service import Service
from ._sse_front import SseFront
from ._websocket import WebSocketManners, WsConnection

if TYPE_CHECKING:
    import ssl
    from collections import Counter

    from ._envelope import Dialect, Message, RpcId
    from ._exchange import Advertise, LostSpelling
    from ._offers import Offers
    from ._tools import FakeTool

AnswerMode: TypeAlias = Literal["json", "sse", "json-chunked"]
Connection: TypeAlias = HttpConnection | WsConnection
Route: TypeAlias = Callable[[HttpConnection, str, Mapping[str, str], bytes], Awaitable[Reply]]


class FakeServer(Scripted, Seen, Service):
    """A scripted MCP server over HTTP or WebSocket, for tests of agents and of the pool.

    Build one with `FakeServer.http(...)` or `FakeServer.ws(...)` and enter it (`async with`), or run it in a
    nursery of your own: `await nursery.start(server.run)`. It runs once. Time is trio's clock throughout, so
    a test under `trio.testing.MockClock` waits for nothing.

    Everything may be changed while it runs; a change counts from the next request on.

    Attributes:
        log: Every `Arrival`, in order, whatever became of it.
        executed: Every `Execution` of a tool, in order: what really ran.
        executions: How often each tool ran.
        cancelled: The ids of calls that the client gave up: by `notifications/cancelled`, or (stateless
            era) by closing the response before it was answered.
        client_answers: The client's answers to our requests, in order.
        violations: Faults of the client that real servers tolerate, in words.
        advertise: What the server says about itself and its lists.
        answer: `json`, `sse`, or `json-chunked` (no content length).
        strict: Refuse a POST without the content type (415) or the two media types to accept (406).
        get_stream: Whether the handshake era's GET stream exists; 405 if not.
        keep_alive_max_requests: Close each connection, saying so, after that many requests.
        ssl_context: For TLS; counts for new connections.
        path: Where it serves; other targets are answered 404.
        sse: The HTTP+SSE transport, where it is served, or None: `endpoint` is what its stream says first
            (`{}` is the session id), `accept_late` holds each POST until its answer is out.
        websocket: How WebSockets are treated; None where HTTP is served.
        offers: What there is beside tools; empty by default. See `Offers`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        answer: AnswerMode = "json",
        path: str = "/mcp",
        strict: bool = True,
        uds: str | None = None,
        websocket: WebSocketManners | None = None,
        memory: bool = False,
    ) -> None:
        super().__init__()
        self.engine = engine
        self.websocket = websocket
        self.ledger = engine.ledger
        self.log: list[Arrival] = engine.ledger.arrivals
        self.executed: list[Execution] = engine.ledger.executed
        self.executions: Counter[str] = engine.ledger.executions
        self.cancelled: list[RpcId] = engine.ledger.cancelled
        self.client_answers: list[Message] = engine.ledger.client_answers
        self.violations: list[str] = engine.ledger.violations
        self.advertise: Advertise = engine.advertise
        self.offers: Offers = engine.offers
        self.path = path
        self.ssl_context = ssl_context
        self.answer: AnswerMode = answer
        self.strict = strict
        self.get_stream = True
        self.keep_alive_max_requests: int | None = None
        self.routes: dict[str, Route] = {}
        self.kept: list[Kept] = []
        self.sse: SseFront | None = None
        self._nursery: trio.Nursery | None = None
        self._door: Door | MemoryDoor = MemoryDoor(host, port or 80) if memory else Door(host, port, uds)
        self._started = False
        # In the order in which they came: a set's order would differ from run to run.
        self._open: dict[Connection, None] = {}
        self._alive: dict[Connection, None] = {}
        self._connections_total = 0
        self._connections_peak = 0

    @classmethod
    def http(
        cls,
        *,
        era: Eras = "handshake",
        tools: Sequence[FakeTool] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        answer: AnswerMode = "json",
        sessions: bool = True,
        dialect: Dialect = "python",
        path: str = "/mcp",
        strict: bool = True,
        advertise: Advertise | None = None,
        uds: str | None = None,
        streaming: Literal["streamable", "sse"] = "streamable",
        memory: bool = False,
        ids: Callable[[], str] | None = None,
    ) -> Self:
        """Make a server; it listens once it runs.

        Args:
            era: `handshake`, `stateless` (2026-07-28) or `both`.
            tools: The tools; one `echo_tool()` by default.
            host: A numeric address to listen on.
            port: A fixed port, or 0 for a free one.
            ssl_context: Serve TLS.
            answer: How a request is answered; a call that reports progress is always answered as a stream.
            sessions: Whether the handshake era has session ids; without them there is no GET stream either.
            dialect: Whose way of refusing to imitate, of the Python or the TypeScript SDK.
            path: Where to serve.
            strict: See the attribute.
            advertise: See `Advertise`.
            uds: Listen on a Unix socket at this path instead; `url` then names `localhost`.
            streaming: `sse` is the HTTP+SSE transport of 2024-11-05: the stream is at `path`, the rest is
                told by the attribute `sse`. It knows the handshake era only.
            memory: Open no socket; connections come by `serve_stream`. `host` and `port` are names then.
            ids: Makes session ids; unguessable ones by default.

        Raises:
            ValueError: HTTP+SSE and the stateless era do not go together.
        """
        if streaming == "sse" and era != "handshake":
            raise ValueError("HTTP+SSE knows the handshake era only")
        engine = Engine(era, tools, dialect=dialect, sessions=sessions, advertise=advertise, ids=ids)
        server = cls(
            engine, host=host, port=port, ssl_context=ssl_context, answer=answer, path=path, strict=strict,
            uds=uds, memory=memory,
        )  # fmt: skip
        if streaming == "sse":
            server.sse = SseFront(server)
        return server

    @classmethod
    def ws(
        cls,
        *,
        era: Eras = "handshake",
        tools: Sequence[FakeTool] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        dialect: Dialect = "python",
        path: str = "/mcp",
        advertise: Advertise | None = None,
        subprotocol: str | None = "mcp",
        memory: bool = False,
    ) -> Self:
        """Make a server that speaks over WebSocket; the session is the connection. Else as `http`.

        Rules for `GET` decide the upgrade: `Status` refuses it.

        Args:
            era: As in `http`; with `both` the first exchange of a connection decides its era.
            tools: As in `http`.
            host: As in `http`.
            port: As in `http`.
            ssl_context: Serve TLS, `wss://`.
            dialect: As in `http`.
            path: As in `http`.
            advertise: See `Advertise`.
            subprotocol: What is chosen; None chooses none.
            memory: As in `http`.
        """
        engine = Engine(era, tools, dialect=dialect, sessions=False, advertise=advertise)
        manners = WebSocketManners(subprotocol)
        return cls(
            engine, host=host, port=port, ssl_context=ssl_context, path=path, websocket=manners, memory=memory
        )

    @staticmethod
    def stdio_command(
        script: Mapping[str, Any] | None = None,
        *,
        era: Eras = "handshake",
        log: str | Path | None = None,
    ) -> list[str]:
        """The command line of a scripted child that speaks MCP over stdio.

        It names the program by its path, so that it runs in any directory and environment.

        Args:
            script: See `afpool.testing.StdioScript`; plain JSON, no secrets: other users of the machine can
                read a command line. A long one is better put in a file: `{"file": PATH}`.
            era: As in `http`; a member `era` of the script goes first.
            log: File to which the child appends what it saw; read it with `read_log`.
        """
        command = [sys.executable, str(Path(__file__).with_name("__main__.py")), "stdio"]
        if script is not None and set(script) == {"file"}:
            command += ["--era", era, "--script", f"@{script['file']}"]
        else:
            command += ["--script", json.dumps({"era": era, **(script or {})})]
        if log is not None:
            command += ["--log", str(log)]
        return command

    @staticmethod
    def read_log(path: str | Path) -> list[Arrival]:
        """The arrivals in a child's log so far; none if it has not begun. Reads the file, blocking."""
        return read_log_file(path).arrivals

    @staticmethod
    def read_child_log(path: str | Path) -> ChildLog:
        """All that a child has written down so far. Reads the file, blocking."""
        return read_log_file(path)

    # Running

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
        """Take one more connection, on any stream of bytes; served in the background until either side closes.

        A stream with a synchronous `close` (and `reset`) is ended by them, others by `aclose` a moment later.

        Raises:
            ConnectionRefusedError: The server does not run, or `refuse_connections` was called.
        """
        if self._nursery is None or not self._door.is_open:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the server takes no connections")
        self._connected(stream_line(stream, self.ssl_context, self.start_soon))

    def _connected(self, line: Line) -> None:
        self._connections_total += 1
        kind = HttpConnection if self.websocket is None else WsConnection
        connection: Connection = kind(self, line, self._connections_total)
        self._open[connection] = self._alive[connection] = None
        self._connections_peak = max(self._connections_peak, len(self._open))
        self.start_soon(self._serve, connection)
        self.ledger.wake()

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
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

    # Where it is

    @property
    def port(self) -> int:
        """The port; raises RuntimeError before it is known."""
        if self._door.port == 0:
            raise RuntimeError("the server does not listen yet")
        return self._door.port

    @property
    def url(self) -> str:
        """The endpoint's address."""
        host = f"[{self._door.host}]" if ":" in self._door.host else self._door.host
        scheme = "http" if self.websocket is None else "ws"
        if self.ssl_context is not None:
            scheme += "s"
        if self._door.uds is not None:
            return f"{scheme}://localhost{self.path}"
        return f"{scheme}://{host}:{self.port}{self.path}"

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
