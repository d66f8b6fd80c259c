"""What an app says about where its records go, checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence  # noqa: TC003  (attrs resolves the annotations)
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

if TYPE_CHECKING:
    from .._base.use import Use
    from ..pool import Event
    from ._otel import OpenTelemetry

FSYNC = ("never", "rotate", "always")


class Sink(Protocol):
    """Takes records. The first two are called in the filing step: they must neither block nor do I/O.

    Attributes:
        dropped: Records that it could not take.
    """

    @property
    def dropped(self) -> int:
        """How many records it could not take."""
        ...

    def file(self, use: Use) -> object:
        """Take the use of an ended call. Synchronous; one that raises is counted and told of the next."""
        ...

    def event(self, event: Event) -> object:
        """Take an event of the pool, likewise."""
        ...

    async def aclose(self) -> None:
        """Finish, within a bound of its own; called once, after the pool was closed."""
        ...


def _path(value: str | os.PathLike[str]) -> Path:
    return Path(os.fspath(value))


def _tuple(value: Sequence[Sink]) -> Sequence[Sink]:
    return tuple(value)


@attrs.frozen(kw_only=True)
class JsonlSettings:
    """A file of records, one JSON object a line.

    Attributes:
        path: The file; its directory has to be there. Older ones stand beside it, as `path.1` and so on.
        max_bytes: A file is not made longer than this.
        keep: How many older files are kept.
        fsync: When it is made sure that the disk has it: `never`; `rotate`, when a file is full and at the
            end; `always`, after every write.
        queue: Records that may wait to be written; one more is dropped and counted.

    Raises:
        ValueError: A number is too small, or `fsync` is none of these words.
    """

    path: Path = attrs.field(converter=_path)
    max_bytes: int = attrs.field(default=64 * 2**20, validator=attrs.validators.ge(4096))
    keep: int = attrs.field(default=5, validator=attrs.validators.ge(0))
    fsync: Literal["never", "rotate", "always"] = attrs.field(
        default="rotate", validator=attrs.validators.in_(FSYNC)
    )
    queue: int = attrs.field(default=8192, validator=attrs.validators.ge(1))


@attrs.frozen(kw_only=True)
class RecordSettings:
    """Where the records of a runtime go, beside the ring that it keeps.

    Attributes:
        jsonl: A file of records.
        on_record: Called with each record as plain data (`use_as_json`, `event_as_json`), one after the other
            in a thread of its own: it may block. What finds 8,192 of them waiting is dropped and counted.
        sinks: Further ones. They are closed when the runtime is.
        tracing: Spans and metrics of OpenTelemetry.
        numbers: Whether calls are counted from the start; otherwise from when somebody first asks.
        tools: How many tools are counted by name, for metrics; the others together.
        tenants: How many tenants are counted by digest; the others together.
        close_timeout: Seconds that closing the file and `on_record` take at most.
    """

    jsonl: JsonlSettings | None = None
    on_record: Callable[[dict[str, Any]], object] | None = None
    sinks: Sequence[Sink] = attrs.field(default=(), converter=_tuple)
    tracing: OpenTelemetry | None = None
    numbers: bool = False
    tools: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    tenants: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    close_timeout: float = attrs.field(default=2.0, validator=attrs.validators.gt(0))
