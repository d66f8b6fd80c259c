"""The door: what every request passes before anything of it is answered.

In this order: is it a probe, or a scrape; does its head stand up (`Guard`); does the service still take
anything; who sent it (`Proof`); then what it asks for. Whatever is refused on the way is refused without its
body having been read, and logged by the word of the rule, never with what was sent.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, final

from ._http_parts import DRAINING, RETRY
from ._proof_resource import metadata
from ._proof_types import Refused, RequestHead, refuse
from ._scrape import PATH as METRICS
from ._streams import connection_of, send_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..config import ServeConfig
    from ._guard import Guard
    from ._health import Health
    from ._http import HttpEndpoint
    from ._proof import Proof
    from ._scrape import Scrape
    from ._websocket import SocketEndpoint

logger = logging.getLogger("afpool.serve")

HEALTHZ: Final = "/healthz"
READYZ: Final = "/readyz"
UNIX: Final = "unix"


@final
class Door:
    """The ASGI application.

    Args:
        config: Of the service; replaced at a reload.
        guard: Judges heads; replaced at a reload.
        proof: Says who calls.
        health: What the probes are told.
        http: Answers at `config.path`.
        sockets: Answers at `config.websocket_path`.
        scrape: Answers at `/metrics`.
    """

    def __init__(
        self,
        config: ServeConfig,
        guard: Guard,
        proof: Proof,
        health: Health,
        http: HttpEndpoint,
        sockets: SocketEndpoint,
        scrape: Scrape,
    ) -> None:
        self.config = config
        self.guard = guard
        self.refused: dict[str, int] = {}
        self._proof = proof
        self._health = health
        self._http = http
        self._sockets = sockets
        self._scrape = scrape

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Serve one ASGI scope."""
        kind = scope["type"]
        if kind == "lifespan":
            await _lifespan(receive, send)
            return
        connection = connection_of(scope)
        client = scope.get("client")
        peer = UNIX if connection is not None and connection.unix else client[0] if client else None
        method = scope["method"] if kind == "http" else "GET"
        head = RequestHead(method, scope["path"], tuple(scope["headers"]), peer)
        document = metadata(self.config.identity)
        if kind == "http" and document is not None and head.path == document[0]:
            refused = self.guard.check(head)
            if refused is None:
                await send_whole(_told(send, head), connection, 200, (), document[1])
                return
        elif kind == "http" and head.path in (HEALTHZ, READYZ):
            refused = self.guard.bounds(head)
            if refused is None:
                await self._probe(head, send, connection)
                return
        elif kind == "http" and head.path == METRICS and self.config.metrics.enabled:
            refused = self._scrape.check(head, self.config.metrics, self.guard)
            if refused is None:
                await send_whole(send, connection, *await self._scrape.answer(head))
                return
        else:
            refused = self.guard.check(head)
        # only who may call may read why he may not go on
        told = _told(send, head) if refused is None else send
        if refused is None and head.path != (
            self.config.path if kind == "http" else self.config.websocket_path
        ):
            refused = refuse(404, "not-found", "there is nothing here")
        # a POST may belong to what still runs; whoever reads it finds out
        if refused is None and self._health.draining and method not in ("POST", "DELETE"):
            refused = refuse(503, "draining", DRAINING, retry_after=RETRY)
        if refused is None:
            if method == "OPTIONS":
                await send_whole(send, connection, 204, _preflight(head), b"")
                return
            proven = await self._proof.prove(head)
            if not isinstance(proven, Refused):
                if kind == "http":
                    await self._http.serve(scope, receive, told, head, proven, self._health.draining)
                else:
                    await self._sockets.serve(scope, receive, send, proven, lambda: self._health.draining)
                return
            refused = proven
        self._note(refused)
        if kind == "http":
            await send_whole(told, connection, refused.status, (*refused.headers, _CLOSE), refused.body)
        else:
            await receive()
            start = {
                "type": "websocket.http.response.start",
                "status": refused.status,
                "headers": refused.headers,
            }
            await send(
                {**start, "headers": [*refused.headers, (b"content-length", b"%d" % len(refused.body))]}
            )
            await send({"type": "websocket.http.response.body", "body": refused.body})

    def _note(self, refused: Refused) -> None:
        code = refused.code
        self.refused[code] = self.refused.get(code, 0) + 1
        logger.info("a request was refused at the door: %s (%d)", code, refused.status)

    async def _probe(
        self, head: RequestHead, send: Callable[[Any], Awaitable[None]], connection: Any
    ) -> None:
        report = self._health.report()
        ok = head.path == HEALTHZ or report["ready"]
        body = (
            b'{"alive":true}' if head.path == HEALTHZ else json.dumps(report, separators=(",", ":")).encode()
        )
        if head.method not in ("GET", "HEAD"):
            await send_whole(send, connection, 405, ((b"allow", b"GET, HEAD"),), b"")
            return
        headers = ((b"cache-control", b"no-store"), (b"content-type", b"application/json"))
        await send_whole(send, connection, 200 if ok else 503, headers, body)


_CLOSE: Final = (b"connection", b"close")


def _told(send: Callable[[Any], Awaitable[None]], head: RequestHead) -> Callable[[Any], Awaitable[None]]:
    """Let a page read the answer that the guard has let ask."""
    origins = head.all(b"origin")
    if not origins:
        return send

    async def told(event: Any) -> None:
        if event["type"] == "http.response.start":
            headers = [*event["headers"], *_cors(origins[0])]
            event = {**event, "headers": headers}
        await send(event)

    return told


def _cors(origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"mcp-session-id, www-authenticate, retry-after"),
        (b"vary", b"origin"),
    )


def _preflight(head: RequestHead) -> tuple[tuple[bytes, bytes], ...]:
    asked = b", ".join(head.all(b"access-control-request-headers"))
    return (
        *_cors(head.all(b"origin")[0]),
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", asked or b"authorization, content-type, mcp-session-id"),
        (b"access-control-max-age", b"600"),
    )


async def _lifespan(receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return
