"""One line of an outcome, and what it is held to.

Figures are of one run on one machine, taken in rounds in which everything that is compared has its turn, and
the best round counts: what else the machine does is not what is asked about.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs
from compare import write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable


@attrs.frozen
class Figure:
    """One line of the outcome.

    Attributes:
        what: What was measured.
        measured: In `unit`.
        unit: `us`, `MB/s`, `/s`; `x` for a ratio.
        limit: What it is held to; `None` where it is only shown.
        at_least: Whether more is better.
    """

    what: str
    measured: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    @property
    def kept(self) -> bool:
        if self.limit is None:
            return True
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def line(self) -> str:
        """The figure beside its limit."""
        text = f"{self.what:<52} {self.measured:>10,.2f} {self.unit:<4}"
        if self.limit is None:
            return text.rstrip()
        bound = "at least" if self.at_least else "at most"
        return f"{text}  {bound} {self.limit:,.3g}{'' if self.kept else '   MISSED'}"


def tell(figures: Iterable[Figure], name: str | None = None) -> int:
    """Print figures, and those that were missed once more; gives the exit code.

    Args:
        figures: In their order.
        name: Under which they are written down as well, for whoever gathers them.
    """
    told = list(figures)
    for figure in told:
        print(figure.line, flush=True)
    missed = [figure.what for figure in told if not figure.kept]
    if missed:
        print(f"missed: {', '.join(missed)}")
    if name is not None:
        write(name, {"figures": [attrs.asdict(figure) for figure in told]})
    return 1 if missed else 0


def each(run: Callable[[], object], seconds: float) -> float:
    """Microseconds of this thread that one run takes, over a window of about `seconds`."""
    times = 1
    while True:
        began = time.thread_time()
        for _ in range(times):
            run()
        took = time.thread_time() - began
        if took >= seconds:
            return took / times * 1e6
        times = max(times + 1, int(times * min(10.0, 1.3 * seconds / max(took, 1e-6))))


async def each_awaited(run: Callable[[], Awaitable[object]], seconds: float) -> float:
    """Microseconds of this thread that one awaited run takes."""
    began, times = time.thread_time(), 0
    while time.thread_time() - began < seconds:
        for _ in range(50):
            await run()
        times += 50
    return (time.thread_time() - began) / times * 1e6
