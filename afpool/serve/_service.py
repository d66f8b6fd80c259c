"""The service: opened, reloaded, drained. Everything else of the package stands in one of its parts.

Rules:

* It is ready once its configuration is valid, its runtime is open and it listens; never before.
* A reload is all or nothing. What does not differ stays as it is: servers keep their clients, sessions their
  clients, sockets their connections. What cannot be changed while it runs is said, and stays as it was.
* Draining refuses what is new and lets what runs end. Leaving ends what is left, gives back what it held, and
  closes the runtime last.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from .._base.entering import protected_block
from ..config import ServeConfig
from ..runtime import Runtime, RuntimeConfig, open_runtime
from ._app import Door
from ._bridge import Bridge
from ._calls import Calls
from ._door_limits import DoorLimits
from ._guard import Guard
from ._health import DRAINING, READY, Health
from ._http import HttpEndpoint
from ._kept import Resources
from ._kernel import Kernel, server_info
from ._links import Links
from ._listener import Front, listener_limits
from ._listening import Listening
from ._proof import open_proof
from ._scrape import Scrape
from ._sessions import Sessions
from ._sockets import address_of, open_listeners, port_of, tls_context
from ._streams import PING_EVERY
from ._websocket import SocketEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ..config import Config, ConfiguredCredentials
    from ..console import Console
    from ._proof import Proof
    from ._spans import Spans
    from ._streams import EventChannel, Reply

logger = logging.getLogger("afpool.serve")

_TICK: Final = 2.0
_CLOSING: Final = 2.0


@attrs.frozen
class Drained:
    """How a drain ended.

    Attributes:
        left: Calls that were still under way at the deadline, and were cancelled.
    """

    left: int


@final
class Service:
    """A running service. Made by `open_service`; every method belongs to its trio thread.

    Attributes:
        app: The ASGI application, for another trio server than the service's own.
        config: Its configuration.
        runtime: What it serves.
        addresses: Where clients reach it, the path included.
        health: What the probes are told.
        on_shutdown: Ends the process, after so many seconds of draining, and gives `False` where that has
            begun; `None` where it is somebody else's.
        on_reload: Has the configuration read again; `None` where it came from no file.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: ServeConfig,
        proof: Proof,
        bridge: Bridge,
        nursery: trio.Nursery,
        port: int | None,
    ) -> None:
        info = server_info()
        self._port = port
        self.runtime = runtime
        self.config = config
        self.addresses: tuple[str, ...] = ()
        self.health = Health()
        self.on_shutdown: Callable[[float], object] | None = None
        self.on_reload: Callable[[], object] | None = None
        self._said: Config | None = None
        self._provider: ConfiguredCredentials | None = None
        self._bridge = bridge
        self._proof = proof
        self._reloading = trio.Lock()
        self._limits = DoorLimits(config.limits)
        self._sessions = Sessions(self._limits, config.limits.idle_session)
        self._listening = Listening()
        links = Links(runtime.config.secret)
        self._calls = Calls(runtime, self._limits, bridge.questions, links, nursery, info)
        kernel = Kernel(self._calls, Resources(runtime, links), self._listening, info, _spans_of(runtime))
        self._http = HttpEndpoint(kernel, self._sessions, config.limits, nursery)
        sockets = SocketEndpoint(kernel, self._sessions)
        guard = self._guard(config)
        for warning in guard.warnings:
            logger.warning("%s", warning)
        scrape = Scrape(runtime)
        if config.metrics.enabled:
            scrape.begin()
        self.app = Door(config, guard, proof, self.health, self._http, sockets, scrape)
        self._front = Front(self.app, listener_limits(config))
        self.health.watch("identity", proof.problems)

    def _guard(self, config: ServeConfig) -> Guard:
        """Judge heads by a configuration; a port that the kernel has chosen is the one that clients name."""
        address = config.host_and_port
        if self._port is not None and address is not None and address[1] == 0:
            host = config.bind.rpartition(":")[0]
            config = attrs.evolve(config, bind=f"{host}:{self._port}")
        return Guard(config)

    # ------------------------------------------------------------------ the public face

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def calls(self) -> int:
        """How many calls are under way."""
        return self._calls.running

    async def reload(self, config: Any = None, *, serve: ServeConfig | None = None) -> tuple[str, ...]:
        """Go on under another configuration, all or nothing. Reloads at once come one after the other.

        Args:
            config: A `Config`, or a `RuntimeConfig`; the runtime's present one where absent.
            serve: The service's own part, where `config` holds none.

        Returns:
            What could not be changed while the service runs, one sentence each; it is as it was.

        Raises:
            AfpoolError: The identity sources cannot be used. Everything is as it was.
            ValueError: Something does not fit. Everything is as it was.
            TypeError: As `RuntimeConfig`.
        """
        async with self._reloading:
            return await self._reload(config, serve)

    async def _reload(self, config: Any, serve: ServeConfig | None) -> tuple[str, ...]:
        fresh = self.config if serve is None else serve
        said: Config | None = None
        runtime_config = None
        if config is not None:
            if not isinstance(config, RuntimeConfig):
                said = config
                fresh = config.serve if serve is None else serve
                now = self.runtime.config
                config = config.runtime_config(
                    credentials=now.credentials,
                    artifacts=now.artifacts,
                    console=now.console,
                    record=now.record,
                )
            runtime_config = _with_qualify(self._bridge.wire(config), fresh)
        Guard(fresh)
        tls = tls_context(fresh.tls)
        before = self.config
        # each of these changes all of it or nothing; what comes later takes back what came before it
        async with contextlib.AsyncExitStack() as undo:
            prove_by = await self._proof.prepare(fresh.identity)
            if said is not None and self._provider is not None and self._said is not None:
                await self._provider.reconfigure(said.credentials)
                undo.push_async_callback(_shielded, self._provider.reconfigure, self._said.credentials)
            if runtime_config is not None:
                # of servers that differ by identity only the file knows which are others now
                replan = (
                    None if said is None or self._said is None else self._said.changed_servers(said).changed
                )
                self.runtime.reconfigure(runtime_config, replan=replan)
            undo.pop_all()
            prove_by()
        kept = self._kept_back(said, fresh)
        if (fresh.tls is None) == (before.tls is None):
            self._front.tls = tls
        self._said = said or self._said
        self.config = attrs.evolve(
            fresh, bind=before.bind, path=before.path, websocket_path=before.websocket_path
        )
        self.app.config = self.config
        self.app.guard = self._guard(self.config)
        self._http.limits = fresh.limits
        if fresh.limits != before.limits:
            self._limits.reconfigure(fresh.limits)
            self._sessions.idle_for = fresh.limits.idle_session
            self._front.set_limits(listener_limits(fresh))
        if runtime_config is not None:
            for told in (*self._sessions, *self._listening):
                told.tools_changed()
        return tuple(kept)

    def _kept_back(self, said: Config | None, fresh: ServeConfig) -> list[str]:
        """Say what counts only when the service is started again."""
        before = self.config
        kept = [
            f"`serve.{name}` counts from the next start on"
            for name in ("bind", "path", "websocket_path")
            if getattr(fresh, name) != getattr(before, name)
        ]
        if (fresh.tls is None) != (before.tls is None):
            kept.append("`serve.tls` counts from the next start on")
        if said is not None and self._said is not None and said.artifacts != self._said.artifacts:
            kept.append("`artifacts` counts from the next start on")
        if said is not None and self._said is not None and said.console != self._said.console:
            kept.append("`console` counts from the next start on")
        if said is not None and self._said is not None and said.record != self._said.record:
            kept.append("`record` counts from the next start on")
        return kept

    async def refresh(self) -> None:
        """Look at the files of the identity sources now. Checkpoints."""
        await self._proof.refresh()

    async def drain(self, deadline: float) -> Drained:
        """Take nothing new, and let what runs end.

        Args:
            deadline: Absolute, on trio's clock.

        Cancelled, what runs goes on until the service is left.
        """
        self.health.state = DRAINING
        self._listening.clear()
        with trio.move_on_at(deadline):
            await self._calls.idle()
        return Drained(self._calls.running)

    # ------------------------------------------------------------------ inside

    async def run(self, nursery: trio.Nursery, listeners: list[trio.SocketListener]) -> None:
        """Start everything; the service is ready then."""
        self._front.tls = tls_context(self.config.tls)
        await nursery.start(self._front.run)
        for number, listener in enumerate(listeners):
            nursery.start_soon(self.health.keep, f"listener {number}", partial(self._front.serve, listener))
        nursery.start_soon(self.health.keep, "clock", self._tick)
        nursery.start_soon(self.health.keep, "news", self._news)
        tls = self.config.tls is not None
        unix = self.config.unix_path
        self.addresses = tuple(
            f"unix:{unix}" if unix is not None else address_of(listener, tls=tls) + self.config.path
            for listener in listeners
        )
        self.health.state = READY

    def take_from(self, said: Config | None, provider: ConfiguredCredentials | None) -> None:
        """Note what it was opened from, for a reload. Synchronous."""
        self._said = said
        self._provider = provider

    def join(self, console: Console) -> Callable[[], None]:
        """Add to a console what this service knows; returns what takes it back. Synchronous."""
        from ._console_tables import register

        return register(
            self, console.registry, sessions=self._sessions, limits=self._limits, said=lambda: self._said
        )

    async def end(self) -> None:
        """End everything of it; shielded and bounded by the caller."""
        self.health.state = DRAINING
        self._listening.clear()
        self._sessions.clear()
        self._http.end()
        await self._front.stop(trio.current_time() + _CLOSING)

    async def _news(self) -> None:
        await self._bridge.tell(self.runtime, self._sessions, self._listening)

    async def _tick(self) -> None:
        while True:
            await trio.sleep(_TICK)
            now = trio.current_time()
            streams: list[Reply | EventChannel] = [*self._http.replies, *self._http.channels]
            for stream in streams:
                if now - stream.written_at >= PING_EVERY:
                    stream.ping()
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        self._sessions.sweep(now)
        self._http.sweep()
        self._bridge.questions.sweep()
        self._listening.sweep()
        self._calls.sweep(now)


def _spans_of(runtime: Runtime) -> Spans | None:
    """What traces requests, where the runtime's calls are traced."""
    record = runtime.config.record
    if record is None or record.tracing is None:
        return None
    from ._spans import Spans

    return Spans(record.tracing)


async def _shielded(step: Callable[[Any], Awaitable[object]], value: Any) -> None:
    with trio.CancelScope(shield=True):
        await step(value)


def _with_qualify(config: RuntimeConfig, serve: ServeConfig) -> RuntimeConfig:
    return config if serve.qualify is None else attrs.evolve(config, qualify=serve.qualify)


@protected_block
async def open_service(
    config: Any,
    /,
    serve: ServeConfig | None = None,
    *,
    bridge: Bridge | None = None,
    listen: bool = True,
    console: bool = False,
) -> AsyncIterator[Service]:
    """Open a service for the time of the block.

    Args:
        config: A `Config`, which says everything; a `RuntimeConfig`, for a runtime that the service opens; or
            a `Runtime` that is open.
        serve: How the service stands at its door, where `config` does not say it.
        bridge: Where a `Runtime` is given: what its configuration was wired with, so that changes of tools
            are told and questions of servers asked.
        listen: Whether it listens where the configuration says. `False` leaves it to whoever serves `app`.
        console: Whether there is a console where a `Config` does not say.

    Raises:
        CannotListen: The address is taken, or the certificate cannot be used.
        CannotOpenConsole: The configuration says where its console listens, and it cannot.
        UnsafeDoor: The configuration names a host or an origin that is none.
        TokenFileError: The token file cannot be used.
        ValueError: As `open_runtime`.
        TypeError: As `open_runtime`.

    Leaving ends what is left of sessions and calls, then closes the runtime. An exception of the block leaves
    as itself.
    """
    async with contextlib.AsyncExitStack() as stack:
        bridge = Bridge() if bridge is None else bridge
        said: Config | None = None
        provider: ConfiguredCredentials | None = None
        if isinstance(config, Runtime):
            runtime = config
            serve = ServeConfig() if serve is None else serve
        else:
            if not isinstance(config, RuntimeConfig):
                from ..config import open_components

                said = config
                serve = config.serve if serve is None else serve
                provider, store = await stack.enter_async_context(open_components(config))
                inside = config.console.settings(default=console, name="serve")
                config = config.runtime_config(credentials=provider, artifacts=store, console=inside or False)
            serve = ServeConfig() if serve is None else serve
            Guard(serve)
            tls_context(serve.tls)
            runtime = await stack.enter_async_context(open_runtime(_with_qualify(bridge.wire(config), serve)))
        proof = await stack.enter_async_context(open_proof(serve.identity, seams=runtime.seams))
        listeners = await stack.enter_async_context(open_listeners(serve)) if listen else []
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            service: Service | None = None
            try:
                service = Service(runtime, serve, proof, bridge, nursery, port_of(listeners))
                service.take_from(said, provider)
                await service.run(nursery, listeners)
                if runtime.console is not None:
                    stack.callback(service.join(runtime.console))
                yield service
            except BaseException as error:  # noqa: BLE001 -- raised below, as itself and after all is closed
                failure = error
            if service is not None:
                with trio.CancelScope(shield=True):
                    await service.end()
            nursery.cancel_scope.cancel()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None
