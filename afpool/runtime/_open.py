"""Opening a runtime: for the time of a block, or in a task of somebody's nursery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._base.entering import protected_block
from .._base.seams import Seams
from ..pool import open_pool
from ..record import open_sinks
from ._config import RuntimeConfig
from ._console import console_beside
from ._runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@protected_block
async def open_runtime(config: RuntimeConfig | None = None, /, **fields: Any) -> AsyncIterator[Runtime]:
    """Open a runtime for the time of the block.

    Args:
        config: What to open; an empty `RuntimeConfig` when absent.
        fields: Fields of `RuntimeConfig`, in place of the config's.

    Raises:
        TypeError: Something is not of its kind.
        ValueError: Two tools of one name, a tool that wants artifacts without a store, rules for no server.
        CannotOpenConsole: The console cannot listen where it is told to.

    Leaving closes the pool as `open_pool` does, then writes what waits for a sink of its record; an exception
    of the block leaves as itself. What was given (an artifact store, a credential provider) is its giver's to
    close.
    """
    config = RuntimeConfig(**fields) if config is None else attrs.evolve(config, **fields)
    seams = Seams() if config.seams is None else config.seams
    if seams.now is trio.current_time:
        seams = attrs.evolve(seams, now=trio.lowlevel.current_clock().current_time)
    async with (
        open_sinks(config.record, seams=seams) as sinks,
        open_pool(
            config.servers,
            plan=config.plan,
            share=config.share,
            credentials=config.credentials,
            signer=config.signer,
            secret=config.secret,
            on_use=config.on_use,
            on_authorization=config.on_authorization,
            seams=seams,
            **config.pool,
        ) as pool,
    ):
        sinks.attach(pool)
        runtime = Runtime(config, pool, seams, sinks)
        try:
            async with console_beside(runtime):
                yield runtime
        finally:
            runtime.close()


async def run_runtime(
    config: RuntimeConfig, *, task_status: trio.TaskStatus[Runtime] = trio.TASK_STATUS_IGNORED
) -> None:
    """Keep a runtime open in a task, for who cannot nest: `await nursery.start(run_runtime, config)`.

    Args:
        config: What to open.
        task_status: Given the runtime.

    Runs until cancelled, or until its pool was closed.
    """
    async with open_runtime(config) as runtime:
        task_status.started(runtime)
        await runtime.pool.closed.wait()
