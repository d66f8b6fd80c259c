"""Blocks that a ^C cannot fall into the gaps of.

Between the moment when an `async with` has opened something and the moment when its block has begun, a
KeyboardInterrupt would leave what was opened open, and its nursery on the task. So entering and leaving are
protected as a whole, as trio's own are: it arrives at a checkpoint, in the block.
"""

from __future__ import annotations

import functools
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")


@final
class _Protected(AbstractAsyncContextManager[T]):
    """A block whose entering and leaving are protected from KeyboardInterrupt."""

    __slots__ = ("_inner",)

    def __init__(self, inner: AbstractAsyncContextManager[T]) -> None:
        self._inner = inner

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> T:
        return await self._inner.__aenter__()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)


def protected_block(
    opens: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Make a block of an async generator, as `contextlib.asynccontextmanager` does; see the module."""
    make: Callable[..., AbstractAsyncContextManager[Any]] = asynccontextmanager(opens)

    @functools.wraps(opens)
    def opened(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Protected(make(*args, **kwargs))

    return opened
