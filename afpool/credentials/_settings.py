"""What a host configures of OAuth."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import attrs

from .._base.secret import Secret, wrap
from ..transports import TlsConfig

Grant: TypeAlias = Literal["authorization_code", "client_credentials"]
AuthMethod: TypeAlias = Literal["client_secret_basic", "client_secret_post", "none"]
Sharing: TypeAlias = Literal["principal", "tenant", "host"]

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


def _secret(value: Any) -> Secret | None:
    return None if value is None else wrap(value)


@attrs.frozen(kw_only=True)
class OAuthClient:
    """A client that somebody has registered at an authorization server.

    Attributes:
        client_id: As the server gave it.
        client_secret: The same; `None` for a public client.
        issuer: The server's issuer identifier, byte for byte. Without it the client belongs to the first
            authorization server that the service's MCP server names, and to no other as long as the provider
            lives; name it where the MCP server is not trusted with that choice.
        service: The service that it is for; `None` for every service.
        auth_method: How it authenticates at the token endpoint; chosen by what the server speaks if absent.
    """

    client_id: str = attrs.field(validator=attrs.validators.min_len(1))
    client_secret: Secret | None = attrs.field(default=None, converter=_secret, repr=False)
    issuer: str | None = None
    service: str | None = None
    auth_method: AuthMethod | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(
            attrs.validators.in_(("client_secret_basic", "client_secret_post", "none"))
        ),
    )

    def __attrs_post_init__(self) -> None:
        if self.client_secret is None and self.auth_method not in (None, "none"):
            raise ValueError(f"the client {self.client_id!r} has no secret to authenticate with")


def _positive(_: object, attribute: Any, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name} must be greater than 0")


@attrs.frozen(kw_only=True)
class OAuthSettings:
    """How an `OAuth` provider gets its tokens. Times are in seconds.

    Attributes:
        clients: Clients that are registered already; the one that fits service and issuer best is used.
        client_metadata_url: The client id metadata document of this host (an https URL with a path), used
            where an authorization server takes such.
        register: Whether a client may be registered dynamically where nothing else fits.
        client_name: What a dynamic registration calls the client.
        redirect_uri: Where the user's browser comes back to. Needed for the authorization code grant.
        grant: `authorization_code`, `client_credentials`, or `None`: a `machine` requirement uses client
            credentials, a `user` requirement an authorization code.
        offline_access: Ask for `offline_access` where the authorization server knows that scope, so that
            there is a refresh token.
        machine_grant_per: Who shares a token of a `machine` requirement: `principal` nobody, `tenant` the
            principals of a tenant, `host` all.
        legacy_endpoints: Take a server without resource metadata for its own authorization server, as MCP
            2025-03-26 says.
        allow_private: Discovered URLs may lead to private and loopback addresses even if the MCP server does
            not stand there.
        tls: How authorization servers are verified.
        request_timeout: One HTTP request.
        flight_timeout: All the requests that one token may take.
        consent_timeout: How long an authorization may take before its session is forgotten.
        max_consents: Sessions that may be open at once; the oldest goes.
        max_grants: Grants that are held; the one that was asked for longest ago goes, and only a `TokenStore`
            brings it back.
        refresh_ahead: How long before its end a token is renewed in the background; at most a fifth of its
            lifetime, with jitter.
        metadata_ttl: How long discovered metadata is believed without a reason to ask again.
        backoff: The first wait after a failure; doubles.
        backoff_max: Its ceiling.
        close_timeout: How long running requests may take to end when the provider is left.
    """

    clients: tuple[OAuthClient, ...] = attrs.field(default=(), converter=tuple)
    client_metadata_url: str | None = None
    register: bool = True
    client_name: str = "afpool"
    redirect_uri: str | None = None
    grant: Grant | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(
            attrs.validators.in_(("authorization_code", "client_credentials"))
        ),
    )
    offline_access: bool = True
    machine_grant_per: Sharing = attrs.field(
        default="principal", validator=attrs.validators.in_(("principal", "tenant", "host"))
    )
    legacy_endpoints: bool = True
    allow_private: bool = False
    tls: TlsConfig = attrs.field(factory=TlsConfig)
    request_timeout: float = attrs.field(default=10.0, validator=_positive)
    flight_timeout: float = attrs.field(default=30.0, validator=_positive)
    consent_timeout: float = attrs.field(default=600.0, validator=_positive)
    max_consents: int = attrs.field(default=1000, validator=_positive)
    max_grants: int = attrs.field(default=10_000, validator=_positive)
    refresh_ahead: float = attrs.field(default=60.0, validator=_positive)
    metadata_ttl: float = attrs.field(default=3600.0, validator=_positive)
    backoff: float = attrs.field(default=0.5, validator=_positive)
    backoff_max: float = attrs.field(default=30.0, validator=_positive)
    close_timeout: float = attrs.field(default=5.0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if self.client_metadata_url is not None:
            parts = urlsplit(self.client_metadata_url)
            if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.fragment:
                raise ValueError("client_metadata_url must be an https URL with a path and no fragment")
        if self.redirect_uri is not None:
            parts = urlsplit(self.redirect_uri)
            if not parts.scheme or parts.fragment or not _VISIBLE.fullmatch(self.redirect_uri):
                raise ValueError("redirect_uri must be an absolute URI without a fragment")
            if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
                raise ValueError("redirect_uri must be https, a scheme of the app's own, or http on loopback")

    @property
    def application_type(self) -> Literal["native", "web"]:
        """What a dynamic registration says of the client, by where its redirect goes."""
        parts = urlsplit(self.redirect_uri or "")
        return "web" if parts.scheme == "https" and parts.hostname not in _LOOPBACK else "native"
