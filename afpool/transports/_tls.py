"""TLS over our own socket, with the gate asked before a record is made.

OpenSSL works on memory buffers here; the socket stays ours. Rules, beside those of `_wire.py`:

* The gate is asked, the message encrypted and the records handed to the kernel in one synchronous step.
* Only one message at a time is encrypted, in pieces: a message whose records lie in the buffer is *at the
  head*. Records cannot be taken back, because their numbers are used up. So when the gate of the head
  closes while the kernel has taken none of it, the wire is *spoiled*: nothing of the request left, and
  nothing else can ever leave. The message gets its refusal, and the wire must be closed.
* What the protocol itself has to say (a key update, an alert) is not a request and asks no gate. It goes
  out behind the head, never instead of it: the record order is one.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Sequence  # noqa: TC003
from typing import Final

import trio

from afpool._base.gate import Gate  # noqa: TC001
from afpool.transports._wire import READING, Outgoing, SocketWire, WireClosed, closed_here

_PIECE: Final = 256 * 1024
"""How much of a message is encrypted ahead of the kernel."""


class TlsWire(SocketWire):
    """A TLS connection. Made by `handshake`."""

    __slots__ = (
        "_broken",
        "_cut",
        "_goodbye",
        "_head",
        "_head_left",
        "_head_plain",
        "_incoming",
        "_outgoing",
        "_ssl",
        "_unsent",
    )

    def __init__(self, wire: SocketWire, context: ssl.SSLContext, server_hostname: str | None) -> None:
        super().__init__(wire.release())
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        except BaseException:
            super().close()
            raise
        self._unsent = bytearray()
        self._head: Outgoing | None = None
        self._head_left = 0
        self._head_plain = 0
        self._broken = ""
        self._goodbye = False  # the peer has said that it is done
        self._cut = False  # the connection has ended, with or without it

    @classmethod
    async def handshake(
        cls, wire: SocketWire, context: ssl.SSLContext, server_hostname: str | None
    ) -> TlsWire:
        """Take the socket of a connected wire over and shake hands on it.

        Cancelled or failed, the socket is closed. The caller owns the deadline.

        Args:
            wire: Connected, with nothing sent or read yet.
            context: Decides whom to trust.
            server_hostname: For SNI and for the check of the certificate.

        Raises:
            ssl.SSLError: The peer's certificate or its TLS is not acceptable, or the peer refuses ours.
            WireClosed: The connection ended during the handshake.
        """
        self = cls(wire, context, server_hostname)
        try:
            while True:
                try:
                    self._ssl.do_handshake()
                except ssl.SSLWantReadError:
                    await self._drain()
                    await self._fill()
                else:
                    await self._drain()
                    return self
        except BaseException as error:
            if isinstance(error, ssl.SSLError):
                # The alert says to the peer's operator what was wrong.
                self._collect()
                with contextlib.suppress(WireClosed):
                    self._flush()
            self._broken = "the handshake failed"
            self.close()
            raise

    @property
    def tls_version(self) -> str | None:
        """The protocol version spoken, such as `TLSv1.3`."""
        return self._ssl.version()

    async def send(self, data: bytes, gate: Gate) -> None:
        """Send one message whole; see `Wire.send`. What leaves are records, so `push` does it all."""
        await self._send(Outgoing(data, gate))

    @trio.lowlevel.enable_ki_protection
    def push(self, batch: Sequence[Outgoing]) -> int:
        """Hand as much of `batch` to the kernel as it takes; see `Wire.push`.

        Returns:
            How many bytes of records the kernel took.

        Raises:
            WireClosed: The peer is gone, `close` was called, or the wire is spoiled: the message at its
                head was refused or given up after it was encrypted.
        """
        self._check_usable()
        total = 0
        for message in batch:
            if message.refusal is not None or message.sent >= len(message.data):
                continue
            if self._head is not None and self._head is not message:
                self._broken = "an encrypted message was given up"
                self._check_usable()
            if not message.begun and not message.admitted():
                if self._head is message:
                    self._broken = "an encrypted message was refused"
                    return total
                continue
            self._check_usable()
            while message.sent < len(message.data):
                if self._head is None:
                    if self._unsent:
                        total += self._flush()
                        if self._unsent:
                            return total
                    self._encrypt(message)
                total += self._flush()
                if self._head is not None:
                    return total
        return total

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Read decrypted bytes; see `Wire.receive`. Truncation without a TLS goodbye is `WireClosed`."""
        if not self._closed and (self._incoming.pending or self._ssl.pending()):
            # Bytes are here already, so there may be nothing to wait for; a checkpoint stands all the same.
            await self._park(-1, READING)
            data = self.receive_nowait(max_bytes)
            if data is not None:
                return data
        return await super().receive(max_bytes)

    def receive_nowait(self, max_bytes: int = 65536) -> bytes | None:
        """Read what is there; see `Wire.receive_nowait`."""
        if self._closed:
            raise closed_here()
        while True:
            data = self._decrypt(max_bytes)
            if data is not None:
                return data
            records = self._records()
            if records is None:
                return None
            self._feed(records)

    def alive(self) -> bool:
        """Whether the connection can still carry a request. Session tickets are read and are no fault."""
        if self._closed or self._broken or self._head is not None:
            return False
        try:
            return self.receive_nowait(1) is None
        except WireClosed:
            return False

    def holds(self, message: Outgoing) -> bool:
        """Whether a message lies encrypted in the buffer, so that giving it up spoils the wire."""
        return self._head is message

    def close(self) -> None:
        """Say goodbye if the kernel takes it, and close at once; see `Wire.close`."""
        if not self._closed and not self._broken and self._head is None:
            # Fails where the peer has not said goodbye yet, and where the handshake is not over.
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._collect()
            with contextlib.suppress(WireClosed):
                self._flush()
        super().close()

    def layer(self) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
        """What another TLS that is spoken through this one builds upon, once it has taken the socket over."""
        return self._ssl, self._incoming, self._outgoing

    def _records(self) -> bytes | None:
        """What the socket has: `None` when nothing is there, `b""` at its end."""
        return super().receive_nowait()

    def _check_usable(self) -> None:
        if self._closed:
            raise closed_here()
        if self._broken:
            raise WireClosed(f"this TLS connection is unusable: {self._broken}", local=True)

    def _encrypt(self, message: Outgoing) -> None:
        """Put the next piece of `message` at the head."""
        piece = memoryview(message.data)[message.sent : message.sent + _PIECE]
        done = 0
        reason = ""
        try:
            while done < len(piece):
                done += self._ssl.write(piece[done:])
        except ssl.SSLError as error:
            reason = error.reason or type(error).__name__
        if reason:
            self._broken = "it ended"
            raise WireClosed(f"TLS: {reason}", local=False)
        self._collect()
        self._head = message
        self._head_plain = done
        self._head_left = len(self._unsent)

    def _flush(self) -> int:
        """One write of what is encrypted; says what it means for the head."""
        if not self._unsent:
            return 0
        taken = self._write(self._unsent)
        if not taken:
            return 0
        del self._unsent[:taken]
        head = self._head
        if head is not None:
            first = not head.begun
            head.begun = True
            self._head_left -= taken
            if self._head_left <= 0:
                head.sent += self._head_plain
                self._head = None
            if first:
                head.gate.began()
        return taken

    def _collect(self) -> None:
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()

    def _feed(self, records: bytes) -> None:
        if records:
            self._incoming.write(records)
        else:
            self._cut = True
            self._incoming.write_eof()

    def _decrypt(self, max_bytes: int) -> bytes | None:
        """Decrypt what is in the buffer: `None` when no whole record is, `b""` after the peer's goodbye."""
        parts: list[bytes] = []
        size = 0
        ended = False
        reason = ""
        try:
            while size < max_bytes:
                part = self._ssl.read(max_bytes - size)
                if not part:
                    ended = True
                    break
                parts.append(part)
                size += len(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            # OpenSSL's words for the failure, never the peer's bytes.
            reason = error.reason or type(error).__name__
        if ended and not self._goodbye:
            # Some builds of OpenSSL take the end of the connection for a goodbye; it is one only before that.
            self._goodbye = not self._cut
            if self._cut:
                reason = "the connection ended without a goodbye"
        self._answer_protocol()
        if parts:
            # What came before an end is handed out first; the end is met again at the next read.
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if reason:
            self._broken = "it ended"
            raise WireClosed(f"TLS: {reason}", local=False)
        return b"" if ended else None

    def _answer_protocol(self) -> None:
        """Send what OpenSSL wants to say on its own, unless that would push out a message not begun."""
        if not self._outgoing.pending and not self._unsent:
            return
        self._collect()
        if self._head is None or self._head.begun:
            # A peer that reads no more may still have something to say; the next push reports it.
            with contextlib.suppress(WireClosed):
                self._flush()

    async def _drain(self) -> None:
        """Send what the handshake wants sent."""
        self._collect()
        while True:
            self._flush()
            if not self._unsent:
                return
            await self.writable()

    async def _fill(self) -> None:
        """Wait for more of the peer's handshake."""
        while True:
            await self._park(self._read_fd(), READING)
            records = self._records()
            if records == b"":
                raise WireClosed("the peer closed the connection during the TLS handshake", local=False)
            if records is not None:
                self._feed(records)
                return
