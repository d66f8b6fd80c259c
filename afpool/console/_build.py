"""Everything that can be asked of a pool, in one registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..record import Numbers
from . import (
    _check,
    _control,
    _grid,
    _overview,
    _show,
    _tables_calls,
    _tables_kept,
    _tables_keys,
    _tables_process,
    _tables_servers,
    _tail,
    _trace,
    _tree,
)
from ._registry import Registry
from ._sources import Sources

if TYPE_CHECKING:
    from ..pool import Pool
    from ..record import LoopLag, Record


def build_registry(
    *,
    pool: Pool,
    record: Record | None = None,
    lag: LoopLag | None = None,
    console: Any = None,
    numbers: Numbers | None = None,
) -> Registry:
    """Make the registry of a pool; layers above add to it what they know.

    Args:
        pool: The pool.
        record: Its record, for `why`.
        lag: How late the loop is.
        console: The console that asks, for what it says of itself.
        numbers: Counts of the pool's calls, where somebody counts them; else they are counted from now on.

    Returns:
        It; `registry.sources` is what its tables read from.
    """
    registry = Registry(pool.seams)
    own = Numbers(pool) if numbers is None else None
    sources = Sources(pool, record=record, lag=lag, numbers=numbers or own, console=console)
    registry.sources = sources
    if own is not None:
        registry.at_end(own.close)
    for part in (
        _tables_servers, _tables_keys, _tables_calls, _tables_kept, _tables_process, _show, _overview, _grid,
        _tail,
    ):  # fmt: skip
        part.register(registry, sources)
    _trace.register(registry, sources)
    _tree.register(registry)
    registry.leases = _control.register(registry, sources)
    registry.checks = _check.register(registry, sources, registry.leases)
    return registry
