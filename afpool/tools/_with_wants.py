"""Tools of others that take stored artifacts: what was listed stays, what a model sees of it changes.

Rules:

* The argument's own schema describes the data and is for whoever gets the data. What a model sees in its
  place is a string, and that it is to pass a ref. Nothing that was listed is touched.
* Called through a door, the refs have been redeemed before `execute`, and `ToolContext.wanted` says which.
  Whoever calls `execute` directly gets the same checks here: no ref ever runs in the place of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

import attrs

from .._base.model import JsonObject, Tool, ToolContext, ToolResult
from ..artifacts._types import NoArtifactStoreError
from . import _wants_words as words
from ._derive import derive, held_input_schema
from ._filled_arguments import as_object
from ._supplied import refuse_supplied
from ._wants import WantsRefused, assert_tool_wants, resolve_in

if TYPE_CHECKING:
    from ._derive import Execute


@overload
def with_wants(tools: Tool, wants: Mapping[str, str]) -> Tool: ...
@overload
def with_wants(tools: Mapping[str, Tool], wants: Mapping[str, str]) -> dict[str, Tool]: ...
@overload
def with_wants(tools: Iterable[Tool], wants: Mapping[str, str]) -> tuple[Tool, ...]: ...
def with_wants(
    tools: Tool | Mapping[str, Tool] | Iterable[Tool], wants: Mapping[str, str]
) -> Tool | dict[str, Tool] | tuple[Tool, ...]:
    """Give a copy of a tool, or of each of several, that takes stored artifacts for some of its arguments.

    A model passes a ref, the tool gets the data. In the schema that the model sees, the argument is a string
    that is said to be a ref, whatever type the data has.

    Args:
        tools: One tool, or several: a toolset, a mapping by name, any iterable. Bindings and whatever else
            rides on them stay. Of several, each takes what it has the arguments for, and one that has none
            is given back itself.
        wants: Argument name to the kind of the artifact that it takes.

    Raises:
        TypeError: `wants` is empty or a kind is blank; the tool, or every one of several, does not list an
            argument (one that the host fills is not listed); or a tool wants another kind for it already.
    """
    if isinstance(tools, Tool):
        assert_tool_wants(tools.name, wants)
        missing = [arg for arg in wants if arg not in _properties(tools)]
        if missing:
            raise TypeError(
                f"the tool {tools.name!r} does not list {_names(missing)} in its input schema, so no model "
                "could pass a ref there; name arguments that it lists and that the host does not fill"
            )
        return _wanting(tools, wants)
    if isinstance(tools, Mapping):
        named = cast("Mapping[str, Tool]", tools)
        return dict(zip(named, _each(tuple(named.values()), wants), strict=True))
    return _each(tuple(tools), wants)


def _each(tools: tuple[Tool, ...], wants: Mapping[str, str]) -> tuple[Tool, ...]:
    assert_tool_wants("each of several", wants)
    given: list[Tool] = []
    used: set[str] = set()
    for tool in tools:
        listed = _properties(tool)
        own = {arg: kind for arg, kind in wants.items() if arg in listed}
        used |= own.keys()
        given.append(_wanting(tool, own) if own else tool)
    unused = [arg for arg in wants if arg not in used]
    if unused:
        raise TypeError(
            f"none of the {len(tools)} tools lists {_names(unused)} in its input schema, so no model could "
            "pass a ref there; check the spelling"
        )
    return tuple(given)


def _names(names: Iterable[str]) -> str:
    return " and ".join(map(repr, names))


def _properties(tool: Tool) -> Mapping[str, Any]:
    if not isinstance(tool, Tool):
        raise TypeError(f"wants are for tools, not for {type(tool).__name__}")
    properties = held_input_schema(tool).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _wanting(tool: Tool, wants: Mapping[str, str]) -> Tool:
    before = tool.wants or {}
    for arg, kind in wants.items():
        if before.get(arg, kind) != kind:
            raise TypeError(
                f"the tool {tool.name!r} wants an artifact of kind {before[arg]!r} for {arg!r} already, so "
                f"it cannot take one of kind {kind!r}"
            )
    new = {arg: kind for arg, kind in wants.items() if arg not in before}
    if not new:
        return tool
    held = held_input_schema(tool)
    properties = dict(held["properties"])
    for arg, kind in new.items():
        properties[arg] = _as_ref(properties[arg], kind)
    schema = {**held, "properties": properties}

    async def execute(args: JsonObject, ctx: ToolContext, base: Execute) -> ToolResult:
        args = as_object(tool.name, args, ctx.call_id)
        refuse_supplied(tool, args, ctx.call_id)  # before a store is asked, as at a door
        return await execute_wanting(tool.name, new, schema, args, ctx, base)

    return derive(tool, input_schema=schema, wants={**before, **new}, execute=execute)


def _as_ref(listed: object, kind: str) -> dict[str, Any]:
    """Give the schema of a ref in place of the schema of the data."""
    shown: dict[str, Any] = {"type": "string"}
    described = ""
    if isinstance(listed, Mapping):
        if isinstance(listed.get("title"), str):
            shown["title"] = listed["title"]
        if isinstance(listed.get("description"), str):
            described = f" The data: {listed['description']}"
    shown["description"] = (
        f'A ref ("art_" and 22 characters) that names a stored artifact of kind {words.told_kind(kind)}; its '
        f"data is put here before the tool runs.{described}"
    )
    return shown


async def execute_wanting(
    tool_name: str,
    wants: Mapping[str, str],
    input_schema: Mapping[str, Any],
    args: JsonObject,
    ctx: ToolContext,
    base: Execute,
) -> ToolResult:
    """Run a tool that wants artifacts, for whoever calls it: redeems what no door has redeemed before.

    Args:
        tool_name: For the sentences.
        wants: Argument name to kind.
        input_schema: The schema that the model saw.
        args: The call's arguments; data stands where `ctx.wanted` has a ticket, refs elsewhere.
        ctx: The call's context; refs are redeemed with its `artifacts`, before its `deadline`.
        base: What runs with the data.

    Raises:
        InvalidArguments: The arguments are no object. Nothing ran.
        NoArtifactStoreError: The context has no artifacts. Nothing ran.
        WantsRefusedError: An argument did not resolve. Nothing ran.
        DeadlineExceeded: The store did not answer in time. Nothing ran.
        AfpoolError: Whatever `base` raises.
    """
    args = as_object(tool_name, args, ctx.call_id)
    wanted = ctx.wanted or {}
    open_ = {arg: kind for arg, kind in wants.items() if arg not in wanted}
    if not open_:
        return await base(args, ctx)
    if ctx.artifacts is None or not getattr(ctx.artifacts, "configured", True):
        error = NoArtifactStoreError(words.needs_store(tool_name, wants))
        error.call_id = ctx.call_id
        raise error
    resolution = await resolve_in(ctx.artifacts, tool_name, open_, args, input_schema, deadline=ctx.deadline)
    if isinstance(resolution, WantsRefused):
        refused = resolution.to_error()
        refused.call_id = ctx.call_id
        raise refused
    if not resolution.resolved:
        return await base(args, ctx)
    return await base(resolution.args, attrs.evolve(ctx, wanted={**wanted, **resolution.wanted}))
