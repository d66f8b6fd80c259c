"""`OAuth`: the provider. Who is asked, when, and what is kept of the answers.

Rules:

* A grant is held per (service, resource, the requirement's scopes, mode, tenant, principal). What is answered
  from it is decided without a wait (`_account.py`); what needs the network is one flight per grant
  (`_flights.py`), which no caller's cancellation ends.
* After a flight everything is decided anew from what is held then.
* What the network says is turned into what is held by `_worker.py` and `_keeper.py`. A passing failure keeps
  what is held and backs off; a definitive one drops the grant it is about.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, final

import trio

from .._base.credential import Anonymous, CredentialRequest, Issued, Mode, NeedsAuthorization
from .._base.errors import CredentialFailed
from .._base.held import HeldCredential, HeldState
from .._base.identity import Identity
from .._base.seams import Seams
from .._base.secret import Secret
from ._account import Account
from ._consent import Consent, Redirected, check_issuer, read_redirect
from ._flights import Flights
from ._settings import OAuthSettings
from ._store import GrantKey, TokenStore
from ._trouble import Trouble, known_code
from ._urls import canonical_resource
from ._worker import Worker

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator

    import httpx

ROUNDS: Final = 4

_canonical = functools.lru_cache(1024)(canonical_resource)


@final
class OAuth:
    """Vends OAuth 2.1 access tokens as MCP says.

    Args:
        settings: Clients, redirect, limits.
        store: Where grants survive a restart; nothing survives without.
        transport: Connects to authorization servers instead of us, such as through a proxy. The check of
            names against private addresses is then its own.
        seams: Clock, random, names and threads.

    Open it around the pool, in the same task, properly nested:

    ```python
    async with OAuth(settings) as oauth, open_pool(servers, credentials=oauth, ...) as pool:
        ...
    ```

    Leaving lets running requests end within `close_timeout`, so that no refresh token is lost half way.
    """

    def __init__(
        self,
        settings: OAuthSettings | None = None,
        *,
        store: TokenStore | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        seams: Seams | None = None,
    ) -> None:
        self._settings = settings = OAuthSettings() if settings is None else settings
        self._seams = seams = Seams() if seams is None else seams
        self._flights = Flights()
        self._worker = Worker(settings, store=store, transport=transport, seams=seams, flights=self._flights)
        self._consents = self._worker.consents
        self._accounts: dict[GrantKey, Account] = {}

    async def __aenter__(self) -> OAuth:
        """Open. One checkpoint at most."""
        if self._flights.open:
            raise RuntimeError("the provider is open already")
        await self._flights.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Close; an exception of the block leaves as itself."""
        await self._flights.stop(self._settings.close_timeout)

    def __repr__(self) -> str:
        return f"<OAuth grants={len(self._accounts)} consents={len(self._consents)}>"

    # ------------------------------------------------------------------ the port

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization | Anonymous:
        """Give a token, the address of a consent, or let the request go without until the server demands one.

        At least one checkpoint. Cancelled, work that was begun goes on for the others and for later.

        Raises:
            CredentialFailed: There is no token; the text says why, `retry_after` when to come again.
            AuthorizationRequired: The server demands scopes that asking once more would not bring.
            RuntimeError: The provider is not open.
        """
        if not self._flights.open:
            raise RuntimeError("the credential provider is not open: use it as `async with OAuth(...)`")
        failure: Trouble | None = None
        try:
            account = self._account(self._key_of(request))
            account.told(request, self._seams.now())
            failure = Trouble("what was got was refused or outdated each time", passing=True)
            for _ in range(ROUNDS):
                if account.forgotten():
                    failure = Trouble("its grant was forgotten meanwhile", passing=True)
                    break
                now = self._seams.unix_now()
                answer = account.answer(request, now)
                if isinstance(answer, Issued) and account.due(now):
                    self._renew_ahead(account)
                if isinstance(answer, Issued | Anonymous):
                    await trio.lowlevel.checkpoint()
                    return answer
                needs = self._asked_already(account, answer)
                if needs is not None:
                    await trio.lowlevel.checkpoint()
                    return needs
                if account.failure is not None and self._seams.now() < account.retry_at:
                    account.failure.retry_after = account.retry_at - self._seams.now()
                    raise account.failure.again()
                await self._flights.join(account.key, functools.partial(self._worker.work, account, answer))
        except Trouble as trouble:
            failure = trouble.again()
        await trio.lowlevel.checkpoint()
        raise failure.to_error(request.service)

    def _asked_already(self, account: Account, work: str) -> NeedsAuthorization | None:
        """The consent that is waited for, if it is what the work would lead to."""
        consent, tokens = account.consent, account.tokens
        if consent is None or not self._consents.alive(consent, self._seams.now()):
            account.consent = None
            return None
        renewable = tokens is not None and tokens.refresh is not None
        if work == "load" or (work == "renew" and renewable):
            return None
        if not set(account.wanted) <= set(consent.scopes):
            return None
        return NeedsAuthorization(consent.url.reveal(), consent.session_id)

    def _key_of(self, request: CredentialRequest) -> GrantKey:
        if not request.resource:
            raise Trouble("the server has no URL, and OAuth is for servers that are reached over HTTP")
        tenant, principal = self._owner(request.mode, request.identity)
        if request.mode == "user" and principal is None:
            # kept under no name, one user's grant would be everybody's who names none
            raise Trouble("a user's grant is a principal's, and the call is for none")
        scopes = tuple(sorted(set(request.required)))
        return GrantKey(
            request.service, _canonical(request.resource), scopes, request.mode, tenant, principal
        )

    def _owner(self, mode: Mode, identity: Identity) -> tuple[str | None, str | None]:
        sharing = self._settings.machine_grant_per if mode == "machine" else "principal"
        return (
            None if sharing == "host" else identity.tenant,
            identity.principal if sharing == "principal" else None,
        )

    def _account(self, key: GrantKey) -> Account:
        account = self._accounts.pop(key, None)
        if account is None:
            grant = self._settings.grant
            if grant is None:
                grant = "client_credentials" if key.mode == "machine" else "authorization_code"
            account = Account(key=key, grant=grant, loaded=not self._worker.keeper.stores)
            self._make_room()
        self._accounts[key] = account  # last: it was asked for just now
        return account

    def _make_room(self) -> None:
        if len(self._accounts) < self._settings.max_grants:
            return
        for key in self._accounts:
            if self._flights.running(key) is None:
                del self._accounts[key]
                return

    # ------------------------------------------------------------------ consent

    async def complete(
        self,
        *,
        session_id: str,
        code: str,
        state: str,
        iss: str | None = None,
        identity: Identity | None = None,
    ) -> GrantKey:
        """Take the answer of an authorization; the next call of whom it is for succeeds.

        Args:
            session_id: Of the `NeedsAuthorization`.
            code: As the browser brought it.
            state: The same.
            iss: The same, where it is there (RFC 9207).
            identity: Who has brought it. Give it where the host knows: anybody else's consent is refused.

        Raises:
            CredentialFailed: There is no such session, the answer is not its own, or no token came of it. The
                session is used up, unless it was not found.
            RuntimeError: The provider is not open.

        Cancelled, the trade goes on by itself.
        """
        brought = Redirected(state=Secret(state), code=Secret(code), iss=iss)
        del code, state
        return await self._answered(session_id, brought, identity)

    async def complete_redirect(self, url: str, *, identity: Identity | None = None) -> GrantKey:
        """Take the URL that the browser was sent back to, with all of its query; else as `complete`."""
        brought = read_redirect(url)
        del url
        return await self._answered(None, brought, identity)

    async def _answered(
        self, session_id: str | None, brought: Redirected, identity: Identity | None
    ) -> GrantKey:
        if not self._flights.open:
            raise RuntimeError("the credential provider is not open: use it as `async with OAuth(...)`")
        consent: Consent | None = None
        failure: Trouble | None = None
        try:
            consent, code = self._consent_of(session_id, brought, identity)
            account = self._account(consent.key)
            await self._flights.join(
                ("code", consent.session_id), functools.partial(self._worker.trade, account, consent, code)
            )
        except Trouble as trouble:
            failure = trouble.again()
        if failure is None:
            assert consent is not None
            return consent.key
        await trio.lowlevel.checkpoint()
        if consent is not None:
            raise failure.to_error(consent.key.service)
        raise CredentialFailed(f"the authorization is not taken: {failure.text}; nothing was sent")

    def _consent_of(
        self, session_id: str | None, brought: Redirected, identity: Identity | None
    ) -> tuple[Consent, Secret]:
        """Find the session of an answer and use it up.

        Raises:
            Trouble: There is none, or the answer is not its own.
        """
        now = self._seams.now()
        consent: Consent | None = None
        if brought.state is not None and session_id is not None:
            consent = self._consents.by_session(session_id, brought.state, now)
        elif brought.state is not None:
            consent = self._consents.by_state(brought.state, now)
        if consent is None:
            raise Trouble(
                "no authorization of this session and state is waited for (used, too old or unknown)"
            )
        key = consent.key
        if identity is not None and self._owner(key.mode, identity) != (key.tenant, key.principal):
            raise Trouble("it was asked of somebody else")
        self._consents.close(consent)
        check_issuer(consent, brought.iss)
        if brought.error is not None:
            code = known_code(brought.error)
            raise Trouble(
                f"it was refused ({code or 'an error that no specification names'})", error_code=code
            )
        if brought.code is None:
            raise Trouble("the answer holds no code")
        return consent, brought.code

    def _renew_ahead(self, account: Account) -> None:
        if self._flights.running(account.key) is None and self._seams.now() >= account.retry_at:
            self._flights.begin(account.key, functools.partial(self._worker.work, account, "renew"))

    # ------------------------------------------------------------------ forgetting

    def drop(self, *, service: str | None = None, identity: Identity | None = None) -> int:
        """Give no token again that was got before now; grants and consents stay. Synchronous.

        The next request has a new token got: where the grant was withdrawn, that is found out then. What
        `Pool.invalidate` calls.

        Args:
            service: Only those of this service.
            identity: Only those of this tenant and principal; a field that is not named means all.

        Returns:
            How many tokens were dropped.
        """
        dropped = 0
        for account in self._matching(service, identity):
            if account.tokens is not None and account.tokens.refused_at is None:
                account.tokens.refused_at = self._seams.now()
                dropped += 1
        return dropped

    async def forget(self, *, service: str | None = None, identity: Identity | None = None) -> int:
        """Forget grants and consents, here and in the store; what is under way for them comes to nothing.

        Args:
            service: Only those of this service.
            identity: Only those of this tenant and principal; a field that is not named means all.

        Returns:
            How many were forgotten. A grant that is in the store only, since nobody has asked for it since
            the provider was opened, is not found.
        """
        gone = self._matching(service, identity)
        for account in gone:
            account.gone = True
            del self._accounts[account.key]
            if account.consent is not None:
                self._consents.close(account.consent)
        await trio.lowlevel.checkpoint()
        for account in gone:
            await self._worker.keeper.forget(account)
        return len(gone)

    def held(self) -> Iterator[HeldCredential]:
        """Say what is held, and never a token. Lazily, over a copy."""
        unix, now = self._seams.unix_now(), self._seams.now()
        for account in list(self._accounts.values()):
            key, tokens, consent = account.key, account.tokens, account.consent
            state: HeldState = "asking"
            until = None
            if tokens is not None and tokens.good(unix):
                state = "held" if self._flights.running(key) is None else "renewing"
                until = tokens.good_until
            elif consent is not None:
                state, until = "consent", unix + (consent.until - now)
            elif account.failure is not None and now < account.retry_at:
                state, until = "failing", unix + (account.retry_at - now)
            nobody = key.tenant is None and key.principal is None
            yield HeldCredential(
                service=key.service,
                mode=key.mode,
                scopes=account.wanted or key.scopes,
                resource=key.resource,
                who=None if nobody else Identity(key.tenant, key.principal),
                state=state,
                expires_at=None if tokens is None else tokens.expires_at,
                renew_at=None if tokens is None else tokens.renew_at,
                until=until,
            )

    def _matching(self, service: str | None, identity: Identity | None) -> list[Account]:
        return [
            account
            for account in self._accounts.values()
            if service in (None, account.key.service)
            and (
                identity is None
                or (
                    identity.tenant in (None, account.key.tenant)
                    and identity.principal in (None, account.key.principal)
                )
            )
        ]
