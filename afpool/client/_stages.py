"""How long each stage of an opening took, and which one it is in."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@final
class Stages:
    """A watch that is in one stage at a time.

    Args:
        now: The runtime's clock.
        stage: The first stage.

    Attributes:
        began: When it was started.
        stage: The stage that it is in.
        spent: Seconds by stage, of the stages that are over.
    """

    __slots__ = ("_now", "_since", "began", "spent", "stage")

    def __init__(self, now: Callable[[], float], stage: str) -> None:
        self._now = now
        self.stage = stage
        self.spent: dict[str, float] = {}
        self.began = self._since = now()

    def begin(self, stage: str) -> None:
        """The stage before is over; one may come again."""
        now = self._now()
        self.spent[self.stage] = self.spent.get(self.stage, 0.0) + now - self._since
        self._since = now
        self.stage = stage

    @contextlib.contextmanager
    def within(self, stage: str) -> Iterator[None]:
        """Be in a stage for the time of a block, and then in the one before."""
        before = self.stage
        self.begin(stage)
        try:
            yield
        finally:
            self.begin(before)

    def so_far(self) -> dict[str, float]:
        """Seconds by stage until now, and `took`, all of them."""
        self.begin(self.stage)
        return {**self.spent, "took": self._since - self.began}
