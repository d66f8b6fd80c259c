"""^C in a command that has servers open: the first withdraws what runs and closes them, the second ends all.

So a server that is asked for something is told that nobody waits for it any more, and its process ends.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


def run_async(fn: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run a command's asynchronous part.

    Raises:
        KeyboardInterrupt: It was interrupted, and everything is closed.
    """
    return trio.run(_run, fn, args)


async def _run(fn: Callable[..., Awaitable[T]], args: tuple[object, ...]) -> T:
    failure: BaseException | None = None
    interrupted = False
    results: list[T] = []
    scope = trio.CancelScope()

    async def listen() -> None:
        nonlocal interrupted
        async for _ in signals:
            if interrupted:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            interrupted = True
            scope.cancel()

    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            try:
                with scope:
                    results.append(await fn(*args))
            except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
                failure = error
            nursery.cancel_scope.cancel()
    if interrupted:
        raise KeyboardInterrupt
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None
    return results[0]
