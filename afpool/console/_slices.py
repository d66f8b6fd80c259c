"""Long work in short slices: a console that looks at ten thousand keys must not be felt by one call.

A slice ends when it has taken `BUDGET` seconds of real time; then every other task has its turn. Real time
and not trio's: what is bounded is how long the loop is held.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import msgspec
import trio

from ..record._json import CallLine, as_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

T = TypeVar("T")

BUDGET: Final = 0.001
STEP: Final = 16
"""How many small steps are gone before the clock is looked at: looking costs about as much as one of them."""


@final
class Slices:
    """Says when it is somebody else's turn. One for each piece of work.

    Args:
        budget: Seconds that one slice may take.
        clock: Seconds of real time.

    Attributes:
        turns: How many slices were ended.
    """

    __slots__ = ("_began", "_budget", "_clock", "_left", "turns")

    def __init__(self, budget: float = BUDGET, clock: Callable[[], float] = time.perf_counter) -> None:
        self._budget = budget
        self._clock = clock
        self._left = STEP
        self._began = clock()
        self.turns = 0

    async def step(self) -> None:
        """Count a small step; a checkpoint where the slice is used up."""
        self._left -= 1
        if self._left <= 0:
            await self.look()

    async def look(self) -> None:
        """Look at the clock now, after a step that may have been long; a checkpoint where it is time."""
        self._left = STEP
        if self._clock() - self._began >= self._budget:
            self.turns += 1
            await trio.lowlevel.checkpoint()
            self._began = self._clock()

    def each(self, things: Iterable[T] | AsyncIterator[T]) -> Each[T]:
        """Go through something that is made lazily; its own steps count as well.

        What it goes through must bear that the world changes between two of its items. It may be left at any
        item; an asynchronous generator in it is to be closed by who made it (`closing`).
        """
        return Each(self, things)

    async def sorted(
        self, rows: list[T], order: Callable[[T], Any], *, reverse: bool = False, run: int = 512
    ) -> list[T]:
        """Sort in slices: short runs at once, then merged; stable, and like `sorted` in every other way."""
        runs: list[list[T]] = []
        for at in range(0, len(rows), run):
            runs.append(sorted(rows[at : at + run], key=order, reverse=reverse))
            await self.look()
        while len(runs) > 1:
            pairs = range(0, len(runs) - 1, 2)
            odd = runs[-1:] if len(runs) % 2 else []
            runs = [await self._merged(runs[at], runs[at + 1], order, reverse=reverse) for at in pairs] + odd
        return runs[0] if runs else []

    async def _merged(
        self, first: list[T], second: list[T], order: Callable[[T], Any], *, reverse: bool
    ) -> list[T]:
        out: list[T] = []
        at = other = 0
        while at < len(first) and other < len(second):
            mine, theirs = order(first[at]), order(second[other])
            if (theirs > mine) if reverse else (theirs < mine):
                out.append(second[other])
                other += 1
            else:
                out.append(first[at])
                at += 1
            await self.step()
        out += first[at:]
        out += second[other:]
        return out


@final
class Each(Generic[T]):
    """One going through; no generator, so that whoever leaves it early leaves nothing behind."""

    __slots__ = ("_later", "_now", "_slices")

    def __init__(self, slices: Slices, things: Iterable[T] | AsyncIterator[T]) -> None:
        self._slices = slices
        self._later = things if isinstance(things, AsyncIterator) else None
        self._now = iter(()) if isinstance(things, AsyncIterator) else iter(things)

    def __aiter__(self) -> Each[T]:
        return self

    async def __anext__(self) -> T:
        if self._later is not None:
            thing = await anext(self._later)
        else:
            try:
                thing = next(self._now)
            except StopIteration:
                raise StopAsyncIteration from None
        slices = self._slices
        slices._left -= 1  # noqa: SLF001 -- a part of it
        if slices._left <= 0:  # noqa: SLF001 -- as above
            await slices.look()
        return thing


def closing(things: object) -> contextlib.AbstractAsyncContextManager[object]:
    """Close an asynchronous generator at the end of a block; do nothing for anything else."""
    if isinstance(things, AsyncGenerator):
        return contextlib.aclosing(things)
    return contextlib.nullcontext()


ROWS_AT_ONCE: Final = 256


async def encode(frame: dict[str, Any], slices: Slices | None = None) -> bytes:
    """Write a frame as JSON; the rows of a long table in slices.

    Args:
        frame: What is to be written; a table's rows may stand in it, or in its member `ok`.
        slices: Of the work that it belongs to.

    A checkpoint only where it is long.
    """
    slices = Slices() if slices is None else slices
    result = frame.get("ok", frame)
    rows = result.get("rows") if isinstance(result, dict) else None
    if not isinstance(rows, list) or len(rows) <= ROWS_AT_ONCE:
        return _encoded(frame)
    parts: list[bytes] = []
    for at in range(0, len(rows), ROWS_AT_ONCE):
        parts.append(_encoded(rows[at : at + ROWS_AT_ONCE])[1:-1])
        await slices.look()
    table = {**result, "rows": None}
    whole = _encoded({**frame, "ok": table} if "ok" in frame else table)
    # inside of a string the quotes would have backslashes: this stands there once
    before, _, after = whole.partition(b'"rows":null')
    return b"".join((before, b'"rows":[', b",".join(parts), b"]", after))


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        # a lone surrogate in somebody's name, or a number that JSON has not: rare, so it may be slow
        return json.dumps(_plain(value), separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, CallLine):
        return _plain(as_plain([value])[0])
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"<{type(value).__name__}>"
