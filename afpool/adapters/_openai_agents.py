"""Tools for the OpenAI Agents SDK."""

# The framework is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import FunctionTool

from ..tools._formats import parsed
from ._callers import caller_of, said

if TYPE_CHECKING:
    from ..aio import AsyncRuntime
    from ._callers import IdentityOf, OfferedTool


def function_tool(
    offered: OfferedTool, runtime: AsyncRuntime, identity_of: IdentityOf | None
) -> FunctionTool:
    """Make one tool."""
    name = offered.tool.name

    async def invoke(context: Any, arguments: str) -> str:
        return said(await offered.call(parsed(arguments), context))

    async def enabled(context: Any, _agent: Any) -> bool:
        assert identity_of is not None
        return name in await runtime.toolset(caller_of(identity_of, context))

    return FunctionTool(
        name=name,
        description=offered.tool.description,
        params_json_schema=offered.schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,  # it is the server's schema, and is checked at the door
        is_enabled=True if identity_of is None else enabled,
    )
