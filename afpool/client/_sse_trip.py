"""One message over HTTP+SSE: a POST, and its answer on the stream that all share.

Two things come apart here that are one everywhere else: how the POST ends, and what the request ends with.

* The POST carries the request, so its first byte is the request's, under the gate. A 2xx says that the
  message was taken and nothing more.
* The answer may overtake its own 202: it is then the caller's at once, and the POST is read to its end in the
  background. So an answer is looked for before anything that the POST ended with.
* A POST that is refused, or answered with a message, ends the request there. One that breaks leaves it in
  doubt, though its answer may still come: nobody says that it will.
* An answer is waited for from before the first byte until the trip is given up; never after.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

import trio

from ..transports import BadHttp, Truncated, WireClosed, Woken
from ._answer_sink import AnswerSink
from ._trip import PROGRESS_KEPT, Answer, Rpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .._base.gate import Gate
    from .._base.model import Progress
    from ..transports import HttpExchange, HttpRequest, HttpxExchange
    from ._sse_channel import SseChannel


@final
class SseTrip:
    """One message, posted, and unless it is a notification, its answer on the stream."""

    __slots__ = (
        "_answer", "_channel", "_error", "_exchange", "_gone", "_news", "_notification", "_on_progress",
        "_progress", "_sink", "_woken", "request_id", "size",
    )  # fmt: skip

    def __init__(self, channel: SseChannel, request: HttpRequest, rpc: Rpc, request_id: int) -> None:
        self.request_id = request_id
        self.size = len(request.body)
        self._channel = channel
        self._notification = rpc.notification
        self._on_progress = rpc.on_progress
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_KEPT)
        self._sink = AnswerSink(channel.max_message, channel.on_message, None)
        self._exchange: HttpExchange | HttpxExchange = channel.link.exchange(request, self._sink, rpc.lane)
        self._news = trio.Event()
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._woken = False
        self._gone = False

    @property
    def begun(self) -> bool:
        """The kernel took a byte of it."""
        return self._exchange.begun

    @property
    def answered(self) -> bool:
        """Its answer has come."""
        return self._answer is not None

    @property
    def over(self) -> bool:
        """Nothing more is to come."""
        return self._gone or self._answer is not None or self._error is not None

    async def run(self, gate: Gate, deadline: float) -> Answer:
        """Post under the gate and wait for the answer; raises what an exchange raises."""
        if not self._notification:
            self._channel.expect(self)
        try:
            await self._posted(lambda: self._exchange.run(gate, deadline))
            return await self._wait()
        except (Woken, trio.Cancelled):
            if not self._exchange.begun:
                self._give_up()
            raise
        except BaseException:
            self._give_up()
            raise

    async def finish(self) -> Answer:
        """Wait on after a hand-over."""
        self._on_progress = None
        if self._exchange.held:
            await self._posted(self._exchange.finish)
        return await self._wait()

    async def _posted(self, go: Callable[[], Awaitable[None]]) -> None:
        """Have the POST answered, unless the answer to the request itself comes first."""
        try:
            await go()
        except Woken:
            if self._answer is None and self._error is None:
                self._woken = False
                raise
            if self._exchange.held:
                self._channel.read_out(self._exchange)
            return
        except (WireClosed, Truncated, BadHttp):
            if self._answer is None:
                raise
            return  # the answer came in the same moment, and first
        if self._answer is not None:
            return  # as well: whatever the POST was answered with, the request has run
        answer = self._sink.answer()
        taken = answer.status is not None and 200 <= answer.status < 300
        if self._notification or not taken or answer.message is not None:
            self._channel.forget(self)
            self._answer = answer

    async def _wait(self) -> Answer:
        while True:
            while self._progress and self._on_progress is not None:
                self._on_progress(self._progress.popleft())
            if self._answer is not None:
                return self._answer
            if self._error is not None:
                raise self._error
            if self._woken:
                self._woken = False
                raise Woken
            self._news = trio.Event()
            await self._news.wait()

    def wake(self) -> None:
        """Make the task that waits raise `Woken`; an answer that came goes first."""
        self._woken = True
        self._tell()

    def close(self) -> None:
        """Give up on the answer; the id is not used again."""
        self._give_up()
        if self._answer is None:
            self._exchange.close()

    def _give_up(self) -> None:
        self._gone = True
        self._channel.forget(self)

    def _tell(self) -> None:
        self._exchange.wake()
        self._news.set()

    # ------------------------------------------------------------------ told by the channel

    def answer_came(self, answer: Answer) -> None:
        """Its answer."""
        self._answer = answer
        self._tell()

    def failed(self, error: BaseException) -> None:
        """No answer will come."""
        self._error = error
        self._tell()

    def progress_came(self, progress: Progress) -> None:
        """Keep it; the callback runs in the task of the caller."""
        if self._on_progress is not None:
            self._progress.append(progress)
            self._news.set()
