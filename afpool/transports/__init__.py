"""How bytes reach a server: the wire (the only writer), HTTP exchanges, line streams, processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._child import Child, SpawnFailed
from ._connect import Connector
from ._connect_failed import ConnectFailed
from ._connection import BadHttp, Headers, Sink, Truncated
from ._exchange import HttpExchange
from ._http import HttpLink, LaneName, LinkStatistics
from ._memory import MemoryWire, memory_link_pair
from ._origin import Origin, origin_of
from ._proxy import Proxy, proxy_from_env
from ._request import HttpRequest, Unsendable
from ._stdio import CloseReport, StdioProcess
from ._stdio_config import StdioConfig
from ._stream import StreamLink
from ._tls import TlsWire
from ._tls_config import TlsConfig, shared_ssl_context
from ._websocket import WebSocketLink
from ._wire import Outgoing, PipeWire, SocketWire, Wire, WireClosed, Woken
from ._ws_stream import UpgradeRefused

if TYPE_CHECKING:
    # These import httpx, which a pool without them need not load.
    from ._httpx_adapter import HttpxAdapter
    from ._httpx_under import HttpxExchange, HttpxLink

__all__ = [
    "BadHttp", "Child", "CloseReport", "ConnectFailed", "Connector", "Headers", "HttpExchange", "HttpLink",
    "HttpRequest", "HttpxAdapter", "HttpxExchange", "HttpxLink", "LaneName", "LinkStatistics", "MemoryWire",
    "Origin", "Outgoing", "PipeWire", "Proxy", "Sink", "SocketWire", "SpawnFailed", "StdioConfig",
    "StdioProcess", "StreamLink", "TlsConfig", "TlsWire", "Truncated", "Unsendable", "UpgradeRefused",
    "WebSocketLink", "Wire", "WireClosed", "Woken", "memory_link_pair", "origin_of", "proxy_from_env",
    "shared_ssl_context",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in {"HttpxExchange", "HttpxLink"}:
        from . import _httpx_under

        return getattr(_httpx_under, name)
    if name == "HttpxAdapter":
        from ._httpx_adapter import HttpxAdapter

        return HttpxAdapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
