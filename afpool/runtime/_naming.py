"""How a runtime's tools are called: by what is listed now, and by what missing servers have listed before."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, final

from .._base.names import ToolNames, name_tools

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .._base.definition import Catalog

_NAMINGS_KEPT: Final = 64
_NAMES_KEPT: Final = 10_000


@final
class Namings:
    """Names for the lists of a runtime; the newest namings are kept."""

    __slots__ = ("_kept", "_known")

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}
        self._kept: OrderedDict[tuple[Any, ...], ToolNames] = OrderedDict()

    def renew(self, removed: Iterable[str]) -> None:
        """Name everything anew: the configuration is another one, and these servers are gone."""
        self._kept.clear()
        for server in removed:
            self._known.pop(server, None)

    def names(
        self, listed: dict[str, Catalog], servers: Collection[str], own: Iterable[str], *, always: bool
    ) -> ToolNames:
        """Name what was listed; a server that is missing now counts by what it listed before.

        Args:
            listed: Server to the list that its tools are of, in this order.
            servers: All there are.
            own: Names of the host's own tools.
            always: Whether a server's tools are qualified in any case.
        """
        for server, catalog in listed.items():
            self._remember(server, catalog.names)
        missing = [server for server in servers if server not in listed]
        key = (*listed.items(), *((server, self._known.get(server, ())) for server in missing))
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        places: list[tuple[str | None, tuple[str, ...]]] = [(None, tuple(own))]
        places += [(server, catalog.names) for server, catalog in listed.items()]
        places += [(server, self._known.get(server, ())) for server in missing]
        names = name_tools(places, servers=servers, always=always)
        self._kept[key] = names
        if len(self._kept) > _NAMINGS_KEPT:
            self._kept.popitem(last=False)
        return names

    def _remember(self, server: str, names: tuple[str, ...]) -> None:
        known = self._known.get(server, ())
        if known == names or len(known) >= _NAMES_KEPT:
            return
        there = frozenset(known)
        new = [name for name in names if name not in there]
        if new:
            self._known[server] = (*known, *new)[:_NAMES_KEPT]
