"""What becomes of a place when its call has ended: given back at once, or handed to a settle task.

A place has one owner at a time: the call, then (only if bytes left and the answer is still out) the settle
task. Settled is the first of: the answer; the end of the request's own stream or connection; on a shared
stream the cancel notice written and `cancel_grace` past; where closing the response stream is the cancel,
that; `settle_timeout`. The last is an abandonment: counted, and its id remembered so that a late answer is
dropped.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import trio

from .._base.errors import DeadlineExceeded
from . import _messages as m

if TYPE_CHECKING:
    from ..client import Client, Trip
    from ._actor import KeyActor
    from ._call import Call


def give_back(call: Call, *, answered: bool) -> None:
    """Give everything back that the call holds. Synchronous; safe when it holds nothing."""
    actor = call.actor
    if call.entered:
        call.entered = False
        del actor.pool.inside[call.ticket]
        actor.pool.admission.leave(actor.server.name, call.tenant, actor.key)
    if call.ticket_out:
        call.ticket_out = False
        _settled(actor, call.ticket, held=call.held, answered=answered)


def hand_over(call: Call, trip: Trip, *, answered: bool) -> None:
    """Hand place and exchange to a settle task of the runtime. Synchronous."""
    actor = call.actor
    pool = actor.pool
    client = call.client
    assert client is not None
    # a host that withdraws its call says nothing of the server
    timed_out = isinstance(call.interrupted, DeadlineExceeded)
    if not pool.can_spawn:
        trip.close()
        give_back(call, answered=answered)
        return
    if client.cancel_by_closing:
        # 2026-07-28 over HTTP: closing the response stream is the cancel, and nothing else is to come.
        trip.close()
        if timed_out:
            actor.tell(m.Abandon(call.ticket, final=False))
        give_back(call, answered=answered)
        return
    call.ticket_out = False
    entered, call.entered = call.entered, False
    if timed_out:
        actor.tell(m.Abandon(call.ticket, final=False))
    pool.settling += 1
    pool.handed[call.ticket] = call.use
    pool.spawn(_settle, actor, client, trip, call.ticket, entered, call.tenant)


async def _settle(
    actor: KeyActor, client: Client, trip: Trip, ticket: int, entered: bool, tenant: str | None
) -> None:
    pool = actor.pool
    limits = pool.limits
    over = False
    try:
        with trio.move_on_after(limits.settle_timeout):
            left = client.cancel(trip)
            if client.shared_stream:
                over = await _within_grace(trip, left, limits.cancel_grace)
            else:
                await _end_of(trip)
    finally:
        over = over or trip.over
        answered = trip.answered
        trip.close()
        pool.settling -= 1
        pool.handed.pop(ticket, None)
        if entered:
            del pool.inside[ticket]
            pool.admission.leave(actor.server.name, tenant, actor.key)
        if over or pool.closing:
            _settled(actor, ticket, held=True, answered=answered)
        else:
            pool.abandoned += 1
            actor.last_used = pool.seams.now()
            actor.tell(m.Abandon(ticket, final=True))


async def _end_of(trip: Trip) -> None:
    """Wait for the answer or the end of its stream or connection; nobody asks how it ended."""
    with contextlib.suppress(Exception):
        await trip.finish()


async def _within_grace(trip: Trip, notice_left: trio.Event | None, grace: float) -> bool:
    """Wait as `_end_of`, but not longer than `grace` after the cancel notice has left."""

    async def count_down() -> None:
        assert notice_left is not None
        await notice_left.wait()
        await trio.sleep(grace)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        if notice_left is not None:
            nursery.start_soon(count_down)
        await _end_of(trip)
        nursery.cancel_scope.cancel()
    return True


def _settled(actor: KeyActor, ticket: int, *, held: bool, answered: bool) -> None:
    pool = actor.pool
    if held:
        actor.last_used = pool.seams.now()
    actor.tell(m.Settle(ticket, held, answered))
    if pool.openings.wants_room_of(actor) and actor.machine.idle:
        pool.openings.evict_for_room(actor)
