"""Parts of a request over HTTP: its body, its headers, its end; and what is refused of it by rule."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, Final

import trio
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, InboundLadderRejection

from ._rpc import INVALID_REQUEST, REFUSED, RpcError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..config import ServeLimits
    from ._connection import Connection
    from ._proof_types import Header, RequestHead
    from ._rpc import Message
    from ._sessions import Session

DRAINING: Final = "the service is ending; nothing was run"
RETRY: Final = 1.0
_GONE_BYTES: Final = 8 * 1024 * 1024
_GONE_SECONDS: Final = 2.0


async def read_body(
    receive: Callable[[], Awaitable[Any]], head: RequestHead, limits: ServeLimits
) -> bytes | None:
    """Read the body; `None` where the client has gone.

    Raises:
        RpcError: It is too large, or takes too long.
    """
    limit = limits.body
    stated = head.all(b"content-length")
    if stated and stated[0].isdigit() and (len(stated[0]) > 18 or int(stated[0]) > limit):
        raise RpcError(INVALID_REQUEST, f"a body has at most {limit} bytes; nothing was run", status=413)
    pieces: list[bytes] = []
    size = 0
    with trio.CancelScope(deadline=trio.current_time() + limits.body_timeout):
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            piece = event.get("body", b"")
            size += len(piece)
            if size > limit:
                raise RpcError(
                    INVALID_REQUEST, f"a body has at most {limit} bytes; nothing was run", status=413
                )
            pieces.append(piece)
            if not event.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise RpcError(INVALID_REQUEST, "the body took too long; nothing was run", status=408)


def trace_headers(head: RequestHead) -> dict[str, str]:
    """What the headers say of the client's span."""
    return {
        name.decode(): value.decode("latin-1")
        for name, value in head.headers
        if name in (b"traceparent", b"tracestate")
    }


def refuse_new(message: Message, *, modern: bool) -> None:
    """Refuse what begins something, where only what belongs to running calls is taken any more.

    Args:
        message: What came.
        modern: Whether in the stateless era, in which a call may go on with a request of its own.

    Raises:
        RpcError: It does.
    """
    goes_on = modern and message.method == "tools/call" and message.params.get("requestState") is not None
    if message.is_request and not goes_on:
        raise RpcError(REFUSED, DRAINING, {"code": "draining"}, status=503, retry_after=RETRY)


def withdraw(session: Session, message: Message) -> None:
    """Let a client take back a request of its session, if it is under way."""
    key = message.params.get("requestId")
    for asked in list(session.in_flight.values()):
        if asked.message.id == key and type(asked.message.id) is type(key):
            asked.withdraw()


def accepts(head: RequestHead) -> tuple[bool, bool]:
    """Say whether an answer may be a document, and whether a stream. Without a word either may."""
    values = head.all(b"accept")
    if not values:
        return True, True
    kinds = {part.partition(b";")[0].strip().lower() for value in values for part in value.split(b",")}
    every = b"*/*" in kinds
    return (
        every or not kinds.isdisjoint((b"application/json", b"application/*")),
        every or not kinds.isdisjoint((b"text/event-stream", b"text/*")),
    )


def one(head: RequestHead, name: bytes) -> str | None:
    values = head.all(name)
    return values[0].decode("latin-1") if values else None


def rejected(rejection: InboundLadderRejection) -> RpcError:
    status = ERROR_CODE_HTTP_STATUS.get(rejection.code, 400)
    return RpcError(rejection.code, rejection.message, rejection.data, status=status)


def headers_of(error: RpcError) -> tuple[Header, ...]:
    if error.retry_after is None:
        return ()
    return ((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))),)


async def watch(
    receive: Callable[[], Awaitable[Any]], scope: trio.CancelScope, watching: trio.CancelScope
) -> None:
    """Cancel a scope when the client has gone, where only the server that serves us can say so."""
    with watching:
        # whatever that server makes of a connection that is no more, the request has nobody left
        with contextlib.suppress(Exception):
            while (await receive())["type"] != "http.disconnect":
                pass
        scope.cancel()


async def let_go(receive: Callable[[], Awaitable[Any]], connection: Connection | None) -> None:
    """Read some of what is still coming, so that the client reads our answer; then end the connection."""
    size = 0
    with trio.move_on_after(_GONE_SECONDS):
        while size < _GONE_BYTES:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            size += len(event.get("body", b""))
            if not event.get("more_body"):
                return
    if connection is not None:
        connection.kill()
