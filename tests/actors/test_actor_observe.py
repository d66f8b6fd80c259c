"""What is seen from outside, and what looking costs an actor that nobody looks at."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from actors import ActorInfo, TurnTrace
from actors.testing import assert_quiescent

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_info_shows_lanes_and_waiting_times(kit: Any, mock_clock: MockClock) -> None:
    actor = kit.make()
    actor.post(kit.Ask(kit.keep))
    actor.pause()
    actor.post(kit.Ask(kit.note(1)))
    mock_clock.jump(4)
    actor.post(kit.Ask(kit.note(2)))
    info = actor.info()
    assert isinstance(info, ActorInfo)
    assert (info.name, info.phase, info.epoch, info.turns) == ("a", "paused", 0, 1)
    assert (info.control, info.requests, info.deferred, info.oldest_s) == (0, 2, 1, 4.0)
    assert info.recent == ()
    assert info.turn_p50_us is None
    assert info.state == {"log": []}
    assert "paused" in repr(actor)
    with pytest.raises(AssertionError, match="'requests': 2"):
        assert_quiescent(actor)


async def test_info_is_a_copy(kit: Any) -> None:
    actor = kit.make()
    actor.tell(kit.Do(kit.no))
    before = actor.info()
    actor.tell(kit.Do(kit.no))
    assert before.counts.refused_tells == 1
    assert actor.info().counts.refused_tells == 2


async def test_a_snapshot_that_raises_is_shown_as_such(kit: Any) -> None:
    actor = kit.make()
    actor.machine.snapshot = lambda: 1 / 0
    assert actor.info().state == {"snapshot failed": "ZeroDivisionError"}


async def test_the_ring_keeps_the_last_twenty_turns(kit: Any, mock_clock: MockClock) -> None:
    actor = kit.restarting()
    actor.tell(kit.Do(kit.note("unseen")))
    actor.observe(True)
    for n in range(30):
        mock_clock.jump(1)
        actor.tell(kit.Do(kit.note(n)))
    actor.post(kit.Ask(kit.no))
    actor.tell(kit.Do(kit.boom))
    info = actor.info()
    assert len(info.recent) == 20
    assert [t.at for t in info.recent[:3]] == [13.0, 14.0, 15.0]
    assert [(t.message, t.verdict, t.epoch) for t in info.recent[-3:]] == [
        ("Do", "done", 0),
        ("Ask", "refused", 0),
        ("Do", "crashed", 0),
    ]
    assert info.turn_p50_us is not None
    assert info.turn_p99_us is not None
    assert 0 < info.turn_p50_us <= info.turn_p99_us
    actor.observe(True)
    assert len(actor.info().recent) == 20
    actor.observe(False)
    assert actor.info().recent == ()
    assert actor._observer is None
    actor.observe(False)


async def test_a_hook_sees_every_turn_until_it_unsubscribes(kit: Any) -> None:
    actor = kit.make()
    seen: list[TurnTrace] = []
    first, second = actor.subscribe(seen.append), actor.subscribe(seen.append)
    actor.tell(kit.Do(kit.note(1)))
    assert len(seen) == 2
    first()
    first()
    actor.tell(kit.Do(kit.note(2)))
    assert len(seen) == 3
    second()
    assert actor._observer is None
    actor.tell(kit.Do(kit.note(3)))
    assert len(seen) == 3


async def test_a_hook_that_raises_is_removed_and_hurts_nobody(kit: Any) -> None:
    actor = kit.make()
    seen: list[TurnTrace] = []

    def bad(_trace: TurnTrace) -> None:
        raise ValueError

    actor.subscribe(bad)
    actor.subscribe(seen.append)
    assert actor.post(kit.Ask(kit.note(1))).result() == 1
    assert actor.post(kit.Ask(kit.note(2))).result() == 2
    assert len(seen) == 2
    assert actor.info().counts.hooks_removed == 1
    assert actor.epoch == 0


async def test_a_hook_may_send_to_the_actor(kit: Any) -> None:
    actor = kit.make()
    unsubscribe = actor.subscribe(lambda _t: (unsubscribe(), actor.tell(kit.Do(kit.note("from the hook")))))
    actor.tell(kit.Do(kit.note("first")))
    assert actor.machine.log == ["first", "from the hook"]


async def test_an_idle_actor_is_small_and_gives_back_what_it_used(kit: Any) -> None:
    actor = kit.make()
    assert sys.getsizeof(actor) < 250
    assert not hasattr(actor, "__dict__")
    lazy = ("_control", "_requests", "_deferred", "_crashes", "_observer", "_counts")
    assert all(getattr(actor, name) is None for name in lazy)
    actor.pause()
    actor.post(kit.Ask(kit.keep))
    actor.tell(kit.Do(kit.effects(lambda a: a.tell(kit.Do(kit.note(1))))))
    actor.observe(True)
    actor.resume()
    actor.observe(False)
    actor.machine.kept.pop().abandon()
    actor.tell(kit.Do(kit.note(2)))
    assert all(getattr(actor, name) is None for name in lazy)


async def test_a_forgotten_actor_is_freed_at_once(kit: Any) -> None:
    gc.disable()
    try:
        actor = kit.make()
        actor.post(kit.Ask(kit.note(1)))
        seen = weakref.ref(actor)
        del actor
        assert seen() is None
    finally:
        gc.enable()
