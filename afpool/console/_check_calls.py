"""Checks of who waits and who holds: waiters, places, tenants, drains, pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._ask import quoted
from ._check import Finding, counted, told
from ._sources import mark_of, waits_since

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ._check import Checks, Looking

WAITED_WARN: Final = 1.0
WAITED_BAD: Final = 10.0
HELD_LONG: Final = 60.0
SETTLING_LONG: Final = 10.0
STARVED: Final = 2.0
DRAIN_LONG: Final = 30.0
PAUSED_LONG: Final = 60.0
NEARLY_FULL: Final = 0.9
SHOWN: Final = 10


def add_to(checks: Checks) -> None:
    """Add them."""
    checks.add("waiters", waiters)
    checks.add("leases", leases)
    checks.add("tenants", tenants)
    checks.add("drains", drains)
    checks.add("pauses", pauses)
    checks.add("limits", limits)


async def waiters(looking: Looking) -> AsyncIterator[Finding]:
    """The oldest waiter of each server."""
    oldest: dict[str, Any] = {}
    waiting: dict[str, int] = {}
    async for call in looking.slices.each(list(looking.sources.pool.running.values())):
        if call.reply is None:
            continue
        server = call.use.server
        waiting[server] = waiting.get(server, 0) + 1
        known = oldest.get(server)
        if known is None or waits_since(call.use) < waits_since(known.use):
            oldest[server] = call
    for server, call in oldest.items():
        use = call.use
        waited = looking.now - waits_since(use)
        if waited < WAITED_WARN:
            continue
        actor = call.actor
        machine = actor.machine
        if call.held:
            why = "all places of the runtime are taken (max_in_flight)"
            tries = ["show leases sort=-age", "show limits"]
        elif machine.paused or machine.limits.halted:
            why = "its key is paused"
            tries = [f"resume {quoted(server) if machine.limits.halted else actor.shown}"]
        elif machine.draining is not None:
            why = "its key is being drained"
            tries = [f"show actor {actor.shown}"]
        elif machine.client is None:
            why = "its client is not open yet"
            tries = [f"show events server={quoted(server)}", f"show actor {actor.shown}"]
        else:
            held, most = machine.in_flight, machine.limits.max_operations
            why = f"{held} of {most} places of its key are taken"
            tries = [f"show actor {actor.shown}", "show leases sort=-age"]
        yield Finding(
            level="bad" if waited >= WAITED_BAD else "warn",
            check="waiters",
            what=f"a call of {server} has waited {told(waited)} for a place",
            detail=f"{use.call_id}: {why}; {counted(waiting[server], 'call waits', 'calls wait')} there",
            tries=tuple(tries),
            facts={
                "server": server, "call": use.call_id, "key": actor.shown, "waited": round(waited, 3),
                "waiting": waiting[server],
            },
        )  # fmt: skip


async def leases(looking: Looking) -> AsyncIterator[Finding]:
    """Places that are held for long, and answers that nobody waits for any more."""
    pool = looking.sources.pool
    long: list[tuple[float, Any]] = []
    async for call in looking.slices.each(list(pool.running.values())):
        if call.held:
            age = looking.now - (mark_of(call.use, "leased") or call.use.began_at)
            if age >= HELD_LONG:
                long.append((age, call))
    long.sort(key=lambda pair: -pair[0])
    for age, call in long[:SHOWN]:
        use = call.use
        yield Finding(
            level="warn",
            check="leases",
            what=f"a call has held a place of {use.server} for {told(age)}",
            detail=f"{use.call_id} of {use.tool or use.method} waits for: {use.waits_for or 'the server'}; "
            f"its deadline is in {told(max(0.0, call.deadline - looking.now))}",
            tries=(f"show call {quoted(use.call_id)}", f"cancel {quoted(use.call_id)}"),
            facts={
                "call": use.call_id, "server": use.server, "key": call.actor.shown, "age": round(age, 3),
                "waits_for": use.waits_for,
            },
        )  # fmt: skip
    out: dict[str, list[float]] = {}
    async for use in looking.slices.each(list(pool.handed.values())):
        age = looking.now - (looking.now if use.ended_at is None else use.ended_at)
        if age >= SETTLING_LONG:
            out.setdefault(use.server, []).append(age)
    for server, ages in out.items():
        yield Finding(
            level="warn",
            check="leases",
            what=f"{counted(len(ages), 'answer')} of {server} nobody waits for any more "
            f"{'is' if len(ages) == 1 else 'are'} still out",
            detail=f"the oldest caller has gone {told(max(ages))} ago; each keeps a place until it is given "
            f"up (settle_timeout {pool.limits.settle_timeout:g} s)",
            tries=(f"show leases state=settling server={quoted(server)}",),
            facts={"server": server, "answers": len(ages), "oldest": round(max(ages), 3)},
        )


async def tenants(looking: Looking) -> AsyncIterator[Finding]:
    """Tenants that wait and hold nothing while others hold places."""
    sources = looking.sources
    holds: dict[str | None, int] = {}
    waits: dict[str | None, list[float]] = {}
    async for call in looking.slices.each(list(sources.pool.running.values())):
        if call.held and call.reply is None:
            holds[call.tenant] = holds.get(call.tenant, 0) + 1
        elif call.reply is not None and (call.held or call.actor.machine.client is not None):
            waits.setdefault(call.tenant, []).append(looking.now - waits_since(call.use))
    for tenant, waited in waits.items():
        if tenant is None or holds.get(tenant) or max(waited) < STARVED or not holds:
            continue
        shown = sources.digests.show(tenant, "t")
        most, by = max((count, held) for held, count in _shown(sources, holds).items()) if holds else (0, "")
        yield Finding(
            level="bad",
            check="tenants",
            what=f"the tenant {shown} holds no place and has waited {told(max(waited))}",
            detail=f"{counted(len(waited), 'call of it waits', 'calls of it wait')}; {by} holds {most}",
            tries=("show waiting", "show leases sort=-age"),
            advice="lower max_share, or raise max_in_flight",
            facts={"tenant": shown, "waiting": len(waited), "waited": round(max(waited), 3), "most": most},
        )


def _shown(sources: Any, holds: dict[str | None, int]) -> dict[str, int]:
    return {
        "nobody in particular" if name is None else sources.digests.show(name, "t"): count
        for name, count in holds.items()
    }  # fmt: skip


async def drains(looking: Looking) -> AsyncIterator[Finding]:
    """Drains that do not come to their end."""
    async for actor in looking.slices.each(list(looking.sources.pool.kept)):
        machine = actor.machine
        if machine.draining is None or actor.drained_since is None:
            continue
        age = looking.now - actor.drained_since.at
        if age >= DRAIN_LONG:
            yield Finding(
                level="bad",
                check="drains",
                what=f"a drain of {actor.shown} has not ended for {told(age)}",
                detail=f"{counted(machine.in_flight, 'place is', 'places are')} still held and "
                f"{counted(len(machine.waiting or ()), 'call waits', 'calls wait')} for its end",
                tries=(f"show actor {actor.shown}", *_kills(machine)),
                facts={
                    "key": actor.shown, "server": actor.server.name, "age": round(age, 3),
                    "in_flight": machine.in_flight,
                },
            )  # fmt: skip


def _kills(machine: Any) -> list[str]:
    return [] if machine.client is None else [f"kill {machine.client.id}"]


async def pauses(looking: Looking) -> AsyncIterator[Finding]:
    """Pauses that nobody is going to end."""
    pool = looking.sources.pool
    waits: dict[str, int] = {}
    if pool.held_servers:
        async for call in looking.slices.each(list(pool.running.values())):
            if call.reply is not None:
                waits[call.use.server] = waits.get(call.use.server, 0) + 1
    for name, event in list(pool.held_servers.items()):
        if looking.leases.find((name,)) is None:
            finding = _pause(name, name, event, waits.get(name, 0), looking.now)
            if finding is not None:
                yield finding
    async for actor in looking.slices.each(list(pool.kept)):
        held = actor.held_since
        if actor.machine.paused and held is not None and looking.leases.find(actor.key) is None:
            waiting = len(actor.machine.waiting or ())
            finding = _pause(actor.shown, actor.server.name, held, waiting, looking.now)
            if finding is not None:
                yield finding


def _pause(what: str, server: str, event: Any, waiting: int, now: float) -> Finding | None:
    age = now - event.at
    if age < PAUSED_LONG:
        return None
    by = event.facts.get("by")
    return Finding(
        level="bad" if waiting else "warn",
        check="pauses",
        what=f"{what} has been paused for {told(age)}, and nothing will end that",
        detail=f"{counted(waiting, 'call waits', 'calls wait')}; paused by {by or 'the host'}",
        tries=(f"resume {quoted(what)}",),
        facts={"what": what, "server": server, "age": round(age, 3), "waiting": waiting, "by": by},
    )


def limits(looking: Looking) -> Iterator[Finding]:
    """Limits of the pool that are nearly used up."""
    pool = looking.sources.pool
    bound = pool.limits
    for name, used, tries in (
        ("max_in_flight", pool.admission.used, "show leases sort=-age"),
        ("max_waiting_total", pool.room.count, "show waiting"),
        ("max_clients", pool.openings.rooms.used, "show clients sort=-age"),
    ):
        limit = getattr(bound, name)
        if used < NEARLY_FULL * limit:
            continue
        full = used >= limit
        wanted = name == "max_clients" and pool.openings.rooms.waiting
        if name == "max_clients" and not wanted:
            continue  # idle clients make room; it is as full as it should be
        yield Finding(
            level="bad" if full else "warn",
            check="limits",
            what=f"{used} of {limit} of {name} are used",
            detail=f"{counted(wanted, 'opening waits', 'openings wait')} for room" if wanted else "",
            tries=(tries,),
            advice=f"raise {name}",
            facts={"limit": name, "used": used, "of": limit},
        )
