"""Drive a machine without trio, and check that an actor owes nobody anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ._messages import Answer, Effect, Refuse, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._actor import Actor
    from ._machine import Machine


@attrs.frozen
class Turn:
    """What one message led to: the reply slot of a request, the effects, or what the turn raised."""

    message: object
    reply: Reply[Any] | None
    effects: tuple[Effect, ...]
    error: Exception | None


def run_turns(machine: Machine, messages: Iterable[object]) -> list[Turn]:
    """Give the machine each message in order, carry out `Answer` and `Refuse`, return what happened.

    Other effects are returned and not performed. An exception of a turn is noted; the next message goes to
    the same machine, so that a test can show that a refusal changed nothing.
    """
    turns: list[Turn] = []
    for message in messages:
        reply: Reply[Any] | None = Reply() if isinstance(message, Request) else None
        effects: tuple[Effect, ...] = ()
        failure: Exception | None = None
        try:
            effects = tuple(machine.turn(message, reply) or ())
        except Exception as error:  # noqa: BLE001  # it is the result
            failure = error
        for effect in effects:
            if isinstance(effect, Answer):
                effect.reply.set(effect.value)
            elif isinstance(effect, Refuse):
                effect.reply.fail(effect.error)
        turns.append(Turn(message, reply, effects, failure))
    return turns


def assert_quiescent(actor: Actor[Any]) -> None:
    """Assert that the actor is in no turn, that nothing waits for one, and that it owes no reply."""
    info = actor.info()
    left = {name: getattr(info, name) for name in ("in_turn", "control", "requests", "deferred")}
    assert not any(left.values()), f"actor {actor.name!r} is not quiescent: {left}"
