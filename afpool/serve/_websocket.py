"""MCP over WebSocket: one connection is one session, of the era that its first message is of.

No revision of MCP has this transport; what is spoken is what clients in use speak: one JSON-RPC message per
text message, both ways. Rules:

* Who connects is proven by the upgrade request, once; when that proof ends the connection does, and at the
  latest with the next message.
* A client that does not read is not read either: what waits for it stays bounded.
* A message that is none gets an error; a client that sends many of them, or anything else than text, is let
  go of.
* Requests run side by side, so many at once; one more is refused.
* A connection that ends takes its requests with it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

import trio
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types import PROTOCOL_VERSION_META_KEY, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .._base.errors import Overloaded
from ._asked import Asked
from ._http_parts import refuse_new, withdraw
from ._rpc import INVALID_REQUEST, REFUSED, Message, RpcError, error_message, read_message
from ._streams import BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ._kernel import Kernel
    from ._proof_types import Proven
    from ._sessions import Session, Sessions

logger = logging.getLogger("afpool.serve")

SUBPROTOCOL: Final = "mcp"
MAX_AT_ONCE: Final = 64
MAX_BAD: Final = 10
UNSUPPORTED: Final = 1003
POLICY: Final = 1008
GOING_AWAY: Final = 1001
TRY_LATER: Final = 1013
_DROP_BEYOND: Final = 64
_MOST: Final = 1024


@final
class SocketOutlet:
    """What a client is sent over one WebSocket, in order, by one task.

    Attributes:
        proven: The proof that it was opened under.
        announces: Whether it says what belongs to no request: in the handshake era only.
    """

    __slots__ = ("_ended", "_roomy", "_said", "_size", "_wake", "announces", "code", "proven")

    def __init__(self, proven: Proven) -> None:
        self.proven = proven
        self.announces = False
        self.code = 1000
        self._said: deque[bytes] = deque()
        self._size = 0
        self._wake = trio.Event()
        self._roomy: trio.Event | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the connection ends, as far as we are concerned."""
        return self._ended

    @property
    def can_tell(self) -> bool:
        """Always."""
        return True

    def tell(self, message: bytes, *, droppable: bool) -> None:
        """Say something. Synchronous."""
        if self._ended:
            return
        # answers are as large as they are: `room` sees to it that there are no more of them than run at once
        full = droppable and self._said and self._size + len(message) > BYTES
        if not full and len(self._said) < (_DROP_BEYOND if droppable else _MOST):
            self._said.append(message)
            self._size += len(message)
            self._wake.set()
        elif not droppable:
            self._said.clear()
            self.end(POLICY)

    async def room(self) -> None:
        """Wait until what waits to be written is less than its bound."""
        while self._size >= BYTES:
            self._roomy = trio.Event()
            await self._roomy.wait()

    def announce(self, message: bytes) -> None:
        """Say what belongs to no request. Synchronous."""
        if self.announces:
            self.tell(message, droppable=False)

    def end(self, code: int = GOING_AWAY) -> None:
        """Let the connection end. Synchronous."""
        self.code = code
        self._ended = True
        self._wake.set()

    async def write(self, send: Callable[[Any], Awaitable[None]]) -> None:
        """Write until it ends, and close."""
        while not self._ended:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._said:
                said = self._said.popleft()
                await send({"type": "websocket.send", "text": said.decode()})
                self._size -= len(said)
                if self._roomy is not None:
                    self._roomy.set()
        await send({"type": "websocket.close", "code": self.code})


@final
class SocketEndpoint:
    """Answers WebSockets at one path.

    Args:
        kernel: Answers messages.
        sessions: Counts each connection as one.
    """

    def __init__(self, kernel: Kernel, sessions: Sessions) -> None:
        self._kernel = kernel
        self._sessions = sessions

    async def serve(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        proven: Proven,
        draining: Callable[[], bool],
    ) -> None:
        """Serve one connection of a proven caller until it ends."""
        await receive()  # websocket.connect
        offered = scope.get("subprotocols") or []
        await send(
            {"type": "websocket.accept", "subprotocol": SUBPROTOCOL if SUBPROTOCOL in offered else None}
        )
        outlet = SocketOutlet(proven)
        try:
            session = self._sessions.open(proven, self._kernel.runner(), named=False)
        except Overloaded:
            await send({"type": "websocket.close", "code": TRY_LATER})
            return
        session.listen(outlet)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_write_until_end, outlet, send, nursery.cancel_scope)
                await _Talk(self._kernel, session, outlet, nursery, draining).read(receive)
                nursery.cancel_scope.cancel()
        finally:
            session.unlisten(outlet)
            self._sessions.remove(session)


async def _write_until_end(
    outlet: SocketOutlet, send: Callable[[Any], Awaitable[None]], scope: trio.CancelScope
) -> None:
    try:
        await outlet.write(send)
    except Exception as error:  # noqa: BLE001 -- the client has gone
        logger.debug("a socket ended under its writer (%s)", type(error).__name__)
    scope.cancel()


@final
class _Talk:
    """What is read from one connection."""

    def __init__(
        self,
        kernel: Kernel,
        session: Session,
        outlet: SocketOutlet,
        nursery: trio.Nursery,
        draining: Callable[[], bool],
    ) -> None:
        self._kernel = kernel
        self._session = session
        self._outlet = outlet
        self._nursery = nursery
        self._draining = draining
        self._modern: bool | None = None
        self._bad = 0

    async def read(self, receive: Callable[[], Awaitable[Any]]) -> None:
        """Read until the client ends it."""
        while True:
            await self._outlet.room()
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            if not self._outlet.ended and not self._outlet.proven.still_holds():
                self._outlet.end(POLICY)
            if self._outlet.ended:
                await trio.sleep_forever()  # until that is written
            text = event.get("text")
            if text is None:
                self._outlet.end(UNSUPPORTED)
                await trio.sleep_forever()
            try:
                self._take(read_message(text))
            except RpcError as error:
                self._outlet.tell(error_message(b"", error), droppable=False)
                self._bad += 1
                if self._bad >= MAX_BAD:
                    self._outlet.end(POLICY)
                    await trio.sleep_forever()

    def _take(self, message: Message) -> None:
        session = self._session
        if message.method is None:
            session.answered(message.id, message.result)
            return
        if self._modern is None and message.is_request:
            meta = message.params.get("_meta")
            self._modern = isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta
            self._outlet.announces = not self._modern
        if not message.is_request:
            if message.method == "notifications/cancelled":
                withdraw(session, message)
            elif not self._modern:
                self._nursery.start_soon(self._kernel.notified, self._asked(message))
            return
        try:
            asked = self._asked(message)
            self._check(message)
        except RpcError as error:
            self._outlet.tell(error_message(message.id_raw, error), droppable=False)
            return
        session.in_flight[message.id_raw] = asked
        self._nursery.start_soon(self._answer, asked)

    def _check(self, message: Message) -> None:
        under_way = self._session.in_flight
        if message.id_raw in under_way:
            raise RpcError(INVALID_REQUEST, "a request with this id is under way; this one was not run")
        if len(under_way) >= MAX_AT_ONCE:
            raise RpcError(REFUSED, f"{MAX_AT_ONCE} requests at once; this one was not run")
        if self._draining():
            refuse_new(message, modern=bool(self._modern))

    def _asked(self, message: Message) -> Asked:
        session = self._session
        if not self._modern:
            version = session.runner.connection.protocol_version
            return Asked(
                message, self._outlet.proven, self._outlet, session=session, version=version,
                capabilities=session.capabilities,
            )  # fmt: skip
        if message.method == "initialize":
            data = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
            raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, "this connection is of the stateless era", data)
        route = classify_inbound_request({"method": message.method, "params": message.params})
        if isinstance(route, InboundLadderRejection):
            raise RpcError(route.code, route.message, route.data)
        declared = route.client_capabilities
        return Asked(
            message, self._outlet.proven, self._outlet, session=None, version=route.protocol_version,
            capabilities=declared if isinstance(declared, dict) else {},
        )  # fmt: skip

    async def _answer(self, asked: Asked) -> None:
        body = b""
        try:
            with asked.scope:
                body, _ = await self._kernel.respond(asked)
        finally:
            self._session.in_flight.pop(asked.message.id_raw, None)
        if body and not asked.withdrawn:
            self._outlet.tell(body, droppable=False)
