"""The record: what every call did, kept for a while, told to others, explained.

Names are loaded when first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    pass

_HOMES: dict[str, tuple[str, ...]] = {}
