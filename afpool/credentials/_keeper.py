"""What is kept of grants: in the account, and in the host's store.

Rules:

* Tokens that came of a refresh are kept only if what was refreshed is still what is held, so that a slow
  refresh never overwrites a newer consent. Nothing is kept for an account that was forgotten meanwhile.
* A store that fails to save costs the grant its life after a restart and no call its token: it is logged by
  the kind of the exception. One that fails to load is a passing failure, since a consent may be in it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

from .._base.secret import Secret, bearer
from ._account import LEEWAY, Account, Tokens, tokens_of
from ._documents import Registration, TokenAnswer, union
from ._store import StoredGrant, TokenStore
from ._trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .._base.seams import Seams
    from ._consent import Consents
    from ._discovery import Site
    from ._registration import Registrations
    from ._settings import OAuthSettings

logger = logging.getLogger("afpool.credentials")


@final
class Keeper:
    """Keeps what the flights of one provider bring."""

    def __init__(
        self,
        settings: OAuthSettings,
        seams: Seams,
        store: TokenStore | None,
        registrations: Registrations,
        consents: Consents,
    ) -> None:
        self._settings = settings
        self._seams = seams
        self._store = store
        self._registrations = registrations
        self._consents = consents

    @property
    def stores(self) -> bool:
        """Whether there is a store to be asked first."""
        return self._store is not None

    async def grant(
        self,
        account: Account,
        site: Site,
        client: Registration,
        answer: TokenAnswer,
        requested: tuple[str, ...],
        *,
        before: Tokens | None = None,
    ) -> None:
        """Keep what was granted; `before` is what it renews."""
        renewed = before is not None and account.grant == "authorization_code"
        if account.forgotten() or (renewed and account.tokens is not before):
            return
        tokens = tokens_of(
            answer,
            requested=requested,
            client=client,
            resource=site.resource,
            metadata_url=site.metadata_url,
            now=self._seams.unix_now(),
            ahead=self._settings.refresh_ahead,
            dice=self._seams.random,
            before=before if renewed else None,
        )
        account.tokens = tokens
        account.succeeded()
        if not renewed and account.consent is not None:
            self._consents.close(account.consent)
            account.consent = None
        if self._store is None:
            return
        grant = StoredGrant(
            issuer=client.issuer,
            resource=tokens.resource,
            metadata_url=tokens.metadata_url,
            client_id=client.client_id,
            client_secret=client.client_secret if client.dynamic else None,
            auth_method=client.method,
            dynamic=client.dynamic,
            access_token=Secret(tokens.credential.token),
            refresh_token=tokens.refresh,
            scopes=tokens.scopes,
            requested=tokens.requested,
            expires_at=tokens.expires_at,
        )
        await self._stored(self._store.save(account.key, grant))
        if account.forgotten():
            await self._stored(self._store.delete(account.key))

    async def load(self, account: Account) -> None:
        """Take what the store has.

        Raises:
            Trouble: It could not be read.
        """
        assert self._store is not None
        failed = ""
        grant: StoredGrant | None = None
        try:
            grant = await self._store.load(account.key)
        except Exception as error:  # noqa: BLE001 -- the host's code; its text may hold what it read
            failed = type(error).__name__
        if failed:
            raise Trouble(f"the token store could not be read ({failed})", passing=True)
        account.loaded = True
        if grant is None:
            return
        client = Registration(
            issuer=grant.issuer,
            client_id=grant.client_id,
            client_secret=grant.client_secret,
            method=grant.auth_method,
            dynamic=grant.dynamic,
        )
        if grant.dynamic:
            self._registrations.adopt(client)
        else:
            client = self._registrations.renewed(account.key.service, client)
        account.wanted = union(account.wanted, grant.requested)
        account.demanded = True
        account.tokens = Tokens(
            credential=bearer(grant.access_token),
            refresh=grant.refresh_token,
            scopes=grant.scopes,
            requested=grant.requested,
            expires_at=grant.expires_at,
            good_until=None if grant.expires_at is None else grant.expires_at - LEEWAY,
            renew_at=None if grant.expires_at is None else grant.expires_at - self._settings.refresh_ahead,
            client=client,
            resource=grant.resource,
            metadata_url=grant.metadata_url,
        )

    async def drop(self, account: Account, tokens: Tokens) -> None:
        """Drop tokens that are over, unless there are others already."""
        if account.tokens is tokens:
            account.tokens = None
            if self._store is not None:
                await self._stored(self._store.delete(account.key))

    async def _stored(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except Exception as error:  # noqa: BLE001 -- as in `load`; the token itself is good
            logger.error("the token store raised %s", type(error).__name__)  # noqa: TRY400 -- as above

    async def forget(self, account: Account) -> None:
        """Forget one account in the store too."""
        if self._store is not None:
            await self._stored(self._store.delete(account.key))
