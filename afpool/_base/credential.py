"""Credentials: what a plan requires, what a provider is asked, what it gives; two simple providers.

How a secret is held is in `secret.py`; its public names are exported from here as well.

A provider's exception text may reach a record and a model: it must never hold a secret. Caching, retry
and the providers that talk to somebody build on `CredentialProvider` elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import attrs
import trio

from .identity import Identity, project
from .secret import (
    ApiKey,
    Basic,
    Bearer,
    Credential,
    Headers,
    Secret,
    api_key,
    basic,
    bearer,
    header_map,
    wrap,
)

if TYPE_CHECKING:
    import httpx

__all__ = [
    "Anonymous",
    "Answered",
    "ApiKey",
    "Basic",
    "Bearer",
    "Credential",
    "CredentialProvider",
    "CredentialRequest",
    "CredentialRequirement",
    "Headers",
    "Issued",
    "Mode",
    "NeedsAuthorization",
    "Outcome",
    "Reason",
    "ScriptedCredentials",
    "Secret",
    "Signer",
    "StaticCredentials",
    "api_key",
    "basic",
    "bearer",
    "header_map",
]

Mode: TypeAlias = Literal["machine", "user"]
Reason: TypeAlias = Literal["call", "challenge", "refresh", "step-up"]


def _scopes(raw: Iterable[str]) -> tuple[str, ...]:
    scopes = tuple(raw)
    if isinstance(raw, str) or not all(isinstance(scope, str) for scope in scopes):
        raise TypeError("scopes must be a sequence of strings, not one string")
    return scopes


def _tenant_and_principal(identity: Identity) -> Identity:
    return project(identity, ("tenant", "principal"))


@attrs.frozen
class CredentialRequirement:
    """What a plan says that a server needs.

    Attributes:
        service: The name that the provider knows the credential by.
        scopes: The scopes that it must carry.
        mode: `machine` for one of the host's own, `user` for one of the principal's.
    """

    service: str
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_scopes)
    mode: Mode = attrs.field(default="machine", validator=attrs.validators.in_(("machine", "user")))


@attrs.frozen
class CredentialRequest:
    """What a provider is asked.

    Attributes:
        service: As the requirement names it.
        scopes: The scopes wanted; grown after a step-up challenge.
        mode: `machine` or `user`.
        identity: Whom it is for: tenant and principal, never a conversation.
        reason: `call`; `challenge` after a 401 to a request that was sent without a credential; `refresh`
            after a 401 to one that carried one; `step-up` after a challenge for scopes.
        rejected: The server has refused the last one, so a cached one will not do.
        resource: The server's canonical URI: scheme, host, port and path, no query; empty where the server
            is reached over no network.
        required: The scopes of the requirement alone, which never grow; as `scopes` where not given.
        challenge: The `WWW-Authenticate` of the 401 or 403 that this request answers, several values joined
            by commas; `None` where there was none. It is the server's text: to be read, not to be trusted.
        refused: The credential that the refused request carried, so that a provider sees whether it has a
            newer one already.
    """

    service: str
    scopes: tuple[str, ...] = attrs.field(default=(), converter=_scopes)
    mode: Mode = attrs.field(default="machine", validator=attrs.validators.in_(("machine", "user")))
    identity: Identity = attrs.field(factory=Identity, converter=_tenant_and_principal)
    reason: Reason = attrs.field(
        default="call", validator=attrs.validators.in_(("call", "challenge", "refresh", "step-up"))
    )
    rejected: bool = False
    resource: str = ""
    required: tuple[str, ...] = attrs.field(
        default=attrs.Factory(lambda self: self.scopes, takes_self=True), converter=_scopes, kw_only=True
    )
    challenge: str | None = attrs.field(default=None, repr=False)
    refused: Credential | None = attrs.field(default=None, repr=False)


def _a_credential(_: object, __: object, value: Any) -> None:
    if not isinstance(value, Credential):
        # its value is not quoted: it may be the secret itself
        raise TypeError(f"what is issued is a Credential, such as bearer(token), not {type(value).__name__}")


def _moment(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expires_at is in seconds since the Unix epoch, not {type(value).__name__}")
    try:
        if isfinite(value):
            return value
    except OverflowError:
        pass  # a whole number beyond all floats
    # without end; or no time at all, and then it has ended, and is used once
    return None if value > 0 else 0.0


def _words(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{field.name} is a string, not {type(value).__name__}")


@attrs.frozen
class Issued:
    """A credential that was granted.

    Attributes:
        credential: The credential.
        expires_at: When it ends, in seconds since the Unix epoch; `None` where the provider does not say, or
            names a time without end. NaN has ended.

    Raises:
        TypeError: One of them is of another kind. The text does not quote it.
    """

    credential: Credential = attrs.field(validator=_a_credential)
    expires_at: float | None = attrs.field(default=None, converter=_moment)


@attrs.frozen
class NeedsAuthorization:
    """Somebody has to consent first.

    Attributes:
        authorization_url: Where; for the host's callback only, hidden in `repr`.
        session_id: What the provider knows this consent by.

    Raises:
        TypeError: One of them is no string. The text does not quote it.
    """

    authorization_url: str = attrs.field(repr=False, validator=_words)
    session_id: str = attrs.field(validator=_words)


@attrs.frozen
class Anonymous:
    """There is none yet: send the request without, and come back with the server's challenge.

    What a provider answers that has to be told by the server where credentials come from. The 401 to the
    bare request is the one that may be followed by another attempt; answered to a challenge, it ends the
    request as `AuthorizationRequired`.
    """


Answered: TypeAlias = Issued | NeedsAuthorization | Anonymous


class CredentialProvider(Protocol):
    """Who vends credentials.

    A provider that keeps what it vended may also have `drop(*, service, identity)`, synchronous: where it
    has, `Pool.invalidate` tells it whose credentials are not to be given again before whoever grants them was
    asked. `service` may be `None`, for all of them; fields that the identity does not name mean any.
    """

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization | Anonymous:
        """Vend one credential, say who has to consent first, or let the request go without.

        Raises whatever fits, with a text that holds no secret. May be cancelled at any checkpoint.
        """
        ...


class Signer(Protocol):
    """Who adds headers that depend on the whole request.

    A signer may also have `sign_again(request, response)`: where it has, a 401 is shown to it once, and the
    headers that it gives go out in one more attempt.
    """

    def sign(self, request: httpx.Request) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
        """Give the headers to add to `request`, or an awaitable of them.

        `request` is what will be sent, byte for byte: method, URL, every header with `host` and
        `content-length`, and the body. Each attempt has one of its own. Changing it changes nothing that is
        sent; a pair given back that it has already is passed over, one of a name that it has replaces it.
        """
        ...


class StaticCredentials:
    """A provider with one fixed credential per service, for everybody.

    Args:
        credentials: Service to credential; a string is a bearer token.
        expires_at: Passed on with every credential, in seconds since the Unix epoch.
    """

    __slots__ = ("_credentials", "_expires_at")

    def __init__(
        self, credentials: Mapping[str, str | Credential], *, expires_at: float | None = None
    ) -> None:
        wrapped = [(name, _as_credential(value)) for name, value in credentials.items()]
        del credentials
        self._credentials: dict[str, Credential] = {}
        for name, held in wrapped:
            if held is None:
                raise TypeError(f"service {name!r} needs a token or a Credential")
            self._credentials[name] = held if isinstance(held, Credential) else bearer(held)
        self._expires_at = expires_at

    async def get(self, request: CredentialRequest) -> Issued:
        """Give the credential of `request.service`. One checkpoint.

        Raises:
            LookupError: The service is unknown; the text names the known ones.
        """
        await trio.lowlevel.checkpoint()
        credential = self._credentials.get(request.service)
        if credential is None:
            known = ", ".join(sorted(self._credentials)) or "none"
            raise LookupError(f"no credential for service {request.service!r}; known services: {known}")
        return Issued(credential, self._expires_at)

    def __repr__(self) -> str:
        return f"StaticCredentials(services={sorted(self._credentials)!r})"


def _as_credential(value: object) -> Secret | Credential | None:
    return value if isinstance(value, Credential) else wrap(value)


Outcome: TypeAlias = (
    Credential
    | Issued
    | NeedsAuthorization
    | Anonymous
    | BaseException
    | Callable[[CredentialRequest], Awaitable[Answered | Credential]]
)


class ScriptedCredentials:
    """A provider for tests: answers from a script and keeps what it was asked.

    Args:
        script: One outcome per request, in order, or a function from request to outcome. An outcome is a
            credential, an `Issued`, a `NeedsAuthorization`, an `Anonymous`, an exception to raise, or an
            async function of the request that gives one of the first four.
        hold: Every request waits for this event before it takes its outcome.

    Attributes:
        requests: What was asked, oldest first, noted before any wait.
    """

    def __init__(
        self,
        script: Iterable[Outcome] | Callable[[CredentialRequest], Outcome],
        *,
        hold: trio.Event | None = None,
    ) -> None:
        self.requests: list[CredentialRequest] = []
        self._choose = script if callable(script) else None
        self._left: list[Outcome] = [] if callable(script) else list(script)
        self._hold = hold

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization | Anonymous:
        """Give the next outcome. At least one checkpoint.

        Raises:
            AssertionError: The script has ended.
        """
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        if self._hold is not None:
            await self._hold.wait()
        if self._choose is not None:
            outcome = self._choose(request)
        elif self._left:
            outcome = self._left.pop(0)
        else:
            raise AssertionError(f"request {len(self.requests)} for {request.service!r} is beyond the script")
        if isinstance(outcome, BaseException):
            raise outcome
        answer: Any = await outcome(request) if callable(outcome) else outcome
        if isinstance(answer, Credential):
            return Issued(answer)
        if isinstance(answer, Issued | NeedsAuthorization | Anonymous):
            return answer
        raise TypeError(f"a script cannot answer with {type(answer).__name__}")
