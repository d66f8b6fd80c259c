"""The notification stream: one per client that listens, and what becomes of it.

* Losing it is not losing the session: calls go on, the list is in doubt until it is asked for again.
* Whatever the server does with it, it is asked for at most once a second, backing off to once in 30
  seconds; only a stream that lived for a while starts the round anew. A server that says it has none is
  believed.
* In the handshake era it is a GET (over HTTP) or the stream itself; in 2026-07-28 a `subscriptions/listen`
  request whose answer stays open.
* A GET stream is opened for questions too, where the plan offers to answer some: servers ask there, whether
  they announce changes or not. What becomes of it then says nothing of the list, unless that is listened to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import trio

from .._base.gate import OpenGate
from ..protocol import (
    METHOD,
    BodyKind,
    EventTooLarge,
    MalformedMessage,
    SseParser,
    body_kind,
    decode_messages,
    encode_request,
    listen_params,
)
from ._http_channel import HttpChannel
from ._own import send_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import Message
    from ..transports import Headers
    from ._client import Client

State: TypeAlias = Literal["unasked", "connecting", "listening", "lost", "unsupported"]

FIRST_WAIT: Final = 0.5
RETRY: Final = 1.0
RETRY_MAX: Final = 30.0
LIVED: Final = 30.0
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


@final
class Listener:
    """The listening side of one client.

    Attributes:
        state: Whether changes of the list are heard of now.
        asked: How often the stream was asked for.
    """

    __slots__ = (
        "_answered",
        "_decided",
        "_late",
        "_scope",
        "_spawn",
        "_stream",
        "_wanted",
        "asked",
        "client",
        "state",
    )

    def __init__(self, client: Client, spawn: Callable[..., None]) -> None:
        self.client = client
        self._spawn = spawn
        self._decided = trio.Event()
        self._scope: trio.CancelScope | None = None
        self._answered = trio.Event()  # it is known whether there is a stream
        self._stream: State = "unasked"  # of the stream itself, whatever it was opened for
        self._wanted = False  # changes of the list are listened to on it
        self._late = False  # a list was asked for before it was known whether its changes are heard
        self.state: State = "unasked"
        self.asked = 0

    async def start(self) -> None:
        """Listen from now on; wait at most half a second until it is known whether the server lets us."""
        if self.state == "unasked":
            self._begin()
        if self.state == "connecting":
            with trio.move_on_after(FIRST_WAIT) as waited:
                await self._decided.wait()
            self._late = waited.cancelled_caught

    def start_for_questions(self) -> None:
        """Open the stream on which a server of the handshake era asks over HTTP; synchronous."""
        if not self.client.stateless and isinstance(self.client.channel, HttpChannel):
            self._connect()

    async def ready(self) -> None:
        """Wait at most half a second until it is known whether there is a stream for questions.

        A server may drop a question for which no stream is open, and its call would then wait for nothing.
        """
        if self._stream == "connecting":
            with trio.move_on_after(FIRST_WAIT):
                await self._answered.wait()

    def stop(self) -> None:
        """Stop listening; synchronous."""
        if self._scope is not None:
            self._scope.cancel()

    def heard(self, message: Message) -> None:
        """Take a notification that is not about the list."""
        if message.method == ACKNOWLEDGED:
            self._became("listening")

    def _begin(self) -> None:
        client = self.client
        negotiated = client.negotiated
        assert negotiated is not None
        tools = negotiated.capabilities.get("tools")
        announced = isinstance(tools, dict) and bool(tools.get("listChanged"))
        if negotiated.asked and not announced:
            self._now("unsupported")
        elif not client.stateless and client.shared_stream:
            self._now("listening")
        else:
            self._wanted = True
            if self._scope is None:
                self._connect()
            if self._stream == "connecting":
                self.state = "connecting"
            else:
                self._now(self._stream)

    def _connect(self) -> None:
        self._stream = "connecting"
        self._scope = trio.CancelScope()
        self._spawn(self._run)

    def _became(self, state: State) -> None:
        self._stream = state
        self._answered.set()
        if self._wanted:
            self._now(state)

    def _now(self, state: State) -> None:
        was, self.state = self.state, state
        if state != "connecting":
            self._decided.set()
        # what was announced while nobody listened has not been heard
        if (state == "lost" and was == "listening") or (
            state == "listening" and (was == "lost" or self._late)
        ):
            self._late = False
            self.client.hooks.stream_lost(self.client)

    async def _run(self) -> None:
        assert self._scope is not None
        with self._scope:
            delay = RETRY
            now = self.client.settings.seams.now
            while self.client.lost is None:
                began = now()
                self.asked += 1
                told = await self._once()
                if self._stream == "unsupported":
                    return
                self._became("lost")
                if now() - began >= LIVED:
                    delay = RETRY
                await trio.sleep(max(delay, told))
                delay = min(delay * 2, RETRY_MAX)

    async def _once(self) -> float:
        """Listen until the stream ends; return the seconds after which the server wants to be asked again."""
        channel = self.client.channel
        if isinstance(channel, HttpChannel):
            return await self._http(channel)
        from ._trip import Rpc

        rpc = Rpc("subscriptions/listen", listen_params(self.client.meta))
        trip = channel.trip(rpc, [])
        try:
            answer = await trip.run(OpenGate(), float("inf"))
        except Exception:  # noqa: BLE001 -- the stream's end is the link's to tell
            return 0.0
        finally:
            trip.close()
        if answer.message is not None and answer.message.is_error:
            self._became("unsupported")
        return 0.0

    async def _http(self, channel: HttpChannel) -> float:
        sink = _StreamSink(self, channel)
        method, body = b"GET", b""
        if self.client.stateless:
            method, body = b"POST", encode_request(0, "subscriptions/listen", listen_params(self.client.meta))
            headers: Headers = [*channel.headers, (METHOD, b"subscriptions/listen")]
        else:
            headers = [pair for pair in channel.headers if pair[0] not in (b"content-type", b"accept")]
            headers.append((b"accept", b"text/event-stream"))
        try:
            await send_own(
                self.client, method, headers, sink,
                lane="stream", gate=OpenGate(), deadline=float("inf"), body=body,
            )  # fmt: skip
        except Exception:  # noqa: BLE001 -- however it ends, it is lost and asked for again
            return sink.retry
        return sink.retry

    # ------------------------------------------------------------------ told by the sink

    def answered(self, status: int, kind: BodyKind, *, stateless: bool) -> bool:
        """Take the head of the stream's answer; return whether it is one."""
        if status == 200 and kind is BodyKind.SSE:
            if not stateless:
                self._became("listening")
            return True
        if status in (404, 405, 406, 415, 501) or (stateless and status in (200, 400)):
            self._became("unsupported")
        return False


class _StreamSink:
    """Reads the events of a notification stream."""

    __slots__ = ("_channel", "_good", "_listener", "_parser", "retry")

    def __init__(self, listener: Listener, channel: HttpChannel) -> None:
        self._listener = listener
        self._channel = channel
        self._good = False
        self._parser = SseParser(channel.max_message)
        self.retry = 0.0

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        content_type = next((value for name, value in headers if name == b"content-type"), None)
        stateless = self._listener.client.stateless
        self._good = self._listener.answered(status, body_kind(content_type), stateless=stateless)

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece; a body that is no event stream is not read on."""
        if not self._good:
            return True
        events: list[Any]
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as error:
            events = error.events
        for event in events:
            if event.retry is not None:
                self.retry = min(event.retry / 1000, RETRY_MAX)
            if not event.data:
                continue
            try:
                messages = decode_messages(event.data)
            except MalformedMessage:
                continue
            for message in messages:
                if not message.is_response:
                    self._channel.on_message(message)
                else:
                    return True  # the subscription has ended in order
        return False
