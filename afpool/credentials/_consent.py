"""Authorizations that somebody has to give: PKCE, `state`, and the sessions that wait for a browser.

Rules:

* A session belongs to one grant key. What comes of it goes to that key and to no other, whoever brings it.
* `state` and verifier are 256 random bits of the system's own source, never of a seeded one.
* A session is used once. It ends by being answered, replaced, too old, or the oldest of too many. An answer
  with a wrong `state` does not end it: whoever guesses must not be able to withdraw another's consent.
* `iss` (RFC 9207) is compared byte for byte where it is there, and must be there where the server says that
  it names itself; it is looked at before anything else in an answer is believed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, final
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from .._base.secret import Secret
from ._trouble import Trouble

if TYPE_CHECKING:
    from ._discovery import Site
    from ._documents import Registration
    from ._store import GrantKey


@attrs.frozen(kw_only=True, eq=False)
class Consent:
    """One authorization that is waited for."""

    session_id: str
    key: GrantKey
    url: Secret = attrs.field(repr=False)
    state: Secret = attrs.field(repr=False)
    verifier: Secret = attrs.field(repr=False)
    site: Site
    client: Registration
    scopes: tuple[str, ...]
    redirect_uri: str
    until: float


def new_consent(
    key: GrantKey, site: Site, client: Registration, scopes: tuple[str, ...], redirect_uri: str, until: float
) -> Consent:
    """Make a session and its address.

    Raises:
        Trouble: The authorization server has no authorization endpoint, or does not say that it takes S256.
    """
    server = site.server
    if server.authorization_endpoint is None:
        raise Trouble("the authorization server has no authorization endpoint")
    if not server.assumed and "S256" not in server.challenge_methods:
        raise Trouble("the authorization server does not say that it takes PKCE with S256, so it is not used")
    state, verifier = Secret(secrets.token_urlsafe(32)), Secret(secrets.token_urlsafe(48))
    digest = hashlib.sha256(verifier.reveal().encode()).digest()
    query = [
        ("response_type", "code"),
        ("client_id", client.client_id),
        ("redirect_uri", redirect_uri),
        ("state", state.reveal()),
        ("code_challenge", base64.urlsafe_b64encode(digest).rstrip(b"=").decode()),
        ("code_challenge_method", "S256"),
        ("resource", site.resource),
    ]
    if scopes:
        query.append(("scope", " ".join(scopes)))
    joint = "&" if urlsplit(server.authorization_endpoint).query else "?"
    return Consent(
        session_id=secrets.token_urlsafe(18),
        key=key,
        url=Secret(f"{server.authorization_endpoint.partition('#')[0]}{joint}{urlencode(query)}"),
        state=state,
        verifier=verifier,
        site=site,
        client=client,
        scopes=scopes,
        redirect_uri=redirect_uri,
        until=until,
    )


@attrs.frozen(kw_only=True)
class Redirected:
    """What a browser brought back (RFC 6749 § 4.1.2)."""

    state: Secret | None = attrs.field(repr=False)
    code: Secret | None = attrs.field(repr=False)
    error: str | None = None
    iss: str | None = None


def read_redirect(url: str) -> Redirected:
    """Read the query of a redirect; of a parameter that comes twice, nothing is read (RFC 6749 § 3.1)."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, max_num_fields=64)
    names = [name for name, _ in pairs]
    once = {name: value for name, value in pairs if names.count(name) == 1}
    code, state = once.get("code"), once.get("state")
    return Redirected(
        state=Secret(state) if state else None,
        code=Secret(code) if code else None,
        error=once.get("error"),
        iss=once.get("iss"),
    )


def check_issuer(consent: Consent, iss: str | None) -> None:
    """Hold an answer to the authorization server that was asked (RFC 9207 § 2.4).

    Raises:
        Trouble: It comes from another, or from nobody where the server names itself.
    """
    server = consent.site.server
    if iss is None and server.names_itself:
        raise Trouble(
            "the authorization answer does not say who gave it, although its server says that it would"
        )
    if iss is not None and iss != server.issuer:
        raise Trouble("the authorization answer comes from another issuer than the one that was asked")


@final
class Consents:
    """The sessions of one provider.

    Args:
        limit: How many may be open at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[str, Consent] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, consent: Consent) -> None:
        """Open a session."""
        self._open[consent.session_id] = consent
        while len(self._open) > self._limit:
            del self._open[next(iter(self._open))]

    def alive(self, consent: Consent | None, now: float) -> bool:
        """Whether a session can still be answered; one that is too old is closed."""
        if consent is None or self._open.get(consent.session_id) is not consent:
            return False
        if consent.until > now:
            return True
        self.close(consent)
        return False

    def close(self, consent: Consent) -> None:
        """End a session; nothing happens if it has ended."""
        self._open.pop(consent.session_id, None)

    def by_session(self, session_id: str, state: Secret, now: float) -> Consent | None:
        """The session of this id, if it is open and the state is its own."""
        consent = self._open.get(session_id)
        if consent is None or not self.alive(consent, now):
            return None
        return consent if _same(consent.state, state) else None

    def by_state(self, state: Secret, now: float) -> Consent | None:
        """The session of this state, if it is open."""
        for consent in list(self._open.values()):
            if _same(consent.state, state):
                return consent if self.alive(consent, now) else None
        return None


def _same(one: Secret, other: Secret) -> bool:
    return hmac.compare_digest(one.reveal().encode(), other.reveal().encode())
