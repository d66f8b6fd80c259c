"""A WebSocket on a blocking socket: bytes to JSON objects and back, pings answered.

Rules:

* ^C is taken only where this waits for bytes, so never between bytes that were read and the message that they
  are part of: a connection is good after any ^C.
* Once it has ended, it says why, and what came before is still read.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from .._failures import Failure
from .._text import cut, one_line
from ._interrupts import guarded

if TYPE_CHECKING:
    from wsproto.events import Event

    from ..._base.secret import Secret
    from ._target import Target

SUBPROTOCOL: Final = "afpool.console.1"
_CONNECTING: Final = 10.0
_SENDING: Final = 30.0
_MOST: Final = 64 * 1024 * 1024
_WORDS: Final = 300


class Lost(Failure):
    """The connection ended.

    Attributes:
        asked: Something was asked on it that was not answered.
    """

    def __init__(self, why: str, *, asked: bool = False) -> None:
        super().__init__(f"the connection to the console is lost: {why}")
        self.asked = asked


class Wire:
    """A connection whose upgrade is under way.

    Args:
        target: Where to.
        token: Sent as a bearer token.

    Attributes:
        said: Objects that came and nobody has taken.
        pongs: How many answers to pings came.
        ended: Why it is over; `None` while it is not.
        rejected: Status and body of an answer that is no upgrade.

    Raises:
        Failure: It cannot be reached.
    """

    def __init__(self, target: Target, token: Secret | None) -> None:
        self.said: deque[dict[str, Any]] = deque()
        self.pongs = 0
        self.ended: str | None = None
        self.rejected: tuple[int, bytearray] | None = None
        self._parts: list[str] = []
        self._size = 0
        self._ws = WSConnection(ConnectionType.CLIENT)
        self.socket = _connected(target)
        try:
            self._send(
                Request(
                    host=target.authority,
                    target=target.resource,
                    extra_headers=[] if token is None else [_shown(token)],
                    subprotocols=[SUBPROTOCOL],
                )
            )
        except Lost:
            self.close()
            raise

    def say(self, value: Any) -> None:
        """Send an object.

        Raises:
            Lost: The connection has ended; none of it was understood.
        """
        self._send(TextMessage(json.dumps(value)))

    def ping(self) -> None:
        """Send a ping."""
        self._send(Ping(b"afpool"))

    def pump(self, until: float, *, resized: bool = False) -> None:
        """Wait for bytes until then, on the monotonic clock, and read what is there.

        Args:
            until: When to give up.
            resized: A change of the terminal's size ends the wait, too.

        Raises:
            Lost: The connection has ended.
            KeyboardInterrupt: ^C, while it waited.
        """
        if self.ended is not None:
            raise Lost(self.ended)
        with guarded(resized=resized) as interrupts:
            wait = max(until - time.monotonic(), 0.0)
            ready, _, _ = select.select([self.socket, *interrupts], [], [], wait)
            if self.socket not in ready:
                return
            try:
                self.socket.settimeout(0.0)
                # more than a record of TLS has, so that none of it is left where no `select` sees it
                data = self.socket.recv(262_144)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if type(error).__name__ in {"SSLWantReadError", "SSLWantWriteError"}:
                    return
                self._end(words_of(error))
                data = b""
            self._read(data)

    def close(self) -> None:
        """End it. What comes of that is nobody's concern."""
        if self.ended is None and self._ws.state is ConnectionState.OPEN:
            self._reply(CloseConnection(1000), 0.2)
        self._end("it was closed here")
        self.socket.close()

    # ------------------------------------------------------------------ inside

    def _send(self, event: Event) -> None:
        if self.ended is not None:
            raise Lost(self.ended)
        why = self._sent(event)
        del event  # the first one holds the token, and a traceback may show locals
        if why is not None:
            self._end(why)
            raise Lost(why)

    def _sent(self, event: Event) -> str | None:
        """Send it, or say why it could not be."""
        try:
            data = self._ws.send(event)
            with guarded(interrupts=False):
                self.socket.settimeout(_SENDING)
                self.socket.sendall(data)
        except (OSError, LocalProtocolError) as error:
            return words_of(error)
        return None

    def _read(self, data: bytes) -> None:
        try:
            self._ws.receive_data(data or None)
            for event in self._ws.events():
                self._happened(event)
        except (RemoteProtocolError, LocalProtocolError, ValueError, RecursionError):
            self._end("what came is no WebSocket of a console")
        if not data:
            self._end("the process closed it, or is gone")

    def _happened(self, event: Event) -> None:
        if isinstance(event, TextMessage):
            self._message(event)
        elif isinstance(event, Ping):
            self._reply(event.response())
        elif isinstance(event, Pong):
            self.pongs += 1
        elif isinstance(event, CloseConnection):
            if self._ws.state is ConnectionState.REMOTE_CLOSING:
                self._reply(event.response())
            reason = cut(one_line(event.reason or ""), _WORDS)
            gone = "the process closed it, or is gone"
            self._end(reason or (gone if event.code == 1006 else f"the process closed it ({event.code})"))
        elif isinstance(event, RejectConnection):
            self.rejected = (event.status_code, bytearray())
            if not event.has_body:
                self._end("it was refused")
        elif isinstance(event, RejectData) and self.rejected is not None:
            if len(self.rejected[1]) < 4096:
                self.rejected[1].extend(event.data)
            if event.body_finished:
                self._end("it was refused")
        elif not isinstance(event, AcceptConnection):
            raise ValueError  # bytes: no console sends them

    def _message(self, event: TextMessage) -> None:
        self._size += len(event.data)
        if self._size > _MOST:
            raise ValueError
        self._parts.append(event.data)
        if event.message_finished:
            said = json.loads("".join(self._parts))
            self._parts, self._size = [], 0
            if isinstance(said, dict):
                self.said.append(said)

    def _reply(self, event: Event, patience: float = 1.0) -> None:
        with suppress(OSError, LocalProtocolError):  # the next read says what there is to say
            self.socket.settimeout(patience)
            self.socket.sendall(self._ws.send(event))

    def _end(self, why: str) -> None:
        if self.ended is None:
            self.ended = why


def _shown(token: Secret) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {token.reveal()}".encode()


def _connected(target: Target) -> socket.socket:
    try:
        if target.path:
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                one.settimeout(_CONNECTING)
                one.connect(target.path)
            except BaseException:
                one.close()
                raise
            return one
        one = socket.create_connection((target.host, target.port), _CONNECTING)
    except (FileNotFoundError, ConnectionRefusedError):
        raise Failure(f"nothing listens at {target.label}") from None
    except OSError as error:
        raise Failure(f"{target.label} cannot be reached: {words_of(error)}") from None
    if not target.tls:
        return one
    import ssl

    try:
        return ssl.create_default_context().wrap_socket(one, server_hostname=target.host)
    except (OSError, ValueError) as error:
        one.close()
        raise Failure(f"{target.label} cannot be reached over TLS: {words_of(error)}") from None


def words_of(error: BaseException) -> str:
    """Give what an error of the system says, or the name of its class."""
    said = getattr(error, "verify_message", None) or getattr(error, "strerror", None)
    return one_line(str(said)) if said else type(error).__name__
