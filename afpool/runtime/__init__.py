"""Runtimes: one pool of several servers, tools of the host, runs, and the door to all of it.

Public names are loaded when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._config import RuntimeConfig as RuntimeConfig
    from ._config import ServerRules as ServerRules
    from ._inner import InnerTools as InnerTools
    from ._open import open_runtime as open_runtime
    from ._open import run_runtime as run_runtime
    from ._open_runs import OpenRun as OpenRun
    from ._run import Run as Run
    from ._runtime import Runtime as Runtime
    from ._toolset import RuntimeToolset as RuntimeToolset

_HOMES = {
    "_config": ("RuntimeConfig", "ServerRules"),
    "_inner": ("InnerTools",),
    "_open": ("open_runtime", "run_runtime"),
    "_open_runs": ("OpenRun",),
    "_run": ("Run",),
    "_runtime": ("Runtime",),
    "_toolset": ("RuntimeToolset",),
}  # fmt: skip

__all__ = [
    "InnerTools", "OpenRun", "Run", "Runtime", "RuntimeConfig", "RuntimeToolset", "ServerRules",
    "open_runtime", "run_runtime",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
