"""What is told of calls: events for the host, detached from everything that goes on changing.

Rules:

* An event holds bytes and plain values only. What it tells is decoded anew whenever it is read, so that
  nobody who runs later changes it and nobody who reads it changes it for others.
* What cannot be written as JSON is told by its shape, what is too long by its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from .._base.model import Progress
from ..protocol import MalformedMessage, NotJson, decode_json, encode_json
from ._results import json_of

if TYPE_CHECKING:
    from .._base.errors import Delivery
    from .._base.identity import Identity

MAX_REPORT: Final = 4_096
_MAX_NAME: Final = 128


@final
class Encoded:
    """JSON that is decoded when somebody reads it."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def read(self) -> Any:
        """Decode it."""
        try:
            return decode_json(self.raw)
        except MalformedMessage:
            return f"[unreadable: {len(self.raw)} bytes]"


@final
class ToolEvent:
    """One thing that happened to a call.

    Attributes:
        kind: `tool_start`, `tool_progress`, `tool_end`, `tool_repeated`, `args_invalid`, `result_refused`,
            `credential_requested`, `credential_acquired`, `credential_failed`,
            `credential_authorization_required`, or the name of an artifact's fact.
        at: Seconds on the runtime's clock.
        call_id: The call.
        run_id: The run, where there is one.
        identity: Who the run acts for; `None` where its caller named nobody.
        code: Of a `tool_end`: the result's.
        delivery: Of a `tool_end`: the verdict.
    """

    __slots__ = ("_facts", "at", "call_id", "code", "delivery", "identity", "kind", "run_id")

    def __init__(
        self,
        kind: str,
        at: float,
        call_id: str,
        run_id: str | None,
        identity: Identity | None,
        facts: Mapping[str, Any],
        code: str | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        self.kind = kind
        self.at = at
        self.call_id = call_id
        self.run_id = run_id
        self.identity = identity
        self.code = code
        self.delivery = delivery
        self._facts = facts

    @property
    def payload(self) -> dict[str, Any]:
        """What it tells, in plain values; the reader's own to change."""
        return {
            key: value.read() if isinstance(value, Encoded) else _copied(value)
            for key, value in self._facts.items()
        }

    def __repr__(self) -> str:
        return f"<ToolEvent {self.kind} of call {self.call_id}>"


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


EventSink: TypeAlias = Callable[[ToolEvent], object]


def written(shown: Mapping[Any, Any]) -> tuple[Encoded, bool]:
    """Write down what may be shown of arguments, before anybody can change them.

    Returns:
        What was written, and whether all of it is JSON; else it holds their names only.
    """
    try:
        return Encoded(encode_json(shown)), True
    except NotJson:
        names = [_told(key) for key in shown]
        return Encoded(encode_json(dict.fromkeys(names, "[not JSON]"))), False


def _told(key: object) -> str:
    """Write a name that may be no string, or none that JSON holds."""
    name = key if isinstance(key, str) else f"<{type(key).__name__}>"
    return name[:_MAX_NAME].encode("utf-8", "replace").decode()


def reported(report: Any) -> Encoded | str:
    """Write a report down, and no more of it than `MAX_REPORT`."""
    kind = type(report).__name__
    try:
        if isinstance(report, Progress):
            message = report.message
            if message is not None and len(message) > MAX_REPORT:
                message = f"{message[:MAX_REPORT]}…"
            told = (("progress", report.progress), ("total", report.total), ("message", message))
            report = {key: value for key, value in told if value is not None}
        raw = json_of(report)
    except Exception:  # noqa: BLE001 -- also an object that raises when it is looked into
        return f"[not JSON: {kind}]"
    # of any other JSON a part says nothing
    return Encoded(raw) if len(raw) <= 8 * MAX_REPORT else f"[{len(raw)} bytes of JSON]"
