"""How much of the service one caller may use: exact bounds, fair shares, and everything given back."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from afpool import Identity
from afpool._base.errors import Overloaded
from afpool.config import ServeLimits
from afpool.serve._door_limits import DoorLimits, _key, refused_by
from afpool.serve._door_rates import Rates
from tests.serve.proof.proof_kit import header_of, is_refused

if TYPE_CHECKING:
    from trio.testing import MockClock

ALICE, BOB = Identity("acme", "alice"), Identity("acme", "bob")
CAROL, NOBODYS = Identity("globex", "carol"), Identity(None, "dave")


def door(now: Any = None, **limits: Any) -> DoorLimits:
    return DoorLimits(ServeLimits(**limits)) if now is None else DoorLimits(ServeLimits(**limits), now)


async def hold(limits: DoorLimits, who: Identity, nursery: trio.Nursery, until: trio.Event) -> None:
    """Hold a call of somebody's until an event, begun when this returns."""

    async def run(task_status: trio.TaskStatus[None]) -> None:
        async with limits.call(who):
            task_status.started()
            await until.wait()

    await nursery.start(run)


async def test_a_principal_has_so_many_calls_and_a_tenant_so_many() -> None:
    limits = door(calls_per_principal=2, calls_per_tenant=3)
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        for who in (ALICE, Identity("acme", "alice", "another conversation"), BOB):
            await hold(limits, who, nursery, over)
        tenant = "calls_per_tenant"
        for who, name in ((ALICE, "calls_per_principal"), (BOB, tenant), (Identity("acme"), tenant)):
            with pytest.raises(Overloaded, match=f"`{name}`") as caught:
                async with limits.call(who):
                    raise AssertionError
            assert caught.value.retry_after == 1.0
            assert caught.value.delivery == "not-sent"
        await hold(limits, CAROL, nursery, over)
        assert limits.statistics().calls == 4
        assert limits.statistics().refused == {"calls_per_principal": 1, "calls_per_tenant": 2}
        over.set()
    assert limits.statistics().calls == 0
    async with limits.call(BOB):
        pass


async def test_who_has_no_tenant_shares_no_tenants_bound() -> None:
    limits = door(calls_per_principal=1, calls_per_tenant=1)
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        for number in range(5):
            await hold(limits, Identity(None, f"user-{number}"), nursery, over)
        with pytest.raises(Overloaded, match="calls_per_principal"):
            async with limits.call(Identity(None, "user-3")):
                pass
        over.set()


async def test_names_that_look_alike_are_counted_apart() -> None:
    limits = door(calls_per_principal=1)
    over = trio.Event()
    fields = [
        ("acme", "a"), ("\u0430cme", "a"), ("Acme", "a"), ("acme ", "a"), ("acme", "a:b"), ("acme:a", "b"),
        (None, "a"), ("None", "a"),
    ]  # fmt: skip
    names = [Identity(tenant, principal) for tenant, principal in fields]
    async with trio.open_nursery() as nursery:
        for who in names:
            await hold(limits, who, nursery, over)
        over.set()


@given(
    st.tuples(st.none() | st.text(), st.none() | st.text()),
    st.tuples(st.none() | st.text(), st.none() | st.text()),
)
def test_two_callers_never_have_one_key(one: Any, other: Any) -> None:
    assert (_key(one) == _key(other)) == (one == other)


async def test_a_tenant_with_a_hundred_times_the_load_does_not_keep_another_waiting(
    autojump_clock: MockClock,
) -> None:
    limits = door(calls=8, calls_per_principal=1000, calls_per_tenant=1000, call_wait=1000.0)
    waits: dict[str, list[float]] = {"acme": [], "globex": []}
    most: Counter[str] = Counter()
    running: Counter[str] = Counter()

    async def one(tenant: str, number: int) -> None:
        asked = trio.current_time()
        async with limits.call(Identity(tenant, f"user-{number % 7}")):
            waits[tenant].append(trio.current_time() - asked)
            running[tenant] += 1
            most[tenant] = max(most[tenant], running[tenant])
            await trio.sleep(1)
            running[tenant] -= 1

    async with trio.open_nursery() as nursery:
        for number in range(800):
            nursery.start_soon(one, "acme", number)
        await trio.sleep(0.5)
        for number in range(8):
            nursery.start_soon(one, "globex", number)
            await trio.sleep(1)
    assert most["acme"] == 4, "half of the places, and no more"
    assert max(waits["globex"]) == 0.0
    assert len(waits["acme"]) == 800
    assert max(waits["acme"]) == 199.0


async def test_with_all_places_taken_the_next_goes_to_whoever_has_fewest(autojump_clock: MockClock) -> None:
    limits = door(calls=4, call_wait=1000.0)
    order: list[str] = []

    async def one(tenant: str, number: int) -> None:
        async with limits.call(Identity(tenant, f"user-{number}")):
            order.append(tenant)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for tenant in ("a", "b"):
            for number in range(10):
                nursery.start_soon(one, tenant, number)
        await trio.sleep(0.5)
        nursery.start_soon(one, "c", 0)
        await trio.lowlevel.checkpoint()
    assert "c" in order[4:8], "it came last and was in the next round"


async def test_nobody_waits_longer_than_he_is_told(autojump_clock: MockClock) -> None:
    limits = door(calls=1, call_wait=5.0)
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        await hold(limits, ALICE, nursery, over)
        began = trio.current_time()
        with pytest.raises(Overloaded, match=r"`calls`.*waited 5 s"):
            async with limits.call(CAROL):
                pass
        assert trio.current_time() - began == 5.0
        assert limits.statistics().calls == 1
        assert limits.statistics().waiting == 0
        over.set()


async def test_with_no_patience_a_place_that_is_free_is_still_taken() -> None:
    limits = door(calls=1, call_wait=0.0)
    async with limits.call(ALICE):
        with pytest.raises(Overloaded, match="`calls`"):
            async with limits.call(CAROL):
                pass
    async with limits.call(CAROL):
        pass


async def test_who_goes_before_his_turn_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    limits = door(calls=1, call_wait=1000.0)
    for _ in range(3):
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            await hold(limits, ALICE, nursery, over)
            with trio.move_on_after(1) as scope:
                async with limits.call(CAROL):
                    raise AssertionError
            assert scope.cancelled_caught
            over.set()
        with pytest.raises(LookupError):
            async with limits.call(CAROL):
                raise LookupError
    # Cancelled in the instant in which the place is given.
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        await hold(limits, ALICE, nursery, over)
        gone = trio.CancelScope()

        async def leave() -> None:
            with gone:
                async with limits.call(CAROL):
                    await trio.sleep_forever()

        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        over.set()
        gone.cancel()
    assert limits.statistics().calls == 0
    async with limits.call(BOB):
        assert limits.statistics().calls == 1


def test_a_refusal_is_an_answer_of_http() -> None:
    error = Overloaded("the limit `x` is reached", retry_after=1.2)
    found = is_refused(refused_by(error), 429, "`x`")
    assert header_of(found, b"retry-after") == "2"
    assert json.loads(found.body)["error"]["data"] == {"code": "overloaded", "retry_after": 1.2}
    assert header_of(refused_by(Overloaded("x", retry_after=0.01)), b"retry-after") == "1"
    assert header_of(refused_by(Overloaded("x", retry_after=3.0)), b"retry-after") == "3"


async def test_other_bounds_count_from_then_on_and_what_is_held_counts(autojump_clock: MockClock) -> None:
    limits = door(calls=4, calls_per_principal=4, sessions=4, call_wait=1000.0)
    over = trio.Event()
    session = limits.session(ALICE)
    async with trio.open_nursery() as nursery:
        for who in (ALICE, ALICE, CAROL, CAROL):
            await hold(limits, who, nursery, over)
        waiter = trio.Event()
        nursery.start_soon(hold, limits, NOBODYS, nursery, waiter)
        await trio.testing.wait_all_tasks_blocked()
        assert limits.statistics().waiting == 1
        limits.reconfigure(ServeLimits(calls=1, calls_per_principal=2, sessions=1, call_wait=1.0))
        with pytest.raises(Overloaded, match="calls_per_principal"):
            async with limits.call(ALICE):
                pass
        with pytest.raises(Overloaded, match="`sessions`"):
            limits.session(NOBODYS)
        with pytest.raises(Overloaded, match="`calls`"):
            async with limits.call(BOB):
                pass
        limits.reconfigure(ServeLimits(calls=6, calls_per_principal=3))
        assert limits.statistics().waiting == 0, "there is room for who waited"
        async with limits.call(ALICE):
            assert limits.statistics().calls == 6
        over.set()
        waiter.set()
    session.close()
    assert limits.statistics().sessions == limits.statistics().calls == 0


async def test_another_rate_keeps_what_was_taken(autojump_clock: MockClock) -> None:
    limits = door(rate_per_principal=1.0, burst=2)
    for _ in range(2):
        async with limits.call(ALICE):
            pass
    limits.reconfigure(ServeLimits(rate_per_principal=2.0, burst=2, rate_per_tenant=10.0))
    with pytest.raises(Overloaded, match="2 calls a second") as caught:
        async with limits.call(ALICE):
            pass
    assert caught.value.retry_after == pytest.approx(0.5)
    limits.reconfigure(ServeLimits())
    for _ in range(10):
        async with limits.call(ALICE):
            pass


# ------------------------------------------------------------------ rates


async def test_a_rate_is_so_many_in_a_while_after_a_burst(autojump_clock: MockClock) -> None:
    limits = door(rate_per_principal=2.0, burst=3)
    begun = 0
    for _ in range(100):
        refused: Overloaded | None = None
        try:
            async with limits.call(ALICE):
                begun += 1
        except Overloaded as error:
            refused = error
        if refused is not None:
            assert "`rate_per_principal`" in refused.message
            assert refused.retry_after is not None
            assert 0 < refused.retry_after <= 0.5
            await trio.sleep(refused.retry_after)
            async with limits.call(ALICE):  # as long as it said, and no longer
                begun += 1
    assert begun <= 3 + 2 * trio.current_time() + 1e-6
    async with limits.call(BOB):
        pass


async def test_a_tenants_rate_is_its_principals_together(autojump_clock: MockClock) -> None:
    limits = door(rate_per_tenant=1.0, burst=2)
    for who in (ALICE, BOB):
        async with limits.call(who):
            pass
    with pytest.raises(Overloaded, match="rate_per_tenant"):
        async with limits.call(Identity("acme", "eve")):
            pass
    for who in (CAROL, NOBODYS, NOBODYS, NOBODYS):
        async with limits.call(who):
            pass


async def test_what_is_refused_takes_nothing_out_of_a_bucket(autojump_clock: MockClock) -> None:
    limits = door(rate_per_principal=1.0, rate_per_tenant=1.0, burst=2, calls_per_principal=1)
    async with limits.call(ALICE):
        for _ in range(10):
            with pytest.raises(Overloaded, match="calls_per_principal"):
                async with limits.call(ALICE):
                    pass
    async with limits.call(ALICE):
        pass
    with pytest.raises(Overloaded, match="rate_per_principal") as caught:
        async with limits.call(ALICE):
            pass
    assert caught.value.retry_after == pytest.approx(1.0)


@given(
    rate=st.floats(0.1, 1000),
    burst=st.integers(1, 50),
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 5)), max_size=120),
)
def test_a_bucket_is_a_bucket(rate: float, burst: int, steps: list[tuple[str, float]]) -> None:
    """Against the bucket as it is usually written: a level that is topped up."""
    now = [0.0]
    rates: Rates[str] = Rates(rate, burst, lambda: now[0])
    levels: dict[str, tuple[float, float]] = {}
    for name, pause in steps:
        now[0] += pause
        level, at = levels.get(name, (float(burst), now[0]))
        level = min(float(burst), level + (now[0] - at) * rate)
        wait = rates.wait_for(name)
        assert wait == pytest.approx(max(0.0, (1 - level) / rate), abs=1e-6 / rate + 1e-6)
        if wait == 0:
            rates.take(name)
            level -= 1
        levels[name] = (level, now[0])


def test_who_has_not_been_seen_for_long_is_forgotten() -> None:
    now = [0.0]
    rates: Rates[int] = Rates(1.0, 5, lambda: now[0])
    for name in range(100_000):
        now[0] += 0.01
        rates.take(name)
    assert len(rates) < 1000


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_is_a_number_above_zero(rate: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        Rates(rate, 1, lambda: 0.0)


# ------------------------------------------------------------------ sessions


class Sessions(RuleBasedStateMachine):
    """Sessions of anybody, opened and ended in any order, against counting them."""

    opened = Bundle("opened")
    WHO = (ALICE, BOB, CAROL, NOBODYS, Identity("acme"), Identity("acme", "alice", "c"))

    @initialize(total=st.integers(1, 8), each=st.integers(1, 4))
    def begin(self, total: int, each: int) -> None:
        self.total, self.each = total, each
        self.limits = door(sessions=total, sessions_per_principal=each)
        self.held: list[Identity] = []

    @rule(target=opened, who=st.sampled_from(WHO))
    def open(self, who: Identity) -> Any:
        principals = sum((one.tenant, one.principal) == (who.tenant, who.principal) for one in self.held)
        tenants = sum(one.tenant == who.tenant for one in self.held)
        fits = (
            principals < self.each
            and len(self.held) < self.total
            and (who.tenant is None or tenants < max(1, self.total // 2))
        )
        if not fits:
            with pytest.raises(Overloaded) as caught:
                self.limits.session(who)
            assert caught.value.retry_after == 30.0
            return None
        session = self.limits.session(who)
        self.held.append(who)
        return (session, who)

    @rule(one=consumes(opened), times=st.integers(1, 3))
    def end(self, one: Any, times: int) -> None:
        if one is not None:
            self.held.remove(one[1])
            for _ in range(times):
                one[0].close()

    @invariant()
    def counted(self) -> None:
        if hasattr(self, "limits"):
            assert self.limits.statistics().sessions == len(self.held)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=30)
