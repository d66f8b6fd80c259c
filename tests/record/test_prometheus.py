"""Metrics: what they say of a runtime at work, that scrapers can read them, and what never stands in them."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest
import trio
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from afpool import Identity
from afpool.record import PoolCollector, RecordSettings, prometheus_text
from tests.runtime.runtime_kit import ALICE, BOB, runtime, said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

OPEN = "application/openmetrics-text; version=1.0.0"


def values(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def told(text: bytes, name: str, **labels: str) -> float | None:
    return values(plain_text(text.decode())).get((name, frozenset(labels.items())))


def lint(families: Iterable[Metric]) -> None:
    """What `promtool check metrics` asks, and that histograms are sound."""
    seen = set()
    for family in families:
        assert family.name not in seen
        seen.add(family.name)
        if not family.name.startswith("afpool_"):
            assert family.name.startswith("process_")
            continue
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert not any(bad in family.name for bad in ("_milliseconds", "_ms", "_kb", "_minutes"))
        if family.type != "counter":
            assert not family.name.endswith("_total")
        rows: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
        counts: dict[frozenset[tuple[str, str]], float] = {}
        for sample in family.samples:
            assert not math.isnan(sample.value)
            labels = dict(sample.labels)
            edge = labels.pop("le", None)
            if sample.name.endswith("_bucket"):
                assert edge is not None
                rows.setdefault(frozenset(labels.items()), []).append((float(edge), sample.value))
            elif sample.name.endswith("_count"):
                counts[frozenset(labels.items())] = sample.value
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created"))
        for labels_of, buckets in rows.items():
            assert buckets == sorted(buckets)
            assert [count for _, count in buckets] == sorted(count for _, count in buckets)
            assert buckets[-1][0] == math.inf
            assert buckets[-1][1] == counts[labels_of]


async def test_a_runtime_at_work() -> None:
    settings = RecordSettings(numbers=True)
    async with runtime({"desk": [said("desk", "echo")]}, record=settings) as here:
        for who in (ALICE, BOB):
            toolset = await here.runtime.toolset(who)
            for _ in range(3):
                await toolset.call("echo", {})
        assert (await toolset.call("nothing", {})).code == "unknown-tool"
        here.runtime.measured()
        body, kind = prometheus_text(here.runtime)
        assert kind.startswith("text/plain")
        assert told(body, "afpool_calls_total", server="desk", outcome="ok") == 6
        assert told(body, "afpool_call_duration_seconds_count", server="desk") == 6
        assert told(body, "afpool_acquire_wait_seconds_count", server="desk") == 6
        assert told(body, "afpool_sessions", server="desk", state="idle") == 2
        assert told(body, "afpool_sessions", server="desk", state="busy") == 0
        assert told(body, "afpool_sessions_max") == here.runtime.pool.limits.max_clients
        assert told(body, "afpool_sessions_opened_total") == 2
        assert told(body, "afpool_session_create_seconds_count", server="desk") == 2
        assert told(body, "afpool_pending_requests", server="desk") == 0
        assert told(body, "afpool_oldest_waiter_seconds") == 0
        assert told(body, "afpool_refusals_total", code="unknown-tool") == 1
        assert told(body, "afpool_record_entries") == 7
        assert told(body, "afpool_record_bytes") == here.runtime.pool.records.bytes > 0
        assert told(body, "afpool_events_total", kind="opened") == 2
        assert told(body, "afpool_loop_lag_seconds", stat="max") is not None
        assert (told(body, "process_resident_memory_bytes") or 0) > 2**20
        lint(plain_text(body.decode()))
        opened, kind = prometheus_text(here.runtime, OPEN)
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        families = list(open_metrics(opened.decode()))
        lint(families)


async def test_what_waits_and_runs() -> None:
    gate = trio.Event()

    async def held(arguments: Any, arrival: Any) -> str:
        await gate.wait()
        return "done"

    from afpool.testing import FakeTool

    pool = {"max_operations": 1}
    async with runtime(
        {"desk": [FakeTool("wait", held)]}, record=RecordSettings(numbers=True), pool=pool
    ) as here:
        toolset = await here.runtime.toolset(ALICE)
        async with trio.open_nursery() as nursery:
            for _ in range(3):

                async def call() -> None:
                    await toolset.call("wait", {})

                nursery.start_soon(call)
            with trio.fail_after(60):
                while here.sent("desk") < 1 or here.runtime.pool.waiting < 2:  # noqa: ASYNC110 -- a server's doing
                    await trio.sleep(0.005)
            body, _ = prometheus_text(here.runtime)
            assert told(body, "afpool_pending_requests", server="desk") == 2
            assert told(body, "afpool_running_requests", server="desk") == 1
            assert told(body, "afpool_sessions", server="desk", state="busy") == 1
            assert (told(body, "afpool_oldest_waiter_seconds") or 0) > 0
            gate.set()
        body, _ = prometheus_text(here.runtime)
        assert told(body, "afpool_pending_requests", server="desk") == 0
        assert told(body, "afpool_calls_total", server="desk", outcome="ok") == 3


async def test_tools_and_tenants_only_where_asked_for_and_so_many_at_most() -> None:
    tools = [said("desk", f"tool{number}") for number in range(6)]
    settings = RecordSettings(numbers=True, tools=3, tenants=2)
    async with runtime({"desk": tools}, record=settings) as here:
        for number in range(6):
            who = Identity(tenant=f"tenant-of-{number}", principal="annabelle")
            toolset = await here.runtime.toolset(who)
            await toolset.call(f"tool{number}", {})
        body, _ = prometheus_text(here.runtime)
        assert told(body, "afpool_calls_total", server="desk", tool="tool0", outcome="ok") == 1
        assert told(body, "afpool_calls_total", server="other", tool="other", outcome="ok") == 3
        digest = here.runtime.pool.digest.show("tenant-of-0", "t")
        assert told(body, "afpool_tenant_calls_total", tenant=digest, outcome="ok") == 1
        assert told(body, "afpool_tenant_calls_total", tenant="other", outcome="ok") == 4
        for word in (b"tenant-of", b"annabelle"):
            assert word not in body.replace(b"tenant_calls", b"")
        lint(plain_text(body.decode()))


async def test_nobody_and_nothing_that_a_call_held_stands_in_them() -> None:
    who = Identity(tenant="c4nary-tenant", principal="c4nary-principal", conversation_id="c4nary-chat")
    settings = RecordSettings(numbers=True, tools=10, tenants=10)
    async with runtime({"desk": [said("desk", "echo")]}, record=settings) as here:
        toolset = await here.runtime.toolset(who)
        arguments = {"token": "c4nary-argument"}
        await toolset.call("echo", arguments, call_id="c4nary-call")
        assert (await toolset.call("c4nary-tool", {})).code == "unknown-tool"
        key = here.runtime.pool.key_of(who, "desk")
        here.runtime.pool.invalidate(key=key, reason="c4nary-reason")
        for accept in ("", OPEN):
            body, _ = prometheus_text(here.runtime, accept)
            # names of tools are opted in, but only of those that somebody offers
            assert b"c4nary" not in body
            assert b'tool="echo"' in body


async def test_a_hosts_own_registry_and_thread() -> None:
    async with runtime({"desk": [said("desk", "echo")]}) as here:
        registry = CollectorRegistry()
        collector = PoolCollector(here.runtime)
        registry.register(collector)
        names = [family.name for family in collector.describe()]
        assert len(set(names)) == len(names)
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(PoolCollector(here.runtime))
        toolset = await here.runtime.toolset(ALICE)
        found: list[Any] = []
        stop = threading.Event()

        def scrape() -> None:
            while not stop.is_set():
                found.append(values(registry.collect()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, scrape)
            for _ in range(100):
                await toolset.call("echo", {})
            stop.set()
        count = ("afpool_calls_total", frozenset({("server", "desk"), ("outcome", "ok")}))
        counted = [each.get(count, 0) for each in [*found, values(registry.collect())]]
        assert counted == sorted(counted)
        assert counted[-1] == 100


async def test_every_name_is_there_before_anything_happened() -> None:
    async with runtime() as here:
        body, _ = prometheus_text(here.runtime)
        there = {family.name for family in plain_text(body.decode())}
        assert {
            "afpool_sessions", "afpool_sessions_max", "afpool_pending_requests", "afpool_calls",
            "afpool_oldest_waiter_seconds", "afpool_acquire_wait_seconds", "afpool_refusals",
            "afpool_call_duration_seconds", "afpool_session_create_seconds", "afpool_session_restarts",
            "afpool_loop_lag_seconds", "afpool_stage_seconds", "afpool_record_entries",
            "afpool_record_bytes", "afpool_sink_dropped",
        } <= there  # fmt: skip


async def test_sinks_stand_there_with_what_they_dropped(tmp_path: Any) -> None:
    from afpool.record import JsonlSettings

    settings = RecordSettings(
        jsonl=JsonlSettings(path=tmp_path / "nowhere" / "x.jsonl", queue=1), numbers=True
    )
    async with runtime({"desk": [said("desk", "echo")]}, record=settings) as here:
        toolset = await here.runtime.toolset(ALICE)
        for _ in range(5):
            await toolset.call("echo", {})
        with trio.fail_after(60):
            while here.runtime.sinks.states()[0].trouble is None:  # noqa: ASYNC110 -- a thread's doing
                await trio.sleep(0.01)
        body, _ = prometheus_text(here.runtime)
        state = here.runtime.sinks.states()[0]
        assert told(body, "afpool_sink_trouble", sink="jsonl") == 1
        assert told(body, "afpool_sink_dropped_total", sink="jsonl") == state.dropped > 0
