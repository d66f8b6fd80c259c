"""Sinks: where uses and events are handed to beside the ring, opened around a pool.

Rules:

* Sinks are opened before the pool and closed after it: what is filed while the pool is left is written, too.
* Sinks that do I/O stand behind a queue of their own (`QueuedSink`). Those of the host's are called in the
  filing step, under the pool's promise: one that raises is counted and goes on being told.
* Whatever a sink does, nothing of it reaches the block that it was opened around.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from .._base.entering import protected_block
from .._base.seams import Seams
from ._json import as_lines, as_plain
from ._jsonl import JsonlFile
from ._numbers import Numbers
from ._queue import Block, QueuedSink, SinkState, Written, logger
from ._settings import RecordSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ..pool import Pool
    from ._json import CallLine
    from ._settings import JsonlSettings, Sink

AT_A_TIME: Final = 0.25
"""Seconds after which the host's function is not called again before the loop has heard of it."""
_GONE: Final = 1.0


@final
class _Calls:
    """Hands records to a function of the host's, one after the other."""

    def __init__(self, call: Callable[[dict[str, Any]], object]) -> None:
        self._call = call
        self._failed = False

    def write(self, batch: list[Block]) -> Written:
        """See `Writer`."""
        refused = 0
        until = time.monotonic() + AT_A_TIME
        for done, (record, _) in enumerate(batch, 1):
            try:
                self._call(record)
            except Exception as error:  # noqa: BLE001 -- the host's; it goes on being told
                refused += 1
                if not self._failed:
                    self._failed = True
                    kind = type(error).__name__  # its text may hold anything
                    logger.error("on_record raised %s; it is told of the next all the same", kind)
            if time.monotonic() > until:
                return Written(batch[done:], refused)
        return Written(refused=refused)

    def close(self) -> None:
        """See `Writer`."""


def jsonl_sink(settings: JsonlSettings, *, seams: Seams, close_timeout: float = 2.0) -> QueuedSink:
    """Make the sink of a file."""
    file = JsonlFile(settings.path, max_bytes=settings.max_bytes, keep=settings.keep, fsync=settings.fsync)
    return QueuedSink(
        "jsonl", file, plain=_as_lines, seams=seams, most=settings.queue, close_timeout=close_timeout
    )


def call_sink(
    call: Callable[[dict[str, Any]], object], *, seams: Seams, close_timeout: float = 2.0
) -> QueuedSink:
    """Make the sink of a function of the host's."""
    return QueuedSink("on_record", _Calls(call), plain=_one_by_one, seams=seams, close_timeout=close_timeout)


def _as_lines(records: list[CallLine | dict[str, Any]]) -> list[Block]:
    return [Block(as_lines(records), len(records))]


def _one_by_one(records: list[CallLine | dict[str, Any]]) -> list[Block]:
    return [Block(record, 1) for record in as_plain(records)]


@final
class Sinks:
    """What a pool's records are handed to. Made by `open_sinks`; belongs to one trio thread."""

    def __init__(self, settings: RecordSettings, queued: tuple[QueuedSink, ...]) -> None:
        self.settings = settings
        self._queued = queued
        self._numbers: Numbers | None = None
        self._pool: Pool | None = None

    def attach(self, pool: Pool) -> None:
        """Hand on what a pool files from now on. Synchronous; once."""
        self._pool = pool
        for sink in self._queued:
            sink.attach(pool)
        for other in self.settings.sinks:
            pool.records.tap(on_use=other.file, on_event=other.event)
        if self.settings.tracing is not None:
            self.settings.tracing.attach(pool)
        if self.settings.numbers:
            self.numbers()

    def numbers(self) -> Numbers:
        """Give the numbers of the pool. Calls are counted from the first time on, or from the start."""
        if self._numbers is None:
            assert self._pool is not None, "numbers are of a pool"
            settings = self.settings
            self._numbers = Numbers(self._pool, tools=settings.tools, tenants=settings.tenants)
        return self._numbers

    @property
    def counted(self) -> Numbers | None:
        """The numbers, where calls are counted."""
        return self._numbers

    def states(self) -> list[SinkState]:
        """Say how each sink is doing, each under a name of its own. Synchronous."""
        found = [sink.state for sink in self._queued]
        names = {state.name for state in found}
        for sink in self.settings.sinks:
            called = name = type(sink).__name__
            number = 1
            while name in names:  # a scrape in which two series are one is taken by nobody
                number += 1
                name = f"{called}-{number}"
            names.add(name)
            found.append(SinkState(name, 0, 0, sink.dropped, 0, None))
        return found

    async def aclose(self) -> None:
        """Close all of them, at once and within their bounds."""
        async with trio.open_nursery() as nursery:
            for sink in (*self._queued, *self.settings.sinks):
                nursery.start_soon(_close, sink)


async def _close(sink: Sink | QueuedSink) -> None:
    try:
        await sink.aclose()
    except Exception as error:  # noqa: BLE001 -- the host's; the others are closed
        logger.error("closing the sink %r failed (%s)", type(sink).__name__, type(error).__name__)


@protected_block
async def open_sinks(
    settings: RecordSettings | None = None, *, seams: Seams | None = None
) -> AsyncIterator[Sinks]:
    """Open sinks for the time of the block, to be attached to a pool that is opened inside of it.

    Args:
        settings: Where records go; nowhere where absent.
        seams: Clocks and threads; those of the pool.

    Leaving writes what still waits, and says in the log what was lost. It takes no longer than
    `close_timeout`, also when the block is cancelled; sinks of the host's take what they take. An exception
    of the block leaves as itself.
    """
    settings = RecordSettings() if settings is None else settings
    seams = Seams() if seams is None else seams
    if seams.now is trio.current_time:
        seams = attrs.evolve(seams, now=trio.lowlevel.current_clock().current_time)
    make: list[Callable[..., QueuedSink]] = []
    if settings.jsonl is not None:
        make.append(functools.partial(jsonl_sink, settings.jsonl))
    if settings.on_record is not None:
        make.append(functools.partial(call_sink, settings.on_record))
    queued = tuple(each(seams=seams, close_timeout=settings.close_timeout) for each in make)
    sinks = Sinks(settings, queued)
    if not queued:
        try:
            yield sinks
        finally:
            with trio.CancelScope(shield=True):
                await sinks.aclose()
        return
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            for sink in queued:
                sink.begin(nursery)
            yield sinks
        except BaseException as error:  # noqa: BLE001 -- raised below, as itself and after all is closed
            failure = error
        with trio.CancelScope(shield=True):
            await sinks.aclose()
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None
