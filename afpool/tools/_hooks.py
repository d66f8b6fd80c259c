"""Hooks: what the host decides about a call before it runs, and about its result before a model reads it.

Rules:

* `before` hooks run in the order in which they were given, `after` hooks in the reverse one: the first is the
  outermost. An `after` hook sees only what has run.
* A hook passes (`None`), replaces (`Replace`) or denies (`Deny`). The first denial ends the chain.
* A hook that raises, or answers with something else, has denied: the refusal names the hook and nothing of
  what it raised.
* Arguments are given to a hook read-only. What it wants changed it gives back; no hook puts back an argument
  that the host fills, since that is judged after them.
* What a hook gives is judged before the next one is asked, and what a model gives before the first: whoever
  is asked sees a JSON object, and a refusal names the hook whose arguments were none, not one after it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from .._base.errors import ANSWERED, NOT_SENT, CallDenied
from .._base.untraced import in_place_of
from ..protocol import NotJson, encode_json
from ._results import is_sound

if TYPE_CHECKING:
    from .._base.errors import Delivery
    from .._base.identity import CallerIdentity
    from .._base.model import JsonObject, Tool, ToolResult

logger = logging.getLogger("afpool")


@attrs.frozen
class Deny:
    """The call does not run, or its result is withheld.

    Attributes:
        reason: What the model reads, in the host's words.
    """

    reason: str = attrs.field(validator=attrs.validators.instance_of(str))


@attrs.frozen
class Replace:
    """Go on with something else: other arguments before the call, another result after it.

    Attributes:
        value: Arguments as a mapping, or a result: a `ToolResult`, or anything that a tool may return.
    """

    value: Any = attrs.field(repr=False)


Verdict: TypeAlias = Deny | Replace | None


@attrs.frozen(kw_only=True)
class HookCall:
    """The call that a hook is asked about.

    Attributes:
        tool: The tool, as the model knows it.
        args: Its arguments as they stand, read-only; in clear.
        identity: Who the run acts for, as its caller named them.
        call_id: Of the call.
        run_id: Of the run, where there is one.
    """

    tool: Tool
    args: JsonObject = attrs.field(repr=False)
    identity: CallerIdentity
    call_id: str
    run_id: str | None


Before: TypeAlias = Callable[[HookCall], Verdict | Awaitable[Verdict]]
After: TypeAlias = "Callable[[HookCall, ToolResult], Verdict | Awaitable[Verdict]]"


def _callable_or_none(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{field.name} of a hook is a function, not {type(value).__name__}")


def _named(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"a hook needs a {field.name}, which refusals tell")


@attrs.frozen
class Hook:
    """One hook.

    Attributes:
        name: Told in refusals.
        before: Asked about a call before anything is recorded of it or runs.
        after: Asked about the result of a call that has run.
    """

    name: str = attrs.field(validator=_named)
    before: Before | None = attrs.field(default=None, validator=_callable_or_none)
    after: After | None = attrs.field(default=None, validator=_callable_or_none)


async def ask_before(hooks: Sequence[Hook], call: HookCall) -> JsonObject:
    """Ask every hook about a call.

    Args:
        hooks: In the order in which they are asked.
        call: Its arguments are a JSON object.

    Returns:
        The arguments to run with: the call's own object where no hook replaced them.

    Raises:
        CallDenied: A hook denied, raised, answered with what is no verdict, or left arguments that are not
            JSON.
    """
    given = args = call.args
    for hook in hooks:
        if hook.before is None:
            continue
        shown = attrs.evolve(call, args=MappingProxyType(dict(args)))
        verdict = await _ask(hook, hook.before, NOT_SENT, shown)
        if isinstance(verdict, Replace):
            if not isinstance(verdict.value, Mapping):
                raise _malfunction(
                    hook, NOT_SENT, f"replaced the arguments by {type(verdict.value).__name__}"
                )
            failure: CallDenied | None = None
            try:
                args = dict(verdict.value)
            except Exception as error:  # noqa: BLE001 -- the host's own mapping
                why = f"replaced the arguments by a {type(verdict.value).__name__} that cannot be read"
                failure = in_place_of(error, _malfunction(hook, NOT_SENT, why))
            if failure is not None:
                raise failure
        if args is not given:
            _check_json(hook, args)
    return given if args is given else args


def _check_json(hook: Hook, args: JsonObject) -> None:
    """Deny for a hook that leaves other arguments than JSON, its own or changed ones of a hook before it."""
    try:
        encode_json(args)
    except NotJson as error:
        why = f"replaced the arguments by what is not JSON at {error.path} ({error.kind})"
        raise _malfunction(hook, NOT_SENT, why) from None


async def ask_after(
    hooks: Sequence[Hook], call: HookCall, result: ToolResult, as_result: Callable[[Any], ToolResult]
) -> ToolResult:
    """Ask every hook about a result, the last hook first.

    Args:
        hooks: In the order in which they were given.
        call: With the arguments that it ran with.
        result: What it gave.
        as_result: Makes a result of what a hook replaced it by.

    Returns:
        What the model reads: the same object where no hook replaced it.

    Raises:
        CallDenied: A hook denied, raised, or answered with what is no verdict.
    """
    shown = attrs.evolve(call, args=MappingProxyType(dict(call.args)))
    for hook in reversed(hooks):
        if hook.after is None:
            continue
        verdict = await _ask(hook, hook.after, ANSWERED, shown, result)
        if isinstance(verdict, Replace):
            try:
                replaced = as_result(verdict.value)
            except TypeError:
                replaced = None
            if replaced is None or not is_sound(replaced):
                raise _malfunction(hook, ANSWERED, "replaced the result by what is none")
            result = replaced
    return result


async def _ask(hook: Hook, ask: Callable[..., Any], delivery: Delivery, *what: Any) -> Replace | None:
    verdict: object = None
    failure: CallDenied | None = None
    try:
        verdict = ask(*what)
        if inspect.isawaitable(verdict):
            verdict = await verdict
    except Exception as error:  # noqa: BLE001 -- the host's own code
        # its words may hold anything; they go no further
        logger.warning("the hook %s raised %s", hook.name, type(error).__name__)
        failure = in_place_of(error, _malfunction(hook, delivery, f"raised {type(error).__name__}"))
    if failure is not None:
        raise failure
    if isinstance(verdict, Deny):
        raise _by(hook, CallDenied(f"{verdict.reason} ({_what_ran(delivery)})", delivery=delivery))
    if verdict is None or isinstance(verdict, Replace):
        return verdict
    raise _malfunction(hook, delivery, f"answered with {type(verdict).__name__}")


def _malfunction(hook: Hook, delivery: Delivery, what: str) -> CallDenied:
    return _by(
        hook,
        CallDenied(
            f"the hook {hook.name} {what}, which denies the call ({_what_ran(delivery)})", delivery=delivery
        ),
    )


def _by(hook: Hook, denied: CallDenied) -> CallDenied:
    denied.hook = hook.name
    return denied


def _what_ran(delivery: Delivery) -> str:
    return "the tool was not run" if delivery == NOT_SENT else "the tool has run; its result is withheld"
