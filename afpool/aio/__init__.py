"""The same runtime for asyncio and for threads: trio runs in a thread of its own.

Public names are loaded when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._asynchronous import AsyncRun as AsyncRun
    from ._asynchronous import AsyncRuntime as AsyncRuntime
    from ._asynchronous import AsyncTool as AsyncTool
    from ._asynchronous import AsyncToolset as AsyncToolset
    from ._blocking import BlockingArtifacts as BlockingArtifacts
    from ._blocking import BlockingRun as BlockingRun
    from ._blocking import BlockingRuntime as BlockingRuntime
    from ._blocking import BlockingTool as BlockingTool
    from ._blocking import BlockingToolset as BlockingToolset
    from ._from_trio import AsyncArtifacts as AsyncArtifacts
    from ._from_trio import from_asyncio as from_asyncio
    from ._from_trio import told_in_asyncio as told_in_asyncio
    from ._open import open_runtime as open_runtime
    from ._open import open_runtime_sync as open_runtime_sync

_HOMES = {
    "_asynchronous": ("AsyncRun", "AsyncRuntime", "AsyncTool", "AsyncToolset"),
    "_blocking": (
        "BlockingArtifacts", "BlockingRun", "BlockingRuntime", "BlockingTool", "BlockingToolset",
    ),
    "_from_trio": ("AsyncArtifacts", "from_asyncio", "told_in_asyncio"),
    "_open": ("open_runtime", "open_runtime_sync"),
}  # fmt: skip

__all__ = [
    "AsyncArtifacts", "AsyncRun", "AsyncRuntime", "AsyncTool", "AsyncToolset", "BlockingArtifacts",
    "BlockingRun", "BlockingRuntime", "BlockingTool", "BlockingToolset", "from_asyncio", "open_runtime",
    "open_runtime_sync", "told_in_asyncio",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
