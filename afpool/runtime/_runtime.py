"""The runtime: several servers in one pool, tools of the host, and one door to call any of them.

Rules:

* A name that was offered means the tool that it was offered for. A held toolset is what counts while somebody
  holds it; a name that it does not have is looked for in a fresh one.
* What a server has listed before counts for names also while it cannot be listed: its tools' names do not go
  over to another server's in between.
* A toolset is never kept for its own sake: it lives as long as a run or the app holds it.
* Nothing is offered that was listed under one configuration and named under another: where it changes while
  servers are asked, they are asked again. What that changes for calls: `_reload`.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from .._base.errors import (
    NOT_SENT,
    AfpoolError,
    BindingChanged,
    IdentityMismatch,
    IdentityMissing,
    PoolClosed,
    UnknownTool,
)
from ..pool._asking import ask_identity, same_caller
from ..tools._asking import Asking
from ..tools._correction import unknown_tool
from ..tools._dispatch import Door
from ..tools._hiding import Hiding
from ._again import Again
from ._inner import InnerTools
from ._listing import Lister
from ._naming import Namings
from ._reload import reconfigure
from ._run import OUTDATED, Run, as_name, as_problem, new_run, resumed_run
from ._served import Served, ServedTools
from ._toolset import RuntimeToolset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .._base.identity import CallerIdentity, Identity
    from .._base.model import Progress, Tool, ToolResult
    from .._base.seams import Seams
    from .._base.secret import Secret
    from ..pool import Pool, Reconfigured
    from ..pool import Toolset as PoolToolset
    from ._config import RuntimeConfig

_ROUNDS: Final = 3


@final
class Runtime:
    """Servers, tools and runs. Made by `open_runtime`; every method belongs to its trio thread.

    Attributes:
        config: As given.
        pool: The pool of the servers.
        seams: Clock, random, ids.
        served: Its servers, by name.
        closed: It takes no further call.
    """

    def __init__(self, config: RuntimeConfig, pool: Pool, seams: Seams) -> None:
        self.config = config
        self.pool = pool
        self.seams = seams
        self._door = self.make_door(config)
        self._local: dict[str, Tool] = {tool.name: tool for tool in config.tools}
        self.served: Mapping[str, Served] = {
            server.name: self.serve(server.name, config) for server in config.servers
        }
        self._lister = Lister(pool, config.list_patience)
        self._reloads = 0
        self._held: weakref.WeakValueDictionary[Identity, RuntimeToolset] = weakref.WeakValueDictionary()
        self._namings = Namings()
        self.closed = False

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
            BindingChanged: The configuration changed again and again meanwhile.
            TypeError: The rules of a server name an argument that none of its tools declares, at its first
                listing.

        A checkpoint.
        """
        if self.closed:
            await trio.lowlevel.checkpoint()
            raise PoolClosed("the runtime is closed; nothing was sent", delivery=NOT_SENT)
        who = ask_identity(identity)
        until = self.seams.now() + self.config.deadline if deadline is None else deadline
        lists, problems, served = await self._listed(identity, who, until, refresh=refresh)
        quarantined: dict[str, str] = {}
        unsettled: list[str] = []
        for server, listed in lists.items():
            quarantined |= listed.quarantined
            quarantined |= {f"{server}/{name}": why for name, why in served[server].left_out.items()}
            if listed.unsettled:
                unsettled.append(server)
        toolset = RuntimeToolset(
            self,
            identity,
            self._namings.names(
                {server: listed.catalogs[server] for server, listed in lists.items()},
                self.served,
                self._local,
                always=self.config.qualify == "always",
            ),
            {None: self._local, **{server: one.tools for server, one in served.items()}},
            problems,
            {server: one.withheld for server, one in served.items() if one.withheld is not None},
            quarantined,
            tuple(unsettled),
        )
        self._held[who] = toolset
        return toolset

    async def _listed(
        self, identity: CallerIdentity, who: Identity, until: float, *, refresh: bool
    ) -> tuple[dict[str, PoolToolset], dict[str, AfpoolError], dict[str, ServedTools]]:
        for _ in range(_ROUNDS):
            reloads, known = self._reloads, self.served
            lists, problems = await self._lister.ask(known, identity, who, until, refresh=refresh)
            if reloads == self._reloads:
                served = {server: await known[server].apply(listed) for server, listed in lists.items()}
                if callable(identity) and ask_identity(identity) != who:
                    raise IdentityMismatch("the caller is not who asked any more; the list is not given out")
                if reloads == self._reloads:
                    return lists, problems, served
        raise BindingChanged("the configuration changed again and again while tools were listed; list again")

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
            served = self.served[server]
        except KeyError:
            raise LookupError(f"there is no server {server!r}; there are {sorted(self.served)}") from None
        served.acknowledge(arguments)

    @trio.lowlevel.enable_ki_protection
    def reconfigure(
        self,
        config: RuntimeConfig | None = None,
        /,
        *,
        replan: Iterable[str] | None = None,
        **fields: Any,
    ) -> Reconfigured:
        """Put another configuration into force, in this instant. Synchronous, all or nothing.

        What becomes of each server: see `Pool.reconfigure`. Rules hold from the next listing on. Tools that
        were listed under other fills are refused `binding-changed`; so is a tool of the host's own that is
        another one by now, where it is called by what an older toolset offers. Calls that run keep the hooks
        that they began with.

        Args:
            config: The whole configuration; the present one when absent.
            replan: As `Pool.reconfigure`.
            fields: Fields of it, in place of the config's.

        Returns:
            What came of each server. `changed` are those whose tools of before are refused.

        Raises:
            PoolClosed: The runtime is closed.
            ValueError: Something cannot be changed while the runtime is open (`signer`, `secret`,
                `artifacts`, `on_use`, `on_authorization`, `seams`, callbacks of the pool and some of its
                limits), or as `RuntimeConfig`.
            TypeError: As `RuntimeConfig`.
        """
        return reconfigure(self, attrs.evolve(config or self.config, **fields), replan)

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
        if self.closed:
            problem = PoolClosed("the runtime is closed; nothing ran", delivery=NOT_SENT)
        with contextlib.suppress(IdentityMissing):  # the door refuses whoever cannot be asked
            identity = same_caller(identity)
        name = as_name(name)
        tool: Tool | None = None
        if problem is None:
            offered = self._offered(toolset, name, identity)
            if offered is None or offered.place_of(name)[0] is None:
                tool = self._local.get(name)
            if offered is not None and offered.own(name) is not tool:
                toolset, tool = offered, None
                problem = BindingChanged(
                    "this tool of the host's own is another one by now, or gone; nothing ran; list the tools "
                    "again"
                )
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
            name=name,
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
            hiding=Hiding(hidden) if hidden else None,
        )
        asking.tools = lambda asked: InnerTools(self, toolset, asked)
        if toolset is not None and self.config.repeat == "when-nothing-ran":
            asking.again = Again(self, toolset, asking)
        result = await self._door.dispatch(asking)
        if result.code in OUTDATED and result.error is not None and toolset is not None:
            self._forget(toolset)
        return result

    def close(self) -> None:
        """Take no further call; what runs is ended by the pool. Synchronous."""
        self.closed = True

    def make_door(self, config: RuntimeConfig) -> Door:
        """Make the door of a configuration."""
        return Door(
            seams=self.seams,
            deadline=config.deadline,
            hooks=config.hooks,
            on_event=config.on_event,
            store=config.artifacts,
            credentials=config.credentials,
            on_authorization=config.on_authorization,
            limits=config.results,
        )

    def serve(self, server: str, config: RuntimeConfig) -> Served:
        """Make what a server's tools go through."""
        return Served(server, config.rules.get(server), self.seams)

    def put(
        self, config: RuntimeConfig, door: Door, served: Mapping[str, Served], done: Reconfigured
    ) -> None:
        """Let a configuration that the pool has taken be this one's. Synchronous; raises nothing."""
        self._reloads += 1
        self.config = config
        self._door = door
        self._local = {tool.name: tool for tool in config.tools}
        self.served = served
        self._lister.patience = config.list_patience
        self._lister.forget(done.unchanged)
        self._namings.renew(done.removed)

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

    def _offered(
        self, toolset: RuntimeToolset | None, name: str, identity: CallerIdentity
    ) -> RuntimeToolset | None:
        """Find the toolset at hand, or held, that offers a name; since when names may mean something else."""
        if toolset is None and self._reloads:
            try:
                toolset = self._held.get(ask_identity(identity))
            except AfpoolError:
                return None  # the door refuses whoever cannot be asked
        return toolset if toolset is not None and name in toolset else None

    def _forget(self, toolset: RuntimeToolset) -> None:
        for who in [who for who, held in self._held.items() if held is toolset]:
            del self._held[who]


def _unknown(name: str, toolset: RuntimeToolset) -> UnknownTool:
    text = unknown_tool(name, list(toolset))
    missing = [f"{server} ({error.code})" for server, error in toolset.problems.items()]
    missing += [f"{server} ({why.partition(':')[0]})" for server, why in toolset.withheld.items()]
    if missing:
        text += f". The tools of these servers are missing now: {', '.join(missing)}"
    return UnknownTool(text)
