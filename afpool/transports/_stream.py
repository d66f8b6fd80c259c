"""One ordered stream that many requests share: a writer that coalesces, a reader that blocks on nobody.

Rules:

* Only the writer's task hands bytes over, through `Wire.push`. A caller submits, synchronously, and waits
  for its answer elsewhere; cancelled, it withdraws what has not begun and leaves what has.
* A message that has begun is finished by the writer, whatever becomes of its caller: half a line would
  swallow the next one. It is always the first of the outbox.
* A message that has not begun stays in the outbox, and its gate is asked again by every push, however often
  the kernel takes nothing. A refused one leaves the outbox in the step of its refusal.
* All that was submitted before the writer runs goes out in one write, up to `MAX_JOINED` bytes.
* The reader hands lines over in slices; between two slices every other task gets its turn. How large a slice
  is depends on counts alone, so that a simulation repeats itself.
* The end is told once, by `run` itself, when neither half runs any more: what `Outgoing.begun` says then is
  final, and so is a verdict made of it.
* The link does not close the wire; whoever made the wire does.
* The outbox is bounded. Calls are few; a peer that asks much of us (pings, say) and reads no answer fills
  it, and costs itself the stream.

`Outgoing.begun` and the gate's `began` are told in the step of the write. A line of a peer that is not JSON
(a stray `print`) is skipped and counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable  # noqa: TC003  (callers resolve the annotations)
from contextvars import Context  # noqa: TC003
from typing import Final

import trio

from afpool._base.gate import Gate  # noqa: TC001
from afpool._base.seams import Seams  # noqa: TC001
from afpool.protocol._lines import LineSplitter, LineTooLong
from afpool.transports._wire import MAX_JOINED, Outgoing, Wire, WireClosed, Woken

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line that is taken from a peer, unless said otherwise."""

MAX_OUTBOX: Final = 1024
"""The most messages that wait for a peer which takes none: one more ends the stream."""

LAST_WORDS: Final = 0.5
"""Seconds that a peer which takes no more bytes may still be read: its last answers may be on their way."""

_CHUNK: Final = 64 * 1024
_SLICE_LINES: Final = 64
_JSON_STARTS: Final = (b"{", b"[", b"\xef")  # the last begins a byte order mark


class StreamLink:
    """A stream of JSON lines in both directions over one wire.

    Args:
        wire: Where the bytes go. Stays its maker's: the link never closes it.
        on_line: Takes each line that can be JSON, without its newline, in the reader's task. Synchronous.
        on_lost: Told once why the stream ended, also when `close` or a cancellation ended it. Synchronous;
            called by `run` as the last thing it does.
        max_line_bytes: A longer line is not kept.
        seams: The clock.
        on_too_long: Told of a line that was longer than `max_line_bytes` and has been dropped; the stream
            goes on. Without it such a line ends the stream, since nobody can say whose answer it was.

    Attributes:
        skipped: How many lines were skipped because they cannot be JSON: they start with neither `{` nor `[`
            nor a byte order mark.
        too_long: How many lines were longer than the cap.
        at_end: The peer has closed; a line that is handed over now may have been cut off.
        fault: The exception of a callback or of the link itself that ended the stream, if one did.
    """

    __slots__ = (
        "_idle_writer",
        "_max_line_bytes",
        "_on_line",
        "_on_lost",
        "_on_too_long",
        "_outbox",
        "_pushing",
        "_reason",
        "_refusing",
        "_scope",
        "_seams",
        "_started",
        "_wire",
        "at_end",
        "fault",
        "skipped",
        "too_long",
    )

    def __init__(
        self,
        wire: Wire,
        *,
        on_line: Callable[[bytes], None],
        on_lost: Callable[[str], None],
        max_line_bytes: int = MAX_LINE_BYTES,
        seams: Seams,
        on_too_long: Callable[[LineTooLong], None] | None = None,
    ) -> None:
        self._wire = wire
        self._on_line = on_line
        self._on_lost = on_lost
        self._on_too_long = on_too_long
        self._max_line_bytes = max_line_bytes
        self._seams = seams
        # Insertion-ordered, so that withdrawing one message costs the same however many wait behind it.
        self._outbox: dict[Outgoing, Callable[[Outgoing], None]] = {}
        self._pushing = False
        self._idle_writer: trio.lowlevel.Task | None = None
        self._scope: trio.CancelScope | None = None
        self._started = False
        self._refusing = False
        self._reason: str | None = None
        self.skipped = 0
        self.too_long = 0
        self.at_end = False
        self.fault: Exception | None = None

    @property
    def failed_inside(self) -> Exception | None:
        """What of our own code ended the stream, if it did."""
        return self.fault

    @property
    def waiting(self) -> int:
        """How many messages are in the outbox, the one that is being written included."""
        return len(self._outbox)

    @property
    def ended(self) -> bool:
        """Whether the stream is over; `on_lost` is told soon or has been."""
        return self._reason is not None

    def submit(
        self,
        data: bytes,
        gate: Gate,
        context: Context | None,
        on_gone: Callable[[Outgoing], None],
    ) -> Outgoing:
        """Append one message to the outbox and wake the writer. Synchronous; nothing is sent in this step.

        Args:
            data: One JSON text without a newline in it; the link adds the one that ends the line.
            gate: Asked, with stage `write`, in the step that hands over the first byte.
            context: The context the gate is asked in; `None` asks in the writer's own.
            on_gone: Called in the writer's task, in the step of the refusal, when the gate refused
                (`Outgoing.refusal` says why). Must not raise. Not called when the stream ends: `on_lost` is.

        Raises:
            WireClosed: The stream takes nothing any more, or `MAX_OUTBOX` messages wait already, which ends
                it. Nothing was sent.
            ValueError: `data` holds a newline and would be read as two messages. Nothing was sent.
        """
        if self._refusing:
            raise WireClosed(self._reason or "the peer takes no more bytes", local=False)
        if b"\n" in data:
            raise ValueError("a message on a line stream must not hold a newline")
        if len(self._outbox) >= MAX_OUTBOX:
            self._end("the peer reads nothing, and too many messages wait for it")
            raise WireClosed(self._reason or "", local=False)
        outgoing = Outgoing(data + b"\n", gate, context)
        self._outbox[outgoing] = on_gone
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
        if outgoing.begun or self._pushing:
            return False
        self._outbox.pop(outgoing, None)
        return True

    def end(self, reason: str) -> None:
        """Stop both halves, since the peer has gone in a way that the wire does not show."""
        self._end(reason)

    def close(self) -> None:
        """Stop both halves; nothing is submitted or sent from here on. `on_lost` is told by `run`, later."""
        self._end("closed by this side")

    @trio.lowlevel.enable_ki_protection
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read and write until the stream ends, or `close`, or cancellation; once per link.

        Nothing that the peer or the wire does is raised: `on_lost` is told. A cancellation is told too, and
        passes on. What `on_lost` raises comes out of here.
        """
        if self._started:
            raise RuntimeError("a stream link runs once")
        self._started = True
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                if self._reason is not None:
                    self._scope.cancel()
                nursery.start_soon(self._guard, self._write)
                nursery.start_soon(self._guard, self._read)
                task_status.started()
        finally:
            self._end("cancelled")
            self._scope = None
            self._outbox.clear()
            self._on_lost(self._reason or "")

    def _end(self, reason: str) -> None:
        self._refusing = True
        if self._reason is None:
            self._reason = reason
            if self._scope is not None:
                self._scope.cancel()

    @trio.lowlevel.enable_ki_protection
    async def _guard(self, half: Callable[[], Awaitable[None]]) -> None:
        try:
            await half()
        except WireClosed as error:
            self._end(str(error))
        except Exception as error:  # noqa: BLE001  (told to the owner; its nursery must not die of it)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.fault = error
        self._end(f"the stream failed inside: {type(error).__name__}")

    # The writer.

    async def _write(self) -> None:
        try:
            await self._write_until_closed()
        except WireClosed as error:
            if error.local:
                raise
            # A child that is gone takes no bytes, and what it answered before may still be unread.
            self._refusing = True
            await trio.sleep_until(self._seams.now() + LAST_WORDS)
            raise

    async def _write_until_closed(self) -> None:
        outbox = self._outbox
        # A task that was woken before `close` comes back without noticing the cancellation.
        while not self.ended:
            if not outbox:
                await self._submitted()
                continue
            batch = self._next_batch()
            self._pushing = True
            try:
                self._wire.push(batch)
            finally:
                self._pushing = False
            if self._sweep(batch):
                if outbox:
                    await trio.lowlevel.checkpoint()
                continue
            try:
                await self._wire.writable()
            except Woken:
                # Whoever woke the wire wanted another task, or our end, which comes as a cancellation.
                continue

    def _next_batch(self) -> list[Outgoing]:
        # The same bound as in `push`, so that a message which is left over was left by the kernel.
        batch: list[Outgoing] = []
        size = 0
        for outgoing in self._outbox:
            size += len(outgoing.data) - outgoing.sent
            if batch and size > MAX_JOINED:
                break
            batch.append(outgoing)
        return batch

    def _sweep(self, batch: list[Outgoing]) -> bool:
        """Drop what is out or refused; say whether that was everything."""
        clean = True
        for outgoing in batch:
            if outgoing.refusal is not None:
                # It may be gone already: a gate can close the link that asks it.
                on_gone = self._outbox.pop(outgoing, None)
                if on_gone is not None:
                    on_gone(outgoing)
            elif outgoing.done:
                self._outbox.pop(outgoing, None)
            else:
                clean = False
        return clean

    async def _submitted(self) -> None:
        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._idle_writer = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._idle_writer = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    # The reader.

    async def _read(self) -> None:
        splitter = LineSplitter(self._max_line_bytes)
        try:
            await self._read_until_ended(splitter)
        finally:
            splitter.drop()  # what ended it is kept with its frames, and they hold it

    async def _read_until_ended(self, splitter: LineSplitter) -> None:
        handled = 0
        while not self.ended:
            try:
                chunk = await self._wire.receive(_CHUNK)
            except Woken:
                continue
            # A last line that lacks its newline may be a whole message of a peer that left in a hurry.
            self.at_end = not chunk
            for line in splitter.feed(chunk) if chunk else splitter.at_eof():
                self._take(line)
                if self._stopped():
                    return
                handled += 1
                if not handled % _SLICE_LINES:
                    await trio.lowlevel.checkpoint()
            if not chunk:
                self._end("the peer closed the stream")

    def _stopped(self) -> bool:
        return self._reason is not None

    def _take(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            self.too_long += 1
            if self._on_too_long is None:
                self._end(f"the peer sent a line longer than {self._max_line_bytes} bytes")
            else:
                self._on_too_long(line)
        elif line[:1] in _JSON_STARTS or line.lstrip()[:1] in _JSON_STARTS:
            self._on_line(line)
        else:
            self.skipped += 1
