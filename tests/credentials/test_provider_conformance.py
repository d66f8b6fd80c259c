"""The public suite over every provider; and the suite itself, which must find what is wrong."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import pytest
import trio

from afpool import (
    Anonymous,
    CredentialFailed,
    CredentialRequest,
    Issued,
    NeedsAuthorization,
    StaticCredentials,
    bearer,
)
from afpool.credentials import (
    CachedCredentials,
    EnvironmentCredentials,
    FileCredentials,
    RetryingCredentials,
    testing,
)
from afpool.credentials.testing import (
    CASES,
    Bench,
    CaseFailed,
    ProviderHarness,
    run_case,
    run_provider_conformance,
)
from tests.credentials.oauth_kit import HOST, RESOURCE, authorization_server, desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

SECRET = "c0nformance-s3cret"


# ---------------------------------------------------------------------------- providers that talk to nobody


@contextlib.asynccontextmanager
async def static() -> AsyncIterator[Bench]:
    yield Bench(provider=StaticCredentials({"files": SECRET}), secrets=lambda: [SECRET])


@contextlib.asynccontextmanager
async def environment() -> AsyncIterator[Bench]:
    os.environ["AFPOOL_CONFORMANCE"] = SECRET
    try:
        yield Bench(
            provider=EnvironmentCredentials({"files": "AFPOOL_CONFORMANCE"}),
            secrets=lambda: [SECRET],
            fail=lambda: _without("AFPOOL_CONFORMANCE"),
        )
    finally:
        del os.environ["AFPOOL_CONFORMANCE"]


@contextlib.contextmanager
def _without(variable: str) -> Iterator[None]:
    # what stands there cannot be a header, and is quoted nowhere
    os.environ[variable] = f"{SECRET}\nx"
    try:
        yield
    finally:
        os.environ[variable] = SECRET


def file(path: Path) -> Any:
    path.write_text(SECRET)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Bench]:
        @contextlib.contextmanager
        def broken() -> Iterator[None]:
            path.write_text(f"{SECRET}\n{SECRET}")
            yield
            path.write_text(SECRET)

        provider = FileCredentials({"files": path}, check_every=0)
        yield Bench(provider=provider, secrets=lambda: [SECRET], fail=broken)

    return opened


# ---------------------------------------------------------------------------- around another one


class Upstream:
    """Vends a token of its own for each request; silent or failing while it is told to be."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.asked = 0
        self.silent: trio.Event | None = None
        self.fails = False

    async def get(self, request: CredentialRequest) -> Issued:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if request.service != "files":
            raise CredentialFailed(f"no credential for {request.service!r}; nothing was sent")
        if self.silent is not None:
            await self.silent.wait()
        if self.fails:
            raise OSError("the vault is away")
        return Issued(
            bearer(f"{SECRET}-{request.identity.tenant}-{request.identity.principal}-{next(self.numbers)}")
        )

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        silent = self.silent = trio.Event()
        try:
            yield
        finally:
            self.silent = None
            silent.set()

    @contextlib.contextmanager
    def fail(self) -> Iterator[None]:
        self.fails = True
        try:
            yield
        finally:
            self.fails = False


def around(wrap: Any) -> Any:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Bench]:
        up = Upstream()
        yield Bench(
            provider=wrap(up), secrets=lambda: [SECRET], asked=lambda: up.asked, hold=up.hold, fail=up.fail
        )

    return opened


def retrying(provider: Any) -> RetryingCredentials:
    return RetryingCredentials(provider, attempts=2, delay=0.0001)


# ---------------------------------------------------------------------------- OAuth


def oauth(mode: str, *, refreshing: bool = False) -> Any:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Bench]:
        server = authorization_server(secret=SECRET)
        silent: list[trio.Event] = []
        failing = [False]

        async def token(arrival: Any) -> httpx.Response:
            if silent:
                await silent[0].wait()
            if failing[0]:
                return httpx.Response(
                    503, json={"error": "down", "error_description": f"{SECRET} host-secret"}
                )
            return server._answer(arrival)

        server.on("/token", token, times=float("inf"))
        async with desk(server, clients=(attrs.evolve(HOST),)) as d:
            agreed: set[Any] = set()
            ended = [False]

            async def ask(request: CredentialRequest) -> Any:
                request = attrs.evolve(request, resource=RESOURCE)
                if refreshing and len(agreed) == 3 and not ended[0]:
                    ended[0] = True
                    d.clock.ahead += 10_000  # the access tokens have ended: refresh tokens are used
                answer = await d.oauth.get(request)
                if isinstance(answer, Anonymous) or request.reason == "refresh":
                    challenge = f'Bearer resource_metadata="{server.describe_url(RESOURCE)}"'
                    reason = "challenge" if isinstance(answer, Anonymous) else request.reason
                    answer = await d.oauth.get(attrs.evolve(request, reason=reason, challenge=challenge))
                return answer

            async def consent(needs: NeedsAuthorization, who: Any) -> None:
                await d.oauth.complete_redirect(server.consent(needs.authorization_url), identity=who)
                agreed.add(attrs.evolve(who, conversation_id=None))

            @contextlib.contextmanager
            def hold() -> Iterator[None]:
                silent.append(trio.Event())
                try:
                    yield
                finally:
                    silent.pop().set()

            @contextlib.contextmanager
            def fail() -> Iterator[None]:
                failing[0] = True
                try:
                    yield
                finally:
                    failing[0] = False
                    d.clock.ahead += 100  # it has backed off

            user = mode == "user"
            bench = Bench(
                provider=d.oauth,
                secrets=lambda: [SECRET, "host-secret"],
                ask=ask,
                asked=lambda: len(server.asked("/token")),
                hold=hold if not user or refreshing else None,
                fail=fail if not user or refreshing else None,
                consent=consent if user else None,
            )
            if refreshing:
                for who in (testing._suite.ALICE, testing._suite.BOB, testing._suite.NAMESAKE):
                    await consent(await ask(CredentialRequest("files", (), "user", who)), who)
                bench.consent = None
            yield bench

    return opened


def harnesses(folder: Path) -> dict[str, ProviderHarness]:
    per: dict[str, Any] = {"per_principal": True}
    shared: dict[str, Any] = {"single_flight": True, "renews": True, **per}
    made = [
        ProviderHarness(name="static", open_provider=static),
        ProviderHarness(name="environment", open_provider=environment),
        ProviderHarness(name="file", open_provider=file(folder / "secret")),
        ProviderHarness(name="retrying", open_provider=around(retrying), renews=True),
        ProviderHarness(name="cached", open_provider=around(CachedCredentials), **shared),
        ProviderHarness(
            name="cached, retrying",
            open_provider=around(lambda up: CachedCredentials(retrying(up))),
            **shared,
        ),
        ProviderHarness(name="client credentials", open_provider=oauth("machine"), **shared),
        ProviderHarness(name="authorization code", open_provider=oauth("user"), mode="user", **per),
        ProviderHarness(
            name="refresh token", open_provider=oauth("user", refreshing=True), mode="user", **shared
        ),
    ]  # fmt: skip
    return {harness.name: harness for harness in made}


NAMES = [
    "static", "environment", "file", "retrying", "cached", "cached, retrying", "client credentials",
    "authorization code", "refresh token",
]  # fmt: skip
APPLY = {
    "static": 4, "environment": 5, "file": 5, "retrying": 7, "cached": 11, "cached, retrying": 11,
    "client credentials": 11, "authorization code": 8, "refresh token": 11,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", NAMES)
async def test_a_provider_does_what_the_port_says(name: str, case: Any, tmp_path: Path) -> None:
    result = await run_case(harnesses(tmp_path)[name], case)
    assert result.outcome != "failed", result.detail


@pytest.mark.parametrize("name", NAMES)
async def test_each_is_asked_all_that_it_promises(name: str, tmp_path: Path) -> None:
    report = await run_provider_conformance(harnesses(tmp_path)[name])
    assert report.raise_for_failures() is report
    applied = [result for result in report.results if result.outcome == "passed"]
    assert len(applied) == APPLY[name], [result for result in report.results if result.outcome != "passed"]


# ---------------------------------------------------------------------------- it finds what is wrong


class Everybodys(Upstream):
    """The same for everybody, twice as often as asked, and in words."""

    async def get(self, request: Any) -> Any:
        await super().get(attrs.evolve(request, service="files"))
        return Issued(bearer(SECRET))

    async def drop(self, *, service: Any, identity: Any) -> None:
        return None

    def __repr__(self) -> str:
        return f"Everybodys({SECRET!r})"


class Talks(Upstream):
    async def get(self, request: Any) -> Any:
        if self.fails or request.service != "files":
            raise CredentialFailed(f"the vault says: {SECRET}")
        return Issued(bearer(SECRET))


class Consents:
    """Asks one person for all, and shows where."""

    def __init__(self) -> None:
        self.agreed = False

    async def get(self, request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return Issued(bearer(SECRET)) if self.agreed else NeedsAuthorization("https://login.example/one", "s")

    def __repr__(self) -> str:
        return "Consents(https://login.example/one)"


class Waits(Upstream):
    """Nobody who waits can be cancelled."""

    async def get(self, request: Any) -> Any:
        with trio.CancelScope(shield=True):
            return await super().get(request)


async def failures(provider: Any, **promised: Any) -> set[str]:

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Bench]:
        made = provider()

        async def consent(needs: Any, who: Any) -> None:
            made.agreed = True

        hooks = {name: getattr(made, name) for name in ("hold", "fail") if hasattr(made, name)}
        asked = (lambda: made.asked) if hasattr(made, "asked") else None
        yield Bench(
            provider=made, secrets=lambda: [SECRET], asked=asked,
            consent=consent if hasattr(made, "agreed") else None, **hooks,
        )  # fmt: skip

    report = await run_provider_conformance(ProviderHarness(name="bad", open_provider=opened, **promised))
    if report.failed:
        with pytest.raises(CaseFailed) as caught:
            report.raise_for_failures()
        assert SECRET not in str(caught.value)
    return {result.name for result in report.failed}


ALL = {"per_principal": True, "single_flight": True, "renews": True}


async def test_the_suite_finds_a_provider_that_shares_and_tells() -> None:
    assert await failures(Everybodys, **ALL) == {
        "unknown-services-are-refused", "nothing-is-shown", "principals-are-apart",
        "principals-are-apart-at-once", "one-flight", "refused-ones-are-not-given-again",
        "what-is-dropped-is-asked-for-anew",
    }  # fmt: skip


async def test_the_suite_finds_a_provider_that_quotes_and_never_waits() -> None:
    found = await failures(Talks)
    assert {"unknown-services-are-refused", "asking-is-a-checkpoint", "failures-show-nothing"} <= found


async def test_the_suite_finds_a_provider_that_asks_one_person_for_all() -> None:
    assert await failures(Consents) == {"consent-is-an-outcome", "unknown-services-are-refused"}


async def test_the_suite_finds_a_provider_that_holds_those_who_wait() -> None:
    assert "a-cancelled-asker-ends-nobody" in await failures(Waits)


def test_the_suite_has_the_cases_that_were_promised() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) == 12
