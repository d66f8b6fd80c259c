"""`serve`: the service from the first word to the exit code.

Rules:

* SIGTERM or SIGINT: nothing new is taken, what runs may end within `drain` seconds. A second one ends it at
  once.
* SIGHUP, or a file that changed: the configuration is read again. One that has faults is told of and changes
  nothing; the service runs on under what it has, and says so in `/readyz`.
* Exit codes: 0 ended as asked with no call cut off; 1 failed, or calls were cut off at the deadline; 2 the
  configuration cannot be used; 130 interrupted (SIGINT, or a second signal).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import trio

from .._base.errors import AfpoolError
from .._base.untraced import place_of
from ..config import ConfigError
from ._proof_types import UnsafeDoor
from ._service import open_service
from ._sockets import BadCertificate, raise_descriptors
from ._tokens_file import TokenFileError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from ..config import Config
    from ._demo import Demo
    from ._service import Service

logger = logging.getLogger("afpool.serve")

CLEAN: Final = 0
FAILED: Final = 1
MISCONFIGURED: Final = 2
INTERRUPTED: Final = 130
WATCH_EVERY: Final = 1.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FAULTS: Final = (ConfigError, UnsafeDoor, TokenFileError, BadCertificate, ValueError, TypeError, ImportError)


async def serve(
    config: Config,
    *,
    demo: bool = False,
    traffic: bool = False,
    load: Callable[[], Config] | None = None,
    announce: Callable[[str], object] = print,
    notify: Callable[[str], object] | None = None,
    task_status: trio.TaskStatus[Service] = trio.TASK_STATUS_IGNORED,
) -> int:
    """Serve until told to end.

    Args:
        config: What to serve, and where.
        demo: Serve built-in servers to two tenants instead, and announce their tokens.
        traffic: Of the demo: let its tenants call by themselves, so that a console has something to show.
        load: Reads the configuration again, for a reload; blocking, called in a thread. Without it there is
            no reload.
        announce: Takes lines for whoever has started the service.
        notify: Told of `ready` (again when a reload is over, whatever came of it), `reloading` and
            `stopping`, for a supervisor of processes. Synchronous.
        task_status: Given the service once it is ready.

    Returns:
        The exit code of the process: see the module.

    Signals are taken where it runs in the main thread. Cancelled, it ends like after a second signal.
    """
    life = _Life(load, notify)
    raise_descriptors()
    try:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_taking_signals(life))
            given: Any = config
            at_door = config.serve
            played: Demo | None = None
            if demo:
                from ._demo import open_demo

                played = await stack.enter_async_context(open_demo(config.serve, traffic=traffic))
                console = config.console.settings(default=True, name="demo") or False
                given, at_door = attrs.evolve(played.runtime, console=console), played.serve
                life.load = None
            with life.scope:
                async with open_service(given, at_door, console=True) as service:
                    for address in service.addresses:
                        announce(f"serving {address}")
                    if played is not None:
                        played.tell(service.addresses[0], announce)
                    task_status.started(service)
                    if played is None or played.play is None:
                        await life.run(service, None if demo else config)
                    else:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(played.play, service.runtime)
                            await life.run(service, None)
                            nursery.cancel_scope.cancel()
    except _FAULTS as error:
        # names and places of settings, never their values
        logger.error("the configuration cannot be used:\n%s", error)  # noqa: TRY400 -- it is no fault of the code
        return MISCONFIGURED
    except AfpoolError as error:
        logger.error("%s", error)  # noqa: TRY400 -- as above
        return FAILED
    except OSError as error:
        logger.error("the service failed (%s)", type(error).__name__)  # noqa: TRY400 -- as above
        return FAILED
    return life.code


@final
class _Life:
    """What signals and files make of one service."""

    def __init__(
        self, load: Callable[[], Config] | None, notify: Callable[[str], object] | None = None
    ) -> None:
        self.load = load
        self._notify = notify
        self.scope = trio.CancelScope()
        self.code = CLEAN
        self._stop = trio.Event()
        self._reload = trio.Event()
        self._ready = False
        self._drain: float | None = None
        self._config: Config | None = None

    def signalled(self, number: int) -> None:
        """Take a signal. Synchronous."""
        if number == signal.SIGHUP:
            self._reload.set()
            return
        if not self._stop.is_set():
            self.tell("stopping")
        if number == signal.SIGINT or self._stop.is_set():
            self.code = INTERRUPTED
        if self._stop.is_set() or not self._ready:
            logger.info("ending at once")
            self.scope.cancel()
        else:
            logger.info("ending: nothing new is taken; once more ends it at once")
        self._stop.set()

    def asked(self, drain: float) -> bool:
        """End as after SIGTERM, since an operator asked for it; false where it ends already. Synchronous."""
        if self._stop.is_set():
            return False
        self.tell("stopping")
        self._drain = drain
        self._stop.set()
        return True

    def _again(self) -> None:
        self._reload.set()

    def tell(self, state: str) -> None:
        """Tell whoever supervises the process. Synchronous."""
        if self._notify is not None:
            self._notify(state)

    async def run(self, service: Service, config: Config | None) -> None:
        """Keep the service until it is to end, then let it drain."""
        self._ready = True
        service.on_shutdown = self.asked
        if config is not None and self.load is not None:
            service.on_reload = self._again
        self.tell("ready")
        async with trio.open_nursery() as nursery:
            if config is not None and self.load is not None:
                self._config = config
                nursery.start_soon(service.health.keep, "reload", functools.partial(self._reloading, service))
            await self._stop.wait()
            nursery.cancel_scope.cancel()
        patience = service.config.drain if self._drain is None else self._drain
        drained = await service.drain(trio.current_time() + patience)
        if drained.left:
            logger.warning("%d calls had not ended in time and are cut off", drained.left)
            self.code = self.code or FAILED

    # ------------------------------------------------------------------ reloading

    async def _reloading(self, service: Service) -> None:
        config = self._config
        assert config is not None
        watched = _stamps(_files_of(config))
        while True:
            with trio.move_on_after(WATCH_EVERY if config.serve.reload else float("inf")):
                await self._reload.wait()
            asked = self._reload.is_set()
            self._reload = trio.Event()
            now = await trio.to_thread.run_sync(_stamps, _files_of(config))
            if not asked:
                if now == watched:
                    continue
                # whoever writes a file may not be done with it
                await trio.sleep(WATCH_EVERY / 4)
                settled = await trio.to_thread.run_sync(_stamps, _files_of(config))
                if settled != now:
                    continue
            self.tell("reloading")
            config = self._config = await self.once(service, config)
            self.tell("ready")
            # what changed while it was read or put into force has not been read: the state before counts
            watched = await trio.to_thread.run_sync(_stamps, _files_of(config)) | now
            watched = {path: watched[path] for path in _files_of(config)}

    async def once(self, service: Service, config: Config) -> Config:
        """Read the configuration again, and put it into force; give what is in force then."""
        assert self.load is not None
        try:
            fresh = await trio.to_thread.run_sync(self.load)
            await service.refresh()
            kept = await service.reload(fresh)
        except (AfpoolError, ValueError, TypeError, ImportError) as error:
            why = "the configuration was not reloaded, and the one before is in force:\n%s"
            logger.error(why, error)  # noqa: TRY400 -- it is no fault of the code
            return self._not_read(service, config)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the configuration before is in force
            why = "the configuration was not reloaded, and the one before is in force: %s (%s)"
            logger.error(why, type(error).__name__, place_of(error.__traceback__))  # noqa: TRY400 -- its text may hold anything
            return self._not_read(service, config)
        service.health.note("configuration", None)
        changes = config.changed_servers(fresh)
        logger.info(
            "reloaded: servers added %s, removed %s, changed %s, unchanged %d",
            list(changes.added), list(changes.removed), list(changes.changed), len(changes.unchanged),
        )  # fmt: skip
        for sentence in kept:
            logger.warning("not reloaded: %s", sentence)
        return fresh

    @staticmethod
    def _not_read(service: Service, config: Config) -> Config:
        service.health.note("configuration", "the file that was read last cannot be used")
        return config


def _files_of(config: Config) -> tuple[Path, ...]:
    tls = config.serve.tls
    more = () if tls is None else (tls.certificate, tls.key, tls.client_ca)
    return (*config.source, *(Path(name) for name in more if name is not None))


def _stamps(files: Iterable[Path]) -> dict[Path, tuple[int, int, int] | None]:
    found: dict[Path, tuple[int, int, int] | None] = {}
    for path in files:
        try:
            seen = path.stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
    return found


@contextlib.asynccontextmanager
async def _taking_signals(life: _Life) -> AsyncIterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:

            async def take() -> None:
                async for number in signals:
                    life.signalled(number)

            nursery.start_soon(take)
            try:
                yield
            except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None
