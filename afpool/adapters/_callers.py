"""Who calls, as the adapters of frameworks ask it; and what a model is told.

Rules:

* Who calls is fixed when an adapter is made, or is what a function says of the framework's own context of the
  run. That function never means nobody: what it says has to be an identity, or the call is refused.
* A tool that was shown to a model is called for another caller only if that caller has the same one.
* The framework's ids of calls are not passed on: models make them up, and two runs may have the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from .._base.errors import AfpoolError, IdentityMissing, PlanFailed, StaleTools
from .._base.identity import Identity
from ..tools._formats import plain_text, root_object
from ..tools._results import error_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.identity import CallerIdentity
    from .._base.model import ToolResult
    from ..aio import AsyncRuntime, AsyncTool, AsyncToolset

    IdentityOf = Callable[[Any], CallerIdentity]

# What a model can put right by calling otherwise.
CORRECTABLE: Final = frozenset(
    {"invalid-arguments", "unknown-tool", "wants-refused", "ERR_HOST_FILLED_ARGUMENT"}
)


def caller_of(identity_of: IdentityOf, context: Any) -> CallerIdentity:
    """Ask who calls.

    Raises:
        IdentityMissing: The function raised, or named nobody; its words are not repeated.
    """
    try:
        who: object = identity_of(context)
    except Exception as error:
        raise IdentityMissing(f"identity_of raised {type(error).__name__}; nothing was sent") from error
    if not isinstance(who, Identity) and not callable(who):
        raise IdentityMissing(f"identity_of gave {type(who).__name__}, no identity; nothing was sent")
    return who


@final
class OfferedTool:
    """One tool as it was offered to a model, and how it is called for whom.

    Args:
        runtime: The runtime.
        toolset: What it was offered in.
        tool: The tool.
        identity_of: Says who calls, by the framework's context; whom it was offered to when absent.
        timeout: Seconds of each call.
    """

    __slots__ = ("_identity_of", "_runtime", "_timeout", "_toolset", "tool")

    def __init__(
        self,
        runtime: AsyncRuntime,
        toolset: AsyncToolset,
        tool: AsyncTool,
        identity_of: IdentityOf | None,
        timeout: float | None,
    ) -> None:
        self.tool = tool
        self._runtime = runtime
        self._toolset = toolset
        self._identity_of = identity_of
        self._timeout = timeout

    @property
    def schema(self) -> dict[str, Any]:
        """Its input schema as vendors take one."""
        return root_object(self.tool)

    async def call(self, args: Any, context: Any) -> ToolResult:
        """Call it for whoever the context names; a refusal is a result."""
        name = self.tool.name
        if self._identity_of is None:
            return await self._toolset.call(name, args, timeout=self._timeout)
        try:
            who = caller_of(self._identity_of, context)
            toolset = await self._runtime.toolset(who, timeout=self._timeout)
        except Exception as error:  # noqa: BLE001 -- a call gives a result
            return _refused(error)
        if name in toolset and not self._same(toolset[name]):
            return _refused(StaleTools(f"the tool {name} is another one for this caller; nothing was sent"))
        return await toolset.call(name, args, timeout=self._timeout)

    def call_blocking(self, args: Any, context: Any) -> ToolResult:
        """Do the same in a thread that waits."""
        blocking = self._runtime.blocking
        name = self.tool.name
        try:
            who = self._toolset.identity
            if self._identity_of is not None:
                who = caller_of(self._identity_of, context)
            toolset = blocking.toolset(who, timeout=self._timeout)
        except Exception as error:  # noqa: BLE001 -- a call gives a result
            return _refused(error)
        if name in toolset and not self._same(toolset[name]):
            return _refused(StaleTools(f"the tool {name} is not what was offered any more; nothing was sent"))
        return toolset.call(name, args, timeout=self._timeout)

    def _same(self, other: Any) -> bool:
        mine = self.tool
        return bool(other.source == mine.source and other.input_schema == mine.input_schema)


def _refused(error: Exception) -> ToolResult:
    if not isinstance(error, AfpoolError):
        error = PlanFailed(f"the tools could not be listed ({type(error).__name__}); nothing was sent")
    return error_result(error, error.call_id or "")


def said(result: ToolResult) -> str:
    """Give what a model reads of a result."""
    return plain_text(result)
