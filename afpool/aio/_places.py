"""Where callers are: an asyncio loop, or a thread that waits. What the runtime has to say is delivered there.

Rules:

* A place takes words from any thread, in order, and hands each over in its own: progress before the result.
* The first word of several wakes the place, the others ride along: many calls that end together cost one
  wake-up. A word is put down before it is looked whether the place is awake, and the place says that it is
  asleep again before it takes the first: so none is ever left lying.
* A word never raises where it is handed over; whoever puts one down has seen to that.
* Whoever posts is told when there is nobody any more: a loop that was closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable

Word: TypeAlias = "tuple[Callable[..., object], tuple[Any, ...]]"


class Place(Protocol):
    """What a caller is reached through."""

    def post(self, deliver: Callable[..., object], *args: Any) -> bool:
        """Have `deliver(*args)` called in the place's own thread; `False` where nobody is there any more."""
        ...


@final
class LoopPlace:
    """An asyncio loop.

    Attributes:
        loop: The loop.
    """

    __slots__ = ("_awake", "_context", "_words", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._words: deque[Word] = deque()
        self._awake = False
        # of its own: what one caller had set is nothing to whoever is served by the same wake-up
        self._context = contextvars.Context()

    def post(self, deliver: Callable[..., object], *args: Any) -> bool:
        """See `Place`."""
        self._words.append((deliver, args))
        if self._awake:
            return True
        self._awake = True
        try:
            self.loop.call_soon_threadsafe(self._hand_over, context=self._context)
        except RuntimeError:  # closed
            self._words.clear()
            self._awake = False
            return False
        return True

    def _hand_over(self) -> None:
        self._awake = False
        for _ in range(len(self._words)):
            try:
                deliver, args = self._words.popleft()
            except IndexError:
                return
            deliver(*args)


@final
class ThreadPlace:
    """A thread that waits for one call of its own, and does meanwhile what it is told."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: SimpleQueue[Word] = SimpleQueue()

    def post(self, deliver: Callable[..., object], *args: Any) -> bool:
        """See `Place`."""
        self._words.put((deliver, args))
        return True

    def take(self) -> None:
        """Wait for the next word, and hand it over; a ^C breaks the wait."""
        deliver, args = self._words.get()
        deliver(*args)


class _Known(threading.local):
    place: LoopPlace | None = None


_known = _Known()


def place_of_running_loop() -> LoopPlace:
    """Give the place of the asyncio loop that runs in this thread; each has one.

    Raises:
        RuntimeError: None runs here.
    """
    loop = asyncio.get_running_loop()
    place = _known.place
    if place is None or place.loop is not loop:
        place = _known.place = LoopPlace(loop)
    return place


@final
class OwnLoop:
    """An asyncio loop in a thread of its own, for coroutines whose caller has none."""

    def __init__(self) -> None:
        loop = asyncio.new_event_loop()
        self.place = LoopPlace(loop)
        self._thread = threading.Thread(target=self._serve, name="afpool-asyncio", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        loop = self.place.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def close(self, within: float) -> None:
        """Cancel what runs in it and end it; waits at most so many seconds for tasks that do not end."""
        with contextlib.suppress(RuntimeError):
            self.place.loop.call_soon_threadsafe(self.place.loop.stop)
        self._thread.join(within)
