"""The record: what every call did, kept for a while, told to others, explained.

Names are loaded when first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._json import Digests, event_as_json, unix_offset, use_as_json

__all__ = ["Digests", "event_as_json", "unix_offset", "use_as_json"]

_HOMES = {"_json": ("Digests", "event_as_json", "unix_offset", "use_as_json")}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
