"""The metrics by name: what was copied off counters and pool, as families of `prometheus_client`.

Rules:

* Every family is there at every scrape, also without a value: a dashboard does not lose it.
* A histogram has the bounds 64 microseconds to 134 seconds, each twice the one before.
* Pure: nothing here reads a pool, so that it may run in any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from ._counts import BUCKETS, OUTCOMES, SUM, bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from ._queue import SinkState

STATES: Final[tuple[str, ...]] = ("idle", "busy", "opening", "closing")
_FIRST: Final = 6
_LAST: Final = 27
_BOUNDS: Final = tuple(repr(bound(number)) for number in range(_FIRST, _LAST + 1))


@attrs.frozen
class Counted:
    """Copies of what a tally has counted."""

    outcomes: dict[str, int]
    tool_errors: int
    whole: list[Any]
    wait: list[Any]


@attrs.frozen
class Snapshot:
    """Everything that a scrape tells, copied in one step."""

    gauges: Mapping[str, float]
    servers: Mapping[str, Mapping[str, int]]
    calls: Mapping[tuple[str, ...], Counted]
    tenants: Mapping[str, Mapping[str, int]]
    stages: Mapping[str, list[Any]]
    creating: Mapping[str, list[Any]]
    creating_stages: Mapping[str, list[Any]]
    codes: Mapping[str, int]
    counters: Mapping[str, Mapping[str, int]]
    lag: Mapping[str, float]
    sinks: Sequence[SinkState]
    by_tool: bool


def nothing(*, by_tool: bool) -> Snapshot:
    """Give a snapshot of nothing, for the names of the metrics."""
    return Snapshot({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, (), by_tool)


def families(seen: Snapshot) -> Iterator[Metric]:
    """Make metrics of what was copied. Synchronous; in any thread."""
    yield from _of_pool(seen)
    yield from _of_calls(seen)
    yield from _of_clients(seen)
    yield from _of_process(seen)


def _of_pool(seen: Snapshot) -> Iterator[Metric]:
    sessions = GaugeMetricFamily("afpool_sessions", "Clients, by what they do.", labels=["server", "state"])
    keys = GaugeMetricFamily("afpool_keys", "Keys that do or hold something.", labels=["server"])
    running = GaugeMetricFamily(
        "afpool_running_requests", "Calls under way that wait for no place.", labels=["server"]
    )
    pending = GaugeMetricFamily("afpool_pending_requests", "Calls that wait for a place.", labels=["server"])
    for server, counts in seen.servers.items():
        for state in STATES:
            sessions.add_metric([server, state], counts[state])
        keys.add_metric([server], counts["keys"])
        running.add_metric([server], counts["running"])
        pending.add_metric([server], counts["pending"])
    yield from (sessions, keys, running, pending)
    for name, about in (
        ("afpool_sessions_max", "Clients that may be open at once."),
        ("afpool_oldest_waiter_seconds", "How long the call waits that has waited longest for a place."),
        ("afpool_settling_requests", "Requests whose caller has gone and whose answer is waited for."),
        ("afpool_record_entries", "Calls that the ring keeps."),
        ("afpool_record_bytes", "What they take, as estimated."),
    ):
        gauge = GaugeMetricFamily(name, about)
        if name in seen.gauges:
            gauge.add_metric([], seen.gauges[name])
        yield gauge


def _of_calls(seen: Snapshot) -> Iterator[Metric]:
    named = ["server", "tool"] if seen.by_tool else ["server"]
    calls = CounterMetricFamily("afpool_calls", "Calls that ended.", labels=[*named, "outcome"])
    errors = CounterMetricFamily("afpool_tool_errors", "Calls whose tool said that it failed.", labels=named)
    took = HistogramMetricFamily(
        "afpool_call_duration_seconds", "What calls took from begin to end.", labels=named
    )
    waited = HistogramMetricFamily(
        "afpool_acquire_wait_seconds", "What calls waited for a place and a client.", labels=named
    )
    for labels, counted in seen.calls.items():
        for outcome in OUTCOMES:
            calls.add_metric([*labels, outcome], counted.outcomes[outcome])
        errors.add_metric(labels, counted.tool_errors)
        _add(took, labels, counted.whole)
        if any(counted.wait):
            _add(waited, labels, counted.wait)
    yield from (calls, errors, took, waited)
    stages = HistogramMetricFamily("afpool_stage_seconds", "What a stage of calls took.", labels=["stage"])
    for stage, row in seen.stages.items():
        _add(stages, [stage], row)
    yield stages
    yield _counter("afpool_refusals", "Calls that ended by a code.", "code", seen.codes)
    tenants = CounterMetricFamily(
        "afpool_tenant_calls", "Calls that ended, by tenants' digests.", labels=["tenant", "outcome"]
    )
    for tenant, outcomes in seen.tenants.items():
        for outcome in OUTCOMES:
            tenants.add_metric([tenant, outcome], outcomes[outcome])
    yield tenants


def _of_clients(seen: Snapshot) -> Iterator[Metric]:
    creating = HistogramMetricFamily(
        "afpool_session_create_seconds", "What opening a client took.", labels=["server"]
    )
    for server, row in seen.creating.items():
        _add(creating, [server], row)
    stages = HistogramMetricFamily(
        "afpool_session_create_stage_seconds", "What a stage of opening a client took.", labels=["stage"]
    )
    for stage, row in seen.creating_stages.items():
        _add(stages, [stage], row)
    yield from (creating, stages)
    counters = seen.counters
    for name, about, label, which in (
        (
            "afpool_session_restarts",
            "Clients that took another one's place, by its end.",
            "reason",
            "restarts",
        ),
        ("afpool_session_failures", "Openings that failed, by code.", "code", "open_failures"),
        ("afpool_sessions_evicted", "Clients that nobody used and that were closed.", "why", "evicted"),
        ("afpool_events", "Events that the pool filed, by kind.", "kind", "events"),
    ):
        yield _counter(name, about, label, counters.get(which, {}))
    plain = counters.get("plain", {})
    for name, about, which in (
        ("afpool_sessions_opened", "Clients that were opened.", "opened"),
        ("afpool_record_filed", "Calls that were put on the record.", "filed"),
        ("afpool_record_failures", "Times that somebody who listens to the record failed.", "failures"),
    ):
        counter = CounterMetricFamily(name, about)
        if which in plain:
            counter.add_metric([], plain[which])
        yield counter


def _of_process(seen: Snapshot) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "afpool_loop_lag_seconds", "How late the event loop was over the last minute.", labels=["stat"]
    )
    for stat, seconds in seen.lag.items():
        lag.add_metric([stat], seconds)
    yield lag
    queued = GaugeMetricFamily("afpool_sink_queued", "Records that wait to be written.", labels=["sink"])
    trouble = GaugeMetricFamily("afpool_sink_trouble", "1 while a sink cannot write.", labels=["sink"])
    written = CounterMetricFamily("afpool_sink_records", "Records that a sink took.", labels=["sink"])
    dropped = CounterMetricFamily("afpool_sink_dropped", "Records that found a queue full.", labels=["sink"])
    refused = CounterMetricFamily("afpool_sink_refused", "Records that failed in a sink.", labels=["sink"])
    for sink in seen.sinks:
        queued.add_metric([sink.name], sink.queued)
        trouble.add_metric([sink.name], float(sink.trouble is not None))
        written.add_metric([sink.name], sink.written)
        dropped.add_metric([sink.name], sink.dropped)
        refused.add_metric([sink.name], sink.refused)
    yield from (queued, trouble, written, dropped, refused)


def _counter(name: str, about: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    counter = CounterMetricFamily(name, about, labels=[label])
    for value, count in counts.items():
        counter.add_metric([value], count)
    return counter


def _add(histogram: HistogramMetricFamily, labels: Sequence[str], row: Sequence[Any]) -> None:
    upto = sum(row[:_FIRST])
    buckets: list[tuple[str, float]] = []
    for number, name in enumerate(_BOUNDS, _FIRST):
        upto += row[number]
        buckets.append((name, upto))
    buckets.append(("+Inf", upto + sum(row[_LAST + 1 : BUCKETS])))
    histogram.add_metric(labels, buckets, row[SUM])
