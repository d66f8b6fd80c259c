"""Tables of calls and events: `calls`, `recent`, `slow`, `errors`, `events`, `runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._sources import waits_since
from ._spec import Column, Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from .._base.use import Use
    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources

FACTS: Final = ("client", "list", "generation", "why", "by", "call", "took")


def register(registry: Registry, sources: Sources) -> None:
    """Add the tables."""
    registry.table(calls(sources))
    registry.table(ended(sources, "recent", "ended calls, the newest first", lambda _: True, sort=None))
    registry.table(ended(sources, "slow", "ended calls, the slowest first", lambda _: True, sort="-took"))
    registry.table(
        ended(
            sources,
            "errors",
            "calls that were refused or failed, the newest first",
            lambda use: use.outcome in ("refused", "failed") or use.tool_error,
            sort=None,
        )
    )
    registry.table(events(sources))
    registry.table(runs(sources))


def calls(sources: Sources) -> Table:
    """Calls under way: what each waits for now, and since when."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        seen: set[int] = set()
        for call in list(pool.running.values()):
            use = call.use
            seen.add(id(use))
            state = "waiting" if not call.held else "sent" if call.begun else "running"
            yield _running(sources, ask, use, state, call.deadline - ask.now, call.actor.projection)
        for use in sources.under_way():
            yield None if id(use) in seen else _running(sources, ask, use, "door", None, None)

    return Table(
        name="calls",
        help="calls under way: what each waits for now, and since when",
        columns=(
            Column("call", "id"),
            Column("server", "text", "empty for a tool of the host's own"),
            Column("tool", "text"),
            Column("key", "key"),
            Column("state", "text", "door: before it reaches a server; waiting for a place; running; sent"),
            Column("waits_for", "text"),
            Column("since", "seconds", "since it waits for that"),
            Column("age", "seconds"),
            Column("left", "seconds", "until its deadline"),
            Column("client", "id"),
            Column("attempts", "count", "requests that were started for it"),
            Column("reports", "count", "reports of progress"),
            Column("run", "id"),
            Column("parent", "id", "the call that it was made from"),
        ),
        rows=rows,
        identities=True,
        older="age",
        sort="-age",
    )


def _running(
    sources: Sources, ask: Ask, use: Use, state: str, left: float | None, projection: Any
) -> tuple[Any, ...]:
    return (
        use.call_id, use.server, use.tool or use.method, sources.key_of_use(use), state, use.waits_for,
        ask.now - waits_since(use), ask.now - use.began_at, left, use.client_id, use.attempts, use.reports,
        use.run_id, use.parent, use.who or projection,
    )  # fmt: skip


def ended(
    sources: Sources, name: str, what: str, wanted: Callable[[Use], bool], *, sort: str | None
) -> Table:
    """Calls of the record."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        for use in reversed(list(pool.records.uses)):
            if not wanted(use):
                yield None
                continue
            ended_at = use.began_at if use.ended_at is None else use.ended_at
            yield (
                ask.unix_of(ended_at), use.call_id, use.server, use.tool or use.name or use.method,
                sources.key_of_use(use), use.outcome, use.code, use.delivery, ended_at - use.began_at,
                ask.now - ended_at, longest(use), use.client_id, use.attempts, use.bytes_out, use.bytes_in,
                use.tool_error, use.cause, use.run_id, use.who,
            )  # fmt: skip

    return Table(
        name=name,
        help=what,
        columns=(
            Column("at", "unix", "when it ended"),
            Column("call", "id", "as `why` takes it"),
            Column("server", "text", "empty for a tool of the host's own"),
            Column("tool", "text"),
            Column("key", "key"),
            Column("outcome", "text", "ok refused failed cancelled"),
            Column("code", "text", "of what ended it"),
            Column("delivery", "text", "whether the tool may have run"),
            Column("took", "seconds"),
            Column("ago", "seconds", "since it ended"),
            Column("longest", "text", "the stage that took most of it"),
            Column("client", "id"),
            Column("attempts", "count"),
            Column("out", "bytes"),
            Column("in", "bytes"),
            Column("tool_error", "flag", "the tool said that it failed"),
            Column("cause", "id", "the number of the event that caused its refusal"),
            Column("run", "id"),
        ),
        rows=rows,
        identities=True,
        older="ago",
        sort=sort,
    )


def longest(use: Use) -> str | None:
    """The stage of a call that took most of it: what ended with its mark."""
    marks: Any = use.marks
    before = use.began_at
    found, most = None, 0.0
    for stage, at in zip(marks[::2], marks[1::2], strict=False):
        if at - before > most:
            found, most = str(stage), at - before
        before = at
    if use.ended_at is not None and use.ended_at - before > most:
        return "end"
    return found


def events(sources: Sources) -> Table:
    """What happened to keys, clients and lists."""
    pool = sources.pool

    def rows(ask: Ask) -> Iterator[tuple[Any, ...] | None]:
        ring = pool.records.events
        for number in range(ring.filed, max(0, ring.filed - len(ring)), -1):
            event = ring.get(number)
            if event is None:
                yield None
                continue
            facts = event.facts
            yield (
                event.number, ask.unix_of(event.at), ask.now - event.at, event.kind, event.key or None,
                event.server or None, *(facts.get(fact) for fact in FACTS),
            )  # fmt: skip

    return Table(
        name="events",
        help="what happened to keys, clients and lists, the newest first",
        columns=(
            Column("n", "id", "its number; refusals name it as their cause"),
            Column("at", "unix"),
            Column("ago", "seconds"),
            Column("kind", "text"),
            Column("key", "key", "empty where it is about more than one"),
            Column("server", "text"),
            Column("client", "id"),
            Column("list", "id"),
            Column("generation", "count"),
            Column("why", "text"),
            Column("by", "text", "who asked for it"),
            Column("call", "id", "the call that it was begun for"),
            Column("took", "seconds"),
        ),
        rows=rows,
        older="ago",
    )


class _OfRun:
    __slots__ = ("calls", "ended", "failed", "first", "last", "open", "running", "who")

    def __init__(self) -> None:
        self.running = self.ended = self.failed = 0
        self.open = False
        self.first = float("inf")
        self.last = float("-inf")
        self.who: Any = None


def runs(sources: Sources) -> Table:
    """Runs, as the calls that are under way or on the record tell of them."""
    pool = sources.pool

    async def rows(ask: Ask) -> AsyncIterator[tuple[Any, ...]]:
        found: dict[str, _OfRun] = {}
        async for use in ask.slices.each([*pool.records.uses, *sources.under_way()]):
            if use.run_id is None:
                continue
            run = found.get(use.run_id)
            if run is None:
                run = found[use.run_id] = _OfRun()
            run.who = use.who or run.who
            run.first = min(run.first, use.began_at)
            if use.ended_at is None:
                run.running += 1
                run.last = ask.now
            else:
                run.ended += 1
                run.failed += use.outcome in ("refused", "failed")
                run.last = max(run.last, use.ended_at)
        for known in sources.open_runs():
            run = found.get(known.run_id)
            if run is None:
                run = found[known.run_id] = _OfRun()
                run.last = known.began_at
            run.open = True
            run.who = run.who or known.who
            run.first = min(run.first, known.began_at)
        for run_id, run in found.items():
            yield (
                run_id, run.open, run.running, run.ended, run.failed, ask.unix_of(run.first),
                ask.now - run.last, sources.who(run.who), run.who,
            )  # fmt: skip

    return Table(
        name="runs",
        help="runs that somebody holds, or that have calls under way or on the record",
        columns=(
            Column("run", "id"),
            Column("open", "flag", "somebody holds it"),
            Column("running", "count", "calls under way"),
            Column("ended", "count", "calls on the record"),
            Column("failed", "count", "of them refused or failed"),
            Column("first", "unix", "when its first call that is known began"),
            Column("quiet", "seconds", "since something of it went on"),
            Column("who", "key", "digest of whom it acts for"),
        ),
        rows=rows,
        identities=True,
        older="quiet",
        sort="quiet",
    )
