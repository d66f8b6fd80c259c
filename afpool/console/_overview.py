"""The numbers that people look for first, at once and as they change.

They are counted once for everybody who looks: what is younger than `FRESH` seconds is given again, so that a
hundred consoles cost what one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import trio

from ._slices import Slices
from ._spec import Command
from ._stream import Stream
from ._tables_servers import by_server, server_state

if TYPE_CHECKING:
    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources

FRESH: Final = 0.4
LEAST: Final = 0.2
MOST: Final = 3600.0


def register(registry: Registry, sources: Sources) -> None:
    """Add the commands."""
    overview = Overview(sources)

    async def show(_: Ask) -> dict[str, Any]:
        return await overview.get()

    def watch(ask: Ask) -> Stream:
        return OverviewStream(overview, ask.seconds("every", 1.0, least=LEAST, most=MOST))

    registry.command(
        Command(
            words=("show", "overview"),
            usage="show overview",
            help="what people look at first: calls a second, in flight, waiting, refusals, times, lag",
            run=show,
        )
    )
    registry.command(
        Command(
            words=("watch", "overview"),
            usage="watch overview [every=1s]",
            help="the same, again and again",
            run=watch,
            options=("every",),
        )
    )


@final
class Overview:
    """Counts what is shown, at most once in `FRESH` seconds.

    Args:
        sources: Of what.

    Attributes:
        counted: How often it was counted.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._began = sources.pool.seams.now()
        self._at = float("-inf")
        self._last: dict[str, Any] = {}
        self._counting: trio.Event | None = None
        self.counted = 0

    async def get(self) -> dict[str, Any]:
        """Give the numbers; whoever gets them must not change them. A checkpoint where they are counted."""
        while self._sources.pool.seams.now() - self._at >= FRESH:
            if self._counting is not None:
                await self._counting.wait()
                continue
            over = self._counting = trio.Event()
            try:
                self._last = await self._count(Slices())
                self._at = self._sources.pool.seams.now()
                self.counted += 1
            finally:
                self._counting = None
                over.set()
        return self._last

    async def _count(self, slices: Slices) -> dict[str, Any]:
        sources = self._sources
        pool = sources.pool
        now = pool.seams.now()
        of = await by_server(sources, now, slices)
        counted = sources.counted()
        times = {row["server"]: row for row in counted.get("servers", ())}
        waits = [one.maxwait for one in of.values() if one.maxwait is not None]
        lag = None if sources.lag is None else sources.lag.numbers()
        return {
            "kind": "overview",
            "now": pool.seams.unix_now(),
            "uptime": now - self._began,
            "calls": counted.get("calls"),
            "opens": counted.get("opens"),
            "in_flight": pool.admission.used,
            "running": len(pool.running),
            "waiting": pool.waiting + pool.admission.waiting,
            "settling": pool.settling,
            "oldest_wait": max(waits) if waits else None,
            "clients": len(pool.openings.clients),
            "actors": sum(one.keys for one in of.values()),
            "opened": pool.openings.opened,
            "evictions": pool.openings.evicted,
            "abandoned": pool.abandoned,
            "lag": None if lag is None else {"now": lag.now, "p99": lag.p99, "max": lag.max},
            "refusals": counted.get("refusals", []),
            "outcomes": counted.get("outcomes", {}),
            "stages": counted.get("stages", []),
            "servers": [
                {
                    **{name: value for name, value in times.get(name_of, {}).items() if name != "server"},
                    "server": name_of,
                    "state": server_state(sources, name_of, one),
                    "actors": one.keys,
                    "clients": one.clients,
                    "opening": one.opening,
                    "in_flight": one.in_flight,
                    "waiting": one.waiting,
                    "maxwait": one.maxwait,
                }
                for name_of, one in of.items()
            ],
            "sinks": sources.sinks(),
        }


@final
class OverviewStream(Stream):
    """The overview, once in a while."""

    def __init__(self, overview: Overview, interval: float) -> None:
        super().__init__(interval)
        self._overview = overview

    async def make(self) -> dict[str, Any] | None:
        """Count."""
        return None if self.ended else {"overview": await self._overview.get()}
