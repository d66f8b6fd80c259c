"""Tables of the process: `memory`, `loop`, `version`, `consoles`, `sinks`, `stages`, `refusals`."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING, Any

import trio

from .._base.version import own_version
from ._memory import parts_of
from ._spec import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources


def register(registry: Registry, sources: Sources) -> None:
    """Add the tables."""
    registry.table(memory(sources))
    registry.table(loop(sources))
    registry.table(version(sources))
    registry.table(consoles(sources))
    registry.table(sinks(sources))
    registry.table(stages(sources))
    registry.table(refusals(sources))


def memory(sources: Sources) -> Table:
    """What takes how much, estimated."""

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        yield from parts_of(sources)

    return Table(
        name="memory",
        help="memory by part, estimated, and of the whole process",
        columns=(
            Column("part", "text"),
            Column("items", "count"),
            Column("bytes", "bytes"),
            Column("most", "bytes", "where there is a limit"),
            Column("how", "text", "measured, counted, or estimated of a sample"),
        ),
        rows=rows,
    )


def loop(sources: Sources) -> Table:
    """How late the event loop is, and how much it has to do."""

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        lag = None if sources.lag is None else sources.lag.numbers()
        now = trio.lowlevel.current_statistics()
        yield (
            None if lag is None else lag.now,
            None if lag is None else lag.p50,
            None if lag is None else lag.p99,
            None if lag is None else lag.max,
            0 if lag is None else lag.samples,
            now.tasks_living,
            now.tasks_runnable,
            now.run_sync_soon_queue_size,
            None if now.seconds_to_next_deadline == float("inf") else now.seconds_to_next_deadline,
        )

    return Table(
        name="loop",
        help="how late the event loop was over the last minute, and how much it has to do",
        columns=(
            Column("lag", "seconds", "at the last beat"),
            Column("p50", "seconds"),
            Column("p99", "seconds"),
            Column("max", "seconds"),
            Column("beats", "count", "that were measured"),
            Column("tasks", "count", "that live"),
            Column("runnable", "count", "that could run now"),
            Column("callbacks", "count", "that other threads have queued"),
            Column("deadline_in", "seconds", "until the next deadline"),
        ),
        rows=rows,
    )


def version(sources: Sources) -> Table:
    """Which process this is."""

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        console = sources.console
        opened_at = None if console is None else console.opened_at
        yield (
            None if console is None else console.name,
            own_version("unknown"),
            os.getpid(),
            platform.python_version(),
            trio.__version__,
            f"{platform.system()} {platform.machine()}",
            sys.implementation.name,
            None if opened_at is None else ask.unix_of(opened_at),
            None if opened_at is None else ask.now - opened_at,
        )

    return Table(
        name="version",
        help="which process this is, and what it runs on",
        columns=(
            Column("name", "text"),
            Column("afpool", "text"),
            Column("pid", "id"),
            Column("python", "text"),
            Column("trio", "text"),
            Column("platform", "text"),
            Column("implementation", "text"),
            Column("since", "unix", "when its console was opened"),
            Column("uptime", "seconds"),
        ),
        rows=rows,
    )


def consoles(sources: Sources) -> Table:
    """Who looks."""

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        console = sources.console
        for session in [] if console is None else list(console.sessions):
            yield (
                session["id"], session["who"], session["level"], ask.now - session["since"],
                session["streams"], session["dropped"], session["bytes"],
            )  # fmt: skip

    return Table(
        name="consoles",
        help="consoles that are attached",
        columns=(
            Column("id", "id"),
            Column("who", "text"),
            Column("level", "text"),
            Column("age", "seconds"),
            Column("streams", "count", "that it follows"),
            Column("dropped", "count", "events that it was too slow for"),
            Column("bytes", "bytes", "that were sent to it"),
        ),
        rows=rows,
        older="age",
    )


def sinks(sources: Sources) -> Table:
    """Where the record goes beside memory."""

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        for sink in sources.sink_states():
            yield sink.name, sink.queued, sink.written, sink.dropped, sink.refused, sink.trouble

    return Table(
        name="sinks",
        help="where the record goes beside memory, and what was lost on the way",
        columns=(
            Column("sink", "text"),
            Column("queued", "count", "records that wait"),
            Column("written", "count"),
            Column("dropped", "count", "records that found its queue full"),
            Column("refused", "count", "records that failed there"),
            Column("trouble", "text", "why it cannot write now"),
        ),
        rows=rows,
    )


def stages(sources: Sources) -> Table:
    """Where the time goes."""

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        for stage in sources.counted().get("stages", ()):
            yield stage["stage"], stage["count"], stage["p50"], stage["p95"], stage["p99"]

    return Table(
        name="stages",
        help="where the time of calls goes, over the last minute",
        columns=(
            Column("stage", "text"),
            Column("count", "count"),
            Column("p50", "seconds"),
            Column("p95", "seconds"),
            Column("p99", "seconds"),
        ),
        rows=rows,
        sort="-p99",
    )


def refusals(sources: Sources) -> Table:
    """What calls were refused or failed with."""

    def rows(_: Ask) -> Iterator[tuple[Any, ...]]:
        for refusal in sources.counted().get("refusals", ()):
            yield refusal["code"], refusal["total"], refusal["rate"]

    return Table(
        name="refusals",
        help="codes that calls ended with, and how many a second",
        columns=(
            Column("code", "text"),
            Column("total", "count"),
            Column("rate", "rate", "a second, over the last ten"),
        ),
        rows=rows,
        sort="-total",
    )
