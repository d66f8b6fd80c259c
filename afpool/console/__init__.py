"""The debug console of a running process: what it listens with, what it can show and do.

Its client is `afpool.cli.console`. Public names are loaded when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._ask import Ask as Ask
    from ._ask import Asker as Asker
    from ._ask import CommandError as CommandError
    from ._build import build_registry as build_registry
    from ._open import Console as Console
    from ._open import open_console as open_console
    from ._registry import Registry as Registry
    from ._settings import CannotOpenConsole as CannotOpenConsole
    from ._settings import ConsoleLimits as ConsoleLimits
    from ._settings import ConsoleSettings as ConsoleSettings
    from ._spec import Column as Column
    from ._spec import Command as Command
    from ._spec import Table as Table
    from ._stream import Queued as Queued
    from ._stream import Stream as Stream

_HOMES = {
    "_ask": ("Ask", "Asker", "CommandError"),
    "_build": ("build_registry",),
    "_open": ("Console", "open_console"),
    "_registry": ("Registry",),
    "_settings": ("CannotOpenConsole", "ConsoleLimits", "ConsoleSettings"),
    "_spec": ("Column", "Command", "Table"),
    "_stream": ("Queued", "Stream"),
}

__all__ = [
    "Ask", "Asker", "CannotOpenConsole", "Column", "Command", "CommandError", "Console", "ConsoleLimits",
    "ConsoleSettings", "Queued", "Registry", "Stream", "Table", "build_registry", "open_console",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
