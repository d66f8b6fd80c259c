"""What a runtime adds to its console: runs, sinks, its own settings, memory of its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..console import Ask, Registry, Table
    from ._runtime import Runtime

_OWN: tuple[str, ...] = ("deadline", "list_patience", "qualify", "repeat")


def register(runtime: Runtime, registry: Registry) -> None:
    """Add tables, and what the pool's own tables read of the runtime. Synchronous."""
    sources = registry.sources
    if sources is None:
        return  # somebody's own registry, which is not made of a pool
    sources.open_runs = runtime.runs
    sources.sink_states = runtime.sinks.states
    sources.more_memory.append(lambda: _memory(runtime))
    registry.table(_config(runtime, registry))


def _config(runtime: Runtime, registry: Registry) -> Table:
    """The settings of the pool, and those of the runtime in front of them."""
    pools = registry.tables["config"]

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        config = runtime.config
        fields = attrs.fields_dict(type(config))
        for name in _OWN:
            field = fields.get(name)
            if field is not None:
                value = getattr(config, name)
                yield f"runtime.{name}", _plain(value), "default" if value == field.default else "given"
        yield "runtime.tools", ", ".join(tool.name for tool in config.tools) or None, "given"
        for part in ("artifacts", "credentials", "hooks", "record"):
            value = getattr(config, part, None)
            kind = None if not value else type(value).__name__
            if isinstance(value, tuple | list):
                kind = str(len(value))
            yield f"runtime.{part}", kind, "default" if not value else "given"
        found = pools.rows(ask)
        yield from found  # type: ignore[misc]  # that table is made without waiting

    return attrs.evolve(pools, rows=rows)


def _plain(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else str(value)


def _memory(runtime: Runtime) -> Iterator[tuple[Any, ...]]:
    minted = runtime.record.minted
    yield "record: artifacts put", len(minted), minted.bytes, None, "estimated"
    memory = getattr(runtime.config.artifacts, "memory", None)
    if isinstance(memory, tuple):
        taken, most = memory
        yield "artifacts in memory", None, taken, most, "counted"
