"""What needs the network: the steps from an account that lacks a token to one that has it, or to a consent.

Everything here runs inside a flight (`_flights.py`): one per grant, ended by no caller. The rules of what is
kept when it is done are those of `_keeper.py`; the order of the steps is:

1. what the store has; 2. the way in, anew where the server has refused what came of it; 3. what another
issuer gave is dropped; 4. the refresh token; 5. a token of the host's own, or a consent that somebody is
asked for.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final, final

import trio

from ._consent import Consents, new_consent
from ._discovery import Discovery, Site
from ._documents import union
from ._keeper import Keeper
from ._network import Network
from ._registration import Registrations
from ._token_endpoint import by_client_credentials, by_code, by_refresh
from ._trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import httpx

    from .._base.seams import Seams
    from .._base.secret import Secret
    from ._account import Account, Tokens
    from ._consent import Consent
    from ._documents import TokenAnswer
    from ._flights import Flights
    from ._settings import OAuthSettings
    from ._store import TokenStore

MAX_SITES: Final = 1000
OFFLINE: Final = "offline_access"
logger = logging.getLogger("afpool.credentials")


@final
class Worker:
    """Does the work of one provider."""

    def __init__(
        self,
        settings: OAuthSettings,
        *,
        store: TokenStore | None,
        transport: httpx.AsyncBaseTransport | None,
        seams: Seams,
        flights: Flights,
    ) -> None:
        self._settings = settings
        self._seams = seams
        self._flights = flights
        self._network = Network(
            seams,
            transport=transport,
            tls=settings.tls,
            timeout=settings.request_timeout,
            allow_private=settings.allow_private,
        )
        self._registrations = Registrations(settings, self._network, flights, seams.unix_now)
        self._discovery = Discovery(
            self._network, prefer=self._registrations.prefer, legacy=settings.legacy_endpoints, now=seams.now
        )
        self.consents = Consents(settings.max_consents)
        self.keeper = Keeper(settings, seams, store, self._registrations, self.consents)
        self._sites: dict[tuple[str, str, str | None], Site] = {}

    async def _timely(self, work: Awaitable[Any]) -> Any:
        with trio.move_on_after(self._settings.flight_timeout):
            return await work
        raise Trouble(f"nothing came within {self._settings.flight_timeout:g} s", passing=True)

    async def work(self, account: Account, what: str) -> None:
        """Do what an account's answer asks for: `load`, `renew` or `obtain`.

        Raises:
            Trouble: It could not be done; the account backs off.
        """
        failure: Trouble | None = None
        try:
            await self._timely(self._steps(account, what))
        except Trouble as trouble:
            failure = trouble.again()
        except Exception as error:  # noqa: BLE001 -- it must back off like any other failure
            # Only its kind: the text may hold what was being read.
            logger.error("work for a credential raised %s", type(error).__name__)  # noqa: TRY400 -- as above
            failure = Trouble(f"an internal error ({type(error).__name__})", passing=True)
        if failure is None:
            account.succeeded()
            return
        account.failed(failure, self._seams.now(), self._settings, self._seams.random)
        raise failure.again()

    async def _steps(self, account: Account, what: str) -> None:
        if not account.loaded:
            await self.keeper.load(account)
            tokens = account.tokens
            if what == "load" or (tokens is not None and tokens.good(self._seams.unix_now())):
                return
        site = await self._site(account)
        tokens = account.tokens
        if tokens is not None and tokens.client.issuer != site.server.issuer:
            # Another server lets others in now; what the old one gave is nothing to it.
            await self.keeper.drop(account, tokens)
            tokens = None
        refresh = tokens.refresh if tokens is not None and what == "renew" else None
        if tokens is not None and refresh is not None and await self._refresh(account, site, tokens, refresh):
            return
        await self._obtain(account, site)

    async def _site(self, account: Account) -> Site:
        """What is known of the way in, asked for again where the server has refused what came of it."""
        key = account.key
        tokens = account.tokens
        hinted = account.metadata_url or (None if tokens is None else tokens.metadata_url)
        name = (key.service, key.resource, hinted)
        oldest = self._seams.now() - self._settings.metadata_ttl
        if tokens is not None and tokens.refused_at is not None:
            oldest = max(oldest, tokens.refused_at)
        site = self._sites.get(name)
        for _ in range(2):  # a search that had begun before is not it
            if site is not None and site.at >= oldest:
                break
            site = await self._flights.join(
                ("site", name), functools.partial(self._discovery.find, key.service, key.resource, hinted)
            )
        assert site is not None
        self._sites.pop(name, None)
        self._sites[name] = site
        while len(self._sites) > MAX_SITES:
            del self._sites[next(iter(self._sites))]
        return site

    async def _refresh(self, account: Account, site: Site, tokens: Tokens, refresh: Secret) -> bool:
        """Renew; `False` where the grant is over and has been dropped."""
        answer: TokenAnswer | None = None
        refused: Trouble | None = None
        try:
            answer = await by_refresh(self._network, site, tokens.client, refresh)
        except Trouble as trouble:
            refused = trouble.again()
        if answer is not None:
            await self.keeper.grant(account, site, tokens.client, answer, tokens.requested, before=tokens)
            return True
        assert refused is not None
        if refused.passing:
            raise refused
        if refused.error_code in ("invalid_client", "unauthorized_client"):
            if not tokens.client.dynamic:
                # The host's own client is misconfigured; that is no reason to throw its users' grants away.
                raise refused
            self._registrations.forget(tokens.client)
        await self.keeper.drop(account, tokens)
        return False

    async def _obtain(self, account: Account, site: Site) -> None:
        settings = self._settings
        client = await self._registrations.client_for(account.key.service, site, account.grant)
        scopes = account.wanted or site.scopes_supported
        if account.grant == "client_credentials":
            before = account.tokens
            answer: TokenAnswer | None = None
            refused: Trouble | None = None
            try:
                answer = await by_client_credentials(self._network, site, client, scopes)
            except Trouble as trouble:
                refused = trouble.again()
            if answer is not None:
                await self.keeper.grant(account, site, client, answer, scopes, before=before)
                return
            assert refused is not None
            if not refused.passing and before is not None and not before.good(self._seams.unix_now()):
                await self.keeper.drop(account, before)
            raise refused
        if settings.redirect_uri is None:
            raise Trouble("somebody has to consent, and no `redirect_uri` is configured to come back to")
        if settings.offline_access and OFFLINE in site.server.scopes_supported:
            scopes = union(scopes, (OFFLINE,))
        until = self._seams.now() + settings.consent_timeout
        consent = new_consent(account.key, site, client, scopes, settings.redirect_uri, until)
        if account.forgotten():
            return
        if account.consent is not None:
            self.consents.close(account.consent)
        account.consent = consent
        self.consents.add(consent)

    async def trade(self, account: Account, consent: Consent, code: Secret) -> None:
        """Trade a code for the tokens of an account.

        Raises:
            Trouble: No token came of it.
        """
        answer = await self._timely(
            by_code(
                self._network,
                consent.site,
                consent.client,
                code=code,
                verifier=consent.verifier,
                redirect_uri=consent.redirect_uri,
            )
        )
        account.loaded = True
        await self.keeper.grant(account, consent.site, consent.client, answer, consent.scopes)
