"""Which client is used at an authorization server.

Priority (MCP authorization): registered beforehand, the client id metadata document, dynamic registration,
and else a failure that says what to configure. A client is known by its issuer, compared byte for byte, and
is never used at another.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

import attrs

from ._documents import Registration, ServerMetadata, read_error, read_registration
from ._trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._discovery import Site
    from ._flights import Flights
    from ._network import Network
    from ._settings import Grant, OAuthClient, OAuthSettings

MAX_REGISTRATIONS: Final = 1000
# Where a server says nothing, RFC 8414 § 2 and RFC 7591 § 2 mean the first.
_PREFERRED: Final = ("client_secret_basic", "client_secret_post", "none")


@final
class Registrations:
    """The clients of one provider."""

    def __init__(
        self, settings: OAuthSettings, network: Network, flights: Flights, unix_now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._network = network
        self._flights = flights
        self._unix_now = unix_now
        self._dynamic: dict[str, Registration] = {}
        # (number of a client without an issuer, service) -> the issuer that it belongs to from then on
        self._bound: dict[tuple[int, str], str] = {}

    def prefer(self, service: str, issuers: tuple[str, ...]) -> str:
        """Choose among the issuers that a server names: one with a configured client, else the first."""
        configured = {
            client.issuer or self._bound.get((number, service))
            for number, client in enumerate(self._settings.clients)
            if client.service in (None, service)
        }
        return next((issuer for issuer in issuers if issuer in configured), issuers[0])

    def adopt(self, registration: Registration) -> None:
        """Take back a dynamic registration that a store has brought, unless there is a newer one."""
        if registration.dynamic:
            self._keep(registration, replace=False)

    def renewed(self, service: str, stored: Registration) -> Registration:
        """The configured client that a stored grant was given to, with the secret that it has today."""
        for client in self._settings.clients:
            if (
                client.client_id == stored.client_id
                and client.service in (None, service)
                and client.issuer in (None, stored.issuer)
            ):
                return attrs.evolve(stored, client_secret=client.client_secret)
        return stored

    def forget(self, registration: Registration) -> None:
        """The authorization server does not know this client any more."""
        if self._dynamic.get(registration.issuer) is registration:
            del self._dynamic[registration.issuer]

    async def client_for(self, service: str, site: Site, grant: Grant) -> Registration:
        """Give the client to use; may register one.

        Raises:
            Trouble: There is none, or registering failed.
        """
        server = site.server
        known = self._configured(service, server)
        if known is not None:
            return known
        url = self._settings.client_metadata_url
        if url is not None and server.takes_client_documents and grant == "authorization_code":
            return Registration(issuer=server.issuer, client_id=url)
        if grant == "client_credentials":
            raise Trouble(
                f"no client is configured for the issuer {server.issuer!r}: give an `OAuthClient` with its "
                "client id and secret"
            )
        dynamic = self._dynamic.get(server.issuer)
        if dynamic is not None and (dynamic.expires_at is None or dynamic.expires_at > self._unix_now()):
            return dynamic
        if not self._settings.register or server.registration_endpoint is None:
            raise Trouble(
                f"no client is configured for the issuer {server.issuer!r}, and it registers none: give an "
                "`OAuthClient` or, where it takes them, a `client_metadata_url`"
            )
        return await self._flights.join(("register", server.issuer), lambda: self._register(site))

    def _configured(self, service: str, server: ServerMetadata) -> Registration | None:
        fits: list[tuple[bool, bool, int, OAuthClient]] = []
        for number, client in enumerate(self._settings.clients):
            if client.service not in (None, service):
                continue
            issuer = client.issuer or self._bound.get((number, service), server.issuer)
            if issuer == server.issuer:
                fits.append((client.issuer is None, client.service is None, number, client))
        if not fits:
            return None
        _, _, number, client = min(fits)
        if client.issuer is None:
            self._bound[number, service] = server.issuer
        return Registration(
            issuer=server.issuer,
            client_id=client.client_id,
            client_secret=client.client_secret,
            method=client.auth_method or _method(server, secret=client.client_secret is not None),
        )

    async def _register(self, site: Site) -> Registration:
        settings, server = self._settings, site.server
        if settings.redirect_uri is None:
            raise Trouble("a client cannot be registered without a `redirect_uri`")
        assert server.registration_endpoint is not None
        method = _method(server, secret=None)
        document = {
            "client_name": settings.client_name,
            "redirect_uris": [settings.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            "application_type": settings.application_type,
        }
        what = "the registration endpoint"
        reply = await self._network.post_json(
            server.registration_endpoint, what, resource=site.resource, body=json.dumps(document).encode()
        )
        if not reply.ok:
            raise read_error(reply.status, reply.body, what, reply.retry_after)
        made = read_registration(reply.body, server.issuer, method, self._unix_now())
        self._keep(made, replace=True)
        return made

    def _keep(self, registration: Registration, *, replace: bool) -> None:
        if replace:
            self._dynamic.pop(registration.issuer, None)
        self._dynamic.setdefault(registration.issuer, registration)
        while len(self._dynamic) > MAX_REGISTRATIONS:
            del self._dynamic[next(iter(self._dynamic))]


def _method(server: ServerMetadata, *, secret: bool | None) -> str:
    """Choose how to authenticate: what both speak; `secret` is `None` where one would still be given.

    Raises:
        Trouble: There is nothing in common.
    """
    offered = server.auth_methods
    if server.assumed and offered is None:
        offered = _PREFERRED
    if secret is False:
        return "none"  # a public client; a server that does not list it may still have it registered so
    spoken = ("client_secret_basic",) if offered is None else offered
    for method in _PREFERRED:
        if method in spoken and (method != "none" or secret is None):
            return method
    raise Trouble("the authorization server offers no way to authenticate a client that is spoken here")
