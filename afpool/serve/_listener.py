"""Listening sockets, and the connections that came in by them (one is `_connection.py`).

Rules:

* Accepting goes on whatever a connection does, and when there are too many: one more is closed unread.
* Stopping accepts no more, but serves who has connected already; then it lets go of connections, of busy ones
  after their answer, of all at the deadline.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio.worker_context import WorkerContext

from ._connection import Connection
from ._sockets import descriptors

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from ..config import ServeConfig

logger = logging.getLogger("afpool")

MOST_CONNECTIONS: Final = 16_384
_PING_EVERY: Final = 20.0
_ACCEPT_PAUSE: Final = 0.1
_SAID_EVERY: Final = 60.0
_LAST_WORDS: Final = 0.25


@attrs.frozen(kw_only=True)
class ListenerLimits:
    """How long and how much is waited for. Seconds are floats, sizes bytes.

    Attributes:
        header_bytes: Of a request head.
        header_timeout: From its first byte to its last; also for a TLS handshake.
        keep_alive: That a kept connection may be idle.
        write_timeout: That a peer may take no byte of what it is sent.
        message_bytes: Of one WebSocket message.
        connections: Open at once; one more is closed unread.
    """

    header_bytes: int = 32 * 1024
    header_timeout: float = 10.0
    keep_alive: float = 75.0
    write_timeout: float = 30.0
    message_bytes: int = 4 * 1024 * 1024
    connections: int = MOST_CONNECTIONS


def listener_limits(config: ServeConfig) -> ListenerLimits:
    """What the front waits for, by the configuration."""
    limits = config.limits
    allowed = descriptors()
    # half of them: a client that only connects must leave the servers' own connections and processes theirs
    connections = MOST_CONNECTIONS if allowed < 0 else min(MOST_CONNECTIONS, max(1, allowed // 2))
    return ListenerLimits(
        connections=connections,
        header_bytes=limits.header_bytes,
        header_timeout=limits.header_timeout,
        message_bytes=limits.body,
    )


@final
class Front:
    """The listening sockets of a service, and its connections.

    Args:
        app: The ASGI application.
        limits: How long and how much is waited for.

    Attributes:
        tls: What TLS is spoken with to those who connect from now on; `None` where it is not.
        connections: Those that are open.
        refused: How many were closed unread, because there were too many.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], limits: ListenerLimits) -> None:
        self.app = ASGIWrapper(app)
        self.limits = limits
        self.tls: ssl.SSLContext | None = None
        self.connections: dict[Connection, None] = {}
        self.refused = 0
        self._accepting: dict[trio.CancelScope, trio.SocketListener] = {}
        self.context = WorkerContext(None)
        config = HypercornConfig()
        config.accesslog = config.errorlog = None
        config.include_server_header = False
        config.h11_max_incomplete_size = limits.header_bytes
        config.websocket_max_message_size = limits.message_bytes
        config.keep_alive_max_requests = 1 << 30
        config.max_app_queue_size = 16
        config.websocket_ping_interval = _PING_EVERY
        self.config = config

    def set_limits(self, limits: ListenerLimits) -> None:
        """Wait by other limits from the next connection on. Synchronous."""
        self.limits = limits
        self.config.h11_max_incomplete_size = limits.header_bytes
        self.config.websocket_max_message_size = limits.message_bytes

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept connections until `stop`, or cancelled; those that were accepted go on.

        Args:
            listener: Bound and listening.

        Needs `run` around it.
        """
        with trio.CancelScope() as scope:
            self._accepting[scope] = listener
            said = float("-inf")
            while True:
                try:
                    await self._accept(listener)
                except OSError as error:
                    # out of descriptors, most likely: others end meanwhile
                    if trio.current_time() - said > _SAID_EVERY:
                        said = trio.current_time()
                        logger.warning("no connection could be accepted (%s)", type(error).__name__)
                    await trio.sleep(_ACCEPT_PAUSE)

    async def _accept(self, listener: trio.SocketListener) -> None:
        stream: Any = await listener.accept()
        if len(self.connections) >= self.limits.connections:
            self.refused += 1
            await trio.aclose_forcefully(stream)
            return
        tls = self.tls
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
        connection = Connection(self, stream, tls=tls is not None)
        self.connections[connection] = None
        self._nursery.start_soon(self._one, connection)

    async def _close_listeners(self) -> None:
        """Accept no more. Who has connected already is served: closing the socket would reset him."""
        accepting, self._accepting = self._accepting, {}
        for scope, listener in accepting.items():
            scope.cancel()
            with contextlib.suppress(OSError), trio.move_on_after(0.1) as late:
                while True:
                    # a checkpoint with nothing to accept is where it ends
                    late.deadline = trio.current_time() + 0.01
                    await self._accept(listener)
            await listener.aclose()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the connections until cancelled; then each is ended at once."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            for connection in list(self.connections):
                connection.kill()

    async def stop(self, deadline: float) -> None:
        """Accept no more, and let connections end until an absolute deadline; then end them.

        Each ends after the answer to what it is asked meanwhile; who is asked nothing, after a moment.
        """
        await self._close_listeners()
        await self.context.terminated.set()
        if self.connections:
            await trio.sleep(_LAST_WORDS)
        for connection in list(self.connections):
            connection.release()
        with trio.move_on_at(deadline):
            while self.connections:
                self._ended = trio.Event()
                await self._ended.wait()
        for connection in list(self.connections):
            connection.kill()

    _nursery: trio.Nursery
    _ended: trio.Event | None = None

    async def _one(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            del self.connections[connection]
            if self._ended is not None:
                self._ended.set()
