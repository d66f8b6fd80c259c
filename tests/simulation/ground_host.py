"""Facts of operators and of the app's configuration. See `ground.py`."""

from __future__ import annotations

import attrs

from tests.simulation.ground import Fact


@attrs.define(eq=False, kw_only=True)
class ServerHeld(Fact):
    """Admission of every key of a server is held, also of those that do not exist yet."""

    server: str


@attrs.define(eq=False, kw_only=True)
class ServerFreed(Fact):
    """That has ended; a key that is held by itself stays so."""

    server: str
