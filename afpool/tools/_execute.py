"""Step 8 of the door: the tool runs, once, and what it gives is held to its form.

Rules:

* A call is repeated once at most, where its host asks for it, nothing ran and the same tool can be listed
  anew: a second call with an id of its own, under the same absolute deadline.
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
    NOT_SENT,
    REFUSED,
    AfpoolError,
    CredentialFailed,
    InvalidOutput,
    ProtocolError,
    ToolFailed,
)
from .._base.model import JsonObject, Progress, Tool, ToolContext, ToolResult
from .._base.secret import secrets_of
from ..artifacts import NoArtifacts
from ._asked_credentials import Asked
from ._derive import binding_of
from ._record import Encoded
from ._results import failed, json_of, read_text, text_result, value_result
from ._scrub import Scrubber

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.credential import Credential
    from ..artifacts import ArtifactFact, Artifacts
    from ._dispatch import Asking, Door
    from ._record import CallRecord

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
        over: The call has ended; what is reported now comes too late.
    """

    __slots__ = (
        "_artifacts", "_asking", "_credential", "_door", "_hidden", "_name", "_record", "_scrubber", "begun",
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
        self._hidden: tuple[Credential, ...] = ()
        # of a call that another tool makes: what that one has fetched may stand in its arguments
        self._scrubber = Scrubber(asking.hidden) if asking.hidden else None
        self.wanted: Mapping[str, Any] | None = None
        self.begun = False
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
        if any(credential is one for one in self._hidden):
            return
        asking = self._asking
        secrets = secrets_of(credential)
        if isinstance(secrets, str):
            raise CredentialFailed(f"The credential cannot be kept out of what is told: {secrets}")
        self._hidden = (*self._hidden, credential)
        asking.hidden = (*asking.hidden, *secrets)
        self._scrubber = Scrubber(asking.hidden)

    async def run(self, tool: Tool, args: JsonObject) -> ToolResult:
        """Run the tool.

        Raises:
            AfpoolError: A refusal or a failure.
        """
        ctx = self._context()
        self.begun = True
        try:
            result = await self._run(tool, args, ctx)
        except AfpoolError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 -- a tool of the host's own may raise anything
            failure = failed(self._name, error)
        else:
            return await self._read(tool, result)
        # raised out here, where nothing that has not been cleaned becomes its context
        raise self._told(failure)

    async def _run(self, tool: Tool, args: JsonObject, ctx: ToolContext) -> ToolResult:
        try:
            return await tool.execute(args, ctx)
        except AfpoolError as error:
            again = await self._again(tool, error)
            if again is None:
                raise
            call_id = self._asking.call_id
            ctx.call_id = f"{call_id}:again"
            facts = {"call_id": ctx.call_id, "repeated_of": call_id, "code": error.code}
            self._record.file("tool_repeated", facts)
        return await again.execute(args, ctx)

    def _context(self) -> ToolContext:
        asking = self._asking
        provider = self._door.credentials
        return ToolContext(
            identity=asking.identity,
            call_id=asking.call_id,
            run_id=asking.run_id,
            deadline=asking.deadline,
            on_progress=None if asking.on_progress is None else self._progress,
            on_credential=self.hide,
            chain=asking.chain,
            credential=self._credential,
            credentials=None
            if provider is None
            else Asked(provider, self._record, self._door.on_authorization, self.hide),
            artifacts=NoArtifacts(self._fact) if self._artifacts is None else self._artifacts,
            wanted=self.wanted,
            progress=self._progress,
            tools=None if asking.tools is None else asking.tools(asking),
        )

    async def _again(self, tool: Tool, error: AfpoolError) -> Tool | None:
        """Find the same tool anew where nothing ran, its host wants that, and there is time."""
        again, deadline = self._asking.again, self._asking.deadline
        if again is None or error.code not in WORTH_REPEATING or error.delivery not in (NOT_SENT, REFUSED):
            return None
        if deadline is not None and self._door.seams.now() >= deadline:
            return None
        return await again(tool)

    def _progress(self, report: Any) -> None:
        """Record what a tool reports, and tell whoever calls."""
        if self.over:
            return
        if self._scrubber is not None:
            report = self._scrubber.progress(report)
        if self._door.sink is not None:
            facts = {"call_id": self._asking.call_id, "tool_name": self._name, "payload": _reported(report)}
            self._record.file("tool_progress", facts)
        told = self._asking.on_progress
        if told is not None and isinstance(report, Progress):
            try:
                told(report)
            except Exception as error:  # noqa: BLE001 -- a report that nobody takes costs the report
                logger.warning("on_progress raised %s", type(error).__name__)

    def _fact(self, fact: ArtifactFact) -> None:
        self._record.file(fact.event, {**fact.as_json(), "tool": self._name})

    def _told(self, error: AfpoolError) -> AfpoolError:
        """Take the call's credential out of what is said of its failure."""
        if self._scrubber is None:
            return error
        clean = self._scrubber.exception(error)
        if isinstance(clean, AfpoolError):
            clean.message = self._scrubber.text(clean.message)
            return clean
        return ToolFailed(f"The tool {self._name} failed, and what it said held the credential")

    async def _read(self, tool: Tool, result: ToolResult) -> ToolResult:
        call_id = self._asking.call_id
        assert call_id is not None
        if not isinstance(result, ToolResult) or result.call_id != call_id:
            try:
                result = value_result(result, call_id)
            except TypeError as error:
                raise failed(self._name, error) from None
        if type(result.raw) is not bytes:
            raise failed(self._name, TypeError(f"a ToolResult holds bytes, not {type(result.raw).__name__}"))
        if self._scrubber is not None:
            result = await self._scrubber.result(result)
        if not result.has_form:
            raise ProtocolError(f"{read_text(result)} The tool {self._name} has run")
        if b'"toolResult"' in result.raw and not result.content:
            result = text_result(read_text(result), call_id, is_error=result.is_error)
        if not result.is_error:
            self._check_output(tool, result)
        return result

    def _check_output(self, tool: Tool, result: ToolResult) -> None:
        compiled = self._door.validators.of_output(tool)
        if compiled is None:
            return
        why = None
        if not result.has_structured:
            # a server that forgets it has still answered, in words; a tool of the host's own is to be mended
            if binding_of(tool) is None:
                why = "answered no structured content, which its output schema promises"
        elif not compiled.allows(result.structured):
            why = "its structured content is not what its output schema promises; it was withheld"
        if why is not None:
            error = InvalidOutput(f"The tool {self._name} has run, and {why}")
            error.result = result
            raise error


def _reported(report: Any) -> Any:
    if isinstance(report, Progress):
        report = {
            key: value
            for key, value in (
                ("progress", report.progress), ("total", report.total), ("message", report.message),
            )
            if value is not None
        }  # fmt: skip
    try:
        return Encoded(json_of(report))
    except Exception:  # noqa: BLE001 -- also an object that raises when it is looked into
        return f"[not JSON: {type(report).__name__}]"
