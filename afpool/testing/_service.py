"""Something that runs in a nursery, either the user's or, entered with `async with`, its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import trio

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType


class Service(ABC):
    """Entered, it runs in a nursery of its own, which is cancelled when the body ends.

    An exception of the body leaves as itself, not in a group. A crash of the service cancels the body.
    """

    def __init__(self) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None

    @abstractmethod
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""

    async def __aenter__(self) -> Self:
        manager = trio.open_nursery()
        nursery = await manager.__aenter__()
        try:
            await nursery.start(self.run)
        except BaseException:
            # The nursery is empty again: leaving it plainly raises nothing of its own.
            await manager.__aexit__(None, None, None)
            raise
        self._manager, self._nursery = manager, nursery
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._manager is not None
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        if error is None or _holds_cancelled(error):
            return await self._manager.__aexit__(kind, error, trace)
        # An exception of the body leaves as itself, not in a group.
        await self._manager.__aexit__(None, None, None)
        return False


def _holds_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds_cancelled(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)
