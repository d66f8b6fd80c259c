"""One client's connection: hypercorn's HTTP/1.1 and WebSocket, under our own reading loop.

hypercorn's own loop is not used, because of what a hostile or broken client makes of it: an exception while
one connection is read ends the whole server, a peer that takes no bytes can be neither waited out nor
cancelled (its writes are shielded and have no end), and a request head and an idle connection have one time
limit between them. HTTP/2 is not spoken: MCP's clients do not ask for it.

Rules:

* Whatever goes wrong on a connection ends that connection and nothing else.
* A read has a deadline wherever the client is due: the rest of a head, the next request of a kept connection.
  Every write has one.
* A client that has gone is known at once: the scopes that its request has registered (`on_gone`) are
  cancelled in the step in which its end is read.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Final, cast, final

import h11
import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError, H11Protocol
from hypercorn.typing import ConnectionState

from .._base.untraced import place_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn.config import Config as HypercornConfig
    from hypercorn.events import Event

    from ._listener import Front

logger = logging.getLogger("afpool")

CONNECTION_KEY: Final = "afpool.connection"
"""Where the application finds its connection: `scope["state"][CONNECTION_KEY]`."""

_MAX_RECV: Final = 65_536
_LINGER: Final = 2.0
_EXTENSIONS: Final = b"sec-websocket-extensions"
# the kernel gives up a peer that acknowledges nothing: a minute of silence, then three probes
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3))
# how connections end, and what would go on in HTTP/2
_ENDED: Final = (
    OSError,
    H2CProtocolRequiredError,
    H2ProtocolAssumedError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)


@final
class _Protocol(H11Protocol):
    """hypercorn's, without compression of WebSockets: a few bytes could unfold to any number in memory."""

    async def _check_protocol(self, event: h11.Request) -> None:
        # who offers HTTP/2 (`upgrade: h2c`) goes on in HTTP/1.1 where that is passed over
        if event.method == b"PRI":
            await super()._check_protocol(event)

    async def _create_stream(self, request: h11.Request) -> None:
        if request.method == b"GET" and any(name == _EXTENSIONS for name, _ in request.headers):
            request = h11.Request(
                method=request.method,
                target=request.target,
                headers=[pair for pair in request.headers if pair[0] != _EXTENSIONS],
                http_version=request.http_version,
            )
        await super()._create_stream(request)


@final
class Connection:
    """One client's connection."""

    __slots__ = (
        "_busy", "_closing", "_front", "_head_began", "_held", "_lock", "_protocol", "_reading", "_stream",
        "gone", "on_gone", "peer", "tls", "unix",
    )  # fmt: skip

    def __init__(self, front: Front, stream: Any, *, tls: bool) -> None:
        self._front = front
        self._stream = stream
        self._lock = trio.Lock()
        self._reading = trio.CancelScope()
        self._protocol: H11Protocol | None = None
        self._busy = False
        self._closing = False
        self._head_began: float | None = None
        self._held: bytes | None = None
        self.tls = tls
        self.unix = False
        self.peer: str | None = None
        self.gone = False
        # cancelled when the client has gone: one request at a time has them in here
        self.on_gone: dict[trio.CancelScope, None] = {}

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._busy

    async def run(self) -> None:
        """Serve the connection until it ends. Raises nothing but cancellation."""
        limits = self._front.limits
        try:
            if self.tls:
                with trio.fail_after(limits.header_timeout):
                    await self._stream.do_handshake()
            server = self._addresses()
            async with trio.open_nursery() as nursery:
                self._protocol = _Protocol(
                    self._front.app,
                    self._front.config,
                    self._front.context,
                    cast("Any", _Tasks(nursery)),
                    ConnectionState({CONNECTION_KEY: self}),
                    self.tls,
                    None if self.peer is None else (self.peer, 0),
                    server,
                    self._handle_out,
                )
                self._reading.deadline = trio.current_time() + limits.header_timeout
                with self._reading:
                    await self._read(self._protocol)
                self._gone()
                # what the application still does for this client has been cancelled; it gets a moment to end
                nursery.cancel_scope.deadline = trio.current_time() + _LINGER
                await self._protocol.handle(Closed())
        except* _ENDED:
            pass
        except* Exception as group:  # noqa: BLE001 -- one client's bytes must not end the others
            logger.info("a connection was closed: what it sent could not be read (%s)", _kinds(group))
        finally:
            self._gone()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await trio.aclose_forcefully(self._stream)

    def kill(self) -> None:
        """End it without a word, whatever is under way. Synchronous."""
        self._closing = True
        self._gone()
        self._reading.cancel()
        transport = self._stream.transport_stream if self.tls else self._stream
        transport.socket.close()

    def hold(self) -> None:
        """Let the next piece, a head, leave together with the one after it. Synchronous."""
        self._held = b""

    def release(self) -> None:
        """End it now if nothing is under way, else after the answer. Synchronous."""
        self._closing = True
        if not self._busy:
            self._reading.cancel()

    # ------------------------------------------------------------------ reading

    async def _read(self, protocol: H11Protocol) -> None:
        limits = self._front.limits
        while True:
            data = bytes(await self._stream.receive_some(_MAX_RECV))
            if not data:
                return
            if not self._busy and self._head_began is None:
                self._head_began = now = trio.current_time()
                self._reading.deadline = now + limits.header_timeout
            await protocol.handle(RawData(data))

    def _gone(self) -> None:
        self.gone = True
        for scope in list(self.on_gone):
            scope.cancel()

    def _addresses(self) -> tuple[str, int] | None:
        transport = self._stream.transport_stream if self.tls else self._stream
        sock = transport.socket
        if sock.family == socket.AF_UNIX:
            self.unix = True
            return None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.peer = sock.getpeername()[0]
        host, port = sock.getsockname()[:2]
        return host, port

    # ------------------------------------------------------------------ writing

    async def _handle_out(self, event: Event) -> None:
        if isinstance(event, RawData):
            data = event.data
            if self._held is not None:
                if not self._held:
                    self._held = data
                    return
                data, self._held = self._held + data, None
            if data:
                await self._write(data)
        elif isinstance(event, Closed):
            await self._flush()
            await self._end()
        elif isinstance(event, Updated):
            await self._flush()
            self._head_began = None
            self._busy = not event.idle
            limits = self._front.limits
            if self._busy:
                self._reading.deadline = float("inf")
            elif self._closing:
                self._reading.cancel()
            elif self._protocol is not None and self._protocol.connection.trailing_data[0]:
                # the next head has begun already, while the answer was on its way
                self._head_began = now = trio.current_time()
                self._reading.deadline = now + limits.header_timeout
            else:
                self._reading.deadline = trio.current_time() + limits.keep_alive

    async def _flush(self) -> None:
        held, self._held = self._held, None
        if held:
            await self._write(held)

    async def _write(self, data: bytes) -> None:
        try:
            try:
                self._lock.acquire_nowait()  # free nearly always, and then not worth a turn of the scheduler
            except trio.WouldBlock:
                await self._lock.acquire()
            try:
                # shielded: half a chunk on the wire would make nonsense of the rest
                with trio.CancelScope(
                    shield=True, deadline=trio.current_time() + self._front.limits.write_timeout
                ) as scope:
                    await self._stream.send_all(data)
                if scope.cancelled_caught:
                    self.kill()
            finally:
                self._lock.release()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            self._gone()
            self._reading.cancel()

    async def _end(self) -> None:
        """Say that nothing follows, and read on for a moment, so that the client reads our last answer."""
        self._closing = True
        try:
            if not self.tls:
                with trio.move_on_after(_LINGER, shield=True):
                    await self._stream.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError, OSError):
            pass
        self._reading.deadline = min(self._reading.deadline, trio.current_time() + _LINGER)


@final
class _Tasks:
    """Where hypercorn starts the application for a request of one connection.

    What passes between the two takes no turn of the scheduler where there is place, or something there: the
    queue is short, so neither goes on for long without the other.
    """

    __slots__ = ("_nursery",)

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    async def spawn_app(
        self, app: Any, config: HypercornConfig, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        """Start the application; give what its input is put into."""
        into, out = trio.open_memory_channel[Any](config.max_app_queue_size)
        self._nursery.start_soon(_run_app, app, scope, out, send)

        async def put(event: Any) -> None:
            # where it is broken, the application has answered and wants no more
            with contextlib.suppress(trio.BrokenResourceError):
                try:
                    into.send_nowait(event)
                except trio.WouldBlock:
                    await into.send(event)

        return put

    def spawn(self, func: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run something else of hypercorn's for the connection."""
        self._nursery.start_soon(func, *args)


async def _run_app(
    app: Any, scope: Any, out: trio.MemoryReceiveChannel[Any], send: Callable[[Any], Awaitable[None]]
) -> None:
    async def receive() -> Any:
        try:
            return out.receive_nowait()
        except trio.WouldBlock:
            return await out.receive()

    try:
        await app(scope, receive, send, trio.to_thread.run_sync, trio.from_thread.run)
    except Exception as error:  # noqa: BLE001 -- a fault of ours, of one request; its text may hold anything
        logger.error("a request failed: %s (%s)", type(error).__name__, place_of(error.__traceback__))  # noqa: TRY400 -- as above
    finally:
        # from now on what the client sends goes nowhere, and nobody waits to put it there
        out.close()
        with trio.CancelScope(shield=True):
            await send(None)


def _kinds(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(sorted({_kinds(each) for each in error.exceptions}))
    return type(error).__name__
