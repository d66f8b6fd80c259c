"""What all keys of one endpoint share: the era verdict, the number of openings, names and TLS contexts.

Nothing that carries a request is in here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeAlias, final

from ..transports import Connector

if TYPE_CHECKING:
    from .._base.fair import FairPlaces
    from .._base.seams import Seams
    from ..protocol import Era
    from ..transports import Proxy, TlsConfig

    _Way: TypeAlias = tuple[TlsConfig, Proxy | None, str | None]

logger = logging.getLogger("afpool")

ERA_KEPT: Final = 3600.0
CONNECTORS_KEPT: Final = 16


@final
class Endpoint:
    """One origin or command.

    Attributes:
        name: Transport and origin or command; may be long, is never shown.
        connecting: The openings that run.
        servers: Names of the servers whose plans have led here.
    """

    __slots__ = ("_connectors", "_era", "_era_until", "_seams", "_sse", "connecting", "name", "servers")

    def __init__(self, name: str, connecting: FairPlaces, seams: Seams) -> None:
        self.name = name
        self.connecting = connecting
        self.servers: dict[str, None] = {}
        self._seams = seams
        self._connectors: dict[_Way, Connector] = {}
        self._era: Era | None = None
        self._era_until = 0.0
        self._sse = False

    def era(self) -> Era | None:
        """The era this endpoint was last seen in, while that is believed."""
        return self._era if self._seams.now() < self._era_until else None

    def speaks_sse(self) -> bool:
        """Whether it was last seen to speak HTTP+SSE, while that is believed."""
        return self._sse and self.era() is not None

    def remember(self, era: Era, *, sse: bool = False) -> None:
        """An opening has found the era out, and whether it is spoken over HTTP+SSE."""
        self._era = era
        self._sse = sse
        self._era_until = self._seams.now() + ERA_KEPT

    def forget_era(self) -> None:
        """It has proved wrong."""
        self._era = None
        self._sse = False

    def connector(self, tls: TlsConfig, *, proxy: Proxy | None = None, uds: str | None = None) -> Connector:
        """The connector of one way to the endpoint; keeps DNS answers. Called once per opening.

        A way that is not verified says so in the log, each time.
        """
        if tls.insecure:
            logger.warning(
                "a client is opened whose server's TLS certificate is not verified (insecure=True)"
            )
        if proxy is not None and proxy.tls.insecure:
            logger.warning("a client is opened whose proxy's TLS certificate is not verified (insecure=True)")
        way = (tls, proxy, uds)
        connector = self._connectors.get(way)
        if connector is None:
            while len(self._connectors) >= CONNECTORS_KEPT:
                del self._connectors[next(iter(self._connectors))]  # clients that have it keep it
            connector = self._connectors[way] = Connector(self._seams, tls, proxy=proxy, uds=uds)
        return connector
