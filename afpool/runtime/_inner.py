"""What a tool calls other tools with: the same door, for the same caller, within the same deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from .._base.model import ToolResult
    from ..tools._asking import Asking
    from ._runtime import Runtime
    from ._toolset import RuntimeToolset


@final
class InnerTools:
    """`ToolContext.tools`: calls other tools on behalf of the call that a tool runs for.

    An inner call is a call like any other: checked, recorded, refused with a result. It belongs to the same
    run and caller, has the outer call's deadline, and its id is the outer one's with a number. It carries the
    chain of the calls around it, so that it never waits for a place that one of them holds. The credentials
    that were fetched for those are in no record of it, in no refusal and in no result, wherever they stand.
    """

    __slots__ = ("_count", "_outer", "_runtime", "_toolset")

    def __init__(self, runtime: Runtime, toolset: RuntimeToolset | None, outer: Asking) -> None:
        self._runtime = runtime
        self._toolset = toolset
        self._outer = outer
        self._count = 0

    def has(self, name: str) -> bool:
        """Say whether there is a tool of that name at hand: of the host's own, or in the toolset in use."""
        if self._runtime.local(name) is not None:
            return True
        return self._toolset is not None and name in self._toolset

    async def call(self, name: str, args: Any = None) -> ToolResult:
        """Call a tool; see `Runtime.dispatch`. Raises nothing but cancellation. At least one checkpoint."""
        self._count += 1
        outer = self._outer
        return await self._runtime.through(
            self._toolset,
            name,
            args,
            identity=outer.identity,
            scope=outer.scope,
            run_id=outer.run_id,
            call_id=f"{outer.call_id}:inner:{self._count}",
            deadline=outer.deadline,
            chain=outer.chain,
            depth=outer.depth + 1,
            parent=outer.call_id,
            hidden=() if outer.hiding is None else outer.hiding.secrets,
        )
