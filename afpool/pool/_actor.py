"""The key actor: the machine of one key, and what its effects do to the world.

The pool holds an actor strongly while it is *active* (a client, an opening, a waiter, a place, a closing
client, an operator's pause); otherwise only its bound tools do, and with the last of them it is forgotten.
So a forgotten key costs nothing (I11), and no finaliser is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from actors import Actor, Undelivered

from .._base.errors import AfpoolError
from . import _messages as m
from ._machine import KeyMachine

if TYPE_CHECKING:
    from .._base.identity import Identity, PoolKey
    from ._pool import Pool
    from ._server import Server
    from ._subscriptions import Subscription

_REFUSALS: Final = (AfpoolError,)


@final
class KeyActor(Actor[KeyMachine]):
    """Owner of one (server, identity): its client incarnation, its places, its lists.

    Attributes:
        key: The injective encoding of server and projection; never shown.
        projection: The identity cut to what the server is keyed on.
        last_used: When the last place was given back, on the runtime's clock.
        cause: The number of the last event that ended bindings of this key.
        watchers: Its resource subscriptions, by URI; empty ones are left out.
        log_level: What its clients are asked to log, where somebody said so.
        refuses_until: Once it has crashed for good: when the pool forgets it, so that the key may begin anew.
    """

    __slots__ = (
        "cause", "key", "last_used", "log_level", "pool", "projection", "refuses_until", "server", "watchers",
    )  # fmt: skip

    def __init__(self, pool: Pool, server: Server, key: PoolKey, projection: Identity) -> None:
        super().__init__(
            server.name,
            KeyMachine(pool.key_limits[server.name], pool.seams.next_id),
            perform=_perform,
            successor=_successor,
            refusals=_REFUSALS,
            mailbox_limit=pool.limits.max_waiting,
            clock=pool.seams.now,
        )
        self.pool = pool
        self.server = server
        self.key = key
        self.projection = projection
        self.last_used = 0.0
        self.cause: int | None = None
        self.watchers: dict[str, list[Subscription]] | None = None
        self.log_level: str | None = None
        self.refuses_until: float | None = None

    @property
    def shown(self) -> str:
        """What is shown instead of the key."""
        return self.pool.digest.show(self.key)

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
    elif kind is not Undelivered:
        raise TypeError(f"unknown effect {kind.__name__}")


def _successor(actor: Actor[KeyMachine], error: BaseException) -> KeyMachine:
    assert isinstance(actor, KeyActor)
    actor.pool.event("actor-crashed", actor, why=type(error).__name__)
    actor.pool.background.after_crash(actor)
    return actor.machine.successor()
