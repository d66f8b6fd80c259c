"""Opening a runtime in a thread of its own, from asyncio or from a thread."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from . import _steps as steps
from ._asynchronous import AsyncRuntime
from ._blocking import BlockingRuntime
from ._bridge import Bridge
from ._jobs import Job, refuse_loops
from ._places import ThreadPlace, place_of_running_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ..runtime import Runtime
    from ._bridge import Source


@contextlib.asynccontextmanager
async def open_runtime(
    source: Source = None, /, *, trio_options: Mapping[str, Any] | None = None, **fields: Any
) -> AsyncIterator[AsyncRuntime]:
    """Open a runtime for the time of the block, from asyncio.

    Args:
        source: A `RuntimeConfig`; or, where parts of it have to be opened (a store in a file, OAuth), a
            function that gives an asynchronous context manager which gives one: it is entered and left in the
            runtime's thread, under trio.
        trio_options: Arguments of `trio.run`, such as `instruments`.
        fields: Fields of `RuntimeConfig`, in place of the config's.

    Raises:
        TypeError: Something is not of its kind.
        ValueError: As `afpool.open_runtime`.

    What the configuration holds (identity callables, hooks, callbacks, providers) is called in the runtime's
    thread, and is asynchronous for trio; see `from_asyncio` and `told_in_asyncio`. Leaving closes it, also
    when the block was cancelled; an exception of the block leaves as itself.
    """
    place = place_of_running_loop()
    bridge = Bridge(source, fields, trio_options or {}, place)
    opening = Job(steps.nothing, place)
    waiter = opening.waiter = place.loop.create_future()
    bridge.start(opening)
    try:
        await waiter
    except BaseException as error:
        bridge.abandon()
        while opening.outcome is None and isinstance(error, asyncio.CancelledError):
            opening.waiter = place.loop.create_future()
            await opening.waiter
        raise
    assert opening.outcome is not None
    inner: Runtime = opening.outcome.unwrap()
    runtime = AsyncRuntime(steps.Handle(bridge), inner)
    del inner
    try:
        yield runtime
    finally:
        await runtime.aclose()


def open_runtime_sync(
    source: Source = None, /, *, trio_options: Mapping[str, Any] | None = None, **fields: Any
) -> BlockingRuntime:
    """Open a runtime from a thread; close it with `close`, or use it as a context manager.

    Args:
        source: As `open_runtime`.
        trio_options: As `open_runtime`.
        fields: As `open_runtime`.

    Raises:
        RuntimeError: An asyncio or trio loop runs in this thread.
        TypeError: Something is not of its kind.
        ValueError: As `afpool.open_runtime`.

    One that is forgotten is closed when it is collected, with a `ResourceWarning`, or when the interpreter
    ends.
    """
    refuse_loops()
    place = ThreadPlace()
    bridge = Bridge(source, fields, trio_options or {}, None)
    opening = Job(steps.nothing, place)
    try:
        bridge.start(opening)
        while opening.outcome is None:
            place.take()
    except BaseException:
        bridge.abandon()
        raise
    runtime: Runtime = opening.outcome.unwrap()
    return BlockingRuntime(steps.Handle(bridge), runtime)
