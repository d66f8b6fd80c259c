"""Scenarios of authorization. The player is host and user in one: it visits the address that the pool's
callback was given, reads where the authorization server sends the browser, hands that back, and asks again.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx

from afpool import (
    AfpoolError,
    AuthorizationRequired,
    CredentialFailed,
    CredentialRequirement,
    NeedsAuthorization,
)
from afpool.credentials import OAuth, OAuthClient, OAuthSettings

from .playing import ALICE, Case, listed, plays, pool_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from afpool import Identity, Pool

T = TypeVar("T")

CALLBACK: Final = "http://localhost:3000/callback"  # nobody listens there: the redirect itself is read
METADATA: Final = "https://conformance-test.local/client-metadata.json"
CONSENTS: Final = 8


class Host:
    """A pool with OAuth, and the user whose browser it sends away."""

    def __init__(self, pool: Pool, oauth: OAuth, needed: list[NeedsAuthorization]) -> None:
        self.pool = pool
        self._oauth = oauth
        self._needed = needed

    async def use(self) -> None:
        """List, call the first tool; consent whenever somebody has to.

        Raises:
            AfpoolError: What list, call or consent ended with at last.
        """
        tools = await self._consenting(lambda: listed(self.pool))
        first = next(iter(tools.values()))
        result = await self._consenting(lambda: first.call({}, identity=ALICE))
        result.raise_for_error()

    async def _consenting(self, step: Callable[[], Awaitable[T]]) -> T:
        for _ in range(CONSENTS):
            try:
                return await step()
            except AuthorizationRequired as error:
                print(f"authorization required: {error}")
                if not self._needed:
                    raise
                await self._consent(self._needed.pop().authorization_url)
        raise AssertionError("a server that is never content is asked again and again")

    async def _consent(self, address: str) -> None:
        async with httpx.AsyncClient() as browser:
            answer = await browser.get(address)
        assert answer.status_code == 302, (answer.status_code, answer.text)
        await self._oauth.complete_redirect(answer.headers["location"], identity=ALICE)


@asynccontextmanager
async def host_for(case: Case, mode: str = "user", **settings: Any) -> AsyncIterator[Host]:
    """Open a provider and a pool that uses it."""
    needed: list[NeedsAuthorization] = []

    def on_authorization(_server: str, _identity: Identity, needs: NeedsAuthorization) -> None:
        needed[:] = [needs]

    chosen = OAuthSettings(**{"redirect_uri": CALLBACK, "client_metadata_url": METADATA, **settings})
    plan = {"credential": CredentialRequirement("suite", mode=mode)}
    async with (
        OAuth(chosen) as oauth,
        pool_for(case, plan, credentials=oauth, on_authorization=on_authorization) as pool,
    ):
        yield Host(pool, oauth, needed)


@plays(
    "auth/authorization-server-migration",
    "auth/basic-cimd",
    "auth/iss-not-advertised",
    "auth/iss-supported",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/offline-access-not-supported",
    "auth/offline-access-scope",
    "auth/scope-from-scopes-supported",
    "auth/scope-from-www-authenticate",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-none",
    "auth/token-endpoint-auth-post",
)
async def authorized(case: Case) -> None:
    """Consent, list, call."""
    async with host_for(case) as host:
        await host.use()


@plays("auth/pre-registration")
async def registered(case: Case) -> None:
    """Use a client that was registered before."""
    client = OAuthClient(client_id=case.context["client_id"], client_secret=case.context["client_secret"])
    async with host_for(case, clients=[client]) as host:
        await host.use()


@plays("auth/client-credentials-basic")
async def machine(case: Case) -> None:
    """Use the credentials of a client that acts for itself."""
    client = OAuthClient(
        client_id=case.context["client_id"],
        client_secret=case.context["client_secret"],
        auth_method="client_secret_basic",
    )
    async with host_for(case, "machine", clients=[client]) as host:
        await host.use()


@plays(
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
)
async def deceived(case: Case) -> None:
    """Be told by one server what only another may say: no token, and no more requests."""
    await _ends_with(CredentialFailed, case)


@plays("auth/scope-retry-limit")
async def never_content(case: Case) -> None:
    """Be asked for the same scope over and over: the user is bothered no more."""
    await _ends_with(AuthorizationRequired, case)


async def _ends_with(expected: type[AfpoolError], case: Case) -> None:
    async with host_for(case) as host:
        try:
            await host.use()
        except expected as error:
            print(f"ended with {error}")
            return
    raise AssertionError("it was not refused")
