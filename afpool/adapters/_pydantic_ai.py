"""A toolset for pydantic-ai: one run of the runtime for each run of an agent."""

# The framework is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import ModelRetry, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from ..tools._formats import root_object
from ._callers import CORRECTABLE, caller_of, said

if TYPE_CHECKING:
    from .._base.identity import CallerIdentity
    from ..aio import AsyncRun, AsyncRuntime
    from ._callers import IdentityOf

# arguments are judged at the runtime's door, which knows what the model was shown
_ANYTHING: Final = SchemaValidator(core_schema.any_schema())
_RETRIES: Final = 1


class RuntimeToolset(AbstractToolset[Any]):
    """The tools of a runtime; see `pydantic_ai_toolset`."""

    def __init__(
        self,
        runtime: AsyncRuntime,
        identity: CallerIdentity,
        identity_of: IdentityOf | None,
        timeout: float | None,
        name: str | None,
        run: AsyncRun | None = None,
    ) -> None:
        self._runtime = runtime
        self._identity = identity
        self._identity_of = identity_of
        self._timeout = timeout
        self._name = name
        self._run = run

    @property
    def id(self) -> str | None:
        """As it was given."""
        return self._name

    async def for_run(self, ctx: RunContext[Any]) -> RuntimeToolset:
        """Begin a run for whoever the context names."""
        who = self._identity if self._identity_of is None else caller_of(self._identity_of, ctx)
        run = self._runtime.run(who)
        return RuntimeToolset(self._runtime, who, None, self._timeout, self._name, run)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """List what the run may call now."""
        toolset = await (await self._running(ctx)).toolset(timeout=self._timeout)
        retries = _RETRIES if ctx.max_retries is None else max(_RETRIES, ctx.max_retries)
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name, description=tool.description, parameters_json_schema=root_object(tool)
                ),
                max_retries=retries,
                args_validator=_ANYTHING,
            )
            for name, tool in toolset.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[str]:
        """Call a tool in the run.

        Raises:
            ModelRetry: It was refused for what the model can put right.
            ToolFailed: It was refused otherwise, or failed.
        """
        del tool
        result = await (await self._running(ctx)).call(name, tool_args, timeout=self._timeout)
        text = said(result)
        if result.code in CORRECTABLE:
            raise ModelRetry(text)
        if result.is_error:
            raise ToolFailed(text)
        return ToolReturn(text, metadata=result)

    async def _running(self, ctx: RunContext[Any]) -> AsyncRun:
        """Give the run; outside an agent's run each use is one, so that no caller's is another's."""
        if self._run is not None:
            return self._run
        who = self._identity if self._identity_of is None else caller_of(self._identity_of, ctx)
        return self._runtime.run(who)
