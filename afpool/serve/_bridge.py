"""What a runtime and the service in front of it tell each other: whose tools changed, and what servers ask.

Both are said to the pool when it is opened, before there is a service. So they are made first, are put into
the runtime's configuration (`wire`), and the service takes them up when it opens.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from .._base.identity import project
from ..client import ServerRequests
from ._questions import Questions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.identity import Identity
    from ..client import Plan
    from ..pool import Server
    from ..runtime import Runtime, RuntimeConfig
    from ._listening import Listening
    from ._sessions import Sessions

_TOGETHER: Final = 0.05


@final
class Bridge:
    """Wires a runtime's configuration to one service.

    Attributes:
        questions: Finds the client that a server's question is for.
        offers: What plans offer to servers, where they offer nothing of their own.
    """

    def __init__(self) -> None:
        self.questions = Questions()
        self.offers = ServerRequests(elicit=self.questions, elicitation_modes=("form", "url"))  # type: ignore[arg-type]  # mypy cannot read `converter=tuple`
        self._changed: dict[tuple[str, Identity], None] = {}
        self._wake = trio.Event()
        self._planned: tuple[object, Callable[[str, Identity], Awaitable[Plan]]] | None = None
        # one object: a reload compares callbacks by identity
        self._on_tools = self.tools_changed
        self._next: Callable[[str, Identity], object] | None = None

    def wire(self, config: RuntimeConfig) -> RuntimeConfig:
        """Give a runtime's configuration with what the service needs in it. Synchronous.

        A callback `on_tools` that is there is called as before. Plans that answer servers themselves stay as
        they are.
        """
        pool = dict(config.pool)
        if pool.get("on_tools") is not self._on_tools:
            self._next = pool.get("on_tools")
            pool["on_tools"] = self._on_tools
        servers = [self._offering(server) for server in config.servers]
        plan = config.plan
        return attrs.evolve(
            config, servers=servers, pool=pool, plan=None if plan is None else self._asking(plan)
        )

    def _offering(self, server: Server) -> Server:
        if server.plan is None or server.plan.requests is not None:
            return server
        return attrs.evolve(server, plan=attrs.evolve(server.plan, requests=self.offers))

    def _asking(self, plan: Callable[..., Any]) -> Callable[[str, Identity], Awaitable[Plan]]:
        # the same function of the host's is the same one here: a reload compares them
        if self._planned is not None and self._planned[0] == plan:
            return self._planned[1]

        async def planned(server: str, projection: Identity) -> Plan:
            found: Any = plan(server, projection)
            if inspect.isawaitable(found):
                found = await found
            if getattr(found, "requests", self) is None:
                found = attrs.evolve(found, requests=self.offers)
            return found  # type: ignore[no-any-return]  # the pool says what is wrong with anything else

        self._planned = (plan, planned)
        return planned

    # ------------------------------------------------------------------ whose tools changed

    def tools_changed(self, server: str, projection: Identity) -> None:
        """Take what the pool says. Synchronous."""
        self._changed[server, projection] = None
        self._wake.set()
        if self._next is not None:
            self._next(server, projection)

    async def tell(self, runtime: Runtime, sessions: Sessions, listening: Listening) -> None:
        """Tell those whose tools changed, and nobody else, until cancelled; changes at once are one."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            changed, self._changed = self._changed, {}
            keyed_on = {server.name: server.keyed_on for server in runtime.config.servers}
            by_fields: dict[tuple[str, ...], set[Identity]] = {}
            for server, projection in changed:
                if server in keyed_on:
                    by_fields.setdefault(keyed_on[server], set()).add(projection)
            for told in (*sessions, *listening):
                identity = told.identity
                if any(project(identity, fields) in those for fields, those in by_fields.items()):
                    told.tools_changed()
            await trio.sleep(_TOGETHER)
