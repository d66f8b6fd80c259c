"""A pause holds requests; what an actor's own turns tell it is taken all the same."""

from __future__ import annotations

from typing import Any


async def test_control_that_a_turn_tells_its_own_actor_is_taken_while_it_is_paused(kit: Any) -> None:
    actor = kit.make()
    actor.pause()
    waiting = actor.post(kit.Ask(kit.note("request")))
    actor.tell(kit.Do(lambda _m, _r: [lambda a: a.tell(kit.Do(kit.note("told")))]))
    assert actor.machine.log == ["told"]
    assert not waiting.done
    actor.resume()
    assert actor.machine.log == ["told", "request"]
