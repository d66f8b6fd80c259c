"""What one server's tools become at each listing by its rules: fills, artifacts, views, ceilings.

Rules:

* A single bad tool costs itself: it is left out, with the reason, and the others are offered.
* What the host hides is never shown: a tool that an argument cannot be taken out of is left out, and a server
  none of whose tools declares a filled argument any more offers none at all until somebody has looked.
* At the first listing, an argument that is filled or wanted and that no tool declares is a mistake in the
  configuration, and is raised as one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from ..tools import redacted, with_result_ceiling, with_wants
from ..tools._derive import held_input_schema
from ..tools._listed_fills import FILL_UNDECLARED, ListedFills
from ._config import ServerRules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.definition import Catalog, Definition
    from .._base.model import Tool
    from .._base.seams import Seams
    from ..pool import Toolset

_THREAD_BYTES: Final = 64 * 1024
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@final
@attrs.frozen
class ServedTools:
    """One server's tools as one identity is offered them.

    Attributes:
        tools: By listed name; made when touched, where the server has no rules.
        left_out: Listed name to the reason why a tool is not offered.
        withheld: Why none is; `None` where they are.
    """

    tools: Mapping[str, Tool]
    left_out: Mapping[str, str]
    withheld: str | None = None


@final
class Served:
    """One server of a runtime.

    Args:
        name: The server's.
        rules: What is done to its tools.
        seams: Threads.
    """

    __slots__ = ("_checked", "_fills", "_limiter", "_name", "_rules", "_seams", "_wants_seen")

    def __init__(self, name: str, rules: ServerRules | None, seams: Seams) -> None:
        self._name = name
        self._rules = ServerRules() if rules is None else rules
        self._seams = seams
        self._fills = ListedFills(name, self._rules.fill)
        self._limiter = trio.CapacityLimiter(1)
        self._checked: weakref.WeakKeyDictionary[Catalog, Mapping[str, str]] = weakref.WeakKeyDictionary()
        self._wants_seen = not self._rules.wants

    def acknowledge(self, arguments: Iterable[str]) -> None:
        """Accept that the server's tools no longer declare filled arguments; all where none is named."""
        self._fills.acknowledge(*arguments)

    def under(self, rules: ServerRules) -> Served:
        """The same server under other rules; what is known of it where they say the same."""
        if rules == self._rules:
            return self
        other = Served(self._name, rules, self._seams)
        if rules.fill == self._rules.fill:
            other._fills = self._fills
        if rules.wants == self._rules.wants:
            other._wants_seen = self._wants_seen
        return other

    async def apply(self, listed: Toolset) -> ServedTools:
        """Make of a listing what is offered of it.

        Raises:
            TypeError: The rules name an argument that no tool declares, at the first listing; or a fill
                cannot be for a tool.

        A checkpoint only where something large is looked at.
        """
        rules = self._rules
        bad = await self._bad(listed)
        if not (rules.fill or rules.wants or rules.redact or rules.ceilings):
            return ServedTools(_Without(listed, bad) if bad else listed, bad)
        left_out = dict(bad)
        readable = [tool for name, tool in listed.items() if name not in bad]
        filled = await self._fills.apply_in_thread(readable, self._seams, self._limiter)
        if filled.undeclared:
            why = f"{FILL_UNDECLARED}: no tool declares {', '.join(map(repr, filled.undeclared))} any more"
            return ServedTools({}, left_out, why)
        left_out |= filled.withheld
        self._check_wanted(readable)
        offered = self._wanting(filled.tools, left_out)
        for name, tool in offered.items():
            ceiling = rules.ceilings.get(name, rules.ceilings.get("*"))
            if ceiling is not None:
                tool = with_result_ceiling(tool, ceiling)  # noqa: PLW2901 -- the same, with a ceiling
            offered[name] = tool if rules.redact is None else redacted(tool, rules.redact)
        return ServedTools(offered, left_out)

    def _check_wanted(self, tools: Iterable[Tool]) -> None:
        """Refuse rules that want an artifact for what no tool declares, once.

        A tool that cannot be offered has declared it all the same: that is no mistake of the rules.
        """
        if self._wants_seen:
            return
        missing = [arg for arg in self._rules.wants if not any(arg in _listed(tool) for tool in tools)]
        if missing:
            raise TypeError(
                f"no tool of the server {self._name!r} declares {', '.join(map(repr, missing))}, which "
                "is to be an artifact; check the spelling"
            )
        self._wants_seen = True

    def _wanting(self, tools: tuple[Tool, ...], left_out: dict[str, str]) -> dict[str, Tool]:
        wants = self._rules.wants
        offered: dict[str, Tool] = {}
        for tool in tools:
            own = wants
            if wants:
                listed = _listed(tool)
                own = {arg: kind for arg, kind in wants.items() if arg in listed}
            try:
                offered[tool.name] = with_wants(tool, own) if own else tool
            except TypeError as error:
                left_out[tool.name] = f"wants-refused: {error}"
        return offered

    async def _bad(self, listed: Toolset) -> Mapping[str, str]:
        """Find the tools that cannot be offered whatever the rules are; once for each list."""
        (catalog,) = listed.catalogs.values()
        known = self._checked.get(catalog)
        if known is None:
            if sum(len(one.raw) for one in catalog) > _THREAD_BYTES:
                known = await self._seams.in_thread(lambda: _faults(catalog), self._limiter)
            else:
                known = _faults(catalog)
            self._checked[catalog] = known
        return known


def _listed(tool: Tool) -> Mapping[str, object]:
    properties = held_input_schema(tool).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _faults(catalog: Catalog) -> Mapping[str, str]:
    faults = {one.name: why for one in catalog if (why := _fault(one)) is not None}
    return faults or _NOTHING


def _fault(definition: Definition) -> str | None:
    schema = definition.document.get("inputSchema", {})
    if not isinstance(schema, dict):
        return f"bad-schema: its inputSchema is no object but {type(schema).__name__}"
    return None


class _Without(Mapping[str, "Tool"]):
    """A toolset without some of its tools, which are still made when touched."""

    __slots__ = ("_bad", "_tools")

    def __init__(self, tools: Mapping[str, Tool], bad: Mapping[str, str]) -> None:
        self._tools = tools
        self._bad = bad

    def __getitem__(self, name: str) -> Tool:
        if name in self._bad:
            raise KeyError(name)
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._tools if name not in self._bad)

    def __contains__(self, name: object) -> bool:
        return name not in self._bad and name in self._tools

    def __len__(self) -> int:
        return len(self._tools) - len(self._bad)
