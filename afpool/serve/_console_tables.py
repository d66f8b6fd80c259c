"""What a service adds to its runtime's console: sessions, its door, where settings came from, its end.

The id of a session is what its client proves itself by, beside its token: it is shown by digest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ..console import Column, Command, CommandError, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..config import Config
    from ..console import Ask, Registry
    from ._door_limits import DoorLimits
    from ._service import Service
    from ._sessions import Session, Sessions

_CLIENT: Final = 64
_LONGEST: Final = 3600.0


def register(
    service: Service,
    registry: Registry,
    *,
    sessions: Sessions,
    limits: DoorLimits,
    said: Callable[[], Config | None],
) -> Callable[[], None]:
    """Add tables and commands. Synchronous.

    Args:
        service: Whose.
        registry: Of the console.
        sessions: Its sessions.
        limits: What it holds at its door.
        said: Gives the configuration that is in force, where it came from files.

    Returns:
        What takes all of it back.
    """
    tables = [_sessions(service, sessions), _door(service, limits)]
    commands = [_shutdown(service), _reload(service)]
    before = registry.tables.get("config")
    if before is not None:
        registry.table(_config(before, said))
    for table in tables:
        registry.table(table)
    for command in commands:
        registry.command(command)

    def take_back() -> None:
        for table in tables:
            registry.tables.pop(table.name, None)
        for command in commands:
            registry.commands.pop(command.words, None)
        if before is not None:
            registry.table(before)

    return take_back


def _sessions(service: Service, sessions: Sessions) -> Table:
    pool = service.runtime.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        for session in sessions:
            yield (
                pool.digest.show(session.id or f"socket {id(session)}", "s"),
                "http" if session.id else "websocket",
                "idle" if session.idle else "busy" if session.in_flight else "listening",
                len(session.in_flight),
                session.channel is not None,
                max(0.0, ask.now - session.used_at),
                _client_of(session),
                registry_who(service, session.identity),
                session.identity,
            )

    return Table(
        name="sessions",
        help="sessions of clients of this service",
        columns=(
            Column("session", "key", "digest that stands for its id"),
            Column("over", "text", "http or websocket"),
            Column("state", "text", "idle, listening, busy"),
            Column("in_flight", "count", "requests under way"),
            Column("listens", "flag", "whether it has an open stream"),
            Column("unused", "seconds", "since it was used"),
            Column("client", "text", "what it says that it is"),
            Column("who", "key", "digest of whose it is"),
        ),
        rows=rows,
        identities=True,
        older="unused",
    )


def registry_who(service: Service, who: Any) -> str | None:
    """The digest that stands for whose a session is."""
    return None if who is None else service.runtime.record.digests.person(who)[1]


def _client_of(session: Session) -> str | None:
    params = session.runner.connection.client_params
    info = None if params is None else getattr(params, "client_info", None)
    if info is None:
        return None
    text = f"{info.name} {info.version}"[:_CLIENT]
    return "".join(char if char.isprintable() else "?" for char in text)


def _door(service: Service, limits: DoorLimits) -> Table:
    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        now = limits.statistics()
        bound = service.config.limits
        used = {"calls": now.calls, "sessions": now.sessions, "call_wait": None}
        for field in attrs.fields(type(bound)):
            value = getattr(bound, field.name)
            have = used.get(field.name)
            part = None if have is None or not value else round(100 * have / value, 1)
            waiting = now.waiting if field.name == "calls" else None
            yield field.name, value, have, part, waiting, now.refused.get(field.name, 0)
        yield "sessions_per_tenant", None, None, None, None, now.refused.get("sessions_per_tenant", 0)

    return Table(
        name="door",
        help="limits of the service, how much of them is used, and how often each has refused",
        columns=(
            Column("name", "text"),
            Column("value", "count"),
            Column("used", "count"),
            Column("percent", "percent"),
            Column("waiting", "count"),
            Column("refused", "count"),
        ),
        rows=rows,
    )


def _config(before: Table, said: Callable[[], Config | None]) -> Table:
    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        config = said()
        if config is None:
            yield from before.rows(ask)  # type: ignore[misc]  # that table is made without waiting
            return
        tables = {key.rpartition(".")[0] for key in config.origins}
        for key, origin in list(config.origins.items()):
            if key not in tables:  # the members of a table are shown
                value = config.shown.get(key)
                yield key, None if value is None else str(value), str(origin)

    return attrs.evolve(before, rows=rows)


def _shutdown(service: Service) -> Command:
    def shutdown(ask: Ask) -> dict[str, Any]:
        if service.on_shutdown is None:
            raise CommandError(
                "failed", "this service ends with the program that it is part of; nothing was done"
            )
        drain = ask.seconds("drain", service.config.drain, most=_LONGEST)
        before = {"state": service.health.state, "calls": service.calls, "sessions": service.sessions}
        if service.on_shutdown(drain) is False:
            raise CommandError(
                "failed", "the service is ending already; nothing was changed (SIGTERM ends it at once)"
            )
        service.runtime.pool.event("shutdown", None, why=f"drain {drain:g} s", by=ask.asker.who)
        return {
            "kind": "done", "what": "shutting down", "before": before,
            "after": {"state": "draining", "calls": service.calls}, "until": ask.unix + drain,
            "note": "nothing new is taken; what runs may end until then",
        }  # fmt: skip

    return Command(
        words=("shutdown",),
        usage="shutdown [drain=30s]",
        help="take nothing new, let what runs end, and end the process",
        run=shutdown,
        options=("drain",),
        level="operate",
    )


def _reload(service: Service) -> Command:
    def reload(ask: Ask) -> dict[str, Any]:
        if service.on_reload is None:
            raise CommandError("failed", "this service was not started from files; nothing was done")
        service.runtime.pool.event("reload-asked", None, by=ask.asker.who)
        service.on_reload()
        return {
            "kind": "done", "what": "reading the configuration again", "before": {}, "after": {},
            "until": None, "note": "it is put into force if it can be used; the log says what came of it",
        }  # fmt: skip

    return Command(
        words=("reload",),
        usage="reload",
        help="read the configuration again, as after SIGHUP",
        run=reload,
        level="operate",
    )
