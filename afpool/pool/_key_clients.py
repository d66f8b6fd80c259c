"""Turns about incarnations: which client a key has, how it comes, how it ends, what it lists.

See `_machine` for the invariants (I8, M3). What is said about a client or an opening that is not the key's
any more changes nothing: ids are never used twice, so it matches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors import Answer, Refuse

from .._base.errors import PoolClosed
from . import _messages as m
from ._key_places import grant, recovered
from ._key_state import ClientState
from ._lists import ListState
from ._refusals import backing_off, copy_error, other_plan, reconfigured, revoked, stale

if TYPE_CHECKING:
    from actors import Reply

    from ._key_state import Effects, KeyState

# ---------------------------------------------------------------------------- openings and plans


def plan_changed(key: KeyState, msg: m.PlanChanged, reply: Reply[bool]) -> Effects:
    """Let the opening go on for those who wait under this plan; or retire the client of another one."""
    effects: Effects = []
    if msg.token is None:
        if key.client is not None and key.client.context != msg.context:
            key.retire(effects)
            key.open_if_needed(effects)
        return [*effects, Answer(reply, True)]
    opening = key.opening
    if opening is None or opening.token != msg.token:
        return [Answer(reply, False)]
    opening.context = msg.context
    waiting = key.waiting or {}
    held_off = None if opening.fresh else msg.retry_after
    for ticket, (admit, waiter) in list(waiting.items()):
        if admit.context is not None and admit.context != msg.context:
            del waiting[ticket]
            effects.append(Refuse(waiter, other_plan().because(msg.event)))
        elif held_off is not None:
            del waiting[ticket]
            effects.append(Refuse(waiter, backing_off(held_off).because(msg.failed)))
    go = bool(waiting)
    if not go:
        key.opening = None
    effects.append(Answer(reply, go))
    return key.flag(effects)


def opened(key: KeyState, msg: m.Opened, _: object) -> Effects:
    """Take the client that was opened and serve whoever waits for it."""
    opening = key.opening
    if opening is None or opening.token != msg.token:
        return [m.CloseClient(msg.handle, "nobody waits for it")]
    key.opening = None
    key.client = ClientState(msg.client_id, msg.context, msg.handle)
    key.client.list = ListState(key.next_id())
    return grant(key, [])


def open_failed(key: KeyState, msg: m.OpenFailed, _: object) -> Effects:
    """Tell whoever waits, each with an error of its own."""
    opening = key.opening
    if opening is None or opening.token != msg.token:
        return []
    key.opening = None
    effects: Effects = []
    for _admit, reply in (key.waiting or {}).values():
        effects.append(Refuse(reply, copy_error(msg.error)))
    key.waiting = None
    return key.flag(effects)


# ---------------------------------------------------------------------------- clients that end


def client_lost(key: KeyState, msg: m.ClientLost, _: object) -> Effects:
    """Use the client no more; forget it where it is closed."""
    effects: Effects = []
    if key.client is not None and key.client.id == msg.client_id:
        key.retire(effects, reason=msg.reason)
    if msg.closed and key.old is not None and msg.client_id in key.old:
        del key.old[msg.client_id]
        key.old = key.old or None
        if key.ghosts is not None:
            return recovered(key, effects)
    return key.open_if_needed(effects)


def evict(key: KeyState, _msg: m.Evict, _: object) -> Effects:
    """Close the client if nobody uses it; whoever comes now waits for its end."""
    if key.ghosts is not None:
        return recovered(key, [])
    if not key.idle:
        return []
    effects: Effects = []
    key.retire(effects, wait_for_close=True, reason="evicted")
    return key.flag(effects)


def revoke(key: KeyState, msg: m.Revoke, _: object) -> Effects:
    """End every binding and every waiter of this epoch."""
    key.epoch += 1
    key.revoked = key.epoch
    effects: Effects = []
    key.refuse_all(effects, lambda: revoked().because(msg.event))
    key.retire(effects, reason=msg.reason)
    return key.flag(effects)


def reconfigure(key: KeyState, msg: m.Reconfigure, _: object) -> Effects:
    """End every binding and every waiter of this epoch, and the client where it would be another one."""
    key.epoch += 1
    key.removed = msg.limits is None
    if msg.limits is None:
        key.paused = False  # nobody could say that it is to go on
    else:
        key.limits = msg.limits
    effects: Effects = []
    key.refuse_all(effects, lambda: reconfigured().because(msg.event))
    if not msg.keep:
        key.retire(effects, reason="reconfigured")
    return key.flag(effects)


def close(key: KeyState, msg: m.Close, _: object) -> Effects:
    """Refuse everybody from now on."""
    key.closed = True
    effects: Effects = []
    key.refuse_all(effects, lambda: PoolClosed("the pool is closing; nothing was sent").because(msg.event))
    key.retire(effects, reason="pool closed")
    return key.flag(effects)


# ---------------------------------------------------------------------------- lists


def listed(key: KeyState, msg: m.Listed, _: object) -> Effects:
    """File the client's own list."""
    client = key.client
    if client is None or client.id != msg.client_id:
        return []
    assert client.list is not None  # a live client has one
    moved = client.list.received(msg.catalog, msg.notices, msg.expires_at)
    return _refuse_stale(key, client.list) if moved else []


def list_changed(key: KeyState, msg: m.ListChanged, _: object) -> Effects:
    """Doubt the client's own list, or look who waits on a shared one that has changed."""
    if msg.list is not None:
        return _refuse_stale(key, msg.list)
    client = key.client
    if client is None or client.id != msg.client_id:
        return []
    assert client.list is not None  # a live client has one
    client.list.unsettle(msg.why)
    return []


def _refuse_stale(key: KeyState, state: ListState) -> Effects:
    """Refuse waiters whose list changed now, not when their turn comes."""
    effects: Effects = []
    for ticket, (msg, reply) in list((key.waiting or {}).items()):
        if msg.list is not state:
            continue
        if key.limits.recheck_lists:
            assert msg.tool is not None  # who stands on a list, does so for a tool
            assert msg.digest is not None
            true = state.alive and state.shows(msg.tool, msg.digest)
        else:
            true = state.alive and state.generation == msg.generation
        if not true:
            assert key.waiting is not None
            del key.waiting[ticket]
            effects.append(Refuse(reply, stale(msg.generation, state.generation)))
    return key.stop_opening_if_alone(effects)
