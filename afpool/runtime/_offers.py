"""What is offered to whom: the toolsets of a runtime, listed, held, found again by a name.

Rules:

* A name that was offered means the tool that it was offered for. A held toolset is what counts while somebody
  holds it; a name that it does not have is looked for in a fresh one.
* What a server has listed before counts for names also while it cannot be listed: its tools' names do not go
  over to another server's in between.
* A toolset is never kept for its own sake: it lives as long as a run or the app holds it.
* Nothing is offered that was listed under one configuration and named under another: where it changes while
  servers are asked, they are asked again.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import NOT_SENT, AfpoolError, BindingChanged, IdentityMismatch, PoolClosed, UnknownTool
from ..pool._asking import ask_identity
from ..tools._correction import unknown_tool
from ._listing import Lister
from ._naming import Namings
from ._toolset import RuntimeToolset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.identity import CallerIdentity, Identity
    from .._base.model import Tool
    from ..pool import Reconfigured
    from ..pool import Toolset as PoolToolset
    from ._config import RuntimeConfig
    from ._runtime import Runtime
    from ._served import Served, ServedTools

_ROUNDS: Final = 3


@final
class Offers:
    """The toolsets of one runtime.

    Attributes:
        local: The host's own tools, by name.
        served: What each server's tools go through, by its name.
        held: The toolsets that somebody holds, by whom they were listed for.
        lister: Lists the servers.
    """

    __slots__ = ("_namings", "_reloads", "_runtime", "held", "lister", "local", "served")

    def __init__(self, runtime: Runtime, config: RuntimeConfig, served: Mapping[str, Served]) -> None:
        self._runtime = runtime
        self._namings = Namings()
        self._reloads = 0
        self.local: dict[str, Tool] = {tool.name: tool for tool in config.tools}
        self.served = served
        self.held: weakref.WeakValueDictionary[Identity, RuntimeToolset] = weakref.WeakValueDictionary()
        self.lister = Lister(runtime.pool, config.list_patience)

    async def toolset(
        self, identity: CallerIdentity, *, deadline: float | None, refresh: bool
    ) -> RuntimeToolset:
        """List everything that an identity may call; see `Runtime.toolset`."""
        runtime = self._runtime
        config = runtime.config
        if runtime.closed:
            await trio.lowlevel.checkpoint()
            raise PoolClosed("the runtime is closed; nothing was sent", delivery=NOT_SENT)
        who = ask_identity(identity)
        until = runtime.seams.now() + config.deadline if deadline is None else deadline
        lists, problems, served = await self._listed(identity, who, until, refresh=refresh)
        quarantined: dict[str, str] = {}
        unsettled: list[str] = []
        for server, listed in lists.items():
            quarantined |= listed.quarantined
            quarantined |= {f"{server}/{name}": why for name, why in served[server].left_out.items()}
            if listed.unsettled:
                unsettled.append(server)
        toolset = RuntimeToolset(
            runtime,
            identity,
            self._namings.names(
                {server: listed.catalogs[server] for server, listed in lists.items()},
                self.served,
                self.local,
                always=runtime.config.qualify == "always",
            ),
            {None: self.local, **{server: one.tools for server, one in served.items()}},
            problems,
            {server: one.withheld for server, one in served.items() if one.withheld is not None},
            quarantined,
            tuple(unsettled),
        )
        self.held[who] = toolset
        return toolset

    async def _listed(
        self, identity: CallerIdentity, who: Identity, until: float, *, refresh: bool
    ) -> tuple[dict[str, PoolToolset], dict[str, AfpoolError], dict[str, ServedTools]]:
        for _ in range(_ROUNDS):
            reloads, known = self._reloads, self.served
            lists, problems = await self.lister.ask(known, identity, who, until, refresh=refresh)
            if reloads == self._reloads:
                try:
                    served = {server: await known[server].apply(listed) for server, listed in lists.items()}
                except TypeError:
                    if reloads == self._reloads:
                        raise
                    continue  # a mistake of rules that are no longer in force
                if callable(identity) and ask_identity(identity) != who:
                    raise IdentityMismatch("the caller is not who asked any more; the list is not given out")
                if reloads == self._reloads:
                    return lists, problems, served
        raise BindingChanged("the configuration changed again and again while tools were listed; list again")

    async def offering(self, name: str, identity: CallerIdentity, deadline: float | None) -> RuntimeToolset:
        """Find a toolset that a name means something in: the one that is held, else a fresh one."""
        held = self.held.get(ask_identity(identity))
        if held is not None and name in held:
            return held
        return await self.toolset(identity, deadline=deadline, refresh=False)

    def offered(
        self, toolset: RuntimeToolset | None, name: str, identity: CallerIdentity
    ) -> RuntimeToolset | None:
        """Find the toolset at hand, or held, that offers a name; since when names may mean something else."""
        if toolset is None and self._reloads:
            try:
                toolset = self.held.get(ask_identity(identity))
            except AfpoolError:
                return None  # the door refuses whoever cannot be asked
        return toolset if toolset is not None and name in toolset else None

    def forget(self, toolset: RuntimeToolset) -> None:
        """Find no name in a toolset any more: its ground is gone."""
        for who in [who for who, held in self.held.items() if held is toolset]:
            del self.held[who]

    def put(self, config: RuntimeConfig, served: Mapping[str, Served], done: Reconfigured) -> None:
        """Let what a configuration says be in force. Synchronous; raises nothing."""
        self._reloads += 1
        self.local = {tool.name: tool for tool in config.tools}
        self.served = served
        self.lister.patience = config.list_patience
        self.lister.forget(done.unchanged)
        self._namings.renew(done.removed)


def unknown(name: str, toolset: RuntimeToolset) -> UnknownTool:
    """Give the refusal of a name that a toolset does not have, with what there is and what is missing."""
    text = unknown_tool(name, list(toolset))
    missing = [f"{server} ({error.code})" for server, error in toolset.problems.items()]
    missing += [f"{server} ({why.partition(':')[0]})" for server, why in toolset.withheld.items()]
    if not missing:
        return UnknownTool(text)
    text += f". The tools of these servers are missing now: {', '.join(missing)}"
    return UnknownTool(text).saying("missing", ", ".join(missing))
