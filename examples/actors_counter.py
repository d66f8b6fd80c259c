"""A ticket counter that hands out at most three numbers a second, to any number of visitors.

It shows the three things an actor is made of: a machine whose turns are plain functions, a reply that is
deferred until there is something to give, and an effect (`WakeAt`) that somebody else carries out.

Run it: `python examples/actors_counter.py`
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import attrs
import trio

from actors import Actor, Answer, Effect, Refusal, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@attrs.frozen
class Take(Request[int]):
    """Ask for a ticket; the reply is its number."""

    now: float


@attrs.frozen
class Tick:
    """The time that a `WakeAt` named has come."""

    now: float


@attrs.frozen
class WakeAt:
    """Effect: send a `Tick` at that time."""

    when: float


class TooManyWaiting(Refusal):
    """The hall is full."""


class TicketCounter:
    """At most `rate` tickets in any window of one second that begins with a ticket."""

    def __init__(self, rate: int, seats: int) -> None:
        self.rate = rate
        self.seats = seats
        self.issued = 0
        self.window_ends = 0.0
        self.left = 0
        self.wake_is_set = False
        self.waiting: deque[Reply[int]] = deque()

    def turn(self, message: Any, reply: Reply[int] | None, /) -> Iterable[Effect]:
        """Give a ticket now, or keep the reply until the next window."""
        effects: list[Effect] = []
        while self.waiting and self.waiting[0].abandoned:
            self.waiting.popleft()
        if reply is not None:
            if len(self.waiting) >= self.seats:
                raise TooManyWaiting(f"{self.seats} visitors wait already")
            self.waiting.append(reply)
        else:
            self.wake_is_set = False
        if message.now >= self.window_ends:
            self.window_ends, self.left = message.now + 1.0, self.rate
        while self.waiting and self.left:
            visitor = self.waiting.popleft()
            if not visitor.abandoned:
                self.issued, self.left = self.issued + 1, self.left - 1
                effects.append(Answer(visitor, self.issued))
        if self.waiting and not self.wake_is_set:
            self.wake_is_set = True
            effects.append(WakeAt(self.window_ends))
        return effects

    def snapshot(self) -> Mapping[str, object]:
        """Show the counter."""
        return {"issued": self.issued, "left": self.left, "waiting": len(self.waiting)}


async def run(visitors: int) -> list[tuple[int, float]]:
    """Let that many visitors come at once; return each ticket with the second it was given in."""
    began = trio.current_time()
    tickets: list[tuple[int, float]] = []

    async with trio.open_nursery() as nursery:

        async def tick_at(when: float) -> None:
            await trio.sleep_until(when)
            counter.tell(Tick(trio.current_time()))

        def perform(_actor: Actor[TicketCounter], effect: Effect) -> None:
            if isinstance(effect, WakeAt):
                nursery.start_soon(tick_at, effect.when)

        async def visit() -> None:
            number = await counter.ask(Take(trio.current_time()))
            tickets.append((number, trio.current_time() - began))

        counter = Actor("tickets", TicketCounter(rate=3, seats=100), perform=perform)
        async with trio.open_nursery() as hall:
            for _ in range(visitors):
                hall.start_soon(visit)
        counter.stop()
    return sorted(tickets)


async def main() -> None:
    """Serve ten visitors."""
    for number, second in await run(10):
        print(f"ticket {number:2d} after {second:.1f} s")


if __name__ == "__main__":
    trio.run(main)
