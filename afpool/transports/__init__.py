"""How bytes reach a server: the wire (the only writer), HTTP exchanges, line streams, processes."""

from __future__ import annotations

from ._connect import ConnectFailed, Connector, Origin, TlsConfig, origin_of, shared_ssl_context
from ._connection import BadHttp, Headers, Sink, Truncated
from ._exchange import HttpExchange
from ._http import HttpLink, LaneName, LinkStatistics
from ._memory import MemoryWire, memory_link_pair
from ._request import HttpRequest
from ._stdio import CloseReport, SpawnFailed, StdioProcess
from ._stdio_config import StdioConfig
from ._stream import StreamLink
from ._tls import TlsWire
from ._wire import Outgoing, PipeWire, SocketWire, Wire, WireClosed, Woken

__all__ = [
    "BadHttp", "CloseReport", "ConnectFailed", "Connector", "Headers", "HttpExchange", "HttpLink",
    "HttpRequest", "LaneName", "LinkStatistics", "MemoryWire", "Origin", "Outgoing", "PipeWire", "Sink",
    "SocketWire", "SpawnFailed", "StdioConfig", "StdioProcess", "StreamLink", "TlsConfig", "TlsWire",
    "Truncated", "Wire", "WireClosed", "Woken", "memory_link_pair", "origin_of", "shared_ssl_context",
]  # fmt: skip
