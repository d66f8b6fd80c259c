"""How much of the service one caller may use, so that nobody's neighbour costs him his.

Rules:

* Counted is by tenant and by (tenant, principal), both as exact strings: two that look alike are two. A
  caller without a principal is his tenant's one; a conversation is nobody of its own.
* A call counts from the moment it is taken in until it is over, the wait for a place included. Who has as
  many as he may is refused at once: nobody can queue up more than that, so the queue is bounded by those
  bounds.
* Of everybody together so many calls run at once. Where all places are taken the next one goes to the tenant
  that holds fewest (`FairPlaces`), so a tenant with a hundred times the load has its calls wait for each
  other, and somebody else's come in between. One tenant has at most half of the places, as in the pool. Who
  has no tenant shares no such bound; his principal's counts.
* What is refused takes nothing: no place, and nothing out of a bucket. A rate is judged first and paid last.
* Sessions are places that are held for long. One principal has so many, one tenant at most half of all.
* Everything is given back by the block that took it, cancelled or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import attrs
import trio

from .._base.errors import Overloaded
from .._base.fair import FairPlaces
from ._door_rates import Rates
from ._proof_types import Refused, refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from .._base.identity import Identity
    from ..config import ServeLimits

Principal: TypeAlias = tuple[str | None, str | None]
# When somebody's own call ends nobody can say; asking again this much later costs us nothing.
BUSY_RETRY: Final = 1.0
SESSION_RETRY: Final = 30.0
_DOOR: Final = "door"  # FairPlaces counts by server as well; here there is one


@attrs.frozen
class DoorStatistics:
    """What the door holds now, and whom it has sent away since it was opened.

    Attributes:
        calls: Calls that were taken in, waiting ones included.
        waiting: Those of them that wait for a place.
        sessions: Sessions that are open.
        refused: Refusals by the name of the limit.
    """

    calls: int
    waiting: int
    sessions: int
    refused: dict[str, int]


class _Counts(dict[object, int]):
    """How many of what; a name that has none is forgotten."""

    def of(self, name: object) -> int:
        return self.get(name, 0)

    def add(self, name: object) -> None:
        self[name] = self.get(name, 0) + 1

    def drop(self, name: object) -> None:
        left = self[name] - 1
        if left:
            self[name] = left
        else:
            del self[name]


@final
class Session:
    """A session's place; `close` gives it back, once."""

    __slots__ = ("_give_back",)

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def close(self) -> None:
        """Give the place back; again, nothing happens."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


@final
class DoorLimits:
    """Takes calls and sessions in, or refuses them.

    Args:
        limits: How many of what.
        now: Seconds, monotonic.
    """

    def __init__(self, limits: ServeLimits, now: Callable[[], float] = trio.current_time) -> None:
        self._limits = limits
        self._now = now
        self._per_principal = _Counts()
        self._per_tenant = _Counts()
        self._places = FairPlaces(limits.calls, per_tenant=_half(limits.calls))
        self._principal_rates = self._rates(limits.rate_per_principal)
        self._tenant_rates = self._rates(limits.rate_per_tenant)
        self._sessions = 0
        self._sessions_by_principal = _Counts()
        self._sessions_by_tenant = _Counts()
        self._calls = 0
        self._refused: dict[str, int] = {}

    def reconfigure(self, limits: ServeLimits) -> None:
        """Go on under other bounds. What is held stays held and counts; nobody is sent away for it."""
        self._limits = limits
        self._places.resize(limits.calls, per_tenant=_half(limits.calls))
        self._principal_rates = self._rates(limits.rate_per_principal, self._principal_rates)
        self._tenant_rates = self._rates(limits.rate_per_tenant, self._tenant_rates)

    def _rates(self, rate: float | None, before: Rates[object] | None = None) -> Rates[object] | None:
        if rate is None:
            return None
        burst = 2 * rate if self._limits.burst is None else self._limits.burst
        if before is None:
            return Rates(rate, burst, self._now)
        before.change(rate, burst)
        return before

    # ------------------------------------------------------------------ calls

    def call(self, identity: Identity) -> AbstractAsyncContextManager[None]:
        """Hold a place for a call as long as the block runs.

        Waits where all places are taken, for `call_wait` seconds at most; where there is one, it is no
        checkpoint. Cancelled, nothing is held.

        Raises:
            Overloaded: A limit is reached: its name, the numbers, and `retry_after`. Nothing was run.
        """
        return _Call(self, identity)

    async def _begin(self, tenant: str | None, principal: Principal, key: str) -> None:
        self._judge_call(tenant, principal)
        self._per_principal.add(principal)
        self._per_tenant.add(tenant)
        self._calls += 1
        try:
            if not self._places.try_enter(_DOOR, tenant, key):
                await self._wait(tenant, key)
        except BaseException:
            self._forget(tenant, principal)
            raise

    def _end(self, tenant: str | None, principal: Principal, key: str) -> None:
        self._places.leave(_DOOR, tenant, key)
        self._forget(tenant, principal)

    def _forget(self, tenant: str | None, principal: Principal) -> None:
        self._calls -= 1
        self._per_principal.drop(principal)
        self._per_tenant.drop(tenant)

    def _judge_call(self, tenant: str | None, principal: Principal) -> None:
        limits = self._limits
        for rates, name, what in (
            (self._principal_rates, principal, "rate_per_principal"),
            (self._tenant_rates, None if tenant is None else (tenant,), "rate_per_tenant"),
        ):
            if rates is not None and name is not None and (wait := rates.wait_for(name)) > 0:
                raise self._refusal(what, f"{getattr(limits, what):g} calls a second", wait)
        if self._per_principal.of(principal) >= limits.calls_per_principal:
            words = f"{limits.calls_per_principal} calls at once of one principal"
            raise self._refusal("calls_per_principal", words, BUSY_RETRY)
        if tenant is not None and self._per_tenant.of(tenant) >= limits.calls_per_tenant:
            words = f"{limits.calls_per_tenant} calls at once of one tenant"
            raise self._refusal("calls_per_tenant", words, BUSY_RETRY)
        if self._principal_rates is not None:
            self._principal_rates.take(principal)
        if self._tenant_rates is not None and tenant is not None:
            self._tenant_rates.take((tenant,))

    async def _wait(self, tenant: str | None, key: str) -> None:
        with trio.move_on_after(self._limits.call_wait):
            await self._places.enter(_DOOR, tenant, key)
            return
        words = f"{self._limits.calls} calls at once; waited {self._limits.call_wait:g} s for a place"
        raise self._refusal("calls", words, BUSY_RETRY)

    # ------------------------------------------------------------------ sessions

    def session(self, identity: Identity) -> Session:
        """Take a session in; whoever ends it calls `close`. Synchronous.

        Raises:
            Overloaded: As for `call`.
        """
        limits, tenant, principal = self._limits, identity.tenant, (identity.tenant, identity.principal)
        if self._sessions_by_principal.of(principal) >= limits.sessions_per_principal:
            words = f"{limits.sessions_per_principal} sessions of one principal; end one that is not used"
            raise self._refusal("sessions_per_principal", words, SESSION_RETRY)
        if tenant is not None and self._sessions_by_tenant.of(tenant) >= _half(limits.sessions):
            words = f"{_half(limits.sessions)} sessions of one tenant, half of all; end one that is not used"
            raise self._refusal("sessions_per_tenant", words, SESSION_RETRY)
        if self._sessions >= limits.sessions:
            raise self._refusal("sessions", f"{limits.sessions} sessions", SESSION_RETRY)
        self._sessions += 1
        self._sessions_by_principal.add(principal)
        self._sessions_by_tenant.add(tenant)

        def give_back() -> None:
            self._sessions -= 1
            self._sessions_by_principal.drop(principal)
            self._sessions_by_tenant.drop(tenant)

        return Session(give_back)

    # ------------------------------------------------------------------ what may be asked

    def statistics(self) -> DoorStatistics:
        """What is held and what was refused."""
        return DoorStatistics(self._calls, self._places.waiting, self._sessions, dict(self._refused))

    def _refusal(self, limit: str, words: str, retry_after: float) -> Overloaded:
        self._refused[limit] = self._refused.get(limit, 0) + 1
        return Overloaded(
            f"the limit `{limit}` of this service is reached: {words}; nothing was run; try again later",
            retry_after=retry_after,
        ).saying("limit", limit)


@final
class _Call:
    """The block of one call."""

    __slots__ = ("_limits", "_who")

    def __init__(self, limits: DoorLimits, identity: Identity) -> None:
        self._limits = limits
        principal = (identity.tenant, identity.principal)
        self._who = (identity.tenant, principal, _key(principal))

    async def __aenter__(self) -> None:
        await self._limits._begin(*self._who)  # noqa: SLF001 -- a part of it

    async def __aexit__(self, *_: object) -> None:
        self._limits._end(*self._who)  # noqa: SLF001 -- as above


def refused_by(error: Overloaded) -> Refused:
    """The HTTP answer to what a limit has refused: 429 with `retry-after`."""
    return refuse(429, error.code, error.message, retry_after=error.retry_after)


def _half(limit: int) -> int:
    return max(1, limit // 2)


def _key(principal: Principal) -> str:
    # Length first: ("a", "b:c") and ("a:b", "c") are two.
    tenant, name = principal
    return f"{-1 if tenant is None else len(tenant)}:{tenant}:{-1 if name is None else len(name)}:{name}"
