"""What the pool files: one `Use` per call in a bounded ring, and numbered events."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, final

from ._events import EventRing

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.use import Use

logger = logging.getLogger("afpool")
logger.addHandler(logging.NullHandler())  # what is shown of it, and where, is the app's to say


@final
class Records:
    """Rings of uses and events. Filing never delays and never fails a call."""

    __slots__ = ("_on_use", "events", "failures", "uses")

    def __init__(self, kept: int, on_use: Callable[[Use], object] | None) -> None:
        self.uses: deque[Use] = deque(maxlen=kept)
        self.events = EventRing()
        self._on_use = on_use
        self.failures = 0

    def file(self, use: Use) -> None:
        """File the facts of an ended call."""
        self.uses.append(use)
        if self._on_use is not None:
            try:
                self._on_use(use)
            except Exception:
                self.failures += 1
                logger.exception("on_use raised")
