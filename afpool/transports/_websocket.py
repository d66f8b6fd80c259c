"""JSON-RPC messages over one WebSocket: the library speaks the protocol, the gate sits below it.

WebSocket is a custom transport: no revision of the MCP specification has it. What is spoken is what servers
in use speak: one JSON-RPC message per text message, both ways, told apart by id. Rules, beside those of
`_ws_stream.py`, which asks the gates:

* One writer takes messages in order and gives each to the library. A caller submits, synchronously, and
  waits for its answer elsewhere; cancelled, it withdraws what has not begun and leaves what has.
* Only text is sent. A binary message of the peer, and a text that cannot be JSON, is dropped and counted.
* A message longer than the cap ends the stream (the library closes with 1009): it is not known whose answer
  it was. So does one in very many pieces. At most two messages are kept, one that was read and one that is
  being put together.
* A stream ends by a close frame, by a peer that answers no ping, or by its wire (`_ws_ends.py`). Either way
  it is over: there is nothing to resume, and a request that has begun and was not answered is in doubt.
* The end is told once, by `run` itself, when nothing runs any more: what `Outgoing.begun` says then is
  final, and so is a verdict made of it.
* What the library raises never leaves: it ends the stream, or is the reason why it was not opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence  # noqa: TC003  (callers resolve the annotations)
from contextvars import Context  # noqa: TC003
from typing import TYPE_CHECKING, Final, cast

import trio

from afpool._base.gate import Gate  # noqa: TC001
from afpool._base.seams import Seams  # noqa: TC001
from afpool.transports._connection import Headers  # noqa: TC001
from afpool.transports._stream import LAST_WORDS, MAX_OUTBOX
from afpool.transports._wire import Outgoing, Wire, WireClosed
from afpool.transports._ws_ends import TOO_BIG, until_unanswered, why_closed
from afpool.transports._ws_stream import GatedStream, UpgradeRefused

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

CLOSING: Final = 1.0
"""Seconds that the peer has to answer our close, where the caller's deadline is not nearer."""

MAX_PARTS: Final = 16 * 1024
"""Pieces that a message may come in, beside one for each `_SMALL_PART` bytes that it may have."""

_SMALL_PART: Final = 256
_CHUNK: Final = 64 * 1024
_SLICE_MESSAGES: Final = 64
_JSON_STARTS: Final = ("{", "[")


class WebSocketLink:
    """A stream of JSON-RPC messages in both directions over one WebSocket, on a wire that it owns.

    Args:
        on_line: Takes each text message that can be JSON, in the reader's task. Synchronous.
        on_lost: Told once why the stream ended, also when `close` or a cancellation ended it. Synchronous;
            called by `run` as the last thing it does.
        max_message: A longer message of the peer ends the stream, characters and bytes.
        seams: The clock.

    Attributes:
        skipped: How many messages were dropped because they cannot be JSON-RPC, binary ones included.
        fault: The exception of a callback, the library or the link itself that ended the stream, if one did.
        failed_inside: The same, where no peer had a part in it.
        subprotocol: What the server chose of what was offered, or `None`.
    """

    at_end: Final = False  # a message comes whole or not at all

    __slots__ = (
        "_closing", "_connection", "_idle_writer", "_max_message", "_on_line", "_on_lost", "_open", "_outbox",
        "_reason", "_refusing", "_request", "_scope", "_seams", "_settled", "_stream", "failed_inside",
        "fault", "skipped", "subprotocol",
    )  # fmt: skip

    def __init__(
        self,
        *,
        on_line: Callable[[bytes], None],
        on_lost: Callable[[str], None],
        max_message: int,
        seams: Seams,
    ) -> None:
        self._on_line = on_line
        self._on_lost = on_lost
        self._max_message = max_message
        self._seams = seams
        # Insertion-ordered; see StreamLink.
        self._outbox: dict[Outgoing, tuple[str, Callable[[Outgoing], None]]] = {}
        self._idle_writer: trio.lowlevel.Task | None = None
        self._scope: trio.CancelScope | None = None
        self._stream: GatedStream | None = None
        self._request: tuple[str, str, Headers, tuple[str, ...]] | None = None
        self._connection: WebSocketConnection | None = None
        self._settled = trio.Event()
        self._open = False
        self._closing = False
        self._refusing = False
        self._reason: str | None = None
        self.skipped = 0
        self.fault: Exception | None = None
        self.failed_inside: Exception | None = None
        self.subprotocol: str | None = None

    @property
    def waiting(self) -> int:
        """How many messages are in the outbox, the one that is being written included."""
        return len(self._outbox)

    @property
    def ended(self) -> bool:
        """Whether the stream is over; `on_lost` is told soon or has been."""
        return self._reason is not None

    async def open(
        self,
        wire: Wire,
        *,
        authority: str,
        target: str,
        headers: Headers,
        subprotocols: Sequence[str],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        """Upgrade a connection; once per link. The caller owns the deadline. Always a checkpoint.

        Args:
            wire: Connected, nothing sent or read yet. Closed by this link, also when this fails.
            authority: The `Host` header.
            target: The request target.
            headers: Further headers of the upgrade request; may hold secrets.
            subprotocols: Offered in this order. The server may choose one of them or none.
            spawn: Runs `run` in the background; it lives as long as the stream.

        Raises:
            UpgradeRefused: What came is no WebSocket.
        """
        if self._stream is not None:
            raise RuntimeError("a WebSocket link is opened once")
        self._stream = GatedStream(
            wire,
            wanted=self._outbox.__contains__,
            on_refused=self._refused,
            on_broken=self._broken,
            on_ended=self._read_ended,
            on_read=self._count_parts,
        )
        self._request = (authority, target, headers, tuple(subprotocols))
        try:
            spawn(self.run)
            await self._settled.wait()
        finally:
            self._request = None
            if not self._open:
                self.close()
        if not self._open:
            refused = self._stream.refused
            raise refused or UpgradeRefused(f"the upgrade to WebSocket failed: {self._reason}")

    def submit(
        self,
        data: bytes,
        gate: Gate,
        context: Context | None,
        on_gone: Callable[[Outgoing], None],
    ) -> Outgoing:
        """Append one message to the outbox and wake the writer. Synchronous; nothing is sent in this step.

        Args:
            data: One JSON text in UTF-8.
            gate: Asked, with stage `write`, in the step that hands over the first byte of its frame.
            context: The context the gate is asked in; `None` asks in the writer's own.
            on_gone: Called in the writer's task, in the step of the refusal, when the gate refused
                (`Outgoing.refusal` says why). Must not raise. Not called when the stream ends: `on_lost` is.

        Raises:
            WireClosed: The stream takes nothing any more, or `MAX_OUTBOX` messages wait already, which ends
                it. Nothing was sent.
            ValueError: `data` is not UTF-8. Nothing was sent.
        """
        if self._refusing:
            raise WireClosed(self._reason or "the peer takes no more bytes", local=False)
        text = data.decode()
        if len(self._outbox) >= MAX_OUTBOX:
            self._end("the peer reads nothing, and too many messages wait for it")
            raise WireClosed(self._reason or "", local=False)
        outgoing = Outgoing(data, gate, context)
        self._outbox[outgoing] = (text, on_gone)
        task = self._idle_writer
        if task is not None:
            self._idle_writer = None
            trio.lowlevel.reschedule(task)
        return outgoing

    def withdraw(self, outgoing: Outgoing) -> bool:
        """Take a message back, if it has not begun. Synchronous.

        Returns:
            `True`: no byte of it left or ever will. `False`: it has begun (the writer finishes it) or is
            out; so too inside a gate that is being asked, where it cannot be known yet.
        """
        stream = self._stream
        if outgoing.begun or (stream is not None and stream.pushing):
            return False
        if self._outbox.pop(outgoing, None) is not None and stream is not None and stream.holds(outgoing):
            self._end("a message was given up that was encrypted already")
        return True

    def close(self) -> None:
        """Close the connection at once, without a close frame. `on_lost` is told by `run`, later."""
        self._end("closed by this side")
        if self._stream is not None:
            self._stream.close_now()

    async def aclose(self, deadline: float) -> None:
        """Close with code 1000 and wait shortly for the peer to do the same; then as `close`.

        Args:
            deadline: On the runtime's clock. At most `CLOSING` seconds are waited, however far it is.
        """
        connection = self._connection
        if connection is not None and self._open and not self._refusing:
            self._closing = self._refusing = True
            with trio.move_on_at(min(deadline, self._seams.now() + CLOSING)):
                try:
                    await connection.aclose(1000)
                except Exception as error:  # noqa: BLE001  (a farewell that fails changes nothing)
                    self.fault = self.fault or error
        self.close()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Upgrade, then read and write until the stream ends; `open` starts it.

        Nothing that the peer, the wire or the library does is raised: `on_lost` is told. A cancellation is
        told too, and passes on. What `on_lost` raises comes out of here.
        """
        assert self._stream is not None
        try:
            with trio.CancelScope() as self._scope:
                if self._reason is not None:
                    self._scope.cancel()
                await self._talk(self._stream)
        finally:
            self._end("cancelled")
            self._scope = None
            self._stream.close_now()
            self._outbox.clear()
            self._settled.set()
            self._on_lost(self._reason or "")

    async def _talk(self, stream: GatedStream) -> None:
        from trio_websocket import wrap_client_stream

        assert self._request is not None
        authority, target, headers, subprotocols = self._request
        try:
            async with trio.open_nursery() as nursery:
                connection = self._connection = await wrap_client_stream(
                    nursery,
                    cast("trio.SocketStream", stream),  # it names two kinds and uses what every stream has
                    authority,
                    target,
                    subprotocols=subprotocols,
                    extra_headers=list(headers),
                    message_queue_size=1,
                    max_message_size=self._max_message,
                    receive_buffer_size=_CHUNK,
                )
                self.subprotocol = connection.subprotocol
                nursery.start_soon(self._guard, self._write, connection)
                nursery.start_soon(self._guard, self._read, connection)
                nursery.start_soon(self._guard, self._probe, connection)
                self._open = True
                self._settled.set()
        except BaseExceptionGroup as group:
            # The library's reader raises what it makes of a peer that breaks the protocol, raw.
            faults, rest = group.split(Exception)
            if faults is not None:
                self._fail(
                    "the peer does not speak WebSocket as agreed"
                    if stream.begun
                    else "a header of the request cannot be sent",
                    faults,
                )
            if rest is not None:
                raise rest from None

    async def _guard(
        self, half: Callable[[WebSocketConnection], Awaitable[None]], connection: WebSocketConnection
    ) -> None:
        from trio_websocket import ConnectionClosed

        try:
            await half(connection)
        except ConnectionClosed as error:
            if not self._closing:
                self._end(why_closed(None if error.reason is None else error.reason.code, self._max_message))
        except Exception as error:  # noqa: BLE001  (told to the owner; its nursery must not die of it)
            self.failed_inside = error
            self._fail(f"the stream failed inside: {type(error).__name__}", error)

    def _fail(self, reason: str, error: Exception) -> None:
        self.fault = error
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._refusing = True
        if self._reason is None:
            self._reason = reason
            if self._scope is not None:
                self._scope.cancel()

    # ------------------------------------------------------------------ told by the stream

    def _refused(self, outgoing: Outgoing) -> None:
        # It may be gone already: a gate can close the link that asks it.
        kept = self._outbox.pop(outgoing, None)
        if kept is not None:
            kept[1](outgoing)

    def _broken(self, error: WireClosed) -> None:
        self._refusing = True
        if error.local:
            self._end(str(error))
        elif self._idle_writer is not None:
            # It was a pong or ping that did not go out: the writer has to notice, too.
            task, self._idle_writer = self._idle_writer, None
            trio.lowlevel.reschedule(task)

    def _read_ended(self, reason: str) -> None:
        # Once it is open the library tells the end, after the messages that came before it.
        if not self._open:
            self._end(reason)

    def _count_parts(self) -> None:
        # The library bounds what the parts of a message hold and not how many they are, and a list of
        # endless empty ones grows as well. It has no other way to be asked.
        parts = 0 if self._connection is None else len(self._connection._message_parts)  # noqa: SLF001
        if parts > MAX_PARTS + self._max_message // _SMALL_PART:
            self._end("a message came in too many pieces")

    # ------------------------------------------------------------------ writer, reader, pings

    async def _write(self, connection: WebSocketConnection) -> None:
        outbox = self._outbox
        stream = self._stream
        assert stream is not None
        # A task that was woken before `close` comes back without noticing the cancellation.
        while not self._refusing:
            if not outbox:
                await self._submitted()
                continue
            outgoing, (text, _) = next(iter(outbox.items()))
            stream.head = outgoing
            await connection.send_message(text)
            if outgoing.done:
                outbox.pop(outgoing, None)
        if not self._closing and not self.ended:
            # A peer that takes no more bytes may have answered before, and that may still be unread.
            await trio.sleep_until(self._seams.now() + LAST_WORDS)
            self._end("the peer takes no more bytes")

    async def _submitted(self) -> None:
        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._idle_writer = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._idle_writer = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    async def _read(self, connection: WebSocketConnection) -> None:
        handled = 0
        while not self.ended:
            message = await connection.get_message()
            self._take(message)
            handled += 1
            if not handled % _SLICE_MESSAGES:
                await trio.lowlevel.checkpoint()

    def _take(self, message: str | bytes) -> None:
        if isinstance(message, bytes) or (
            message[:1] not in _JSON_STARTS and message.lstrip()[:1] not in _JSON_STARTS
        ):
            self.skipped += 1
            return
        line = message.encode()
        if len(line) > self._max_message:
            # The library counts characters.
            self._end(why_closed(TOO_BIG, self._max_message))
            return
        self._on_line(line)

    async def _probe(self, connection: WebSocketConnection) -> None:
        self._end(await until_unanswered(connection, self._seams))
