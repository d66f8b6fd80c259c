"""A user's own httpx transport underneath: HTTP/2, SOCKS, whatever it brings. Off by default.

It offers what `HttpLink` and `HttpExchange` offer, with these differences, which the docs name:

* **The gate is weaker.** It is asked right before `handle_async_request`, in the same step. What the
  transport waits for between that call and its first byte (a connection, a checkpoint) is a window in which a
  gate that closes keeps nothing back.
* **The verdict is cautious.** From that call on a request counts as begun, since nobody tells us of its first
  byte. Only an error that says that no connection came about takes that back.
* The request runs in a task of the link, because the transport would end it with the task that asked; so an
  exchange outlives its caller here as well. The answer passes through a bounded channel and is read by
  whoever runs or finishes the exchange.
* One transport serves one client and is closed with it, by the task that runs the link.
"""

from __future__ import annotations

import contextvars
import math
from typing import TYPE_CHECKING, Any, Final

import httpx
import trio

from afpool.transports._connect_failed import ConnectFailed, ConnectReason
from afpool.transports._connection import MAX_HEAD, BadHttp, Truncated
from afpool.transports._http import LaneName, LinkStatistics
from afpool.transports._lane import Lane
from afpool.transports._request import Unsendable, encode_head
from afpool.transports._wire import WireClosed, Woken

if TYPE_CHECKING:
    from afpool._base.gate import Gate
    from afpool._base.seams import Seams
    from afpool.transports._connection import Headers, Sink
    from afpool.transports._origin import Origin
    from afpool.transports._request import HttpRequest

CLOSING: Final = 2.0
"""Seconds that the transport may take to end a response or to close."""

AHEAD: Final = 8
"""Pieces of an answer that are read ahead of whoever takes them."""

_NO_CONNECTION: Final[dict[type[Exception], ConnectReason]] = {
    httpx.ConnectError: "unreachable",
    httpx.ConnectTimeout: "timeout",
    httpx.PoolTimeout: "timeout",
    httpx.ProxyError: "proxy",
    httpx.UnsupportedProtocol: "unreachable",
}


class _Body(httpx.AsyncByteStream):
    """A body in one piece. httpx's own is an async generator, which warns when a cancelled send drops it."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        data, self._data = self._data, None
        if data is None:
            raise StopAsyncIteration
        return data


class HttpxLink:
    """One client's way over an httpx transport. `run` must run while it is used.

    Args:
        transport: Belongs to this link from now on.
        origin: Whom to talk to.
        seams: The clock.
        limit: How many calls may be on the way at once.
    """

    __slots__ = (
        "_active", "_closed", "_lanes", "_over", "_ready", "_sent", "_transport", "host", "now",
        "nursery", "origin",
    )  # fmt: skip

    def __init__(
        self, transport: httpx.AsyncBaseTransport, origin: Origin, *, seams: Seams, limit: int
    ) -> None:
        self.origin = origin
        self.host = origin.authority
        self.now = seams.now
        self.nursery: trio.Nursery | None = None
        self._transport = transport
        self._lanes = {"call": Lane(limit), "control": Lane(1), "stream": Lane(1), "answer": Lane(1)}
        self._active: dict[HttpxExchange, None] = {}
        self._ready = trio.Event()
        self._over = trio.Event()
        self._closed = False
        self._sent = 0

    async def run(self) -> None:
        """Keep the link until it is closed, then close its transport, within two seconds."""
        try:
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                self._ready.set()
                await self._over.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.close()
            with trio.CancelScope(deadline=trio.current_time() + CLOSING, shield=True):
                await self._transport.aclose()

    def exchange(self, request: HttpRequest, sink: Sink, lane: LaneName = "call") -> HttpxExchange:
        """Make an exchange; nothing happens before its `run`."""
        return HttpxExchange(self, request, sink, self._lanes[lane])

    def statistics(self) -> LinkStatistics:
        """Count; of connections only the transport knows."""
        return LinkStatistics(
            active=len(self._active),
            waiting=sum(lane.waiting for lane in self._lanes.values()),
            idle=0,
            opened=0,
            reused=0,
        )

    def prune(self) -> None:
        """Nothing: idle connections are the transport's."""

    def close(self) -> None:
        """End everything at once; exchanges on the way get `WireClosed(local=True)`."""
        self._closed = True
        for exchange in tuple(self._active):
            exchange.close()
        self._over.set()

    # What exchanges use.

    async def enter(self, exchange: HttpxExchange) -> None:
        """Count an exchange in, once the link runs; a closed link takes none."""
        if not self._closed:
            await self._ready.wait()
        if self._closed:
            raise WireClosed("this client's connections are closed", local=True)
        self._active[exchange] = None

    def leave(self, exchange: HttpxExchange) -> None:
        """Count an exchange out."""
        self._active.pop(exchange, None)

    def send(self, request: httpx.Request) -> Any:
        """Hand a request to the transport."""
        return self._transport.handle_async_request(request)


class HttpxExchange:
    """One request and its answer; see `HttpExchange`. Made by `HttpxLink.exchange`.

    Attributes:
        begun: The transport has the request, and nothing says that it could not connect.
        complete: The sink has its answer, or the message ended.
        held: Whether `finish` or `close` must be called.
    """

    __slots__ = (
        "_answering", "_context", "_end_of_work", "_gate", "_lane", "_link", "_pieces", "_placed", "_request",
        "_scope", "_send", "_sink", "_state", "_wake_asked", "begun", "complete", "held",
    )  # fmt: skip

    def __init__(self, link: HttpxLink, request: HttpRequest, sink: Sink, lane: Lane) -> None:
        self.begun = False
        self.complete = False
        self.held = False
        self._link = link
        self._request = request
        self._sink = sink
        self._lane = lane
        self._gate: Gate | None = None
        self._context: contextvars.Context | None = None
        self._scope: trio.CancelScope | None = None  # of the task that waits
        self._end_of_work = trio.CancelScope()  # of the link's task
        self._send: trio.MemorySendChannel[Any] | None = None
        self._pieces: trio.MemoryReceiveChannel[Any] | None = None
        self._state = "new"
        self._placed = False
        self._answering = False
        self._wake_asked = False

    async def run(self, gate: Gate, deadline: float) -> None:
        """Send the request and read its answer into the sink; raises what `HttpExchange.run` raises.

        Args:
            gate: Asked `write` in the step that hands the request to the transport.
            deadline: On trio's clock; holds while waiting for a place and, if the transport keeps time-outs,
                while it connects.
        """
        if self._state != "new":
            raise RuntimeError("an exchange runs once")
        self._state = "running"
        self._gate = gate
        self._context = contextvars.copy_context()
        try:
            await self._waiting(self._link.enter(self), deadline)
            if not self._lane.take():
                await self._waiting(self._lane.wait(), deadline)
            self._placed = True
            encode_head(self._request, self._link.host)  # the same rules, whoever sends it
            assert self._link.nursery is not None
            self._send, self._pieces = trio.open_memory_channel[Any](AHEAD)
            self._link.nursery.start_soon(self._work, deadline)
            await self._read()
        except BaseException as error:
            self._stopped(error)
            raise

    async def finish(self) -> None:
        """Read the rest of a held exchange, in whatever task."""
        if not self.held:
            raise RuntimeError("only an exchange that is held can be finished")
        self.held = False
        self._state = "running"
        try:
            await self._read()
        except BaseException as error:
            self._stopped(error)
            raise

    def wake(self) -> None:
        """Make the task in `run` or `finish` come back with `Woken`; nothing when there is none."""
        if self._state == "running":
            self._wake_asked = True
            if self._scope is not None:
                self._scope.cancel()

    def close(self) -> None:
        """Give up on it. A task in `run` or `finish` gets `WireClosed(local=True)`."""
        if self._state in ("closed", "done"):
            return  # where somebody waits in it, that task ends it
        running = self._state == "running"
        self._state = "closed"
        if self._scope is not None:
            self._scope.cancel()
        self._end_of_work.cancel()
        if not running:
            self._end()

    # ------------------------------------------------------------------ the task that waits

    async def _waiting(self, wait: Any, deadline: float = math.inf) -> Any:
        with trio.CancelScope(deadline=deadline) as scope:
            self._scope = scope
            try:
                return await wait
            finally:
                self._scope = None
        self._check_wanted()
        raise ConnectFailed("timeout", "no connection became free in time")

    def _check_wanted(self) -> None:
        if self._state == "closed":
            raise WireClosed("the exchange was closed", local=True)
        if self._wake_asked:
            self._wake_asked = False
            raise Woken

    async def _read(self) -> None:
        assert self._pieces is not None
        while True:
            self._check_wanted()
            kind, value = await self._waiting(self._pieces.receive())
            if kind == "data":
                if self._sink.data(value):
                    break
            elif kind == "head":
                self._answering = True
                self._sink.head(*value)
            elif kind == "failed":
                raise value
            else:
                break
        self.complete = True
        self._end()

    def _stopped(self, error: BaseException) -> None:
        self._wake_asked = False
        if self.begun and isinstance(error, (Woken, trio.Cancelled)) and self._state == "running":
            self._state = "held"
            self.held = True
        else:
            self._end()

    def _end(self) -> None:
        self._state = "done"
        self.held = False
        self._end_of_work.cancel()
        if self._pieces is not None:
            self._pieces.close()
        self._link.leave(self)
        if self._placed:
            self._placed = False
            self._lane.give_back()

    # ------------------------------------------------------------------ the link's task

    async def _work(self, deadline: float) -> None:
        assert self._send is not None
        with self._end_of_work, self._send:
            try:
                await self._conduct(deadline, self._send)
                piece: tuple[str, Any] = ("end", None)
            except (BadHttp, Truncated, WireClosed, ConnectFailed, Unsendable, _Refused) as error:
                piece = ("failed", error.refusal if isinstance(error, _Refused) else error)
            except Exception as error:  # noqa: BLE001 -- the user's transport may raise what it likes
                piece = ("failed", self._reading_of(error))
            await self._send.send(piece)

    async def _conduct(self, deadline: float, pieces: trio.MemorySendChannel[Any]) -> None:
        given = self._request
        origin = self._link.origin
        url = httpx.URL(scheme=origin.scheme, host=origin.host, port=origin.port, raw_path=given.target)
        if url.raw_path != given.target:
            raise Unsendable("the request's target is spelled in a way that httpx would change")
        pairs = [(b"host", self._link.host), *given.headers]
        if given.body or given.method == b"POST":
            pairs.append((b"content-length", b"%d" % len(given.body)))
        left = None if deadline == math.inf else max(0.001, deadline - trio.current_time())
        timeout = {"connect": left, "pool": left, "read": None, "write": None}
        request = httpx.Request(
            given.method.decode(), url, headers=pairs, content=given.body, extensions={"timeout": timeout}
        )
        request.stream = _Body(given.body)
        if self._end_of_work.cancel_called:
            raise WireClosed("the exchange was closed", local=True)
        assert self._gate is not None
        assert self._context is not None
        try:
            self._context.run(self._gate.ask, "write")
        except Exception as refusal:  # noqa: BLE001 -- whatever a gate raises keeps its request from leaving
            raise _Refused(refusal) from None
        self.begun = True
        self._gate.began()
        response = await self._link.send(request)
        try:
            headers = [(name.lower(), value) for name, value in response.headers.raw]
            _check_head(headers)
            await pieces.send(("head", (response.status_code, headers)))
            self._answering = True
            async for chunk in response.aiter_raw():
                if chunk:
                    await pieces.send(("data", bytes(chunk)))
        finally:
            with trio.CancelScope(deadline=trio.current_time() + CLOSING, shield=True):
                await response.aclose()

    def _reading_of(self, error: Exception) -> Exception:
        """What an error of the transport means; its own text may hold anything and is not passed on."""
        name = type(error).__name__
        if not self._answering:
            for kind, reason in _NO_CONNECTION.items():
                if isinstance(error, kind):
                    self.begun = False
                    return ConnectFailed(reason, f"the httpx transport made no connection ({name})")
        if isinstance(error, (httpx.RemoteProtocolError, httpx.DecodingError)):
            return BadHttp(f"the httpx transport could not read the answer ({name})")
        if self._answering:
            return Truncated(f"the httpx transport lost the connection in the middle of an answer ({name})")
        return WireClosed(f"the httpx transport raised {name}", local=False)


class _Refused(Exception):
    """Carries what the gate raised past what the transport may raise."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__()
        self.refusal = refusal


def _check_head(headers: Headers) -> None:
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEAD:
        raise BadHttp(f"the head of the server's answer is larger than {MAX_HEAD} bytes")
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in {b"identity", b""}:
            raise BadHttp("the server's answer has a content encoding that was not asked for")
