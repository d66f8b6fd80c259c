"""What servers say by themselves, told to the host: log messages, and changes of lists that are not cached.

* The host's callbacks run in a task of the pool's, never in the one that reads a client's wire.
* Bounded: of log messages the newest `LOGS_KEPT` wait; each says how many went missing before it. Announced
  changes of one list of one key are one until they are told.
* What a callback raises is logged and costs that one message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import attrs
import trio

from .._base.errors import AfpoolError
from .._base.identity import Identity
from ..client import Rpc
from ..protocol import LOG_NOTICE, RESOURCES_CHANGED, decode_json, level_members, read_log, request_params
from ._records import logger

if TYPE_CHECKING:
    from collections.abc import Container

    from ..client import Client
    from ..protocol import Message
    from ._actor import KeyActor
    from ._pool import Pool

LOGS_KEPT: Final = 256

Changed: TypeAlias = Literal["resources", "prompts"]
ChangeCallback: TypeAlias = Callable[[str, Identity, Changed], object]


@final
@attrs.frozen
class LogMessage:
    """One log message of a server: its own words, untrusted.

    Attributes:
        level: `debug` to `emergency`.
        logger: The name of the logger, where the server gives one.
        raw: The message's data, raw JSON.
        missed: How many messages before it were dropped, of any server.
    """

    level: str
    logger: str | None
    raw: bytes = attrs.field(repr=False)
    missed: int = 0

    @property
    def data(self) -> Any:
        """The data, decoded: a text or any other JSON value."""
        return decode_json(self.raw)


LogCallback: TypeAlias = Callable[[str, Identity, LogMessage], object]


@final
class Herald:
    """Tells the host. Idle, it has no task."""

    __slots__ = ("_changes", "_logs", "_missed", "_on_change", "_on_log", "_pool", "_runs")

    def __init__(self, pool: Pool, on_log: LogCallback | None, on_change: ChangeCallback | None) -> None:
        self._pool = pool
        self._on_log = on_log
        self._on_change = on_change
        self._logs: deque[tuple[str, Identity, LogMessage]] = deque()
        self._changes: dict[tuple[str, Identity, Changed], None] = {}
        self._missed = 0
        self._runs = False

    @property
    def notices(self) -> frozenset[str]:
        """What a client should listen for on the host's behalf."""
        wanted = {"log"} if self._on_log is not None else set()
        if self._on_change is not None:
            wanted |= {"resources", "prompts"}
        return frozenset(wanted)

    def told(self, actor: KeyActor, message: Message) -> None:
        """Take a notification of a client of this key. Synchronous; calls nobody."""
        if actor.machine.removed:
            return  # of a server that the host does not know any more
        if message.method == LOG_NOTICE:
            notice = read_log(message.params) if self._on_log is not None else None
            if notice is None:
                return
            if len(self._logs) >= LOGS_KEPT:
                self._logs.popleft()
                self._missed += 1
            said = LogMessage(notice.level, notice.logger, notice.data)
            self._logs.append((actor.server.name, actor.projection, said))
        elif self._on_change is not None:
            what: Changed = "resources" if message.method == RESOURCES_CHANGED else "prompts"
            self._changes[actor.server.name, actor.projection, what] = None
        else:
            return
        if not self._runs and self._pool.can_spawn:
            self._runs = True
            self._pool.spawn(self._run)

    def forget(self, servers: Container[str]) -> None:
        """Tell nothing any more of what clients of these servers have said."""
        self._logs = deque(each for each in self._logs if each[0] not in servers)
        self._changes = {change: None for change in self._changes if change[0] not in servers}

    async def _run(self) -> None:
        try:
            while self._logs or self._changes:
                if self._changes:
                    change = next(iter(self._changes))
                    del self._changes[change]
                    assert self._on_change is not None
                    self._call(self._on_change, *change)
                if self._logs:
                    server, projection, said = self._logs.popleft()
                    missed, self._missed = self._missed, 0
                    if missed:
                        said = attrs.evolve(said, missed=missed)
                    assert self._on_log is not None
                    self._call(self._on_log, server, projection, said)
                await trio.lowlevel.checkpoint()
        finally:
            self._runs = False

    @staticmethod
    def _call(callback: Callable[..., object], *args: object) -> None:
        try:
            callback(*args)
        except Exception as error:  # noqa: BLE001 -- the app's code; its text may tell much
            logger.error("a callback for what servers say raised %s", type(error).__name__)


def restore_level(actor: KeyActor, client: Client, level: str) -> None:
    """Ask a new client of a key for the log level that was set before. Synchronous."""
    if not client.offers("logging"):
        return
    if client.stateless:
        client.log_from(level)
    elif actor.pool.can_spawn:
        actor.pool.spawn(_set_level, client, level)


async def _set_level(client: Client, level: str) -> None:
    rpc = Rpc("logging/setLevel", request_params(level_members(level), meta=client.meta))
    try:
        await client.control(rpc, client.settings.control_timeout)
    except AfpoolError as error:
        logger.info("a new client did not take the log level (%s)", error.code)
