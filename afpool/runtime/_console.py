"""The console of a runtime: opened beside it, closed before its pool is left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ._runtime import Runtime


@contextlib.asynccontextmanager
async def console_beside(runtime: Runtime) -> AsyncIterator[None]:
    """Keep a runtime's console open for the time of the block, where its configuration wants one.

    Raises:
        CannotOpenConsole: It cannot listen, and is `required`.
    """
    wanted = runtime.config.console
    if wanted is False:
        yield
        return
    from ..console import ConsoleSettings, open_console

    settings = ConsoleSettings() if wanted is True else wanted
    record = getattr(runtime, "record", None)
    async with open_console(
        runtime.pool,
        record=record,
        settings=settings,
        lag=runtime.measured(),
        numbers=runtime.sinks.numbers,
    ) as console:
        runtime.console = console
        if console is not None:
            from ._console_tables import register

            register(runtime, console.registry)
        try:
            yield
        finally:
            runtime.console = None
