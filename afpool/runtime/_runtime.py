"""The runtime: several servers in one pool, tools of the host, and one door to call any of them.

Rules:

* A name that was offered means the tool that it was offered for. A held toolset is what counts while somebody
  holds it; a name that it does not have is looked for in a fresh one.
* What a server has listed before counts for names also while it cannot be listed: its tools' names do not go
  over to another server's in between.
* A toolset is never kept for its own sake: it lives as long as a run or the app holds it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.errors import NOT_SENT, AfpoolError, PoolClosed, UnknownTool
from .._base.names import ToolNames, name_tools
from ..pool._asking import ask_identity
from ..tools import binding_of
from ..tools._dispatch import Asking, Door, unknown_tool
from ._inner import InnerTools
from ._listing import Lister
from ._run import OUTDATED, Run, as_problem, new_run, resumed_run
from ._served import Served, ServedTools
from ._toolset import RuntimeToolset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._base.identity import CallerIdentity, Identity
    from .._base.model import Progress, Tool, ToolResult
    from .._base.seams import Seams
    from .._base.secret import Secret
    from ..pool import Pool
    from ._config import RuntimeConfig

_NAMINGS_KEPT: Final = 64
_NAMES_KEPT: Final = 10_000


@final
class Runtime:
    """Servers, tools and runs. Made by `open_runtime`; every method belongs to its trio thread.

    Attributes:
        config: As given.
        pool: The pool of the servers; `None` where there are none.
        seams: Clock, random, ids.
    """

    def __init__(self, config: RuntimeConfig, pool: Pool | None, seams: Seams) -> None:
        self.config = config
        self.pool = pool
        self.seams = seams
        self._door = Door(
            seams=seams,
            deadline=config.deadline,
            hooks=config.hooks,
            on_event=config.on_event,
            store=config.artifacts,
            credentials=config.credentials,
            on_authorization=config.on_authorization,
            limits=config.results,
        )
        self._local: dict[str, Tool] = {tool.name: tool for tool in config.tools}
        self._served = {
            server.name: Served(server.name, config.rules.get(server.name), seams)
            for server in config.servers
        }
        self._lister = None if pool is None else Lister(pool, config.list_patience)
        self._held: weakref.WeakValueDictionary[Identity, RuntimeToolset] = weakref.WeakValueDictionary()
        self._known: dict[str, tuple[str, ...]] = {}
        self._namings: OrderedDict[tuple[Any, ...], ToolNames] = OrderedDict()
        self._closed = False

    # ------------------------------------------------------------------ the public face

    async def toolset(
        self, identity: CallerIdentity = None, *, deadline: float | None = None, refresh: bool = False
    ) -> RuntimeToolset:
        """List everything that an identity may call: the host's tools and those of all servers, at once.

        Args:
            identity: Who it is for: an `Identity`, or a callable that returns one; `None` for nobody, who is
                offered the host's own tools and what servers for everybody list.
            deadline: Absolute, seconds on trio's clock; the runtime's default from now when absent.
            refresh: Ask the servers again, whatever is known.

        A server that cannot be listed, or keeps silent for `list_patience` seconds while others have
        answered, costs its own tools only and stands in `problems`.

        Raises:
            IdentityMissing: The caller could not be asked who it is.
            IdentityMismatch: The caller became somebody else meanwhile.
            PoolClosed: The runtime is closed.
            TypeError: The rules of a server name an argument that none of its tools declares, at its first
                listing.

        A checkpoint.
        """
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise PoolClosed("the runtime is closed; nothing was sent", delivery=NOT_SENT)
        who = ask_identity(identity)
        until = self.seams.now() + self.config.deadline if deadline is None else deadline
        problems: Mapping[str, AfpoolError] = {}
        served: dict[str, ServedTools] = {}
        naming: list[Any] = []
        quarantined: dict[str, str] = {}
        unsettled: list[str] = []
        if self._lister is None:
            await trio.lowlevel.checkpoint()
        else:
            lists, problems = await self._lister.ask(self._served, identity, who, until, refresh=refresh)
            for server, listed in lists.items():
                served[server] = await self._served[server].apply(listed)
                naming += (server, listed.catalogs[server])
                self._remember(server, listed.catalogs[server].names)
                quarantined |= listed.quarantined
                quarantined |= {f"{server}/{name}": why for name, why in served[server].left_out.items()}
                if listed.unsettled:
                    unsettled.append(server)
        toolset = RuntimeToolset(
            self,
            identity,
            self._names(tuple(naming), served),
            {None: self._local, **{server: one.tools for server, one in served.items()}},
            problems,
            {server: one.withheld for server, one in served.items() if one.withheld is not None},
            quarantined,
            tuple(unsettled),
        )
        self._held[who] = toolset
        return toolset

    async def dispatch(
        self,
        identity: CallerIdentity,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        chain: tuple[int, ...] = (),
    ) -> ToolResult:
        """Call a tool by name.

        Args:
            identity: Who calls: an `Identity`, a callable that returns one and is asked again, or `None`.
            name: As a toolset shows it.
            args: What the model sent.
            call_id: Stable over everything that belongs to the call; made up when absent.
            deadline: Absolute, seconds on trio's clock, over everything; the runtime's default when absent.
            on_progress: Told of progress, in this task.
            chain: Tickets of the calls that this one is made from inside of, as `Operation.chain` gives them.

        Returns:
            The tool's answer, or a refusal or failure as a result, with `code`, `delivery` and `error`.

        Raises nothing but cancellation. At least one checkpoint.
        """
        return await self.through(
            None,
            name,
            args,
            identity=identity,
            call_id=call_id,
            deadline=deadline,
            on_progress=on_progress,
            chain=chain,
        )

    def run(self, identity: CallerIdentity = None, run_id: str | None = None) -> Run:
        """Begin a run: one conversation's turn, or a job, whose calls belong together. Synchronous.

        Args:
            identity: Who it acts for, as its caller named them; `None` where nobody was named.
            run_id: Made up when absent, not to be guessed.

        Raises:
            ValueError: The id is no string, or empty.
        """
        return new_run(self, identity, run_id)

    def resume(self, checkpoint: Mapping[str, Any] | str | bytes, identity: CallerIdentity = None) -> Run:
        """Go on with a paused run. Synchronous.

        Args:
            checkpoint: What `Run.checkpoint` gave, as an object or as JSON text.
            identity: Who it acts for now; the paused run's caller where `None`.

        Raises:
            ValueError: It is no checkpoint, or none of this runtime's.
        """
        return resumed_run(self, checkpoint, identity)

    def acknowledge(self, server: str, *arguments: str) -> None:
        """Accept that a server's tools no longer declare arguments that the host fills. Synchronous.

        Until then its tools are withheld (`fill-undeclared`): what is not hidden any more might be shown
        under another name.

        Args:
            server: The server's name.
            arguments: Which; all of them where none is named.

        Raises:
            LookupError: There is no such server.
            ValueError: An argument is not filled.
        """
        try:
            served = self._served[server]
        except KeyError:
            raise LookupError(f"there is no server {server!r}; there are {sorted(self._served)}") from None
        served.acknowledge(arguments)

    # ------------------------------------------------------------------ for the package

    async def through(
        self,
        toolset: RuntimeToolset | None,
        name: str,
        args: Any,
        *,
        identity: CallerIdentity,
        scope: Identity | None = None,
        run_id: str | None = None,
        call_id: str | None = None,
        deadline: float | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        chain: tuple[int, ...] = (),
        depth: int = 0,
        problem: AfpoolError | None = None,
        hidden: tuple[Secret, ...] = (),
    ) -> ToolResult:
        """Call a tool of a toolset, or of whatever there is for the identity; or refuse for `problem`."""
        if self._closed:
            problem = PoolClosed("the runtime is closed; nothing ran", delivery=NOT_SENT)
        tool = self._local.get(name) if problem is None and isinstance(name, str) else None
        if tool is None and problem is None:
            try:
                toolset = await self._offering(toolset, name, identity, deadline)
            except Exception as error:  # noqa: BLE001 -- a call gives a result, whatever the listing ran into
                problem = as_problem(error)
            else:
                tool = toolset.get(name)
                if tool is None:
                    problem = _unknown(name, toolset)
        asking = Asking(
            name=str(name),
            tool=tool,
            args=args,
            identity=identity,
            scope=scope,
            run_id=run_id,
            call_id=call_id,
            deadline=deadline,
            on_progress=on_progress,
            chain=chain,
            depth=depth,
            problem=problem,
            hidden=hidden,
        )
        asking.tools = lambda asked: InnerTools(self, toolset, asked)
        if toolset is not None and self.config.repeat == "when-nothing-ran":
            asking.again = _Again(self, toolset, asking)
        result = await self._door.dispatch(asking)
        if result.code in OUTDATED and result.error is not None and toolset is not None:
            self._forget(toolset)
        return result

    def close(self) -> None:
        """Take no further call; what runs is ended by the pool. Synchronous."""
        self._closed = True

    def local(self, name: str) -> Tool | None:
        """Give a tool of the host's own."""
        return self._local.get(name)

    async def _offering(
        self, toolset: RuntimeToolset | None, name: str, identity: CallerIdentity, deadline: float | None
    ) -> RuntimeToolset:
        """Find the toolset that a name means something in: the one at hand, the one held, a fresh one."""
        if toolset is not None:
            return toolset
        held = self._held.get(ask_identity(identity))
        if held is not None and name in held:
            return held
        return await self.toolset(identity, deadline=deadline)

    def _forget(self, toolset: RuntimeToolset) -> None:
        for who in [who for who, held in self._held.items() if held is toolset]:
            del self._held[who]

    def _remember(self, server: str, names: tuple[str, ...]) -> None:
        known = self._known.get(server, ())
        new = [name for name in names if name not in known] if known != names else []
        if new:
            self._known[server] = (*known, *new)[:_NAMES_KEPT]

    def _names(self, naming: tuple[Any, ...], served: Mapping[str, ServedTools]) -> ToolNames:
        """Name what was listed; what is missing now counts by what was listed before."""
        missing = [server for server in self._served if server not in served]
        key = (*naming, *((server, self._known.get(server, ())) for server in missing))
        known = self._namings.get(key)
        if known is not None:
            self._namings.move_to_end(key)
            return known
        listed: list[tuple[str | None, tuple[str, ...]]] = [(None, tuple(self._local))]
        listed += [(naming[at], naming[at + 1].names) for at in range(0, len(naming), 2)]
        listed += [(server, self._known.get(server, ())) for server in missing]
        names = name_tools(listed, servers=self._served, always=self.config.qualify == "always")
        self._namings[key] = names
        if len(self._namings) > _NAMINGS_KEPT:
            self._namings.popitem(last=False)
        return names


class _Again:
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
        return again


def _unknown(name: str, toolset: RuntimeToolset) -> UnknownTool:
    text = unknown_tool(str(name), list(toolset))
    missing = [f"{server} ({error.code})" for server, error in toolset.problems.items()]
    missing += [f"{server} ({why.partition(':')[0]})" for server, why in toolset.withheld.items()]
    if missing:
        text += f". The tools of these servers are missing now: {', '.join(missing)}"
    return UnknownTool(text)
