"""From a server and its challenge to an authorization server that may be used.

Order (MCP authorization, 2025-11-25 and 2026-07-28): the challenge's `resource_metadata`, the well-known
place below the server's path, the one at its root; then, for the issuer chosen, the places of RFC 8414 and
OpenID Connect. Only "it is not there" (4xx) leads to the next place: a server that is down or answers with
what cannot be used ends the search, since the next place might speak for somebody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ._documents import (
    ResourceMetadata,
    ServerMetadata,
    assume_server,
    read_resource,
    read_server,
)
from ._trouble import Trouble
from ._urls import origin_of, resource_documents, server_documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._network import Network


@attrs.frozen
class Site:
    """What is known of one server's way in.

    Attributes:
        resource: The resource indicator for authorization and token requests (RFC 8707).
        scopes_supported: What the server says exists.
        server: The authorization server.
        metadata_url: Where the resource metadata was found.
        at: When the search for it began, on the monotonic clock.
    """

    resource: str
    scopes_supported: tuple[str, ...]
    server: ServerMetadata
    metadata_url: str | None
    at: float


@final
class Discovery:
    """Finds authorization servers.

    Args:
        network: Asks.
        prefer: Of several issuers that a server names, gives the one to use.
        legacy: A server without metadata is its own authorization server.
        now: The monotonic clock.
    """

    def __init__(
        self,
        network: Network,
        *,
        prefer: Callable[[str, tuple[str, ...]], str],
        legacy: bool,
        now: Callable[[], float],
    ) -> None:
        self._network = network
        self._prefer = prefer
        self._legacy = legacy
        self._now = now

    async def find(self, service: str, resource: str, hinted: str | None) -> Site:
        """Find the way in.

        Args:
            service: For whom; decides between several issuers.
            resource: The server's canonical URI.
            hinted: Where the challenge says that metadata stands.

        Raises:
            Trouble: There is none that may be used.
        """
        begun = self._now()
        found = await self._resource(resource, hinted)
        if found is None:
            if not self._legacy:
                raise Trouble("the server has no resource metadata, so nobody can say who lets others in")
            origin = origin_of(resource, "the server")
            server = await self._server(origin, resource, assume=True)
            return Site(resource, (), server, None, begun)
        metadata, url = found
        issuer = self._prefer(service, metadata.authorization_servers)
        server = await self._server(issuer, resource, assume=False)
        return Site(metadata.resource, metadata.scopes_supported, server, url, begun)

    async def _resource(self, resource: str, hinted: str | None) -> tuple[ResourceMetadata, str] | None:
        places = resource_documents(resource)
        if hinted is not None and hinted not in places:
            places.insert(0, hinted)
        elif hinted is not None:
            places.remove(hinted)
            places.insert(0, hinted)
        for url in places:
            reply = await self._network.get(url, "the server's resource metadata", resource=resource)
            if reply.ok:
                return read_resource(reply.body, resource), url
            if not 400 <= reply.status < 500 or reply.status == 429:
                raise Trouble(
                    f"the server's resource metadata cannot be had for now (HTTP {reply.status})",
                    passing=True,
                    retry_after=reply.retry_after,
                )
        return None

    async def _server(self, issuer: str, resource: str, *, assume: bool) -> ServerMetadata:
        for url in server_documents(issuer):
            reply = await self._network.get(url, "the authorization server's metadata", resource=resource)
            if reply.ok:
                return read_server(reply.body, issuer)
            if not 400 <= reply.status < 500 or reply.status == 429:
                raise Trouble(
                    f"the authorization server's metadata cannot be had for now (HTTP {reply.status})",
                    passing=True,
                    retry_after=reply.retry_after,
                )
        if assume:
            return assume_server(issuer)
        raise Trouble("the authorization server that the server names publishes no metadata")
