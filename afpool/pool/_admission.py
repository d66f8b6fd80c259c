"""Who may wait in a pool, and what one may have of what all share.

The places themselves (of the runtime, of an endpoint's openings, of clients) are given by `FairPlaces`.
Whoever waits for one, or for a place of a key, waits in here: so many in all, and of one tenant no more than
its share, so that those who wait for a tenant's hung server do not use up the room of the others.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, final

from .._base.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Iterator


DIVIDED: Final = 8
"""A limit below this is not divided: a part of so little would be no bound but a bottleneck."""


def share_of(limit: int, part: float) -> int:
    """What one may have of what all share: that part of it, rounded up; of less than `DIVIDED` all."""
    return limit if limit < DIVIDED else max(1, math.ceil(limit * part - 1e-9))


@final
class WaitingRoom:
    """Counts who waits, in all and of each tenant.

    Args:
        limit: How many may.
        part: The part of it that one tenant may have.

    Attributes:
        count: How many wait now.
    """

    __slots__ = ("_limit", "_per_tenant", "_tenants", "count")

    def __init__(self, limit: int, part: float) -> None:
        self._limit = limit
        self._per_tenant = share_of(limit, part)
        self._tenants: dict[str | None, int] = {}
        self.count = 0

    def check(self, tenant: str | None, what: str) -> None:
        """Raise unless one more of this tenant may wait.

        Args:
            tenant: Whose call it is; `None` has no share.
            what: What it would wait for.

        Raises:
            Overloaded: So many wait already.
        """
        if self.count >= self._limit:
            raise Overloaded(
                f"{what}, and {self.count} calls wait already (max_waiting_total {self._limit}); "
                "nothing was sent"
            ).saying("limit", "max_waiting_total")
        mine = self._tenants.get(tenant, 0)
        if tenant is not None and mine >= self._per_tenant:
            raise Overloaded(
                f"{what}, and {mine} calls of this tenant wait already, which is its share (max_share) of "
                f"max_waiting_total {self._limit}; nothing was sent"
            ).saying("limit", "max_share")

    @contextlib.contextmanager
    def seat(self, tenant: str | None) -> Iterator[None]:
        """Be counted for the time of a block."""
        self.count += 1
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        try:
            yield
        finally:
            self.count -= 1
            left = self._tenants[tenant] - 1
            if left:
                self._tenants[tenant] = left
            else:
                del self._tenants[tenant]
