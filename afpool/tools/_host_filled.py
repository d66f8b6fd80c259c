"""Arguments that the host fills: the model neither sees them nor can set them.

Rules:

* The argument is gone from the schema that the model sees; the tool that was listed stays as it was.
* A value for it is refused by the argument's name, whatever the value and however the name is spelled
  (`_supplied`).
* It is filled in at the last moment, in a new dictionary, and only for the tool that is decorated. What
  records, hooks and checkpoints hold are the model's arguments.
* A credential's value is taken out of everything that the tool gives back, reports or raises. So is
  everything else that the credential holds secret.
* All of it stands in the tool's own `execute`, and so holds for whoever calls it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast, overload

import attrs
import trio

from .._base.credential import CredentialRequirement, Mode
from .._base.errors import CredentialFailed, IdentityMissing, InvalidArguments, ProtocolError
from .._base.model import JsonObject, Tool, ToolContext, ToolResult
from .._base.secret import Secret, secrets_of
from .._base.spellings import SHORT
from ..pool._asking import SameCaller, same_caller
from ._cuts import Cut, cut_of, declared_by
from ._derive import derive, fact
from ._filled_arguments import FilledArguments, as_object
from ._fills import (
    CannotHideArgumentError,
    HostFilledArgumentError,
    HostFilledValueMissingError,
    HostFillFromCredential,
    HostFillFromIdentity,
    credential_value,
    identity_value,
)
from ._hiding import Hiding
from ._shown import VIEW, with_argument_view
from ._supplied import FILLS, Filled, Fills, HostFilledArguments

if TYPE_CHECKING:
    from ._derive import Execute

logger = logging.getLogger("afpool")


@overload
def host_filled(tools: Tool, fills: Fills) -> Tool: ...
@overload
def host_filled(tools: Mapping[str, Tool], fills: Fills) -> dict[str, Tool]: ...
@overload
def host_filled(tools: Iterable[Tool], fills: Fills) -> tuple[Tool, ...]: ...
def host_filled(
    tools: Tool | Mapping[str, Tool] | Iterable[Tool], fills: Fills
) -> Tool | dict[str, Tool] | tuple[Tool, ...]:
    """Declare arguments of a tool, or of several, as filled by the host.

    Args:
        tools: One tool, which must declare every argument; or several, as a mapping (a toolset) or in order:
            each takes the fills for the arguments that it declares, and is given back itself where it
            declares none. Bindings and whatever else rides on a tool stay.
        fills: Argument name to `from_credential(...)` or `from_identity(...)`.

    Returns:
        Copies of the same form: a tool, a dictionary with the same keys, a tuple.

    Raises:
        TypeError: A fill is none. The tool, or each of several, does not declare an argument. A credential
            fill names no service and the tool has no `needs`, or another one than the tool's, or than another
            fill's of the same tool. The tool wants an artifact for the argument (`wants`).
        CannotHideArgumentError: A `TypeError`, too: an argument cannot be taken out of the input schema.

    Called directly, what this gives raises `HostFilledArgumentError` where the arguments bring a value for a
    filled one, `HostFilledValueMissingError` where there is no value (no credential was resolved, it has no
    single value, the caller named no such identity field), and what the tool itself raises, without the
    credential. A door gives all of that as results.
    """
    check_fills(fills)
    if isinstance(tools, Tool):
        missing = [name for name in fills if name not in _declared(tools)]
        if missing:
            raise TypeError(
                f"the tool {tools.name!r} does not declare {_named(missing)} in its input schema; a fill for "
                "it would hide nothing"
            )
        return filled_tool(tools, fills)
    if isinstance(tools, Mapping):
        named = cast("Mapping[str, Tool]", tools)
        return dict(zip(named, _several(tuple(named.values()), fills), strict=True))
    return _several(tuple(tools), fills)


def _several(several: tuple[Tool, ...], fills: Fills) -> tuple[Tool, ...]:
    declared = [_declared(tool) for tool in several]
    unknown = [name for name in fills if not any(name in names for names in declared)]
    if unknown:
        raise TypeError(
            f"none of the {len(several)} tools declares {_named(unknown)} in its input schema; a fill for it "
            "would hide nothing; check the spelling"
        )
    return tuple(
        filled_tool(tool, {name: fill for name, fill in fills.items() if name in names})
        for tool, names in zip(several, declared, strict=True)
    )


def host_fills_of(tool: Tool) -> HostFilledArguments | None:
    """Give which arguments the host fills on a tool, and from what; `None` where it fills none."""
    filled = fact(tool, FILLS)
    if not isinstance(filled, Filled):
        return None
    fills = filled.fills
    return HostFilledArguments(
        MappingProxyType(
            {name: fill.field for name, fill in fills.items() if isinstance(fill, HostFillFromIdentity)}
        ),
        tuple(name for name, fill in fills.items() if isinstance(fill, HostFillFromCredential)),
    )


def filled_tool(tool: Tool, fills: Fills) -> Tool:
    """Give a copy of one tool, all of whose `fills` it declares; see `host_filled`."""
    if not fills:
        return tool
    fills = dict(fills)  # whoever gave them may go on with theirs
    name = tool.name
    wanted = [argument for argument in fills if argument in (tool.wants or {})]
    if wanted:
        raise TypeError(
            f"the tool {name!r} wants an artifact for {_named(wanted)}, which its model passes; the host "
            "cannot fill that as well"
        )
    needs = _needs(tool, fills)
    cut = _cut(tool, fills)
    before = fact(tool, FILLS)
    all_fills = {**(before.fills if isinstance(before, Filled) else {}), **fills}
    filled = Filled(all_fills, cut.names)

    def execute(args: JsonObject, ctx: ToolContext, base: Execute) -> Awaitable[ToolResult]:
        return _execute(name, filled, fills, args, ctx, base)

    shown = with_argument_view(tool, filled.masked)
    return derive(
        tool,
        input_schema=cut.schema,
        needs=needs,
        execute=execute,
        facts={FILLS: filled, VIEW: fact(shown, VIEW)},
    )


async def _execute(
    name: str, filled: Filled, fills: Fills, args: JsonObject, ctx: ToolContext, base: Execute
) -> ToolResult:
    """Run a tool with its arguments filled in."""
    try:
        filled.refuse(name, as_object(name, args, ctx.call_id))
        ctx = _of_one_caller(fills, ctx)
        complete, hiding = _complete(name, fills, args, ctx)
    except (
        InvalidArguments, HostFilledArgumentError, HostFilledValueMissingError, CredentialFailed,
    ) as error:  # fmt: skip
        error.call_id = ctx.call_id
        await trio.lowlevel.cancel_shielded_checkpoint()
        raise
    if hiding is None:
        return await base(complete, ctx)
    failure: BaseException | None = None
    result: Any = None
    try:
        result = await base(complete, _quiet(ctx, hiding))
    except BaseException as error:  # noqa: BLE001 -- raised again below, where it is no context of itself
        failure = error if hiding.scrubber is None else hiding.scrubber.exception(error)
    if failure is not None:
        raise failure
    return await _looked_through(name, result, ctx, hiding)


async def _looked_through(name: str, result: Any, ctx: ToolContext, hiding: Hiding) -> ToolResult:
    try:
        clean: ToolResult = await hiding.result(result)
    except Exception as error:  # noqa: BLE001 -- a fault of ours: what was not looked through is not given on
        fault = type(error).__name__
    else:
        return clean
    unread = ProtocolError(
        f"the result of {name} could not be looked through ({fault}) and is withheld; the tool has run"
    )
    unread.call_id = ctx.call_id
    raise unread


def _of_one_caller(fills: Fills, ctx: ToolContext) -> ToolContext:
    """Give a context whose caller has to stay who he is while what was filled from him is on its way."""
    identity = ctx.identity
    if not callable(identity) or isinstance(identity, SameCaller):
        return ctx
    if not any(isinstance(fill, HostFillFromIdentity) for fill in fills.values()):
        return ctx
    with contextlib.suppress(IdentityMissing):  # told as the value that is missing
        return attrs.evolve(ctx, identity=same_caller(identity))
    return ctx


def _complete(
    name: str, fills: Fills, args: JsonObject, ctx: ToolContext
) -> tuple[FilledArguments, Hiding | None]:
    """Fill the arguments in, in a new dictionary; no local here holds a credential's value in clear."""
    secrets: list[Secret] = []
    complete = FilledArguments(args, fills)
    for field, fill in fills.items():
        if isinstance(fill, HostFillFromIdentity):
            complete[field] = identity_value(fill, ctx, name, field)
            continue
        secret = credential_value(fill, ctx, name, field)
        _warn_of_short(name, field, secret)
        secrets.append(secret)
        complete[field] = secret.reveal()
    if not secrets or ctx.credential is None:
        return complete, None
    others = secrets_of(ctx.credential)
    if isinstance(others, str):
        raise CredentialFailed(
            f"the credential of {name} cannot be kept out of what is told: {others}; the tool was not run"
        )
    hiding: Hiding = Hiding() if ctx.door is None else ctx.door.hiding
    hiding.add((*secrets, *others))
    return complete, hiding


def _quiet(ctx: ToolContext, hiding: Hiding) -> ToolContext:
    """Give a context whose reports hold no secret."""
    on_progress, progress = ctx.on_progress, ctx.progress
    if on_progress is None and progress is None:
        return ctx
    if ctx.door is not None and ctx.door.looks_through(ctx):
        return ctx

    def clean(report: Any) -> Any:
        scrubber = hiding.scrubber
        return report if scrubber is None else scrubber.progress(report)

    return attrs.evolve(
        ctx,
        on_progress=None if on_progress is None else lambda told: on_progress(clean(told)),
        progress=None if progress is None else lambda told: progress(clean(told)),
    )


_warned: set[tuple[str, str]] = set()
_MAX_WARNED: Final = 1000


def _warn_of_short(name: str, field: str, secret: Secret) -> None:
    if len(secret.reveal()) >= SHORT or (name, field) in _warned or len(_warned) >= _MAX_WARNED:
        return
    _warned.add((name, field))
    logger.warning(
        "the value that fills %s of %s has fewer than %d characters; it is taken out of results only where "
        "it stands alone",
        field,
        name,
        SHORT,
    )


# -- building


def check_fills(fills: object) -> None:
    if not isinstance(fills, Mapping):
        raise TypeError(f"fills are a mapping of argument names, not {type(fills).__name__}")
    for name, fill in fills.items():
        if not isinstance(name, str):
            raise TypeError(f"a filled argument is named by a string, not {type(name).__name__}")
        if not isinstance(fill, HostFillFromCredential | HostFillFromIdentity):
            raise TypeError(
                f"the fill of {name!r} is {type(fill).__name__}; it is from_credential(...) or "
                "from_identity(...)"
            )


def _declared(tool: object) -> frozenset[str]:
    if not isinstance(tool, Tool):
        raise TypeError(f"the host fills arguments of tools, not of {type(tool).__name__}")
    return declared_by(tool)


def _needs(tool: Tool, fills: Fills) -> CredentialRequirement | None:
    """Give the tool's `needs`: its own, or the one that its fills declare."""
    own = tool.needs
    wanted = {name: fill for name, fill in fills.items() if isinstance(fill, HostFillFromCredential)}
    for name, fill in wanted.items():
        if own is not None and fill.service not in (None, own.service):
            raise TypeError(
                f"the fill of {name!r} is for the service {fill.service!r}, and the tool {tool.name!r} needs "
                f"{own.service!r}; a call has one credential: leave the service of the fill out"
            )
    if own is not None or not wanted:
        return own
    named = {fill.service for fill in wanted.values() if fill.service is not None}
    if len(named) != 1:
        raise TypeError(
            f"the tool {tool.name!r} needs no credential of its own, so "
            + (
                f"its fills have to name one service, not {_named(sorted(named))}"
                if named
                else f"the fill of {_named(wanted)} has to name the service"
            )
        )
    modes: set[Mode] = {fill.mode for fill in wanted.values() if fill.service is not None}
    if len(modes) != 1:
        raise TypeError(f"the fills of the tool {tool.name!r} name both modes; a call has one credential")
    scopes = dict.fromkeys(scope for fill in wanted.values() for scope in fill.scopes)
    return CredentialRequirement(named.pop(), tuple(scopes), modes.pop())


def _cut(tool: Tool, fills: Fills) -> Cut:
    found = cut_of(tool, fills)
    if isinstance(found, str):
        raise CannotHideArgumentError(tool.name, fills, found)
    return found


def _named(names: Iterable[str]) -> str:
    return " and ".join(map(repr, names))
