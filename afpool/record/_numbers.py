"""What people look for first, counted as calls end: how many, how they ended, how long each stage took.

Rules:

* Constant work for each call, and a bounded number of rows whatever callers name: servers are those of the
  configuration, codes and stages words of the code. What would be one row too many is counted as `other`.
* Calls are counted together, `TOGETHER` at a time: counted one by one amid everything else, each would cost
  three times as much. Whoever reads has the rest counted first.
* A stage is what lies between a mark and the one before it, and counts where it took `LEAST` seconds or more:
  what is shorter is a check in passing.
* Nothing here names an identity, but a tenant by digest where that was asked for.
* Filing belongs to the loop, and never waits. Totals may be read from another thread, as a scraper does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, final

from ._counts import (
    BUCKETS,
    CLOCK,
    HALF,
    MICRO,
    OUTCOMES,
    SUM,
    Rate,
    Tally,
    add,
    of,
    quantile,
    row,
)
from ._json import Digests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.use import Use
    from ..pool import Event, Pool

TOGETHER: Final = 64
LEAST: Final = 1e-5
SERVERS: Final = 1024
CODES: Final = 128
STAGES: Final = 64
OTHER: Final = "other"
OPENING: Final = ("plan", "room", "connect", "credential", "sign", "initialize")
_ERRORS: Final = frozenset({"refused", "failed"})
_ENDED_KEPT: Final = 1024
_ENDS: Final = frozenset({"closed", "client-lost", "evicted", "killed", "reconfigured", "revoked", "silent"})


def _tool_of(use: Use) -> tuple[str, str]:
    """Server and tool that a call is counted under: never a name that a model or a caller made up."""
    if use.method not in ("tools/call", ""):
        return use.server, ""  # the name of a prompt is whatever was asked for
    return (OTHER, OTHER) if use.code == "unknown-tool" else (use.server, use.tool)


@final
class Numbers:
    """Counts the calls and events of a pool, from when it is made until it is closed.

    Args:
        pool: The pool.
        tools: How many tools are counted by name; the others together.
        tenants: How many tenants are counted, by digest; the others together.

    Attributes:
        began: When counting began, on the runtime's clock.
        tallies: Server's name to what is counted of it; the empty name is that of tools of the host's own.
        tools: Server's and tool's name to the same, where tools are counted.
        tenants: Digest to the same, where tenants are.
        codes: Code to the calls that ended by it.
        opens: Clients that were opened.
        evictions: Clients that were evicted; `evicted`, by why.
        creating: Server's name to a row of what opening a client took.
        creating_stages: Stage of an opening to a row of what it took.
        restarts: How the client before ended to how often another one took its place.
        open_failures: Code to openings that failed by it.
        events: Kind of an event to how many there were.
        close: Ends counting; safe to repeat.
    """

    def __init__(self, pool: Pool, *, tools: int = 0, tenants: int = 0) -> None:
        self._now = pool.seams.now
        self.began = self._now()
        self._most_tools = tools
        self._most_tenants = tenants
        self._more = bool(tools or tenants)
        self._digests = Digests(pool.digest)
        self.tallies: dict[str, Tally] = {}
        self.tools: dict[tuple[str, str], Tally] = {}
        self.tenants: dict[str, Tally] = {}
        self.codes: dict[str, Rate] = {}
        self.opens = Rate()
        self.evictions = Rate()
        self.evicted: dict[str, int] = {}
        self.creating: dict[str, list[Any]] = {}
        self.creating_stages: dict[str, list[Any]] = {}
        self.restarts: dict[str, int] = {}
        self.open_failures: dict[str, int] = {}
        self.events: dict[str, int] = {}
        self._ended: dict[int, str] = {}
        self._ended_calls: list[Use] = []
        self._folding = threading.Lock()
        self.close = pool.records.tap(on_use=self.use, on_event=self.event)

    # ------------------------------------------------------------------ counting

    def use(self, use: Use) -> None:
        """Count an ended call. Synchronous, in constant time."""
        ended = self._ended_calls
        ended.append(use)
        if len(ended) >= TOGETHER:
            self.fold()

    def fold(self) -> None:
        """Count what has ended and was not counted yet; done before anything is read. From any thread."""
        if not self._folding.acquire(blocking=False):
            return  # another thread is at it; what comes meanwhile is counted the next time
        try:
            # always the same list: whoever is about to append to it in another thread is not to miss it
            ended = self._ended_calls
            calls = ended[:]
            del ended[: len(calls)]
            for use in calls:
                self._use(use)
        finally:
            self._folding.release()

    def _use(self, use: Use) -> None:
        ended = use.ended_at
        if ended is None:
            return
        second = int(ended)
        server = self.tallies.get(use.server)
        if server is None:
            server = of(self.tallies, use.server, OTHER, SERVERS, Tally)
        half = second // HALF
        if half != server.half:
            server.turn(half)
        self._count(server, use, ended, second)
        stages, at = server.stages, use.began_at
        marks: Any = iter(use.marks)
        for stage, when in zip(marks, marks):  # noqa: B905 -- pairs by their making
            took = when - at
            at = when
            if took >= LEAST:
                try:
                    counts = stages[stage]
                except KeyError:
                    counts = of(stages, stage, OTHER, STAGES, row)
                counts[int(took * MICRO - CLOCK).bit_length()] += 1
                counts[SUM] += took
        if use.code is not None:
            of(self.codes, use.code, OTHER, CODES, Rate).count(second)
        if self._more:
            self._apart(use, ended, second)

    def _apart(self, use: Use, ended: float, second: int) -> None:
        """Count it for its tool and its tenant as well."""
        if self._most_tools:
            named = of(self.tools, _tool_of(use), (OTHER, OTHER), self._most_tools, Tally)
            self._count(named, use, ended, second)
        if self._most_tenants and use.who is not None:
            shown = self._digests.person(use.who)[2]
            if shown is not None:
                self._count(of(self.tenants, shown, OTHER, self._most_tenants, Tally), use, ended, second)

    @staticmethod
    def _count(tally: Tally, use: Use, ended: float, second: int) -> None:
        tally.calls.count(second)
        outcome = use.outcome
        if outcome is not None:
            tally.outcomes[outcome] += 1
            if outcome in _ERRORS:
                tally.errors.count(second)
        if use.tool_error:
            tally.tool_errors += 1
        took = ended - use.began_at
        counts = tally.whole  # not `add`: a call of a function costs as much as all of this
        counts[int(took * MICRO - CLOCK).bit_length()] += 1
        counts[SUM] += took
        marks: list[Any] = use.marks
        try:
            took = marks[marks.index("leased") + 1] - marks[marks.index("start") + 1]
        except ValueError:
            return  # it got no place, or needed none
        counts = tally.wait
        counts[int(took * MICRO - CLOCK).bit_length()] += 1
        counts[SUM] += took

    def event(self, event: Event) -> None:
        """Count an event of the pool. Synchronous, in constant time."""
        kind, facts, second = event.kind, event.facts, int(event.at)
        _tick(self.events, kind)
        if kind == "opened":
            self.opens.count(second)
            self._opened(event.server, facts)
        elif kind == "open-failed":
            _tick(self.open_failures, str(facts.get("why", OTHER)))
        elif kind == "evicted":
            self.evictions.count(second)
            _tick(self.evicted, str(facts.get("why", OTHER)))
        if kind in _ENDS:
            if len(self._ended) >= _ENDED_KEPT:
                del self._ended[next(iter(self._ended))]
            self._ended[event.number] = kind

    def _opened(self, server: str, facts: dict[str, object]) -> None:
        took = facts.get("took")
        if isinstance(took, float):
            add(of(self.creating, server, OTHER, SERVERS, row), took)
        for stage in OPENING:
            spent = facts.get(stage)
            if isinstance(spent, float):
                add(of(self.creating_stages, stage, OTHER, STAGES, row), spent)
        after = facts.get("after")
        if isinstance(after, int):
            _tick(self.restarts, self._ended.get(after, OTHER))

    # ------------------------------------------------------------------ reading

    def rate(self, rates: Iterable[Rate], span: int) -> float:
        """Give how many there were in a second, on average over the last `span` whole ones."""
        self.fold()
        now = self._now()
        second = int(now)
        passed = max(1, min(span, second - int(self.began)))
        return sum(rate.over(passed, second) for rate in rates) / passed

    def recent(self, server: str | None = None) -> dict[str, list[Any]]:
        """Give the rows of about the last minute, by stage; the empty name stands for whole calls.

        Args:
            server: Of this server; of all where absent.
        """
        self.fold()
        half = int(self._now()) // HALF
        summed: dict[str, list[Any]] = {}
        for name, tally in self.tallies.items():
            if server is None or name == server:
                for stage, counts in tally.recent(half):
                    into = summed.setdefault(stage, row())
                    into[:] = [one + other for one, other in zip(into, counts, strict=True)]
        return summed

    def overview(self) -> dict[str, Any]:
        """Give the numbers of this moment as plain data. Synchronous.

        Returns:
            `uptime`; `calls` and `opens` a second over the last 10, with `rates` of calls over 1, 10 and 60;
            `total` and `outcomes` of calls, `tool_errors`; `refusals`: whatever ended by a code, most
            frequent first, each with `total` and `rate` over 60 seconds; `call`, `stages` and `servers` with
            `count`, `p50`, `p95` and `p99` in seconds over about the last minute; `opened`, `evictions`,
            `open_failures`, `restarts`.
        """
        self.fold()
        tallies = list(self.tallies.values())
        calls = [tally.calls for tally in tallies]
        recent = self.recent()
        whole = recent.pop("", row())
        return {
            "uptime": self._now() - self.began,
            "calls": self.rate(calls, 10),
            "rates": {str(span): self.rate(calls, span) for span in (1, 10, 60)},
            "opens": self.rate((self.opens,), 10),
            "opened": self.opens.total,
            "evictions": self.evictions.total,
            "total": sum(rate.total for rate in calls),
            "outcomes": {word: sum(tally.outcomes[word] for tally in tallies) for word in OUTCOMES},
            "tool_errors": sum(tally.tool_errors for tally in tallies),
            "refusals": [
                {"code": code, "total": rate.total, "rate": self.rate((rate,), 60)}
                for code, rate in sorted(self.codes.items(), key=lambda pair: -pair[1].total)
            ],
            "call": shown(whole),
            "stages": [{"stage": stage, **shown(counts)} for stage, counts in recent.items() if any(counts)],
            "servers": [{"server": name, **numbers} for name, numbers in self.servers().items()],
            "open_failures": dict(self.open_failures),
            "restarts": dict(self.restarts),
        }

    def servers(self) -> dict[str, dict[str, Any]]:
        """Give the numbers of each server that was called, by name; the empty one is the host's own tools.

        Returns:
            `rate` of calls and of `errors` (refused and failed) a second over the last 10; `calls` and
            `outcomes` in all; `count`, `p50`, `p95` and `p99` over about the last minute.
        """
        self.fold()
        half = int(self._now()) // HALF
        return {
            name: {
                "rate": self.rate((tally.calls,), 10),
                "errors": self.rate((tally.errors,), 10),
                "calls": tally.calls.total,
                "outcomes": dict(tally.outcomes),
                **shown(next(tally.recent(half))[1]),
            }
            for name, tally in list(self.tallies.items())
        }


def shown(counts: list[Any]) -> dict[str, Any]:
    """Give the count of a row and its percentiles, in seconds; `None` where nothing was counted."""
    return {
        "count": sum(counts[:BUCKETS]),
        "p50": quantile(counts, 0.5),
        "p95": quantile(counts, 0.95),
        "p99": quantile(counts, 0.99),
    }


def _tick(counts: dict[str, int], word: str) -> None:
    if word not in counts and len(counts) >= CODES:
        word = OTHER
    counts[word] = counts.get(word, 0) + 1
