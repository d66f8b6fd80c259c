"""One call on its way through the door, step by step; the order and its rules stand in `_dispatch`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.errors import (
    ANSWERED,
    IN_DOUBT,
    NOT_SENT,
    AfpoolError,
    CallDenied,
    DeadlineExceeded,
    IdentityMismatch,
    IdentityMissing,
    InvalidArguments,
    Overloaded,
    ToolFailed,
    UnknownTool,
)
from .._base.identity import Identity, is_nobody
from .._base.untraced import untraced
from ..artifacts import Origin, bind_artifacts
from ..pool._asking import ask_identity, same_caller
from ..protocol import NotJson, encode_json
from ._call_use import MAX_SHOWN, fitted, meant
from ._correction import correction_of, issues_of, unknown_tool
from ._derive import binding_of
from ._execute import Executing, told
from ._hooks import HookCall, ask_after, ask_before
from ._limits import limited, limited_for_record
from ._prepare import prepared
from ._reading import shape_of
from ._record import CallRecord
from ._redaction import REDACTED
from ._results import error_result, value_result
from ._shown import changed_arg_keys, shown_args_of
from ._supplied import is_filled, refuse_supplied
from ._tool_event import Encoded, written

if TYPE_CHECKING:
    from .._base.compiled import Compiled
    from .._base.model import JsonObject, Tool, ToolResult
    from .._base.use import Use
    from ..artifacts import Artifacts
    from ._asking import Asking
    from ._dispatch import Door
    from ._known import KnownTool

MAX_DEPTH: Final = 16
_MAX_ISSUES: Final = 5


@final
class Call:
    """One call on its way through the door."""

    __slots__ = (
        "artifacts", "asking", "call_id", "changed", "deadline", "denied", "door", "executing", "hides",
        "name", "own", "record", "scope", "unnamed", "written",
    )  # fmt: skip

    def __init__(self, door: Door, asking: Asking, use: Use) -> None:
        assert asking.deadline is not None
        self.door = door
        self.asking = asking
        self.name = use.name
        self.call_id = use.call_id
        self.deadline: float = asking.deadline
        caller = asking.identity
        named = caller if caller is None or isinstance(caller, Identity) else None
        # there is a caller, and it could not be asked, or is not who it was
        self.unnamed: IdentityMissing | IdentityMismatch | None = None
        if named is not caller:
            try:
                asking.identity = same_caller(caller)
                named = ask_identity(asking.identity)
            except (IdentityMissing, IdentityMismatch) as error:
                self.unnamed = error
        if named is not None and is_nobody(named):
            named = None
        scope = asking.scope or named
        if scope is None and door.store is not None:
            scope = asking.scope = asking.scope_of_its_own()
        use.run_id = asking.run_id
        use.who = named
        record = self.record = CallRecord(door.books, door.sink, use)
        record.identity = named
        record.hiding = asking.hiding
        self.artifacts: Artifacts | None = None
        self.scope = scope
        if scope is not None and door.store is not None:
            record.scope = scope
            self.artifacts = bind_artifacts(
                door.store,
                scope,
                origin=Origin(asking.run_id, use.call_id),
                on_fact=record.artifact,
                words=record.words,
            )
        self.executing: Executing | None = None
        self.changed: tuple[str, ...] = ()
        self.denied = False
        self.hides = False  # some of the arguments are not to be shown
        self.written = False  # what was to be shown is JSON
        # what the tool itself gave, where a hook made something else of it
        self.own: ToolResult | None = None

    async def run(self) -> ToolResult:
        try:
            result = await self._steps()
        except AfpoolError as error:
            result = self._refused(error)
        except Exception as error:  # noqa: BLE001 -- a result is promised, whatever was overlooked
            result = self._refused(self._fault(error))
        except BaseException:
            begun = self._over()
            executing = self.executing
            self.record.cancelled(begun=begun, answered=executing is not None and executing.answered)
            raise
        if result.error is not None:
            # the arguments are in its frames; a tool's own frames stay where none of them is hidden
            untraced(result.error, foreign=self.hides)
        ran = self._over()
        own = result if self.own is None else self.own
        self.record.end(own, result, denied=self.denied, changed=self.changed if ran else ())
        return result

    def _refused(self, error: AfpoolError) -> ToolResult:
        if isinstance(error, ToolFailed) and error.__cause__ is not None:
            self.record.note("run", type(error.__cause__).__name__)
        hiding = self.asking.hiding
        scrubber = None if hiding is None else hiding.scrubber
        return error_result(error if scrubber is None else told(error, scrubber, self.name), self.call_id)

    def _over(self) -> bool:
        """Take no further report, and let go of the toolset; says whether the tool was called.

        What a server's connection still holds of the call (whom it reports to) must not keep that alive.
        """
        self.asking.tools = self.asking.again = None
        executing = self.executing
        if executing is None:
            return False
        executing.over = True
        return executing.begun

    def _fault(self, error: Exception) -> ToolFailed:
        kind = type(error).__name__
        if self.executing is not None and self.executing.begun:
            fault = ToolFailed(f"The call of {self.name} failed ({kind}); it may have run")
        else:
            what = f"The call of {self.name} failed before the tool was run ({kind}); nothing ran"
            fault = ToolFailed(what, delivery=NOT_SENT)
        fault.__cause__ = error
        return fault

    # ------------------------------------------------------------------ the steps

    async def _steps(self) -> ToolResult:
        asking, door, record, tool = self.asking, self.door, self.record, self.asking.tool
        given = {} if asking.args is None else asking.args
        is_object = type(given) is dict or isinstance(given, Mapping)
        if tool is None:
            record.begin()
            # nobody can say which of its arguments are secret
            record.start(self._written(self._hidden(dict.fromkeys(given, REDACTED) if is_object else {})))
            problem = asking.problem or UnknownTool(unknown_tool(self.name, asking.names()))
            if problem.noted is not None:
                record.note(*problem.noted)
            raise problem
        known = door.tools.get(tool)
        if known is None or known.bound:
            meant(record.use, binding_of(tool))
        if door.books.begin is not None:
            record.begin()
        if not is_object:
            record.start(self._written({}))
            record.passed("arguments")
            raise InvalidArguments(
                f"The arguments of {self.name} are a JSON object, not {shape_of(given)}; the tool was not run"
            )
        shown = self._shown(tool, given)
        started = self._written(shown)
        if self.unnamed is not None:
            record.start(started)
            raise self.unnamed
        if not self.written or shown is not given:
            self._check_json(given, started)
        args: JsonObject = given
        if door.hooks_before:
            args = await self._hooked(tool, given, started)
            asking.check_caller()
        else:
            record.start(started)
        if asking.depth > MAX_DEPTH:
            record.note("limit", "depth")
            raise Overloaded(
                f"{MAX_DEPTH} tools call one another already; the last, {self.name}, was not run"
            )
        if args is not given:
            shown = self._shown(tool, args)
        if is_filled(tool) if known is None else known.filled:
            self._refuse_supplied(tool, args)
        if known is None:
            with record.stage("schema"):
                known = await door.tools.ask(tool)
            asking.check_caller()
        allowed = known.arguments.allows(args)
        record.passed("arguments")
        if not allowed:
            raise self._invalid(args, shown, known.arguments)
        if shown is not given:
            self.changed = changed_arg_keys(given, shown)
        executing = self.executing = Executing(self.name, door, asking, record, self.artifacts)
        ran = args
        if known.bound:
            if known.prepared:
                args = await self._within(self._prepared, executing, tool, known, args)
            result = await executing.run(tool, known, args)  # the pool keeps the deadline, knows the verdict
        elif known.prepared:
            result = await self._within(self._prepared_and_run, executing, tool, known, args)
        else:
            result = await self._within(executing.run, tool, known, args)
        if door.hooks_after:
            with record.stage("after"):
                shown_result = await self._after(tool, ran, result)
            if shown_result is not result:
                self.own = limited_for_record(result, tool, door.limits)
                result = shown_result
        if door.unlimited and known.ceiling is None:
            return result
        with record.stage("limits"):
            return await limited(result, tool, door.limits, self.artifacts, record, self.deadline)

    def _shown(self, tool: Tool, args: JsonObject) -> JsonObject:
        """Give what may be said of arguments: not what the tool hides, nor what calls around it fetched."""
        shown = self._hidden(shown_args_of(tool, args))
        if shown is not args:
            self.hides = True
        return shown

    def _hidden(self, args: JsonObject) -> JsonObject:
        hiding = self.asking.hiding
        scrubber = None if hiding is None else hiding.scrubber
        if scrubber is not None:
            args = scrubber.value(args)
        return args

    async def _hooked(self, tool: Tool, given: JsonObject, started: Encoded) -> JsonObject:
        try:
            with self.record.stage("hooks"):
                args: JsonObject = await self._within(
                    ask_before, self.door.hooks, self._hook_call(tool, given)
                )
        except CallDenied as error:
            self._denied(error)
            self.denied = True
            raise
        finally:
            self.record.start(started)
        return args

    def _denied(self, error: CallDenied) -> None:
        if error.hook is not None:
            self.record.note("hook", error.hook)

    def _refuse_supplied(self, tool: Tool, args: JsonObject) -> None:
        try:
            refuse_supplied(tool, args)
        finally:
            self.record.passed("fill")

    def _check_json(self, args: JsonObject, started: Encoded) -> None:
        """Refuse what is not JSON before anybody is asked about it."""
        try:
            encode_json(args)
        except NotJson as error:
            self.record.start(started)
            self.record.passed("arguments")
            raise InvalidArguments(
                f"The arguments of {self.name} are not JSON at {error.path}: {error.kind}; "
                "the tool was not run"
            ) from None

    def _invalid(self, args: JsonObject, shown: JsonObject, compiled: Compiled) -> InvalidArguments:
        issues = issues_of(args, shown, compiled)
        for issue in issues[:_MAX_ISSUES]:
            if issue.place:
                self.record.note("arguments", issue.place)
        told = [issue.said for issue in issues]
        self.record.file("args_invalid", {"tool_name": self.name, "issues": told})
        return InvalidArguments(correction_of(self.name, issues))

    async def _prepared_and_run(
        self, executing: Executing, tool: Tool, known: KnownTool, args: JsonObject
    ) -> ToolResult:
        return await executing.run(tool, known, await self._prepared(executing, tool, known, args))

    def _prepared(
        self, executing: Executing, tool: Tool, known: KnownTool, args: JsonObject
    ) -> Awaitable[JsonObject]:
        return prepared(
            self.name, tool, known, args, self.door, self.scope, self.record, executing, self.asking
        )

    async def _within(self, step: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Take a step within the deadline."""
        with trio.CancelScope(deadline=self.deadline) as scope:
            return await step(*args)
        assert scope.cancelled_caught
        if self.executing is not None and self.executing.begun:
            raise DeadlineExceeded(
                f"The deadline passed while {self.name} ran, and it was ended; part of it may have been done",
                delivery=IN_DOUBT,
            )
        raise DeadlineExceeded(f"The deadline passed before {self.name} ran; nothing was done")

    async def _after(self, tool: Tool, args: JsonObject, result: ToolResult) -> ToolResult:
        call = self._hook_call(tool, args)
        try:
            with trio.CancelScope(deadline=self.deadline):
                return await ask_after(
                    self.door.hooks, call, result, lambda value: value_result(value, self.call_id)
                )
        except CallDenied as error:
            self._denied(error)
            return error_result(error, self.call_id)
        late = CallDenied(
            f"The tool {self.name} has run; its result is withheld, since a hook did not answer in time",
            delivery=ANSWERED,
        )
        return error_result(late, self.call_id)

    # ------------------------------------------------------------------ what others are told

    def _hook_call(self, tool: Tool, args: JsonObject) -> HookCall:
        return HookCall(
            tool=tool,
            args=args,
            identity=self.asking.identity,
            call_id=self.call_id,
            run_id=self.asking.run_id,
        )

    def _written(self, shown: JsonObject) -> Encoded:
        """Write down what may be shown of the arguments, before anybody can change them."""
        encoded, self.written = written(shown)
        raw = encoded.raw
        if len(raw) > MAX_SHOWN:
            raw = fitted(raw, shown if self.written else None)
        self.record.use.shown = raw
        return encoded
