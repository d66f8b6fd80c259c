"""How much of a scope is kept, and for how long."""

from __future__ import annotations

from math import isfinite
from typing import Final

import attrs

from ._types import InvalidArtifactError

MICROSECONDS: Final = 1_000_000
LAST: Final = 2**53 - 1
"""The latest time that every backend holds exactly, in microseconds since 1970: the year 2255."""


def microseconds(seconds: float) -> int:
    """Give a time as whole microseconds, at most `LAST`."""
    return LAST if seconds * MICROSECONDS >= LAST else int(seconds * MICROSECONDS)


def check_seconds(name: str, value: object) -> None:
    """Refuse what is neither a positive number nor `None`."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or None, not {type(value).__name__}")
    if not isfinite(value) or value < 1 / MICROSECONDS:
        raise ValueError(f"{name} must be finite and at least a microsecond, or None for no limit")


def check_count(name: str, value: object) -> None:
    """Refuse what is neither a positive whole number nor `None`."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number or None, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, or None for no limit; got {value}")


@attrs.frozen(kw_only=True)
class Retention:
    """What a store keeps of each scope. `None` sets no limit.

    A put makes room in this order: a payload larger than the whole budget is refused and nothing goes; what
    has expired goes; then, while the scope would hold more artifacts than it may, and then more bytes, the
    one that was used least recently goes. `put`, `head` and `get` are uses.

    Attributes:
        ttl: Seconds that an artifact lives at most, from its put.
        max_bytes_per_scope: Bytes of payload that a scope holds at most.
        max_count_per_scope: Artifacts that a scope holds at most.

    Raises:
        TypeError: A limit is no number, or a count is no whole one.
        ValueError: A limit is not positive, or not finite.
    """

    ttl: float | None = None
    max_bytes_per_scope: int | None = None
    max_count_per_scope: int | None = None

    def __attrs_post_init__(self) -> None:
        check_seconds("ttl", self.ttl)
        check_count("max_bytes_per_scope", self.max_bytes_per_scope)
        check_count("max_count_per_scope", self.max_count_per_scope)

    @property
    def by_use(self) -> bool:
        """Whether anything ever goes because it was used least recently."""
        return self.max_bytes_per_scope is not None or self.max_count_per_scope is not None

    def check_size(self, size: int) -> None:
        """Refuse what would not fit into an empty scope.

        Raises:
            InvalidArtifactError: As said.
        """
        if self.max_bytes_per_scope is not None and size > self.max_bytes_per_scope:
            raise InvalidArtifactError(
                f"the payload has {size} bytes and a scope may hold {self.max_bytes_per_scope} in all; "
                "nothing was stored or given up; store it in parts, or raise max_bytes_per_scope"
            )

    def expiry(self, now: int, asked: int | None) -> int | None:
        """Give when an artifact of `now` expires; a store only ever tightens what was asked for."""
        if self.ttl is None:
            return asked
        own = min(now + int(self.ttl * MICROSECONDS), LAST)
        return own if asked is None else min(own, asked)
