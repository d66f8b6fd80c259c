"""HTTP/1.1 over a few connections that one client owns.

A link has places in four lanes and connections that serve any of them. The connections in use are never
more than the places taken, and those laid by are used before a new one is made, so that a link never has
more of them than places. What happens on one connection is told in `_connection.py`, what becomes of one
request in `_exchange.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

from afpool.transports._connection import BadHttp, Headers, HttpConnection, Sink, Truncated
from afpool.transports._exchange import HttpExchange
from afpool.transports._lane import Lane
from afpool.transports._request import HttpRequest
from afpool.transports._wire import WireClosed

if TYPE_CHECKING:
    from afpool._base.seams import Seams
    from afpool.transports._connect import Connector
    from afpool.transports._origin import Origin
    from afpool.transports._wire import Wire

__all__ = [
    "BadHttp",
    "Headers",
    "HttpExchange",
    "HttpLink",
    "HttpRequest",
    "LaneName",
    "LinkStatistics",
    "Sink",
    "Truncated",
]

LaneName: TypeAlias = Literal["call", "control", "stream", "answer"]

_OTHER_LANES: Final = 3


@attrs.frozen
class LinkStatistics:
    """What a link has and had.

    Attributes:
        active: Exchanges that run or are held.
        waiting: Exchanges that wait for a place.
        idle: Connections laid by.
        opened: Connections ever made.
        reused: Requests that went out on a connection that was there.
    """

    active: int
    waiting: int
    idle: int
    opened: int
    reused: int


class HttpLink:
    """The few connections to one origin that one client owns; never shared with another.

    Calls have `limit` places, control traffic one, the long-lived stream one, and one is for what is over in
    a moment (answers to the server's own requests, cancel notices, pings), so that none of the three ever
    takes a call's or waits for another. Connections serve any lane, the newest idle one first.

    Args:
        origin: Whom to talk to.
        connector: How to get there.
        seams: The clock.
        limit: How many calls may be on the way at once.
        keepalive_expiry: Seconds for which an idle connection is used again, unless the server says less.
    """

    __slots__ = (
        "_active",
        "_closed",
        "_idle",
        "_keepalive_expiry",
        "_lanes",
        "_limit",
        "_opened",
        "_retired",
        "_reused",
        "_seams",
        "connector",
        "host",
        "now",
        "origin",
    )

    def __init__(
        self,
        origin: Origin,
        connector: Connector,
        *,
        seams: Seams,
        limit: int,
        keepalive_expiry: float = 4.0,
    ) -> None:
        self.origin = origin
        self.connector = connector
        self.host = origin.authority
        self.now = seams.now
        self._seams = seams
        self._limit = limit
        self._keepalive_expiry = keepalive_expiry
        self._lanes = {"call": Lane(limit), "control": Lane(1), "stream": Lane(1), "answer": Lane(1)}
        self._active: dict[HttpExchange, None] = {}
        self._idle: list[HttpConnection] = []
        self._opened = 0
        self._reused = 0
        self._closed = False
        self._retired = False

    def moved(self, origin: Origin) -> HttpLink:
        """Make the link that takes this one's place; here, what is on the way ends and nothing is kept."""
        self._retired = True
        self.drop_idle()
        return HttpLink(
            origin,
            self.connector,
            seams=self._seams,
            limit=self._limit,
            keepalive_expiry=self._keepalive_expiry,
        )

    def exchange(self, request: HttpRequest, sink: Sink, lane: LaneName = "call") -> HttpExchange:
        """Make an exchange; nothing happens before its `run`."""
        return HttpExchange(self, request, sink, self._lanes[lane])

    def statistics(self) -> LinkStatistics:
        """Count."""
        return LinkStatistics(
            active=len(self._active),
            waiting=sum(lane.waiting for lane in self._lanes.values()),
            idle=len(self._idle),
            opened=self._opened,
            reused=self._reused,
        )

    def prune(self) -> None:
        """Close idle connections that would not be used again."""
        now = self.now()
        kept: list[HttpConnection] = []
        for connection in self._idle:
            if connection.look(now) is False:
                connection.wire.close()
            else:
                kept.append(connection)
        self._idle = kept

    def drop_idle(self) -> None:
        """Close every connection that is laid by."""
        for connection in self._idle:
            connection.wire.close()
        self._idle.clear()

    def close(self) -> None:
        """Close everything at once; exchanges on the way get `WireClosed(local=True)`."""
        self._closed = True
        for exchange in tuple(self._active):
            exchange.close()
        self.drop_idle()

    # What exchanges use.

    def enter(self, exchange: HttpExchange) -> None:
        """Count an exchange in; a closed link takes none."""
        if self._closed:
            raise WireClosed("this client's connections are closed", local=True)
        self._active[exchange] = None

    def leave(self, exchange: HttpExchange) -> None:
        """Count an exchange out."""
        self._active.pop(exchange, None)

    def take_idle(self) -> HttpConnection | None:
        """The newest idle connection that can carry a request; closes those that no longer can."""
        idle = self._idle
        if not idle:
            return None
        now = self.now()
        index = len(idle)
        while index:
            index -= 1
            connection = idle[index]
            usable = connection.look(now)
            if usable is None:
                continue
            del idle[index]
            if usable:
                while idle and idle[0].expires <= now:
                    idle.pop(0).wire.close()
                self._reused += 1
                return connection
            connection.wire.close()
        return None

    def opened(self, wire: Wire) -> HttpConnection:
        """Count a new connection in. Idle ones whose tail is still open make room for it."""
        self._opened += 1
        places = sum(lane.used for lane in self._lanes.values())
        while self._idle and places + len(self._idle) > self._limit + _OTHER_LANES:
            self._idle.pop(0).wire.close()
        return HttpConnection(wire, self._keepalive_expiry, self.now())

    def give_back(self, connection: HttpConnection, *, reusable: bool) -> None:
        """Lay a connection by, or close it."""
        if reusable and not self._retired:
            self._idle.append(connection)
        else:
            connection.wire.close()
