"""From a transport of lines to one client's channel: a child process on stdio, or a server in memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from .._base.errors import OpenFailed
from ..transports import SpawnFailed, StdioProcess
from ._plan import MemoryTransport, StdioTransport
from ._stream_channel import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._settings import ClientSettings

LAST_WORDS: Final = 0.5
"""Seconds that a child which has exited may still be read: its last answers may be on their way."""


@final
@attrs.frozen
class StreamWay:
    """A channel and what belongs to it.

    Attributes:
        channel: Nothing was sent on it.
        process: The child, where it is one; its client's to end.
        background: What has to run while the channel is used.
    """

    channel: StreamChannel
    process: StdioProcess | None
    background: tuple[Callable[[], Awaitable[None]], ...]


async def stream_way(transport: StdioTransport | MemoryTransport, settings: ClientSettings) -> StreamWay:
    """Start the child, or ask for the wire to the server in memory.

    Raises:
        OpenFailed: It cannot be started, or the app's `connect` raised.
    """
    if isinstance(transport, StdioTransport):
        try:
            process = await StdioProcess.spawn(transport.config, settings.seams)
        except SpawnFailed as error:
            raise OpenFailed(f"{error}; nothing was sent") from error
        channel = StreamChannel(process.wire, settings.max_message, settings.seams)
        watch = partial(_watch, process, channel)
        return StreamWay(channel, process, (process.run_stderr, channel.run, watch))
    try:
        wire = await transport.connect()
    except Exception as error:
        raise OpenFailed(f"the in-memory server raised {type(error).__name__}; nothing was sent") from error
    channel = StreamChannel(wire, settings.max_message, settings.seams, own_wire=True)
    background = getattr(wire, "background", None)
    runs = (channel.run,) if background is None else (background, channel.run)
    return StreamWay(channel, None, runs)


async def _watch(process: StdioProcess, channel: StreamChannel) -> None:
    """End the stream soon after its child: another process may hold the pipe open for as long as it lives."""
    await process.wait()
    await trio.sleep(LAST_WORDS)
    channel.end("the child has exited")
