"""Keys, actors, places, lists, sharing, bindings and bound tools."""

from __future__ import annotations

from ._bound import Binding, BoundTool, Toolset
from ._bound_server import BoundServer, ServerBinding
from ._events import Event
from ._herald import LogMessage
from ._open_pool import open_pool, run_pool
from ._pool import Pool
from ._reload import Reconfigured
from ._server import Limits, Server
from ._statistics import CloseReport, KeyStatistics, PoolStatistics
from ._subscriptions import ResourceUpdate, Subscription

__all__ = [
    "Binding", "BoundServer", "BoundTool", "CloseReport", "Event", "KeyStatistics", "Limits", "LogMessage",
    "Pool", "PoolStatistics", "Reconfigured", "ResourceUpdate", "Server", "ServerBinding", "Subscription",
    "Toolset", "open_pool", "run_pool",
]  # fmt: skip
