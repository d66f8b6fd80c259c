"""When an issuer's keys are fetched, and which are used until then. Decided without I/O.

Rules:

* Keys are fetched anew every `TTL`, whether somebody calls or not, so that a key that is withdrawn takes back
  what it proved. Nobody waits for that: whoever calls meanwhile is judged by the keys that are known.
* A key that nobody knows may be one that was just put into use: the set is fetched once more and the caller
  waits for it, but not more often than every `UNKNOWN_EVERY` seconds, whatever callers make up.
* A fetch that fails takes nothing away. The next one waits, twice as long each time, up to `MAX_BACKOFF`, or
  as long as the issuer asked for. Keys that could not be fetched anew for `KEEP` are good for nothing.
* One fetch at a time. Whoever needs it waits for the one that runs.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ._jwks_keys import KeySet

TTL: Final = 300.0
KEEP: Final = 86_400.0
UNKNOWN_EVERY: Final = 10.0
MIN_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 60.0


class Plan(enum.Enum):
    """What to do for a token."""

    USE = "use"
    """Judge by what is known."""
    WAIT = "wait"
    """Fetch, or join the fetch that runs; then judge."""
    UNAVAILABLE = "unavailable"
    """There is nothing to judge by, and it is too early to ask again."""


@final
class KeyCache:
    """What is known of an issuer's keys.

    Attributes:
        keys: The last ones that came, or `None`.
        fetching: Somebody fetches; set by whoever does.
    """

    __slots__ = ("_asked_at", "_failures", "_fetched_at", "_retry_at", "fetching", "keys")

    def __init__(self) -> None:
        self.keys: KeySet | None = None
        self.fetching = False
        self._fetched_at = float("-inf")
        self._asked_at = float("-inf")
        self._retry_at = float("-inf")
        self._failures = 0

    def usable(self, now: float) -> KeySet | None:
        """The keys, unless they are too old to be believed."""
        return self.keys if now - self._fetched_at < KEEP else None

    def plan(self, now: float, kid: str | None) -> Plan:
        """Say what to do for a token that names a key."""
        keys = self.usable(now)
        may_ask = now >= self._retry_at
        if keys is None:
            return Plan.WAIT if may_ask or self.fetching else Plan.UNAVAILABLE
        if keys.knows(kid):
            return Plan.USE
        if self.fetching:
            return Plan.WAIT
        return Plan.WAIT if may_ask and now - self._asked_at >= UNKNOWN_EVERY else Plan.USE

    def next_fetch_at(self) -> float:
        """When the next fetch is due, on the clock of `now`; in the past means now."""
        return self._retry_at if self._failures else self._fetched_at + TTL

    def asked(self, now: float) -> None:
        """A fetch begins."""
        self.fetching = True
        self._asked_at = now

    def fetched(self, now: float, keys: KeySet) -> None:
        """It brought keys."""
        self.fetching = False
        self.keys = keys
        self._fetched_at = now
        self._retry_at = float("-inf")
        self._failures = 0

    def failed(self, now: float, jitter: float, retry_after: float | None = None) -> None:
        """It brought none; `jitter` is between 0 and 1."""
        self.fetching = False
        pause = min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._retry_at = now + max(pause * (0.5 + jitter / 2), retry_after or 0.0)

    def retry_after(self, now: float) -> float:
        """Seconds until a fetch may begin."""
        return max(0.0, self._retry_at - now)
