"""`FakeServer`: an MCP server over real loopback HTTP or WebSocket whose every misbehaviour is scripted."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import msgspec

from ._child_front import check_stdio_actions
from ._door import Door, MemoryDoor
from ._engine import Engine, Eras
from ._http import HttpConnection
from ._ledger import Arrival, ChildLog, Execution, read_log_file
from ._replies import Kept, Reply
from ._script import StdioScript, build_engine
from ._scripted import Scripted
from ._seen import Seen
from ._serving import Serving
from ._sse_front import SseFront
from ._websocket import WebSocketManners, WsConnection

if TYPE_CHECKING:
    import ssl
    from collections import Counter

    from ._envelope import Dialect, Message, RpcId
    from ._exchange import Advertise
    from ._line import Line
    from ._offers import Offers
    from ._tools import FakeTool

AnswerMode: TypeAlias = Literal["json", "sse", "json-chunked"]
Route: TypeAlias = Callable[[HttpConnection, str, Mapping[str, str], bytes], Awaitable[Reply]]


class FakeServer(Scripted, Seen, Serving):
    """A scripted MCP server over HTTP, WebSocket or stdio, for tests of agents and of the pool.

    Build one with `FakeServer.http(...)`, `FakeServer.ws(...)` or `FakeServer.stdio(...)` and enter it
    (`async with`), or run it in a nursery of your own: `await nursery.start(server.run)`. It runs once. Time
    is trio's clock throughout, so a test under `trio.testing.MockClock` waits for nothing.

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
        child: What a child on stdio does wrong, see `StdioScript`; None over HTTP and WebSocket.
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
        super().__init__(MemoryDoor(host, port) if memory else Door(host, port, uds))
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
        self.child: StdioScript | None = None

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

    @classmethod
    def stdio(
        cls,
        script: Mapping[str, Any] | None = None,
        *,
        era: Eras = "handshake",
        tools: Sequence[FakeTool] | None = None,
        name: str = "fake",
    ) -> Self:
        """Make a server whose children run in this process, on streams: by `serve_child` or `in_memory`.

        All children are one server: they share script, tools and log. A session is one child's.

        Args:
            script: See `StdioScript`; `fork_child` has no meaning here.
            era: As in `http`; a member `era` of the script goes first.
            tools: As in `http`; they replace the script's.
            name: The program in a `StdioTransport` that leads here.

        Raises:
            ValueError: The script does not fit.
        """
        told = msgspec.convert({"era": era, **(script or {})}, StdioScript)
        if told.fork_child:
            raise ValueError("fork_child needs a process of its own; see `stdio_command`")
        engine = build_engine(told)
        check_stdio_actions(engine)
        if tools is not None:
            engine.tools = list(tools)
        server = cls(engine, host=name, memory=True)
        server.child = told
        return server

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

    def _connection(self, line: Line, number: int) -> HttpConnection | WsConnection:
        return (
            HttpConnection(self, line, number) if self.websocket is None else WsConnection(self, line, number)
        )

    # Where it is

    @property
    def host(self) -> str:
        """The address, or with `memory` the name, that it is reached at."""
        return self._door.host

    @property
    def command(self) -> tuple[str, ...]:
        """The command of a `StdioTransport` that leads to a server made by `stdio`."""
        return (self._door.host,)

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
