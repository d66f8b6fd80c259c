"""The credential that a tool needs, asked for on behalf of one call.

* Whom it is for is the run's caller: tenant and principal, never a conversation.
* What a provider raises is named by its class and nothing else: its words may hold the secret.
* That somebody has to authorize first refuses the call. Where to goes to the host's callback, and to nobody
  else: no model, no record. A tool that asks by itself is no exception.
* A user's credential is somebody's: for a caller without a principal nobody is asked for one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

from .._base.credential import CredentialRequest, Issued, NeedsAuthorization
from .._base.errors import AfpoolError, AuthorizationRequired, CredentialFailed
from .._base.identity import Identity
from .._base.secret import secrets_of
from .._base.untraced import by_itself, in_place_of

if TYPE_CHECKING:
    from .._base.credential import Answered, CredentialProvider, CredentialRequirement
    from .._base.secret import Credential
    from ._record import CallRecord

logger = logging.getLogger("afpool")

OnAuthorization: TypeAlias = Callable[[str, Identity, NeedsAuthorization], object]


async def credential_for(
    tool: str,
    requirement: CredentialRequirement,
    provider: CredentialProvider | None,
    identity: Identity | None,
    record: CallRecord,
    on_authorization: OnAuthorization | None,
) -> Credential:
    """Ask for a credential.

    Args:
        tool: The tool's name, for refusals.
        requirement: What it needs.
        provider: Who vends; `None` where nobody does.
        identity: The caller's; `None` where none was named.
        record: Told what was asked and what came of it.
        on_authorization: Told when somebody has to authorize first.

    Raises:
        CredentialFailed: There is no provider, it raised, or it answered with what is no credential.
        AuthorizationRequired: Somebody has to authorize first.

    As long as the provider takes; the caller bounds it.
    """
    service = requirement.service
    if provider is None:
        raise CredentialFailed(
            f"The tool {tool} needs a credential for {service!r}, and nobody vends credentials here; it was "
            "not run. This is configuration: give the runtime a credential provider"
        )
    if requirement.mode == "user" and (identity is None or identity.principal is None):
        record.file("credential_failed", {"service": service, "error_class": CredentialFailed.__name__})
        raise CredentialFailed(
            f"The tool {tool} needs its caller's own credential for {service!r}, and the call is for no "
            "principal; it was not run. Whoever calls has to say for whom"
        )
    record.file("credential_requested", {"service": service, "mode": requirement.mode})
    request = CredentialRequest(
        service, requirement.scopes, requirement.mode, Identity() if identity is None else identity
    )
    answer = await _asked(tool, service, provider, request, record)
    if isinstance(answer, Issued):
        problem = secrets_of(answer.credential)
        if isinstance(problem, str):
            record.file("credential_failed", {"service": service, "error_class": CredentialFailed.__name__})
            raise CredentialFailed(
                f"The tool {tool} needs a credential for {service!r}, and the one that was given cannot be "
                f"kept out of what is told: {problem}; the tool was not run"
            )
        kind = getattr(answer.credential, "kind", None)
        facts: dict[str, Any] = {"service": service, "kind": kind if isinstance(kind, str) else "custom"}
        if answer.expires_at is not None:
            facts["expires_at"] = answer.expires_at
        record.file("credential_acquired", facts)
        return answer.credential
    if isinstance(answer, NeedsAuthorization):
        _tell(record, on_authorization, service, request.identity, answer)
        raise AuthorizationRequired(
            f"The tool {tool} needs somebody's authorization for {service!r} first; it was not run. The user "
            "has been asked; call again once it is given"
        )
    record.file("credential_failed", {"service": service, "error_class": type(answer).__name__})
    raise CredentialFailed(
        f"The tool {tool} needs a credential for {service!r}, and the provider gave none "
        f"({type(answer).__name__}); it was not run"
    )


async def _asked(
    tool: str,
    service: str,
    provider: CredentialProvider,
    request: CredentialRequest,
    record: CallRecord,
) -> Answered:
    try:
        return await provider.get(request)
    except Exception as error:  # noqa: BLE001 -- the host's own code, which may raise anything
        record.file("credential_failed", {"service": service, "error_class": type(error).__name__})
        what = f"The credential that the tool {tool} needs for {service!r}"
        failure = _failure(what, error, "; the tool was not run")
    raise failure  # out here, where what the provider raised does not become its context


def _failure(what: str, error: Exception, then: str) -> AfpoolError:
    if isinstance(error, AuthorizationRequired | CredentialFailed):
        return by_itself(error)
    why = error.code if isinstance(error, AfpoolError) else type(error).__name__
    return in_place_of(error, CredentialFailed(f"{what} could not be had ({why}){then}"))


def _tell(
    record: CallRecord,
    on_authorization: OnAuthorization | None,
    service: str,
    identity: Identity,
    needs: NeedsAuthorization,
) -> None:
    record.file("credential_authorization_required", {"service": service, "session_id": needs.session_id})
    if on_authorization is None:
        return
    try:
        on_authorization(service, identity, needs)
    except Exception as error:  # noqa: BLE001 -- the host's code, which may raise anything
        logger.warning("on_authorization raised %s", type(error).__name__)


@final
class Asked:
    """The provider as a tool that asks for more by itself gets it.

    Its answers are the provider's own. What it raises is not: that would reach the model in the tool's own
    failure. What fails is recorded; that somebody has to authorize first is told to the host; what was vended
    is taken out of whatever leaves the call, as what the tool `needs` is.
    """

    __slots__ = ("_hide", "_on_authorization", "_provider", "_record")

    def __init__(
        self,
        provider: CredentialProvider,
        record: CallRecord,
        on_authorization: OnAuthorization | None,
        hide: Callable[[Credential], object],
    ) -> None:
        self._provider = provider
        self._record = record
        self._on_authorization = on_authorization
        self._hide = hide

    async def get(self, request: CredentialRequest) -> Answered:
        """See `CredentialProvider.get`.

        Raises:
            CredentialFailed: The provider raised, or what it gave cannot be kept out of what is told.
            AuthorizationRequired: The provider raised it.
        """
        try:
            answer = await self._provider.get(request)
        except Exception as error:  # noqa: BLE001 -- the host's own code, which may raise anything
            facts = {"service": request.service, "error_class": type(error).__name__}
            self._record.file("credential_failed", facts)
            failure = _failure(f"the credential for {request.service!r}", error, "")
        else:
            if isinstance(answer, Issued):
                self._hide(answer.credential)
            elif isinstance(answer, NeedsAuthorization):
                _tell(self._record, self._on_authorization, request.service, request.identity, answer)
            return answer
        raise failure  # out here, where what the provider raised does not become its context
