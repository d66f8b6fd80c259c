"""OpenTelemetry: a span for each call, its server told of it, and the durations as metrics.

By the semantic conventions for MCP. Rules:

* A call is one span (kind client), from where it was asked for to where it was filed; a tool of the host's
  own is one of kind internal. It is current while the call runs, in the caller's context: what a tool does
  inside is below it.
* Where the caller's own instrumentation traces the same tool's execution already, the attributes go on that
  span, and no second one is made.
* A server is told `traceparent` (and `tracestate`) in `_meta`, on every attempt the same. Baggage is not
  passed on: it is the host's, and the server a stranger.
* No argument, no result, no identity and no address of a session is in a span or a metric, unless arguments
  as they may be shown are asked for.
* Telemetry that fails costs no call, and whatever fails: what was made current for a call is not current any
  more after it. Several may trace one pool: the last one's span is below the others', and ends first.
"""

from __future__ import annotations

import time
from contextvars import Token  # noqa: TC003 -- part of an annotation that is evaluated
from typing import TYPE_CHECKING, Any, Final, final

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .._base.version import own_version
from ._otel_names import (
    OTHER,
    SECONDS,
    Names,
    attributes_at_end,
    attributes_at_start,
    attributes_of,
    error_type,
    is_made_up,
    label_of_error,
    span_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from .._base.use import Use
    from ..pool import Event, Pool

SCOPE: Final = "afpool"
MOST_STAGES: Final = 64
W3C: Final = TraceContextTextMapPropagator()


@final
class _Traced:
    """The span of one call, as one of those keeps it who trace it.

    Attributes:
        span: The span.
        token: Ends that it is current; `None` where it was not made so.
        own: It was made for the call, and not by whoever asked for it.
        owner: Who traces the call by it.
        before: Who traced it already: what its use held then.
    """

    __slots__ = ("before", "own", "owner", "span", "token")

    def __init__(
        self, span: Span, token: Token[Any] | None, *, own: bool, owner: OpenTelemetry, before: object
    ) -> None:
        self.span = span
        self.token = token
        self.own = own
        self.owner = owner
        self.before = before


@final
class OpenTelemetry:
    """Traces and measures the calls of pools.

    Args:
        tracer_provider: Where spans go; OpenTelemetry's global provider when absent.
        meter_provider: Where metrics go; the global one when absent.
        propagate: Whether servers are told of the span in `_meta`.
        stages: Whether the stages of a call are events of its span.
        arguments: Whether a span holds the arguments, as they may be shown. They are data of people.

    `attach` puts it to work. It needs `pip install 'afpool[otel]'`, and an SDK of OpenTelemetry's to go
    anywhere.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagate: bool = True,
        stages: bool = True,
        arguments: bool = False,
    ) -> None:
        self.tracer = trace.get_tracer(SCOPE, own_version(), tracer_provider)
        self.meter = metrics.get_meter(SCOPE, own_version(), meter_provider)
        self._propagate = propagate
        self._stages = stages
        self._arguments = arguments
        self._durations = self.histogram(
            "mcp.client.operation.duration", "of a request, as its caller saw it"
        )
        self._sessions = self.histogram("mcp.client.session.duration", "of a client, from opening to end")
        self._tools = Names()
        self._pools: list[_Attached] = []
        gauge = self.meter.create_observable_up_down_counter
        gauge("mcp.client.connection.count", [self._clients], "{connection}", "Open clients, by state.")
        gauge(
            "mcp.client.connection.pending_requests",
            [self._pending],
            "{request}",
            "Calls that wait for a place.",
        )

    def histogram(self, name: str, what: str) -> metrics.Histogram:
        """Make a histogram of durations with the buckets that the conventions advise."""
        about = f"Duration {what}."
        return self.meter.create_histogram(name, "s", about, explicit_bucket_boundaries_advisory=SECONDS)

    def attach(self, pool: Pool) -> Callable[[], None]:
        """Trace a pool's calls from now on. Synchronous; to do it twice is to do it once.

        Returns:
            What ends it; calls that run then end their spans all the same.
        """
        attached = next((each for each in self._pools if each.pool is pool), None)
        if attached is None:
            attached = _Attached(self, pool)
            self._pools.append(attached)

        def detach() -> None:
            if attached in self._pools:
                self._pools.remove(attached)
                attached.stop()

        return detach

    # ------------------------------------------------------------------ calls

    def begin(self, use: Use) -> None:
        """Begin a call's span, in the context of its caller."""
        outer = trace.get_current_span()
        told = attributes_at_start(use)
        if _same_execution(outer, use):
            outer.set_attributes(told)  # now: no other call is to take it for its own
            traced = _Traced(outer, None, own=False, owner=self, before=use.span)
        else:
            kind = SpanKind.CLIENT if use.method else SpanKind.INTERNAL
            span = self.tracer.start_span(span_name(use), kind=kind, attributes=told)
            token = contexts.attach(trace.set_span_in_context(span))
            traced = _Traced(span, token, own=True, owner=self, before=use.span)
        use.span = traced
        if self._propagate and traced.span.get_span_context().is_valid:
            carried: dict[str, str] = {}
            W3C.inject(carried, trace.set_span_in_context(traced.span))
            use.trace = carried.get("traceparent")
            use.trace_state = carried.get("tracestate")

    def traces(self, use: Use) -> bool:
        """Whether it has begun a call and not ended it."""
        return any(each.owner is self for each in _chain(use))

    def end(self, use: Use, now: float, where: dict[str, Any]) -> None:
        """End it, with what the call came to.

        Args:
            use: The call.
            now: On the runtime's clock.
            where: What is known of the client that it went to.
        """
        traced = self._taken(use)
        if traced is not None and traced.token is not None:
            contexts.detach(traced.token)
        try:
            if use.method:
                self._measure(use, now, where)
            if traced is not None:
                self._tell(traced, use, now, where)
        finally:
            if traced is not None and traced.own:
                traced.span.end()

    def _taken(self, use: Use) -> _Traced | None:
        """Take its span out of a use."""
        above: _Traced | None = None
        for each in _chain(use):
            if each.owner is self:
                if above is None:
                    use.span = each.before
                else:
                    above.before = each.before
                return each
            above = each
        return None

    def _tell(self, traced: _Traced, use: Use, now: float, where: dict[str, Any]) -> None:
        span = traced.span
        if span.is_recording():
            start = {} if traced.own else attributes_at_start(use)  # as it is known by now
            span.set_attributes({**start, **attributes_at_end(use), **where})
            if traced.own and is_made_up(use):
                span.update_name("execute_tool")
            if self._arguments and use.shown is not None:
                span.set_attribute("gen_ai.tool.call.arguments", use.shown.decode("utf-8", "replace"))
            if self._stages:
                _add_stages(span, use, now)
            kind = error_type(use)
            if kind is not None and traced.own:
                span.set_status(Status(StatusCode.ERROR, kind))

    def _measure(self, use: Use, now: float, where: dict[str, Any]) -> None:
        labels: dict[str, Any] = {"mcp.method.name": use.method, **where}
        if use.server:
            labels["afpool.server"] = use.server
        if use.method == "tools/call":
            labels["gen_ai.operation.name"] = "execute_tool"
            labels["gen_ai.tool.name"] = self._tools.label(use.tool) if use.server else OTHER
        kind = error_type(use)
        if kind is not None:
            labels["error.type"] = label_of_error(kind)
        ended = now if use.ended_at is None else use.ended_at
        self._durations.record(ended - use.began_at, labels)

    def session_ended(self, seconds: float, where: dict[str, Any], why: str | None) -> None:
        """Measure a client that is closed."""
        self._sessions.record(seconds, where if why is None else {**where, "error.type": why})

    # ------------------------------------------------------------------ numbers that are asked for

    def _clients(self, _: metrics.CallbackOptions) -> list[metrics.Observation]:
        seen: list[metrics.Observation] = []
        for attached in tuple(self._pools):
            count = {"used": 0, "idle": 0}
            for used in attached.states():
                count["used" if used else "idle"] += 1
            seen += [metrics.Observation(number, {"state": state}) for state, number in count.items()]
        return seen

    def _pending(self, _: metrics.CallbackOptions) -> list[metrics.Observation]:
        return [
            metrics.Observation(attached.pool.waiting + attached.pool.admission.waiting)
            for attached in tuple(self._pools)
        ]


@final
class _Attached:
    """One pool whose calls are traced: what its clients are, as long as they are open."""

    __slots__ = ("_open", "_otel", "_stop", "_stopped", "_under_way", "pool")

    def __init__(self, otel: OpenTelemetry, pool: Pool) -> None:
        self._otel = otel
        self.pool = pool
        now = pool.seams.now()
        self._open: dict[int, tuple[float, dict[str, Any]]] = {
            number: (now, attributes_of(client)) for number, client in pool.openings.clients.items()
        }
        self._stopped = False
        self._under_way = 0  # calls that it has begun and not ended
        pool.records.tracers += (self,)
        self._stop = pool.records.tap(on_event=self._event)

    def stop(self) -> None:
        """Trace no further call, and those under way to their end."""
        self._stopped = True
        self._stop()
        self._leave()

    def _leave(self) -> None:
        if self._stopped and not self._under_way:
            records = self.pool.records
            records.tracers = tuple(each for each in records.tracers if each is not self)

    def begin(self, use: Use) -> None:
        """As `OpenTelemetry.begin`."""
        if self._stopped:
            return
        try:
            self._otel.begin(use)
        finally:
            self._under_way += self._otel.traces(use)

    def end(self, use: Use) -> None:
        """As `OpenTelemetry.end`."""
        mine = self._otel.traces(use)
        if self._stopped and not mine:
            return
        where = self._open.get(use.client_id or 0)
        try:
            self._otel.end(use, self.pool.seams.now(), {} if where is None else where[1])
        finally:
            self._under_way -= mine
            self._leave()

    def states(self) -> list[bool]:
        """Whether each open client is used now."""
        # asked from a thread of the exporter's: what is read is a copy
        used = set()
        for actor in tuple(self.pool.kept):
            client = actor.machine.client
            if client is not None and client.leases:
                used.add(client.id)
        return [number in used for number in tuple(self._open)]

    def _event(self, event: Event) -> None:
        number = event.facts.get("client")
        if not isinstance(number, int):
            return
        if event.kind == "opened":
            client = self.pool.openings.clients.get(number)
            if client is not None:
                self._open[number] = (event.at, attributes_of(client))
        elif event.kind == "closed" and (known := self._open.pop(number, None)) is not None:
            self._otel.session_ended(event.at - known[0], known[1], None)


def _chain(use: Use) -> Iterator[_Traced]:
    """Go through what traces a call, the last first."""
    each = use.span
    while isinstance(each, _Traced):
        yield each
        each = each.before


def _same_execution(outer: Span, use: Use) -> bool:
    """Whether the caller's instrumentation traces the execution of the same tool already."""
    if not outer.is_recording() or use.method not in ("tools/call", ""):
        return False
    # only a SDK's span can be read
    said = getattr(outer, "attributes", None)
    return (
        said is not None
        and said.get("gen_ai.operation.name") == "execute_tool"
        and said.get("gen_ai.tool.name") in (use.tool, use.name)
        and said.get("afpool.call.id") is None  # else it is another call's
    )


def _add_stages(span: Span, use: Use, now: float) -> None:
    """Add the ends of a call's stages as events, at the times when they were."""
    wall = time.time_ns()
    marks = use.marks[: 2 * MOST_STAGES]
    for stage, at in zip(marks[::2], marks[1::2], strict=False):
        span.add_event(str(stage), timestamp=wall - int((now - float(at)) * 1e9))
