"""The arguments as a record may show them: a view that rides on the tool.

Rules:

* A view decides nothing about what runs: the tool gets the real values. It answers one question, for whoever
  writes a record: what may be said that this call ran with?
* No view is the arguments themselves, the same object. A view that raises, or gives no mapping, hides every
  value: what could not be judged is not shown. Asking for the shown form never raises.
* Views add up. Whoever decorates a tool that has a view sees what that view shows, so a decoration can hide
  more and never less.
* Names may be told, values not: `changed_arg_keys` gives plain strings.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from .._base.model import JsonObject, Tool
from ._derive import derive, fact
from ._redaction import REDACTED, RedactionPolicy, retain_record
from ._redaction_walk import spelled

if TYPE_CHECKING:
    from typing import Any

logger = logging.getLogger("afpool")

ShownArgs: TypeAlias = Callable[[JsonObject], JsonObject]
"""Arguments to the form that a record may show; synchronous, and the same object where nothing is hidden."""

VIEW: Final = "argument-view"
"""The key of the fact that holds a tool's view."""

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_ABSENT: Final = object()


def args_redacted_by(policy: RedactionPolicy) -> ShownArgs:
    """Give the view that a policy means.

    Args:
        policy: What to hide.

    Returns:
        A function from arguments to what may be shown of them: `"REDACTED"` stands for what is hidden, and
        the same object comes back where nothing is. No call leaves anything behind for the next one.

    Raises:
        TypeError: `policy` is no `RedactionPolicy`.
    """
    if not isinstance(policy, RedactionPolicy):
        raise TypeError(f"arguments are redacted by a RedactionPolicy, not {type(policy).__name__}")

    def view(args: JsonObject) -> JsonObject:
        return cast("JsonObject", retain_record(policy, args, REDACTED))

    return view


def with_argument_view(tool: Tool, view: ShownArgs) -> Tool:
    """Give a copy of a tool whose recorded arguments go through a view.

    Args:
        tool: The tool; its binding and whatever else rides on it stay. Where it has a view, that one comes
            first: this one is given what it shows.
        view: Arguments to the form that may be shown. It must not change what it is given.

    Raises:
        TypeError: `tool` is no tool, or `view` is no synchronous function.
    """
    if not callable(view):
        raise TypeError(f"a view of arguments is a function, not {type(view).__name__}")
    if inspect.iscoroutinefunction(view) or inspect.iscoroutinefunction(type(view).__call__):
        raise TypeError("a view of arguments is asked synchronously; an async function cannot be one")
    before = _view_of(tool)
    return derive(tool, facts={VIEW: view if before is None else _both(before, view)})


def redacted(tool: Tool, policy: RedactionPolicy) -> Tool:
    """Give a copy of a tool whose recorded arguments are redacted by a policy.

    Its results, and the arguments that it runs with, stay as they are.

    Args:
        tool: The tool; its binding and whatever else rides on it stay. What its own view hides stays hidden.
        policy: What to hide.

    Raises:
        TypeError: `tool` is no tool, or `policy` is no `RedactionPolicy`.
    """
    return with_argument_view(tool, args_redacted_by(policy))


def carries_argument_view(tool: object) -> bool:
    """Tell whether a tool has a view, so that some of its arguments may not be recorded as they are."""
    return _view_of(tool) is not None


def shown_args_of(tool: object, args: Any) -> Any:
    """Give what a record may say that `tool` was called with.

    Args:
        tool: The tool. What is none has no view.
        args: The arguments.

    Returns:
        What the tool's view gives; `args` itself where there is no view, or where it hides nothing. Where
        the view fails: every key of `args` with `"REDACTED"`, and nothing else.

    Never raises (an interrupt excepted). Not a checkpoint.
    """
    view = fact(tool, VIEW)
    if not callable(view):
        return args
    try:
        return _asked(view, args)
    except _NoView as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 -- whatever went wrong, nothing was judged
        why = type(error).__name__
    logger.warning("a tool's view of its arguments failed (%s); the record shows none of them", why)
    return _all_hidden(args)


def changed_arg_keys(proposal: Any, shown: Any) -> tuple[str, ...]:
    """Name the arguments that differ between what a model proposed and what a record may show of the call.

    Args:
        proposal: The model's arguments.
        shown: What `shown_args_of` gives for the arguments that run.

    Returns:
        The names that were set, rewritten, removed or hidden: first those of the proposal, in its order, then
        new ones. Values are compared by identity, plain ones by kind and value: a nested value that was built
        anew counts as changed, so the list may name more than there is and never less.
    """
    if proposal is shown:
        return ()
    before: Mapping[Any, Any] = proposal if isinstance(proposal, Mapping) else {}
    after: Mapping[Any, Any] = shown if isinstance(shown, Mapping) else {}
    changed = [key for key in before if _differ(before[key], after.get(key, _ABSENT))]
    changed += [key for key in after if key not in before]
    return tuple(map(_told, changed))


def _differ(one: object, other: object) -> bool:
    if one is other:
        return one != one if type(one) is float else False  # noqa: PLR0124 -- NaN is never the same
    return type(one) is not type(other) or type(one) not in _PLAIN or one != other


def _view_of(tool: object) -> ShownArgs | None:
    view = fact(tool, VIEW) if isinstance(tool, Tool) else None
    return cast("ShownArgs", view) if callable(view) else None


class _NoView(TypeError):
    """What a view gave is nothing that could be shown."""


def _asked(view: Callable[[Any], object], args: Any) -> Any:
    """Ask one view, wherever it stands among others.

    Raises:
        _NoView: It gave neither a mapping nor the arguments themselves.
    """
    shown = view(args)
    if shown is args or isinstance(shown, Mapping):
        return shown
    if inspect.iscoroutine(shown):
        shown.close()  # nobody awaits it
    raise _NoView(f"it gave {type(shown).__name__}")


def _both(first: ShownArgs, second: ShownArgs) -> ShownArgs:
    def view(args: JsonObject) -> JsonObject:
        return cast("JsonObject", _asked(second, _asked(first, args)))

    return view


def _told(key: object) -> str:
    try:
        return spelled(key)
    except TypeError:
        return f"<{type(key).__name__}>"


def _all_hidden(args: Any) -> dict[str, str]:
    try:
        return {_told(key): REDACTED for key in args} if isinstance(args, Mapping) else {}
    except Exception:  # noqa: BLE001 -- not even its names can be told
        return {}
