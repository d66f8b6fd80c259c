"""Turns about places: who gets one, who gives one back, and when nobody is given any.

See `_machine` for the invariants (I4, M1, M2, M4). A call that finds no client waits here and holds nothing;
it gets place and client in one grant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors import Answer, Refuse

from .._base.errors import Overloaded, PoolClosed
from . import _messages as m
from ._key_state import LeaseReturnedTwice
from ._refusals import epoch_over, other_plan, reconfigured

if TYPE_CHECKING:
    from actors import Reply

    from ._key_state import ClientState, Effects, KeyState

ABANDONED_IN_A_ROW: Final = 2
TIMED_OUT_IN_A_ROW: Final = 3

# ---------------------------------------------------------------------------- asking


def admit(key: KeyState, msg: m.Admit, reply: Reply[Any]) -> Effects | None:
    """Give the client, and a place where one is wanted; or wait for them."""
    if key.closed:
        raise PoolClosed("the pool is closed; nothing was sent")
    if key.removed:
        raise reconfigured()
    if msg.epoch is not None and msg.epoch != key.epoch:
        raise epoch_over(key, msg.epoch)
    client = key.client
    if client is not None:
        if msg.context is not None and msg.context != client.context:
            raise other_plan()
        if not msg.lease:
            return [Answer(reply, client.handle)]
        leases = key.leases
        if leases is None:
            leases = key.leases = {}
        if not key.waiting and not key.held and len(leases) < key.limits.max_operations:
            leases[msg.ticket] = client
            client.leases += 1
            return [Answer(reply, client.handle)]
    elif key.opening is not None and not _fits(msg.context, key.opening.context):
        raise other_plan()
    if msg.chain and _waits_for_itself(key, msg):
        raise _for_itself(key)
    waiting = key.waiting
    if waiting is None:
        waiting = key.waiting = {}
    if len(waiting) >= key.limits.max_waiting:
        raise Overloaded(
            f"{len(waiting)} calls wait for this key already (max_waiting {key.limits.max_waiting}); "
            "nothing was sent"
        ).saying("limit", "max_waiting")
    waiting[msg.ticket] = (msg, reply)
    return key.open_if_needed([], fresh=msg.fresh)


def _waits_for_itself(key: KeyState, msg: m.Admit) -> bool:
    """Whether no place comes free before a call that this one is made from gives its own back."""
    places: set[int] | dict[int, ClientState] = key.ghosts or key.leases or {}
    held_up = key.ghosts is not None or (
        msg.lease and (key.draining is not None or len(places) >= key.limits.max_operations)
    )
    return held_up and any(ticket in places for ticket in msg.chain)


def _for_itself(key: KeyState) -> Overloaded:
    return Overloaded(
        f"{key.in_flight} of {key.limits.max_operations} places of the key are taken, one of them "
        "by the call that this call is made from, and the next is free only after it: it would wait "
        "for itself; nothing was sent"
    ).saying("limit", "itself")


def _fits(bound: str | None, context: str | None) -> bool:
    """Whether a waiter bound to a context may go on under another; `None`: to any, or not known yet."""
    return bound is None or context is None or bound == context


def grant(key: KeyState, effects: Effects) -> Effects:
    """Serve waiters in order while there are a client and places (M1, M2)."""
    client = key.client
    if client is None:
        return key.open_if_needed(effects)
    waiting = key.waiting
    if waiting:
        if key.leases is None:
            key.leases = {}
        full = key.held
        for ticket in list(waiting):
            msg, reply = waiting[ticket]
            if msg.context is not None and msg.context != client.context:
                del waiting[ticket]
                effects.append(Refuse(reply, other_plan()))
            elif not msg.lease:
                del waiting[ticket]
                effects.append(Answer(reply, client.handle))
            elif not full and len(key.leases) < key.limits.max_operations:
                del waiting[ticket]
                key.leases[ticket] = client
                client.leases += 1
                effects.append(Answer(reply, client.handle))
            else:
                full = True
    return key.flag(effects)


# ---------------------------------------------------------------------------- giving back


def settle(key: KeyState, msg: m.Settle, _: object) -> Effects | None:
    """Take a place back, or let a waiter go."""
    ticket = msg.ticket
    leases = key.leases
    client = leases.pop(ticket, None) if leases else None
    if client is not None:
        if msg.answered:
            client.silent = client.abandoned = 0
        return _gave_back(key, client, [])
    if key.ghosts is not None and ticket in key.ghosts:
        key.ghosts.discard(ticket)
        return recovered(key, [])
    if key.waiting and key.waiting.pop(ticket, None) is not None:
        return key.stop_opening_if_alone([])
    if msg.held:
        raise LeaseReturnedTwice("a place was given back that nobody holds")
    return None


def _gave_back(key: KeyState, client: ClientState, effects: Effects) -> Effects:
    client.leases -= 1
    if client is not key.client and client.leases == 0:
        effects.append(m.CloseClient(client.handle, client.retired))  # M3
    if key.waiting:
        grant(key, effects)  # the place is the key's, whichever client it was on
    if not key.leases and key.draining is not None:
        _drained(key, effects)
    return effects  # whoever gave it back, its client is still there: the key is no less active


def abandon(key: KeyState, msg: m.Abandon, _: object) -> Effects | None:
    """Note a silence; the place is free if nobody waits for its answer any more."""
    client = key.leases.get(msg.ticket) if key.leases else None
    if client is None:
        if msg.final and key.ghosts is not None and msg.ticket in key.ghosts:
            key.abandoned += 1
            key.ghosts.discard(msg.ticket)
            return recovered(key, [])
        return None
    effects: Effects = []
    if msg.final:
        assert key.leases is not None
        del key.leases[msg.ticket]
        key.abandoned += 1
        client.abandoned += 1
    else:
        client.silent += 1
    if client is key.client and (
        client.abandoned >= ABANDONED_IN_A_ROW or client.silent >= TIMED_OUT_IN_A_ROW
    ):
        client.abandoned = client.silent = 0
        effects.append(m.PingClient(client.handle))
    return _gave_back(key, client, effects) if msg.final else effects


def recovered(key: KeyState, effects: Effects) -> Effects:
    """Close what a crash left once its places are back; admit again once all of it is gone (M4)."""
    if key.last_opening is not None:
        effects.append(m.CancelOpening(key.last_opening))
        key.last_opening = None
    if key.ghosts is not None and not key.ghosts:
        for client in (key.old or {}).values():
            effects.append(m.CloseClient(client.handle, "its actor crashed"))
        if key.old is None:
            key.ghosts = None
            if key.draining is not None:
                return _drained(key, effects)
            return grant(key, effects)
    return key.flag(effects)


# ---------------------------------------------------------------------------- operators


def pause(key: KeyState, _msg: m.Pause, _: object) -> Effects:
    """Hold admission."""
    key.paused = not key.removed
    return key.flag([])


def resume(key: KeyState, _msg: m.Resume, _: object) -> Effects:
    """Admit again."""
    key.paused = False
    return grant(key, [])


def limit(key: KeyState, msg: m.Limit, _: object) -> Effects:
    """Hold, or let go, what all keys of the server hold."""
    key.limits = msg.limits
    return grant(key, [])


def drain(key: KeyState, _msg: m.Drain, reply: Reply[None]) -> Effects:
    """Hold admission until nothing runs."""
    if key.draining is None:
        key.draining = []
    key.draining.append(reply)
    if not key.leases and key.ghosts is None:
        return _drained(key, [])
    effects: Effects = []
    for ticket, (msg, waiter) in list((key.waiting or {}).items()):
        # what runs does not settle before a call that it has made itself, which is not admitted before
        if msg.chain and _waits_for_itself(key, msg):
            assert key.waiting is not None
            del key.waiting[ticket]
            effects.append(Refuse(waiter, _for_itself(key)))
    return key.stop_opening_if_alone(effects)


def _drained(key: KeyState, effects: Effects) -> Effects:
    for reply in key.draining or ():
        effects.append(Answer(reply, None))
    key.draining = None
    key.retire(effects, reason="drained")
    return key.open_if_needed(effects)
