"""A span for each request that the service answers, below the one that its client tells of.

By the semantic conventions for MCP: kind server, `traceparent` from the request's `_meta` (2026-07-28,
SEP-414), else from the header of its HTTP request. Rules:

* It is current while the request is answered: the call's own span, and what a tool does, is below it.
* A name of a tool that nobody offers is in no span and no metric: a model made it up.
* Nothing of an argument, of a result or of who called is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from opentelemetry import context as contexts
from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span, set_span_in_context

from ..record._otel import W3C
from ..record._otel_names import OTHER, Names, label_of_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from ..record import OpenTelemetry
    from ._asked import Asked

_KNOWN: Final = frozenset(
    {
        "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list",
        "resources/list", "resources/read", "resources/subscribe", "resources/templates/list",
        "resources/unsubscribe", "server/discover", "subscriptions/listen", "tools/call", "tools/list",
    }
)  # fmt: skip
_CALL: Final = "tools/call"


@final
class Spans:
    """Traces and measures what a service answers.

    Args:
        telemetry: What traces the runtime's calls.
    """

    def __init__(self, telemetry: OpenTelemetry) -> None:
        self._tracer = telemetry.tracer
        self._durations = telemetry.histogram("mcp.server.operation.duration", "of a request, as answered")
        self._tools = Names()

    def begin(self, asked: Asked, now: float) -> Spanned:
        """Begin a request's span, and make it current."""
        method = asked.message.method
        told: dict[str, Any] = {
            "mcp.method.name": method if method in _KNOWN else OTHER,
            "mcp.protocol.version": asked.version,
        }
        if method == _CALL:
            told["gen_ai.operation.name"] = "execute_tool"
        span = self._tracer.start_span(
            str(told["mcp.method.name"]),
            context=_parent(asked),
            kind=SpanKind.SERVER,
            attributes={**told, "jsonrpc.request.id": str(asked.message.id)},
        )
        return Spanned(span, contexts.attach(set_span_in_context(span)), told, now)

    def end(self, spanned: Spanned, asked: Asked, now: float, error: str | None) -> None:
        """End it.

        Args:
            spanned: What `begin` gave.
            asked: The request.
            now: On the runtime's clock.
            error: What kind of failure it was answered with, where it was one.
        """
        contexts.detach(spanned.token)
        span, labels = spanned.span, spanned.labels
        if asked.tool is not None:
            span.update_name(f"{_CALL} {asked.tool}")
            span.set_attribute("gen_ai.tool.name", asked.tool)
        if labels["mcp.method.name"] == _CALL:
            labels["gen_ai.tool.name"] = OTHER if asked.tool is None else self._tools.label(asked.tool)
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, error))
            labels["error.type"] = label_of_error(error)
        self._durations.record(now - spanned.began_at, labels)
        span.end()


@final
class Spanned:
    """The span of one request."""

    __slots__ = ("began_at", "labels", "span", "token")

    def __init__(self, span: Span, token: Token[Context], labels: dict[str, Any], began_at: float) -> None:
        self.span = span
        self.token = token
        self.labels = labels
        self.began_at = began_at


def _parent(asked: Asked) -> Context | None:
    """The span that the client tells of; `None` where it tells of none that can be read."""
    meta = asked.message.params.get("_meta")
    for carrier in (meta, asked.carrier):
        if carrier and (found := _read(carrier)) is not None:
            return found
    return None


def _read(carrier: Mapping[str, Any]) -> Context | None:
    told = {
        name: value for name in ("traceparent", "tracestate") if isinstance(value := carrier.get(name), str)
    }
    if "traceparent" not in told:
        return None
    found = W3C.extract(told)
    return found if get_current_span(found).get_span_context().is_valid else None
