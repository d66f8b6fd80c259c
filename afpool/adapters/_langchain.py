"""Tools for LangChain and LangGraph."""

# The framework is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig  # noqa: TC002 -- LangChain reads the annotations
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from .._base.model import ToolResult  # noqa: TC001 -- likewise
from ._callers import OfferedTool, said


class RuntimeTool(BaseTool):
    """One tool; its arguments reach it as they are, whatever they are called."""

    _offered: OfferedTool = PrivateAttr()

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        del tool_call_id
        return (tool_input,), {}  # as keywords, `config` and the like would be taken for the framework's

    def _run(self, tool_input: Any, *, config: RunnableConfig) -> tuple[str, ToolResult]:
        return _answer(self._offered.call_blocking(tool_input, config))

    async def _arun(self, tool_input: Any, *, config: RunnableConfig) -> tuple[str, ToolResult]:
        return _answer(await self._offered.call(tool_input, config))


def _answer(result: ToolResult) -> tuple[str, ToolResult]:
    if result.is_error:
        raise ToolException(said(result))
    return said(result), result


def runtime_tool(offered: OfferedTool) -> RuntimeTool:
    """Make one tool."""
    tool = RuntimeTool(
        name=offered.tool.name,
        description=offered.tool.description,
        args_schema=offered.schema,
        handle_tool_error=True,
        response_format="content_and_artifact",
    )
    tool._offered = offered  # noqa: SLF001 -- pydantic's way to keep what is no field
    return tool
