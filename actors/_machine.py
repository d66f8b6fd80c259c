"""What a machine is: state, and turns that change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._messages import Effect, Reply


class Machine(Protocol):
    """A state machine whose turns are synchronous, so that no turn can be interleaved or torn.

    A class attribute `accepts_old = True` lets control messages through whose `epoch` is an earlier one
    than the actor's; without it they are counted and dropped (see `Actor.tell`).
    """

    def turn(self, message: Any, reply: Reply[Any] | None, /) -> Iterable[Effect] | None:
        """Take one message, change the state, return the effects in the order they are to happen.

        It never awaits and never calls another actor, a task or anybody's code. To answer, return
        `Answer(reply, value)`, now or in a later turn; until then `reply.abandoned` says whether anybody
        still waits. To say no, check first and raise a refusal before anything was changed. A request comes
        with the slot for its reply, a control message with None.
        """
        ...

    def snapshot(self) -> Mapping[str, object]:
        """Show the state without changing it, and without anything secret."""
        ...
