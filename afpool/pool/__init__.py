"""Keys, actors, places, lists, sharing, bindings and bound tools."""

from __future__ import annotations

from ._bound import Binding, BoundTool, Toolset
from ._events import Event
from ._open_pool import open_pool, run_pool
from ._pool import Pool
from ._server import Limits, Server
from ._statistics import CloseReport, KeyStatistics, PoolStatistics

__all__ = [
    "Binding", "BoundTool", "CloseReport", "Event", "KeyStatistics", "Limits", "Pool", "PoolStatistics",
    "Server", "Toolset", "open_pool", "run_pool",
]  # fmt: skip
