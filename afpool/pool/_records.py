"""What the pool files: one `Use` per call in a bounded ring, and numbered events.

Rules:

* Filing never delays and never fails a call. Whoever listens is told in the filing step, synchronously; one
  that raises is counted, logged once, and told of the next one all the same. What does I/O puts a queue of
  its own in front.
* The ring is bounded by count and by bytes. How large a use is, is estimated when it is filed, in constant
  time, from what can be large: marks, shown arguments, definitions.
* With a count of 0 the record is off: nothing is kept. Whoever listens is told all the same.
* A running call's use is found as well as a filed one; it changes under whoever reads it.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from ._events import Event, EventRing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .._base.use import Use
    from ._call import Call

logger = logging.getLogger("afpool")
logger.addHandler(logging.NullHandler())  # what is shown of it, and where, is the app's to say

USE_BYTES: Final = 640
"""A use with its times, names and empty lists, as measured."""

MARK_BYTES: Final = 20
"""One of the two halves of a mark: the place of a shared word, or that of a number and the number."""

EVENT_BYTES: Final = 400
DEFINITION_BYTES: Final = 400


class Tracer(Protocol):
    """Traces calls."""

    def begin(self, use: Use) -> object:
        """A call begins; what it is about is known, and nothing of it was sent."""
        ...

    def end(self, use: Use) -> object:
        """It is filed."""
        ...


@final
class _Tap:
    """Somebody who listens."""

    __slots__ = ("failures", "tell", "what")

    def __init__(self, tell: Callable[[Any], object], what: str) -> None:
        self.tell = tell
        self.what = what
        self.failures = 0


@final
class Records:
    """Rings of uses and events, and who is told of what is filed. See the module.

    Attributes:
        uses: The ended calls that are kept, oldest first.
        events: The events that are kept.
        bytes: What the kept uses take, as estimated.
        filed: How many uses were filed since the pool was opened.
        unfiled: The uses of calls whose request is over and which are not: what came is being looked at.
        failures: How often somebody who listens or traces raised, or background work did.
        tracers: Told of each call when it begins and when it is filed, both in its caller's task.
    """

    __slots__ = (
        "_index", "_later", "_most_bytes", "_most_uses", "_now", "_on_event", "_on_use", "_running", "bytes",
        "events", "failures", "filed", "tracers", "unfiled", "uses",
    )  # fmt: skip

    def __init__(
        self,
        most_uses: int,
        most_bytes: int,
        now: Callable[[], float],
        running: Mapping[int, Call],
        on_use: Callable[[Use], object] | None = None,
    ) -> None:
        self.uses: deque[Use] = deque()
        self.unfiled: dict[int, Use] = {}
        self.events = EventRing()
        self.bytes = 0
        self.filed = 0
        self.failures = 0
        self.tracers: tuple[Tracer, ...] = ()
        # by call id the one use, or several, oldest first
        self._index: dict[str, Use | deque[Use]] = {}
        self._most_uses = most_uses
        self._most_bytes = most_bytes
        self._now = now
        self._running = running
        self._on_use: tuple[_Tap, ...] = ()
        self._on_event: tuple[_Tap, ...] = ()
        self._later: list[Event] | None = None
        if on_use is not None:
            self.tap(on_use=on_use)

    # ------------------------------------------------------------------ filing

    def begin(self, use: Use) -> None:
        """Tell whoever traces of a call that begins. Synchronous; raises nothing."""
        for tracer in self.tracers:
            self._trace(tracer.begin, use)

    def _trace(self, tell: Callable[[Use], object], use: Use) -> None:
        try:
            tell(use)
        except Exception as error:  # noqa: BLE001 -- telemetry costs no call
            self.failures += 1
            logger.warning("a tracer raised %s", type(error).__name__)

    def file(self, use: Use) -> None:
        """File the facts of an ended call, once. Synchronous; raises nothing."""
        if use.ended_at is None:
            use.ended_at = self._now()
        if self.tracers:
            for tracer in reversed(self.tracers):  # what was begun last is ended first
                self._trace(tracer.end, use)
        self.filed += 1
        if self._most_uses:
            use.kept = size_of(use)
            self.uses.append(use)
            self.bytes += use.kept
            index, call_id = self._index, use.call_id
            known = index.get(call_id)
            if known is None:
                index[call_id] = use
            elif isinstance(known, deque):
                known.append(use)
            else:
                index[call_id] = deque((known, use))
            while len(self.uses) > self._most_uses or self.bytes > self._most_bytes:
                self._forget()
        if self._on_use:
            self._tell(self._on_use, use)

    def event(self, kind: str, key: str = "", server: str = "", **facts: Any) -> Event:
        """File something that happened and return it; facts as `Event` names them. Synchronous."""
        event = self.events.file(self._now(), kind, key, server, **facts)
        if self._later is not None:
            self._later.append(event)
        elif self._on_event:
            self._tell(self._on_event, event)
        return event

    @contextlib.contextmanager
    def told_later(self) -> Iterator[None]:
        """Tell nobody of events before the end of a block: of a step that must hold as a whole first."""
        assert self._later is None
        events = self._later = []
        try:
            yield
        finally:
            self._later = None
            for event in events:
                self._tell(self._on_event, event)

    def grown(self, use: Use) -> None:
        """Count anew what a use takes that something was written into since it was filed."""
        if use.kept:
            self.bytes -= use.kept
            use.kept = size_of(use)
            self.bytes += use.kept
            while self.bytes > self._most_bytes:
                self._forget()

    def _forget(self) -> None:
        """Let the oldest use go."""
        use = self.uses.popleft()
        self.bytes -= use.kept
        use.kept = 0
        call_id = use.call_id
        known = self._index[call_id]
        if isinstance(known, deque):
            known.popleft()  # of one id, too, the oldest goes first
            if known:
                return
        del self._index[call_id]

    def clear(self) -> None:
        """Forget the kept uses."""
        for use in self.uses:
            use.kept = 0
        self.uses.clear()
        self._index.clear()
        self.bytes = 0

    # ------------------------------------------------------------------ listening

    def tap(
        self,
        *,
        on_use: Callable[[Use], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> Callable[[], None]:
        """Be told of every ended call, of every event, or of both, from now on.

        Args:
            on_use: Called with each `Use` in the step that files it. Synchronous; must not block. Called in
                the middle of what the pool does: it looks, and asks nothing of the pool there.
            on_event: Called likewise with each `Event`.

        Returns:
            What ends it; safe to repeat.
        """
        use = None if on_use is None else _Tap(on_use, "on_use")
        event = None if on_event is None else _Tap(on_event, "on_event")
        if use is not None:
            self._on_use = (*self._on_use, use)
        if event is not None:
            self._on_event = (*self._on_event, event)

        def end() -> None:
            self._on_use = tuple(tap for tap in self._on_use if tap is not use)
            self._on_event = tuple(tap for tap in self._on_event if tap is not event)

        return end

    def _tell(self, taps: tuple[_Tap, ...], what: Use | Event) -> None:
        for tap in taps:
            try:
                tap.tell(what)
            except Exception:
                self.failures += 1
                tap.failures += 1
                if tap.failures == 1:
                    logger.exception("%s raised", tap.what)

    # ------------------------------------------------------------------ finding

    @property
    def forgotten(self) -> int:
        """How many filed uses are not kept any more."""
        return self.filed - len(self.uses)

    def find(self, call_id: str) -> list[Use]:
        """Every use of a call: the running ones, and the kept ones, newest first.

        A call that ended in doubt and was asked for again has one for each time.
        """
        found = [call.use for call in self._running.values() if call.use.call_id == call_id]
        found += [use for use in self.unfiled.values() if use.call_id == call_id]
        found.reverse()
        kept = self._index.get(call_id)
        if isinstance(kept, deque):
            found.extend(reversed(kept))
        elif kept is not None:
            found.append(kept)
        return found


def size_of(use: Use) -> int:
    """Estimate the bytes that a use holds, in constant time."""
    size = USE_BYTES + MARK_BYTES * len(use.marks) + len(use.call_id)
    if use.name is not use.tool:  # by what it was called, which somebody else chose
        size += len(use.name)
    if use.changed:
        size += 80 * len(use.changed)
    if use.shown is not None:
        size += len(use.shown)
    if use.facts is not None:
        size += 120 * len(use.facts)
    if use.happened is not None:
        size += EVENT_BYTES
    if use.minted is not None:
        size += 100 * len(use.minted)
    if use.took is not None:
        size += 100 * len(use.took)
    if use.held_by:
        size += 80 * len(use.held_by)
    for definition in (use.was, use.became):
        if definition is not None:
            size += DEFINITION_BYTES + len(definition.raw)
    return size
