"""Requests over one shared stream, told apart by their ids.

* An id is used once per client. One that was given up is forgotten: its late answer is dropped and counted.
* A message that the kernel took a byte of is finished by the writer, whatever its caller does.
* The gate is asked in the writer's task, inside the context of the call.
"""

from __future__ import annotations

import contextvars
import re
from collections import deque
from typing import TYPE_CHECKING, ClassVar, final

import trio
from trio.lowlevel import Abort, current_task, reschedule, wait_task_rescheduled

from .._base.errors import ANSWERED, ProtocolError, TooLarge
from ..protocol import (
    HEAD_BYTES,
    LineTooLong,
    MalformedMessage,
    Message,
    decode_messages,
    encode_notification,
    encode_request,
)
from ..transports import StreamLink, WebSocketLink, WireClosed, Woken
from ._answer_sink import read_progress
from ._trip import PROGRESS_KEPT, Answer, Rpc, ignore_message, ignore_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.gate import Gate
    from .._base.model import Progress
    from .._base.seams import Seams
    from ..transports import Outgoing, Wire

# How a response begins whose id can be believed: at the top level, behind nothing but members that are
# strings (`jsonrpc`), and in front of its result or error. An `"id"` further in belongs to something else,
# and one in front of a method to a request of the server's, which counts its own ids.
_STRINGS = rb"""(?:"[^"\\]*"\s*:\s*"[^"\\]*"\s*,\s*)*"""
_OUTCOME = rb"""\s*"(?:result|error)"\s*:"""
_ANSWER = re.compile(rb"""\s*\{\s*%b"id"\s*:\s*(\d{1,18})\s*,\s*%b%b""" % (_STRINGS, _STRINGS, _OUTCOME))
_NAMELESS = re.compile(rb"""\s*\{\s*%b%b""" % (_STRINGS, _OUTCOME))


@final
class StreamChannel:
    """One client's way over one stream (stdio, memory, WebSocket).

    Args:
        wire: What carries the lines; `None` for a WebSocket, whose link is opened with its own wire.
        max_message: Bytes that an answer may have.
        seams: The clock.
        own_wire: Whether the wire is closed with the channel.

    Attributes:
        link: What carries the messages.
        on_message: Told of notifications and requests of the server.
        on_lost: Told once when the stream has ended.
        dropped: Late answers and answers to nobody.
    """

    first_wait: ClassVar[str] = "write"  # what a request waits for before it leaves

    __slots__ = (
        "_lost", "_next", "_own_wire", "_pending", "_wire", "dropped", "link", "max_message", "on_lost",
        "on_message",
    )  # fmt: skip

    def __init__(self, wire: Wire | None, max_message: int, seams: Seams, *, own_wire: bool = False) -> None:
        self.max_message = max_message
        self._wire = wire
        self._own_wire = own_wire
        self.on_message: Callable[[Message], None] = ignore_message
        self.on_lost: Callable[[str], None] = ignore_reason
        self.dropped = 0
        self._next = 0
        self._lost: str | None = None
        self._pending: dict[int, StreamTrip] = {}
        self.link: StreamLink | WebSocketLink
        if wire is None:
            self.link = WebSocketLink(
                on_line=self._line, on_lost=self._ended, max_message=max_message, seams=seams
            )
        else:
            self.link = StreamLink(
                wire,
                on_line=self._line,
                on_lost=self._ended,
                max_line_bytes=max_message,
                seams=seams,
                on_too_long=self._too_long,
            )

    async def run(self) -> None:
        """Run the link until the stream ends; of a WebSocket, what opens it runs this.

        Raises:
            Exception: What of our own code ended the stream: whoever runs this files it.
        """
        await self.link.run()
        if self.link.failed_inside is not None:
            raise self.link.failed_inside

    @property
    def lost(self) -> str | None:
        """Why the stream has ended, if it has."""
        return self._lost

    def trip(self, rpc: Rpc, headers: object) -> StreamTrip:  # noqa: ARG002 -- a stream has none
        """Make a trip; nothing happens before its `run`."""
        self._next += 1
        request_id = self._next
        params = rpc.params
        if callable(params):
            params = params(request_id)
        data = (
            encode_notification(rpc.method, params)
            if rpc.notification
            else encode_request(request_id, rpc.method, params)
        )
        return StreamTrip(self, data, rpc, request_id)

    def tell(self, data: bytes) -> trio.Event | None:
        """Send a message of the client's own that has no answer.

        Returns:
            Set when it leaves; `None` where the stream has ended, so that it never will.
        """
        notice = Notice()
        try:
            self.link.submit(data, notice, None, _nothing_gone)
        except WireClosed:
            return None
        return notice.left

    def kill(self) -> None:
        """Stop using the stream at once; a child's pipes are its process's to close."""
        self.link.close()
        if self._own_wire and self._wire is not None:
            self._wire.close()

    def end(self, reason: str) -> None:
        """The stream has ended, though nobody says so on it; nothing where it has ended already."""
        assert isinstance(self.link, StreamLink)
        self.link.end(reason)

    async def aclose(self, deadline: float) -> None:
        """Stop using the stream, in order where there is one; at the latest at `deadline`."""
        if isinstance(self.link, WebSocketLink):
            await self.link.aclose(deadline)
        self.kill()
        if self._own_wire and self._wire is not None:
            with trio.move_on_at(deadline):
                await self._wire.ended()

    # ------------------------------------------------------------------ used by trips

    def expect(self, trip: StreamTrip) -> None:
        """Wait for the answer of a trip's id."""
        self._pending[trip.request_id] = trip

    def forget(self, trip: StreamTrip) -> None:
        """Its answer is not waited for any more."""
        self._pending.pop(trip.request_id, None)

    # ------------------------------------------------------------------ the link's callbacks

    def _line(self, line: bytes) -> None:
        try:
            messages = decode_messages(line, self._unreadable)
        except MalformedMessage as error:
            self._unreadable()
            # half a line before the end of the stream is no answer: its request is lost with the stream
            trip = None if self.link.at_end else self._whose(line[:HEAD_BYTES])
            if trip is not None:
                trip.failed(
                    ProtocolError(f"the answer could not be read: {error.reason}; the tool may have run")
                )
            return
        for message in messages:
            if message.is_response:
                request_id = message.response_id
                trip = None if request_id is None else self._pending.get(request_id)
                if trip is None or not trip.begun:  # an id can be guessed before its request has left
                    self.dropped += 1
                else:
                    del self._pending[trip.request_id]
                    trip.answer_came(Answer(message, size=len(line)))
            elif message.method == "notifications/progress":
                read = read_progress(message)
                if read is not None and type(read[0]) is int and (trip := self._pending.get(read[0])):
                    trip.progress_came(read[1])
            else:
                self.on_message(message)

    def _unreadable(self) -> None:
        self.link.skipped += 1

    def _whose(self, head: bytes) -> StreamTrip | None:
        """Find who waits for an answer that was not read, by how it begins; nobody waits for it then."""
        found = _ANSWER.match(head)
        trip: StreamTrip | None = None
        if found is not None:
            trip = self._pending.get(int(found[1]))
        elif len(self._pending) == 1 and _NAMELESS.match(head):
            # An answer whose id stands behind its result can only be that of the one that is waited for.
            (trip,) = self._pending.values()
        if trip is None or not trip.begun:
            return None
        del self._pending[trip.request_id]
        return trip

    def _too_long(self, line: LineTooLong) -> None:
        trip = self._whose(line.head)
        if trip is None:
            self.dropped += 1
            return
        trip.failed(
            TooLarge(
                f"the answer is larger than {line.limit} bytes and was not read; the tool may have run",
                delivery=ANSWERED,
            )
        )

    def _ended(self, reason: str) -> None:
        self._lost = reason
        pending, self._pending = self._pending, {}
        for trip in pending.values():
            trip.failed(WireClosed(reason, local=False))
        self.on_lost(reason)


@final
class StreamTrip:
    """One message and, unless it is a notification, its answer."""

    __slots__ = (
        "_answer", "_channel", "_data", "_error", "_gone", "_on_progress", "_outgoing", "_progress", "_task",
        "_woken", "notification", "request_id", "size",
    )  # fmt: skip

    def __init__(self, channel: StreamChannel, data: bytes, rpc: Rpc, request_id: int) -> None:
        self.request_id = request_id
        self.notification = rpc.notification
        self.size = len(data)
        self._channel = channel
        self._data = data
        self._on_progress = rpc.on_progress
        self._outgoing: Outgoing | None = None
        self._task: trio.lowlevel.Task | None = None
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._progress: deque[Progress] | None = None
        self._gone = False
        self._woken = False

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._outgoing is not None and self._outgoing.begun

    @property
    def answered(self) -> bool:
        """Its answer has come."""
        return self._answer is not None or isinstance(self._error, TooLarge | ProtocolError)

    @property
    def over(self) -> bool:
        """Nothing more is to come."""
        return self._answer is not None or self._error is not None or self._gone

    async def run(self, gate: Gate, deadline: float) -> Answer:  # noqa: ARG002 -- kept by whoever wakes it
        """Send under the gate and wait for the answer.

        Raises:
            WireClosed: The stream has ended; `begun` says whether bytes left.
            Woken: `wake` was called.
            TooLarge: The answer is larger than the cap.
            Exception: What the gate raised; nothing was sent.
        """
        channel = self._channel
        outgoing = self._outgoing = channel.link.submit(
            self._data,
            _Began(gate, self if self.notification else None),
            contextvars.copy_context(),
            self._refused,
        )
        if not self.notification:
            channel.expect(self)
        try:
            return await self._wait()
        except BaseException:
            if not self.over and channel.link.withdraw(outgoing):
                # not begun, and never will be
                self._gone = True
                channel.forget(self)
            raise

    async def finish(self) -> Answer:
        """Wait on after a hand-over."""
        self._on_progress = None
        return await self._wait()

    async def _wait(self) -> Answer:
        while True:
            if self._progress and self._on_progress is not None:
                waiting, self._progress = self._progress, None
                for progress in waiting:
                    self._on_progress(progress)
            if self._answer is not None:
                return self._answer
            if self._error is not None:
                raise self._error
            if self._woken:
                self._woken = False
                raise Woken
            self._task = current_task()
            await wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> Abort:
        self._task = None
        return Abort.SUCCEEDED

    def _resume(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            reschedule(task)

    def wake(self) -> None:
        """Make the task that waits raise `Woken`, now or at its next wait; an answer that came goes first."""
        self._woken = True
        self._resume()

    def close(self) -> None:
        """Give up on the answer; the id is not used again."""
        if self._outgoing is not None and not self.over:
            self._channel.link.withdraw(self._outgoing)
        self._gone = True
        self._channel.forget(self)

    # ------------------------------------------------------------------ told by the channel

    def answer_came(self, answer: Answer) -> None:
        """Its answer."""
        self._answer = answer
        self._resume()

    def failed(self, error: BaseException) -> None:
        """No answer will come."""
        self._error = error
        self._resume()

    def progress_came(self, progress: Progress) -> None:
        """Keep the newest; the callback runs in the task of the caller."""
        if self._on_progress is None:
            return
        if self._progress is None:
            self._progress = deque(maxlen=PROGRESS_KEPT)
        self._progress.append(progress)
        self._resume()

    def sent(self) -> None:
        """It has left; a notification is done by then."""
        self._answer = Answer(None)
        self._resume()

    def _refused(self, outgoing: Outgoing) -> None:
        self._channel.forget(self)
        self._error = outgoing.refusal
        self._gone = True
        self._resume()


@final
class _Began:
    """The gate of a trip; of a notification's: tells the trip as well when a byte left."""

    __slots__ = ("_gate", "_trip")

    def __init__(self, gate: Gate, trip: StreamTrip | None) -> None:
        self._gate = gate
        self._trip = trip

    def ask(self, stage: str, /) -> None:
        self._gate.ask(stage)

    def began(self) -> None:
        self._gate.began()
        if self._trip is not None:
            self._trip.sent()


@final
class Notice:
    """The gate of a message that nobody may hold back; `left` is set when a byte of it has left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = trio.Event()

    def ask(self, stage: str, /) -> None:
        """Let it through."""

    def began(self) -> None:
        """Take note."""
        self.left.set()


def _nothing_gone(_: Outgoing) -> None:
    """An open gate never refuses."""
