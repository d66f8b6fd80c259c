"""What a provider holds for one grant key, and what may be answered from it. Without I/O.

Rules:

* A token is given only while it is within its lifetime and the server has not refused it.
* A refusal is of one credential. Whoever was refused with an older one than is held gets the one held.
* The scopes that were ever wanted for a key are wanted in each further authorization (the union).
* After a failure nobody is asked before `retry_at`; a token that is still good stays in use meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs

from .._base.credential import Anonymous, CredentialRequest, Issued
from .._base.errors import NOT_SENT, AuthorizationRequired
from ._documents import Registration, TokenAnswer, read_challenge, union

if TYPE_CHECKING:
    import random

    from .._base.secret import Bearer, Secret
    from ._consent import Consent
    from ._settings import Grant, OAuthSettings
    from ._store import GrantKey
    from ._trouble import Trouble

LEEWAY: Final = (
    3.0  # seconds before its end at which no request is begun with a token, a tenth of its life at most
)

Work: TypeAlias = Literal["load", "renew", "obtain"]


@attrs.define(eq=False, kw_only=True)
class Tokens:
    """What was granted.

    Attributes:
        scopes: What the server says it granted, else what was asked for.
        requested: What was asked for.
        expires_at: Seconds since the epoch; `None` where the server does not say.
        good_until: No request is begun with it from then on.
        renew_at: When to renew it in the background.
        refused_at: When the server took it for invalid, on the monotonic clock.
    """

    credential: Bearer
    refresh: Secret | None
    scopes: tuple[str, ...]
    requested: tuple[str, ...]
    expires_at: float | None
    good_until: float | None
    renew_at: float | None
    client: Registration
    resource: str
    metadata_url: str | None
    refused_at: float | None = None

    def good(self, now: float) -> bool:
        """Whether it may be sent."""
        return self.refused_at is None and (self.good_until is None or now < self.good_until)


def tokens_of(
    answer: TokenAnswer,
    *,
    requested: tuple[str, ...],
    client: Registration,
    resource: str,
    metadata_url: str | None,
    now: float,
    ahead: float,
    dice: random.Random,
    before: Tokens | None = None,
) -> Tokens:
    """Make tokens of an answer; what a refresh leaves out stays as it was `before`."""
    expires_at = good_until = renew_at = None
    if answer.lifetime is not None:
        expires_at = now + answer.lifetime
        good_until = expires_at - min(LEEWAY, answer.lifetime / 10)
        early = min(ahead, answer.lifetime / 5)
        renew_at = expires_at - early * (1 + dice.random() / 2)
    scopes = answer.scopes
    if scopes is None:
        scopes = requested if before is None else before.scopes
    refresh = answer.refresh
    if refresh is None and before is not None:
        refresh = before.refresh
    return Tokens(
        credential=answer.access,
        refresh=refresh,
        scopes=scopes,
        requested=requested,
        expires_at=expires_at,
        good_until=good_until,
        renew_at=renew_at,
        client=client,
        resource=resource,
        metadata_url=metadata_url,
    )


@attrs.define(eq=False, kw_only=True)
class Account:
    """The state of one key.

    Attributes:
        grant: How its tokens are come by.
        wanted: Scopes that were asked for or demanded so far.
        metadata_url: Where a challenge said that the server's metadata stands.
        demanded: The server has said that it wants a credential.
        consent: What somebody has been asked.
        loaded: The store has been asked.
        failure: Of the last work.
        retry_at: On the monotonic clock.
        gone: It was forgotten; what still comes for it is not kept.
    """

    key: GrantKey
    grant: Grant
    wanted: tuple[str, ...] = ()
    metadata_url: str | None = None
    demanded: bool = False
    tokens: Tokens | None = None
    consent: Consent | None = None
    loaded: bool = False
    failures: int = 0
    failure: Trouble | None = None
    retry_at: float = float("-inf")
    gone: bool = False

    def told(self, request: CredentialRequest, now: float) -> None:
        """Take in what a request says, once, before it is answered. `now` is on the monotonic clock."""
        self.wanted = union(self.wanted, request.scopes)
        if request.reason == "call":
            return
        self.demanded = True
        hint = read_challenge(request.challenge)
        self.wanted = union(self.wanted, hint.scopes)
        if hint.resource_metadata is not None:
            self.metadata_url = hint.resource_metadata
        tokens = self.tokens
        if (
            request.rejected
            and tokens is not None
            and (request.refused is None or request.refused is tokens.credential)
        ):
            tokens.refused_at = now

    def answer(self, request: CredentialRequest, now: float) -> Issued | Anonymous | Work:
        """Answer a request, or say what has to be done first. `now` is in seconds since the epoch.

        Raises:
            AuthorizationRequired: The server demands scopes that the token has, or that were asked for and
                not granted: asking once more would give the same.
        """
        tokens = self.tokens
        if tokens is not None and tokens.good(now):
            if request.reason == "step-up":
                missing = set(request.scopes) - set(tokens.scopes)
                asked = self.grant == "client_credentials" and missing <= set(tokens.requested)
                if missing and not asked:
                    return "obtain"
                if tokens.credential is request.refused:
                    raise self._pointless("was refused by the authorization server" if missing else "carries")
            return Issued(tokens.credential, tokens.expires_at)
        if not self.loaded:
            return "load"
        if tokens is not None:
            return "renew"
        return "obtain" if self.demanded else Anonymous()

    def _pointless(self, how: str) -> AuthorizationRequired:
        return AuthorizationRequired(
            f"the server demands scopes for {self.key.service!r} that its credential {how}; nothing was sent "
            "again",
            delivery=NOT_SENT,
            http_status=403,
        )

    def forgotten(self) -> bool:
        """Whether it is gone; to be asked again after every wait."""
        return self.gone

    def due(self, now: float) -> bool:
        """Whether a good token should be renewed in the background."""
        tokens = self.tokens
        return (
            tokens is not None
            and tokens.renew_at is not None
            and now >= tokens.renew_at
            and (tokens.refresh is not None or self.grant == "client_credentials")
        )

    def succeeded(self) -> None:
        """The last work went well."""
        self.failures, self.failure, self.retry_at = 0, None, float("-inf")

    def failed(self, trouble: Trouble, now: float, settings: OAuthSettings, dice: random.Random) -> None:
        """Back off, for at least as long as the peer asks."""
        ceiling = min(settings.backoff * 2**self.failures, settings.backoff_max)
        self.failures = min(self.failures + 1, 30)
        delay = ceiling / 2 + dice.random() * ceiling / 2
        if trouble.retry_after is not None:
            delay = max(delay, trouble.retry_after)
        trouble.retry_after = delay
        self.failure, self.retry_at = trouble, now + delay
