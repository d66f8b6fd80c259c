"""Mistakes of an app: plans and servers that cannot be, each of which afpool refuses when it is made.

Also pairs of plans, of which it has to know whether they lead to the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from afpool import (
    CredentialRequirement,
    HttpTransport,
    Plan,
    Server,
    ServerRequests,
    TlsConfig,
    WebSocketTransport,
)
from afpool.pool import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

HTTP: Final = "http://files.sim/mcp"
SOCKET: Final = "ws://files.sim/mcp"


def _http(**members: Any) -> Callable[[], object]:
    return lambda: Plan(transport=HttpTransport(url=HTTP, **members))


def _socket(**members: Any) -> Callable[[], object]:
    return lambda: Plan(transport=WebSocketTransport(url=SOCKET, **members))


def _plan(**members: Any) -> Callable[[], object]:
    return lambda: Plan(**{"transport": HttpTransport(url=HTTP), **members})


PLANS: Final[tuple[Callable[[], object], ...]] = (
    _http(headers={"x-a": "two\nlines"}),
    _http(headers={"x-a": 7}),
    _http(headers={"host": "elsewhere"}),
    _http(proxy=7),
    _http(uds=""),
    _http(uds="/run/x.sock", proxy="http://proxy.sim"),
    _http(httpx_transport=object, uds="/run/x.sock"),
    _http(streaming="both"),
    _socket(subprotocols="mcp"),
    _socket(subprotocols=("no token",)),
    _socket(subprotocols=("mcp", "mcp")),
    _socket(headers={"sec-websocket-key": "mine"}),
    _plan(transport="http"),
    _plan(protocol_version="1999-01-01"),
    _plan(transport=HttpTransport(url=HTTP, streaming="sse"), protocol_version="2026-07-28"),
    _plan(credential="secret"),
    lambda: ServerRequests(roots=["/srv"]),
    lambda: ServerRequests(elicitation_modes=["letter"]),
    lambda: ServerRequests(max_handlers=0),
)


class _Factory:
    def __call__(self) -> object:
        return object()


_ONE: Final = _Factory()
# Pairs of plans, and whether both are the same way to the same place.
ALIKE: Final[tuple[tuple[Callable[[], Any], Callable[[], Any], bool], ...]] = (
    (_http(httpx_transport=_ONE), _http(httpx_transport=_ONE), True),
    (_http(httpx_transport=_ONE), _http(httpx_transport=_Factory()), False),
    (_http(httpx_transport=lambda: None), _http(httpx_transport=lambda: None), False),
    (_http(proxy="env"), _http(), not os.environ.get("http_proxy")),
)

SERVERS: Final[tuple[Callable[[], object], ...]] = (
    lambda: Server(name=""),
    lambda: Server(name="a", compare_without=("no-pointer",)),
    lambda: Server(name="a", call_id_key="no name"),
    lambda: Server(name="a", call_id_key="progressToken"),
    lambda: Server(name="a", repeat="recognised"),
    lambda: Server(
        name="a",
        keyed_on=("tenant",),
        plan=Plan(
            transport=HttpTransport(url=HTTP, tls=TlsConfig(insecure=True)),
            credential=CredentialRequirement("a", (), "user"),
        ),
    ),
    lambda: Limits(deadline=0),
)


def confused() -> list[str]:
    """Make all plans of `ALIKE`; those that are alike and should not be, or the other way round."""
    found = []
    for one, other, alike in ALIKE:
        mine, theirs = one(), other()
        if (mine.transport.document() == theirs.transport.document()) != alike:
            found.append(f"{mine} and {theirs}")
    return found


def taken(mistakes: tuple[Callable[[], object], ...]) -> list[str]:
    """Make all of these mistakes; what was taken instead of being refused."""
    found = []
    for mistake in mistakes:
        try:
            found.append(repr(mistake()))
        except (TypeError, ValueError):
            continue
    return found
