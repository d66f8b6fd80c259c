"""The table `[record]`: where the record goes beside its ring; `[serve.metrics]`: who may read numbers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator  # noqa: TC003  (attrs resolves the annotations)
from typing import TYPE_CHECKING, Literal

import attrs

from .._base.secret import Secret  # noqa: TC001  (attrs resolves the annotations)
from ..console._settings import TOKEN, token_problem
from ._kinds import Boolean, Choice, Text
from ._kinds_of_many import FilePath
from ._numbers import count, size
from ._tables import Record, setting
from ._written import fingerprint

if TYPE_CHECKING:
    from ..record import RecordSettings


@attrs.frozen(kw_only=True)
class JsonlConfig:
    """A file of records, one JSON object a line. See `afpool.record.JsonlSettings`.

    Attributes:
        path: The file; its folder has to be there. Older ones stand beside it, as `path.1` and so on.
        max_bytes: It is not made longer than this.
        keep: How many older files are kept.
        fsync: When it is made sure that the disk has it: `never`, `rotate`, `always`.
        queue: Records that may wait to be written; one more is dropped and counted.
    """

    path: str = attrs.field(metadata=setting(FilePath(), "The file; its folder has to be there."))
    max_bytes: int = attrs.field(
        default=64 * 2**20, metadata=setting(size(least=4096), "It is not made longer than this.")
    )
    keep: int = attrs.field(default=5, metadata=setting(count(least=0), "How many older files are kept."))
    fsync: Literal["never", "rotate", "always"] = attrs.field(
        default="rotate",
        metadata=setting(
            Choice("never", "rotate", "always"),
            "When it is made sure that the disk has it: never, when a file is full, after every write.",
        ),
    )
    queue: int = attrs.field(
        default=8192, metadata=setting(count(), "Records that may wait; one more is dropped and counted.")
    )


@attrs.frozen(kw_only=True)
class LabelsConfig:
    """What metrics tell apart beside servers. Each is a series of its own, for as long as the process runs.

    Attributes:
        tools: How many tools are counted by name; the others together.
        tenants: How many tenants are counted by digest; the others together.
    """

    tools: int = attrs.field(
        default=0,
        metadata=setting(count(least=0), "How many tools are counted by name; the others together."),
    )
    tenants: int = attrs.field(
        default=0,
        metadata=setting(count(least=0), "How many tenants are counted, by digest; the others together."),
    )


@attrs.frozen(kw_only=True)
class RecordConfig:
    """Where the record of calls goes beside its ring. See `afpool.record.RecordSettings`.

    Attributes:
        jsonl: A file of records; its path alone will do.
        otel: Whether calls are traced and measured by OpenTelemetry, by the providers that the process has.
        labels: What metrics tell apart beside servers.
    """

    jsonl: JsonlConfig | None = attrs.field(
        default=None,
        metadata=setting(Record(JsonlConfig, short="path"), "A file of records, one JSON object a line."),
    )
    otel: bool = attrs.field(
        default=False,
        metadata=setting(Boolean(), "Trace and measure calls by the OpenTelemetry providers of the process."),
    )
    labels: LabelsConfig = attrs.field(
        factory=LabelsConfig,
        metadata=setting(Record(LabelsConfig), "What metrics tell apart beside servers."),
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        if self.otel and not _is_there("opentelemetry.sdk"):
            yield "otel", "OpenTelemetry's SDK is not installed: pip install opentelemetry-sdk 'afpool[otel]'"

    def settings(self) -> RecordSettings | None:
        """Make what a runtime is opened with; `None` where the record goes nowhere else."""
        from ..record import JsonlSettings, RecordSettings

        if self == RecordConfig():
            return None
        tracing = None
        if self.otel:
            from ..record import OpenTelemetry

            tracing = OpenTelemetry()
        return RecordSettings(
            jsonl=None if self.jsonl is None else JsonlSettings(**attrs.asdict(self.jsonl)),
            tracing=tracing,
            tools=self.labels.tools,
            tenants=self.labels.tenants,
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _token(token: str) -> str | None:
    problem = token_problem(token)
    return None if problem is None else f"it {problem}"


@attrs.frozen(kw_only=True)
class MetricsConfig:
    """`/metrics` of the service, for Prometheus.

    Attributes:
        enabled: Whether it is there, and calls are counted for it.
        token: Who shows it may read, wherever he is: 16 characters at least, or `sha256:` and its digest.
            Without it, who connects from this machine, and nobody else.
    """

    enabled: bool = attrs.field(
        default=True, metadata=setting(Boolean(), "Whether /metrics is there, and calls are counted for it.")
    )
    token: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(
            Text(pattern=TOKEN, expects="16 visible ASCII characters at least", check=_token, hidden=True),
            "Who shows it may read; or `sha256:` and its digest. Without it, who connects from this machine.",
        ),
    )
