"""Answers over HTTP: one JSON document where nothing is said before it, else a stream of events.

Rules:

* An answer becomes a stream with the first thing that is said before it, or once it has been silent so long
  that something in between might take it for dead. Until then it costs neither a task nor a head of its own.
* Whoever says something never waits: what is said is queued, and a task of the service writes it. A client
  that does not read loses what may be lost (progress); one that lets what must not be lost pile up loses its
  connection. What piles up is bounded in number and in bytes: tokens of progress may be long.
* One stream, one writer. The answer itself is written last, by the task of the request.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

import trio

from ._connection import CONNECTION_KEY, Connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ._proof_types import Header, Proven

logger = logging.getLogger("afpool.serve")

PING_EVERY: Final = 15.0
_DROP_BEYOND: Final = 64
_MOST: Final = 1024
BYTES: Final = 4 * 1024 * 1024
"""Of what waits to be written to one client; one message more than that is taken where nothing waits."""
PING: Final = b": ping\r\n\r\n"
SSE_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)

Send = "Callable[[Any], Awaitable[None]]"


def event(message: bytes) -> bytes:
    """Write a message as an event."""
    return b"event: message\r\ndata: %b\r\n\r\n" % message


def connection_of(scope: Mapping[str, Any]) -> Connection | None:
    """The connection of a request, where the service's own front serves it."""
    found = (scope.get("state") or {}).get(CONNECTION_KEY)
    return found if isinstance(found, Connection) else None


class _Queue:
    """What is said to one client, until it is written."""

    __slots__ = ("_connection", "_cut", "_said", "_size", "written_at")

    def __init__(self, connection: Connection | None) -> None:
        self._connection = connection
        self._cut = False
        self._said: deque[bytes] = deque()
        self._size = 0
        self.written_at = trio.current_time()

    def _take(self, said: bytes, *, droppable: bool) -> bool:
        full = len(self._said) >= (_DROP_BEYOND if droppable else _MOST)
        if self._cut or full or (self._said and self._size + len(said) > BYTES):
            if not droppable and not self._cut and self._connection is not None:
                self._cut = True
                logger.info("a client was let go of: it does not read what it is told")
                self._connection.kill()
            return False
        self._put(said)
        return True

    def _put(self, said: bytes) -> None:
        self._said.append(said)
        self._size += len(said)

    def _next(self) -> bytes:
        said = self._said.popleft()
        self._size -= len(said)
        return said


@final
class Reply(_Queue):
    """The answer to one POST.

    Args:
        send: Of ASGI.
        nursery: Where a stream is written.
        connection: Of the client, where it is known.
        headers: Of the answer, besides its type.
        takes_json: Whether the client reads a document.
        takes_events: Whether it reads a stream.
    """

    __slots__ = (
        "_done", "_nursery", "_send", "_started", "_writing", "headers", "takes_events", "takes_json",
    )  # fmt: skip

    def __init__(
        self,
        send: Callable[[Any], Awaitable[None]],
        nursery: trio.Nursery,
        connection: Connection | None,
        *,
        takes_json: bool,
        takes_events: bool,
    ) -> None:
        super().__init__(connection)
        self._send = send
        self._nursery = nursery
        self._started = False
        self._writing = False
        self._done: trio.Event | None = None
        self.headers: tuple[Header, ...] = ()
        self.takes_json = takes_json
        self.takes_events = takes_events

    @property
    def can_tell(self) -> bool:
        """Whether anything can be said before the answer."""
        return self.takes_events

    def tell(self, message: bytes, *, droppable: bool) -> None:
        """Say something before the answer. Synchronous."""
        if self.takes_events and self._take(event(message), droppable=droppable):
            self._write_soon()

    def ping(self) -> None:
        """Show that it lives. Synchronous."""
        if self.takes_events and not self._said:
            self._put(PING)
            self._write_soon()

    async def answer(self, status: int, body: bytes, headers: tuple[Header, ...] = ()) -> None:
        """Answer, last of all.

        Args:
            status: Of HTTP, where no stream has begun.
            body: A message, or nothing.
            headers: More of them, where no stream has begun.
        """
        if self._writing or self._started or (body and status == 200 and not self.takes_json):
            while self._writing:
                self._done = trio.Event()
                await self._done.wait()
            # here and not by the writer, which ends with the service and may be in the middle of something
            self._put(event(body))
            await self._write()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await send_whole(self._send, self._connection, status, (*self.headers, *headers), body)

    def _write_soon(self) -> None:
        if self._writing:
            return
        try:
            self._nursery.start_soon(self._write)
        except RuntimeError:
            return  # the service is left: what is said now goes out with the answer
        self._writing = True

    async def _write(self) -> None:
        self._writing = True
        try:
            if not self._started:
                self._started = True
                start = {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [*SSE_HEADERS, *self.headers],
                }
                await self._send(start)
            while self._said:
                said = self._next()
                self.written_at = trio.current_time()
                await self._send({"type": "http.response.body", "body": said, "more_body": True})
        except Exception as error:  # noqa: BLE001 -- the client has gone; its request hears of it elsewhere
            logger.debug("a stream ended under its writer (%s)", type(error).__name__)
            self._said.clear()
            self._size = 0
        finally:
            self._writing = False
            if self._done is not None:
                self._done.set()


@final
class EventChannel(_Queue):
    """The notification stream of one session (GET), written by the task of its request.

    Attributes:
        proven: The proof that it was opened under.
    """

    __slots__ = ("_ended", "_wake", "proven")

    def __init__(self, proven: Proven, connection: Connection | None) -> None:
        super().__init__(connection)
        self.proven = proven
        self._ended = False
        self._wake = trio.Event()

    def announce(self, message: bytes) -> None:
        """Say something. Synchronous."""
        if self._take(event(message), droppable=False):
            self._wake.set()

    def ping(self) -> None:
        """Show that it lives. Synchronous."""
        if not self._said:
            self._put(PING)
            self._wake.set()

    def end(self) -> None:
        """Let it end. Synchronous."""
        self._ended = True
        self._wake.set()

    async def run(self, send: Callable[[Any], Awaitable[None]], headers: tuple[Header, ...]) -> None:
        """Write until it ends."""
        await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
        # a head alone is held back by some proxies
        await send({"type": "http.response.body", "body": b": open\r\n\r\n", "more_body": True})
        while not self._ended:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._said:
                said = self._next()
                self.written_at = trio.current_time()
                await send({"type": "http.response.body", "body": said, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_whole(
    send: Callable[[Any], Awaitable[None]],
    connection: Connection | None,
    status: int,
    headers: tuple[Header, ...],
    body: bytes,
) -> None:
    """Send an answer that stands whole, head and body in one piece where the front is our own."""
    names = {name for name, _ in headers}
    told = list(headers)
    if body and b"content-type" not in names:
        told.append((b"content-type", b"application/json"))
    if status != 204:
        told.append((b"content-length", b"%d" % len(body)))
    if connection is not None:
        connection.hold()
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body, "more_body": False})
