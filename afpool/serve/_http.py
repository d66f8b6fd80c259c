"""MCP over streamable HTTP, both eras, at one path.

Rules:

* The header `MCP-Protocol-Version` says which era a request is of; what no era knows is refused as the newer
  one says it. A request without it is of the handshake era.
* A session is named by its id and its owner. Whoever names another's is answered 404, like one who names none
  that there is; both are told to begin anew.
* One POST, one message. Its answer carries everything that belongs to it and nothing else.
* A client that has gone takes its request with it: the call is cancelled, and what it held is given back.
* A body is read up to its limit and within its time, and only from whoever has proven who he is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import trio
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from .._base.errors import Overloaded
from ._asked import Asked
from ._http_parts import (
    accepts,
    headers_of,
    let_go,
    one,
    read_body,
    refuse_new,
    rejected,
    trace_headers,
    watch,
    withdraw,
)
from ._rpc import (
    INVALID_REQUEST,
    REFUSED,
    REQUEST_CANCELLED,
    RpcError,
    error_message,
    read_message,
)
from ._streams import EventChannel, Reply, connection_of, send_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..config import ServeLimits
    from ._connection import Connection
    from ._kernel import Kernel
    from ._proof_types import Header, Proven, RequestHead
    from ._rpc import Message
    from ._sessions import Session, Sessions

LISTEN: Final = "subscriptions/listen"
SESSION_HEADER: Final = b"mcp-session-id"
_VERSION_HEADER: Final = MCP_PROTOCOL_VERSION_HEADER.encode()
_NO_SESSION: Final = "there is no such session here, or not any more; begin anew with `initialize`"


@final
class HttpEndpoint:
    """Answers the requests at one path.

    Args:
        kernel: Answers messages.
        sessions: Of the handshake era.
        limits: Of bodies.
        nursery: Where streams are written.
    """

    def __init__(
        self, kernel: Kernel, sessions: Sessions, limits: ServeLimits, nursery: trio.Nursery
    ) -> None:
        self._kernel = kernel
        self._sessions = sessions
        self.limits = limits
        self._nursery = nursery
        self.replies: dict[Reply, Asked] = {}
        self.channels: dict[EventChannel, None] = {}

    def sweep(self) -> None:
        """End the requests without a session whose proof is void; sessions and streams see to their own."""
        for asked in list(self.replies.values()):
            if asked.session is None and asked.message.method != LISTEN and not asked.proven.still_holds():
                asked.scope.cancel()

    def end(self) -> None:
        """End every request that is under way: it is answered that it was cancelled. Synchronous."""
        for asked in list(self.replies.values()):
            asked.scope.cancel()

    async def serve(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        head: RequestHead,
        proven: Proven,
        draining: bool,
    ) -> None:
        """Answer one request of a proven caller.

        Args:
            scope: Of ASGI.
            receive: Of ASGI.
            send: Of ASGI.
            head: Of the request.
            proven: Who sent it.
            draining: Whether only what belongs to running calls is taken.
        """
        connection = connection_of(scope)
        version = one(head, _VERSION_HEADER)
        modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        if head.method == "POST":
            await self._post(receive, send, head, proven, connection, version if modern else None, draining)
            return
        try:
            if modern:
                raise RpcError(  # noqa: TRY301 -- answered here like what is raised below
                    INVALID_REQUEST, "in this protocol version everything is sent by POST", status=405
                )
            session = self._session(head, proven)
            if head.method == "DELETE":
                self._sessions.remove(session)
                await send_whole(send, connection, 204, (), b"")
            else:
                await self._listen(receive, send, head, proven, connection, session)
        except RpcError as error:
            await send_whole(
                send, connection, error.status or 400, headers_of(error), error_message(b"", error)
            )

    # ------------------------------------------------------------------ POST

    async def _post(
        self,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        head: RequestHead,
        proven: Proven,
        connection: Connection | None,
        modern: str | None,
        draining: bool,
    ) -> None:
        takes_json, takes_events = accepts(head)
        reply = Reply(send, self._nursery, connection, takes_json=takes_json, takes_events=takes_events)
        try:
            if not (takes_json or takes_events):
                raise RpcError(  # noqa: TRY301 -- answered here like what is raised below
                    INVALID_REQUEST,
                    "an answer is `application/json` or `text/event-stream`, and the request accepts neither",
                    status=406,
                )
            body = await read_body(receive, head, self.limits)
            if body is None:
                return
            message = read_message(body)
            if draining:
                refuse_new(message, modern=modern is not None)
        except RpcError as error:
            await reply.answer(error.status or 400, error_message(b"", error), headers_of(error))
            if error.status in (408, 413):
                await let_go(receive, connection)
            return
        if modern is None:
            await self._in_session(receive, reply, head, proven, connection, message)
        else:
            await self._stateless(receive, reply, head, proven, connection, message, modern)

    async def _in_session(
        self,
        receive: Callable[[], Awaitable[Any]],
        reply: Reply,
        head: RequestHead,
        proven: Proven,
        connection: Connection | None,
        message: Message,
    ) -> None:
        opens = message.is_request and message.method == "initialize" and one(head, SESSION_HEADER) is None
        try:
            if opens:
                session = self._sessions.open(proven, self._kernel.runner(), named=True)
            else:
                session = self._session(head, proven)
        except Overloaded as error:
            refusal = RpcError(REFUSED, error.message, {"code": error.code}, retry_after=error.retry_after)
            await reply.answer(429, error_message(message.id_raw, refusal), headers_of(refusal))
            return
        except RpcError as error:
            await reply.answer(error.status or 400, error_message(message.id_raw, error))
            return
        asked = Asked(
            message,
            proven,
            reply,
            session=session,
            version=session.runner.connection.protocol_version,
            capabilities=session.capabilities,
            carrier=trace_headers(head),
        )
        if not message.is_request:
            await self._take(session, asked)
            await reply.answer(202, b"")
            return
        if opens:
            reply.headers = ((SESSION_HEADER, session.id.encode()),)
            established = False
            try:
                established = await self._answer(receive, reply, asked, connection, modern=False)
            finally:
                if not established:
                    self._sessions.remove(session)
            return
        if message.id_raw in session.in_flight:
            twice = RpcError(INVALID_REQUEST, "a request with this id is under way; this one was not run")
            await reply.answer(200, error_message(message.id_raw, twice))
            return
        session.in_flight[message.id_raw] = asked
        try:
            await self._answer(receive, reply, asked, connection, modern=False)
        finally:
            session.in_flight.pop(message.id_raw, None)
            session.used_at = trio.current_time()

    async def _take(self, session: Session, asked: Asked) -> None:
        """Take what wants no answer: a notification, or the client's answer to a question."""
        message = asked.message
        if message.method is None:
            session.answered(message.id, message.result)
        elif message.method == "notifications/cancelled":
            withdraw(session, message)
        else:
            await self._kernel.notified(asked)

    async def _stateless(
        self,
        receive: Callable[[], Awaitable[Any]],
        reply: Reply,
        head: RequestHead,
        proven: Proven,
        connection: Connection | None,
        message: Message,
        version: str,
    ) -> None:
        if message.method is None:
            error = RpcError(INVALID_REQUEST, "in this protocol version a client sends no responses")
            await reply.answer(400, error_message(b"", error))
            return
        if not message.is_request:
            # there is nothing that it could be about: a client ends a request by closing its answer
            unsupported = unsupported_protocol_version_rejection(version)
            if unsupported is None:
                await reply.answer(202, b"")
            else:
                error = rejected(unsupported)
                await reply.answer(error.status or 400, error_message(b"", error))
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        verdict = classify_inbound_request(
            {"method": message.method, "params": message.params}, headers=headers
        )
        if isinstance(verdict, InboundLadderRejection):
            error = rejected(verdict)
            await reply.answer(error.status or 400, error_message(message.id_raw, error))
            return
        declared = verdict.client_capabilities
        asked = Asked(
            message,
            proven,
            reply,
            session=None,
            version=verdict.protocol_version,
            capabilities=declared if isinstance(declared, dict) else {},
            headers=headers,
        )
        await self._answer(receive, reply, asked, connection, modern=True)

    async def _answer(
        self,
        receive: Callable[[], Awaitable[Any]],
        reply: Reply,
        asked: Asked,
        connection: Connection | None,
        *,
        modern: bool,
    ) -> bool:
        """Answer a request; whether it was answered with a result."""
        self.replies[reply] = asked
        body = b""
        error: RpcError | None = None
        watching = trio.CancelScope()
        try:
            with asked.scope:
                if connection is not None:
                    connection.on_gone[asked.scope] = None
                    body, error = await self._kernel.respond(asked)
                else:
                    # in a task of its own, so that nothing is waited for once the answer is there
                    self._nursery.start_soon(watch, receive, asked.scope, watching)
                    body, error = await self._kernel.respond(asked)
        finally:
            watching.cancel()
            del self.replies[reply]
            if connection is not None:
                connection.on_gone.pop(asked.scope, None)
        if not body:
            if not asked.withdrawn and connection is not None and connection.gone:
                return False
            error = RpcError(REQUEST_CANCELLED, "the request was cancelled")
            body = error_message(asked.message.id_raw, error)
        status = 200
        headers: tuple[Header, ...] = ()
        if error is not None:
            headers = headers_of(error)
            status = error.status or (ERROR_CODE_HTTP_STATUS.get(error.code, 200) if modern else 200)
        await reply.answer(status, body, headers)
        return error is None

    # ------------------------------------------------------------------ GET

    async def _listen(
        self,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        head: RequestHead,
        proven: Proven,
        connection: Connection | None,
        session: Session,
    ) -> None:
        if not accepts(head)[1]:
            raise RpcError(
                INVALID_REQUEST, "a stream is `text/event-stream`, which is not accepted", status=406
            )
        channel = EventChannel(proven, connection)
        self.channels[channel] = None
        session.listen(channel)
        scope = trio.CancelScope()
        try:
            with scope:
                headers = ((SESSION_HEADER, session.id.encode()),)
                if connection is None:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(watch, receive, scope, trio.CancelScope())
                        await channel.run(send, headers)
                        nursery.cancel_scope.cancel()
                else:
                    connection.on_gone[scope] = None
                    await channel.run(send, headers)
        finally:
            if connection is not None:
                connection.on_gone.pop(scope, None)
            del self.channels[channel]
            session.unlisten(channel)

    # ------------------------------------------------------------------ parts of a request

    def _session(self, head: RequestHead, proven: Proven) -> Session:
        name = one(head, SESSION_HEADER)
        if name is None:
            raise RpcError(
                INVALID_REQUEST, "a request names its session; begin one with `initialize`", status=400
            )
        session = self._sessions.find(name, proven.identity)
        if session is None:
            raise RpcError(INVALID_REQUEST, _NO_SESSION, status=404)
        session.use(proven)
        return session
