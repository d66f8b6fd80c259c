"""What OpenTelemetry's conventions for MCP call things, and what of a call goes by which name.

Names are those of the semantic conventions for MCP and generative AI; what they have no name for stands
under `afpool.`. Values come from a fixed set wherever they are labels of a metric: a name that a model or a
stranger made up is told as `_OTHER` once there are too many of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..client import HttpTransport, StdioTransport, WebSocketTransport
from ..transports import origin_of

if TYPE_CHECKING:
    from .._base.use import Use
    from ..client import Client

CALL: Final = "tools/call"
PROMPT: Final = "prompts/get"
OTHER: Final = "_OTHER"
NAMES_KEPT: Final = 1_000
"""Different tool names in metrics."""

SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Buckets of the durations, as the conventions advise."""

_RPC_ERROR: Final = re.compile(r"error (-?\d{1,10})\Z")


def span_name(use: Use) -> str:
    """Name a call's span: its method, and what it is about where that is one of a known few."""
    if not use.method:
        return f"execute_tool {use.tool}" if use.tool else "execute_tool"
    # a name that nobody lists was made up by a model
    return f"{use.method} {use.tool}" if use.tool and use.server else use.method


def attributes_at_start(use: Use) -> dict[str, Any]:
    """What is known of a call before it has done anything, for samplers."""
    told: dict[str, Any] = {"afpool.call.id": use.call_id}
    if use.method:
        told["mcp.method.name"] = use.method
    if use.server:
        told["afpool.server"] = use.server
    if use.method in (CALL, ""):
        told["gen_ai.operation.name"] = "execute_tool"
        if use.tool:
            told["gen_ai.tool.name"] = use.tool
    elif use.method == PROMPT and use.tool:
        told["gen_ai.prompt.name"] = use.tool
    return told


def is_made_up(use: Use) -> bool:
    """Whether a call is of a tool that nobody offers: a model made its name up."""
    return use.code == "unknown-tool" and not use.server


def error_type(use: Use) -> str | None:
    """Say what kind of failure a call ended with: `tool_error`, a JSON-RPC code, or afpool's code."""
    if use.code is None:
        return "tool_error" if use.tool_error else None
    return rpc_error(use) or use.code


def rpc_error(use: Use) -> str | None:
    """The code of the JSON-RPC error that was its answer."""
    if use.code != "server-error":
        return None
    for stage, word, _ in reversed(use.facts or ()):
        if stage == "answer" and (found := _RPC_ERROR.match(word)) is not None:
            return found[1]
    return None


def label_of_error(kind: str) -> str:
    """Cut an error's kind to a fixed set: a server may answer with any number."""
    if kind.lstrip("-").isdigit():
        return kind if -32_768 <= int(kind) <= -32_000 else OTHER
    return kind


def attributes_at_end(use: Use) -> dict[str, Any]:
    """What a call came to."""
    told: dict[str, Any] = {"afpool.outcome": use.outcome or "failed"}
    if use.delivery is not None:
        told["afpool.delivery"] = use.delivery
    kind = error_type(use)
    if kind is not None:
        told["error.type"] = kind
        code = rpc_error(use)
        if code is not None:
            told["rpc.response.status_code"] = code
    if use.code is not None:
        told["afpool.code"] = use.code
    if is_made_up(use):
        told["gen_ai.tool.name"] = OTHER
    if use.request_id is not None:
        told["jsonrpc.request.id"] = str(use.request_id)
    if use.client_id is not None:
        told["afpool.client.id"] = use.client_id
    if use.generation is not None:
        told["afpool.list.generation"] = use.generation
    if use.attempts > 1:
        told["afpool.attempts"] = use.attempts
    if use.run_id is not None:
        told["afpool.run.id"] = use.run_id
    if use.repeated_of is not None:
        told["afpool.repeated_of"] = use.repeated_of
    if use.cause is not None:
        told["afpool.cause"] = use.cause
    return told


def attributes_of(client: Client) -> dict[str, Any]:
    """Where a client's requests go, and how; no path, no session and nothing that a URL may hide."""
    told: dict[str, Any] = {}
    negotiated = client.negotiated
    if negotiated is not None:
        told["mcp.protocol.version"] = negotiated.version
    transport = client.plan.transport
    if isinstance(transport, StdioTransport):
        told["network.transport"] = "pipe"
    elif isinstance(transport, HttpTransport):
        told["network.transport"] = "tcp" if transport.uds is None else "unix"
        told["network.protocol.name"] = "http"
        told["server.address"] = transport.origin.host
        told["server.port"] = transport.origin.port
    elif isinstance(transport, WebSocketTransport):
        told["network.transport"] = "tcp"
        told["network.protocol.name"] = "websocket"
        origin, _ = origin_of(transport.url, schemes=("ws", "wss"))
        told["server.address"] = origin.host
        told["server.port"] = origin.port
    return told


class Names:
    """Names that are labels: the first so many as they are, all others as one."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: set[str] = set()

    def label(self, name: str) -> str:
        """Give the label of a name."""
        kept = self._kept
        if name in kept:
            return name
        if len(kept) >= NAMES_KEPT:
            return OTHER
        kept.add(name)
        return name
