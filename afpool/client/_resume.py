"""Asking for the rest of an answer whose stream ended early (Streamable HTTP, 2025-03-26 to 2025-11-25).

A server may close the stream of an answer at will once it has named an event on it, and expects to be asked
again (SSE polling); a connection may break. Rules:

* Only the stream of a request that we sent is taken up again, and only if it named an event: a stream that
  ends without a response and without an event id is lost.
* It is a GET with `Last-Event-ID`. It asks for an answer and runs nothing, so the verdict of the request is
  what it was: nothing is ever sent a second time here.
* Meanwhile the request holds its place and no connection. The wait is the server's `retry` (five minutes at
  most), a second where it names none, and doubles up to half a minute while nothing new comes; three askings
  in a row that bring no new event end it.
* It carries a fresh credential, and passes the gate of its client and what the call itself stands on (its
  key was not revoked, its caller identity still holds). Whoever has gone does not ask again: its cancel
  notice was sent, and the end of the stream in hand is the end of it.
* What was seen is not delivered twice, whatever the server replays, and a response counts only under the
  request's own id: this stream is no exchange of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from .._base.errors import AfpoolError
from ..protocol import (
    ACCEPT,
    CONTENT_TYPE,
    LAST_EVENT_ID,
    LOCATION,
    RETRY_AFTER,
    SSE_TYPE,
    BodyKind,
    EventTooLarge,
    SseParser,
    body_kind,
    parse_retry_after,
    says_session_lost,
)
from ..transports import BadHttp, ConnectFailed, HttpRequest, Truncated, Unsendable, WireClosed, Woken
from ._redirects import go_to, redirect_target
from ._trip import HINT_BYTES, Answer, first_of

if TYPE_CHECKING:
    from ..transports import Headers, HttpExchange, HttpxExchange, LaneName
    from ._answer_sink import AnswerSink
    from ._client import Client
    from ._http_channel import HttpChannel
    from ._sse_channel import SseChannel
    from ._trip import Caller

RETRY: Final = 1.0
RETRY_MIN: Final = 0.1
RETRY_MAX: Final = 30.0
TOLD_MAX: Final = 300.0
ASKINGS: Final = 3
AGAIN: Final = frozenset({408, 409, 425, 429})


class ResumeFailed(Exception):
    """The rest of an answer cannot be had.

    Args:
        why: In our own words.
        over: Whether the client's session has ended with it.
    """

    def __init__(self, why: str, *, over: bool = False) -> None:
        super().__init__(why)
        self.over = over


def event_id_header(event_id: str | None) -> bytes | None:
    """Write an event id as `Last-Event-ID`; `None` where there is none, or none that a header can carry."""
    if not event_id:
        return None
    value = event_id.encode()
    if (
        len(value) > HINT_BYTES
        or value != value.strip()
        or any(byte < 0x20 or byte == 0x7F for byte in value)
    ):
        return None
    return value


def stream_request(channel: HttpChannel | SseChannel, headers: Headers) -> HttpRequest:
    """Make the GET of an event stream: the channel's headers, without those of a request with a body."""
    own = [pair for pair in channel.headers if pair[0] not in (CONTENT_TYPE, ACCEPT)]
    return HttpRequest(b"GET", channel.target, [*own, (ACCEPT, SSE_TYPE), *headers])


@final
class Resumption:
    """The further askings of one request, from the early end of its stream on.

    Attributes:
        over: Nothing more is to come of it.
    """

    __slots__ = (
        "_caller", "_channel", "_client", "_exchange", "_lane", "_last_id", "_redirects", "_request_id",
        "_retry", "_scope", "_sink", "_tries", "over",
    )  # fmt: skip

    def __init__(
        self, channel: HttpChannel, sink: AnswerSink, request_id: int, lane: LaneName, caller: Caller
    ) -> None:
        from ._attempt import Tries

        assert channel.resumes is not None
        assert sink.parser is not None
        self._client: Client = channel.resumes
        self._channel = channel
        self._sink = sink
        self._request_id = request_id
        self._lane: LaneName = lane
        self._caller = caller
        self._last_id = sink.parser.last_event_id
        self._retry = sink.parser.retry
        self._tries = Tries()
        self._redirects = 0
        self._scope: trio.CancelScope | None = None
        self._exchange: HttpExchange | HttpxExchange | None = None
        self.over = False

    async def run(self, deadline: float) -> None:
        """Ask until the answer is in the sink.

        Raises:
            ResumeFailed: It cannot be had.
            Woken: `wake` was called, or the caller was interrupted before.
            TooLarge: An event is larger than the cap.
            WireClosed: `close` was called.
        """
        fruitless = 0
        told = 0.0
        last = ""
        while fruitless < ASKINGS:
            request = await self._pause(self._delay(fruitless, told))
            rest = _Rest(self._sink, self._request_id, self._channel.max_message)
            self._exchange = self._channel.link.exchange(request, rest, self._lane)
            try:
                await self._exchange.run(self, deadline)
            except WireClosed as error:
                if error.local:
                    raise
            except (ConnectFailed, Truncated, BadHttp):
                pass  # asked again, as after an end in order
            except Unsendable as error:
                raise ResumeFailed(f"it cannot be asked for: {error}") from error
            if self._sink.message is not None:
                self.over = True
                return
            if rest.parser is not None:
                self._last_id = rest.parser.last_event_id or self._last_id
                if rest.parser.retry is not None:
                    self._retry = rest.parser.retry
            fruitless = 0 if rest.fresh else fruitless + 1
            told = self._refused(rest)
            last = f", at last with HTTP {rest.status}" if rest.status not in (0, 200) else ""
        raise ResumeFailed(f"it was asked for {ASKINGS} times and nothing new came{last}")

    def _delay(self, fruitless: int, told: float) -> float:
        wanted = RETRY if self._retry is None else self._retry / 1000
        backoff = min(max(RETRY_MIN, wanted * 2**fruitless), RETRY_MAX)
        return float(min(max(backoff, wanted, told), TOLD_MAX))

    async def _pause(self, seconds: float) -> HttpRequest:
        if self._caller.interrupted is not None:
            raise Woken
        self._wanted()
        request: HttpRequest | None = None
        with trio.CancelScope() as scope:
            self._scope = scope
            try:
                await trio.sleep(seconds)
                self._wanted()
                last_id = event_id_header(self._last_id)
                if last_id is None:
                    raise ResumeFailed("the server named no event to go on from")
                bare = stream_request(self._channel, [(LAST_EVENT_ID, last_id)])
                request = await self._client.dressed(bare, self._tries)
            finally:
                self._scope = None
        if scope.cancel_called:  # also where nothing was left in it to be cancelled
            raise Woken
        if request is None:
            raise ResumeFailed("there is no credential to ask for it with")
        return request

    def _refused(self, rest: _Rest) -> float:
        """Read an answer that is no stream: return the seconds to wait at least, or raise."""
        from ._attempt import new_credential

        status = rest.status
        if rest.parser is not None or status == 0:
            return 0.0
        client = self._client
        if client.has_session and (
            status == 404
            or (status == 400 and says_session_lost(bytes(rest.hint).decode("utf-8", "replace")))
        ):
            client.lose("session expired")
            raise ResumeFailed("the server no longer knows the session", over=True)
        if status == 401 and client.requirement is not None and not self._tries.rejected:
            new_credential(Answer(None, status, rest.headers), self._tries)
            return 0.0
        target = redirect_target(client, status, rest.location)
        if target is not None and self._redirects < ASKINGS:
            self._redirects += 1
            go_to(client, target)
            return 0.0
        if status in AGAIN or status >= 500:
            return parse_retry_after(rest.retry_after, client.settings.seams.unix_now()) or 0.0
        raise ResumeFailed(f"the server refuses to be asked for it (HTTP {status})")

    # ------------------------------------------------------------------ the gate of the asking

    def ask(self, stage: str, /) -> None:  # noqa: ARG002 -- the same at every stage
        """Raise where the client has ended or the caller no longer stands behind its request."""
        self._wanted()

    def began(self) -> None:
        """Take note of nothing: the request itself had begun."""

    def _wanted(self) -> None:
        lost = self._client.lost
        if lost is not None:
            raise ResumeFailed(f"its client has ended ({lost})", over=True)
        try:
            self._caller.still_wanted()
        except AfpoolError as error:
            raise ResumeFailed(f"it may not be asked for any more ({error.code})") from error

    # ------------------------------------------------------------------ as a trip

    def wake(self) -> None:
        """Make the task that waits raise `Woken`."""
        if self._scope is not None:
            self._scope.cancel()
        elif self._exchange is not None:
            self._exchange.wake()

    async def finish(self) -> None:
        """Read on what is on its way, after a hand-over; nothing is asked for any more."""
        exchange = self._exchange
        try:
            if exchange is not None and exchange.held:
                await exchange.finish()
        finally:
            if exchange is None or not exchange.held:
                self.over = True

    def close(self) -> None:
        """Drop the connection, if there is one."""
        self.over = True
        if self._exchange is not None:
            self._exchange.close()


@final
class _Rest:
    """Reads one stream that goes on with an answer.

    Attributes:
        parser: Of the event stream, or `None` where the answer is none.
        fresh: Whether an event came that had not been seen.
    """

    __slots__ = (
        "_max",
        "_request_id",
        "_sink",
        "fresh",
        "headers",
        "hint",
        "location",
        "parser",
        "retry_after",
        "status",
    )

    def __init__(self, sink: AnswerSink, request_id: int, max_message: int) -> None:
        self._sink = sink
        self._request_id = request_id
        self._max = max_message
        self.parser: SseParser | None = None
        self.fresh = False
        self.status = 0
        self.hint = bytearray()
        self.headers: Headers = []
        self.location: bytes | None = None
        self.retry_after: bytes | None = None

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        self.location = first_of(headers, LOCATION)
        self.retry_after = first_of(headers, RETRY_AFTER)
        if status == 200 and body_kind(first_of(headers, CONTENT_TYPE)) is BodyKind.SSE:
            self.parser = SseParser(self._max)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece; raises `TooLarge` as the answer's own sink does."""
        if self.parser is None:
            self.hint += chunk[: HINT_BYTES - len(self.hint)]
            return len(self.hint) >= HINT_BYTES
        try:
            events = self.parser.feed(chunk)
        except EventTooLarge as error:
            if self._take(error):
                return True
            raise self._sink.too_large() from None
        fresh, done = self._sink.take_rest(events, self._request_id)
        self.fresh = self.fresh or fresh
        return done

    def _take(self, error: EventTooLarge) -> bool:
        _, done = self._sink.take_rest(error.events, self._request_id)
        return done
