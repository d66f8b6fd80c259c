"""Step 8 of the door: the tool runs, once, and what it gives is held to its form.

Rules:

* A call is repeated once at most, where its host asks for it, nothing ran and the same tool can be listed
  anew: a second call with an id of its own, under the same absolute deadline.
* A tool of the host's own does not begin once the deadline has passed. (A bound one is refused by its pool.)
* What a tool reports is told between the start of its run and its end, in order, never after.
* A credential that was fetched for the call, by the door or by the tool itself, and one that its request
  carries to a server, is in nothing that leaves: no result, no report, no failure; nor is it in what is
  recorded of the calls that the tool makes with it.
* A result that cannot be read is described by its shape. One that is not what its tool's output schema
  promises is withheld.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

from .._base.errors import (
    ANSWERED,
    NOT_SENT,
    REFUSED,
    AfpoolError,
    CredentialFailed,
    DeadlineExceeded,
    InvalidOutput,
    ProtocolError,
    ToolFailed,
)
from .._base.model import JsonObject, Progress, Tool, ToolContext, ToolResult
from .._base.secret import secrets_of
from ..artifacts import NoArtifacts
from ._asked_credentials import Asked
from ._derive import has_begun, run_of
from ._hiding import Hiding
from ._reading import read_text
from ._results import failed, text_result, value_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.compiled import Compiled
    from .._base.credential import Credential
    from ..artifacts import ArtifactFact, Artifacts
    from ._asking import Asking
    from ._dispatch import Door
    from ._known import KnownTool
    from ._record import CallRecord
    from ._scrub import Scrubber

logger = logging.getLogger("afpool")

# Nothing ran, and what stood in the way may be gone with a fresh list or another connection.
WORTH_REPEATING: Final = frozenset(
    {"stale-tools", "session-expired", "session-handle-lost", "connection-lost", "client-closed"}
)


@final
class Executing:
    """One call's run.

    Attributes:
        wanted: Tickets of the artifacts whose data stands in the arguments.
        begun: The tool has been called.
        answered: It has returned, or raised.
        over: The call has ended; what is reported now comes too late.
    """

    __slots__ = (
        "_artifacts", "_asking", "_bound", "_credential", "_door", "_name", "_record", "answered", "begun",
        "over", "wanted",
    )  # fmt: skip

    def __init__(
        self, name: str, door: Door, asking: Asking, record: CallRecord, artifacts: Artifacts | None
    ) -> None:
        self._name = name
        self._door = door
        self._asking = asking
        self._record = record
        self._artifacts = artifacts
        self._credential: Credential | None = None
        self._bound = False  # a server's, whose reports its pool counts
        self.wanted: Mapping[str, Any] | None = None
        self.begun = False
        self.answered = False
        self.over = False

    def use_credential(self, credential: Credential) -> None:
        """Run with a credential, and take it out of whatever leaves."""
        self._credential = credential
        self.hide(credential)

    def hide(self, credential: Credential) -> None:
        """Take a credential out of whatever leaves from now on, and out of the calls made from inside.

        Raises:
            CredentialFailed: It does not say what its secrets are.
        """
        secrets = secrets_of(credential)
        if isinstance(secrets, str):
            raise CredentialFailed(f"The credential cannot be kept out of what is told: {secrets}")
        self.hiding.add(secrets)
        self._record.clean()

    @property
    def hiding(self) -> Hiding:
        """What is taken out of whatever leaves; what is added is taken out from then on."""
        asking = self._asking
        if asking.hiding is None:
            asking.hiding = self._record.hiding = Hiding()
        return asking.hiding

    def looks_through(self, ctx: ToolContext) -> bool:
        """Whether whatever is reported with a context comes here, where it is looked through."""
        return ctx.progress == self._progress and ctx.on_progress in (None, self._progress)

    async def run(self, tool: Tool, known: KnownTool, args: JsonObject) -> ToolResult:
        """Run the tool.

        Raises:
            AfpoolError: A refusal or a failure.
        """
        self._bound = known.bound
        deadline = self._asking.deadline
        if not known.bound and deadline is not None and self._door.seams.now() >= deadline:
            # a scope would end it at its first checkpoint only, and by then it may have done something
            raise DeadlineExceeded(f"The deadline passed before {self._name} ran; nothing was done")
        ctx = self._context()
        self.begun = True
        record = self._record
        record.use.waits_for = "run"
        try:
            while True:
                try:
                    result = await run_of(tool)(args, ctx)
                except AfpoolError as error:
                    # whatever verdict a call inside it had: that one did not run, this one did
                    failure = failed(self._name, error) if has_begun(error) else error
                except Exception as error:  # noqa: BLE001 -- a tool of the host's own may raise anything
                    failure = failed(self._name, error)
                else:
                    break
                # out here, where what the tool raised becomes no context of it
                again = None if ctx.call_id != self._asking.call_id else await self._again(tool, failure)
                if again is None:
                    raise failure
                tool = again
                ctx.call_id = f"{self._asking.call_id}:again"
                record.repeated(failure, ctx.call_id)
                self._lend_use(ctx)
        finally:
            use = record.use
            if use.context is None:  # else the stages of its pool stand in the place of this one
                record.passed("run")
            use.waits_for = None
        self.answered = True
        result = self._as_result(result)
        if self._asking.hiding is not None:
            result = await self._asking.hiding.result(result)
        return self._checked(known, result)

    @property
    def _scrubber(self) -> Scrubber | None:
        hiding = self._asking.hiding
        return None if hiding is None else hiding.scrubber

    def _context(self) -> ToolContext:
        # set one by one: as so many keyword arguments of a class they would cost twice as much
        asking, ctx, report = self._asking, ToolContext(), self._progress
        ctx.identity = asking.identity
        ctx.call_id = asking.call_id
        ctx.run_id = asking.run_id
        ctx.deadline = asking.deadline
        ctx.chain = asking.chain
        ctx.credential = self._credential
        ctx.artifacts = NoArtifacts(self._record.artifact) if self._artifacts is None else self._artifacts
        ctx.wanted = self.wanted
        ctx.progress = report
        ctx.on_credential = self.hide
        ctx.door = self
        self._lend_use(ctx)
        # a server is asked to report where somebody wants to know, and whoever records does
        if asking.on_progress is not None or self._record.listened:
            ctx.on_progress = report
        if self._door.credentials is not None:
            ctx.credentials = Asked(
                self._door.credentials, self._record, self._door.on_authorization, self.hide
            )
        if asking.tools is not None:
            ctx.tools = asking.tools(asking)
        return ctx

    def _lend_use(self, ctx: ToolContext) -> None:
        ctx.use = self._record.use
        if not self._bound:
            ctx.use.reached = 1  # each call that a tool of the host's own makes is another, by another id

    async def _again(self, tool: Tool, error: AfpoolError) -> Tool | None:
        """Find the same tool anew where nothing ran, its host wants that, and there is time."""
        again, deadline = self._asking.again, self._asking.deadline
        if (
            again is None
            or has_begun(error)
            or error.code not in WORTH_REPEATING
            or error.delivery not in (NOT_SENT, REFUSED)
        ):
            return None
        if deadline is not None and self._door.seams.now() >= deadline:
            return None
        with self._record.stage("listing"):
            return await again(tool)

    def _progress(self, report: Any) -> None:
        """Record what a tool reports, and tell whoever calls."""
        if self.over:
            return
        scrubber = self._scrubber
        if scrubber is not None:
            report = scrubber.progress(report)
        self._record.report(report, counted=not self._bound)
        told = self._asking.on_progress
        if told is not None and isinstance(report, Progress):
            try:
                told(report)
            except Exception as error:  # noqa: BLE001 -- a report that nobody takes costs the report
                logger.warning("on_progress raised %s", type(error).__name__)

    def fact(self, fact: ArtifactFact) -> None:
        """Record what a tool says of an artifact in this call."""
        self._record.artifact(fact)

    def _as_result(self, result: Any) -> ToolResult:
        call_id = self._asking.call_id
        assert call_id is not None
        if isinstance(result, ToolResult) and result.call_id == call_id:
            made = result
        else:
            try:
                made = value_result(result, call_id)
            except TypeError as error:
                raise failed(self._name, error) from None
        if type(made.raw) is not bytes:
            raise failed(self._name, TypeError(f"a ToolResult holds bytes, not {type(made.raw).__name__}"))
        return made

    def _checked(self, known: KnownTool, result: ToolResult) -> ToolResult:
        """Hold a result to its form, and to what its tool's output schema promises."""
        if not result.has_form:
            raise ProtocolError(f"{read_text(result)} The tool {self._name} has run")
        if b'"toolResult"' in result.raw and not result.content:
            result = text_result(read_text(result), result.call_id, is_error=result.is_error)
        if known.results is not None and not result.is_error:
            self._check_output(known, known.results, result)
        return result

    def _check_output(self, known: KnownTool, compiled: Compiled, result: ToolResult) -> None:
        why = None
        if not result.has_structured:
            # a server that forgets it has still answered, in words; a tool of the host's own is to be mended
            if not known.bound:
                why = "answered no structured content, which its output schema promises"
        elif not compiled.allows(result.structured):
            why = "its structured content is not what its output schema promises; it was withheld"
        if why is not None:
            error = InvalidOutput(f"The tool {self._name} has run, and {why}")
            error.result = result
            raise error


def told(error: AfpoolError, scrubber: Scrubber, name: str) -> AfpoolError:
    """Give what is said of a call's failure without what was fetched for it; its verdict is kept."""
    clean = scrubber.exception(error)
    if isinstance(clean, AfpoolError):
        clean.message = scrubber.text(clean.message)
        return clean
    what = f"The call of {name} failed, and what was said of it held the credential"
    return ToolFailed(what, delivery=NOT_SENT if error.delivery in (NOT_SENT, REFUSED) else ANSWERED)
