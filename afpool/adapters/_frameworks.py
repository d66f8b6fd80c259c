"""What makes tools for each framework; the framework itself is loaded when one of these is called."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._callers import OfferedTool

if TYPE_CHECKING:
    from .._base.identity import CallerIdentity
    from ..aio import AsyncRuntime
    from ._callers import IdentityOf


def _load(module: str, package: str, top: str) -> Any:
    try:
        return importlib.import_module(f"{__package__}.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:
            raise
        raise ModuleNotFoundError(
            f"{package} is not installed: pip install {package}", name=error.name
        ) from error


def pydantic_ai_toolset(
    runtime: AsyncRuntime,
    identity: CallerIdentity = None,
    *,
    identity_of: IdentityOf | None = None,
    timeout: float | None = None,
    id: str | None = None,  # noqa: A002 -- the framework's word
) -> Any:
    """Make a pydantic-ai toolset: `Agent(model, toolsets=[...])`.

    Each agent run is a run of its own here; what it may call is listed anew at each step, for its caller.
    Corrections reach the model as `ModelRetry`, which counts against `retries`, other failures as
    `ToolFailed`.

    Args:
        runtime: The runtime.
        identity: Who every run acts for.
        identity_of: Says it instead by the `RunContext`, such as `lambda ctx: ctx.deps.identity`.
        timeout: Seconds of each call.
        id: Of the toolset, for the framework.

    Raises:
        ModuleNotFoundError: pydantic-ai is not installed.
        TypeError: Both `identity` and `identity_of` were given.
    """
    _one_of(identity, identity_of)
    module = _load("_pydantic_ai", "pydantic-ai-slim", "pydantic_ai")
    return module.RuntimeToolset(runtime, identity, identity_of, timeout, id)


async def openai_agents_tools(
    runtime: AsyncRuntime,
    identity: CallerIdentity = None,
    *,
    identity_of: IdentityOf | None = None,
    timeout: float | None = None,
) -> list[Any]:
    """Make tools for the OpenAI Agents SDK: `Agent(name, tools=await ...)`.

    Refusals and failures reach the model as the tool's output, which is that framework's form for them.

    Args:
        runtime: The runtime.
        identity: Whose tools are offered.
        identity_of: Says by the `RunContextWrapper` who calls, such as `lambda ctx: ctx.context.identity`;
            `identity` when absent. A tool that this caller does not have is not shown to the model.
        timeout: Seconds of each call.

    Raises:
        ModuleNotFoundError: openai-agents is not installed.
        AfpoolError: The tools could not be listed.
    """
    module = _load("_openai_agents", "openai-agents", "agents")
    toolset = await runtime.toolset(identity, timeout=timeout)
    offered = (OfferedTool(runtime, toolset, tool, identity_of, timeout) for tool in toolset.values())
    return [module.function_tool(one, runtime, identity_of) for one in offered]


async def langchain_tools(
    runtime: AsyncRuntime,
    identity: CallerIdentity = None,
    *,
    identity_of: IdentityOf | None = None,
    timeout: float | None = None,
) -> list[Any]:
    """Make tools for LangChain and LangGraph: `create_agent(model, tools=await ...)`.

    Refusals and failures reach the model as a `ToolMessage` with `status="error"`. The whole result is the
    message's `artifact`. `invoke` works in threads that run no loop.

    Args:
        runtime: The runtime.
        identity: Whose tools are offered.
        identity_of: Says by the `RunnableConfig` who calls, such as
            `lambda config: config["configurable"]["identity"]`; `identity` when absent.
        timeout: Seconds of each call.

    Raises:
        ModuleNotFoundError: langchain-core is not installed.
        AfpoolError: The tools could not be listed.
    """
    module = _load("_langchain", "langchain-core", "langchain_core")
    toolset = await runtime.toolset(identity, timeout=timeout)
    offered = (OfferedTool(runtime, toolset, tool, identity_of, timeout) for tool in toolset.values())
    return [module.runtime_tool(one) for one in offered]


def _one_of(identity: CallerIdentity, identity_of: IdentityOf | None) -> None:
    if identity is not None and identity_of is not None:
        raise TypeError("who calls is said by `identity` or by `identity_of`, not by both")
