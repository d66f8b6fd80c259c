"""The state machine of one key: who may use its client, and which client that is.

A turn is synchronous: it changes this state, returns effects and calls nobody. It knows no clock, no
socket and no task, so that every order of messages can be walked through by a test.

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

from typing import TYPE_CHECKING, Any, Final, final

from actors import Answer, Refuse

from .._base.errors import AfpoolError, Overloaded, PoolClosed
from . import _messages as m
from ._key_state import ClientState, KeyLimits, LeaseReturnedTwice, Opening
from ._lists import ListState
from ._refusals import backing_off, copy_error, other_plan, revoked, stale

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors import Reply

ABANDONED_IN_A_ROW: Final = 2
TIMED_OUT_IN_A_ROW: Final = 3


Effects = list[object]


@final
class KeyMachine:
    """State of one key. See the module's invariants.

    Attributes:
        epoch: Raised by `Revoke`; bindings of an earlier epoch are refused.
        client: The live incarnation, or `None`.
        closed: Whether everybody is refused.
        paused: Whether admission is held.
        abandoned: Places given up on whose request may still run at the server (beside `max_operations`).
    """

    __slots__ = (
        "_active", "_next_id", "_torn", "abandoned", "client", "closed", "draining", "epoch", "ghosts",
        "last_opening", "leases", "limits", "old", "opening", "paused", "waiting",
    )  # fmt: skip

    def __init__(self, limits: KeyLimits, next_id: Callable[[], int]) -> None:
        self.limits = limits
        self._next_id = next_id
        self.epoch = 0
        self.client: ClientState | None = None
        self.old: dict[int, ClientState] | None = None
        self.opening: Opening | None = None
        self.waiting: dict[int, tuple[m.Admit, Reply[Any]]] | None = None
        self.leases: dict[int, ClientState] | None = None
        self.ghosts: set[int] | None = None  # places of a crashed predecessor (M4)
        self.last_opening: int | None = None  # cancelled once more after a crash, which may have lost it (I8)
        self.draining: list[Reply[None]] | None = None
        self.closed = False
        self.paused = False
        self.abandoned = 0
        self._active: bool | None = False  # as the outside was told; `None`: not known after a crash
        self._torn: object = None  # the message whose turn crashed

    # ------------------------------------------------------------------ reads

    @property
    def in_flight(self) -> int:
        """Places held now, by anybody, on any of the key's clients."""
        return (len(self.leases) if self.leases else 0) + (len(self.ghosts) if self.ghosts else 0)

    @property
    def idle(self) -> bool:
        """Whether the live client, if any, is used by nobody and waited for by nobody."""
        return not self.leases and not self.waiting and self.opening is None and not self.ghosts

    @property
    def would_grant(self) -> bool:
        """Whether a call would get a place without waiting."""
        return (
            self.client is not None
            and not self.waiting
            and not self._held
            and len(self.leases or ()) < self.limits.max_operations
        )

    @property
    def _held(self) -> bool:
        return self.paused or self.draining is not None or self.ghosts is not None

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
            "closed": self.closed,
        }

    # ------------------------------------------------------------------ the turn

    def turn(self, message: Any, reply: Reply[Any] | None, /) -> Effects | None:
        """Handle one message; see `_messages` for what each means."""
        try:
            return _TURNS[type(message)](self, message, reply)
        except AfpoolError:
            raise
        except BaseException:
            self._torn = message
            raise

    def successor(self) -> KeyMachine:
        """The clean state after a crash: nothing admitted until the old places and clients are gone (M4).

        Facts of the message whose turn crashed are kept: nobody says a second time that a place was given
        back, that a client was opened or is closed, that the key was revoked. Effects of that turn may be
        lost, so the successor waits for one `Evict`, which lets it say again what has to be cancelled, closed
        and kept.
        """
        fresh = KeyMachine(self.limits, self._next_id)
        fresh.epoch = self.epoch
        fresh.closed = self.closed
        fresh.paused = self.paused
        fresh.abandoned = self.abandoned
        ghosts = set(self.leases or ()) | (self.ghosts or set())
        old = dict(self.old or {})
        if self.client is not None:
            old[self.client.id] = self.client
            _end_list(self.client)
        fresh.old = old
        fresh.ghosts = ghosts
        fresh._keep_facts(self._torn)
        for client in old.values():
            client.wait_for_close = True
        fresh.old = old or None
        fresh.last_opening = self.last_opening
        fresh._active = None
        return fresh

    def _keep_facts(self, torn: object) -> None:
        """What the message of the crashed turn says is so, whatever of that turn was done."""
        assert self.ghosts is not None
        assert self.old is not None
        if isinstance(torn, m.Settle):
            self.ghosts.discard(torn.ticket)
        elif isinstance(torn, m.Abandon):
            if torn.final:
                self.ghosts.discard(torn.ticket)
        elif isinstance(torn, m.Opened):
            self.old.setdefault(torn.client_id, ClientState(torn.client_id, torn.context, torn.handle))
        elif isinstance(torn, m.ClientLost):
            if torn.closed:
                self.old.pop(torn.client_id, None)
        elif isinstance(torn, m.Revoke):
            self.epoch += 1  # once too often is no harm, once too rarely lets a revoked binding through
        elif isinstance(torn, m.Close):
            self.closed = True
        elif isinstance(torn, (m.Pause, m.Resume)):
            self.paused = isinstance(torn, m.Pause)

    # ------------------------------------------------------------------ admission

    def _admit(self, msg: m.Admit, reply: Reply[Any]) -> Effects | None:
        if self.closed:
            raise PoolClosed("the pool is closed; nothing was sent")
        if msg.epoch is not None and msg.epoch != self.epoch:
            raise revoked()
        client = self.client
        if client is not None:
            if msg.context is not None and msg.context != client.context:
                raise other_plan()
            if not msg.lease:
                return [Answer(reply, client.handle)]
            leases = self.leases
            if leases is None:
                leases = self.leases = {}
            if not self.waiting and not self._held and len(leases) < self.limits.max_operations:
                leases[msg.ticket] = client
                client.leases += 1
                return [Answer(reply, client.handle)]
        elif self.opening is not None and not _fits(msg.context, self.opening.context):
            raise other_plan()
        if msg.chain and self._waits_for_itself(msg):
            raise Overloaded(
                f"{self.in_flight} of {self.limits.max_operations} places of the key are taken, one of them "
                "by the call that this call is made from, and the next is free only after it: it would wait "
                "for itself; nothing was sent"
            )
        waiting = self.waiting
        if waiting is None:
            waiting = self.waiting = {}
        if len(waiting) >= self.limits.max_waiting:
            raise Overloaded(
                f"{len(waiting)} calls wait for this key already (max_waiting {self.limits.max_waiting}); "
                "nothing was sent"
            )
        waiting[msg.ticket] = (msg, reply)
        return self._open_if_needed([], fresh=msg.fresh)

    def _waits_for_itself(self, msg: m.Admit) -> bool:
        """Whether no place comes free before a call that this one is made from gives its own back."""
        places: set[int] | dict[int, ClientState] = self.ghosts or self.leases or {}
        held_up = self.ghosts is not None or (
            msg.lease and (self.draining is not None or len(places) >= self.limits.max_operations)
        )
        return held_up and any(ticket in places for ticket in msg.chain)

    def _open_if_needed(self, effects: Effects, *, fresh: bool = False) -> Effects:
        # I8: not while one is under way, not while a client has to be gone first, not for a crashed state.
        if self.client is None and self.waiting and self.ghosts is None:
            if self.opening is not None:
                self.opening.fresh = self.opening.fresh or fresh
            elif not any(client.wait_for_close for client in (self.old or {}).values()):
                wants_fresh = fresh or any(msg.fresh for msg, _ in self.waiting.values())
                self.last_opening = self._next_id()
                self.opening = Opening(self.last_opening, wants_fresh)
                effects.append(m.StartOpening(self.opening.token, wants_fresh))
        return self._flag(effects)

    def _grant(self, effects: Effects) -> Effects:
        """Serve waiters in order while there are a client and places (M1, M2)."""
        client = self.client
        if client is None:
            return self._open_if_needed(effects)
        waiting = self.waiting
        if waiting:
            if self.leases is None:
                self.leases = {}
            full = self._held
            for ticket in list(waiting):
                msg, reply = waiting[ticket]
                if msg.context is not None and msg.context != client.context:
                    del waiting[ticket]
                    effects.append(Refuse(reply, other_plan()))
                elif not msg.lease:
                    del waiting[ticket]
                    effects.append(Answer(reply, client.handle))
                elif not full and len(self.leases) < self.limits.max_operations:
                    del waiting[ticket]
                    self.leases[ticket] = client
                    client.leases += 1
                    effects.append(Answer(reply, client.handle))
                else:
                    full = True
        return self._flag(effects)

    def _settle(self, msg: m.Settle, _: object) -> Effects | None:
        ticket = msg.ticket
        leases = self.leases
        client = leases.pop(ticket, None) if leases else None
        if client is not None:
            if msg.answered:
                client.silent = client.abandoned = 0
            return self._gave_back(client, [])
        if self.ghosts is not None and ticket in self.ghosts:
            self.ghosts.discard(ticket)
            return self._recovered([])
        if self.waiting and self.waiting.pop(ticket, None) is not None:
            return self._stop_opening_if_alone([])
        if msg.held:
            raise LeaseReturnedTwice("a place was given back that nobody holds")
        return None

    def _gave_back(self, client: ClientState, effects: Effects) -> Effects | None:
        client.leases -= 1
        if client is not self.client and client.leases == 0:
            effects.append(m.CloseClient(client.handle, "replaced"))  # M3
        if self.waiting:
            self._grant(effects)  # the place is the key's, whichever client it was on
        if not self.leases and self.draining is not None:
            self._drained(effects)
        return effects if self.client is client and not effects else self._flag(effects)

    def _abandon(self, msg: m.Abandon, _: object) -> Effects | None:
        client = self.leases.get(msg.ticket) if self.leases else None
        if client is None:
            if msg.final and self.ghosts is not None and msg.ticket in self.ghosts:
                self.abandoned += 1
                self.ghosts.discard(msg.ticket)
                return self._recovered([])
            return None
        effects: Effects = []
        if msg.final:
            assert self.leases is not None
            del self.leases[msg.ticket]
            self.abandoned += 1
            client.abandoned += 1
        else:
            client.silent += 1
        if client is self.client and (
            client.abandoned >= ABANDONED_IN_A_ROW or client.silent >= TIMED_OUT_IN_A_ROW
        ):
            client.abandoned = client.silent = 0
            effects.append(m.PingClient(client.handle))
        return self._gave_back(client, effects) if msg.final else effects

    # ------------------------------------------------------------------ openings and plans

    def _plan_changed(self, msg: m.PlanChanged, reply: Reply[bool]) -> Effects:
        effects: Effects = []
        if msg.token is None:
            if self.client is not None and self.client.context != msg.context:
                self._retire(effects)
                self._open_if_needed(effects)
            return [*effects, Answer(reply, True)]
        opening = self.opening
        if opening is None or opening.token != msg.token:
            return [Answer(reply, False)]
        opening.context = msg.context
        waiting = self.waiting or {}
        held_off = None if opening.fresh else msg.retry_after
        for ticket, (admit, waiter) in list(waiting.items()):
            if admit.context is not None and admit.context != msg.context:
                del waiting[ticket]
                effects.append(Refuse(waiter, other_plan()))
            elif held_off is not None:
                del waiting[ticket]
                effects.append(Refuse(waiter, backing_off(held_off)))
        go = bool(waiting)
        if not go:
            self.opening = None
        effects.append(Answer(reply, go))
        return self._flag(effects)

    def _opened(self, msg: m.Opened, _: object) -> Effects:
        opening = self.opening
        if opening is None or opening.token != msg.token or self.closed:
            return [m.CloseClient(msg.handle, "nobody waits for it")]
        self.opening = None
        self.client = ClientState(msg.client_id, msg.context, msg.handle)
        self.client.list = ListState(self._next_id())
        return self._grant([])

    def _open_failed(self, msg: m.OpenFailed, _: object) -> Effects:
        opening = self.opening
        if opening is None or opening.token != msg.token:
            return []
        self.opening = None
        effects: Effects = []
        for _admit, reply in (self.waiting or {}).values():
            effects.append(Refuse(reply, copy_error(msg.error)))
        self.waiting = None
        return self._flag(effects)

    def _stop_opening_if_alone(self, effects: Effects) -> Effects:
        if not self.waiting and self.opening is not None:
            effects.append(m.CancelOpening(self.opening.token))
            self.opening = None
        return self._flag(effects)

    # ------------------------------------------------------------------ clients that end

    def _retire(self, effects: Effects, *, wait_for_close: bool = False, reason: str = "replaced") -> None:
        client = self.client
        if client is None:
            return
        self.client = None
        _end_list(client)
        client.wait_for_close = wait_for_close
        if self.old is None:
            self.old = {}
        self.old[client.id] = client
        if client.leases == 0:
            effects.append(m.CloseClient(client.handle, reason))

    def _client_lost(self, msg: m.ClientLost, _: object) -> Effects:
        effects: Effects = []
        if self.client is not None and self.client.id == msg.client_id:
            self._retire(effects, reason=msg.reason)
        if msg.closed and self.old is not None and msg.client_id in self.old:
            del self.old[msg.client_id]
            self.old = self.old or None
            if self.ghosts is not None:
                return self._recovered(effects)
        return self._open_if_needed(effects)

    def _recovered(self, effects: Effects) -> Effects:
        if self.last_opening is not None:
            effects.append(m.CancelOpening(self.last_opening))
            self.last_opening = None
        if self.ghosts is not None and not self.ghosts:
            for client in (self.old or {}).values():
                effects.append(m.CloseClient(client.handle, "its actor crashed"))
            if self.old is None:
                self.ghosts = None
                if self.draining is not None:
                    return self._drained(effects)
                return self._grant(effects)
        return self._flag(effects)

    def _evict(self, _msg: m.Evict, _: object) -> Effects:
        effects: Effects = []
        if self.ghosts is not None:
            return self._recovered(effects)
        if self.client is None or not self.idle:
            return effects
        self._retire(effects, wait_for_close=True, reason="evicted")
        return self._flag(effects)

    def _revoke(self, msg: m.Revoke, _: object) -> Effects:
        self.epoch += 1
        effects: Effects = []
        self._refuse_all(effects, revoked)
        self._retire(effects, reason=msg.reason)
        return self._flag(effects)

    def _close(self, _msg: m.Close, _: object) -> Effects:
        self.closed = True
        effects: Effects = []
        self._refuse_all(effects, lambda: PoolClosed("the pool is closing; nothing was sent"))
        self._retire(effects, reason="pool closed")
        return self._flag(effects)

    def _refuse_all(self, effects: Effects, error: Callable[[], AfpoolError]) -> None:
        for _, reply in (self.waiting or {}).values():
            effects.append(Refuse(reply, error()))
        self.waiting = None
        self._stop_opening_if_alone(effects)

    # ------------------------------------------------------------------ lists

    def _listed(self, msg: m.Listed, _: object) -> Effects:
        client = self.client
        if client is None or client.id != msg.client_id or client.list is None:
            return []
        moved = client.list.received(msg.catalog, msg.notices, msg.expires_at)
        return self._refuse_stale(client.list) if moved else []

    def _list_changed(self, msg: m.ListChanged, _: object) -> Effects:
        if msg.list is not None:
            return self._refuse_stale(msg.list)
        client = self.client
        if client is None or client.id != msg.client_id or client.list is None:
            return []
        client.list.unsettle(msg.why)
        return []

    def _refuse_stale(self, state: ListState) -> Effects:
        """Refuse waiters whose list changed now, not when their turn comes."""
        effects: Effects = []
        for ticket, (msg, reply) in list((self.waiting or {}).items()):
            if msg.list is not state or msg.tool is None or msg.digest is None:
                continue
            if self.limits.recheck_lists:
                true = state.alive and state.shows(msg.tool, msg.digest)
            else:
                true = state.alive and state.generation == msg.generation
            if not true:
                assert self.waiting is not None
                del self.waiting[ticket]
                effects.append(Refuse(reply, stale(msg.generation, state.generation)))
        return self._stop_opening_if_alone(effects)

    # ------------------------------------------------------------------ operators

    def _pause(self, _msg: m.Pause, _: object) -> Effects:
        self.paused = True
        return self._flag([])

    def _resume(self, _msg: m.Resume, _: object) -> Effects:
        self.paused = False
        return self._grant([])

    def _drain(self, _msg: m.Drain, reply: Reply[None]) -> Effects:
        if self.draining is None:
            self.draining = []
        self.draining.append(reply)
        return [] if self.leases or self.ghosts is not None else self._drained([])

    def _drained(self, effects: Effects) -> Effects:
        for reply in self.draining or ():
            effects.append(Answer(reply, None))
        self.draining = None
        self._retire(effects, reason="drained")
        return self._open_if_needed(effects)

    # ------------------------------------------------------------------ life

    def _flag(self, effects: Effects) -> Effects:
        active = bool(
            self.client is not None
            or self.opening is not None
            or self.waiting
            or self.leases
            or self.old
            or self.ghosts is not None
            or self.paused
            or self.draining is not None
        )
        if active != self._active:
            self._active = active
            effects.append(m.Active(active))
            if not active:
                self.waiting = self.leases = None
        return effects


def _fits(bound: str | None, context: str | None) -> bool:
    """Whether a waiter bound to a context may go on under another; `None`: to any, or not known yet."""
    return bound is None or context is None or bound == context


def _end_list(client: ClientState) -> None:
    if client.list is not None:
        client.list.end()


_TURNS: Final[dict[type, Callable[[KeyMachine, Any, Any], Effects | None]]] = {
    m.Admit: KeyMachine._admit,
    m.Settle: KeyMachine._settle,
    m.Abandon: KeyMachine._abandon,
    m.PlanChanged: KeyMachine._plan_changed,
    m.Opened: KeyMachine._opened,
    m.OpenFailed: KeyMachine._open_failed,
    m.Listed: KeyMachine._listed,
    m.ListChanged: KeyMachine._list_changed,
    m.ClientLost: KeyMachine._client_lost,
    m.Evict: KeyMachine._evict,
    m.Revoke: KeyMachine._revoke,
    m.Pause: KeyMachine._pause,
    m.Resume: KeyMachine._resume,
    m.Drain: KeyMachine._drain,
    m.Close: KeyMachine._close,
}
