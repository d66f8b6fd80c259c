"""These tests run in an environment of their own (`make frameworks`), which has the frameworks.

In the usual one they are left out here; `tests/adapters` runs them in a child process.
"""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pydantic_ai") else ["test_*.py"]
