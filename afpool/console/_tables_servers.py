"""Tables of what is configured and what is listed: `servers`, `lists`, `shares`, `limits`, `config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ._sources import place_shown
from ._spec import Column, Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ..pool._lists import ListState
    from ._ask import Ask
    from ._registry import Registry
    from ._slices import Slices
    from ._sources import Sources


def register(registry: Registry, sources: Sources) -> None:
    """Add the tables."""
    registry.table(servers(sources))
    registry.table(lists(sources))
    registry.table(shares(sources))
    registry.table(limits(sources))
    registry.table(config(sources))


@attrs.define
class OfServer:
    """What the keys of one server do together.

    Attributes:
        keys: How many there are.
        clients: How many have a client.
        opening: How many wait for one to be opened.
        backoff: How many are held off after failed openings.
        in_flight: Places held.
        waiting: Calls and lists that wait.
        maxwait: How long the oldest waiting call waits.
        draining: How many are being drained, and `paused`, held by themselves.
    """

    keys: int = 0
    clients: int = 0
    opening: int = 0
    backoff: int = 0
    in_flight: int = 0
    waiting: int = 0
    maxwait: float | None = None
    draining: int = 0
    paused: int = 0


async def by_server(sources: Sources, now: float, slices: Slices) -> dict[str, OfServer]:
    """Go through all keys, in slices."""
    pool = sources.pool
    found = {name: OfServer() for name in pool.servers}
    backoffs = sources.backoffs()
    async for actor in slices.each(pool.actors()):
        of = found.setdefault(actor.server.name, OfServer())
        machine = actor.machine
        of.keys += 1
        of.clients += machine.client is not None
        of.opening += machine.opening is not None
        of.backoff += actor.key in backoffs
        of.in_flight += machine.in_flight
        of.draining += machine.draining is not None
        of.paused += machine.paused
        if machine.waiting:
            of.waiting += len(machine.waiting)
            oldest = sources.oldest_waiter(actor, now)
            if oldest is not None and (of.maxwait is None or oldest > of.maxwait):
                of.maxwait = oldest
    return found


def server_state(sources: Sources, name: str, of: OfServer) -> str:
    """One word for a server."""
    pool = sources.pool
    if pool.closing:
        return "closed"
    if name not in pool.servers:
        return "removed"
    if name in pool.held_servers:
        return "paused"
    if of.draining:
        return "draining"
    if of.backoff:
        return "backoff"
    if of.waiting:
        return "waiting"
    if of.in_flight:
        return "busy"
    return "open" if of.clients else "idle"


def servers(sources: Sources) -> Table:
    """Every configured server, and what its keys do."""
    pool = sources.pool

    async def rows(ask: Ask) -> AsyncIterator[tuple[Any, ...]]:
        counted = {} if sources.numbers is None else sources.numbers.servers()
        for name, of in (await by_server(sources, ask.now, ask.slices)).items():
            server = pool.servers.get(name)
            numbers = counted.get(name, {})
            yield (
                name,
                server_state(sources, name, of),
                of.keys,
                of.clients,
                of.opening,
                of.in_flight,
                of.waiting,
                of.maxwait,
                of.backoff,
                numbers.get("rate"),
                numbers.get("errors"),
                numbers.get("p50"),
                numbers.get("p95"),
                numbers.get("p99"),
                None if server is None or server.plan is None else place_shown(server.plan.transport),
            )

    return Table(
        name="servers",
        help="servers: state, load, oldest waiter, calls a second, times",
        columns=(
            Column("server", "text"),
            Column("state", "text", "idle open busy waiting backoff draining paused removed closed"),
            Column("keys", "count", "identities that use it"),
            Column("clients", "count", "that have a connection"),
            Column("opening", "count", "whose connection is being opened"),
            Column("in_flight", "count", "places held"),
            Column("waiting", "count", "calls and lists that wait"),
            Column("maxwait", "seconds", "age of the oldest waiting call; the best sign of trouble"),
            Column("backoff", "count", "keys held off after failed openings"),
            Column("calls_s", "rate", "calls a second, over 10 s"),
            Column("errors_s", "rate", "of them refused or failed"),
            Column("p50", "seconds", "of a call, over the last minute"),
            Column("p95", "seconds"),
            Column("p99", "seconds"),
            Column("place", "text", "where it leads; empty where that differs by identity"),
        ),
        rows=rows,
        older="maxwait",
    )


def lists(sources: Sources) -> Table:
    """Every tool list that somebody stands behind."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        for actor in list(pool.kept):
            client = actor.machine.client
            if client is None or client.list is None or client.handle.entry is not None:
                yield None
                continue
            listener = client.handle.stream_state
            yield (*_list(client.list, ask.now, actor.server.name), sources.key_of(actor), None, listener)
        for entry in pool.shares.entries():
            listener = "none" if entry.listener is None else entry.listener.stream_state
            shown = pool.digest.show(entry.key, "s")
            yield (*_list(entry.list, ask.now, entry.server), None, shown, listener)

    return Table(
        name="lists",
        help="tool lists, and whether they are still true",
        columns=(
            Column("list", "id"),
            Column("server", "text"),
            Column(
                "state", "text", "settled; asked: never received; changed: announced, unseen; else the doubt"
            ),
            Column("generation", "count", "how many different lists there were"),
            Column("tools", "count"),
            Column("quarantined", "count", "tools that cannot be read"),
            Column("expires_in", "seconds", "until it is asked for again"),
            Column("next_in", "seconds", "not asked for before"),
            Column("asking", "flag", "it is on its way"),
            Column("notices", "count", "changes that were announced"),
            Column("key", "key", "whose own it is"),
            Column("share", "key", "which shared list it is"),
            Column("stream", "text", "whether changes are heard of"),
        ),
        rows=rows,
    )


def _list(state: ListState, now: float, server: str) -> tuple[Any, ...]:
    catalog = state.catalog
    return (
        state.id,
        server,
        list_word(state, now),
        state.generation,
        None if catalog is None else len(catalog),
        None if catalog is None else len(catalog.quarantined),
        None if catalog is None else max(0.0, state.expires_at - now),
        max(0.0, state.next_at - now),
        state.flight is not None,
        state.notices,
    )


def list_word(state: ListState, now: float) -> str:
    """One word, or a few, for whether a list is true."""
    if not state.alive:
        return "dead"
    if state.noticed:
        return "changed"
    if state.catalog is None:
        return "asked"
    if state.doubt is not None:
        return state.doubt
    return "settled" if now < state.expires_at else "expired"


def shares(sources: Sources) -> Table:
    """Every list that several keys share."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        for entry in pool.shares.entries():
            state = entry.list
            yield (
                pool.digest.show(entry.key, "s"),
                entry.server,
                len(entry.members),
                None if entry.listener is None else entry.listener.id,
                state.id,
                state.generation,
                None if state.catalog is None else len(state.catalog),
                list_word(state, ask.now),
            )

    return Table(
        name="shares",
        help="lists that the keys of one authorization name and plan share",
        columns=(
            Column("share", "key", "digest that stands for server, authorization name and plan"),
            Column("server", "text"),
            Column("members", "count", "clients that listed through it"),
            Column("listener", "id", "the client whose stream stands for all"),
            Column("list", "id"),
            Column("generation", "count"),
            Column("tools", "count"),
            Column("state", "text"),
        ),
        rows=rows,
        sort="-members",
    )


def limits(sources: Sources) -> Table:
    """What there may be, what there is, and how near that is to its end."""
    pool = sources.pool

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        bound = pool.limits
        used: dict[str, float] = {
            "max_in_flight": pool.admission.used,
            "max_waiting_total": pool.room.count,
            "max_clients": pool.openings.rooms.used,
            "records": len(pool.records.uses),
            "record_bytes": pool.records.bytes,
        }
        for field in attrs.fields(type(bound)):
            limit = getattr(bound, field.name)
            now = used.get(field.name)
            part = None if now is None or not limit else round(100 * now / limit, 1)
            yield field.name, limit, now, part, limit == field.default

    return Table(
        name="limits",
        help="limits of the pool, and how much of them is used",
        columns=(
            Column("name", "text"),
            Column("value", "count"),
            Column("used", "count"),
            Column("percent", "percent"),
            Column("default", "flag"),
        ),
        rows=rows,
    )


def config(sources: Sources) -> Table:
    """What is in force; whoever read it from files says more, and puts a table of its own here."""
    pool = sources.pool

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        for field in attrs.fields(type(pool.limits)):
            value = getattr(pool.limits, field.name)
            yield f"limits.{field.name}", plain(value), "default" if value == field.default else "given"
        for name, server in pool.servers.items():
            for field in attrs.fields(type(server)):
                value = getattr(server, field.name)
                if field.name == "name":
                    continue
                if field.name == "plan":
                    value = "by identity" if value is None else place_shown(value.transport)
                elif field.name == "pins":
                    value = sorted(value)
                default = field.default
                same = value == default or (isinstance(default, attrs.Factory) and not value)  # type: ignore[arg-type]
                yield f"servers.{name}.{field.name}", plain(value), "default" if same else "given"

    return Table(
        name="config",
        help="settings in force, and where they came from",
        columns=(
            Column("setting", "text"),
            Column("value", "text"),
            Column("from", "text", "default, given, or the file and line"),
        ),
        rows=rows,
    )


def plain(value: object) -> str | None:
    """A setting as text; of anything but plain values its kind only."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, tuple | list):
        return ", ".join(str(plain(one)) for one in value) or None
    return f"<{type(value).__name__}>"
