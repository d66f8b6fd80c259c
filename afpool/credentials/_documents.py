"""Reading what peers of OAuth answer: metadata, registrations, tokens, errors. Without I/O.

Readers are strict about what they use, indifferent to what they do not, and quote nothing of a document. A
token is wrapped in the step in which it is read.

Sources: RFC 9728 § 2, RFC 8414 § 2, RFC 9207 § 3, RFC 7591 § 3.2, RFC 6749 § 5; MCP authorization.
"""

from __future__ import annotations

import json
from typing import Any, Final

import attrs

from .._base.secret import Bearer, Secret, bearer, wrap
from ..protocol import parse_challenges
from ._trouble import PASSING_CODES, Trouble, known_code
from ._urls import MAX_URL, check_endpoint, covers

MAX_ITEMS: Final = 256
MAX_TEXT: Final = 8192
MAX_LIFETIME: Final = 10 * 365 * 86400.0


@attrs.frozen
class ResourceMetadata:
    """What a server says about who may let others in (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ServerMetadata:
    """What an authorization server says about itself (RFC 8414, OpenID Connect Discovery).

    Attributes:
        assumed: There is no document: the default endpoints of MCP 2025-03-26.
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] | None = None
    challenge_methods: tuple[str, ...] = ()
    takes_client_documents: bool = False
    names_itself: bool = False
    assumed: bool = False


@attrs.frozen(kw_only=True)
class Registration:
    """A client at one authorization server.

    Attributes:
        method: How it authenticates at the token endpoint.
        expires_at: When its secret ends, seconds since the epoch; `None` for never.
        dynamic: It was registered by us and may be registered again.
    """

    issuer: str
    client_id: str
    client_secret: Secret | None = attrs.field(default=None, repr=False)
    method: str = "none"
    expires_at: float | None = None
    dynamic: bool = False


@attrs.frozen
class TokenAnswer:
    """What a token endpoint granted; `lifetime` in seconds, `None` where it says nothing that could be."""

    access: Bearer
    refresh: Secret | None
    scopes: tuple[str, ...] | None
    lifetime: float | None


@attrs.frozen
class Hint:
    """What a challenge says about how to get in; every field is the server's word."""

    resource_metadata: str | None = None
    scopes: tuple[str, ...] = ()


def read_challenge(field: str | None) -> Hint:
    """Read a `WWW-Authenticate`: the first Bearer challenges that name the metadata, and scopes."""
    document: str | None = None
    scopes: tuple[str, ...] = ()
    for challenge in parse_challenges(field):
        if challenge.scheme != "bearer":
            continue
        url = challenge.params.get("resource_metadata")
        if document is None and url and len(url) <= MAX_URL:
            document = url
        if not scopes:
            scopes = split_scopes(challenge.params.get("scope", ""))
    return Hint(document, scopes)


def split_scopes(text: str) -> tuple[str, ...]:
    """The scopes of a list in one string, each once, without those that RFC 6749 § 3.3 rules out."""
    fit = (word for word in text[:MAX_TEXT].split(" ") if word and all(map(_scope_char, word)))
    return tuple(dict.fromkeys(fit))[:MAX_ITEMS]


def _scope_char(char: str) -> bool:
    return "\x21" <= char <= "\x7e" and char not in '"\\'


def union(*lists: tuple[str, ...]) -> tuple[str, ...]:
    """All scopes, each once, in order of first mention; bounded, since a server may name ever more."""
    return tuple(dict.fromkeys(scope for scopes in lists for scope in scopes))[:MAX_ITEMS]


def _object(body: bytes, what: str) -> dict[str, Any]:
    value: object = None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Trouble(f"{what} is no JSON object", passing=True)
    return value


def _texts(document: dict[str, Any], name: str) -> tuple[str, ...] | None:
    value = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(item for item in value if isinstance(item, str) and len(item) <= MAX_URL)[:MAX_ITEMS]


def _text(document: dict[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= MAX_URL else None


def read_resource(body: bytes, resource: str) -> ResourceMetadata:
    """Read a protected resource's metadata.

    Raises:
        Trouble: It is unreadable, about another resource, or names no authorization server.
    """
    document = _object(body, "the server's resource metadata")
    named = _text(document, "resource")
    if named is None or not covers(named, resource):
        raise Trouble(
            "the resource metadata speaks of another resource than the server, so nothing it says is used"
        )
    servers = _texts(document, "authorization_servers")
    if not servers:
        raise Trouble("the resource metadata names no authorization server")
    return ResourceMetadata(named, servers, _texts(document, "scopes_supported") or ())


def read_server(body: bytes, issuer: str) -> ServerMetadata:
    """Read an authorization server's metadata, asked for under this issuer.

    Raises:
        Trouble: It is unreadable, of another issuer (compared byte for byte), or has endpoints that may not
            be used.
    """
    document = _object(body, "the authorization server's metadata")
    if document.get("issuer") != issuer:
        raise Trouble("the authorization server's metadata is that of another issuer, so it is not used")
    token = _text(document, "token_endpoint")
    if token is None:
        raise Trouble("the authorization server names no token endpoint")
    check_endpoint(token, "the token endpoint")
    authorization = _text(document, "authorization_endpoint")
    registration = _text(document, "registration_endpoint")
    if authorization is not None:
        check_endpoint(authorization, "the authorization endpoint")
    if registration is not None:
        check_endpoint(registration, "the registration endpoint")
    return ServerMetadata(
        issuer=issuer,
        token_endpoint=token,
        authorization_endpoint=authorization,
        registration_endpoint=registration,
        scopes_supported=_texts(document, "scopes_supported") or (),
        auth_methods=_texts(document, "token_endpoint_auth_methods_supported"),
        challenge_methods=_texts(document, "code_challenge_methods_supported") or (),
        takes_client_documents=document.get("client_id_metadata_document_supported") is True,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
    )


def assume_server(origin: str) -> ServerMetadata:
    """The default endpoints of MCP 2025-03-26, where the server's origin is its own authorization server."""
    check_endpoint(origin, "the authorization server")
    return ServerMetadata(
        issuer=origin,
        token_endpoint=f"{origin}/token",
        authorization_endpoint=f"{origin}/authorize",
        registration_endpoint=f"{origin}/register",
        assumed=True,
    )


def read_registration(body: bytes, issuer: str, asked: str, now: float) -> Registration:
    """Read the answer to a dynamic registration (RFC 7591 § 3.2.1).

    Args:
        body: The answer.
        issuer: Whose client it is.
        asked: The authentication method that was asked for; the answer may name another.
        now: Seconds since the epoch.

    Raises:
        Trouble: It is unreadable or cannot be used.
    """
    document = _object(body, "the answer to the registration")
    client_id = _text(document, "client_id")
    secret = wrap(document.pop("client_secret", None))
    method = _text(document, "token_endpoint_auth_method") or asked
    expires = _number(document.get("client_secret_expires_at"))
    if client_id is None:
        raise Trouble("the answer to the registration holds no client id", passing=True)
    if method not in ("none", "client_secret_basic", "client_secret_post"):
        raise Trouble("the client was registered with a way to authenticate that is not spoken here")
    if method != "none" and secret is None:
        raise Trouble("the client was registered with a secret that the answer does not hold", passing=True)
    return Registration(
        issuer=issuer,
        client_id=client_id,
        client_secret=secret,
        method=method,
        expires_at=expires if expires and expires > now else None,
        dynamic=True,
    )


def read_tokens(body: bytes) -> TokenAnswer:
    """Read a successful answer of a token endpoint (RFC 6749 § 5.1).

    Raises:
        Trouble: It is unreadable, or the token is not one that a Bearer header can carry.
    """
    document = _object(body, "the answer of the token endpoint")
    access, refresh = wrap(document.pop("access_token", None)), wrap(document.pop("refresh_token", None))
    kind, scope = document.get("token_type"), document.get("scope")
    lifetime = _number(document.get("expires_in"))
    del document, body
    if access is None:
        raise Trouble("the answer of the token endpoint holds no access token", passing=True)
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise Trouble("the token endpoint granted a kind of token that is not spoken here")
    credential = _bearer(access)
    if credential is None:
        raise Trouble("the token endpoint granted a token that cannot stand in a header")
    return TokenAnswer(
        credential,
        refresh,
        split_scopes(scope) if isinstance(scope, str) else None,
        None if lifetime is None or lifetime <= 0 else min(lifetime, MAX_LIFETIME),
    )


def _bearer(access: Secret) -> Bearer | None:
    try:
        return bearer(access)
    except ValueError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 1e15 else None  # not NaN either


def read_error(status: int, body: bytes, what: str, retry_after: float | None) -> Trouble:
    """Make the trouble of an answer that refuses (RFC 6749 § 5.2).

    An answer without an OAuth error, such as a proxy's, proves nothing about the grant: it is passing.
    """
    raw: object = None
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        raw = None
    given = raw.get("error") if isinstance(raw, dict) else None
    code = known_code(given)
    if status >= 500 or status in (408, 429) or code in PASSING_CODES:
        return Trouble(f"{what} answers HTTP {status} for now", passing=True, retry_after=retry_after)
    if isinstance(given, str):
        why = code or "an error that no specification names"
        return Trouble(f"{what} refuses: {why} (HTTP {status})", error_code=code or "unknown")
    return Trouble(f"{what} answers HTTP {status} without an OAuth error", passing=True)
