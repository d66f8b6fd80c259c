"""The state of one key, and the small steps that its turns are made of.

Who holds a place on which incarnation, who waits, what is being opened, what still closes. `_key_places` and
`_key_clients` hold the turns, `_machine` the invariants and what becomes of all this after a crash.

A step may be cut short at any line by a mistake in it. So what nobody would say a second time is written
down before what leads to it is given up: a client is among the old ones before it stops being the live one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from actors import Refuse

from .._base.errors import AfpoolError
from . import _messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors import Reply

    from ._lists import ListState

Effects = list[object]


class LeaseReturnedTwice(AfpoolError):
    """A place was given back that nobody holds; a fault of afpool, counted, never of a caller."""

    code = "lease-returned-twice"


@attrs.frozen
class KeyLimits:
    """What one key may hold.

    Attributes:
        max_operations: Places on the key's client.
        max_waiting: Waiters before further ones are refused.
        recheck_lists: Whether only a call's own definition counts when a list changes.
        halted: Whether its whole server is held: nobody is given a place.
    """

    max_operations: int
    max_waiting: int
    recheck_lists: bool = False
    halted: bool = False


@final
class ClientState:
    """What the key knows of one incarnation."""

    __slots__ = (
        "abandoned", "context", "handle", "id", "leases", "list", "retired", "silent", "wait_for_close",
    )  # fmt: skip

    def __init__(self, client_id: int, context: str, handle: Any) -> None:
        self.id = client_id
        self.context = context
        self.handle = handle
        self.leases = 0
        self.list: ListState | None = None
        self.abandoned = 0  # in a row
        self.silent = 0  # in a row
        self.wait_for_close = False  # the next opening waits until it is gone
        self.retired = ""  # why it is no longer the key's

    def end_list(self) -> None:
        """Nobody stands behind its list any more."""
        if self.list is not None:
            self.list.end()


@final
class Opening:
    """The one opening of the key; its context is unknown until its plan is resolved."""

    __slots__ = ("context", "fresh", "token")

    def __init__(self, token: int, fresh: bool) -> None:
        self.token = token
        self.fresh = fresh
        self.context: str | None = None


class KeyState:
    """State of one key.

    Attributes:
        limits: What it may hold.
        next_id: Makes ids that are never used twice.
        epoch: Raised by `Revoke` and `Reconfigure`; bindings of an earlier epoch are refused.
        revoked: The epoch that the last `Revoke` began.
        removed: No server of the configuration leads to the key; nobody is admitted.
        client: The live incarnation, or `None`.
        old: Incarnations that are not closed yet, by id.
        opening: The opening that is waited for.
        waiting: Who waits, by ticket, in the order in which they came.
        leases: Who holds a place, and on which incarnation.
        ghosts: Places of a crashed predecessor, while there are such (M4).
        last_opening: Cancelled once more after a crash, which may have lost it (I8).
        draining: Who waits for what runs to settle, while admission is held for it.
        closed: Whether everybody is refused.
        paused: Whether admission is held.
        abandoned: Places given up on whose request may still run at the server (beside `max_operations`).
        told_active: What the outside was told last of `Active`; `None`: not known after a crash.
        torn: The message whose turn crashed.
    """

    __slots__ = (
        "abandoned", "client", "closed", "draining", "epoch", "ghosts", "last_opening", "leases", "limits",
        "next_id", "old", "opening", "paused", "removed", "revoked", "told_active", "torn", "waiting",
    )  # fmt: skip

    def __init__(self, limits: KeyLimits, next_id: Callable[[], int]) -> None:
        self.limits = limits
        self.next_id = next_id
        self.epoch = 0
        self.revoked = 0
        self.removed = False
        self.client: ClientState | None = None
        self.old: dict[int, ClientState] | None = None
        self.opening: Opening | None = None
        self.waiting: dict[int, tuple[m.Admit, Reply[Any]]] | None = None
        self.leases: dict[int, ClientState] | None = None
        self.ghosts: set[int] | None = None
        self.last_opening: int | None = None
        self.draining: list[Reply[None]] | None = None
        self.closed = False
        self.paused = False
        self.abandoned = 0
        self.told_active: bool | None = False
        self.torn: object = None

    # ------------------------------------------------------------------ reads

    @property
    def in_flight(self) -> int:
        """Places held now, by anybody, on any of the key's clients."""
        return (len(self.leases) if self.leases else 0) + (len(self.ghosts) if self.ghosts else 0)

    @property
    def idle(self) -> bool:
        """Whether the live client, if any, is used by nobody and waited for by nobody."""
        return not self.leases and not self.waiting and not self.ghosts  # and who opens is waited for

    @property
    def held(self) -> bool:
        """Whether nobody is given a place, free or not."""
        if self.limits.halted:
            return True
        return self.paused or self.draining is not None or self.ghosts is not None

    @property
    def would_grant(self) -> bool:
        """Whether a call would get a place without waiting."""
        return (
            self.client is not None
            and not self.waiting
            and not self.held
            and len(self.leases or ()) < self.limits.max_operations
        )

    def snapshot(self) -> Mapping[str, object]:
        """What an operator sees; no identity, no credential, no argument."""
        client = self.client
        return {
            "epoch": self.epoch,
            "client": None if client is None else client.id,
            "generation": None if client is None or client.list is None else client.list.generation,
            "in_flight": self.in_flight,
            "waiting": len(self.waiting or ()),
            "opening": self.opening is not None,
            "old_clients": len(self.old or ()),
            "abandoned": self.abandoned,
            "paused": self.paused,
            "halted": self.limits.halted,
            "closed": self.closed,
            "removed": self.removed,
        }

    # ------------------------------------------------------------------ steps

    def open_if_needed(self, effects: Effects, *, fresh: bool = False) -> Effects:
        """Start the opening that somebody waits for (I8)."""
        # not while one is under way, not while a client has to be gone first, not for a crashed state
        if self.client is None and self.waiting and self.ghosts is None:
            if self.opening is not None:
                self.opening.fresh = self.opening.fresh or fresh
            elif not any(client.wait_for_close for client in (self.old or {}).values()):
                wants_fresh = any(msg.fresh for msg, _ in self.waiting.values())
                self.last_opening = self.next_id()
                self.opening = Opening(self.last_opening, wants_fresh)
                effects.append(m.StartOpening(self.opening.token, wants_fresh))
        return self.flag(effects)

    def stop_opening_if_alone(self, effects: Effects) -> Effects:
        """Cancel the opening that nobody waits for any more."""
        if not self.waiting and self.opening is not None:
            effects.append(m.CancelOpening(self.opening.token))
            self.opening = None
        return self.flag(effects)

    def retire(self, effects: Effects, *, wait_for_close: bool = False, reason: str = "replaced") -> None:
        """Have no live client any more; it closes now, or when its last place is given back (M3)."""
        client = self.client
        if client is None:
            return
        if self.old is None:
            self.old = {}
        self.old[client.id] = client
        self.client = None
        client.wait_for_close = wait_for_close
        client.retired = reason
        client.end_list()
        if client.leases == 0:
            effects.append(m.CloseClient(client.handle, reason))

    def refuse_all(self, effects: Effects, error: Callable[[], AfpoolError]) -> None:
        """Refuse whoever waits, each with an error of its own; `error` makes them."""
        for _, reply in (self.waiting or {}).values():
            effects.append(Refuse(reply, error()))
        self.waiting = None
        self.stop_opening_if_alone(effects)

    def flag(self, effects: Effects) -> Effects:
        """Say whether the key has something to live for, if that has changed."""
        # a place is on the live client or on an old one (M3); who waits, waits for an opening, a close or one
        # of these places, and so does a drain
        active = bool(
            self.client is not None
            or self.opening is not None
            or self.old
            or self.ghosts is not None
            or self.paused
        )
        if active != self.told_active:
            self.told_active = active
            effects.append(m.Active(active))
            if not active:
                self.waiting = self.leases = None
        return effects
