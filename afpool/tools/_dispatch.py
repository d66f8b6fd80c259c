"""The one door: whoever calls a tool by name, a call goes through here, in this order.

1. Look up. An unknown name is refused with what there is.
2. `before` hooks.
3. The record's start, with the model's arguments as they may be shown.
4. Arguments that the host fills: a value for one is refused by name, before any secret is fetched.
5. The schema that the model saw.
6. `wants`: references become data, before credentials: no secret is fetched for a call that does not run.
7. `needs`: the credential.
8. Execute.
9. `after` hooks, the last first; only of what has run.
10. Limits of the result.
11. The record's end.

Rules:

* It answers with a result, always: a refusal is one too, with code, verdict and words to learn from. It
  raises only what is no `Exception`: a cancellation, ^C.
* What a refusal or a record says never holds a value that is hidden. What a provider, a hook or a sink raises
  is named by its class; what a tool of the host's own raises is told to the model, without the credential.
* A caller who can be asked is asked again after every wait until the tool runs, and has to be who he was:
  arguments, artifacts and credential of one are never used for another. What a call is made from inside of
  asks the same.
* The deadline is absolute and over everything. A bound tool keeps it itself; around everything else stands a
  scope.
* What is stored is its caller's. Where nobody is named it is the run's own; a call of nobody's outside of any
  run is a run of its own, so that no two of them see each other's artifacts.
* At least one checkpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from ._correction import MAX_NAME, correction, unknown_tool
from ._execute import Executing, told
from ._hooks import Hook, HookCall, ask_after, ask_before
from ._known import KnownTools
from ._limits import ResultLimits, limited, limited_for_record
from ._prepare import prepared
from ._reading import shape_of
from ._record import CallRecord, Encoded, EventSink, written
from ._redaction import REDACTED
from ._results import error_result, value_result
from ._shown import changed_arg_keys, shown_args_of
from ._supplied import refuse_supplied

if TYPE_CHECKING:
    from .._base.compiled import Compiled
    from .._base.credential import CredentialProvider
    from .._base.model import JsonObject, Tool, ToolResult
    from .._base.seams import Seams
    from ..artifacts import ArtifactFact, Artifacts, ArtifactStore
    from ._asked_credentials import OnAuthorization
    from ._asking import Asking
    from ._known import KnownTool

MAX_DEPTH: Final = 16


@final
class Door:
    """Dispatches calls; holds what is the same for all of them.

    Args:
        seams: Clock and ids.
        deadline: Seconds that a call has where it brings no deadline.
        hooks: In the order in which they are asked.
        on_event: Told of everything that is recorded; synchronous.
        store: Of artifacts, if there is one.
        credentials: Vends what tools need, if anybody does.
        on_authorization: Told when somebody has to authorize first; the only place where the address goes.
        limits: Of results.
    """

    __slots__ = (
        "credentials", "deadline", "hooks", "hooks_after", "hooks_before", "limits", "on_authorization",
        "seams", "sink", "store", "tools", "unlimited",
    )  # fmt: skip

    def __init__(
        self,
        *,
        seams: Seams,
        deadline: float = 60.0,
        hooks: Sequence[Hook] = (),
        on_event: EventSink | None = None,
        store: ArtifactStore | None = None,
        credentials: CredentialProvider | None = None,
        on_authorization: OnAuthorization | None = None,
        limits: ResultLimits | None = None,
    ) -> None:
        self.seams = seams
        self.deadline = deadline
        self.hooks = tuple(hooks)
        self.hooks_before = any(hook.before is not None for hook in self.hooks)
        self.hooks_after = any(hook.after is not None for hook in self.hooks)
        self.sink = on_event
        self.store = store
        self.credentials = credentials
        self.on_authorization = on_authorization
        self.limits = ResultLimits() if limits is None else limits
        self.unlimited = self.limits == ResultLimits()
        self.tools = KnownTools(seams)

    async def dispatch(self, asking: Asking) -> ToolResult:
        """Run a call from its name to its result; see the module.

        Raises no `Exception`. At least one checkpoint.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        task = trio.lowlevel.current_task()
        # A checkpoint costs a good part of what the door does. Where the tool, or anything else on the way,
        # has let others run, another one would be for nothing.
        before = getattr(task, "_schedule_points", None)
        result = await _Call(self, asking).run()
        if before is None or task._schedule_points == before:  # noqa: SLF001 -- as trio.testing does
            await trio.lowlevel.cancel_shielded_checkpoint()
        return result


@final
class _Call:
    """One call on its way through the door."""

    __slots__ = (
        "artifacts", "asking", "began", "call_id", "changed", "deadline", "denied", "door", "executing",
        "hides", "name", "own", "record", "scope", "unnamed", "written",
    )  # fmt: skip

    def __init__(self, door: Door, asking: Asking) -> None:
        seams = door.seams
        self.door = door
        self.asking = asking
        self.began = seams.now()
        name = asking.name
        scrubber = None if asking.hiding is None else asking.hiding.scrubber
        if scrubber is not None:
            name = scrubber.text(name)
        self.name = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"
        if asking.call_id is None:
            asking.call_id = f"call-{seams.next_id()}"
        self.call_id: str = asking.call_id
        if asking.deadline is None:
            asking.deadline = self.began + door.deadline
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
        self.record = CallRecord(door.sink, seams.now, self.name, asking.call_id, asking.run_id, named)
        self.record.hiding = asking.hiding
        self.artifacts: Artifacts | None = None
        self.scope = scope
        if scope is not None and door.store is not None:
            self.artifacts = bind_artifacts(
                door.store, scope, origin=Origin(asking.run_id, asking.call_id), on_fact=self._fact
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
            result = error_result(self._told(error), self.call_id)
        except Exception as error:  # noqa: BLE001 -- a result is promised, whatever was overlooked
            result = error_result(self._told(self._fault(error)), self.call_id)
        except BaseException:
            self._over()
            self.record.cancelled(self.door.seams.now() - self.began)
            raise
        if result.error is not None:
            # the arguments are in its frames; a tool's own frames stay where none of them is hidden
            untraced(result.error, foreign=self.hides)
        ran = self._over()
        if self.record.listened:
            own = result if self.own is None else self.own
            changed = self.changed if ran else ()
            took = self.door.seams.now() - self.began
            self.record.end(own, result, took, denied=self.denied, changed=changed)
        return result

    def _told(self, error: AfpoolError) -> AfpoolError:
        hiding = self.asking.hiding
        scrubber = None if hiding is None else hiding.scrubber
        return error if scrubber is None else told(error, scrubber, self.name)

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
            # nobody can say which of its arguments are secret
            record.start(self._written(self._hidden(dict.fromkeys(given, REDACTED) if is_object else {})))
            raise asking.problem or UnknownTool(unknown_tool(self.name, asking.names()))
        if not is_object:
            record.start(self._written({}))
            raise InvalidArguments(
                f"The arguments of {self.name} are a JSON object, not {shape_of(given)}; the tool was not run"
            )
        shown = self._shown(tool, given)
        started = self._written(shown)
        if self.unnamed is not None:
            record.start(started)
            raise self.unnamed
        args: JsonObject = given
        if door.hooks_before:
            args = await self._hooked(tool, given, started)
            asking.check_caller()
        else:
            record.start(started)
        if asking.depth > MAX_DEPTH:
            raise Overloaded(
                f"{MAX_DEPTH} tools call one another already; the last, {self.name}, was not run"
            )
        if args is not given:
            self._check_replaced(args)
        elif not self.written or shown is not given:
            self._check_json(args)
        if args is not given:
            shown = self._shown(tool, args)
        refuse_supplied(tool, args)
        known = door.tools.get(tool)
        if known is None:
            known = await door.tools.ask(tool)
            asking.check_caller()
        if not known.arguments.allows(args):
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
            shown_result = await self._after(tool, ran, result)
            if shown_result is not result:
                self.own = limited_for_record(result, tool, door.limits)
                result = shown_result
        if door.unlimited and known.ceiling is None:
            return result
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

    async def _hooked(self, tool: Tool, given: JsonObject, started: Encoded | None) -> JsonObject:
        try:
            args: JsonObject = await self._within(ask_before, self.door.hooks, self._hook_call(tool, given))
        except CallDenied:
            self.denied = True
            raise
        finally:
            self.record.start(started)
        return args

    def _check_json(self, args: JsonObject) -> None:
        try:
            encode_json(args)
        except NotJson as error:
            raise InvalidArguments(
                f"The arguments of {self.name} are not JSON at {error.path}: {error.kind}; "
                "the tool was not run"
            ) from None

    def _check_replaced(self, args: JsonObject) -> None:
        try:
            encode_json(args)
        except NotJson as error:
            self.denied = True
            raise CallDenied(
                f"a hook replaced the arguments of {self.name} by what is not JSON at {error.path} "
                f"({error.kind}), which denies the call (the tool was not run)"
            ) from None

    def _invalid(self, args: JsonObject, shown: JsonObject, compiled: Compiled) -> InvalidArguments:
        text = correction(self.name, args, shown, compiled)
        issues = [line.removeprefix("- ") for line in text.splitlines()[1:-1]]
        self.record.file("args_invalid", {"tool_name": self.name, "issues": issues})
        return InvalidArguments(text)

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
            return error_result(error, self.call_id)
        late = CallDenied(
            f"The tool {self.name} has run; its result is withheld, since a hook did not answer in time",
            delivery=ANSWERED,
        )
        return error_result(late, self.call_id)

    # ------------------------------------------------------------------ the record

    def _hook_call(self, tool: Tool, args: JsonObject) -> HookCall:
        return HookCall(
            tool=tool,
            args=args,
            identity=self.asking.identity,
            call_id=self.call_id,
            run_id=self.asking.run_id,
        )

    def _fact(self, fact: ArtifactFact) -> None:
        self.record.file(fact.event, {**fact.as_json(), "tool": self.name})

    def _written(self, shown: JsonObject) -> Encoded | None:
        """Write down what may be shown of the arguments, before anybody can change them."""
        if self.record.listened:
            encoded, self.written = written(shown)
            return encoded
        return None
