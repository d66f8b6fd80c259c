"""What a person sees while something takes long: one line on stderr, which goes away again.

Nobody else sees anything: in a pipe, in a log and with TERM=dumb nothing of it is written.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ._output import Output

PATIENCE: Final = 0.3
"""Seconds that pass before anything is shown: what is quick does not flicker."""

EVERY: Final = 0.1
_TURNS: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@contextlib.asynccontextmanager
async def showing(out: Output, what: Callable[[], str]) -> AsyncIterator[None]:
    """Show what goes on, for the time of the block.

    Args:
        out: Where to.
        what: Gives the words of the moment.

    An exception of the block leaves as itself.
    """
    if not out.watched:
        yield
        return
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show, out, what)
        try:
            yield
        except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None


async def _show(out: Output, what: Callable[[], str]) -> None:
    began = trio.current_time()
    await trio.sleep(PATIENCE)
    turn = 0
    try:
        while True:
            passed = trio.current_time() - began
            out.show(f"{_TURNS[turn % len(_TURNS)]} {what()}  {passed:.1f} s")
            turn += 1
            await trio.sleep(EVERY)
    finally:
        out.show("")
