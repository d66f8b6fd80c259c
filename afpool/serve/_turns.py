"""So many at once of one principal, the rest after them: for what is rather answered late than refused.

Listing opens servers and reads what they offer; a client that asks for nothing else, a thousand times over,
would have everybody's servers answer him. How many wait is bounded by the connections that they come by.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .._base.identity import Identity


@final
class Turns:
    """Lets principals in, each so many times at once.

    Args:
        at_once: How many.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._of: dict[tuple[str | None, str | None], _Principal] = {}

    def __len__(self) -> int:
        return len(self._of)

    @contextlib.asynccontextmanager
    async def turn(self, identity: Identity) -> AsyncIterator[None]:
        """Hold one of a principal's turns for the time of the block. Waits for it; a checkpoint."""
        name = identity.tenant, identity.principal
        principal = self._of.get(name)
        if principal is None:
            principal = self._of[name] = _Principal(self._at_once)
        principal.here += 1
        try:
            async with principal.places:
                yield
        finally:
            principal.here -= 1
            if not principal.here:
                del self._of[name]


@final
class _Principal:
    __slots__ = ("here", "places")

    def __init__(self, at_once: int) -> None:
        self.here = 0
        self.places = trio.Semaphore(at_once)
