"""The debug console of a running process: what it listens with, what it can show and do.

Its client is `afpool.cli.console`. Public names are loaded when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._open import Console as Console
    from ._open import open_console as open_console
    from ._settings import CannotOpenConsole as CannotOpenConsole
    from ._settings import ConsoleLimits as ConsoleLimits
    from ._settings import ConsoleSettings as ConsoleSettings

_HOMES = {
    "_open": ("Console", "open_console"),
    "_settings": ("CannotOpenConsole", "ConsoleLimits", "ConsoleSettings"),
}

__all__ = ["CannotOpenConsole", "Console", "ConsoleLimits", "ConsoleSettings", "open_console"]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
