"""What the tests of OAuth share: an authorization server, a provider on it, requests like a client's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import CredentialRequest, CredentialRequirement, Identity, Issued, NeedsAuthorization
from afpool.credentials import OAuth, OAuthClient, OAuthSettings
from afpool.testing import FakeAuthorizationServer, FakeServer, echo_tool
from tests.pool.kit import Host, http_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

ALICE = Identity(tenant="acme", principal="alice")
BOB = Identity(tenant="acme", principal="bob")
RESOURCE = "https://mcp.example/mcp"
BACK = "http://127.0.0.1:9/callback"
HOST = OAuthClient(client_id="host", client_secret="host-secret", issuer="https://login.example")


def authorization_server(issuer: str = "https://login.example", **options: Any) -> FakeAuthorizationServer:
    """One that knows the host's client and protects `RESOURCE`."""
    server = FakeAuthorizationServer(issuer, clients={"host": "host-secret"}, **options)
    server.describe(RESOURCE)
    return server


@attrs.define(eq=False)
class Desk:
    """A provider, and the authorization server behind it."""

    server: FakeAuthorizationServer
    oauth: OAuth
    clock: Clock

    async def ask(
        self,
        reason: str = "call",
        *,
        who: Identity = ALICE,
        mode: str = "machine",
        scopes: tuple[str, ...] = (),
        required: tuple[str, ...] = (),
        scope: str = "",
        refused: Any = None,
        resource: str = RESOURCE,
        service: str = "files",
    ) -> Any:
        """Ask as a client would; `scope` is that of the challenge."""
        challenge = None
        if reason != "call":
            named = f', scope="{scope}"' if scope else ""
            challenge = f'Bearer resource_metadata="{self.server.describe_url(resource)}"{named}'
        return await self.oauth.get(
            CredentialRequest(
                service,
                scopes or required,
                mode,
                who,
                reason,
                rejected=reason == "refresh",
                resource=resource,
                required=required,
                challenge=challenge,
                refused=refused,
            )
        )

    async def token(self, **options: Any) -> Issued:
        """Get a token, by a challenge."""
        given = await self.ask("challenge", **options)
        assert isinstance(given, Issued), given
        return given

    async def consented(self, *, who: Identity = ALICE, **options: Any) -> Issued:
        """Get a token of a user, who consents."""
        needs = await self.ask("challenge", who=who, mode="user", **options)
        assert isinstance(needs, NeedsAuthorization)
        await self.oauth.complete_redirect(self.server.consent(needs.authorization_url), identity=who)
        given = await self.ask(who=who, mode="user", required=options.get("required", ()))
        assert isinstance(given, Issued)
        return given

    async def fails(self, *args: Any, within: float = 5, **options: Any) -> afpool.AfpoolError:
        """Ask for what cannot be had."""
        with trio.fail_after(within), pytest.raises(afpool.CredentialFailed) as caught:
            await self.ask(*args, **options)
        error = caught.value
        assert error.delivery == "not-sent"
        assert error.__cause__ is None
        return error


class Clock:
    """A wall clock that only the test moves, beside trio's own."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def unix_now(self) -> float:
        return 1_000_000_000.0 + trio.current_time() % 1e6 + self.ahead

    def now(self) -> float:
        return trio.current_time() + self.ahead

    @property
    def seams(self) -> afpool.Seams:
        return afpool.Seams(unix_now=self.unix_now, now=self.now)


@contextlib.asynccontextmanager
async def desk(
    server: FakeAuthorizationServer | None = None, *, store: Any = None, **settings: Any
) -> AsyncIterator[Desk]:
    server = authorization_server() if server is None else server
    clock = Clock()
    options = {"clients": (HOST,), "redirect_uri": BACK, "backoff": 1.0, **settings}
    async with OAuth(
        OAuthSettings(**options), store=store, transport=server.transport, seams=clock.seams
    ) as oauth:
        yield Desk(server, oauth, clock)


@attrs.define(eq=False)
class Town:
    """A pool over an MCP server that an authorization server protects."""

    mcp: FakeServer
    login: FakeAuthorizationServer
    oauth: OAuth
    pool: afpool.Pool
    needs: list[NeedsAuthorization]

    async def consent(self, who: Identity = ALICE) -> None:
        url = self.login.consent(self.needs.pop().authorization_url)
        await self.oauth.complete_redirect(url, identity=who)

    def tokens(self, name: str = "tools/call") -> list[str]:
        return [arrival.headers.get("authorization", "") for arrival in self.mcp.arrivals(name)]


@contextlib.asynccontextmanager
async def town(
    *,
    mode: str = "machine",
    scopes: tuple[str, ...] = (),
    login: FakeAuthorizationServer | None = None,
    protect: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    http: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
) -> AsyncIterator[Town]:
    login = authorization_server() if login is None else login
    needs: list[NeedsAuthorization] = []
    options = OAuthSettings(**{"clients": (HOST,), "redirect_uri": BACK, **(settings or {})})
    async with (
        FakeServer.http(tools=[echo_tool()], **(http or {})) as mcp,
        OAuth(options, transport=login.transport) as oauth,
    ):
        login.protect(mcp, **(protect or {}))
        host = Host(http_transport(mcp))
        host.credential = CredentialRequirement("files", scopes=scopes, mode=mode)
        async with afpool.open_pool(
            [afpool.Server(name="files")],
            plan=host.plan,
            credentials=oauth,
            on_authorization=lambda server, who, need: needs.append(need),
            **(pool or {}),
        ) as opened:
            yield Town(mcp, login, oauth, opened, needs)
