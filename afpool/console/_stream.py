"""What goes on telling after a command was answered: `tail`, `watch`, `trace`.

Rules:

* A stream is pulled: whoever sends its frames asks for the next when the last has gone out. Nothing is made
  for a reader who does not read.
* What waits to be told is bounded. What finds no room is dropped and counted, and the next frame says how
  much: a slow console never slows the pool, and never believes that it has seen everything.
* Frames are at least `every` seconds apart, however much happens.
* What is told is made plain when a frame is made, and not when it happens: a call pays for one `append`.
* Whatever a stream hooked into is let go in `close`, once, whoever ends it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

EVERY: Final = 0.02
KEPT: Final = 2000
AT_ONCE: Final = 200


class Stream:
    """Frames until it ends.

    Args:
        every: Seconds between two frames at least, on trio's clock.

    Attributes:
        ended: Why it is over; `None` while it goes on.
    """

    def __init__(self, every: float = EVERY) -> None:
        self.every = every
        self.ended: str | None = None
        self._news = trio.Event()
        self._over = trio.Event()
        self._last = float("-inf")

    async def next(self) -> dict[str, Any] | None:
        """Wait for the next frame; `None` when the stream is over, after what was left to tell.

        The frame is without the stream's number, which is its session's to give. A checkpoint. Cancelled
        before a frame was made, nothing is lost.
        """
        await trio.lowlevel.checkpoint()
        while True:
            if trio.current_time() < self._last + self.every:
                with trio.CancelScope(deadline=self._last + self.every):
                    await self._over.wait()
            frame = await self.make()
            if frame is not None:
                self._last = trio.current_time()
                return frame
            if self.ended is not None:
                return None
            await self.wait()

    async def make(self) -> dict[str, Any] | None:
        """Make a frame of what there is to tell; `None` if there is nothing. Long work in slices."""
        raise NotImplementedError

    async def wait(self) -> None:
        """Wait until there may be something to tell, or it was closed."""
        await self._news.wait()
        self._news = trio.Event()

    def wake(self) -> None:
        """There may be something to tell."""
        self._news.set()

    def close(self, why: str = "stopped") -> None:
        """End it. Synchronous, idempotent; the first reason stands."""
        if self.ended is None:
            self.ended = why
            try:
                self.let_go()
            finally:
                self._over.set()
                self.wake()

    def let_go(self) -> None:
        """Unhook it from what it listens to; called once."""


class Queued(Stream, Generic[T]):
    """A stream of single things that happen, kept until the next frame.

    Args:
        plain: Makes the plain form of one.
        wants: Says whether one is to be told; asked when it happens, so it must be cheap.
        kept: How many may wait.
        every: As `Stream`.

    Attributes:
        dropped: How many found no room, since the beginning.
    """

    def __init__(
        self,
        plain: Callable[[T], Any],
        wants: Callable[[T], bool] | None = None,
        *,
        kept: int = KEPT,
        every: float = EVERY,
    ) -> None:
        super().__init__(every)
        self._plain = plain
        self._wants = wants
        self._kept = kept
        self._waiting: deque[T] = deque()
        self._untold = 0
        self.dropped = 0

    def put(self, thing: T) -> None:
        """Have something told. Synchronous and never waits; dropped where there is no room."""
        if self.ended is not None or (self._wants is not None and not self._wants(thing)):
            return
        if len(self._waiting) >= self._kept:
            self.dropped += 1
            self._untold += 1
            return
        self._waiting.append(thing)
        if len(self._waiting) == 1:
            self._news.set()

    def put_first(self, things: list[T]) -> None:
        """Have things told before all that waits, whatever waits; they are few. Synchronous."""
        if self.ended is None and things:
            self._waiting.extendleft(reversed(things))
            self._news.set()

    async def make(self) -> dict[str, Any] | None:
        """Tell what waits, at most `AT_ONCE` of it, and how much was dropped since the last frame."""
        waiting = self._waiting
        if not waiting and not self._untold:
            return None
        events = [self._plain(waiting.popleft()) for _ in range(min(len(waiting), AT_ONCE))]
        dropped, self._untold = self._untold, 0
        if waiting:
            self._news.set()
        return {"events": events, "dropped": dropped}
