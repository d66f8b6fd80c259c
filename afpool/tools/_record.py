"""The record of one call: its events for whoever listens, and its use, which is kept.

Rules:

* The names of a start, its progress and its end are the same call's, in this order, each start with one end.
* An end says what came of the call and, only where a rule acted, what the rule did.
* What a call may add is bounded, however often its tool reports: the first `REPORTS` are filed, of the later
  ones the 64th, the 128th and so on, and the last one; each with its number, so that the last one's is the
  count.
* A stage is marked in the use when it is over, also where it was what ended the call: the last mark says
  where that was. While it lasts the use says that it is waited for.
* A sink that raises misses the event; the call goes on.
* What was fetched for a call, or for a call that this one is made from inside of, is in none of its events
  and not in its use, whoever chose the words: names of tools and arguments, kinds and labels of artifacts.
  What comes as bytes has been cleaned by whoever wrote it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

from .._base.model import Progress
from .._base.use import Use, note_refusal
from ..artifacts import ArtifactMinted
from . import _call_use as kept
from ._tool_event import Encoded, EventSink, ToolEvent, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from .._base.errors import AfpoolError, Delivery
    from .._base.identity import Identity
    from .._base.model import ToolResult
    from ..artifacts import ArtifactFact
    from ._call_use import Books
    from ._hiding import Hiding
    from ._scrub import Scrubber

logger = logging.getLogger("afpool")

REPORTS: Final = 32


@final
class CallRecord:
    """Files the events of one call, where somebody listens, and writes its use.

    Args:
        books: Where its use is kept.
        sink: Told of its events; `None` where nobody listens.
        use: Its use, just begun.

    Attributes:
        identity: Who the run acts for; `None` where its caller named nobody. May be set.
        listened: Whether somebody listens.
        hiding: What is hidden in the call; `None` as long as nothing is. May be set.
        scope: Whose artifacts the call puts; `None` where it has no store. May be set.
        use: Its use; of a call that was repeated, the second attempt's.
    """

    __slots__ = (
        "_began", "_books", "_call_id", "_last", "_now", "_reports", "_sink", "hiding", "identity",
        "listened", "scope", "use",
    )  # fmt: skip

    def __init__(self, books: Books, sink: EventSink | None, use: Use) -> None:
        self._books = books
        self._sink = sink
        self._now: Callable[[], float] = books.now
        self._began = use.began_at
        self._call_id = use.call_id
        self._reports = 0
        self._last: Encoded | str | None = None  # reported, and not filed
        self.identity: Identity | None = None
        self.scope: Identity | None = None
        self.listened = sink is not None
        self.hiding: Hiding | None = None
        self.use = use

    def begin(self) -> None:
        """The use says which tool is meant."""
        if self._books.begin is not None:
            self._books.begin(self.use)

    # ------------------------------------------------------------------ stages and notes

    def stage(self, name: str) -> Stage:
        """Give what a stage is gone through in."""
        return Stage(self, name)

    def passed(self, name: str) -> None:
        """A stage that waits for nothing is over."""
        self.use.marks += (name, self._now())

    def note(self, stage: str, word: str) -> None:
        """File a fact that does not decide the outcome: a code or the name of a class, never a text."""
        kept.note(self.use, stage, word, self._now())

    def artifact(self, fact: ArtifactFact) -> None:
        """File what happened to an artifact in the call."""
        use = self.use
        kept.of_artifact(use, fact, self._now())
        told = self._books.on_minted
        if isinstance(fact, ArtifactMinted) and told is not None and self.scope is not None:
            try:
                told(fact.meta, self.scope, use)
            except Exception as error:  # noqa: BLE001 -- whatever listens, the put has happened
                logger.warning("on_minted raised %s", type(error).__name__)
        if self.listened:
            self.file(fact.event, {**fact.as_json(), "tool": use.name})

    def words(self, text: str) -> str:
        """Give words of the call's without what is hidden in it."""
        scrubber = self._scrubber
        return text if scrubber is None else scrubber.text(text)

    @property
    def _scrubber(self) -> Scrubber | None:
        return None if self.hiding is None else self.hiding.scrubber

    # ------------------------------------------------------------------ events

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
        scrubber = self._scrubber
        if scrubber is not None:
            facts = {
                key: value if isinstance(value, Encoded) else scrubber.value(value)
                for key, value in facts.items()
            }
        event = ToolEvent(
            kind, self._now(), self._call_id, self.use.run_id, self.identity, facts, code, delivery
        )
        try:
            sink(event)
        except Exception as error:  # noqa: BLE001 -- the host's code, which may raise anything
            logger.warning("on_event raised %s at %s", type(error).__name__, kind)

    def start(self, args: Encoded | None) -> None:
        """File the start, with the arguments as they may be shown."""
        if not self.listened:
            return
        self.file("tool_start", {"tool_name": self.use.name, "call_id": self._call_id, "args": args})

    def report(self, report: Any, *, counted: bool) -> None:
        """File what the tool reports of its progress, or keep it until the next one comes.

        Args:
            report: What it reports.
            counted: Whether it counts in the use; not where a pool counts them.
        """
        if counted:
            self.use.reports += 1
            if isinstance(report, Progress):
                self.use.reported = (report.progress, report.total)
        if self._sink is None:
            return
        self._reports = number = self._reports + 1
        self._last = reported(report)
        if number <= REPORTS or not number & (number - 1):
            self._file_report()

    def repeated(self, failure: AfpoolError, call_id: str) -> None:
        """An attempt that did not run is followed by a second one, under an id of its own."""
        first, now = self.use, self._now()
        note_refusal(first, failure)
        self._close(first, now)
        self.use = kept.repeated(first, call_id, now)
        self._books.open(self.use)
        self.begin()
        facts = {"call_id": call_id, "repeated_of": self._call_id, "code": failure.code}
        self.file("tool_repeated", facts)

    def cancelled(self, *, begun: bool, answered: bool) -> None:
        """File the end of a call that was cancelled.

        Args:
            begun: Whether the tool had been called.
            answered: Whether it had returned.
        """
        now = self._now()
        kept.cancelled(self.use, begun=begun, answered=answered)
        if self.listened:
            self._file_last()
            facts = {
                "call_id": self._call_id, "result": None, "duration_ms": (now - self._began) * 1000.0,
                "status": "cancelled",
            }  # fmt: skip
            self.file("tool_end", facts, "cancelled")
        self._close(self.use, now)

    def broken(self, error: BaseException) -> None:
        """File a call that ended in the middle of its own bookkeeping, if it is not filed yet."""
        use = self.use
        if id(use) in self._books.running:
            use.shown = use.facts = None  # it may be that nobody has looked through them
            use.changed = ()
            note_refusal(use, error)
            self._books.close(use, self._now())

    def end(self, own: ToolResult, read: ToolResult, *, denied: bool, changed: tuple[str, ...]) -> None:
        """File the end.

        Args:
            own: What the tool itself gave, or what refused the call.
            read: What its model reads; the same object where no rule changed it.
            denied: Whether a hook kept the tool from running.
            changed: The arguments that a hook changed or a view hides, of a tool that has run.
        """
        use, now = self.use, self._now()
        error = read.error
        if use.cause is not None or use.was is not None:  # of what the pool's part in the call ended with
            kept.got_over(use, error)
        if error is None:
            use.outcome = "ok"
            use.code = None
            use.delivery = read.delivery
        else:
            note_refusal(use, error)
        if own.error is None:
            use.tool_error = own.is_error
            if not use.bytes_in:
                use.bytes_in = len(own.raw)
        use.changed = changed
        if self.listened:
            self._file_last()
            facts: dict[str, Any] = {
                "call_id": self._call_id, "result": Encoded(own.raw),
                "duration_ms": (now - self._began) * 1000.0,
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
        self._close(use, now)

    def clean(self) -> None:
        """Take what is known as secret by now out of the use."""
        scrubber, use, told = self._scrubber, self.use, self._books.on_cleaned
        if scrubber is None:
            return
        kept.clean(use, scrubber)
        if use.minted is not None and told is not None:
            told(use, scrubber.text)

    def _close(self, use: Use, now: float) -> None:
        if self.hiding is not None:
            self.clean()
        self._books.close(use, now)

    def _file_last(self) -> None:
        if self._last is not None:
            self._file_report()

    def _file_report(self) -> None:
        payload, self._last = self._last, None
        facts = {
            "call_id": self._call_id, "tool_name": self.use.name, "payload": payload,
            "number": self._reports,
        }  # fmt: skip
        self.file("tool_progress", facts)


@final
class Stage:
    """One stage of a call: a context that it is gone through in, which notes its wait and its end."""

    __slots__ = ("_name", "_record")

    def __init__(self, record: CallRecord, name: str) -> None:
        self._record = record
        self._name = name

    def __enter__(self) -> None:
        self._record.use.waits_for = self._name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self._record.passed(self._name)
        self._record.use.waits_for = None
