"""Checks of what works in the background: clients, lists, servers, actors, loop, record, sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._ask import quoted
from ._check import Finding, counted, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ._check import Checks, Looking

FLAPPING: Final = 5
MINUTE: Final = 60.0
UNSETTLED: Final = 10.0
LAG_WARN: Final = 0.05
LAG_BAD: Final = 0.25
SHORT_RECORD: Final = 60.0
SHOWN: Final = 10


def add_to(checks: Checks) -> None:
    """Add them."""
    checks.add("clients", clients)
    checks.add("lists", lists)
    checks.add("servers", servers)
    checks.add("actors", actors)
    checks.add("loop", loop)
    checks.add("record", record)
    checks.add("sinks", sinks)


async def clients(looking: Looking) -> AsyncIterator[Finding]:
    """Keys whose client is opened again and again."""
    ring = looking.sources.pool.records.events
    opened: dict[str, int] = {}
    server_of: dict[str, str] = {}
    why: dict[str, str] = {}
    async for number in looking.slices.each(range(ring.filed, max(0, ring.filed - len(ring)), -1)):
        event = ring.get(number)
        if event is None or looking.now - event.at > MINUTE:
            break
        if event.kind == "opened":
            opened[event.key] = opened.get(event.key, 0) + 1
            server_of[event.key] = event.server
        elif event.kind == "closed" and event.key not in why:
            why[event.key] = str(event.facts.get("why", ""))
    flapping = sorted(((count, key) for key, count in opened.items() if count >= FLAPPING), reverse=True)
    for count, key in flapping[:SHOWN]:
        last = f"; the last one closed: {why[key]}" if why.get(key) else ""
        yield Finding(
            level="bad",
            check="clients",
            what=f"the client of {key} was opened {count} times within a minute",
            detail=f"server {server_of[key]}{last}",
            tries=(f"show events key={key}", f"show actor {key}"),
            facts={"key": key, "server": server_of[key], "opened": count},
        )


async def lists(looking: Looking) -> AsyncIterator[Finding]:
    """Lists that do not settle, and tools that cannot be read."""
    pool = looking.sources.pool
    states: dict[int, tuple[Any, str, str]] = {}
    async for actor in looking.slices.each(list(pool.kept)):
        client = actor.machine.client
        if client is not None and client.list is not None and client.handle.entry is None:
            states[client.list.id] = (client.list, actor.server.name, actor.shown)
    for entry in pool.shares.entries():
        states[entry.list.id] = (entry.list, entry.server, pool.digest.show(entry.key, "s"))
    quarantined: dict[str, int] = {}
    shown = 0
    for state, server, whose in states.values():
        if state.catalog is not None and state.catalog.quarantined:
            quarantined[server] = max(quarantined.get(server, 0), len(state.catalog.quarantined))
        if not (state.noticed and state.asked_before and state.interval >= UNSETTLED) or shown >= SHOWN:
            continue
        shown += 1
        yield Finding(
            level="bad",
            check="lists",
            what=f"a list of {server} does not settle: its server keeps announcing changes",
            detail=f"{whose}: {state.notices} changes announced, generation {state.generation}; asked for "
            f"again every {state.interval:g} s at most",
            tries=(f"show lists server={quoted(server)}",),
            advice='on_list_change = "recheck" lets only those calls be refused whose own tool has changed',
            facts={"server": server, "of": whose, "notices": state.notices, "generation": state.generation},
        )
    for server, count in quarantined.items():
        yield Finding(
            level="warn",
            check="lists",
            what=f"{counted(count, 'tool')} of {server} cannot be read and left out",
            tries=(f"show lists server={quoted(server)}",),
            facts={"server": server, "quarantined": count},
        )


async def servers(looking: Looking) -> AsyncIterator[Finding]:
    """Servers whose openings fail."""
    pool = looking.sources.pool
    off: dict[str, list[Any]] = {}
    by_key = looking.sources.backoffs()
    if not by_key:
        return
    async for actor in looking.slices.each(pool.actors()):
        backoff = by_key.get(actor.key)
        if backoff is not None:
            off.setdefault(actor.server.name, []).append(backoff)
    codes: dict[str, str] = {}
    ring = pool.records.events
    async for number in looking.slices.each(range(ring.filed, max(0, ring.filed - len(ring)), -1)):
        event = ring.get(number)
        if event is not None and event.kind == "open-failed" and event.server not in codes:
            codes[event.server] = str(event.facts.get("why", ""))
    for server, backoffs in off.items():
        failures = max(one.failures for one in backoffs)
        left = min(one.until for one in backoffs) - looking.now
        yield Finding(
            level="bad",
            check="servers",
            what=f"{server} cannot be opened for {counted(len(backoffs), 'key')}",
            detail=f"the last failure was {codes.get(server) or 'longer ago'}, up to {failures} in a row; "
            f"tried again in {told(max(0.0, left))}, when somebody asks",
            tries=(
                f"show events kind=open-failed server={quoted(server)}",
                f"show actors state=backoff server={quoted(server)}",
            ),
            facts={"server": server, "keys": len(backoffs), "failures": failures, "code": codes.get(server)},
        )


async def actors(looking: Looking) -> AsyncIterator[Finding]:
    """Actors that crashed."""
    found = [
        actor
        async for actor in looking.slices.each(looking.sources.pool.actors())
        if actor.phase in ("crashed", "stopped") or actor.machine.ghosts is not None
    ]
    for actor in found[:SHOWN]:
        recovering = actor.phase not in ("crashed", "stopped")
        yield Finding(
            level="warn" if recovering else "bad",
            check="actors",
            what=f"the actor of {actor.shown} has crashed" + (" and recovers" if recovering else ""),
            detail="what it held is being given back; nobody is admitted meanwhile"
            if recovering
            else "it refuses everybody, and is forgotten after a while (idle_timeout)",
            tries=(f"show actor {actor.shown}", f"show events key={actor.shown}"),
            facts={"key": actor.shown, "server": actor.server.name, "crashes": actor.epoch},
        )


def loop(looking: Looking) -> Iterator[Finding]:
    """How late the event loop is."""
    if looking.sources.lag is None:
        return
    lag = looking.sources.lag.numbers()
    if lag.max < LAG_WARN:
        return
    yield Finding(
        level="bad" if lag.max >= LAG_BAD or lag.p99 >= LAG_WARN else "warn",
        check="loop",
        what=f"the event loop was held for {told(lag.max)} within the last minute",
        detail=f"99 of 100 beats were less than {told(lag.p99)} late; something in this process computes, or "
        "blocks, without letting others go on",
        tries=("show loop", "tree"),
        advice="`afpool console --stacks` shows what it does while it hangs",
        facts={"max": round(lag.max, 4), "p99": round(lag.p99, 4), "samples": lag.samples},
    )


def record(looking: Looking) -> Iterator[Finding]:
    """Whether the record reaches back, and whether those who are told of it can take it."""
    records = looking.sources.pool.records
    uses = records.uses
    if uses and records.forgotten:
        oldest = uses[0].ended_at
        span = 0.0 if oldest is None else looking.now - oldest
        if span < SHORT_RECORD:
            yield Finding(
                level="warn",
                check="record",
                what=f"the record reaches back {told(span)} only",
                detail=f"{len(uses)} calls are kept, {records.forgotten} have left; `why` cannot find those",
                tries=("show limits", "show memory"),
                advice="raise `records` or `record_bytes`, or have the record written into a file",
                facts={"kept": len(uses), "forgotten": records.forgotten, "span": round(span, 3)},
            )
    if records.failures:
        yield Finding(
            level="warn",
            check="record",
            what=f"{counted(records.failures, 'failure')} of a listener of the record, or of background work",
            detail="the log has their tracebacks",
            tries=("show events limit=20",),
            facts={"failures": records.failures},
        )


def sinks(looking: Looking) -> Iterator[Finding]:
    """Sinks that lose records."""
    for sink in looking.sources.sink_states():
        if not sink.dropped and not sink.trouble and not sink.refused:
            continue
        losing = bool(sink.trouble) or sink.queued > 0
        trouble = f"; it cannot write now: {sink.trouble}" if sink.trouble else ""
        yield Finding(
            level="bad" if losing else "warn",
            check="sinks",
            what=f"the sink {sink.name} has lost {counted(sink.dropped + sink.refused, 'record')}",
            detail=f"{counted(sink.queued, 'record waits', 'records wait')}{trouble}",
            tries=("show sinks",),
            facts={
                "sink": sink.name, "dropped": sink.dropped, "refused": sink.refused, "queued": sink.queued,
                "trouble": sink.trouble,
            },
        )  # fmt: skip
