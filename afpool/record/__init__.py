"""The record: what every call did, kept for a while, told to others, explained.

Names are loaded when first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._explained import Clause, Explanation
    from ._json import Digests, event_as_json, unix_offset, use_as_json
    from ._lag import Lag, LoopLag
    from ._numbers import Numbers
    from ._otel import OpenTelemetry
    from ._prometheus import PoolCollector, prometheus_text
    from ._queue import SinkState
    from ._record import Record
    from ._settings import JsonlSettings, RecordSettings, Sink
    from ._sinks import Sinks, open_sinks

__all__ = [
    "Clause",
    "Digests",
    "Explanation",
    "JsonlSettings",
    "Lag",
    "LoopLag",
    "Numbers",
    "OpenTelemetry",
    "PoolCollector",
    "Record",
    "RecordSettings",
    "Sink",
    "SinkState",
    "Sinks",
    "event_as_json",
    "open_sinks",
    "prometheus_text",
    "unix_offset",
    "use_as_json",
]

_HOMES = {
    "_explained": ("Clause", "Explanation"),
    "_json": ("Digests", "event_as_json", "unix_offset", "use_as_json"),
    "_lag": ("Lag", "LoopLag"),
    "_otel": ("OpenTelemetry",),
    "_numbers": ("Numbers",),
    "_prometheus": ("PoolCollector", "prometheus_text"),
    "_queue": ("SinkState",),
    "_record": ("Record",),
    "_settings": ("JsonlSettings", "RecordSettings", "Sink"),
    "_sinks": ("Sinks", "open_sinks"),
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
