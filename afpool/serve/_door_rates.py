"""How often, not how many at once: a bucket of tokens for each name.

A bucket fills by `rate` a second up to `burst`; what happens takes one out. A name that has not been seen for
as long as its bucket takes to fill is forgotten, and nothing is lost by it: a new bucket is full.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
_SWEEP_FROM = 256


@final
class Rates(Generic[K]):
    """The buckets of all names.

    Args:
        rate: Tokens a second.
        burst: What a bucket holds; at least one.
        now: Seconds, monotonic.
    """

    __slots__ = ("_burst", "_full_at", "_now", "_rate", "_sweep_at")

    def __init__(self, rate: float, burst: float, now: Callable[[], float]) -> None:
        self._set(rate, burst)
        self._now = now
        # When a bucket will be full: all that has to be known of it, and time does not change it.
        self._full_at: dict[K, float] = {}
        self._sweep_at = _SWEEP_FROM

    def _set(self, rate: float, burst: float) -> None:
        if not (math.isfinite(rate) and rate > 0):
            raise ValueError("a rate is a number above zero")
        self._rate = rate
        self._burst = max(1.0, burst)

    def change(self, rate: float, burst: float) -> None:
        """Fill by another rate up to another burst; what was taken out stays out."""
        now = self._now()
        taken = {name: (moment - now) * self._rate for name, moment in self._full_at.items() if moment > now}
        self._set(rate, burst)
        self._full_at = {name: now + min(tokens, self._burst) / rate for name, tokens in taken.items()}

    def wait_for(self, name: K) -> float:
        """Seconds until a token can be taken; zero when there is one now."""
        full_at = self._full_at.get(name)
        if full_at is None:
            return 0.0
        lacking = 1.0 - (self._burst - (full_at - self._now()) * self._rate)
        # What is left of rounding is no reason to send anybody away.
        return lacking / self._rate if lacking > 1e-9 else 0.0

    def take(self, name: K) -> None:
        """Take a token; there is one (`wait_for` is zero)."""
        now = self._now()
        self._full_at[name] = max(self._full_at.get(name, now), now) + 1.0 / self._rate
        if len(self._full_at) >= self._sweep_at:
            self._full_at = {key: moment for key, moment in self._full_at.items() if moment > now}
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._full_at))

    def __len__(self) -> int:
        return len(self._full_at)
