"""The one place where bytes are handed to the kernel, and the gate that is asked as they are.

Rules:

* Nothing else in afpool calls `socket.send` or `os.write` for a peer; a test looks for it.
* A message's gate is asked and the non-blocking write is made in **one synchronous step**: between the
  two there is no `await`, so no other task can close the gate in between. A gate reads committed state; it
  must not close another gate while it is asked.
* A message has *begun* when the kernel took its first byte. A message that has begun is finished without
  asking again: half a request on a connection is worth less than a whole one that came too late. A message
  that has not begun is asked again at every step, however long the kernel makes it wait.
* `push` never waits. Whoever needs more of the kernel waits in `writable` and pushes again.
* Reading waits first and takes bytes only afterwards, without a checkpoint: a receive that is cancelled or
  woken has taken nothing, and any other task may call it again.
* `close` and `wake` are synchronous. A task parked here gets `WireClosed` or `Woken`, also when its file
  descriptor had become ready in the same instant.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence  # noqa: TC003  (attrs and callers resolve the annotations)
from contextvars import Context  # noqa: TC003
from typing import Final

import attrs
import trio

from afpool._base.gate import Gate  # noqa: TC001

# Linux only
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)

MAX_JOINED: Final = 256 * 1024
"""The most bytes that `push` joins into one write; a single larger message goes alone."""

READING: Final = 1
WRITING: Final = 2


class WireClosed(Exception):
    """The wire is closed: by the peer, by the network, or by us.

    Args:
        message: What ended it. Never holds bytes of the conversation.
        local: Whether this side closed it.
    """

    def __init__(self, message: str, *, local: bool) -> None:
        super().__init__(message)
        self.local = local


class Woken(Exception):
    """`Wire.wake` was called while a task was parked in the wire. No byte was taken or lost."""


@attrs.define(eq=False)
class Outgoing:
    """One message on its way out.

    Attributes:
        data: The bytes.
        gate: Asked, with stage `write`, in the step that hands over the first byte.
        context: The context the gate is asked in; `None` asks in the running one.
        sent: How many bytes are out. Under TLS a record counts when the kernel has all of it.
        begun: The kernel took a byte.
        refusal: What the gate raised. Nothing of the message left.
    """

    data: bytes
    gate: Gate
    context: Context | None = None
    sent: int = 0
    begun: bool = False
    refusal: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether every byte is out."""
        return self.sent >= len(self.data)

    def admitted(self) -> bool:
        """Ask the gate, and file its refusal. Call it in the step of the write, nowhere else."""
        context = self.context
        try:
            if context is None or context is trio.lowlevel.current_task().context:
                self.gate.ask("write")
            else:
                context.run(self.gate.ask, "write")
        except Exception as error:  # noqa: BLE001  (whatever a gate raises keeps its message from leaving)
            self.refusal = error
            return False
        return True


class Wire(ABC):
    """A duplex byte stream over file descriptors of ours; one writer and one reader at a time.

    Every method but `receive`, `send` and `writable` is synchronous.
    """

    __slots__ = ("_closed", "_parked", "_woken")

    def __init__(self) -> None:
        self._closed = False
        self._parked = 0
        self._woken = 0

    @property
    def closed(self) -> bool:
        """Whether this side closed the wire."""
        return self._closed

    @trio.lowlevel.enable_ki_protection
    def push(self, batch: Sequence[Outgoing]) -> int:
        """Hand as much of `batch` to the kernel as it takes in one write.

        A message that has begun is continued without asking. Each other one is asked (stage `write`) in
        order; a refused one gets `refusal` and is left out, and is passed over when it comes again.

        Returns:
            How many bytes the kernel took; 0 when it would block or nothing was left to send.

        Raises:
            WireClosed: The peer is gone, or `close` was called.
        """
        if self._closed:
            raise closed_here()
        joined: list[Outgoing] = []
        parts: list[bytes | memoryview] = []
        size = 0
        for message in batch:
            left = len(message.data) - message.sent
            if not left or message.refusal is not None:
                continue
            if joined and size + left > MAX_JOINED:
                break
            if not message.begun and not message.admitted():
                continue
            joined.append(message)
            parts.append(memoryview(message.data)[message.sent :] if message.sent else message.data)
            size += left
        if not joined:
            return 0
        if self._closed:
            # A gate runs foreign code; it may have closed the client, and with it this wire.
            raise closed_here()
        taken = self._write(parts[0] if len(parts) == 1 else b"".join(parts))
        if taken:
            _distribute(joined, taken)
        return taken

    async def send(self, data: bytes, gate: Gate) -> None:
        """Send one message whole.

        No checkpoint comes before the first push, and none at all when the kernel takes everything at
        once. Cancelled or woken, the gate's `began` says whether a byte left; a message that has begun can
        only be abandoned by closing the wire.

        Raises:
            WireClosed: The peer is gone, or `close` was called.
            Woken: `wake` was called while waiting for the kernel.
            Exception: What the gate raised; nothing of the message left.
        """
        await self._send(Outgoing(data, gate))

    async def _send(self, message: Outgoing) -> None:
        batch = (message,)
        while True:
            self.push(batch)
            if message.refusal is not None:
                raise message.refusal
            if message.sent >= len(message.data):
                return
            await self.writable()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Wait until there is something to read, then read it; always a checkpoint.

        Returns:
            At least one byte and at most `max_bytes`; `b""` at the end of the stream.

        Raises:
            WireClosed: The connection broke, or `close` was called.
            Woken: `wake` was called meanwhile. Nothing was taken.
        """
        while True:
            await self._park(self._read_fd(), READING)
            data = self.receive_nowait(max_bytes)
            if data is not None:
                return data

    async def writable(self) -> None:
        """Wait until the kernel takes bytes again; always a checkpoint.

        Raises:
            WireClosed: `close` was called meanwhile.
            Woken: `wake` was called meanwhile.
        """
        await self._park(self._write_fd(), WRITING)

    @abstractmethod
    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        """Read what is there: `None` when it would block, `b""` at the end of the stream.

        Raises:
            WireClosed: The connection broke, or `close` was called.
        """

    @abstractmethod
    def alive(self) -> bool:
        """Look, without waiting, whether a quiet connection can still be used."""

    def wake(self) -> None:
        """Make every task that is parked in this wire come back with `Woken`."""
        if self._parked and not self._closed:
            self._woken |= self._parked
            self._unpark()

    def hurry(self) -> None:  # noqa: B027 -- most kinds have nothing to hurry
        """Have what was received acknowledged at once, where the transport lets us; never fails.

        A peer that writes an answer in pieces and lets its kernel wait for acknowledgements would
        otherwise send the next piece 40 ms later.
        """

    def close(self) -> None:
        """Close at once; parked tasks get `WireClosed(local=True)`. A second call does nothing."""
        if not self._closed:
            self._closed = True
            if self._parked:
                self._unpark()
            self._close_fds()

    async def ended(self) -> None:  # noqa: B027 -- most peers live elsewhere
        """After `close`: wait until the peer has ended too, where it lives in this process."""

    async def _park(self, fd: int, side: int) -> None:
        """Wait for `fd` (a negative one: pass a checkpoint), then say why we came back if not for it."""
        if self._parked & side:
            # Refused here: further down it would take the note of the task that does wait.
            raise trio.BusyResourceError("another task already waits here")
        self._parked |= side
        try:
            if fd < 0:
                await trio.lowlevel.checkpoint()
            elif side == READING:
                await trio.lowlevel.wait_readable(fd)
            else:
                await trio.lowlevel.wait_writable(fd)
        except trio.ClosedResourceError:
            # Why is said by the flags below: whoever notified set them before.
            pass
        finally:
            self._parked &= ~side
            woken = self._woken & side
            self._woken &= ~side
        if self._closed:
            raise closed_here()
        if woken:
            raise Woken

    @abstractmethod
    def _write(self, data: bytes | bytearray | memoryview) -> int:
        """One non-blocking write; 0 when the kernel takes nothing."""

    @abstractmethod
    def _read_fd(self) -> int:
        """The descriptor to wait on for reading; raises `WireClosed` when there is none."""

    @abstractmethod
    def _write_fd(self) -> int:
        """The descriptor to wait on for writing; raises `WireClosed` when there is none."""

    @abstractmethod
    def _unpark(self) -> None:
        """Tell trio to wake whoever waits on the descriptors."""

    @abstractmethod
    def _close_fds(self) -> None:
        """Close the descriptors."""


class SocketWire(Wire):
    """A connected TCP or Unix stream socket. Takes the socket over and closes it.

    Args:
        sock: Connected; made non-blocking here.
    """

    __slots__ = ("_fd", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()

    def release(self) -> socket.socket:
        """Give the socket up to another wire; this one is closed without closing the socket.

        Raises:
            WireClosed: It was closed before.
        """
        if self._closed:
            raise closed_here()
        self._closed = True
        return self._sock

    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        """Read what is there; see `Wire.receive_nowait`."""
        if self._closed:
            raise closed_here()
        try:
            return self._sock.recv(max_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _broken(error) from error

    def hurry(self) -> None:
        """See `Wire.hurry`."""
        if _QUICKACK is not None and not self._closed:
            with contextlib.suppress(OSError):  # not TCP
                self._sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def alive(self) -> bool:
        """Whether the peer has neither closed nor said anything: a quiet connection owes us no byte."""
        if self._closed:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @trio.lowlevel.enable_ki_protection
    async def send(self, data: bytes, gate: Gate) -> None:
        """Send one message whole; see `Wire.send`.

        The way of nearly every request: one message, alone, taken whole. Gate and write in one step.
        """
        if self._closed:
            raise closed_here()
        gate.ask("write")
        if self._closed:
            # A gate runs foreign code; it may have closed the client, and with it this wire.
            raise closed_here()
        taken = self._write(data)
        if taken:
            gate.began()
            if taken == len(data):
                return
        message = Outgoing(data, gate)
        message.sent = taken
        message.begun = taken > 0
        await self.writable()
        await self._send(message)

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _broken(error) from error

    def _read_fd(self) -> int:
        if self._closed:
            raise closed_here()
        return self._fd

    def _write_fd(self) -> int:
        if self._closed:
            raise closed_here()
        return self._fd

    def _unpark(self) -> None:
        trio.lowlevel.notify_closing(self._fd)

    def _close_fds(self) -> None:
        # close() may report a late error of the connection; the descriptor is gone all the same.
        with contextlib.suppress(OSError):
            self._sock.close()


class PipeWire(Wire):
    """A child's standard input and output. Takes both descriptors over and closes them.

    Args:
        write_fd: Our end of the child's stdin; made non-blocking here.
        read_fd: Our end of the child's stdout; made non-blocking here.
    """

    __slots__ = ("_in", "_out", "_write_closed")

    def __init__(self, write_fd: int, read_fd: int) -> None:
        super().__init__()
        os.set_blocking(write_fd, False)
        os.set_blocking(read_fd, False)
        self._out = write_fd
        self._in = read_fd
        self._write_closed = False

    def close_write(self) -> None:
        """Close our end of the child's stdin; reading goes on. A second call does nothing.

        A task parked in `send` or `writable` gets `WireClosed(local=True)`.
        """
        if not self._write_closed and not self._closed:
            self._write_closed = True
            if self._parked:
                trio.lowlevel.notify_closing(self._out)
            os.close(self._out)

    def push(self, batch: Sequence[Outgoing]) -> int:
        """Hand as much of `batch` to the kernel as it takes; see `Wire.push`."""
        if self._write_closed:
            raise closed_here()
        return super().push(batch)

    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        """Read what is there; see `Wire.receive_nowait`."""
        if self._closed:
            raise closed_here()
        try:
            return os.read(self._in, max_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _broken(error) from error

    def alive(self) -> bool:
        """Whether both ends still have their peer. Unread output is no fault: a child speaks unasked."""
        if self._closed or self._write_closed:
            return False
        poll = select.poll()
        poll.register(self._out, 0)
        poll.register(self._in, select.POLLIN)
        events = dict(poll.poll(0))
        if events.get(self._out, 0):
            return False
        seen = events.get(self._in, 0)
        return not seen & (select.POLLHUP | select.POLLERR) or bool(seen & select.POLLIN)

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        if self._write_closed:
            raise closed_here()
        try:
            return os.write(self._out, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _broken(error) from error

    async def _park(self, fd: int, side: int) -> None:
        await super()._park(fd, side)
        if side == WRITING and self._write_closed:
            raise closed_here()

    def _read_fd(self) -> int:
        if self._closed:
            raise closed_here()
        return self._in

    def _write_fd(self) -> int:
        if self._closed or self._write_closed:
            raise closed_here()
        return self._out

    def _unpark(self) -> None:
        trio.lowlevel.notify_closing(self._in)
        if not self._write_closed:
            trio.lowlevel.notify_closing(self._out)

    def _close_fds(self) -> None:
        os.close(self._in)
        if not self._write_closed:
            self._write_closed = True
            os.close(self._out)


def _distribute(messages: list[Outgoing], taken: int) -> None:
    """Say how far each message got, then tell the gates of those that have begun now."""
    begun: list[Gate] = []
    for message in messages:
        if not taken:
            break
        part = min(taken, len(message.data) - message.sent)
        message.sent += part
        taken -= part
        if not message.begun:
            message.begun = True
            begun.append(message.gate)
    for gate in begun:
        gate.began()


def closed_here() -> WireClosed:
    """What a wire says that this side closed."""
    return WireClosed("this side closed the connection", local=True)


def _broken(error: OSError) -> WireClosed:
    return WireClosed(error.strerror or type(error).__name__, local=False)
