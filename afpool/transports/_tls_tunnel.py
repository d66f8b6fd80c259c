"""TLS inside TLS: a secure origin behind a proxy that is spoken to over TLS as well.

The records for the origin are the plain text of the records for the proxy. Rules, beside those of `_tls.py`:

* The gate is asked, the request encrypted twice and the records handed to the kernel in one synchronous step.
* What the lower layer has encrypted is *taken* only when the kernel has it. Its first byte counts at once, so
  that a request is known to have begun; the last one only with the whole record, so that nothing is taken for
  sent that still lies here.
* What the lower layer says on its own (a key update) goes out alone and counts for nothing.
* The end of the lower layer, orderly or not, is the end of the connection: only the origin's own goodbye says
  that an answer is whole.
"""

from __future__ import annotations

import ssl
from typing import Final

from afpool.transports._tls import TlsWire
from afpool.transports._wire import SocketWire, WireClosed

_PIECE: Final = 256 * 1024


class TlsInTlsWire(TlsWire):
    """A TLS connection through one that is open already; takes its socket over. Made by `handshake`."""

    __slots__ = ("_below", "_below_in", "_below_out", "_ended", "_pending", "_plain", "_told")

    def __init__(self, wire: SocketWire, context: ssl.SSLContext, server_hostname: str | None) -> None:
        assert isinstance(wire, TlsWire)
        self._below, self._below_in, self._below_out = wire.layer()
        self._pending = bytearray()  # records of the lower layer that the kernel has not taken
        self._plain = 0  # bytes that they carry
        self._told = 0  # of these, how many the caller was told to be out
        self._ended = False  # the lower layer
        super().__init__(wire, context, server_hostname)

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypt once more and write; `data` goes on where the last count ended."""
        if not self._plain:
            if self._below_out.pending:
                self._pending += self._below_out.read()
            if self._pending:
                self._hand_over()
                if self._pending:
                    return 0
            self._plain = self._wrap(bytes(data[:_PIECE]))
            self._told = 0
        taken = self._hand_over()
        if not self._pending:
            left = self._plain - self._told
            self._plain = 0
            return left
        if taken and not self._told and self._plain > 1:
            self._told = 1
            return 1
        return 0

    def _wrap(self, data: bytes) -> int:
        done = 0
        reason = ""
        try:
            while done < len(data):
                done += self._below.write(data[done:] if done else data)
        except ssl.SSLError as error:
            reason = error.reason or type(error).__name__
        if reason:
            raise WireClosed(f"TLS with the proxy: {reason}", local=False)
        self._pending += self._below_out.read()
        return done

    def _hand_over(self) -> int:
        taken = super()._write(self._pending)
        if taken:
            del self._pending[:taken]
        return taken

    def _records(self) -> bytes | None:
        """The origin's records: all that the lower layer gives for what is there."""
        while not self._ended:
            records = super()._records()
            if records is None:
                return None
            if not records:
                break
            self._below_in.write(records)
            data, self._ended = self._unwrap()
            if data:
                return data
        return b""

    def _unwrap(self) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        reason = ""
        try:
            while True:
                part = self._below.read(65536)
                if not part:
                    return b"".join(parts), True
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLZeroReturnError:
            return b"".join(parts), True
        except ssl.SSLError as error:
            reason = error.reason or type(error).__name__
        raise WireClosed(f"TLS with the proxy: {reason}", local=False)
