"""Spans and durations, as OpenTelemetry's own SDK has them."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from afpool import HttpTransport, Identity, Plan, Server, define_tool, open_pool, open_runtime
from afpool._base.use import Use
from afpool.record import OpenTelemetry
from afpool.record._otel_names import (
    NAMES_KEPT,
    OTHER,
    Names,
    error_type,
    label_of_error,
    span_name,
)
from afpool.testing import FakeServer, Hang, Hold, JsonRpcError, Status, echo_tool, fail_tool

ALICE = Identity("acme", "alice", "c1")


class Telemetry:
    """An SDK of OpenTelemetry's in memory."""

    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.otel = OpenTelemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self):
        return self.exporter.get_finished_spans()

    def span(self, name):
        found = [span for span in self.spans() if span.name == name]
        assert len(found) == 1, [span.name for span in self.spans()]
        return found[0]

    def points(self, name):
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def pool_of(desk, **options):
    return open_pool([Server(name="desk", plan=Plan(transport=HttpTransport(url=desk.url)))], **options)


@pytest.mark.parametrize(("era", "version"), [("handshake", "2025-11-25"), ("stateless", "2026-07-28")])
async def test_a_call_is_one_span_and_its_server_is_told_of_it(era, version):
    seen = Telemetry()
    async with FakeServer.http(era=era, tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        with seen.tracers.get_tracer("agent").start_as_current_span("turn") as turn:
            await tools["echo"].call({"n": 1}, identity=ALICE, call_id="mine")
        sent = [each for each in desk.log if each.method == "tools/call"]
    span = seen.span("tools/call echo")
    assert span.kind is SpanKind.CLIENT
    assert span.parent.span_id == turn.get_span_context().span_id
    context = span.get_span_context()
    told = sent[0].params["_meta"]["traceparent"]
    assert told.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    about = dict(span.attributes)
    assert about == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": version,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "jsonrpc.request.id": str(sent[0].id),
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": "127.0.0.1",
        "server.port": int(desk.url.split(":")[2].split("/")[0]),
        "afpool.call.id": "mine",
        "afpool.server": "desk",
        "afpool.outcome": "ok",
        "afpool.delivery": "answered",
        "afpool.client.id": about["afpool.client.id"],
        "afpool.list.generation": 1,
    }
    assert span.status.status_code is StatusCode.UNSET
    stages = [event.name for event in span.events]
    assert stages[0] == "start"
    assert "sent" in stages
    times = [event.timestamp for event in span.events]
    assert times == sorted(times)
    assert span.start_time - 50_000_000 < times[0] <= times[-1] < span.end_time + 50_000_000


async def test_what_the_host_does_not_trace_is_a_root_and_lists_are_no_calls():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        await tools["echo"].call({}, identity=ALICE)
        meta = [each.params.get("_meta", {}) for each in desk.log if each.method != "tools/call"]
    assert [span.name for span in seen.spans()] == ["tools/call echo"]
    assert seen.spans()[0].parent is None
    assert not any("traceparent" in each for each in meta)


async def test_every_attempt_tells_the_same_span():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        desk.on("tools/call", Status(429, headers={"retry-after": "0"}), times=1)
        tools = await pool.tools(ALICE)
        await tools["echo"].call({}, identity=ALICE)
        told = [each.params["_meta"]["traceparent"] for each in desk.log if each.method == "tools/call"]
    assert len(told) == 2
    assert len(set(told)) == 1
    assert seen.span("tools/call echo").attributes["afpool.attempts"] == 2


async def test_without_propagation_a_server_is_told_nothing():
    seen = Telemetry(propagate=False)
    async with FakeServer.http(era="handshake", tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        await tools["echo"].call({}, identity=ALICE)
        sent = [each for each in desk.log if each.method == "tools/call"]
    assert "traceparent" not in sent[0].params.get("_meta", {})
    assert len(seen.spans()) == 1


async def test_a_tool_that_failed_a_refusal_and_an_error_of_the_server():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool(), fail_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        desk.on("tools/call", JsonRpcError(-32603, "no"), tool="echo")
        tools = await pool.tools(ALICE)
        assert (await tools["fail"].call({}, identity=ALICE)).is_error
        with pytest.raises(Exception, match="no"):
            await tools["echo"].call({}, identity=ALICE)
        pool.invalidate(identity=ALICE)
        with pytest.raises(Exception, match="revoked"):
            await tools["fail"].call({}, identity=ALICE)
    failed, wrong, refused = seen.spans()
    assert failed.attributes["error.type"] == "tool_error"
    assert wrong.attributes["error.type"] == wrong.attributes["rpc.response.status_code"] == "-32603"
    assert wrong.attributes["afpool.code"] == "server-error"
    assert refused.attributes["error.type"] == "binding-changed"
    assert refused.attributes["afpool.outcome"] == "refused"
    assert refused.attributes["afpool.delivery"] == "not-sent"
    assert {span.status.status_code for span in (failed, wrong, refused)} == {StatusCode.ERROR}
    kinds = {point.attributes.get("error.type") for point in seen.points("mcp.client.operation.duration")}
    assert kinds == {"tool_error", "-32603", "binding-changed"}


async def test_a_cancelled_call_ends_its_span_and_leaves_no_current_one():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk, close_timeout=0.05) as pool:
        seen.otel.attach(pool)
        desk.on("tools/call", Hang())
        tools = await pool.tools(ALICE)
        with trio.move_on_after(0.05):
            await tools["echo"].call({}, identity=ALICE)
        assert not trace.get_current_span().is_recording()
    span = seen.span("tools/call echo")
    assert span.attributes["error.type"] == "cancelled"
    assert span.attributes["afpool.delivery"] == "in-doubt"


async def test_an_execution_that_is_traced_already_gets_no_second_span():
    seen = Telemetry()
    agent = seen.tracers.get_tracer("agent")
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo"}
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        with agent.start_as_current_span("execute_tool echo", attributes=about) as outer:
            await tools["echo"].call({}, identity=ALICE)
            await tools["echo"].call({}, identity=ALICE)
        sent = [each.params["_meta"]["traceparent"] for each in desk.log if each.method == "tools/call"]
    first, second = (f"{outer.get_span_context().span_id:016x}" in each for each in sent)
    assert first
    assert not second, "one execution is one call; the next call is a span of its own"
    names = [span.name for span in seen.spans()]
    assert names == ["tools/call echo", "execute_tool echo"]
    joined = seen.span("execute_tool echo")
    assert joined.attributes["mcp.method.name"] == "tools/call"
    assert joined.attributes["afpool.outcome"] == "ok"


async def test_through_the_door_one_span_and_what_a_tool_does_is_below_it():
    seen = Telemetry(arguments=True)

    @define_tool
    async def twice(text: str, ctx) -> str:
        """Say it twice."""
        said = await ctx.tools.call("echo", {"text": text})
        return said.text

    async with FakeServer.http(era="handshake", tools=[echo_tool()]) as desk:
        server = Server(name="desk", plan=Plan(transport=HttpTransport(url=desk.url)))
        async with open_runtime(servers=[server], tools=[twice]) as runtime:
            seen.otel.attach(runtime.pool)
            toolset = await runtime.toolset(ALICE)
            await toolset.call("twice", {"text": "a"})
            await toolset.call("lost", {})
    inner, outer, lost = seen.spans()
    assert (inner.name, outer.name, lost.name) == (
        "tools/call echo",
        "execute_tool twice",
        "execute_tool",
    )
    assert inner.parent.span_id == outer.get_span_context().span_id
    assert outer.kind is SpanKind.INTERNAL
    assert inner.kind is SpanKind.CLIENT
    assert lost.attributes["error.type"] == "unknown-tool"
    assert lost.attributes["gen_ai.tool.name"] == "_OTHER"  # a model made it up
    assert inner.attributes["gen_ai.tool.call.arguments"] == '{"text":"a"}'
    labels = {point.attributes["gen_ai.tool.name"] for point in seen.points("mcp.client.operation.duration")}
    assert labels == {"echo"}


async def test_clients_are_counted_and_measured():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        await pool.tools(ALICE)
        states = {
            point.attributes["state"]: point.value for point in seen.points("mcp.client.connection.count")
        }
        assert states == {"idle": 1, "used": 0}
        assert [point.value for point in seen.points("mcp.client.connection.pending_requests")] == [0]
    (session,) = seen.points("mcp.client.session.duration")
    assert session.count == 1
    assert session.attributes["network.transport"] == "tcp"


async def test_a_pool_is_traced_until_it_is_detached():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        detach = seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        detach()
        detach()
        await tools["echo"].call({}, identity=ALICE)
        assert seen.spans() == ()
        assert seen.points("mcp.client.connection.count") == []


async def test_telemetry_that_raises_costs_no_call(monkeypatch):
    seen = Telemetry()

    def broken(*_, **__):
        raise RuntimeError("no telemetry today")

    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        monkeypatch.setattr(seen.otel, "begin", broken)
        monkeypatch.setattr(seen.otel, "end", broken)
        result = await tools["echo"].call({"n": 1}, identity=ALICE)
        assert not result.is_error
        assert pool.records.failures == 2


def a_use(**facts):
    use = Use("call-1", "desk", "search", 0.0)
    for name, value in facts.items():
        setattr(use, name, value)
    return use


def test_names_that_a_stranger_made_up_stay_few():
    names = Names()
    assert [names.label(f"tool-{number}") for number in range(NAMES_KEPT)] == [
        f"tool-{number}" for number in range(NAMES_KEPT)
    ]
    assert names.label("one more") == OTHER
    assert names.label("tool-0") == "tool-0"
    assert label_of_error("-32601") == "-32601"
    assert label_of_error("418") == label_of_error("-1") == OTHER
    assert label_of_error("stale-tools") == "stale-tools"


def test_what_a_span_is_called():
    assert span_name(a_use()) == "tools/call search"
    assert span_name(a_use(server="")) == "tools/call"
    assert span_name(a_use(method="", server="")) == "execute_tool search"
    assert span_name(a_use(method="resources/read", tool="")) == "resources/read"
    assert error_type(a_use()) is None
    assert error_type(a_use(code="server-error")) == "server-error"
    assert error_type(a_use(code="server-error", facts=[("answer", "error -32001", 1.0)])) == "-32001"
    assert error_type(a_use(code="stale-tools", facts=[("answer", "error -32001", 1.0)])) == "stale-tools"


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what an OTLP exporter posts."""

    taken: list[tuple[str, bytes]] = []  # noqa: RUF012 -- one collector at a time

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.taken.append((self.path, body))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collector():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    Collector.taken = []
    try:
        yield f"http://127.0.0.1:{server.server_port}", Collector.taken
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


def test_a_collector_takes_spans_and_metrics_over_otlp():
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    async def calls(otel):
        async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
            otel.attach(pool)
            tools = await pool.tools(ALICE)
            for number in range(3):
                await tools["echo"].call({"n": number}, identity=ALICE)

    with collector() as (address, taken):
        tracers = TracerProvider()
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{address}/v1/traces")))
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{address}/v1/metrics"), 3_600_000
        )
        meters = MeterProvider([reader])
        trio.run(calls, OpenTelemetry(tracer_provider=tracers, meter_provider=meters))
        tracers.shutdown()
        meters.shutdown()
    spans = [
        span.name
        for path, body in taken
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert spans == ["tools/call echo"] * 3
    metrics = {
        metric.name
        for path, body in taken
        if path == "/v1/metrics"
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {"mcp.client.operation.duration", "mcp.client.session.duration"} <= metrics


async def test_calls_at_once_of_one_execution_do_not_share_its_span():
    seen = Telemetry()
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "echo"}
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        agent = seen.tracers.get_tracer("agent")
        with agent.start_as_current_span("execute_tool echo", attributes=about):
            async with trio.open_nursery() as nursery:
                for name in ("one", "two"):
                    nursery.start_soon(lambda name=name: tools["echo"].call({}, identity=ALICE, call_id=name))
    names = [span.name for span in seen.spans()]
    assert sorted(names) == ["execute_tool echo", "tools/call echo"]
    ids = {span.attributes["afpool.call.id"] for span in seen.spans()}
    assert ids == {"one", "two"}


async def test_a_tool_of_the_hosts_own_that_calls_itself_is_two_spans():
    seen = Telemetry()

    @define_tool
    async def down(left: int, ctx) -> str:
        """Count down."""
        return "0" if not left else (await ctx.tools.call("down", {"left": left - 1})).text

    async with open_runtime(tools=[down]) as runtime:
        seen.otel.attach(runtime.pool)
        await (await runtime.toolset(ALICE)).call("down", {"left": 1}, call_id="outer")
    inner, outer = seen.spans()
    assert (inner.name, outer.name) == ("execute_tool down", "execute_tool down")
    assert outer.attributes["afpool.call.id"] == "outer"
    assert inner.parent.span_id == outer.get_span_context().span_id


async def test_two_that_trace_a_pool_leave_nothing_current():
    first, second = Telemetry(), Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        first.otel.attach(pool)
        second.otel.attach(pool)
        second.otel.attach(pool)
        tools = await pool.tools(ALICE)
        await tools["echo"].call({}, identity=ALICE)
        assert not trace.get_current_span().get_span_context().is_valid
        assert pool.records.uses[-1].span is None
        outer, inner = first.span("tools/call echo"), second.span("tools/call echo")
        assert inner.parent.span_id == outer.get_span_context().span_id
        assert outer.parent is None
        for seen in (first, second):
            (point,) = seen.points("mcp.client.operation.duration")
            assert point.count == 1


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside another"])
async def test_a_call_that_runs_when_its_pool_is_detached_ends_its_span(others):
    seen, other = Telemetry(), Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        detach = seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        let_go = trio.Event()
        desk.on("tools/call", Hold(let_go), times=1)

        async def meanwhile():
            await desk.wait_for("tools/call")
            detach()
            if others:
                other.otel.attach(pool)
            await tools["echo"].call({}, identity=ALICE, call_id="later")
            let_go.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(meanwhile)
            await tools["echo"].call({}, identity=ALICE, call_id="mine")
            assert not trace.get_current_span().get_span_context().is_valid
        assert seen.span("tools/call echo").attributes["afpool.call.id"] == "mine"
        (point,) = seen.points("mcp.client.operation.duration")
        assert point.count == 1
        assert len(pool.records.tracers) == int(others)
        assert [span.attributes["afpool.call.id"] for span in other.spans()] == ["later"] * others


async def test_whatever_fails_no_span_stays_current_or_open(monkeypatch):
    seen = Telemetry()

    def broken(*_, **__):
        raise RuntimeError("no telemetry today")

    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        for what in ("_measure", "_tell"):
            with monkeypatch.context() as patched:
                patched.setattr(seen.otel, what, broken)
                await tools["echo"].call({"n": 1}, identity=ALICE)
            assert not trace.get_current_span().get_span_context().is_valid
        assert pool.records.failures == 2
        assert [span.name for span in seen.spans()] == ["tools/call echo"] * 2


async def test_a_call_that_cannot_begin_leaves_no_span_current():
    seen = Telemetry()
    async with FakeServer.http(tools=[echo_tool()]) as desk, pool_of(desk) as pool:
        seen.otel.attach(pool)
        tools = await pool.tools(ALICE)
        with pytest.raises(TypeError):
            await tools["echo"].call({}, identity=ALICE, deadline="soon")
        assert not trace.get_current_span().get_span_context().is_valid
        assert not pool.running
