"""Numbers of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from ._actor import KeyActor
    from ._pool import Pool


@attrs.frozen
class CloseReport:
    """How a pool was left.

    Attributes:
        closed: Clients closed in order.
        killed: Clients whose process or connection had to be ended.
        abandoned: Clients that were not done closing when time was up.
        calls_left: Calls whose answer had not come by then.
    """

    closed: int
    killed: int
    abandoned: int
    calls_left: int


@attrs.frozen
class KeyStatistics:
    """One key, shown by digest.

    Attributes:
        key: Digest that stands for the key.
        server: Name of the server.
        client: Id of the live incarnation, or `None`.
        generation: Of the list that its tools come from, or `None` before the first list.
        in_flight: Places held.
        waiting: Calls that wait for a place.
        abandoned: Calls given up on since the key was made.
        epoch: How often all bindings of the key were ended: it was revoked, or its server reconfigured.
        paused: Whether admission is held, of the key or of its whole server.
        stream: Whether changes of the list are heard of: `unasked`, `connecting`, `listening`, `lost` (calls
            go on, and it is asked for again) or `unsupported`; `None` without a client.
    """

    key: str
    server: str
    client: int | None
    generation: int | None
    in_flight: int
    waiting: int
    abandoned: int
    epoch: int
    paused: bool
    stream: str | None = None


@attrs.frozen
class PoolStatistics:
    """One pool.

    Attributes:
        keys: Living key actors.
        clients: Open clients.
        opened: Clients opened since the start.
        evicted: Clients evicted to make room.
        in_flight: Calls that hold a place of the runtime.
        waiting: Calls that wait for a place of their key.
        waiting_runtime: Calls that wait for a place of the runtime.
        settling: Requests whose caller has gone and whose answer is waited for.
        abandoned: Requests whose answer is not waited for any more.
        shared_lists: Living shared entries.
        reconfigured: How often another configuration came into force.
        actors: The keys that are doing or holding something, or have a client.
    """

    keys: int
    clients: int
    opened: int
    evicted: int
    in_flight: int
    waiting: int
    waiting_runtime: int
    settling: int
    abandoned: int
    shared_lists: int
    reconfigured: int
    actors: tuple[KeyStatistics, ...]


def statistics(pool: Pool, actors: list[KeyActor]) -> PoolStatistics:
    """Read the numbers; synchronous."""
    return PoolStatistics(
        keys=len(actors),
        clients=len(pool.openings.clients),
        opened=pool.openings.opened,
        evicted=pool.openings.evicted,
        in_flight=pool.admission.used,
        waiting=pool.waiting,
        waiting_runtime=pool.admission.waiting,
        settling=pool.settling,
        abandoned=pool.abandoned,
        shared_lists=len(pool.shares),
        reconfigured=pool.reconfigured,
        actors=tuple(_of(actor) for actor in pool.kept),
    )


def _of(actor: KeyActor) -> KeyStatistics:
    machine = actor.machine
    client = machine.client
    state = None if client is None else client.list
    if client is not None and client.handle.entry is not None:
        state = client.handle.entry.list
    return KeyStatistics(
        key=actor.shown,
        server=actor.server.name,
        client=None if client is None else client.id,
        generation=None if state is None else state.generation,
        in_flight=machine.in_flight,
        waiting=len(machine.waiting or ()),
        abandoned=machine.abandoned,
        epoch=machine.epoch,
        paused=machine.paused or machine.limits.halted,
        stream=None if client is None else client.handle.stream_state,
    )
