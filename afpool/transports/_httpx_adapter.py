"""afpool's HTTP layer as an `httpx.AsyncBaseTransport`, for a host's own traffic beside tool calls.

The answer is streamed without a task of its own: the exchange is woken out of its reading when the head has
come and after each piece, and stands *held* in between (`_exchange.py`). What holds there holds here: one
write per request under a gate, connections looked at before they are used again, bounded heads, no cookies.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
import trio

from afpool._base.gate import OpenGate
from afpool._base.seams import Seams
from afpool.transports._connect import Connector
from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._connection import BadHttp, Truncated
from afpool.transports._http import HttpLink
from afpool.transports._origin import Origin, origin_of
from afpool.transports._request import HttpRequest, Unsendable
from afpool.transports._wire import WireClosed, Woken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from afpool._base.gate import Gate
    from afpool.transports._exchange import HttpExchange
    from afpool.transports._proxy import Proxy
    from afpool.transports._tls_config import TlsConfig

ORIGINS_KEPT: Final = 64
MAX_AHEAD: Final = 16 * 1024 * 1024

# What the layer says itself. `te` would ask for what it does not read.
_OURS: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"te", b"accept-encoding"}
)


class HttpxAdapter(httpx.AsyncBaseTransport):
    """afpool's own HTTP/1.1 layer under an `httpx.AsyncClient`. Needs trio.

    `httpx.AsyncClient(transport=HttpxAdapter())` sends over the layer that tool calls use: the same TLS
    configurations, proxies, Unix sockets, bounds and gate. Time-outs of httpx (`connect`, `pool`, `read`)
    hold; `accept-encoding` is always `identity`. A request's body is read whole before it is sent.

    Args:
        tls: How servers are verified.
        proxy: An HTTP proxy for everything.
        uds: A Unix socket for everything.
        limit: How many requests to one origin may be on the way at once.
        keepalive_expiry: Seconds for which an idle connection is used again.
        gate: Asked in the step in which the first byte of each request is handed to the kernel; open when
            absent. What it raises passes through httpx as it is.
        seams: Clock and network.

    Raises (from a request): `httpx.ConnectError`, `ConnectTimeout`, `PoolTimeout`: nothing was sent;
    `LocalProtocolError`: likewise; `ReadError`, `WriteError`, `ReadTimeout`, `RemoteProtocolError`: it may
    have been.
    """

    def __init__(
        self,
        *,
        tls: TlsConfig | None = None,
        proxy: Proxy | None = None,
        uds: str | None = None,
        limit: int = 16,
        keepalive_expiry: float = 4.0,
        gate: Gate | None = None,
        seams: Seams | None = None,
    ) -> None:
        self._seams = Seams() if seams is None else seams
        self._connector = Connector(self._seams, tls, proxy=proxy, uds=uds)
        self._limit = limit
        self._keepalive_expiry = keepalive_expiry
        self._gate = OpenGate() if gate is None else gate
        self._links: dict[Origin, HttpLink] = {}
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; return when the head of its answer is there, with the body as a stream.

        Cancelled, the connection is closed.
        """
        if self._closed:
            raise RuntimeError("this transport is closed")
        try:
            origin, target = origin_of(str(request.url.copy_with(fragment=None, userinfo=b"")))
        except ValueError as error:
            raise httpx.UnsupportedProtocol(str(error).replace("the server's URL", "the URL")) from None
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        kept = [pair for pair in headers if pair[0] not in _OURS]
        kept.append((b"accept-encoding", b"identity"))
        said = [value for name, value in headers if name == b"host"]
        if said and said != [origin.authority]:
            raise httpx.LocalProtocolError("a host header that is not the URL's own is not sent")
        raw = HttpRequest(request.method.encode("ascii"), target, kept, await request.aread())
        stream = _Stream(self._link(origin), raw, request, self._gate)
        try:
            await stream.begin()
        except BaseException:
            stream.close()
            raise
        return httpx.Response(
            stream.status, headers=stream.headers, stream=stream, extensions={"http_version": b"HTTP/1.1"}
        )

    def _link(self, origin: Origin) -> HttpLink:
        link = self._links.get(origin)
        if link is None:
            for other, idle in list(self._links.items()):
                if len(self._links) < ORIGINS_KEPT:
                    break
                if not idle.statistics().active:
                    del self._links[other]
                    idle.close()
            link = self._links[origin] = HttpLink(
                origin,
                self._connector,
                seams=self._seams,
                limit=self._limit,
                keepalive_expiry=self._keepalive_expiry,
            )
        return link

    async def aclose(self) -> None:
        """Close every connection at once; answers that are being read break. One checkpoint."""
        self._closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()


class _Stream(httpx.AsyncByteStream):
    """One exchange, as the stream of its answer's body; also its sink, and its gate before the host's."""

    def __init__(self, link: HttpLink, raw: HttpRequest, request: httpx.Request, gate: Gate) -> None:
        times: dict[str, Any] = request.extensions.get("timeout", {})
        self._times = times
        self._exchange: HttpExchange = link.exchange(raw, self)
        self._gate = gate
        self._scope: trio.CancelScope | None = None
        self._chunks: list[bytes] = []
        self._ahead = 0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    # The sink's side: whatever has come makes the reading task come back.

    def head(self, status: int, headers: list[tuple[bytes, bytes]], /) -> None:
        self.status = status
        self.headers = headers
        self._exchange.wake()

    def data(self, chunk: bytes, /) -> bool:
        self._chunks.append(chunk)
        self._ahead += len(chunk)
        if self._ahead > MAX_AHEAD:
            # Only where a server answers before it has the whole request, and closes.
            raise BadHttp("the server's answer is larger than is read without being asked for")
        self._exchange.wake()
        return False

    # The stream's side.

    def ask(self, stage: str, /) -> None:
        self._gate.ask(stage)

    def began(self) -> None:
        self._gate.began()
        seconds = self._times.get("read")
        if seconds is not None and self._scope is not None:
            self._scope.deadline = trio.current_time() + seconds

    async def begin(self) -> None:
        waits = [self._times.get("connect"), self._times.get("pool")]
        given = [seconds for seconds in waits if seconds is not None]
        deadline = trio.current_time() + sum(given) if len(given) == len(waits) else math.inf
        await self._until_something(lambda: self._exchange.run(self, deadline))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            chunks, self._chunks = self._chunks, []
            self._ahead = 0
            for chunk in chunks:
                yield chunk
            if not self._exchange.held:
                if self._chunks:
                    continue
                return
            await self._until_something(self._exchange.finish)

    async def _until_something(self, read: Any) -> None:
        seconds = self._times.get("read")
        with trio.CancelScope() as scope:
            self._scope = scope
            if seconds is not None and self._exchange.begun:
                scope.deadline = trio.current_time() + seconds
            await self._mapped(read)
            return
        self.close()
        raise httpx.ReadTimeout("the server sent nothing in time")

    async def _mapped(self, read: Any) -> None:
        failure: Exception
        try:
            await read()
        except Woken:
            return
        except ConnectFailed as error:
            late = error.reason == "timeout"
            failure = (httpx.ConnectTimeout if late else httpx.ConnectError)(f"{error}; nothing was sent")
        except Unsendable as error:
            failure = httpx.LocalProtocolError(f"{error}; nothing was sent")
        except (BadHttp, Truncated) as error:
            failure = httpx.RemoteProtocolError(str(error))
        except WireClosed as error:
            failure = (httpx.ReadError if self._exchange.begun else httpx.ConnectError)(str(error))
        else:
            return
        raise failure

    def close(self) -> None:
        self._exchange.close()

    async def aclose(self) -> None:
        self._exchange.close()
