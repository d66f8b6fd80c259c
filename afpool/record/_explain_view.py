"""One call as an explanation sees it: its use, read once, and the event that caused its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ._explain_stages import Stage, stages_of, waiting_now
from ._explain_words import quoted

if TYPE_CHECKING:
    from .._base.use import Use
    from ..pool import Event
    from ._explain_sources import Sources


@final
class View:
    """A call, read.

    Args:
        use: Its facts.
        sources: Where the other facts stand.

    Attributes:
        runs: Whether it has not ended yet.
        now: The runtime's clock.
        end: When it ended, or now, on that clock.
        whole: Seconds from its begin to there.
        stages: Its marks as spans.
        waits: What it waits for now: the stage, since when on the clock, whether that is the door's.
        key: The digest of its key, or empty.
        event: What caused its outcome; `None` where nothing did, or nothing that is still known.
    """

    __slots__ = ("end", "event", "key", "now", "runs", "sources", "stages", "use", "waits", "whole")

    def __init__(self, use: Use, sources: Sources) -> None:
        self.use = use
        self.sources = sources
        self.now = sources.now
        self.stages: list[Stage] = stages_of(use)
        self.runs = use.ended_at is None and use.outcome is None
        self.waits = waiting_now(use) if self.runs else None
        if use.ended_at is not None:
            self.end = use.ended_at
        elif self.runs or not self.stages:
            self.end = self.now
        else:  # it has ended and was not filed yet
            self.end = use.began_at + self.stages[-1].ended
        self.whole = self.end - use.began_at
        self.key = sources.show(use.key)
        self.event: Event | None = use.happened
        if self.event is None and use.cause is not None:
            self.event = sources.event(use.cause)

    @property
    def holding(self) -> list[Event]:
        """What holds admission to its key now."""
        return self.sources.holding(self.use)

    @property
    def what(self) -> str:
        """What was called, quoted."""
        use = self.use
        if use.method in ("tools/call", ""):
            return quoted(use.tool or use.name)
        return quoted(use.method) + (f" of {quoted(use.tool)}" if use.tool else "")

    def since(self, at: float) -> float:
        """Give a time on the clock as seconds since the call began."""
        return at - self.use.began_at
