"""The tools of one identity: those of the host and of every server, each under one name; and their calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

from .._base.model import Tool, ToolResult
from ..tools import derive

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.errors import AfpoolError
    from .._base.identity import CallerIdentity
    from .._base.model import Progress
    from .._base.names import Place, ToolNames
    from ._runtime import Runtime


@final
class RuntimeToolset(Mapping[str, Tool]):
    """What one identity may call, as it was listed: a mapping from shown name to tool.

    Tools are made when touched. It stays what it is; a call whose ground has changed is refused
    (`stale-tools`, `binding-changed`), and another toolset has to be asked for.

    Attributes:
        identity: Whose, as its caller gave it.
        renamed: Shown name to server and listed name, of the tools that are not called as they are listed.
        problems: Server to why it could not be listed; its tools are missing.
        withheld: Server to why none of its tools is offered.
        quarantined: `server/tool` to why a single tool is not offered.
        unsettled: Servers whose list kept changing while it was asked for.
    """

    __slots__ = (
        "__weakref__", "_made", "_places", "_runtime", "_sources", "identity", "problems", "quarantined",
        "renamed", "unsettled", "withheld",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        identity: CallerIdentity,
        names: ToolNames,
        sources: Mapping[str | None, Mapping[str, Tool]],
        problems: Mapping[str, AfpoolError],
        withheld: Mapping[str, str],
        quarantined: Mapping[str, str],
        unsettled: tuple[str, ...],
    ) -> None:
        self._runtime = runtime
        self._sources = sources
        self._made: dict[str, Tool] = {}
        self._places: dict[str, Place] = {
            shown: (server, name)
            for shown, (server, name) in names.places.items()
            if server in sources and name in sources[server]
        }
        self.identity = identity
        self.renamed = {shown: place for shown, place in names.renamed.items() if shown in self._places}
        self.problems = problems
        self.withheld = withheld
        self.quarantined = quarantined
        self.unsettled = unsettled

    def __getitem__(self, name: str) -> Tool:
        tool = self._made.get(name)
        if tool is None:
            server, listed = self._places[name]
            tool = self._sources[server][listed]
            if tool.name != name:
                tool = derive(tool, name=name)
            self._made[name] = tool
        return tool

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def place_of(self, name: str) -> Place:
        """Give server (`None` for the host itself) and listed name of a tool.

        Raises:
            KeyError: There is none of that name.
        """
        return self._places[name]

    def own(self, name: str) -> Tool | None:
        """Give the host's own tool that is offered under a name; `None` where it is a server's, or none."""
        server, listed = self._places.get(name, (name, name))
        return self._sources[None].get(listed) if server is None else None

    def at(self, place: Place) -> Tool | None:
        """Give the tool of a server and a listed name, however it is called here."""
        return next((self[shown] for shown, one in self._places.items() if one == place), None)

    async def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        chain: tuple[int, ...] = (),
    ) -> ToolResult:
        """Call a tool by its shown name, through the door; see `Runtime.dispatch`."""
        return await self._runtime.through(
            self,
            name,
            args,
            identity=self.identity,
            call_id=call_id,
            deadline=deadline,
            on_progress=on_progress,
            chain=chain,
        )

    def __repr__(self) -> str:
        return f"<RuntimeToolset of {len(self)} tools>"
