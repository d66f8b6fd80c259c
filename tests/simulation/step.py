"""The roots of all steps. See `steps.py`."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Step:
    """Root of all steps: something that happens `at` seconds."""

    at: float


@attrs.frozen(kw_only=True)
class Work(Step):
    """Something is asked of the pool, in a task of its own."""


@attrs.frozen(kw_only=True)
class Host(Step):
    """The app, its user or an operator does something."""


@attrs.frozen(kw_only=True)
class Fault(Step):
    """A server or the network does something."""
