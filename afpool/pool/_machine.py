"""The state machine of one key: who may use its client, and which client that is.

A turn is synchronous: it changes the key's state, returns effects and calls nobody. It knows no clock, no
socket and no task, so that every order of messages can be walked through by a test.

The state and its small steps are in `_key_state`, the turns about places in `_key_places`, those about
incarnations in `_key_clients`.

Invariants:

* I4 `len(leases)` of the key never exceeds `max_operations`; each ticket is given a place once and gives
  it back once.
* I7 Whoever waits in here is answered: by a grant, a refusal, or the crash of the actor.
* I8 One opening at a time, and none while an evicted client is still closing.
* M1 A place is granted only on the live client, and only to a waiter of the client's context.
* M2 Waiters are granted in the order in which they came.
* M3 A client that was replaced is closed when its last place has been given back, and not before.
* M4 After a crash nothing is admitted until every place of the old state was given back and every old
  client is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._base.errors import AfpoolError
from . import _key_clients as clients
from . import _key_places as places
from . import _messages as m
from ._key_state import ClientState, KeyState

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors import Reply

    from ._key_state import Effects


class KeyMachine(KeyState):
    """The turns of one key. See the module's invariants, and `KeyState` for what it holds."""

    __slots__ = ()

    def turn(self, message: Any, reply: Reply[Any] | None, /) -> Effects | None:
        """Handle one message; see `_messages` for what each means."""
        try:
            return _TURNS[type(message)](self, message, reply)
        except AfpoolError:
            raise
        except BaseException:
            self.torn = message
            raise

    def successor(self, kind: type[KeyMachine] | None = None) -> KeyMachine:
        """The clean state after a crash: nothing admitted until the old places and clients are gone (M4).

        Facts of the message whose turn crashed are kept: nobody says a second time that a place was given
        back, that a client was opened or is closed, that the key was revoked or reconfigured. Effects of that
        turn may be lost, so the successor waits for one `Evict`, which lets it say again what has to be
        cancelled, closed and kept. `kind` is another class than this one that it is to be of.
        """
        fresh = (kind or KeyMachine)(self.limits, self.next_id)
        fresh.epoch = self.epoch
        fresh.revoked = self.revoked
        fresh.removed = self.removed
        fresh.closed = self.closed
        fresh.paused = self.paused
        fresh.abandoned = self.abandoned
        ghosts = set(self.leases or ()) | (self.ghosts or set())
        old = dict(self.old or {})
        if self.client is not None:
            old[self.client.id] = self.client
            self.client.end_list()
        fresh.old = old
        fresh.ghosts = ghosts
        keep_facts(fresh, self.torn)
        fresh.old = old or None
        fresh.last_opening = self.last_opening
        fresh.told_active = None
        return fresh


def keep_facts(fresh: KeyMachine, torn: object) -> None:
    """Take what a message says is so, whatever was done of the turn that it crashed in."""
    assert fresh.ghosts is not None
    assert fresh.old is not None
    if isinstance(torn, m.Settle):
        fresh.ghosts.discard(torn.ticket)
    elif isinstance(torn, m.Abandon):
        if torn.final:
            fresh.ghosts.discard(torn.ticket)
    elif isinstance(torn, m.Opened):
        fresh.old.setdefault(torn.client_id, ClientState(torn.client_id, torn.context, torn.handle))
    elif isinstance(torn, m.ClientLost):
        if torn.closed:
            fresh.old.pop(torn.client_id, None)
    elif isinstance(torn, m.Revoke):
        fresh.epoch += 1  # once too often is no harm, once too rarely lets a revoked binding through
        fresh.revoked = fresh.epoch
    elif isinstance(torn, m.Reconfigure):
        fresh.epoch += 1
        fresh.removed = torn.limits is None
        fresh.limits = torn.limits or fresh.limits
        fresh.paused = fresh.paused and not fresh.removed
    elif isinstance(torn, m.Limit):
        fresh.limits = torn.limits
    elif isinstance(torn, m.Close):
        fresh.closed = True
    elif isinstance(torn, (m.Pause, m.Resume)):
        fresh.paused = isinstance(torn, m.Pause) and not fresh.removed


_TURNS: Final[dict[type, Callable[[KeyState, Any, Any], Effects | None]]] = {
    m.Admit: places.admit,
    m.Settle: places.settle,
    m.Abandon: places.abandon,
    m.PlanChanged: clients.plan_changed,
    m.Opened: clients.opened,
    m.OpenFailed: clients.open_failed,
    m.Listed: clients.listed,
    m.ListChanged: clients.list_changed,
    m.ClientLost: clients.client_lost,
    m.Evict: clients.evict,
    m.Revoke: clients.revoke,
    m.Reconfigure: clients.reconfigure,
    m.Pause: places.pause,
    m.Resume: places.resume,
    m.Limit: places.limit,
    m.Drain: places.drain,
    m.Close: clients.close,
}
