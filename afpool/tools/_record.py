"""What is recorded of calls: events for the host, detached from everything that goes on changing.

Rules:

* An event holds bytes and plain values only. What it tells is decoded anew whenever it is read, so that
  nobody who runs later changes it and nobody who reads it changes it for others.
* The names of a start, its progress and its end are the same call's, in this order, each start with one end.
* A sink that raises misses the event; the call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ..protocol import MalformedMessage, decode_json

if TYPE_CHECKING:
    from .._base.errors import Delivery
    from .._base.identity import Identity

logger = logging.getLogger("afpool")


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


@final
class CallRecord:
    """Files the events of one call; does nothing where nobody listens."""

    __slots__ = ("_call_id", "_now", "_run_id", "_sink", "identity")

    def __init__(
        self,
        sink: EventSink | None,
        now: Callable[[], float],
        call_id: str,
        run_id: str | None,
        identity: Identity | None,
    ) -> None:
        self._sink = sink
        self._now = now
        self._call_id = call_id
        self._run_id = run_id
        self.identity = identity

    def file(
        self,
        kind: str,
        facts: Mapping[str, Any],
        *,
        code: str | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        """File one event; the facts must not change afterwards."""
        sink = self._sink
        if sink is None:
            return
        event = ToolEvent(
            kind, self._now(), self._call_id, self._run_id, self.identity, facts, code, delivery
        )
        try:
            sink(event)
        except Exception as error:  # noqa: BLE001 -- the host's code, which may raise anything
            logger.warning("on_event raised %s at %s", type(error).__name__, kind)
