"""When keys are fetched: every order of callers, fetches, failures and time, and none of them too often."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from afpool.serve._jwks_cache import KEEP, MAX_BACKOFF, TTL, UNKNOWN_EVERY, KeyCache, Plan
from afpool.serve._jwks_keys import KeySet, read_key_set
from tests.serve.proof.proof_kit import EC, RSA, RSA2, public


def keys(*which: Any) -> KeySet:
    found = read_key_set(json.dumps(public(*which)).encode())
    assert isinstance(found, KeySet)
    return found


SETS = [keys(RSA), keys(RSA, RSA2), keys(EC), keys()]
ROUNDING = 1e-6  # a pause that is added to a time and taken from it again need not be the same
KIDS = ["rsa-1", "rsa-2", "ec-1", "made-up", None]


class Orders(RuleBasedStateMachine):
    """A cache, and what its owner and its callers do with it in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KeyCache()
        self.now = 1000.0
        self.begun: list[float] = []
        self.last: tuple[float, KeySet] | None = None
        self.failures = 0
        self.failed_at = 0.0

    @rule(by=st.sampled_from([0.1, 1.0, UNKNOWN_EVERY, MAX_BACKOFF, TTL, KEEP / 2, KEEP]))
    def time_passes(self, by: float) -> None:
        self.now += by

    @precondition(lambda self: not self.cache.fetching)
    @rule(kid=st.sampled_from(KIDS))
    def somebody_calls_and_a_fetch_begins_if_one_is_due(self, kid: str | None) -> None:
        plan = self.cache.plan(self.now, kid)
        usable = self.cache.usable(self.now)
        if plan is Plan.WAIT:
            known = usable is not None and usable.knows(kid)
            assert not known, "who is known waits for nobody"
            self.begin()
        elif plan is Plan.UNAVAILABLE:
            assert usable is None
            assert self.cache.retry_after(self.now) > 0
        else:
            assert usable is not None

    @precondition(lambda self: not self.cache.fetching)
    @rule()
    def a_fetch_is_due_by_the_clock(self) -> None:
        self.now = max(self.now, self.cache.next_fetch_at())
        self.begin()

    def begin(self) -> None:
        if self.begun and self.last is not None and self.cache.usable(self.now) is not None:
            # Whatever callers make up, the issuer is asked no more often than this.
            assert self.now - self.begun[-1] >= min(UNKNOWN_EVERY, 0.5) - ROUNDING
        if self.failures:
            least = min(MAX_BACKOFF, 2.0 ** min(self.failures - 1, 10)) / 2
            assert self.now - self.failed_at >= least - ROUNDING, "it was asked again too soon"
        self.begun.append(self.now)
        self.cache.asked(self.now)

    @precondition(lambda self: self.cache.fetching)
    @rule(which=st.sampled_from(SETS))
    def it_brings_keys(self, which: KeySet) -> None:
        self.cache.fetched(self.now, which)
        self.last = (self.now, which)
        self.failures = 0

    @precondition(lambda self: self.cache.fetching)
    @rule(jitter=st.floats(0, 1), after=st.none() | st.floats(0, 3600))
    def it_fails(self, jitter: float, after: float | None) -> None:
        self.cache.failed(self.now, jitter, after)
        self.failures += 1
        self.failed_at = self.now
        if after is not None:
            assert self.cache.next_fetch_at() >= self.now + after

    @precondition(lambda self: self.cache.fetching)
    @rule(kid=st.sampled_from(KIDS))
    def somebody_calls_while_a_fetch_runs(self, kid: str | None) -> None:
        usable = self.cache.usable(self.now)
        plan = self.cache.plan(self.now, kid)
        if usable is not None and usable.knows(kid):
            assert plan is Plan.USE
        else:
            assert plan is Plan.WAIT, "it may bring the key; nobody fetches a second time"

    @invariant()
    def what_came_last_is_kept_for_as_long_as_it_is_good(self) -> None:
        usable = self.cache.usable(self.now)
        if self.last is None:
            assert usable is None
        else:
            at, which = self.last
            assert usable is (which if self.now - at < KEEP else None)

    @invariant()
    def it_is_fetched_anew_before_it_is_old(self) -> None:
        if self.last is not None and not self.failures:
            assert self.cache.next_fetch_at() == self.last[0] + TTL


TestOrders = Orders.TestCase


def test_an_unknown_key_is_asked_for_once_in_a_while() -> None:
    cache = KeyCache()
    cache.asked(0.0)
    cache.fetched(0.0, keys(RSA))
    assert cache.plan(1.0, "rsa-1") is Plan.USE
    assert cache.plan(1.0, "made-up") is Plan.USE, "it was just fetched: refused by what is known"
    assert cache.plan(UNKNOWN_EVERY, "made-up") is Plan.WAIT
    cache.asked(UNKNOWN_EVERY)
    cache.fetched(UNKNOWN_EVERY + 0.1, keys(RSA))
    for other in ("made-up", "made-up-2", "made-up-3"):
        assert cache.plan(UNKNOWN_EVERY + 1, other) is Plan.USE


@pytest.mark.parametrize(("failures", "pause"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (100, 60)])
def test_pauses_double_up_to_a_minute(failures: int, pause: float) -> None:
    cache = KeyCache()
    for _ in range(failures):
        cache.asked(0.0)
        cache.failed(0.0, 1.0)
    assert cache.retry_after(0.0) == pause
    assert cache.plan(pause - 0.01, None) is Plan.UNAVAILABLE
    assert cache.plan(pause, None) is Plan.WAIT


def test_an_empty_set_is_the_issuers_word_and_no_failure() -> None:
    cache = KeyCache()
    cache.fetched(0.0, keys(RSA))
    cache.asked(1.0)
    cache.fetched(1.0, keys())
    assert cache.plan(1.0, "rsa-1") is Plan.USE
    assert cache.usable(1.0) is not None
    assert not cache.usable(1.0).keys  # type: ignore[union-attr]
