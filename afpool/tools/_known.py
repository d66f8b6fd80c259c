"""What a door asks of a tool at every call, found out once.

A tool of ours never changes, so the answers are kept as long as it lives. One of another class may answer
otherwise from time to time and is asked every time; only its schemas are compiled once.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final, final

from ..pool import BoundTool
from ._derive import HoldsSchemas, base_of, binding_of
from ._limits import ceiling_of
from ._supplied import is_filled
from ._validation import Validators

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.compiled import Compiled
    from .._base.credential import CredentialRequirement
    from .._base.model import Tool
    from .._base.seams import Seams
    from ._limits import ResultCeiling

_OURS: Final = (HoldsSchemas, BoundTool)


@final
class KnownTool:
    """What is known of one tool. It holds nothing that could keep the tool alive.

    Attributes:
        arguments: Its input schema, compiled.
        results: Its output schema, compiled; `None` where it was listed without one.
        bound: Whether it is a server's, so that a pool keeps its deadline and knows its verdict.
        wants: Argument name to artifact kind.
        needs: The credential that it needs.
        filled: Whether the host fills an argument of it.
        prepared: Whether anything is fetched before it runs: what it wants, or needs.
        ceiling: How long its results may be.
    """

    __slots__ = ("arguments", "bound", "ceiling", "filled", "needs", "prepared", "results", "wants")

    def __init__(self, tool: Tool, arguments: Compiled, results: Compiled | None) -> None:
        self.arguments = arguments
        self.results = results
        self.bound = binding_of(tool) is not None
        self.wants: Mapping[str, str] | None = tool.wants
        self.needs: CredentialRequirement | None = tool.needs
        self.filled = is_filled(tool)
        self.prepared = self.wants is not None or self.needs is not None
        self.ceiling: ResultCeiling | None = ceiling_of(tool)


@final
class KnownTools:
    """The tools that have been called through one door."""

    __slots__ = ("_known", "_seams", "_validators")

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._validators = Validators()
        self._known: weakref.WeakKeyDictionary[Tool, KnownTool] = weakref.WeakKeyDictionary()

    def get(self, tool: Tool) -> KnownTool | None:
        """Give what is known of a tool; `None` the first time, and of one that may change."""
        return self._known.get(tool) if isinstance(tool, _OURS) else None

    async def ask(self, tool: Tool) -> KnownTool:
        """Find out what is to be known of a tool.

        A checkpoint only where a large schema is compiled, the first time.
        """
        arguments = await self._validators.ready(tool, self._seams)
        known = KnownTool(tool, arguments, self._validators.of_output(tool))
        if isinstance(base_of(tool), _OURS):
            self._known[tool] = known
        return known
