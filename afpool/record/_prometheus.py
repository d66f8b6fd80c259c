"""Metrics for Prometheus: read off the counters when somebody scrapes, and off the pool's own state.

Rules:

* A call pays for the counters of `Numbers` only; everything here is paid for by the scrape.
* What belongs to the loop is copied in one step, in a fraction of a millisecond for each hundred servers
  (`PoolCollector.snapshot`); making text of it takes far longer, and may be done in any thread.
* Labels are servers of the configuration, words of the code, and codes. Tools and tenants only where they
  were asked for, so many at most, and tenants by digest. Never an identity, an id or an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ._counts import row as zeros
from ._metrics import STATES, Counted, Snapshot, families, nothing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from ..pool import Pool
    from ._counts import Tally
    from ._lag import LoopLag
    from ._numbers import Numbers
    from ._sinks import Sinks

_PENDING: Final = frozenset({"admission", "runtime-admission"})


class Measured(Protocol):
    """What metrics are made of: a `Runtime`."""

    @property
    def pool(self) -> Pool:
        """Its pool."""
        ...

    @property
    def sinks(self) -> Sinks:
        """Its sinks, with the numbers."""
        ...


@final
class PoolCollector(Collector):
    """Gives the metrics of one runtime to a registry of `prometheus_client`.

    Args:
        runtime: A `Runtime`, or whatever has its `pool` and `sinks`.

    From here on its calls are counted, if they were not before. `collect` may be called from another thread
    while the runtime is open; the numbers of one scrape then are of several instants.
    """

    def __init__(self, runtime: Measured) -> None:
        self._pool = runtime.pool
        self._sinks = runtime.sinks
        self._numbers: Numbers = runtime.sinks.numbers()
        self._lag: LoopLag | None = getattr(runtime, "lag", None)

    def describe(self) -> Iterable[Metric]:
        """Name the metrics, without their values."""
        return families(nothing(by_tool=bool(self._sinks.settings.tools)))

    def collect(self) -> Iterator[Metric]:
        """Give the metrics of this moment."""
        return families(self.snapshot())

    def snapshot(self) -> Snapshot:
        """Copy what is told. Synchronous; on the pool's thread all of it is of one instant."""
        numbers, pool = self._numbers, self._pool
        numbers.fold()
        by_tool = bool(self._sinks.settings.tools)
        calls: dict[tuple[str, ...], Counted] = {}
        tallies: Iterable[tuple[Any, Tally]] = list((numbers.tools if by_tool else numbers.tallies).items())
        for name, tally in tallies:
            labels = name if by_tool else (name,)
            calls[labels] = Counted(
                tally.outcomes.copy(), tally.tool_errors, tally.whole.copy(), tally.wait.copy()
            )
        stages: dict[str, list[Any]] = {}
        nil = zeros()
        for tally in list(numbers.tallies.values()):
            for stage, row in list(tally.stages.items()):
                into = stages.get(stage, nil)
                stages[stage] = [one + other for one, other in zip(into, row, strict=True)]
        lag = None if self._lag is None else self._lag.numbers()
        records = pool.records
        return Snapshot(
            gauges={
                "afpool_sessions_max": pool.limits.max_clients,
                "afpool_oldest_waiter_seconds": _oldest_wait(pool),
                "afpool_settling_requests": pool.settling,
                "afpool_record_entries": len(records.uses),
                "afpool_record_bytes": records.bytes,
            },
            servers=_servers(pool),
            calls=calls,
            tenants={name: tally.outcomes.copy() for name, tally in list(numbers.tenants.items())},
            stages=stages,
            creating={name: row.copy() for name, row in list(numbers.creating.items())},
            creating_stages={name: row.copy() for name, row in list(numbers.creating_stages.items())},
            codes={code: rate.total for code, rate in list(numbers.codes.items())},
            counters={
                "events": numbers.events.copy(),
                "restarts": numbers.restarts.copy(),
                "open_failures": numbers.open_failures.copy(),
                "evicted": numbers.evicted.copy(),
                "plain": {
                    "opened": numbers.opens.total,
                    "filed": records.filed,
                    "failures": records.failures,
                },
            },
            lag={} if lag is None else {"now": lag.now, "p50": lag.p50, "p99": lag.p99, "max": lag.max},
            sinks=self._sinks.states(),
            by_tool=by_tool,
        )


def _servers(pool: Pool) -> dict[str, dict[str, int]]:
    """Count clients by state, keys and calls of each server: one look at each key that holds something."""
    found = {
        server: dict.fromkeys((*STATES, "keys", "running", "pending"), 0) for server in list(pool.servers)
    }
    for client in list(pool.openings.clients.values()):
        if client.server in found:
            found[client.server]["closing"] += 1  # unless a key has it still, see below
    for actor in list(pool.kept):
        counts = found.get(actor.server.name)
        if counts is None:
            continue
        machine = actor.machine
        counts["keys"] += 1
        if machine.client is not None:
            counts["closing"] -= 1
            counts["busy" if machine.in_flight else "idle"] += 1
        if machine.opening is not None:
            counts["opening"] += 1
    for call in list(pool.running.values()):
        counts = found.get(call.actor.server.name)
        if counts is not None:
            counts["pending" if call.use.waits_for in _PENDING else "running"] += 1
    for counts in found.values():
        counts["closing"] = max(0, counts["closing"])
    return found


def _oldest_wait(pool: Pool) -> float:
    now = pool.seams.now()
    since = [
        call.use.marks[-1] if call.use.marks else call.use.began_at
        for call in list(pool.running.values())
        if call.use.waits_for in _PENDING
    ]
    return max(0.0, now - float(min(since))) if since else 0.0


@final
class _Copied(Collector):
    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        return families(self._seen)


def render(seen: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """Make the text of a scrape, with the metrics of the process. In any thread; takes milliseconds.

    Args:
        seen: What `PoolCollector.snapshot` copied.
        accept: The `Accept` of whoever asks: decides between Prometheus' text and OpenMetrics.

    Returns:
        The body, and its content type.
    """
    registry = CollectorRegistry()
    registry.register(_Copied(seen))
    ProcessCollector(registry=registry)
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


def prometheus_text(runtime: Measured, accept: str = "") -> tuple[bytes, str]:
    """Give the metrics of a runtime as text, for an endpoint of the host's own.

    Args:
        runtime: A `Runtime`, or whatever has its `pool` and `sinks`.
        accept: The request's `Accept`: decides between Prometheus' text and OpenMetrics.

    Returns:
        The body, and its content type.

    Synchronous, a few milliseconds for a hundred servers. Calls are counted from the first time on, or from
    the start with `RecordSettings(numbers=True)`. It needs `pip install 'afpool[prometheus]'`.
    """
    return render(PoolCollector(runtime).snapshot(), accept)
