"""Opening a console: for the time of a block.

Rules:

* What the console does is in a nursery of its own. Whatever goes wrong in it is logged, and never ends the
  block; an exception of the block leaves as itself.
* Where a console cannot listen, whoever said that it is `required` is told before anything else is opened;
  else it is logged, and there is none.
* Leaving says goodbye to who is attached, within a moment, and removes what it has put into the folder.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.console_place import hang_path, runtime_directories, runtime_directory
from .._base.entering import protected_block
from .._base.untraced import place_of
from .._base.version import own_version
from ..record import LoopLag
from ._door import Door, Refused
from ._listener import Listener, say_goodbye
from ._outbox import Purse
from ._session import opening
from ._settings import CannotOpenConsole, ConsoleSettings
from ._sockets import BACKLOG, Listening, closed_by_fork, listen, listen_at, make_directory, remove_left_over
from ._watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from ..pool import Pool
    from ..record import Numbers, Record
    from ._ask import Asker, Level
    from ._registry import Registry
    from ._session import Session

logger = logging.getLogger("afpool.console")

_GOODBYE: Final = 1.0
_RESTART: Final = 1.0
_numbers: Final = itertools.count(1)


@final
class Console:
    """A console that is open. Made by `open_console`; belongs to its trio thread.

    Attributes:
        settings: What it was opened with.
        registry: What can be asked of it.
        lag: How late the loop is.
        path: Its Unix socket, where it has one.
        addresses: Where it listens: `unix:/path`, `http://host:port/`.
        opened_at: When, on trio's clock.
        door: Who may attach, and how many were refused.
        purse: What streams have cost.
    """

    registry: Registry

    def __init__(self, settings: ConsoleSettings, lag: LoopLag, unix_now: Callable[[], float]) -> None:
        self.settings = settings
        self.lag = lag
        self.path: Path | None = None
        self.addresses: tuple[str, ...] = ()
        self.opened_at = trio.current_time()
        self.door = Door(settings)
        self.purse = Purse(settings.limits.cpu)
        self._unix_now = unix_now
        self._seats = 0
        self._sessions: dict[Session, None] = {}

    @property
    def name(self) -> str:
        """What it is called."""
        return self.settings.name

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """Who is attached: `id`, `who`, `level`, `since`, `streams`, `running`, `dropped`, `bytes`."""
        return [session.describe() for session in self._sessions]

    @property
    def found(self) -> bool:
        """Whether clients of this user find it by themselves."""
        return self.path is not None and self.path.parent in runtime_directories()

    @contextlib.contextmanager
    def seat(self, level: Level) -> Iterator[bool]:
        """Take one of the places for sessions for the time of a block; gives whether there was one.

        An eighth of them is kept for who may operate: whoever may only look never keeps out who has to act.
        """
        most = self.settings.limits.sessions
        if self._seats >= (most if level == "operate" else most - most // 8):
            yield False
            return
        self._seats += 1
        try:
            yield True
        finally:
            self._seats -= 1

    def too_many(self) -> Refused:
        """Say that there is no place, and count it."""
        words = f"{self._seats} consoles are attached, and there is no place for one more; end one of them"
        return self.door.refuse(Refused(503, "too-many-sessions", words, (("retry-after", "5"),)))

    def next_number(self) -> int:
        """Number a session: never used twice in a process."""
        return next(_numbers)

    def hello(self, asker: Asker) -> dict[str, Any]:
        """Make what a session is told first."""
        told = {
            "level": asker.level, "who": asker.who, "now": trio.current_time(), "unix": self._unix_now(),
            **self.registry.describe(),
        }  # fmt: skip
        return opening(self.name, os.getpid(), own_version(), told)

    @contextlib.contextmanager
    def attached(self, session: Session) -> Iterator[None]:
        """Count a session for the time of a block."""
        self._sessions[session] = None
        logger.info("%s is attached (%s)", session.asker.who, session.asker.level)
        try:
            yield
        finally:
            del self._sessions[session]
            logger.info("%s is gone", session.asker.who)

    async def goodbye(self) -> None:
        """Close every session with a word."""
        await say_goodbye(list(self._sessions))


@protected_block
async def open_console(
    pool: Pool,
    *,
    record: Record | None = None,
    settings: ConsoleSettings | None = None,
    registry: Registry | None = None,
    lag: LoopLag | None = None,
    numbers: Callable[[], Numbers] | None = None,
) -> AsyncIterator[Console | None]:
    """Open a console for the time of the block.

    Args:
        pool: What it shows.
        record: What explains the pool's calls.
        settings: Where it listens, and who may do what.
        registry: What can be asked; made of pool and record where absent.
        lag: What measures the loop, where somebody runs it already.
        numbers: Gives what counts the pool's calls, where somebody counts them already.

    Raises:
        CannotOpenConsole: It cannot listen, and is `required`.

    Gives `None` where it cannot listen and need not. Leaving ends its sessions.
    """
    settings = ConsoleSettings() if settings is None else settings
    seams = pool.seams
    async with contextlib.AsyncExitStack() as stack:
        own_lag = LoopLag() if lag is None else lag
        console = Console(settings, own_lag, seams.unix_now)
        try:
            listeners = await _listen(stack, console)
        except CannotOpenConsole as error:
            if settings.required:
                raise
            await stack.aclose()  # one of two sockets may be open, at which nobody would answer
            logger.warning("%s", error.message)
            yield None
            return
        if registry is None:
            from ._build import build_registry

            counted = None if numbers is None else numbers()
            registry = build_registry(pool=pool, record=record, lag=own_lag, console=console, numbers=counted)
        console.registry = registry
        failure: BaseException | None = None
        async with trio.open_nursery() as nursery:
            if lag is None:
                nursery.start_soon(own_lag.run)
            nursery.start_soon(_keep, "registry", _serving(registry))
            for listener in listeners:
                nursery.start_soon(_keep, "listener", listener.run)
            try:
                yield console
            except BaseException as error:  # noqa: BLE001 -- raised below, as itself and in no group
                failure = error
            with trio.move_on_after(_GOODBYE, shield=True):
                await console.goodbye()
            nursery.cancel_scope.cancel()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None


def _serving(registry: Registry) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with registry.serving():
            await trio.sleep_forever()

    return run


async def _keep(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a part until cancelled; one that crashes is started again after a while."""
    while True:
        try:
            await run()
        except Exception as error:  # noqa: BLE001 -- a console never ends what it looks at
            kind, place = type(error).__name__, place_of(error.__traceback__)
            logger.error("the console's %s crashed and is started again: %s (%s)", what, kind, place)  # noqa: TRY400 -- its text may hold anything
        await trio.sleep(_RESTART)


async def _listen(stack: contextlib.AsyncExitStack, console: Console) -> list[Listener]:
    settings = console.settings
    listeners: list[Listener] = []
    addresses: list[str] = []
    if settings.unix:
        directory = runtime_directory() if settings.directory is None else settings.directory
        make_directory(directory)
        remove_left_over(directory)
        listening = listen(directory, settings.name)
        listeners.append(Listener(console, await _trio_listener(stack, listening), unix=True))
        console.path = listening.path
        addresses.append(f"unix:{listening.path}")
        if settings.watchdog:
            hang = listen_at(hang_path(listening.path))
            stack.callback(hang.close)
            try:
                watchdog = Watchdog(hang, settings.name, console.lag, console.door)
                watchdog.start()
            except (OSError, RuntimeError) as error:  # out of descriptors, or of threads
                raise CannotOpenConsole(
                    f"the console has no thread for its watchdog ({type(error).__name__}); nothing listens"
                ) from None
            stack.callback(watchdog.stop)
    if settings.bind is not None:
        host, port = settings.host_and_port
        try:
            opened = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise CannotOpenConsole(
                f"no console can listen at {settings.bind}: {reason}; nothing listens"
            ) from None
        for one in opened:
            await stack.enter_async_context(closed_by_fork(one))
            listeners.append(Listener(console, one, unix=False))
            addresses.append(_address(one))
    console.addresses = tuple(addresses)
    return listeners


async def _trio_listener(stack: contextlib.AsyncExitStack, listening: Listening) -> trio.SocketListener:
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening.sock))
    stack.callback(listening.remove)
    await stack.enter_async_context(listener)
    return listener


def _address(listener: trio.SocketListener) -> str:
    host, port = listener.socket.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
