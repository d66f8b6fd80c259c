"""What can be seen of an actor from outside, and the instruments that exist only while somebody looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import attrs

Phase: TypeAlias = Literal["running", "paused", "held", "restarting", "stopped", "crashed"]
Verdict: TypeAlias = Literal["done", "refused", "crashed"]

_RING = 20
_BUCKETS = 64


@attrs.frozen
class TurnTrace:
    """One turn that has ended, its effects included. It names the message's type and shows nothing of it."""

    actor: str
    epoch: int  # in which the turn began
    at: float  # when it began, in seconds on the actor's clock
    message: str  # the name of the message's type
    duration_ns: int  # from the call of the turn to the end of its last effect
    verdict: Verdict


Hook: TypeAlias = Callable[[TurnTrace], None]


@attrs.define
class Counts:
    """The rare events of one actor; allocated at the first of them."""

    dropped_old: int = 0  # control messages that carried an earlier epoch
    dropped_stopped: int = 0  # control messages that came, or still waited, when the actor had ended
    refused_tells: int = 0  # control messages whose turn was refused, with nobody to tell
    hooks_removed: int = 0  # trace hooks taken out because they raised


@attrs.frozen
class ActorInfo:
    """One actor at one instant."""

    name: str
    phase: Phase  # what it does with a request now; "stopped" and "crashed" are for good
    in_turn: bool  # a turn runs, or its mailbox is being drained
    epoch: int  # how often it crashed; each crash ends an epoch
    turns: int  # turns begun since it exists
    control: int  # control messages that wait
    requests: int  # requests that wait for their turn
    deferred: int  # replies that the machine has taken and not yet given
    oldest_s: float  # seconds since the oldest waiting request came; 0.0 when none waits
    turn_p50_us: float | None  # while observed, as the upper bound of a log2 bucket, in microseconds
    turn_p99_us: float | None
    counts: Counts
    ended_by: str | None  # the type of the exception that ended it, where there is one
    recent: tuple[TurnTrace, ...]  # the last turns while observed, oldest first
    state: Mapping[str, object]  # the machine's snapshot; {"snapshot failed": type} where that raised


class Observer:
    """Histogram, ring and hooks of one actor; exists while one of them is wanted."""

    __slots__ = ("_histogram", "_ring", "hooks")

    def __init__(self) -> None:
        self._histogram: list[int] = []
        self._ring: deque[tuple[int, float, type, int, Verdict]] | None = None
        self.hooks: dict[object, Hook] = {}

    @property
    def wanted(self) -> bool:
        """Whether anybody still looks."""
        return self._ring is not None or bool(self.hooks)

    def switch(self, on: bool) -> None:
        """Allocate the histogram and the ring, or drop them with what they hold."""
        if on != (self._ring is not None):
            self._histogram = [0] * _BUCKETS if on else []
            self._ring = deque(maxlen=_RING) if on else None

    def note(self, name: str, epoch: int, at: float, message: object, took: int, verdict: Verdict) -> int:
        """Record one turn, call the hooks, and return how many of them were removed for raising."""
        if self._ring is not None:
            self._histogram[took.bit_length()] += 1
            self._ring.append((epoch, at, type(message), took, verdict))
        removed = 0
        if self.hooks:
            trace = TurnTrace(name, epoch, at, type(message).__name__, took, verdict)
            for token, hook in tuple(self.hooks.items()):
                try:
                    hook(trace)
                except Exception:  # noqa: BLE001  # somebody else's code must not hurt a turn
                    self.hooks.pop(token, None)
                    removed += 1
        return removed

    def recent(self, name: str) -> tuple[TurnTrace, ...]:
        """Return the turns in the ring, oldest first."""
        ring = self._ring or ()
        return tuple(TurnTrace(name, epoch, at, kind.__name__, took, v) for epoch, at, kind, took, v in ring)

    def quantile_us(self, q: float) -> float | None:
        """Return the upper bound of the bucket that holds the quantile `q`, in microseconds."""
        need, seen = q * sum(self._histogram), 0
        for bits, count in enumerate(self._histogram):
            seen += count
            if count and seen >= need:
                return float(1 << bits) / 1e3
        return None
