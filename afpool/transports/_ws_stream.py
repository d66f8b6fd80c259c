"""The byte stream under the WebSocket library, which asks the gate of the frame at its head.

The library's own send runs a checkpoint between taking a message and writing it, so no gate above it is the
last one. It writes to this stream, and this stream to a `Wire`. Rules:

* A text frame belongs to the message that its writer has announced in `head`; there is one writer, and the
  library writes one frame at a time. `send_all` asks that message's gate, in the context of its call, and
  hands the first byte to the kernel in the same step (`Wire.push`).
* A frame that has not begun is asked again each time the kernel takes nothing. Refused or withdrawn it is
  left out, and the connection stays usable: every frame is masked by itself, and the library keeps nothing
  of it. Under TLS a frame that was encrypted already costs the connection; not one byte of it left.
* A frame that has begun is finished without asking. It is torn only where the whole connection ends.
* Handshake, ping, pong and close are the connection's own and ask no gate. No text frame follows a close
  frame that has gone out.
* A peer that takes no more bytes is told to the owner, not to the library, which would stop reading: the
  last answers may still be on their way.
* The head of the answer to the upgrade is read here too, so that a refusal is known as soon as its head is
  there, whatever its body is or fails to be. An answer that is none is left to the library to judge.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  (callers resolve the annotations)
from typing import Final

import h11
import trio

from afpool._base.gate import OpenGate
from afpool.transports._connection import Headers  # noqa: TC001
from afpool.transports._tls import TlsWire
from afpool.transports._wire import Outgoing, Wire, WireClosed, Woken

_TEXT: Final = 0x81
_CLOSE: Final = 0x88
_CHUNK: Final = 64 * 1024
_SWITCHING: Final = 101


class UpgradeRefused(Exception):
    """The connection did not become a WebSocket; nothing but the upgrade request was sent on it.

    Args:
        message: What happened. Never holds bytes of the conversation.
        status: The HTTP status of the answer, if there was one.
        headers: Of that answer.
    """

    def __init__(self, message: str, *, status: int | None = None, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers: Headers = headers or []


class GatedStream(trio.abc.Stream):
    """See the module. Takes the wire over and closes it.

    Args:
        wire: Connected; under TLS where the address asks for it.
        wanted: Whether a message that has not begun is still to be sent.
        on_refused: Told, in the step of the refusal, of the message whose gate refused. Must not raise.
        on_broken: Told once why nothing can be sent any more.
        on_ended: Told once why nothing can be read any more; `refused` is set before.
        on_read: Called before each read. Must not raise.

    Attributes:
        head: The message whose text frame comes next.
        begun: Something has been written: the upgrade request, at least.
        pushing: A gate is being asked, or the kernel, in this very step.
        refused: The server's refusal of the upgrade, once its head is there.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        wanted: Callable[[Outgoing], bool],
        on_refused: Callable[[Outgoing], None],
        on_broken: Callable[[WireClosed], None],
        on_ended: Callable[[str], None],
        on_read: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._wanted = wanted
        self._on_refused = on_refused
        self._on_broken = on_broken
        self._on_ended = on_ended
        self._on_read = on_read
        self._said_goodbye = False
        self._answer: h11.Connection | None = _upgrading()
        self.head: Outgoing | None = None
        self.begun = False
        self.pushing = False
        self.refused: UpgradeRefused | None = None

    def holds(self, message: Outgoing) -> bool:
        """Whether giving up a message that has not begun spoils the wire, since it is encrypted already."""
        return isinstance(self._wire, TlsWire) and self._wire.holds(message)

    def close_now(self) -> None:
        """Close at once; synchronous. Whoever waits here gets an error."""
        self._wire.close()

    # ------------------------------------------------------------------ what the library calls

    @trio.lowlevel.enable_ki_protection
    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send one frame whole, or leave it out; see the rules. No checkpoint where the kernel takes it all.

        A connection that is broken is told to the owner and not raised.
        """
        frame = bytes(data)
        self.begun = True
        if frame[0] != _TEXT:
            await self._send(Outgoing(frame, OpenGate()))
            self._said_goodbye = self._said_goodbye or frame[0] == _CLOSE
            return
        message, self.head = self.head, None
        if message is None:
            raise RuntimeError("a text frame that no message was announced for")
        # The message goes to the wire in the form that the library gave it.
        message.data = frame
        await self._send(message, optional=True)

    async def _send(self, message: Outgoing, *, optional: bool = False) -> None:
        batch = (message,)
        while True:
            if optional and not message.begun and (self._said_goodbye or not self._wanted(message)):
                return
            try:
                self.pushing = True
                try:
                    self._wire.push(batch)
                finally:
                    self.pushing = False
                if message.refusal is not None:
                    self._on_refused(message)
                    # Raises where the refused message was encrypted and has spoiled the wire.
                    self._wire.push(())
                    return
                if message.done:
                    return
                await self._wire.writable()
            except Woken:
                continue
            except WireClosed as error:
                self._on_broken(error)
                return

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the kernel takes bytes; always a checkpoint."""
        try:
            await self._wire.writable()
        except (WireClosed, Woken) as error:
            raise trio.BrokenResourceError from error

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Read what has come; `b""` at the end. Always a checkpoint.

        Raises:
            trio.BrokenResourceError: The connection broke, or the upgrade was refused.
        """
        self._on_read()
        while True:
            try:
                data = await self._wire.receive(max_bytes or _CHUNK)
            except Woken:
                continue
            except WireClosed as error:
                self._on_ended(str(error))
                raise trio.BrokenResourceError from None
            if not data:
                self._on_ended("the server closed the connection")
            elif self._answer is not None:
                self._look_at(data, self._answer)
                if self.refused is not None:
                    self._on_ended("the server refused the upgrade")
                    raise trio.BrokenResourceError
            return data

    async def aclose(self) -> None:
        """Close at once."""
        self._wire.close()
        await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------ the answer to the upgrade

    def _look_at(self, data: bytes, answer: h11.Connection) -> None:
        try:
            answer.receive_data(data)
            event = answer.next_event()
        except h11.RemoteProtocolError:
            self._answer = None
            return
        if event is h11.NEED_DATA:
            return
        self._answer = None
        if isinstance(event, h11.Response | h11.InformationalResponse) and event.status_code != _SWITCHING:
            self.refused = UpgradeRefused(
                f"the server answered the upgrade to WebSocket with HTTP status {event.status_code}",
                status=event.status_code,
                headers=list(event.headers),
            )


def _upgrading() -> h11.Connection:
    """An HTTP client that has just asked for an upgrade, so that it reads the answer as one."""
    connection = h11.Connection(h11.CLIENT)
    headers = [("host", "localhost"), ("connection", "upgrade"), ("upgrade", "websocket")]
    connection.send(h11.Request(method="GET", target="/", headers=headers))
    connection.send(h11.EndOfMessage())
    return connection
