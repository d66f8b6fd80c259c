"""The listening socket, which can be shut and opened again on the same port."""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress

import trio

_BACKLOG = 1024
_memory_ports = itertools.count()


class Door:
    """Listens on one address.

    Args:
        host: A numeric address; a name would need a thread to resolve.
        port: 0 takes a free one, which is then kept.
        uds: Path of a Unix socket to listen on instead.
    """

    def __init__(self, host: str, port: int, uds: str | None = None) -> None:
        self.host = host
        self.port = port
        self.uds = uds
        self._listening: trio.socket.SocketType | None = None
        self._opened = trio.Event()

    async def open(self) -> None:
        """Listen; nothing but a checkpoint if it does. Raises OSError if the address is taken."""
        if self._listening is not None:
            await trio.lowlevel.checkpoint()
            return
        family = trio.socket.AF_INET6 if ":" in self.host else trio.socket.AF_INET
        if self.uds is not None:
            family = trio.socket.AF_UNIX
            with suppress(FileNotFoundError):
                os.unlink(self.uds)  # noqa: PTH108 -- what an earlier listener left behind
        sock = trio.socket.socket(family, trio.socket.SOCK_STREAM)
        try:
            # Without this, connections of before that linger would keep the port taken.
            if self.uds is None:
                sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
            await sock.bind((self.host, self.port) if self.uds is None else self.uds)
            sock.listen(_BACKLOG)
        except BaseException:
            sock.close()
            raise
        if self.uds is None:
            self.port = sock.getsockname()[1]
        self._listening = sock
        self._opened.set()

    def shut(self) -> None:
        """Stop listening."""
        self._opened = trio.Event()
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    @property
    def is_open(self) -> bool:
        """Whether it listens."""
        return self._listening is not None

    async def accept(self) -> trio.socket.SocketType:
        """The next connection; waits while the door is shut.

        Raises:
            OSError: This process has no file descriptors left.
        """
        while True:
            await self._opened.wait()
            listening = self._listening
            if listening is None:
                continue
            try:
                sock, _ = await listening.accept()
            except trio.ClosedResourceError:
                continue
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE}:
                    raise
                # The client was gone before it was accepted, or the door was shut in this moment.
                await trio.lowlevel.checkpoint()
                continue
            return sock


class MemoryDoor:
    """The same without a socket: connections are handed over, and it only says whether they are taken.

    Args:
        host: Any name.
        port: Any number; 0 takes one that no other door of this process has.
    """

    uds = None

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port or 1024 + next(_memory_ports) % 64000
        self.is_open = False

    async def open(self) -> None:
        """Take connections; a checkpoint."""
        await trio.lowlevel.checkpoint()
        self.is_open = True

    def shut(self) -> None:
        """Take none."""
        self.is_open = False

    async def accept(self) -> trio.socket.SocketType:
        """Never comes back: whoever connects hands the connection over."""
        await trio.sleep_forever()
        raise AssertionError("slept for ever")
