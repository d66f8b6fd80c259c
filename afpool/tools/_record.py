"""What is recorded of calls: events for the host, detached from everything that goes on changing.

Rules:

* An event holds bytes and plain values only. What it tells is decoded anew whenever it is read, so that
  nobody who runs later changes it and nobody who reads it changes it for others.
* The names of a start, its progress and its end are the same call's, in this order, each start with one end.
* An end says what came of the call and, only where a rule acted, what the rule did.
* What a call may add is bounded, however often its tool reports: the first `REPORTS` are filed, of the later
  ones the 64th, the 128th and so on, and the last one; each with its number, so that the last one's is the
  count.
* A sink that raises misses the event; the call goes on.
* What was fetched for a call, or for a call that this one is made from inside of, is in none of its events,
  whoever chose the words: names of tools and arguments, kinds and labels of artifacts. What comes as bytes
  has been cleaned by whoever wrote it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from .._base.model import Progress
from ..protocol import MalformedMessage, NotJson, decode_json, encode_json
from ._results import json_of

if TYPE_CHECKING:
    from .._base.errors import Delivery
    from .._base.identity import Identity
    from .._base.model import ToolResult
    from ._hiding import Hiding

logger = logging.getLogger("afpool")

REPORTS: Final = 32
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


@final
class CallRecord:
    """Files the events of one call; does nothing where nobody listens.

    Attributes:
        identity: Who the run acts for; `None` where its caller named nobody.
        listened: Whether somebody listens.
        hiding: What is hidden in the call; `None` as long as nothing is. May be set.
    """

    __slots__ = (
        "_call_id", "_last", "_now", "_reports", "_run_id", "_sink", "_tool", "hiding", "identity",
        "listened",
    )  # fmt: skip

    def __init__(
        self,
        sink: EventSink | None,
        now: Callable[[], float],
        tool: str,
        call_id: str,
        run_id: str | None,
        identity: Identity | None,
    ) -> None:
        self._sink = sink
        self._now = now
        self._tool = tool
        self._call_id = call_id
        self._run_id = run_id
        self._reports = 0
        self._last: Encoded | str | None = None  # reported, and not filed
        self.identity = identity
        self.listened = sink is not None
        self.hiding: Hiding | None = None

    def file(
        self,
        kind: str,
        facts: Mapping[str, Any],
        code: str | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        """File one event; the facts must not change afterwards."""
        sink = self._sink
        if sink is None:
            return
        if self.hiding is not None and (scrubber := self.hiding.scrubber) is not None:
            facts = {
                key: value if isinstance(value, Encoded) else scrubber.value(value)
                for key, value in facts.items()
            }
        event = ToolEvent(
            kind, self._now(), self._call_id, self._run_id, self.identity, facts, code, delivery
        )
        try:
            sink(event)
        except Exception as error:  # noqa: BLE001 -- the host's code, which may raise anything
            logger.warning("on_event raised %s at %s", type(error).__name__, kind)

    def start(self, args: Encoded | None) -> None:
        """File the start, with the arguments as they may be shown."""
        self.file("tool_start", {"tool_name": self._tool, "call_id": self._call_id, "args": args})

    def report(self, report: Any) -> None:
        """File what the tool reports of its progress, or keep it until the next one comes."""
        if self._sink is None:
            return
        self._reports = number = self._reports + 1
        self._last = _reported(report)
        if number <= REPORTS or not number & (number - 1):
            self._file_report()

    def cancelled(self, duration: float) -> None:
        """File the end of a call that was cancelled, after `duration` seconds."""
        self._file_last()
        facts = {
            "call_id": self._call_id, "result": None, "duration_ms": duration * 1000.0, "status": "cancelled",
        }  # fmt: skip
        self.file("tool_end", facts, "cancelled")

    def end(
        self, own: ToolResult, read: ToolResult, duration: float, *, denied: bool, changed: tuple[str, ...]
    ) -> None:
        """File the end.

        Args:
            own: What the tool itself gave, or what refused the call.
            read: What its model reads; the same object where no rule changed it.
            duration: In seconds.
            denied: Whether a hook kept the tool from running.
            changed: The arguments that a hook changed or a view hides, of a tool that has run.
        """
        self._file_last()
        facts: dict[str, Any] = {
            "call_id": self._call_id, "result": Encoded(own.raw), "duration_ms": duration * 1000.0,
        }  # fmt: skip
        if denied:
            facts["not_executed"] = True
        else:
            if own.is_error:
                facts["error"] = True
            if changed:
                facts["changed_arg_keys"] = changed
        if own is not read:
            facts["model_result"] = Encoded(read.raw)
        self.file("tool_end", facts, read.code, read.delivery)

    def _file_last(self) -> None:
        if self._last is not None:
            self._file_report()

    def _file_report(self) -> None:
        payload, self._last = self._last, None
        facts = {
            "call_id": self._call_id, "tool_name": self._tool, "payload": payload, "number": self._reports,
        }  # fmt: skip
        self.file("tool_progress", facts)


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


def _reported(report: Any) -> Encoded | str:
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
