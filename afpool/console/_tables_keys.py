"""Tables of what goes on: `actors`, `clients`, `leases`, `waiting`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._sources import list_state_of, mark_of, place_shown, state_of, waits_since
from ._spec import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..client import Client
    from ..pool._actor import KeyActor
    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources


def register(registry: Registry, sources: Sources) -> None:
    """Add the tables."""
    registry.table(actors(sources))
    registry.table(clients(sources))
    registry.table(leases(sources))
    registry.table(waiting(sources))


def actors(sources: Sources) -> Table:
    """Every key that lives: who, doing what, with how many waiting for how long."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        backoffs = sources.backoffs()
        for actor in pool.actors():
            machine = actor.machine
            client = machine.client
            listed = list_state_of(actor)
            waits = len(machine.waiting) if machine.waiting else 0
            yield (
                sources.key_of(actor),
                actor.server.name,
                state_of(actor, backoffs),
                None if client is None else client.id,
                None if listed is None else listed.generation,
                machine.in_flight,
                machine.limits.max_operations,
                waits,
                sources.oldest_waiter(actor, ask.now) if waits else None,
                machine.abandoned,
                machine.epoch,
                ask.now - actor.last_used if actor.last_used else None,
                None if client is None else client.handle.stream_state,
                len(actor.watchers or ()),
                actor.turns,
                actor.projection,
            )

    return Table(
        name="actors",
        help="keys: one for each (server, identity) that is in use",
        columns=(
            Column("key", "key", "digest that stands for server and identity"),
            Column("server", "text"),
            Column(
                "state", "text", "idle opening open busy full paused draining backoff recovering crashed …"
            ),
            Column("client", "id", "its live client"),
            Column("generation", "count", "how many different tool lists it had"),
            Column("in_flight", "count", "places held"),
            Column("max", "count", "places there are"),
            Column("waiting", "count", "calls and lists that wait"),
            Column("maxwait", "seconds", "age of the oldest waiting call; the best sign of trouble"),
            Column("abandoned", "count", "calls given up on whose answer never came"),
            Column("epoch", "count", "how often all its bindings were ended"),
            Column("idle", "seconds", "since its last place was given back"),
            Column("stream", "text", "whether changes of its list are heard of"),
            Column("subscriptions", "count", "resources that are watched"),
            Column("turns", "count", "messages that it has dealt with"),
        ),
        rows=rows,
        identities=True,
        older="maxwait",
    )


def clients(sources: Sources) -> Table:
    """Every incarnation that is open or still closing."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        owners: dict[int, tuple[KeyActor, Any]] = {}  # by client id: whose it is, what its key knows of it
        for actor in list(pool.kept):
            machine = actor.machine
            for state in (machine.client, *(machine.old or {}).values()):
                if state is not None:
                    owners[state.id] = (actor, state)
            yield None
        for client in list(pool.openings.clients.values()):
            owner, state = owners.get(client.id, (None, None))
            negotiated = client.negotiated
            process = client.process
            yield (
                client.id,
                client.server,
                None if owner is None else sources.key_of(owner),
                _client_state(client, live=owner is not None and state is owner.machine.client),
                None if state is None else state.leases,
                None if negotiated is None else negotiated.version,
                place_shown(client.plan.transport),
                negotiated is not None and negotiated.session_id is not None,
                None if process is None else process.pid,
                ask.now - client.opened_at,
                max(0.0, client.ends_at - ask.now),
                client.stream_state,
                None if state is None else state.silent + state.abandoned,
                client.retired or client.lost,
                client.projection,
            )

    return Table(
        name="clients",
        help="connections: one incarnation each, never reopened",
        columns=(
            Column("id", "id", "as `kill` takes it"),
            Column("server", "text"),
            Column("key", "key", "whose it is"),
            Column("state", "text", "open, closing (runs off), lost"),
            Column("in_flight", "count", "places held on it"),
            Column("version", "text", "protocol version that was agreed on"),
            Column("place", "text", "where it leads: an origin, or the name of a command"),
            Column("session", "flag", "whether the server keeps a session for it"),
            Column("pid", "id", "of its child process"),
            Column("age", "seconds"),
            Column("ends_in", "seconds", "until it is too old and replaced"),
            Column("stream", "text", "whether changes of its list are heard of"),
            Column("silences", "count", "calls in a row that got no answer; a few, and it is pinged"),
            Column("why", "text", "why it is closing or lost"),
        ),
        rows=rows,
        identities=True,
        older="age",
    )


def leases(sources: Sources) -> Table:
    """Who holds a place, and what for: calls that run, and ended ones whose answer is still out."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        for call in list(pool.running.values()):
            use = call.use
            if not call.held:
                yield None
                continue
            held_at = mark_of(use, "leased") or mark_of(use, "admission") or use.began_at
            yield (
                use.call_id, sources.key_of(call.actor), use.server, use.client_id,
                use.tool or use.method, "running", use.waits_for, ask.now - held_at,
                ask.now - waits_since(use), call.deadline - ask.now, use.who or call.actor.projection,
            )  # fmt: skip
        for use in list(pool.handed.values()):
            ended = use.ended_at if use.ended_at is not None else ask.now
            held_at = mark_of(use, "leased") or use.began_at
            yield (
                use.call_id, sources.key_of_use(use), use.server, use.client_id, use.tool or use.method,
                "settling", "server", ask.now - held_at, ask.now - ended, None, use.who,
            )  # fmt: skip

    return Table(
        name="leases",
        help="places that are held: by calls that run, and by ended ones whose answer is still out",
        columns=(
            Column("call", "id"),
            Column("key", "key"),
            Column("server", "text"),
            Column("client", "id"),
            Column("tool", "text"),
            Column("state", "text", "running; settling: its caller has gone"),
            Column("waits_for", "text", "what it waits for now"),
            Column("age", "seconds", "since the place was taken"),
            Column("since", "seconds", "since it waits for that, or its caller has gone"),
            Column("left", "seconds", "until its deadline"),
        ),
        rows=rows,
        identities=True,
        older="age",
        sort="-age",
    )


def waiting(sources: Sources) -> Table:
    """Who waits for a place, for how long, and behind whom."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        behind: dict[object, int] = {}
        for call in list(pool.running.values()):
            use = call.use
            if call.reply is None:
                yield None  # it is on its way, or asks for something before it asks for a place
                continue
            what = "runtime" if call.held else "client" if call.actor.machine.client is None else "key"
            queue: object = "runtime" if call.held else call.actor
            place = behind[queue] = behind.get(queue, 0) + 1
            since = waits_since(use)
            yield (
                use.call_id, sources.key_of(call.actor), use.server, use.tool or use.method, what, place,
                ask.now - since, call.deadline - ask.now, len(use.held_by),
                use.held_by[0] if use.held_by else None, use.who or call.actor.projection,
            )  # fmt: skip

    return Table(
        name="waiting",
        help="calls that wait for a place, longest first",
        columns=(
            Column("call", "id"),
            Column("key", "key"),
            Column("server", "text"),
            Column("tool", "text"),
            Column("for", "text", "key: a place of its key; client: one is opened; runtime: max_in_flight"),
            Column("place", "count", "in that queue"),
            Column("waits", "seconds"),
            Column("left", "seconds", "until its deadline"),
            Column("behind", "count", "calls that held the places when it began to wait"),
            Column("held_by", "id", "the oldest of them"),
        ),
        rows=rows,
        identities=True,
        older="waits",
        sort="-waits",
    )


def _client_state(client: Client, *, live: bool) -> str:
    if client.lost is not None:
        return "lost"
    return "open" if live and client.retired is None else "closing"
