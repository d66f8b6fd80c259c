"""`ask`: checkpoints, deadlines, cancellation, determinism."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from actors import Actor, Answer, DeadlinePassed, MailboxFull, Refusal, Request, Undelivered
from actors.testing import assert_quiescent


async def test_every_ask_passes_a_checkpoint_before_its_turn(kit: Any) -> None:
    actor = kit.make()
    with assert_checkpoints():
        assert await actor.ask(kit.Ask(kit.note(1))) == 1
    with assert_checkpoints(), pytest.raises(Refusal):
        await actor.ask(kit.Ask(kit.no))
    actor.stop()
    with assert_checkpoints(), pytest.raises(Exception, match="stopped"):
        await actor.ask(kit.Ask(kit.note(2)))
    assert actor.machine.log == [1]


async def test_cancelled_before_the_turn_nothing_is_sent(kit: Any) -> None:
    actor = kit.make()
    with trio.CancelScope() as scope:
        scope.cancel()
        await actor.ask(kit.Ask(kit.note(1)))
    assert scope.cancelled_caught
    assert actor.machine.log == []


async def test_an_inline_answer_survives_a_cancellation_from_its_own_turn(kit: Any) -> None:
    actor = kit.make()
    got = None
    with trio.CancelScope() as scope:
        got = await actor.ask(kit.Ask(lambda _m, reply: [Answer(reply, 5), lambda _a: scope.cancel()]))
    assert got == 5
    assert not scope.cancelled_caught


async def test_a_deadline_passes_without_the_actors_help(kit: Any, autojump_clock: MockClock) -> None:
    actor = kit.make()
    actor.pause()
    with pytest.raises(DeadlinePassed):
        await actor.ask(kit.Ask(kit.note("never")), deadline=trio.current_time() + 3)
    assert trio.current_time() == pytest.approx(3, abs=1e-6)
    actor.resume()
    with pytest.raises(DeadlinePassed):
        await actor.ask(kit.Ask(kit.keep), deadline=trio.current_time() + 3)
    with pytest.raises(DeadlinePassed, match="nothing was asked"):
        await actor.ask(kit.Ask(kit.note("never")), deadline=trio.current_time())
    assert actor.machine.log == []
    assert actor.machine.kept[0].abandoned
    assert_quiescent(actor)


async def test_a_reply_in_time_beats_the_deadline(
    kit: Any, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    actor = kit.make()

    async def later() -> None:
        await trio.sleep(2)
        actor.tell(kit.Do(lambda m, _r: [Answer(m.kept[0], "in time")]))

    nursery.start_soon(later)
    assert await actor.ask(kit.Ask(kit.keep), deadline=3.0) == "in time"


async def test_somebody_elses_cancellation_is_not_a_deadline(kit: Any, autojump_clock: MockClock) -> None:
    actor = kit.make()
    with trio.move_on_after(1) as scope:
        await actor.ask(kit.Ask(kit.keep), deadline=50.0)
    assert scope.cancelled_caught


async def test_a_timer_may_fail_a_reply_from_outside(kit: Any, nursery: trio.Nursery) -> None:
    actor = kit.make()
    caught: list[str] = []

    async def asker() -> None:
        try:
            await actor.ask(kit.Ask(kit.keep))
        except DeadlinePassed as error:
            caught.append(str(error))

    nursery.start_soon(asker)
    await wait_all_tasks_blocked()
    assert actor.machine.kept[0].fail(DeadlinePassed("heap"))
    await wait_all_tasks_blocked()
    assert caught == ["heap"]
    assert_quiescent(actor)


async def test_a_cancelled_asker_in_the_queue_leaves_nothing_behind(kit: Any) -> None:
    actor = kit.make(mailbox_limit=5)
    actor.pause()
    scopes = [trio.CancelScope() for _ in range(5)]

    async def asker(n: int) -> None:
        with scopes[n]:
            await actor.ask(kit.Ask(kit.note(n)))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for n in range(5):
                nursery.start_soon(asker, n)
                await wait_all_tasks_blocked()
            with pytest.raises(MailboxFull):
                await actor.ask(kit.Ask(kit.note(5)))
            scopes[2].cancel()
            scopes[0].cancel()
            assert actor.info().requests == 3  # in the same step
            actor.resume()
    assert actor.machine.log == [1, 3, 4]
    assert_quiescent(actor)


class Acquire(Request[str]):
    pass


class Release:
    pass


class OneLease:
    """One lease, handed from one asker to the next."""

    def __init__(self) -> None:
        self.free = 1
        self.waiting: list[Any] = []

    def turn(self, message: Any, reply: Any, /) -> Any:
        if type(message) is Acquire:
            self.waiting.append(reply)
        else:
            self.free += 1
        granted = []
        while self.free and self.waiting:
            self.free -= 1
            granted.append(Answer(self.waiting.pop(0), "lease"))
        return granted

    def snapshot(self) -> dict[str, object]:
        return {"free": self.free}


def take_back(actor: Actor[Any], effect: object) -> None:
    assert type(effect) is Undelivered
    actor.tell(Release())


@pytest.mark.parametrize("seed", range(50))
async def test_no_lease_is_lost_when_grant_and_cancellation_race(seed: int) -> None:
    choose = random.Random(seed)
    actor: Actor[OneLease] = Actor("lease", OneLease(), perform=take_back)
    held = served = 0
    scopes = [trio.CancelScope() for _ in range(8)]

    async def worker(scope: trio.CancelScope) -> None:
        nonlocal held, served
        with scope:
            await actor.ask(Acquire())
            held += 1
            assert held == 1
            try:
                await trio.lowlevel.checkpoint()
                served += 1
            finally:
                held -= 1
                if choose.random() < 0.5:  # grant first, then cancel the one it was granted to
                    actor.tell(Release())
                    choose.choice(scopes).cancel()
                else:
                    choose.choice(scopes).cancel()
                    actor.tell(Release())

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(worker, scope)
    assert actor.machine.free == 1
    assert not actor.machine.waiting
    assert_quiescent(actor)


def one_run(seed: int) -> list[Any]:
    """A contended run under a mock clock; everything that happened, in order."""
    log: list[Any] = []

    async def main() -> None:
        actor: Actor[OneLease] = Actor("lease", OneLease(), perform=take_back)
        actor.subscribe(lambda t: log.append((t.at, t.message, t.verdict, t.epoch)))

        async def worker(n: int) -> None:
            for _ in range(3):
                await actor.ask(Acquire())
                log.append((trio.current_time(), n))
                await trio.sleep(0.5)
                actor.tell(Release())

        async with trio.open_nursery() as nursery:
            for n in range(6):
                nursery.start_soon(worker, n)

    trio._core._run._r.seed(seed)
    trio.run(main, clock=MockClock(autojump_threshold=0))
    return [(round(entry[0], 6), *entry[1:]) for entry in log]


def test_the_same_seed_gives_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    assert one_run(1) == one_run(1)
    assert any(one_run(1) != one_run(seed) for seed in range(2, 12))
