"""One connection to Redis for all verbs of a store: kept, made anew when it is lost, shared without waiting.

Rules:

* Requests of all tasks go out on one connection in the order in which they were made; each waits for its
  own answer. The client library (coredis) speaks the protocol; the connection is opened and dropped here.
* One opening at a time, in the store's own tasks: a caller that is cancelled disturbs nobody else.
* A request that was lost with its connection is made once more on the next: whatever is sent may run twice.
* A request that is not answered in time takes its connection with it: nothing behind it would be either.
* No error shows the address, the password or what was sent; of what Redis says, the first word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from .._base.errors import IN_DOUBT, NOT_SENT
from ._redis_scripts import ALL, Script
from ._types import ArtifactStoreClosedError, ArtifactStoreError, UnreadableArtifactStoreError

try:
    from coredis import exceptions as redis_errors
    from coredis.pool import ConnectionPool
except ImportError:  # pragma: no cover -- the tests have it
    raise ImportError(
        "RedisArtifacts needs coredis, which is not installed: pip install 'afpool[redis]'"
    ) from None

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from coredis.connection import BaseConnection

    from .._base.errors import Delivery
    from .._base.secret import Secret

SCHEMA_VERSION: Final = 1
_WORD: Final = re.compile(r"[A-Z]{2,20}\b")


def _said(error: Exception) -> str:
    """Give what is told of an error: Redis's own word for it, or the name of its class."""
    word = _WORD.match(str(error))
    return word[0] if word else type(error).__name__


def _drop(connection: BaseConnection) -> None:
    """End a connection that did not come about, and the streams that it leaves open then."""
    connection.invalidate()
    for part in vars(connection).values():
        if isinstance(part, MemoryObjectSendStream | MemoryObjectReceiveStream):
            part.close()


def check_url(url: object) -> str:
    """Give the URL of a Redis server.

    Raises:
        TypeError: It is no string.
        ValueError: It is none that is understood. The message does not show it.
    """
    if not isinstance(url, str):
        raise TypeError(f"the address of a Redis server must be a string, not {type(url).__name__}")
    if not re.match(r"(rediss?://[^/?#]|unix://.*/)", url):
        raise ValueError("the address of a Redis server is redis://host:port/db, rediss://… or unix:///path")
    options = re.findall(r"[?&]([^=&]+)", url)
    if set(options) - {"db"}:
        raise ValueError(
            "the address of a Redis server takes no option but `db`; give the others as arguments"
        )
    return url


@final
class Link:
    """See above.

    Args:
        url: Where Redis is.
        password: Its password, if it is not in the URL.
        ssl_context: For `rediss`.
        prefix: Of all keys.
        timeout: Seconds that a request takes at most, an opening included.
    """

    def __init__(
        self,
        url: Secret,
        password: Secret | None,
        ssl_context: ssl.SSLContext | None,
        prefix: str,
        timeout: float,
    ) -> None:
        self._url = url
        self._password = password
        self._ssl_context = ssl_context
        self._prefix = prefix
        self._timeout = timeout
        self._connection: BaseConnection | None = None
        self._opening: trio.Event | None = None
        self._refusal: Exception | None = None
        self._tasks: trio.Nursery | None = None
        self.closed = False

    # Its own tasks.

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the tasks of the link, until it is closed."""
        async with trio.open_nursery() as self._tasks:
            task_status.started()
            await trio.sleep_forever()

    def close(self) -> None:
        """Drop the connection and end the tasks."""
        self.closed = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do something beside the verbs; what it raises is nobody's."""
        if self._tasks is not None and not self.closed:
            self._tasks.start_soon(self._contained, work)

    async def _contained(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            with trio.move_on_after(self._timeout):
                await work()
        except Exception:  # noqa: BLE001, S110 -- as said
            pass

    def _make(self) -> BaseConnection:
        given: dict[str, Any] = {"connect_timeout": self._timeout}
        if self._password is not None:
            given["password"] = self._password.reveal()
        if self._ssl_context is not None:
            given["ssl_context"] = self._ssl_context
        pool: ConnectionPool[Any] = ConnectionPool.from_url(
            self._url.reveal(), decode_components=True, **given
        )
        made: BaseConnection = pool.connection_class(pool.location, **pool.connection_kwargs)
        return made

    async def _open(self, opened: trio.Event) -> None:
        """Open a connection, or note why there is none, and wake all who wait."""
        self._refusal = None
        connection: BaseConnection | None = None
        try:
            assert self._tasks is not None
            with trio.fail_after(self._timeout):
                connection = self._make()
                await self._tasks.start(self._keep, connection)
                await self._greet(connection)
            self._connection = connection
        except Exception as error:  # noqa: BLE001 -- told to whoever waits
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            self._refusal = error
            if connection is not None:
                _drop(connection)
        finally:
            self._opening = None
            opened.set()

    async def _keep(
        self, connection: BaseConnection, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        ready = False

        class Status:
            """Passes the start on, and remembers it."""

            def started(self, value: None = None) -> None:
                nonlocal ready
                ready = True
                task_status.started(value)

        try:
            await connection.run(task_status=Status())
        except Exception:
            if not ready:
                raise
        finally:
            if self._connection is connection:
                self._connection = None

    async def _greet(self, connection: BaseConnection) -> None:
        """Load the scripts, and see that the keys are a store's."""
        key = f"{self._prefix}:schema"
        requests = [connection.create_request(b"SCRIPT LOAD", script.text, decode=False) for script in ALL]
        requests.append(connection.create_request(b"SET", key, SCHEMA_VERSION, b"NX", decode=False))
        found = connection.create_request(b"GET", key, decode=False)
        try:
            for request in requests:
                await request
            answer: Any = await found
            version = bytes(answer)
        except redis_errors.WrongTypeError:
            version = b""
        if version != b"%d" % SCHEMA_VERSION:
            newer = version.isdigit() and int(version) > SCHEMA_VERSION
            raise UnreadableArtifactStoreError(
                f"the Redis keys under {self._prefix!r}",
                "newer-schema" if newer else "not-our-schema",
                "they were left as they are; use another prefix, or the afpool that made them",
            )

    # For the verbs.

    def check_open(self) -> trio.Nursery:
        """Refuse a verb before the store was opened, and after it was closed.

        Raises:
            ArtifactStoreClosedError: As said.
        """
        if self.closed or self._tasks is None:
            was = "was closed" if self.closed else "is not open yet"
            raise ArtifactStoreClosedError(
                f"the Redis store {was}; nothing was done; use `async with` on a new object"
            )
        return self._tasks

    async def connected(self) -> BaseConnection:
        """Give a connection that can be used, opening one if there is none.

        Raises:
            ArtifactStoreError: None could be opened.
            UnreadableArtifactStoreError: What is under the prefix is no store, or one of a later version.
        """
        while True:
            tasks = self.check_open()
            connection = self._connection
            if connection is not None and connection.usable:
                return connection
            opening = self._opening
            if opening is None:
                opening = self._opening = trio.Event()
                self._connection = None
                tasks.start_soon(self._open, opening)
            await opening.wait()
            refusal = self._refusal
            if isinstance(refusal, UnreadableArtifactStoreError):
                raise UnreadableArtifactStoreError(refusal.place, refusal.problem, refusal.advice)
            if refusal is not None:
                raise ArtifactStoreError(
                    f"Redis cannot be reached ({_said(refusal)}); nothing was done; see that it runs, and "
                    "that address and password are right"
                )

    def send(self, command: bytes, *args: Any) -> None:
        """Send something whose answer nobody waits for, if there is a connection."""
        connection = self._connection
        if connection is not None and connection.usable:
            connection.create_request(command, *args, decode=False)

    async def run_script(self, script: Script, keys: list[str], *args: Any) -> list[Any]:
        """Run a script and give its answer; see `command`."""
        answer = await self.command(b"EVALSHA", script.digest, len(keys), *keys, *args, script=script)
        return list(answer)

    async def command(self, command: bytes, *args: Any, script: Script | None = None) -> Any:
        """Send a command that may run twice, and give its answer.

        Raises:
            ArtifactStoreError: Redis could not be reached, did not answer in time, or refused.
        """
        sent: BaseConnection | None = None
        losses = 0
        with trio.move_on_after(self._timeout):
            for attempt in range(3):
                try:
                    connection = await self.connected()
                except (ArtifactStoreError, ArtifactStoreClosedError) as error:
                    if sent is None:
                        raise
                    raise self._lost("the connection to Redis was lost for good", sent) from error
                try:
                    request = connection.create_request(command, *args, decode=False)
                    sent = connection
                    return await request
                except redis_errors.NoScriptError:
                    # somebody has emptied Redis's cache of scripts
                    refusal = "NOSCRIPT"
                    if script is not None and attempt < 2:
                        connection.create_request(b"SCRIPT LOAD", script.text, decode=False)
                        continue
                except redis_errors.RedisError as error:
                    lost = isinstance(error, redis_errors.ConnectionError)
                    if lost and not isinstance(error, redis_errors.BusyLoadingError):
                        losses += 1
                        if losses == 2:
                            break
                        continue
                    refusal = _said(error)
                raise ArtifactStoreError(
                    f"Redis refused ({refusal}); nothing was done; see its memory, its disk and its role"
                )
            raise self._lost("the connection to Redis was lost twice", sent)
        if sent is not None:
            sent.invalidate()
        raise self._lost(f"Redis did not answer in {self._timeout:g} s", sent)

    def _lost(self, what: str, sent: BaseConnection | None) -> ArtifactStoreError:
        delivery: Delivery = NOT_SENT if sent is None else IN_DOUBT
        became = "nothing was done" if sent is None else "it may have been done"
        return ArtifactStoreError(
            f"{what}; {became}; see that Redis runs and is not overloaded", delivery=delivery
        )
