"""What an operator does to keys and servers: hold admission, let it go on, drain, evict; found by digest.

Rules:

* Each is filed as an event that says who asked (`by`), also where it changed nothing: the record of what
  people did to a pool is whole.
* A key may be held for two reasons, and each has its own end: by itself (`pause`), and with its server
  (`pause_server`). The second holds for keys that do not exist yet as well, so it is a limit of the server's
  keys and no state of one; an idle key of a held server is forgotten as any other, and born held again.
* A server that is removed is not held any more when it comes back: nobody could say that it is to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from . import _messages as m
from ._posting import post, waited

if TYPE_CHECKING:
    from ._actor import KeyActor
    from ._pool import Pool


def pause(pool: Pool, actor: KeyActor, by: str | None) -> None:
    """See `Pool.pause`."""
    actor.held_since = pool.event("paused", actor, by=by)
    actor.tell(m.Pause())


def resume(pool: Pool, actor: KeyActor, by: str | None) -> None:
    """See `Pool.resume`."""
    pool.event("resumed", actor, by=by)
    actor.held_since = None
    actor.tell(m.Resume())


async def drain(pool: Pool, actor: KeyActor, by: str | None) -> None:
    """See `Pool.drain`."""
    actor.drained_since = event = pool.event("draining", actor, by=by)
    await trio.lowlevel.checkpoint()
    await waited(post(actor, m.Drain()))
    took = pool.seams.now() - event.at
    pool.event("drained", actor, by=by, took=took)


def evict(pool: Pool, actor: KeyActor, by: str | None) -> bool:
    """See `Pool.evict`."""
    return pool.openings.evict(actor, why="asked", by=by)


def pause_server(pool: Pool, name: str, by: str | None) -> int:
    """See `Pool.pause_server`."""
    server = pool.server(name)
    pool.held_servers[server.name] = pool.event("paused", None, server=name, by=by)
    return _limit(pool, name, halted=True)


def resume_server(pool: Pool, name: str, by: str | None) -> int:
    """See `Pool.resume_server`."""
    server = pool.server(name)
    pool.held_servers.pop(server.name, None)
    pool.event("resumed", None, server=name, by=by)
    return _limit(pool, name, halted=False)


def _limit(pool: Pool, name: str, *, halted: bool) -> int:
    limits = pool.key_limits[name] = attrs.evolve(pool.key_limits[name], halted=halted)
    told = 0
    for actor in pool.actors():
        if actor.server.name == name and not actor.machine.removed:
            actor.tell(m.Limit(limits))
            told += 1
    return told


def shown_as(pool: Pool, shown: str) -> KeyActor:
    """See `Pool.actor_shown`."""
    wanted = shown if ":" in shown else f"k:{shown}"
    found = [actor for actor in pool.actors() if actor.shown.startswith(wanted)]
    exact = [actor for actor in found if actor.shown == wanted]
    if len(exact) == 1:
        return exact[0]
    if len(found) == 1 and len(wanted) > len("k:"):
        return found[0]
    if not found or len(wanted) <= len("k:"):
        raise LookupError(f"there is no key {shown!r} now")
    raise LookupError(f"{len(found)} keys begin with {shown!r}; name more of the digest")
