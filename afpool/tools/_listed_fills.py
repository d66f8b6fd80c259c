"""Fills at every listing of one server: what its tools have to declare, and what is withheld otherwise.

A server may rename a secret argument from one list to the next. Then the fill finds nothing to hide, and the
model would be shown the new name and asked for a value. So:

* At the first listing, an argument that no tool declares is a mistake in the configuration: `TypeError`.
* Later, where no tool declares it any more, none of the server's tools is offered (`fill-undeclared`),
  until the host has looked and says so (`acknowledge`).
* Where a tool that had the argument lists without it, and others still have it, that tool alone is withheld.
* A tool that an argument cannot be taken out of is withheld, for good, and the others are offered.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from .._base.steps import at_leisure, at_once
from ._cuts import declared_by, is_known, keep, looked
from ._derive import binding_of
from ._fills import CannotHideArgumentError
from ._host_filled import check_fills, filled_tool

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    import trio

    from .._base.model import Tool
    from .._base.seams import Seams
    from ._supplied import Fills

FILL_UNDECLARED: Final = "fill-undeclared"
"""Why tools are withheld: they do not declare an argument that the host fills."""

STEP: Final = 50
_MAX_REMEMBERED: Final = 10_000
_THREAD_BYTES: Final = 64 * 1024


@final
@attrs.frozen
class FilledListing:
    """What one listing comes to.

    Attributes:
        tools: Those to offer, filled, in the listed order.
        withheld: Name of a tool that is not offered to why: a reason of one word, a colon, and details.
        undeclared: Filled arguments that no tool declares, and nobody has acknowledged: nothing is offered.
    """

    tools: tuple[Tool, ...]
    withheld: Mapping[str, str]
    undeclared: tuple[str, ...]


@final
class ListedFills:
    """The fills of one server, applied to each of its listings.

    Args:
        server: The server's name, for what is said.
        fills: Argument name to `from_credential(...)` or `from_identity(...)`.

    Raises:
        TypeError: A fill is none.

    Belongs to one loop. It remembers which arguments each tool had, for ten thousand tools.
    """

    __slots__ = ("_acknowledged", "_fills", "_had", "_listed", "_server")

    def __init__(self, server: str, fills: Fills) -> None:
        check_fills(fills)
        self._server = server
        self._fills: Fills = MappingProxyType(dict(fills))
        self._acknowledged: set[str] = set()
        self._had: dict[str, frozenset[str]] = {}
        self._listed = False

    @property
    def fills(self) -> Fills:
        """What is filled."""
        return self._fills

    def acknowledge(self, *arguments: str) -> None:
        """Accept that tools no longer declare these arguments; all of them where none is named.

        It holds until a listing has an argument again. The next listing offers the tools.

        Raises:
            ValueError: An argument is not among the fills.
        """
        unknown = [name for name in arguments if name not in self._fills]
        if unknown:
            raise ValueError(f"the host does not fill {_named(unknown)} of the server {self._server!r}")
        gone = frozenset(arguments or self._fills)
        self._acknowledged |= gone
        self._had = {tool: had - gone for tool, had in self._had.items()}

    def apply(self, tools: Iterable[Tool]) -> FilledListing:
        """Fill the tools of a listing.

        Args:
            tools: As listed.

        Raises:
            TypeError: It is the first listing, and no tool declares an argument; or one of its tools cannot
                take its fill, as `host_filled` says.
        """
        return at_once(self._steps(tuple(tools)))

    async def apply_in_thread(
        self, tools: Iterable[Tool], seams: Seams, limiter: trio.CapacityLimiter
    ) -> FilledListing:
        """Do what `apply` does without holding the loop: large schemas are cut in a thread, the first time.

        A checkpoint for each of those and after every `STEP` tools; none otherwise.
        """
        several = tuple(tools)
        large = [tool for tool in several if _size(tool) > _THREAD_BYTES and not is_known(tool)]
        if large and self._fills:
            fields = tuple(self._fills)
            seen = await seams.in_thread(lambda: [looked(tool, fields) for tool in large], limiter)
            for tool, one in zip(large, seen, strict=True):
                keep(tool, one)
        return await at_leisure(self._steps(several))

    def _steps(self, tools: tuple[Tool, ...]) -> Generator[None, None, FilledListing]:
        """Fill the tools of a listing; each `yield` is a place to let others go first."""
        if not self._fills:
            return FilledListing(tools, MappingProxyType({}), ())
        declared: list[frozenset[str]] = []
        for count, tool in enumerate(tools):
            if count % STEP == STEP - 1:
                yield
            declared.append(declared_by(tool))
        anywhere = frozenset().union(*declared)
        missing = [name for name in self._fills if name not in anywhere and name not in self._acknowledged]
        if missing and not self._listed:
            raise TypeError(
                f"no tool of the server {self._server!r} declares {_named(missing)}, which the host is to "
                "fill; a fill for it would hide nothing; check the spelling"
            )
        if missing:
            why = f"{FILL_UNDECLARED}: no tool of the server declares {_named(missing)} any more"
            return FilledListing((), MappingProxyType({tool.name: why for tool in tools}), tuple(missing))
        offered: list[Tool] = []
        withheld: dict[str, str] = {}
        for count, (tool, names) in enumerate(zip(tools, declared, strict=True)):
            if count % STEP == STEP - 1:
                yield
            filled = self._filled(tool, names)
            if isinstance(filled, str):
                withheld[tool.name] = filled
            else:
                offered.append(filled)
        self._listed = True
        self._acknowledged -= anywhere
        return FilledListing(tuple(offered), MappingProxyType(withheld), ())

    def _filled(self, tool: Tool, names: frozenset[str]) -> Tool | str:
        """Fill one tool, or say why it is withheld."""
        name = tool.name
        own = {argument: fill for argument, fill in self._fills.items() if argument in names}
        lost = [argument for argument in self._had.get(name, ()) if argument not in own]
        if lost:
            return f"{FILL_UNDECLARED}: it does not declare {_named(sorted(lost))} any more"
        if own and (name in self._had or len(self._had) < _MAX_REMEMBERED):
            self._had[name] = frozenset(own)
        try:
            return filled_tool(tool, own)
        except CannotHideArgumentError as error:
            return f"{error.code}: {error.reason}"
        except TypeError as error:
            if not self._listed:
                raise
            return f"fill-refused: {error}"


def _size(tool: Tool) -> int:
    binding = binding_of(tool)
    return 0 if binding is None else len(binding.definition.raw)


def _named(names: Iterable[Any]) -> str:
    return " and ".join(map(repr, names))
