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
* The deadline is absolute and over everything. A bound tool keeps it itself; around everything else stands a
  scope.
* At least one checkpoint.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import attrs
import trio

from .._base.errors import (
    ANSWERED,
    IN_DOUBT,
    NOT_SENT,
    AfpoolError,
    CallDenied,
    DeadlineExceeded,
    IdentityMissing,
    InvalidArguments,
    Overloaded,
    ToolFailed,
    UnknownTool,
)
from .._base.identity import Identity
from .._base.untraced import untraced
from ..artifacts import ArtifactRefused, NoArtifactStoreError, Origin, bind_artifacts
from ..pool._asking import ask_identity
from ..protocol import NotJson, encode_json
from ._asked_credentials import credential_for
from ._correction import correction
from ._derive import binding_of, held_input_schema
from ._execute import Executing
from ._hooks import Hook, HookCall, ask_after, ask_before
from ._limits import ResultLimits, ceiling_of, limited, limited_for_record
from ._live_refs import Scoped
from ._record import CallRecord, Encoded, EventSink
from ._redaction import REDACTED
from ._results import error_result, shape_of, value_result
from ._scrub import Scrubber
from ._shown import changed_arg_keys, shown_args_of
from ._supplied import refuse_supplied
from ._validation import Validators
from ._wants import WantsRefused, resolve_in, wants_needs_store_refusal

if TYPE_CHECKING:
    from .._base.compiled import Compiled
    from .._base.credential import CredentialProvider
    from .._base.identity import CallerIdentity
    from .._base.model import JsonObject, Progress, Tool, ToolResult
    from .._base.seams import Seams
    from .._base.secret import Secret
    from ..artifacts import ArtifactFact, Artifacts, ArtifactStore
    from ._asked_credentials import OnAuthorization

MAX_DEPTH: Final = 16
_TOLD_NAMES: Final = 50
_COMPARED_NAMES: Final = 2_000
_MAX_NAME: Final = 128

Again: TypeAlias = "Callable[[Tool], Awaitable[Tool | None]]"


@attrs.define(kw_only=True, eq=False)
class Asking:
    """Who calls what, as whoever opens the door for them says it.

    Attributes:
        name: The tool's name, as the model gave it.
        tool: The tool that it means; `None` where there is none.
        args: The model's arguments; whatever it sent.
        identity: The caller's, or a callable that is asked again.
        scope: Whose artifacts the run sees; the caller's where absent.
        run_id: Of the run, where there is one.
        call_id: Made up when absent.
        deadline: Absolute, seconds on trio's clock; the door's default from now when absent.
        on_progress: Told of progress, in the caller's own task.
        chain: Tickets of the calls that this one is made from inside of.
        depth: How many tools stand between the model and this call.
        tools: Makes what the tool calls others with, of this very object once it is complete.
        names: What there is, for the refusal of an unknown name.
        problem: Why there is no tool, where that is something else than an unknown name.
        again: Gives the same tool freshly listed, or `None`; where a call in which nothing ran is repeated.
        hidden: What the calls around this one have fetched; with what is fetched for this one added.
    """

    name: str
    tool: Tool | None
    args: Any = attrs.field(default=None, repr=False)
    identity: CallerIdentity = None
    scope: Identity | None = None
    run_id: str | None = None
    call_id: str | None = None
    deadline: float | None = None
    on_progress: Callable[[Progress], object] | None = None
    chain: tuple[int, ...] = ()
    depth: int = 0
    tools: Callable[[Asking], Any] | None = None
    names: Callable[[], Sequence[str]] = tuple
    problem: AfpoolError | None = None
    again: Again | None = None
    hidden: tuple[Secret, ...] = attrs.field(default=(), repr=False)


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
        "seams", "sink", "store", "unlimited", "validators",
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
        self.validators = Validators()

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
        self.name = name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…"
        if asking.call_id is None:
            asking.call_id = f"call-{seams.next_id()}"
        self.call_id: str = asking.call_id
        if asking.deadline is None:
            asking.deadline = self.began + door.deadline
        self.deadline: float = asking.deadline
        caller = asking.identity
        named = caller if caller is None or isinstance(caller, Identity) else None
        self.unnamed: IdentityMissing | None = None  # there is a caller, and it could not be asked
        if named is not caller:
            try:
                asked = ask_identity(caller)
                named = None if asked == Identity() else asked
            except IdentityMissing as error:
                self.unnamed = error
        self.record = CallRecord(door.sink, seams.now, asking.call_id, asking.run_id, named)
        self.scope = asking.scope or named or Identity()
        self.artifacts: Artifacts | None = None
        if door.store is not None:
            self.artifacts = bind_artifacts(
                door.store, self.scope, origin=Origin(asking.run_id, asking.call_id), on_fact=self._fact
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
            result = error_result(error, self.call_id)
        except Exception as error:  # noqa: BLE001 -- a result is promised, whatever was overlooked
            result = error_result(self._fault(error), self.call_id)
        except BaseException:
            self._end(None)
            raise
        if result.error is not None:
            # the arguments are in its frames; a tool's own frames stay where none of them is hidden
            untraced(result.error, foreign=self.hides)
        self._end(result)
        return result

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
        asking, door, tool = self.asking, self.door, self.asking.tool
        given = {} if asking.args is None else asking.args
        if tool is None:
            # nobody can say which of its arguments are secret
            self._start(self._written(dict.fromkeys(given, REDACTED) if isinstance(given, Mapping) else {}))
            raise asking.problem or UnknownTool(unknown_tool(self.name, asking.names()))
        if not isinstance(given, Mapping):
            self._start(self._written({}))
            raise InvalidArguments(
                f"The arguments of {self.name} are a JSON object, not {shape_of(given)}; the tool was not run"
            )
        shown = self._shown(tool, given)
        started = self._written(shown)
        if self.unnamed is not None:
            self._start(started)
            raise self.unnamed
        args: JsonObject = given
        if door.hooks_before:
            args = await self._hooked(tool, given, started)
        else:
            self._start(started)
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
        compiled = door.validators.known(tool) or await door.validators.ready(tool, door.seams)
        if not compiled.allows(args):
            raise self._invalid(args, shown, compiled)
        if shown is not given:
            self.changed = changed_arg_keys(given, shown)
        executing = self.executing = Executing(self.name, door, asking, self.record, self.artifacts)
        open_ended = tool.wants is not None or tool.needs is not None
        ran = args
        if binding_of(tool) is not None:
            if open_ended:
                args = await self._within(self._prepared, executing, tool, args)
            result = await executing.run(tool, args)  # the pool keeps the deadline, and knows the verdict
        elif open_ended:
            result = await self._within(self._prepared_and_run, executing, tool, args)
        else:
            result = await self._within(executing.run, tool, args)
        if door.hooks_after:
            shown_result = await self._after(tool, ran, result)
            if shown_result is not result:
                self.own = limited_for_record(result, tool, door.limits)
                result = shown_result
        if door.unlimited and ceiling_of(tool) is None:
            return result
        return await limited(result, tool, door.limits, self.artifacts, self.record, self.deadline)

    def _shown(self, tool: Tool, args: JsonObject) -> JsonObject:
        """Give what may be said of arguments: not what the tool hides, nor what calls around it fetched."""
        shown: JsonObject = shown_args_of(tool, args)
        if self.asking.hidden:
            shown = Scrubber(self.asking.hidden).value(shown)
        if shown is not args:
            self.hides = True
        return shown

    async def _hooked(self, tool: Tool, given: JsonObject, started: Encoded | None) -> JsonObject:
        try:
            args: JsonObject = await self._within(ask_before, self.door.hooks, self._hook_call(tool, given))
        except CallDenied:
            self.denied = True
            raise
        finally:
            self._start(started)
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

    async def _prepared_and_run(self, executing: Executing, tool: Tool, args: JsonObject) -> ToolResult:
        return await executing.run(tool, await self._prepared(executing, tool, args))

    async def _prepared(self, executing: Executing, tool: Tool, args: JsonObject) -> JsonObject:
        if tool.wants is not None:
            args = await self._redeemed(executing, tool, tool.wants, args)
        if tool.needs is not None:
            door = self.door
            executing.use_credential(
                await credential_for(
                    self.name,
                    tool.needs,
                    door.credentials,
                    self.record.identity,
                    self.record,
                    door.on_authorization,
                )
            )
        return args

    async def _redeemed(
        self, executing: Executing, tool: Tool, wants: Mapping[str, str], args: JsonObject
    ) -> JsonObject:
        store = self.door.store
        if store is None:
            refusal = wants_needs_store_refusal(self.name, wants)
            self._fact(ArtifactRefused("dispatch", "no-store", None, refusal))
            raise NoArtifactStoreError(refusal)
        found = await resolve_in(
            Scoped(store, self.scope), self.name, wants, args, held_input_schema(tool), deadline=inf
        )
        for fact in found.facts():
            self._fact(fact)
        if isinstance(found, WantsRefused):
            raise found.to_error()
        executing.wanted = found.wanted or None
        return found.args

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

    def _written(self, shown: Any) -> Encoded | None:
        """Write down what may be shown of the arguments, before anybody can change them."""
        if self.door.sink is None:
            return None
        try:
            encoded = Encoded(encode_json(shown))
        except NotJson:
            names = [_told(key) for key in shown]
            return Encoded(encode_json(dict.fromkeys(names, "[not JSON]")))
        self.written = True
        return encoded

    def _start(self, args: Encoded | None) -> None:
        self.record.file("tool_start", {"tool_name": self.name, "call_id": self.call_id, "args": args})

    def _end(self, result: ToolResult | None) -> None:
        """File the end; `None` for a call that was cancelled."""
        if self.executing is not None:
            self.executing.over = True
        if self.door.sink is None:
            return
        duration = (self.door.seams.now() - self.began) * 1000.0
        facts: dict[str, Any] = {"call_id": self.call_id}
        if result is None:
            facts |= {"result": None, "duration_ms": duration, "status": "cancelled"}
            self.record.file("tool_end", facts, code="cancelled")
            return
        own = result if self.own is None else self.own
        facts |= {"result": Encoded(own.raw), "duration_ms": duration}
        if own.is_error and not self.denied:
            facts["error"] = True
        if own is not result:
            facts["model_result"] = Encoded(result.raw)
        if self.denied:
            facts["not_executed"] = True
        elif self.changed and self.executing is not None and self.executing.begun:
            facts["changed_arg_keys"] = self.changed
        self.record.file("tool_end", facts, code=result.code, delivery=result.delivery)


def _told(key: object) -> str:
    """Write a name that may be no string, or none that JSON holds."""
    name = key if isinstance(key, str) else f"<{type(key).__name__}>"
    return name[:_MAX_NAME].encode("utf-8", "replace").decode()


def unknown_tool(name: str, names: Sequence[str]) -> str:
    """Say that there is no tool of a name, and which there are: the nearest first, at most fifty."""
    name = name[:_MAX_NAME]
    if not names:
        return f"There is no tool {name!r}, and no other one; nothing ran"
    nearest = difflib.get_close_matches(name, names, 3) if len(names) <= _COMPARED_NAMES else []
    told = [*nearest, *(one for one in names if one not in nearest)][:_TOLD_NAMES]
    more = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
    return f"There is no tool {name!r}; nothing ran. There are: {', '.join(told)}{more}"
