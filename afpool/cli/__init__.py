"""The command line: `afpool COMMAND`.

What a command needs is imported when it runs, so that `afpool --help` is quick and a completion quicker.
"""

from __future__ import annotations

from ._main import main

__all__ = ["main"]
