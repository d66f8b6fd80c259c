"""The runtime: several servers in one pool, tools of the host, and one door to call any of them.

What a name means, and to whom: `_offers`. What a new configuration changes for calls: `_reload`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs
import trio

from .._base.errors import NOT_SENT, AfpoolError, BindingChanged, IdentityMissing, PoolClosed
from ..pool._asking import same_caller
from ..record import Record
from ..tools._asking import Asking
from ..tools._dispatch import Door
from ..tools._hiding import Hiding
from ._again import Again
from ._inner import InnerTools
from ._offers import Offers, unknown
from ._open_runs import OpenRun, OpenRuns
from ._reload import reconfigure
from ._run import OUTDATED, Run, as_name, as_problem, new_run, resumed_run
from ._served import Served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from .._base.identity import CallerIdentity, Identity
    from .._base.model import Progress, Tool, ToolResult
    from .._base.seams import Seams
    from .._base.secret import Secret
    from .._base.use import Use
    from ..artifacts import ArtifactMeta, ArtifactStore
    from ..console import Console
    from ..pool import Pool, Reconfigured
    from ..record import LoopLag, Sinks
    from ._config import RuntimeConfig
    from ._toolset import RuntimeToolset

Find: TypeAlias = "Callable[[str, CallerIdentity, float | None], Awaitable[RuntimeToolset]]"
OnMinted: TypeAlias = "Callable[[ArtifactMeta, Identity, Use | None], object]"


@final
class Runtime:
    """Servers, tools and runs. Made by `open_runtime`; every method belongs to its trio thread.

    Attributes:
        config: As given.
        pool: The pool of the servers.
        seams: Clock, random, ids.
        sinks: What its records are handed to, and the numbers of its calls.
        record: Finds what its calls did, and explains how they ended and where artifacts come from.
        running: The uses of the calls under way, through whichever door, oldest first.
        on_minted: Told of each artifact that a call or a run puts: its ticket without secrets, whose it is,
            and the use of the call, if it is one's. Synchronous.
        open_runs: The runs that somebody holds.
        lag: How late the event loop is, where somebody has it measured (`measured`).
        console: Its console, where it has one.
        closed: It takes no further call.
    """

    def __init__(self, config: RuntimeConfig, pool: Pool, seams: Seams, sinks: Sinks) -> None:
        self.config = config
        self.pool = pool
        self.seams = seams
        self.sinks = sinks
        self.running: dict[int, Use] = {}
        self.on_minted: OnMinted | None = None
        self.record = Record(pool, artifacts=self._store, running=self.running)
        self._door = self.make_door(config)
        served = {server.name: self.serve(server.name, config) for server in config.servers}
        self._offers = Offers(self, config, served)
        self.open_runs = OpenRuns()
        self.lag: LoopLag | None = None
        self.console: Console | None = None
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
        return await self._offers.toolset(identity, deadline=deadline, refresh=refresh)

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

    def runs(self) -> list[OpenRun]:
        """Give the runs that are open: those that somebody holds, or that a call is under way of.

        The oldest first. Synchronous.
        """
        return self.open_runs.listed(self.running)

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
        parent: str | None = None,
        find: Find | None = None,
    ) -> ToolResult:
        """Call a tool of a toolset, or of whatever there is for the identity; or refuse for `problem`.

        With `find`, what a name means is what it finds, whatever else there is.
        """
        if self.closed:
            problem = PoolClosed("the runtime is closed; nothing ran", delivery=NOT_SENT)
        with contextlib.suppress(IdentityMissing):  # the door refuses whoever cannot be asked
            identity = same_caller(identity)
        name = as_name(name)
        asking = Asking(
            name=name,
            tool=None,
            args=args,
            identity=identity,
            scope=scope,
            run_id=run_id,
            call_id=call_id,
            deadline=deadline,
            on_progress=on_progress,
            chain=chain,
            depth=depth,
            parent=parent,
            problem=problem,
            hiding=Hiding(hidden) if hidden else None,
        )
        offers = self._offers
        if problem is None and find is None:
            offered = offers.offered(toolset, name, identity)
            if offered is None or offered.place_of(name)[0] is None:
                asking.tool = offers.local.get(name)
            if offered is not None and offered.own(name) is not asking.tool:
                toolset, asking.tool = offered, None
                asking.problem = BindingChanged(
                    "this tool of the host's own is another one by now, or gone; nothing ran; list the tools "
                    "again"
                )
        if asking.tool is None and asking.problem is None:
            toolset = await self._found(asking, toolset, find or offers.offering)
        asking.tools = lambda asked: InnerTools(self, toolset, asked)
        if toolset is not None and self.config.repeat == "when-nothing-ran":
            asking.again = Again(self, toolset, asking)
        result = await self._door.dispatch(asking)
        if result.code in OUTDATED and result.error is not None and toolset is not None:
            offers.forget(toolset)
        return result

    async def _found(
        self, asking: Asking, toolset: RuntimeToolset | None, find: Find
    ) -> RuntimeToolset | None:
        """Find the tool that a name means: in the toolset at hand, or in one that is asked for.

        The call has begun by then: its time counts, and it is among those that run.
        """
        if toolset is None:
            try:
                with self._door.finding(asking):
                    toolset = await find(asking.name, asking.identity, asking.deadline)
            except Exception as error:  # noqa: BLE001 -- a call gives a result, whatever the listing ran into
                asking.problem = as_problem(error)
                return None
        asking.tool = toolset.get(asking.name)
        if asking.tool is None:
            asking.problem = unknown(asking.name, toolset)
        return toolset

    def measured(self) -> LoopLag:
        """Have the event loop measured, for as long as the pool is open; give what measures it."""
        if self.lag is None:
            from ..record import LoopLag

            self.lag = LoopLag()
            self.pool.background.spawn(self.lag.run)
        return self.lag

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
            begin=self.pool.records.begin,
            file=self.pool.records.file,
            running=self.running,
            on_minted=self.minted,
            on_cleaned=self.record.minted.clean,
        )

    def serve(self, server: str, config: RuntimeConfig) -> Served:
        """Make what a server's tools go through."""
        return Served(server, config.rules.get(server), self.seams)

    def put(
        self, config: RuntimeConfig, door: Door, served: Mapping[str, Served], done: Reconfigured
    ) -> None:
        """Let a configuration that the pool has taken be this one's. Synchronous; raises nothing."""
        self.config = config
        self._door = door
        self._offers.put(config, served, done)

    def local(self, name: str) -> Tool | None:
        """Give a tool of the host's own."""
        return self._offers.local.get(name)

    @property
    def served(self) -> Mapping[str, Served]:
        """What its servers' tools go through, by the servers' names."""
        return self._offers.served

    def _store(self) -> ArtifactStore | None:
        return self.config.artifacts

    @property
    def door(self) -> Door:
        """The door that calls go through now."""
        return self._door

    def minted(self, meta: ArtifactMeta, scope: Identity, use: Use | None = None) -> None:
        """An artifact was put, by a call or by the host itself for a run."""
        self.record.minted.note(meta, scope, use)
        if self.on_minted is not None:
            self.on_minted(meta, scope, use)
