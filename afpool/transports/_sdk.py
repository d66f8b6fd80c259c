"""A wire to a server object of the official SDK that lives in this process.

The SDK's servers run on two object streams. What this wire writes are lines of JSON, and each is handed to
the server as a message of the SDK's own type. Rules:

* The step is the one of every wire: `Wire.push` asks the gate, and `_write` decodes the line and puts the
  message into the server's stream, without a wait between the two. A line is taken whole or not at all.
* At most `QUEUED` messages wait for the server, and at most a wire's capacity of answers waits for us.
* The server runs in a task that this wire is given, and ends with the wire: it sees the end of its stream,
  and what it still does after `GRACE` seconds is cancelled.
* A server that raises ends its wire, and nothing else.
* The SDK is found by the server object and imported when it is first needed; lines 1 (from 1.8) and 2 are
  known. Nothing of afpool depends on it.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import math
import weakref
from collections.abc import Awaitable, Callable, Iterator  # noqa: TC003  (callers resolve the annotations)
from typing import Any, Final

import anyio
import attrs
import trio
from anyio.abc import ObjectReceiveStream

from afpool.transports._memory import DEFAULT_CAPACITY, MemoryWire, _Channel
from afpool.transports._wire import READING, WireClosed

logger = logging.getLogger("afpool")

QUEUED: Final = 64
"""Messages that may wait for the server; more stay with the sender, whose gate is asked again."""

GRACE: Final = 1.0
"""Seconds that a server has to end by itself once its stream has ended."""

# Where the high-level servers of the SDK keep the one that speaks the protocol.
_INNER: Final = ("_mcp_server", "_lowlevel_server")

_numbers: Iterator[int] = itertools.count(1)
_numbered: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()


@attrs.frozen
class SdkMessages:
    """How messages of one line of the SDK are made and read.

    Attributes:
        decode: Makes a message out of JSON; raises if it is none.
        encode: Gives the JSON of a message.
    """

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], str]


def sdk_messages() -> SdkMessages:
    """Find the SDK that is installed.

    Raises:
        ImportError: There is none, or one that is too old.
    """
    session_message = importlib.import_module("mcp.shared.message").SessionMessage
    model = importlib.import_module("mcp.types").JSONRPCMessage
    if hasattr(model, "model_validate_json"):
        return SdkMessages(
            lambda line: session_message(model.model_validate_json(line)),
            lambda item: str(item.message.model_dump_json(by_alias=True, exclude_none=True)),
        )
    adapter = importlib.import_module("mcp_types").jsonrpc_message_adapter
    return SdkMessages(
        lambda line: session_message(adapter.validate_json(line, by_name=False)),
        lambda item: str(item.message.model_dump_json(by_alias=True, exclude_unset=True)),
    )


def lowlevel_server(server: object) -> Any:
    """Give the server object that runs on streams: the one given, or the one inside it.

    Raises:
        TypeError: It is no server of the SDK.
    """
    for name in _INNER:
        server = getattr(server, name, server)
    if not all(callable(getattr(server, name, None)) for name in ("run", "create_initialization_options")):
        raise TypeError(f"{type(server).__name__} is no server of the official MCP SDK")
    return server


def server_name(server: object) -> str:
    """A name that no other server object of this process has, and this one keeps.

    Raises:
        TypeError: The object cannot be a key of a weak map.
    """
    try:
        number = _numbered.get(server)
        if number is None:
            number = _numbered[server] = next(_numbers)
    except TypeError:
        raise TypeError(
            f"{type(server).__name__} cannot be told from others by itself; give it a name"
        ) from None
    name = getattr(server, "name", None)
    return f"{name if isinstance(name, str) else type(server).__name__}#{number}"


class SdkWire(MemoryWire):
    """Our end of one connection to a server object.

    Attributes:
        background: Set to `serve` where the pool is to run it; else whoever made the wire does.

    Args:
        server: What `lowlevel_server` gave.
        options: The SDK's initialization options; the server's own by default.

    Raises:
        ImportError: The SDK is not installed, or too old.
    """

    __slots__ = (
        "_done", "_from_server", "_messages", "_options", "_over", "_queued", "_served", "_server",
        "_to_server", "background",
    )  # fmt: skip

    def __init__(self, server: Any, options: Any = None) -> None:
        super().__init__(_Channel(DEFAULT_CAPACITY), _Channel(DEFAULT_CAPACITY))
        self._messages = sdk_messages()
        self._server = server
        self._options = options
        self._queued = 0
        self._done = trio.Event()
        # Bounded by `QUEUED` and not by the stream: `_write` must be able to tell before it decodes.
        self._to_server, self._from_server = anyio.create_memory_object_stream[Any](math.inf)
        self._served = False
        self._over = trio.Event()
        self.background: Callable[[], Awaitable[None]] | None = None

    async def serve(self) -> None:
        """Run the server until it ends or the wire is closed; once. Raises nothing that the server raises."""
        if self._served:
            raise RuntimeError("a server runs once per wire")
        self._served = True
        write, read_back = anyio.create_memory_object_stream[Any](0)
        try:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end_in_time, scope)
                    nursery.start_soon(self._pump, read_back)
                    options = self._options
                    if options is None:
                        options = self._server.create_initialization_options()
                    async with write:
                        await self._server.run(_Inbox(self._from_server, self._taken), write, options)
                    nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            failed, rest = group.split(Exception)
            if failed is not None:
                # Without its text, which is the app's and may hold anything.
                logger.warning("an in-memory server ended with %s", type(_leaf(failed)).__name__)
            if rest is not None:
                raise rest from None
        finally:
            self._to_server.close()
            self._from_server.close()
            write.close()
            read_back.close()
            self._incoming.writer_gone = True
            self._outgoing.reader_gone = True
            self._unpark()
            self._over.set()

    async def _end_in_time(self, scope: trio.CancelScope) -> None:
        await self._done.wait()
        await trio.sleep(GRACE)
        scope.cancel()

    async def _pump(self, read_back: ObjectReceiveStream[Any]) -> None:
        """Carry the server's messages over; a reader that is slow holds the server up."""
        channel = self._incoming
        async for item in read_back:
            channel.buffer += self._messages.encode(item).encode() + b"\n"
            channel.readers.unpark_all()
            while len(channel.buffer) >= channel.capacity and not self._closed:
                await channel.writers.park()

    def _taken(self) -> None:
        self._queued -= 1
        self._outgoing.writers.unpark_all()

    async def ended(self) -> None:
        """Wait until the server has ended; after `close` that is at most `GRACE` seconds."""
        if self._served:
            await self._over.wait()

    # ------------------------------------------------------------------ the wire

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        if self._outgoing.reader_gone:
            raise WireClosed("the server has ended", local=False)
        taken = 0
        for line in bytes(data).split(b"\n")[:-1]:
            if self._queued >= QUEUED:
                break
            item: Any
            try:
                item = self._messages.decode(line)
            except ValueError as error:
                # As the SDK's own transports do with what is no message.
                item = error
            try:
                self._to_server.send_nowait(item)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise WireClosed("the server has ended", local=False) from None
            self._queued += 1
            taken += len(line) + 1
        self.writes += bool(taken)
        return taken

    def _ready(self, side: int) -> bool:
        if side == READING:
            return super()._ready(side)
        return self._outgoing.reader_gone or self._write_closed or self._queued < QUEUED

    def close_write(self) -> None:
        """End our direction: the server reads what is left and then the end."""
        super().close_write()
        self._to_server.close()

    def _close_fds(self) -> None:
        super()._close_fds()
        self._done.set()


class _Inbox(ObjectReceiveStream[Any]):
    """What the server reads from; says when it has taken a message."""

    def __init__(self, stream: ObjectReceiveStream[Any], taken: Callable[[], None]) -> None:
        self._stream = stream
        self._taken = taken

    async def receive(self) -> Any:
        """The next message; see the SDK."""
        item = await self._stream.receive()
        self._taken()
        return item

    async def aclose(self) -> None:
        """The server reads no more."""
        await self._stream.aclose()


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
