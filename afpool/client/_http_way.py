"""From an HTTP transport to one client's channel: over our own wire, or over the user's httpx transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.errors import OpenFailed
from ..protocol import ACCEPT, ACCEPT_BOTH, CONTENT_TYPE, JSON_TYPE
from ..transports import HttpLink
from ._http_channel import HttpChannel
from ._sse_channel import SseChannel

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..transports import HttpxLink, Origin
    from ._endpoint import Endpoint
    from ._plan import HttpTransport
    from ._settings import ClientSettings


def http_channel(
    transport: HttpTransport,
    endpoint: Endpoint,
    settings: ClientSettings,
    spawn: Callable[..., None],
    *,
    sse: bool = False,
) -> HttpChannel | SseChannel:
    """Make one client's channel, of HTTP+SSE where `sse`. Nothing is connected before the first request.

    Raises:
        OpenFailed: The factory of an httpx transport raised, or gave something else.
    """
    origin, target = transport.origin, transport.target
    link: HttpLink | HttpxLink
    if transport.httpx_transport is not None:
        link = _under(transport.httpx_transport, origin, settings, spawn)
    else:
        link = HttpLink(
            origin,
            endpoint.connector(transport.tls, proxy=transport.proxy, uds=transport.uds),
            seams=settings.seams,
            limit=settings.max_operations,
            keepalive_expiry=settings.keepalive_expiry,
        )
    headers = [(CONTENT_TYPE, JSON_TYPE), (ACCEPT, ACCEPT_BOTH)]
    headers += [(name.encode("ascii"), value.encode("latin-1")) for name, value in transport.headers]
    if sse:
        return SseChannel(link, target, headers, settings.max_message, spawn)
    # What stands on a Unix socket, or at the end of somebody else's way, is not found by a scheme.
    movable = transport.uds is None and transport.httpx_transport is None
    return HttpChannel(link, target, headers, settings.max_message, movable=movable)


def _under(
    factory: Callable[[], object], origin: Origin, settings: ClientSettings, spawn: Callable[..., None]
) -> HttpxLink:
    import httpx

    from ..transports import HttpxLink

    try:
        made = factory()
    except Exception as error:
        raise OpenFailed(
            f"the factory of the httpx transport raised {type(error).__name__}; nothing was sent"
        ) from error
    if not isinstance(made, httpx.AsyncBaseTransport):
        raise OpenFailed(
            f"the factory of the httpx transport gave {type(made).__name__}, which is no "
            "httpx.AsyncBaseTransport; nothing was sent"
        )
    link = HttpxLink(made, origin, seams=settings.seams, limit=settings.max_operations)
    spawn(link.run)
    return link
