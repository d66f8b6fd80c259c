"""One thing that somebody outside asks of the runtime: what crosses over, and what comes back.

Rules:

* Its members are written on one side only: `outcome` and `left` in the caller's thread, `scope` and
  `withdrawn` in the runtime's. What goes from one side to the other is a word in an inbox or a place.
* It is finished once. What comes back is the value or the very exception.
* A caller who goes (a cancelled task, ^C) withdraws it and waits until it has ended: the engine settles what
  was sent by its own rules, and is quick. Whoever is cancelled a second time waits no more.
* It runs in a copy of its caller's context.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import attrs

from .._base.errors import NOT_SENT, PoolClosed
from ._places import ThreadPlace, place_of_running_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from .._base.errors import Delivery
    from .._base.model import Progress
    from ..runtime import Runtime
    from ._bridge import Bridge
    from ._places import Place

logger = logging.getLogger("afpool")

Told: TypeAlias = "Callable[[Progress], object] | None"
# what is done on the runtime's side: given it, the deadline on trio's clock, and whom to tell of progress
Step: TypeAlias = "Callable[[Runtime, float | None, Told], Awaitable[Any]]"


@attrs.frozen
class Outcome:
    """What came of a job.

    Attributes:
        value: What it returned.
        error: What it raised.
    """

    value: Any = None
    error: BaseException | None = None

    def unwrap(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


def closed(delivery: Delivery) -> Outcome:
    """Refuse for a runtime that is not there any more."""
    text = "the runtime is closed; nothing was sent"
    if delivery != NOT_SENT:
        text = "the runtime was closed before this had ended; it may take effect"
    return Outcome(error=PoolClosed(text, delivery=delivery))


NOTHING: Final = Outcome()


@final
class Job:
    """One job.

    Args:
        step: What is done on the runtime's side.
        place: Where its caller is.
        seconds: How long it may take; the runtime's default where `None`.
        on_progress: Told of progress, at the caller's place.
        if_closed: What comes back where the runtime is, or gets, closed.
        inner: It is asked by what runs inside a call, and is let through while calls are brought to an end.

    Raises:
        TypeError: `on_progress` is asynchronous.
    """

    __slots__ = (
        "asked", "context", "if_closed", "inner", "left", "on_progress", "outcome", "place", "scope",
        "seconds", "step", "waiter", "withdrawn",
    )  # fmt: skip

    def __init__(
        self,
        step: Step,
        place: Place,
        *,
        seconds: float | None = None,
        on_progress: Told = None,
        if_closed: Callable[[Delivery], Outcome] = closed,
        inner: bool = False,
    ) -> None:
        if on_progress is not None and inspect.iscoroutinefunction(on_progress):
            raise TypeError("on_progress is told, and not waited for: it is no coroutine function")
        self.step = step
        self.place = place
        self.seconds = seconds
        self.on_progress = on_progress
        self.if_closed = if_closed
        self.inner = inner
        self.asked = time.monotonic()
        self.context = contextvars.copy_context()
        self.scope: trio.CancelScope | None = None
        self.withdrawn = False
        self.outcome: Outcome | None = None
        self.left = False
        self.waiter: asyncio.Future[None] | None = None

    def remaining(self) -> float | None:
        """Give the seconds that are left of its time now."""
        return None if self.seconds is None else self.seconds - (time.monotonic() - self.asked)

    # ------------------------------------------------------------------ from the runtime's side

    def finish(self, outcome: Outcome) -> None:
        """Send back what came of it."""
        self.place.post(self._arrived, outcome)

    def report(self, progress: Progress) -> None:
        """Send back a word of progress."""
        if not self.withdrawn:
            self.place.post(self._reported, progress)

    # ------------------------------------------------------------------ at the caller's place

    def _arrived(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def _reported(self, progress: Progress) -> None:
        told = self.on_progress
        if told is None or self.left:
            return
        try:
            self.context.run(told, progress)
        except Exception as error:  # noqa: BLE001 -- a report that nobody takes costs the report
            logger.warning("on_progress raised %s", type(error).__name__)


async def in_loop(
    bridge: Bridge, step: Step, *, seconds: float | None = None, on_progress: Told = None, **more: Any
) -> Any:
    """Have a job done, and wait for it in the asyncio loop that runs here."""
    place = place_of_running_loop()
    job = Job(step, place, seconds=seconds, on_progress=on_progress, **more)
    waiter = job.waiter = place.loop.create_future()
    bridge.put(job)
    try:
        await waiter
    except BaseException as error:
        job.left = True
        if job.outcome is None:
            bridge.withdraw(job)
            if isinstance(error, asyncio.CancelledError):  # and no coroutine that is thrown away
                job.waiter = place.loop.create_future()
                await job.waiter
        raise
    assert job.outcome is not None
    return job.outcome.unwrap()


def in_thread(
    bridge: Bridge, step: Step, *, seconds: float | None = None, on_progress: Told = None, **more: Any
) -> Any:
    """Have a job done, and wait for it in this thread."""
    refuse_loops()
    place = ThreadPlace()
    job = Job(step, place, seconds=seconds, on_progress=on_progress, **more)
    try:
        bridge.put(job)
        while job.outcome is None:
            place.take()
    except BaseException:
        job.left = True
        if job.outcome is None:
            bridge.withdraw(job)
            while job.outcome is None:
                place.take()
        raise
    return job.outcome.unwrap()


def refuse_loops() -> None:
    """Refuse to wait in a thread that has to serve a loop.

    Raises:
        RuntimeError: asyncio or trio runs here.
    """
    import trio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if not trio.lowlevel.in_trio_run():
            return
        kind = "trio"
    else:
        kind = "asyncio"
    raise RuntimeError(
        f"this thread runs a loop of {kind}, which a call that blocks would hold up; nothing was sent. Await "
        "the runtime's other face instead, or call from another thread"
    )
