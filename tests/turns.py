"""Whether something long lets other tasks have their turn: a task that counts how often it had one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@attrs.define
class Turns:
    """How many turns another task has had so far."""

    had: int = 0

    async def take(self) -> None:
        """Have a turn whenever there is one."""
        while True:
            await trio.lowlevel.checkpoint()
            self.had += 1


@asynccontextmanager
async def turns_of_another() -> AsyncIterator[Turns]:
    """A task beside the block, for as long as the block lasts."""
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.take)
        yield turns
        nursery.cancel_scope.cancel()
