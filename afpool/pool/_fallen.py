"""The machine of a key that crashed again soon after a crash: it refuses whoever asks, and still takes facts.

Rules:

* Nobody is admitted and nothing is opened: two crashes in a row show that the turns of this key are not to be
  trusted with anything.
* What it is told is taken, by the few lines that a successor takes the torn message with: places that come
  back, clients that come and go, revocations, configurations, pauses. Nobody says any of it a second time,
  and gates, consoles and counts read it here.
* What there is of openings and clients is ended from outside (`Background.bury`): when the key falls, and
  again when a place has come back, or a client has come that was being opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from .._base.errors import NOT_SENT, ActorCrashed
from . import _messages as m
from ._machine import KeyMachine, keep_facts

if TYPE_CHECKING:
    from actors import Reply

    from ._key_state import Effects

_FREES: Final = (m.Opened, m.Settle, m.Abandon)
"""After which of the key's clients may be one on which nothing runs."""


@final
class FallenMachine(KeyMachine):
    """What is left of a key until it is forgotten; see the module."""

    __slots__ = ()

    def turn(self, message: Any, reply: Reply[Any] | None, /) -> Effects | None:
        """Take what is told, refuse what is asked."""
        if reply is not None:
            raise ActorCrashed(
                "the actor of this key crashed again and again and takes nothing any more; nothing was sent",
                delivery=NOT_SENT,
            )
        if self.old is None:
            self.old = {}
        keep_facts(self, message)
        return [m.Bury()] if isinstance(message, _FREES) else None

    def successor(self, kind: type[KeyMachine] | None = None) -> KeyMachine:
        """Nothing but the like of it: whoever has fallen does not get up again by crashing."""
        return super().successor(kind or FallenMachine)
