"""What takes how much memory, by part, without going through all of it.

Where something keeps count of its bytes, that is what is shown. Where it does not, a sample of `SAMPLE` is
measured and multiplied: a screen of numbers must not cost what it measures.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..pool._events import EVENTS_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ._sources import Sources

Part: TypeAlias = "tuple[str, int | None, int | None, int | None, str]"

SAMPLE: Final = 64
ACTOR: Final = 1500
"""An idle actor with its machine, as measured; `CLIENT`, a connection with its buffers, without TLS."""
CLIENT: Final = 14_000
EVENT: Final = 8 * 13 + 64 + 8 * 4
"""One event in the columns of the ring, which is allocated once."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def parts_of(sources: Sources) -> Iterator[Part]:
    """Name, items, bytes, limit, and how it is known, of each part."""
    pool = sources.pool
    records = pool.records
    rss, peak = resident()
    yield "process", None, rss, None, "measured"
    if peak is not None:
        yield "process, at its most", None, peak, None, "measured"
    yield "record: calls", len(records.uses), records.bytes, pool.limits.record_bytes, "counted"
    ring = EVENTS_KEPT * EVENT
    yield "record: events", len(records.events), ring, ring, "estimated"
    table = pool.catalogs.table
    yield from _sampled("definitions", len(table), table.tools(), _definition)
    yield from _sampled("catalogs", table.catalog_count, table.catalogs(), _catalog)
    keys = len(pool._actors)  # noqa: SLF001 -- only how many; the values would make them
    yield "keys", keys, keys * ACTOR, None, "estimated"
    clients = pool.openings.clients
    yield "clients", len(clients), len(clients) * CLIENT, None, "estimated"
    running = list(pool.running.values())
    yield "calls under way", len(running), sum(len(call.args) for call in running), None, "counted"
    for part in sources.more_memory:
        yield from part()


def _sampled(name: str, count: int, things: Iterable[Any], size: Callable[[Any], int]) -> Iterator[Part]:
    sizes = [size(thing) for thing in itertools.islice(things, SAMPLE)]
    if not sizes:
        yield name, count, 0, None, "counted"
    elif len(sizes) >= count:
        yield name, count, sum(sizes), None, "counted"
    else:
        yield name, count, sum(sizes) * count // len(sizes), None, "estimated"


def _definition(definition: Any) -> int:
    return 400 + len(definition.raw)


def _catalog(catalog: Any) -> int:
    return 300 + 2 * sys.getsizeof(catalog.names) + 100 * len(catalog)


def resident() -> tuple[int | None, int | None]:
    """Bytes of the process that are in memory, now and at its most; `None` where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 -- no file of a disk, and this is all
            now = int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        now = None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return now, max(peak * 1024, now or 0) if peak else None
