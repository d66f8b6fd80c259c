"""Requests at the service as OpenTelemetry has them: below the client's span, above the call's."""

from __future__ import annotations

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from afpool.record import OpenTelemetry, RecordSettings
from afpool.testing import echo_tool, fail_tool, sleep_tool
from tests.serve.serve_kit import place

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Telemetry:
    def __init__(self):
        self.exporter = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.otel = OpenTelemetry(tracer_provider=tracers, meter_provider=MeterProvider([self.reader]))

    @property
    def runtime(self):
        return {"record": RecordSettings(tracing=self.otel)}

    def of_kind(self, kind):
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    def labels(self, name):
        return [
            dict(point.attributes)
            for resource in self.reader.get_metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


async def test_a_call_in_the_stateless_era_is_below_its_clients_span(tmp_path):
    seen = Telemetry()
    async with place(tmp_path, runtime=seen.runtime) as one:
        meta = {"traceparent": PARENT, "tracestate": "vendor=1"}
        client = one.client()
        await client.modern_rpc("tools/list")
        answer = await client.modern_rpc("tools/call", {"name": "echo", "arguments": {"n": 1}}, meta=meta)
        assert not answer.json["result"].get("isError")
        sent = [each.params["_meta"] for each in one.server.log if each.method == "tools/call"]
    server = seen.of_kind(SpanKind.SERVER)[-1]
    (call,) = seen.of_kind(SpanKind.CLIENT)
    assert server.name == "tools/call echo"
    assert f"{server.parent.trace_id:032x}" == TRACE
    assert f"{server.parent.span_id:016x}" == "b7ad6b7169203331"
    assert call.parent.span_id == server.get_span_context().span_id
    assert sent[0]["traceparent"].startswith(f"00-{TRACE}-{call.get_span_context().span_id:016x}-")
    assert sent[0]["tracestate"] == "vendor=1"
    assert dict(server.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "jsonrpc.request.id": "2",
    }


async def test_in_a_session_the_header_tells_of_the_clients_span(tmp_path):
    seen = Telemetry()
    async with place(tmp_path, runtime=seen.runtime) as one:
        client = await one.opened()
        await client.call("echo", headers={"traceparent": PARENT})
        await client.call("echo", headers={"traceparent": "not one"})
    first, second = [span for span in seen.of_kind(SpanKind.SERVER) if span.name == "tools/call echo"]
    assert f"{first.parent.span_id:016x}" == "b7ad6b7169203331"
    assert second.parent is None
    names = {span.name for span in seen.of_kind(SpanKind.SERVER)}
    assert names == {"initialize", "tools/call echo"}


@pytest.mark.parametrize("name", ["lost", "made up by a model"])
async def test_a_name_that_nobody_offers_stands_nowhere(tmp_path, name):
    seen = Telemetry()
    async with place(tmp_path, runtime=seen.runtime) as one:
        client = await one.opened()
        assert (await client.call(name))["isError"]
        await client.rpc("secret/method")
    called, other = [span for span in seen.of_kind(SpanKind.SERVER) if span.name != "initialize"]
    assert called.name == "tools/call"
    assert called.attributes["error.type"] == "unknown-tool"
    assert other.name == "_OTHER"
    assert other.attributes["error.type"] == "-32601"
    labels = seen.labels("mcp.server.operation.duration")
    assert {each.get("gen_ai.tool.name") for each in labels} == {None, "_OTHER"}
    everything = str([span.to_json() for span in seen.exporter.get_finished_spans() if span is not called])
    assert "secret/method" not in everything


async def test_a_tool_that_failed_is_told_on_both_spans(tmp_path):
    seen = Telemetry()
    async with place(tmp_path, servers={"desk": [fail_tool()]}, runtime=seen.runtime) as one:
        client = await one.opened()
        assert (await client.call("fail"))["isError"]
    server = seen.of_kind(SpanKind.SERVER)[-1]
    (call,) = seen.of_kind(SpanKind.CLIENT)
    assert server.attributes["error.type"] == call.attributes["error.type"] == "tool_error"
    assert server.status.status_code is call.status.status_code is StatusCode.ERROR


async def test_a_client_that_goes_away_ends_its_spans(tmp_path):
    seen = Telemetry()
    async with place(tmp_path, servers={"desk": [sleep_tool()]}, runtime=seen.runtime) as one:
        client = await one.opened()
        gone = trio.Event()
        params = {"name": "sleep", "arguments": {"seconds": 60}}
        answer = client.begin(message=client.request("tools/call", params), gone=gone)
        with trio.fail_after(5):
            while not one.server.executions["sleep"]:  # noqa: ASYNC110 -- the server has no event for it
                await trio.sleep(0.005)
        gone.set()
        with trio.fail_after(5):
            await answer.ended.wait()
    (server,) = [span for span in seen.of_kind(SpanKind.SERVER) if span.name.startswith("tools/call")]
    assert server.attributes["error.type"] == "cancelled"
    assert not trace.get_current_span().is_recording()


async def test_tenants_and_tokens_are_in_no_span_and_no_metric(tmp_path):
    seen = Telemetry()
    async with place(tmp_path, servers={"desk": [echo_tool()]}, runtime=seen.runtime) as one:
        client = await one.opened()
        await client.call("echo", {"secret": "canary-argument"})
        tokens = list(one.texts.values())
    told = "".join(span.to_json() for span in seen.exporter.get_finished_spans())
    told += seen.reader.get_metrics_data().to_json()
    for word in ("alice", "acme", "canary-argument", *tokens):
        assert word not in told
