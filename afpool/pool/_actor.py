"""The key actor: the machine of one key, and what its effects do to the world.

The pool holds an actor strongly while it is *active* (a client, an opening, a waiter, a place, a closing
client, an operator's pause); otherwise only its bound tools do, and with the last of them it is forgotten.
So a forgotten key costs nothing (I11), and no finaliser is needed.

What it is told is never lost: a key that crashes again soon falls (`_fallen`), and does not stop.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, final

from actors import Actor, Restart, Undelivered

from .._base.errors import AfpoolError
from . import _messages as m
from ._fallen import FallenMachine
from ._machine import KeyMachine

if TYPE_CHECKING:
    from actors._observe import Phase

    from .._base.identity import Identity, PoolKey
    from ._events import Event
    from ._pool import Pool
    from ._server import Server
    from ._subscriptions import Subscription

_REFUSALS: Final = (AfpoolError,)

SOON: Final = Restart().within
"""Seconds after a crash within which another one is one too many."""


@final
class KeyActor(Actor[KeyMachine]):
    """Owner of one (server, identity): its client incarnation, its places, its lists.

    Attributes:
        key: The injective encoding of server and projection; never shown.
        projection: The identity cut to what the server is keyed on.
        last_used: When the last place was given back, on the runtime's clock.
        cause: The last event that ended bindings of this key.
        crashed: Its last crash.
        held_since: What holds its admission, while an operator does; `drained_since`, what asked for a drain.
        ended: The number of the event that ended its last client.
        planned: The plan context that was last resolved for it; `replanned`, when it became another one.
        share_seen: The authorization name that `share` last gave where it was not the bound one, never
            shown, and the event.
        watchers: Its resource subscriptions, by URI; empty ones are left out.
        log_level: What its clients are asked to log, where somebody said so.
        refuses_until: Once it has crashed for good: when the pool forgets it, so that the key may begin anew.
    """

    __slots__ = (
        "_shown", "cause", "crashed", "drained_since", "ended", "held_since", "key", "last_used", "log_level",
        "planned", "pool", "projection", "refuses_until", "replanned", "server", "share_seen", "watchers",
    )  # fmt: skip

    def __init__(self, pool: Pool, server: Server, key: PoolKey, projection: Identity) -> None:
        super().__init__(
            server.name,
            KeyMachine(pool.key_limits[server.name], pool.seams.next_id),
            perform=_perform,
            successor=_successor,
            refusals=_REFUSALS,
            mailbox_limit=pool.limits.max_waiting,
            restart=Restart(intensity=sys.maxsize),  # how many are too many is decided here
            clock=pool.seams.now,
        )
        self.pool = pool
        self.server = server
        self.key = key
        self.projection = projection
        self.last_used = 0.0
        self.cause: Event | None = None
        self.crashed: Event | None = None
        self.held_since: Event | None = None
        self.drained_since: Event | None = None
        self.ended: int | None = None
        self.planned: str | None = None
        self.replanned: Event | None = None
        self.share_seen: tuple[str | None, Event] | None = None
        self._shown = ""
        self.watchers: dict[str, list[Subscription]] | None = None
        self.log_level: str | None = None
        self.refuses_until: float | None = None

    @property
    def phase(self) -> Phase:
        """What the actor does with a request now; one that has fallen is `crashed`."""
        return "crashed" if isinstance(self.machine, FallenMachine) else super().phase

    @property
    def shown(self) -> str:
        """What is shown instead of the key."""
        if not self._shown:
            self._shown = self.pool.digest.show(self.key)
        return self._shown

    def plan_is(self, context: str) -> None:
        """A plan was resolved: file an event where it is another one than before. Synchronous."""
        before, self.planned = self.planned, context
        if before is not None and before != context:
            client = self.machine.client
            self.replanned = self.pool.event(
                "plan-changed", self, client=None if client is None else client.id
            )

    def share_is(self, name: str | None, event: Event | None = None) -> Event:
        """`share` gave another name than the bound one: the event of it, filed where it is news.

        `event` is what made it do so, where that is known.
        """
        if self.share_seen is None or self.share_seen[0] != name:
            self.share_seen = name, event or self.pool.event("share-changed", self)
        return self.share_seen[1]

    def __repr__(self) -> str:
        return f"<KeyActor {self.shown} of {self.server.name}>"


def _perform(actor: Actor[KeyMachine], effect: Any) -> None:
    assert isinstance(actor, KeyActor)
    pool = actor.pool
    kind = type(effect)
    if kind is m.Active:
        pool.keep(actor, keep=effect.active)
    elif kind is m.StartOpening:
        pool.openings.start(actor, effect.token)
    elif kind is m.CancelOpening:
        pool.openings.cancel(effect.token)
    elif kind is m.CloseClient:
        pool.openings.start_closing(actor, effect.handle, effect.reason)
    elif kind is m.PingClient:
        pool.openings.start_ping(actor, effect.handle)
    elif kind is m.Bury:
        pool.background.bury(actor)
    elif kind is not Undelivered:
        raise TypeError(f"unknown effect {kind.__name__}")


def _successor(actor: Actor[KeyMachine], error: BaseException) -> KeyMachine:
    assert isinstance(actor, KeyActor)
    before = actor.crashed
    actor.crashed = event = actor.pool.event("actor-crashed", actor, why=type(error).__name__)
    actor.pool.background.after_crash(actor)
    again = before is not None and event.at - before.at <= SOON
    return actor.machine.successor(FallenMachine if again else None)
