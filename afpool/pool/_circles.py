"""Calls made from inside calls, where they would wait for themselves.

Whoever makes such a call passes the tickets of all the calls that wait for it (`chain`). Rules:

* A call is *stuck* while one that is made from inside it waits. What it holds, a place of the runtime or the
  client that it runs on, comes free only after that one.
* An inner call waits as long as somebody who is not stuck holds what it waits for. The last one, which would
  leave nobody, is refused at once: refused, it lets its outer call end, and everybody else goes on.
* Who has its share (a tenant, a server) gets more only of its own. So of those only its own are counted.
* Places and clients are looked at each for itself. A circle through both ends with the opening's time-out.

Places of one key are the machine's to judge (`_key_places`). All of it is synchronous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Container

    from ._actor import KeyActor
    from ._call import Call
    from ._pool import Pool


def check_places(call: Call) -> None:
    """Refuse an inner call that would wait for a place of the runtime which is free only after it.

    Raises:
        Overloaded: Each call whose end would let this one in waits for such a place itself.
    """
    if not call.chain or not _all_would_wait(call):
        return
    pool = call.actor.pool
    raise Overloaded(
        f"{pool.admission.used} calls run (max_in_flight {pool.limits.max_in_flight}), and each that could "
        "give its place to this one waits for a call that is made from inside it: this one would wait for "
        "itself; nothing was sent"
    ).saying("limit", "itself")


def _all_would_wait(call: Call) -> bool:
    pool = call.actor.pool
    places, server = pool.admission, call.actor.server.name
    waited_for = places.waited_for().union(call.chain)
    stuck = [running for ticket, running in pool.running.items() if running.entered and ticket in waited_for]
    if places.has_share(call.tenant):
        of_tenant = sum(1 for running in stuck if running.tenant == call.tenant)
        if of_tenant == places.held(call.tenant):
            return True
    if places.has_share_at(server):
        of_server = sum(1 for running in stuck if running.actor.server.name == server)
        if of_server == places.held_at(server):
            return True
    return len(stuck) == places.used


def refuse_without_room(pool: Pool, actor: KeyActor, roomless: Container[KeyActor]) -> None:
    """Refuse inner calls of a key that wait for a client for which there is room only after them.

    Args:
        pool: The pool.
        actor: The key; of its calls the latest go first, and no more of them than have to.
        roomless: The keys whose opening waits for room.
    """
    waiting = [
        call
        for call in pool.running.values()
        if call.chain and call.client is None and call.interrupted is None and call.actor in roomless
    ]
    for call in reversed([call for call in waiting if call.actor is actor]):
        if not _all_clients_wait(pool, actor.projection.tenant, waiting):
            return
        waiting.remove(call)
        call.interrupt(
            Overloaded(
                f"{pool.openings.rooms.used} clients are open (max_clients {pool.limits.max_clients}), this "
                "call needs another one, and each that could make room for it is used by a call which waits "
                "for one that is made from inside it: this one would wait for itself; nothing was sent"
            ).saying("limit", "room")
        )


def _all_clients_wait(pool: Pool, tenant: str | None, waiting: list[Call]) -> bool:
    """Whether each client that could make room is used by a call that one of the waiting is made from."""
    openings, calls = pool.openings, pool.running
    stuck: dict[int, str | None] = {}
    for ticket in {ticket for call in waiting for ticket in call.chain}:
        call = calls.get(ticket)
        if call is not None and call.client is not None and call.client.id in openings.clients:
            stuck[call.client.id] = call.actor.projection.tenant
    rooms = openings.rooms
    if rooms.has_share(tenant) and list(stuck.values()).count(tenant) == rooms.held(tenant):
        return True
    return len(stuck) == rooms.used
