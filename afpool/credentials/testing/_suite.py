"""The conformance suite for credential providers: what a case is, how one is run, what is said of it.

Rules:

* No test framework is imported: the suite runs wherever there is a trio loop.
* Every case has a provider of its own.
* What a provider does not promise (a flight that several share, a consent) is not asked of it; the harness
  says what it promises. A hook that a case needs and the bench lacks makes it `not-applicable`.
* What a case says of a failure never quotes a secret: its text may end up in a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

from ..._base.credential import CredentialRequest, Issued, Mode, NeedsAuthorization
from ..._base.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from ..._base.credential import Answered, CredentialProvider

Need: TypeAlias = Literal["asked", "hold", "fail", "consent", "drop"]
Promise: TypeAlias = Literal["per_principal", "single_flight", "renews"]
Outcome: TypeAlias = Literal["passed", "failed", "not-applicable"]

ALICE: Final = Identity(tenant="acme", principal="alice")
BOB: Final = Identity(tenant="acme", principal="bob")
NAMESAKE: Final = Identity(tenant="globex", principal="alice")
WITHIN: Final = 60.0
"""Seconds that a case takes at most."""


class CaseFailed(AssertionError):
    """A provider does not do what the port says; the message says what it did instead."""


@attrs.define(kw_only=True, eq=False)
class Bench:
    """A provider that is ready to be asked, and what moves whoever grants behind it.

    Attributes:
        provider: The provider.
        secrets: Gives every secret that has come up so far: what was vended, and what the provider itself
            authenticates with.
        ask: Asks as a client of the provider does, where that takes more than `provider.get`: with a
            server's challenge, say.
        asked: Counts how often whoever grants was asked for a credential.
        hold: While it is entered, whoever grants keeps silent.
        fail: While it is entered, whoever grants fails.
        consent: Plays the person that an authorization address was given to.
    """

    provider: CredentialProvider
    secrets: Callable[[], Iterable[str]]
    ask: Callable[[CredentialRequest], Awaitable[Answered]] | None = None
    asked: Callable[[], int] | None = None
    hold: Callable[[], AbstractContextManager[object]] | None = None
    fail: Callable[[], AbstractContextManager[object]] | None = None
    consent: Callable[[NeedsAuthorization, Identity], Awaitable[object]] | None = None


@attrs.frozen(kw_only=True)
class ProviderHarness:
    """How the suite gets at a provider, and what that promises.

    Attributes:
        name: For the report.
        open_provider: Opens one for one case.
        service: A service that it knows.
        mode: What is asked for.
        per_principal: What is vended for one principal, or one tenant, is given to no other.
        single_flight: Of one key, whoever grants is asked once, however many wait.
        renews: One that a server refused is not given again.
    """

    name: str
    open_provider: Callable[[], AbstractAsyncContextManager[Bench]]
    service: str = "files"
    mode: Mode = "machine"
    per_principal: bool = False
    single_flight: bool = False
    renews: bool = False


class World:
    """What a case works with."""

    def __init__(self, harness: ProviderHarness, bench: Bench) -> None:
        self.harness = harness
        self.bench = bench

    def request(self, who: Identity = ALICE, **more: Any) -> CredentialRequest:
        """Make the request of a call."""
        return CredentialRequest(
            **{"service": self.harness.service, "mode": self.harness.mode, "identity": who, **more}
        )

    async def ask(self, who: Identity = ALICE, **more: Any) -> Answered:
        """Ask once."""
        request = self.request(who, **more)
        if self.bench.ask is None:
            return await self.bench.provider.get(request)
        return await self.bench.ask(request)

    async def issued(self, who: Identity = ALICE, **more: Any) -> Issued:
        """Ask for what is to be had; whoever has to consent does."""
        answer = await self.ask(who, **more)
        if isinstance(answer, NeedsAuthorization) and self.bench.consent is not None:
            await self.bench.consent(answer, who)
            answer = await self.ask(who, **more)
        check(isinstance(answer, Issued), f"it gave {type(answer).__name__} where a credential was to be had")
        assert isinstance(answer, Issued)
        return answer

    def asked(self) -> int:
        """Count what whoever grants was asked."""
        assert self.bench.asked is not None
        return self.bench.asked()

    def keeps_quiet(self, what: str, *texts: str) -> None:
        """Fail the case where a text holds a secret."""
        for secret in self.bench.secrets():
            check(not any(secret in text for text in texts), f"{what} shows a secret")


@attrs.frozen
class Case:
    """One thing that every provider does that promises it.

    Attributes:
        name: Stable.
        run: Raises `CaseFailed`, or whatever the provider raises.
        promises: What the harness has to say of the provider.
        needs: What the bench, or (`drop`) the provider, has to have.
    """

    name: str
    run: Callable[[World], Awaitable[None]]
    promises: tuple[Promise, ...] = ()
    needs: tuple[Need, ...] = ()


@attrs.frozen
class CaseResult:
    """What came of one case.

    Attributes:
        name: Of the case.
        outcome: `passed`, `failed`, or `not-applicable`: about what the provider does not promise.
        detail: Why, where that is not clear.
    """

    name: str
    outcome: Outcome
    detail: str = ""


@attrs.frozen
class ConformanceReport:
    """What came of all cases.

    Attributes:
        provider: The harness's name.
        results: In the order of the cases.
    """

    provider: str
    results: tuple[CaseResult, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that failed."""
        return tuple(result for result in self.results if result.outcome == "failed")

    def raise_for_failures(self) -> ConformanceReport:
        """Return self, or raise.

        Raises:
            CaseFailed: A case failed; the message lists all that did.
        """
        if self.failed:
            lines = "\n".join(f"  {result.name}: {result.detail}" for result in self.failed)
            raise CaseFailed(f"{self.provider} failed {len(self.failed)} of {len(self.results)}:\n{lines}")
        return self


def check(condition: object, failure: str) -> None:
    """Fail the case unless `condition` holds."""
    if not condition:
        raise CaseFailed(failure)


async def run_case(harness: ProviderHarness, case: Case) -> CaseResult:
    """Run one case on a provider of its own. Never raises for what the provider does."""
    lacking: list[str] = [promise for promise in case.promises if not getattr(harness, promise)]
    if lacking:
        return CaseResult(case.name, "not-applicable", f"it does not promise {' and '.join(lacking)}")
    try:
        with trio.fail_after(WITHIN):
            async with harness.open_provider() as bench:
                had = {"drop": getattr(bench.provider, "drop", None)}
                lacking = [need for need in case.needs if had.get(need, getattr(bench, need, None)) is None]
                if lacking:
                    return CaseResult(case.name, "not-applicable", f"there is no {' and '.join(lacking)}")
                await case.run(World(harness, bench))
    except Exception as error:  # noqa: BLE001 -- whatever a provider raises is this case's failure
        while isinstance(error, ExceptionGroup):  # out of a case's own nursery
            error = error.exceptions[0]
        # the words of anything else may hold a secret
        words = str(error) if isinstance(error, CaseFailed) else f"it raised {type(error).__name__}"
        return CaseResult(case.name, "failed", words)
    return CaseResult(case.name, "passed")
