"""The second call of a runtime that repeats what proves not to have run: with which tool it is made.

* The same tool of the same server, defined as it was. What its schema was read for, and its arguments judged
  by, is what runs.
* Under the same authorization and the same configuration: what was revoked, or is filled otherwise, while
  tools were listed anew is for whoever called to look at, as where it was the reason of the refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from .._base.errors import AfpoolError
from ..tools import binding_of

if TYPE_CHECKING:
    from .._base.model import Tool
    from ..pool import Binding
    from ..tools._asking import Asking
    from ._runtime import Runtime
    from ._toolset import RuntimeToolset


@final
class Again:
    """Finds the tool of a call freshly listed: the same tool of the same server, defined as it was."""

    __slots__ = ("_asking", "_runtime", "_toolset")

    def __init__(self, runtime: Runtime, toolset: RuntimeToolset, asking: Asking) -> None:
        self._runtime = runtime
        self._toolset = toolset
        self._asking = asking

    async def __call__(self, tool: Tool) -> Tool | None:
        before = binding_of(tool)
        if before is None:
            return None
        try:
            fresh = await self._runtime.toolset(self._asking.identity, deadline=self._asking.deadline)
        except AfpoolError:
            return None
        again = fresh.at(self._toolset.place_of(self._asking.name))
        binding = None if again is None else binding_of(again)
        if binding is None or binding.definition.digest != before.definition.digest:
            return None
        return again if _ground(binding) == _ground(before) else None


def _ground(binding: Binding) -> tuple[object, ...]:
    return (binding.actor, binding.epoch, binding.keyed_on, binding.context, binding.authorization)
