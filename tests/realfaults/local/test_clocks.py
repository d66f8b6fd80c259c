"""Clocks that jump: the wall clock is set, the machine slept.

Deadlines and idle times go by the runtime's own clock. What ends at a date ends by the wall clock, once, and
a clock that was wrong for a moment keeps nothing longer than it was to be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

import afpool
from afpool import CredentialFailed, CredentialRequest, Issued, Seams, bearer
from afpool.artifacts import MemoryArtifacts, NewArtifact, SqliteArtifacts
from afpool.credentials import CachedCredentials
from afpool.testing import FakeTool, Hang
from afpool.testing._rules import Rule
from tests.pool.kit import ALICE, memory_world, person, quiet, until
from tests.realfaults.local.local_kit import asked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TODAY = 1_790_000_000.0
DAY = 86_400.0
JUMPS = {"a day ahead": DAY, "a day back": -DAY, "to 1970": -TODAY, "to 2100": 4_102_444_800 - TODAY}


@attrs.define
class Wall:
    """A wall clock that somebody sets, beside one that nobody can."""

    jumped: float = 0.0
    passed: float = 0.0

    def __call__(self) -> float:
        return TODAY + self.passed + self.jumped

    def now(self) -> float:
        return 1000.0 + self.passed

    @property
    def seams(self) -> Seams:
        return Seams(now=self.now, unix_now=self)


jumps = pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS.keys())


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    def make(**options: Any) -> Any:
        if request.param == "memory":
            return MemoryArtifacts(**options)
        return SqliteArtifacts(tmp_path / "a.db", **options)

    return make


def note(text: str) -> NewArtifact:
    return NewArtifact(kind="note", media_type="text/plain", data=text)


@jumps
async def test_what_was_put_while_the_clock_was_wrong(make_store: Callable[..., Any], jump: float):
    """Set right again, the clock gives everything its time to live, and the order of puts stays."""
    wall = Wall()
    async with make_store(ttl=60.0, seams=wall.seams) as store:
        await store.put(ALICE, note("before"))
        wall.jumped = jump
        during = await store.put(ALICE, note("during"))
        assert (await store.get(ALICE, during.ref)) is not None
        wall.jumped = 0.0
        after = await store.put(ALICE, note("after"))
        assert after.created_at > during.created_at or jump < 0
        assert after.expires_at is not None
        assert TODAY < after.expires_at <= wall() + 60.0
        page = await store.list(ALICE)
        assert page.items[0].ref == after.ref
        wall.passed = 61.0
        assert await store.get(ALICE, after.ref) is None
        assert await store.get(ALICE, (await store.put(ALICE, note("later"))).ref) is not None


async def test_a_writer_whose_clock_was_ahead_goes_on_clearing(tmp_path: Path):
    """What has expired in scopes that nobody puts into goes a little at a time, also with the clock back."""
    wall = Wall()
    bob = person(1)
    async with SqliteArtifacts(tmp_path / "a.db", ttl=10.0, seams=wall.seams) as store:
        wall.jumped = JUMPS["to 2100"]
        await store.put(ALICE, note("far ahead"))
        wall.jumped = 0.0
        await store.put(bob, note("idle"))
        wall.passed = 20.0
        await store.put(ALICE, note("again"))
        assert store._writer is not None
        rows = store._writer._connection.execute("SELECT count(*) FROM artifacts").fetchone()
        assert rows == (2,)  # the one far ahead, whose time has not come, and the last one


class Vends:
    """Answers with a number, or refuses; counts how often it was asked."""

    def __init__(self, wall: Wall, life: float | None) -> None:
        self.asked = 0
        self.refuses = False
        self._wall, self._life = wall, life

    async def get(self, request: CredentialRequest) -> Issued:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if self.refuses:
            raise CredentialFailed("not for you")
        ends = None if self._life is None else self._wall() + self._life
        return Issued(bearer(f"token-{self.asked}"), ends)


@jumps
@pytest.mark.parametrize("life", [None, 600.0])
async def test_a_credential_outlives_no_jump(jump: float, life: float | None):
    """It is kept as long as it was to be kept, by either clock, and not asked for at every turn."""
    wall = Wall()
    provider = Vends(wall, life)
    cache = CachedCredentials(provider, unknown=60.0, jitter=0.0, seams=wall.seams)
    request = CredentialRequest("crm", identity=ALICE)
    await cache.get(request)
    wall.jumped = jump
    for _ in range(10):
        await cache.get(request)
    assert provider.asked <= 2
    wall.jumped = 0.0
    for _ in range(10):
        await cache.get(request)
    assert provider.asked <= 3
    asked = provider.asked
    wall.passed = (life or 60.0) + 1.0
    await cache.get(request)
    assert provider.asked == asked + 1
    # vended while the clock is wrong by a day, it ends after its own time all the same
    wall.jumped = jump
    wall.passed += (life or 60.0) + 1.0
    await cache.get(request)
    asked = provider.asked
    wall.jumped = 2 * jump if jump < 0 else 0.0
    wall.passed += (life or 60.0) + 1.0
    await cache.get(request)
    assert provider.asked == asked + 1


@jumps
async def test_a_refusal_is_remembered_for_its_time_and_no_longer(jump: float):
    wall = Wall()
    provider = Vends(wall, None)
    provider.refuses = True
    cache = CachedCredentials(provider, refusals=10.0, seams=wall.seams)
    request = CredentialRequest("crm", identity=ALICE)
    with pytest.raises(CredentialFailed):
        await cache.get(request)
    provider.refuses = False
    wall.jumped = jump
    wall.passed = 5.0
    with pytest.raises(CredentialFailed):
        await cache.get(request)
    (held,) = cache.held()
    assert held.until is not None
    assert 4.9 < held.until - wall() < 5.1
    wall.passed = 11.0
    await cache.get(request)
    assert provider.asked == 2


@jumps
async def test_calls_do_not_see_the_wall_clock(jump: float, autojump_clock: trio.testing.MockClock):
    """A call in flight, a waiter, an idle client, a listed tool: nothing of them ends, or lasts, for it."""
    wall = Wall()
    seams = Seams(unix_now=wall)
    pool: dict[str, Any] = {"seams": seams, "idle_timeout": 100.0, "deadline": 30.0}
    async with memory_world(tools=[FakeTool("do", _slowly)], pool=pool) as (_, _, opened):
        tool = (await opened.tools(ALICE))["do"]
        began = trio.current_time()
        found: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def call(seconds: float, deadline: float) -> None:
                found.append((seconds, await asked(tool, seconds=deadline, sleeps=seconds)))

            nursery.start_soon(call, 5.0, 20.0)
            nursery.start_soon(call, 50.0, 20.0)
            await trio.sleep(1.0)
            wall.jumped = jump
        assert trio.current_time() - began == pytest.approx(20.0, abs=0.1)
        answers = dict(found)
        assert answers[5.0] == "slept"
        assert (answers[50.0].code, answers[50.0].delivery) == ("deadline-exceeded", "in-doubt")
        actor = opened._existing(opened.key_of(ALICE, "files"))
        client = actor.machine.client
        await trio.sleep(60.0)
        assert actor.machine.client is client
        assert await asked(tool, sleeps=0.0) == "slept"
        for use in opened.records.uses:
            assert use.ended_at is not None
            assert 0.0 <= use.ended_at - use.began_at <= 20.1


async def _slowly(arguments: Any, arrival: Any) -> str:
    await trio.sleep(arguments.get("sleeps", 0.0))
    return "slept"


@pytest.mark.parametrize("hours", [1, 10])
async def test_a_machine_that_slept(hours: int, mock_clock: trio.testing.MockClock):
    """All at once: deadlines, idle times, ages, pings. Each ends once, and every key's next call succeeds."""
    people = [person(number) for number in range(20)]
    limits = {"max_connecting": 4, "deadline": 60.0, "max_share": 1.0, "cancel_grace": 0.1}
    mock_clock.rate = 1.0
    async with memory_world(pool=limits) as (server, _, pool):
        tools = {}
        for who in people:
            tools[who] = (await pool.tools(who))["echo"]
        server.engine.rules.rules.append(Rule("tools/call", Hang(), times=len(people)))
        found: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def call(who: Any) -> None:
                with pytest.raises(afpool.AfpoolError) as caught:
                    await tools[who].call({}, identity=who)
                found.append(caught.value)

            for who in people:
                nursery.start_soon(call, who)
            await until(lambda: [one.method for one in server.ledger.arrivals].count("tools/call") == 20)
            mock_clock.jump(hours * 3600.0)
        assert len(found) == len(people)
        assert {(error.code, error.delivery) for error in found} == {("deadline-exceeded", "in-doubt")}
        opened_before = pool.openings.opened
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def again(who: Any) -> None:
                    tool = (await pool.tools(who))["echo"]
                    assert await asked(tool, who, n=1) == '{"n": 1}'

                for who in people:
                    nursery.start_soon(again, who)
        assert pool.openings.opened - opened_before <= len(people)
        await until(lambda: not pool.settling)
        quiet(pool)
