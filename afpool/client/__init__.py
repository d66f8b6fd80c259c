"""One incarnation of one key: it negotiates, lists, listens, calls and cancels."""

from __future__ import annotations

from ._client import Client
from ._endpoint import Endpoint
from ._errand import Errand, Received
from ._httpx_auth import HttpxAuth
from ._open import open_client
from ._plan import HttpTransport, MemoryTransport, Plan, StdioTransport, Transport, WebSocketTransport
from ._server_requests import (
    ElicitAnswer,
    ElicitRequest,
    Operation,
    Root,
    SampleAnswer,
    SampleRequest,
    ServerRequest,
    ServerRequests,
)
from ._settings import ClientSettings, Hooks, ListAnswer
from ._stages import Stages
from ._trip import Answer, Caller, Channel, Rpc, Trip

__all__ = [
    "Answer", "Caller", "Channel", "Client", "ClientSettings", "ElicitAnswer", "ElicitRequest", "Endpoint",
    "Errand", "Hooks", "HttpTransport", "HttpxAuth", "ListAnswer", "MemoryTransport", "Operation", "Plan",
    "Received", "Root", "Rpc", "SampleAnswer", "SampleRequest", "ServerRequest", "ServerRequests",
    "Stages", "StdioTransport", "Transport", "Trip", "WebSocketTransport", "open_client",
]  # fmt: skip
