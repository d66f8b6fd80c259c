"""Everything that tells of calls, switched on for a tour: files, functions, sinks, spans, metrics, a console.

What each of them was told is collected when the runtime is closed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs
from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from afpool.console import ConsoleSettings
from afpool.record import JsonlSettings, OpenTelemetry, RecordSettings, event_as_json, use_as_json
from tests.canary.forms import CANARIES

if TYPE_CHECKING:
    from pathlib import Path

    from afpool import Use
    from tests.canary.collecting import Collected
    from tests.canary.town import Town

ROTATED = 64 * 1024
TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]")


class Kept:
    """A sink of the host's own, which keeps what it is given as it is."""

    dropped = 0

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.events: list[Any] = []

    def file(self, use: Use) -> None:
        """Keep a call."""
        self.uses.append(use)

    def event(self, event: Any) -> None:
        """Keep an event."""
        self.events.append(event)

    async def aclose(self) -> None:
        """Nothing is left to do."""


@attrs.define(eq=False)
class Switched:
    """What a runtime is opened with.

    Attributes:
        folder: Of the console's socket; its path has to be short.
        files: Where the file of records is.
        told: What the host's function was told.
    """

    folder: Path
    files: Path
    told: list[dict[str, Any]] = attrs.field(factory=list)
    sink: Kept = attrs.field(factory=Kept)
    spans: InMemorySpanExporter = attrs.field(factory=InMemorySpanExporter)
    metrics: InMemoryMetricReader = attrs.field(factory=InMemoryMetricReader)

    def fields(self) -> dict[str, Any]:
        """Fields of the runtime's configuration."""
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        meters = MeterProvider([self.metrics])
        # a host's own baggage is current wherever calls are made: it is nobody's but the host's
        context.attach(baggage.set_baggage("whose", CANARIES["baggage"]))
        return {
            "record": RecordSettings(
                jsonl=JsonlSettings(path=self.files / "calls.jsonl", max_bytes=ROTATED, keep=1_000),
                on_record=self.told.append,
                sinks=[self.sink],
                tracing=OpenTelemetry(tracer_provider=tracers, meter_provider=meters, arguments=True),
                numbers=True,
                tools=50,
                tenants=50,
            ),
            "console": ConsoleSettings(
                name="town", directory=self.folder, bind="127.0.0.1:0",
                read_token=CANARIES["console read"], operate_token=CANARIES["console operate"],
            ),
        }  # fmt: skip

    def collect_metrics(self, collected: Collected) -> None:
        """Keep the metrics, while there is a pool that they are read from."""
        data = self.metrics.get_metrics_data()
        assert data is not None
        text = data.to_json()
        assert "mcp.client.operation.duration" in text
        collected.text("metric", text)

    def collect(self, here: Town) -> None:
        """Keep all that was told, after the runtime was closed; none of it was told nothing."""
        collected, runtime = here.collected, here.runtime
        digests, unix = runtime.record.digests, 0.0
        for event in self.sink.events:
            collected.text("event as JSON", json.dumps(event_as_json(event, unix=unix), default=repr))
        for use in self.sink.uses:
            collected.text("use as JSON", json.dumps(use_as_json(use, digest=digests, unix=unix)))
        for record in self.told:
            collected.text("record told", json.dumps(record, default=repr))
        for file in sorted(self.files.iterdir()):
            for line in file.read_text("utf-8").splitlines():
                collected.text(f"record in {file.name}", line)
        assert sum(record["kind"] == "call" for record in self.told) == len(self.sink.uses) > 10
        assert len(self.told) == len(self.sink.uses) + len(self.sink.events)
        assert self.sink.events
        self._collect_spans(collected)
        self._collect_traces(here)

    def _collect_spans(self, collected: Collected) -> None:
        spans = self.spans.get_finished_spans()
        assert {SpanKind.CLIENT, SpanKind.INTERNAL} <= {span.kind for span in spans}
        assert any("gen_ai.tool.call.arguments" in (span.attributes or {}) for span in spans)
        for span in spans:
            told = span.to_json()
            # whatever hides values is at work, and not only whatever is given none
            collected.text("span", told)
            collected.text("span", repr((dict(span.attributes or {}), span.events, span.status.description)))

    def _collect_traces(self, here: Town) -> None:
        """What servers were told of traces: two numbers, and nothing of the host's."""
        told = 0
        for server in here.servers.values():
            for arrival in server.log:
                assert "baggage" not in arrival.headers
                meta = arrival.params.get("_meta") or {}
                assert "baggage" not in meta
                if "traceparent" in meta:
                    told += 1
                    assert TRACEPARENT.fullmatch(meta["traceparent"])
                    here.collected.text("traceparent", f"{meta['traceparent']} {meta.get('tracestate')!r}")
        assert told > 5
