"""The debug console of a running process: what it listens with, what it can show and do.

Its client is `afpool.cli.console`. Names are loaded when first touched.
"""

from __future__ import annotations
