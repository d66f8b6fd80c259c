"""The notification stream: one per client that listens, and what becomes of it.

* Losing it is not losing the session: calls go on, the list is in doubt until it is asked for again.
* Whatever the server does with it, it is asked for at most once a second, backing off to once in 30
  seconds; only a stream that lived for a while starts the round anew. A server that says it has none is
  believed.
* Resource subscriptions of 2026-07-28 are members of the stream's own request: another set of them is
  another stream. It is asked for at once, by our own doing; whoever waits for a subscription is told when an
  acknowledgement grants it.
* In the handshake era it is a GET (over HTTP) or the stream itself; in 2026-07-28 a `subscriptions/listen`
  request whose answer stays open.
* A GET stream is opened for questions too, where the plan offers to answer some: servers ask there, whether
  they announce changes or not. What becomes of it then says nothing of the list, unless that is listened to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import trio

from .._base.errors import ServerRefused
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
    honoured_uris,
    listen_params,
    subscription_id,
)
from ._http_channel import HttpChannel
from ._own import send_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import Message
    from ..transports import Headers
    from ._client import Client
    from ._trip import Trip

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
        hears_tools: Whether the server may announce changes of its tools on it.
    """

    __slots__ = (
        "_acked", "_answered", "_asked_for", "_decided", "_granted", "_late", "_news", "_once_scope",
        "_scope", "_spawn", "_stream", "_trip", "_uris", "_wanted", "asked", "client", "hears_tools",
        "state",
    )  # fmt: skip

    def __init__(self, client: Client, spawn: Callable[..., None]) -> None:
        self.client = client
        self._spawn = spawn
        self._decided = trio.Event()
        self._scope: trio.CancelScope | None = None
        self._answered = trio.Event()  # it is known whether there is a stream
        self._stream: State = "unasked"  # of the stream itself, whatever it was opened for
        self._wanted = False  # it is listened to for more than questions
        self._late = False  # a list was asked for before it was known whether its changes are heard
        self.state: State = "unasked"
        self.asked = 0
        self.hears_tools = False
        self._uris: set[str] = set()  # subscriptions that are wanted
        self._asked_for: frozenset[str] = frozenset()  # those that the stream in hand was asked for with
        self._granted: frozenset[str] = frozenset()  # those that it grants
        self._acked = False
        self._news = trio.Event()  # set, and made anew, when any of this changes
        self._once_scope: trio.CancelScope | None = None
        self._trip: Trip | None = None

    async def start(self) -> None:
        """Listen from now on; wait at most half a second until it is known whether the server lets us."""
        if self.state == "unasked":
            self._begin(forced=False)
        await self._decision()

    async def hear(self) -> None:
        """As `start`, also where the server announces no list changes: something else will come on it."""
        if not self._wanted and self.state in ("unasked", "unsupported"):
            self._begin(forced=True)
        await self._decision()

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

    async def _decision(self) -> None:
        if self.state == "connecting":
            with trio.move_on_after(FIRST_WAIT) as waited:
                await self._decided.wait()
            self._late = waited.cancelled_caught

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource (2026-07-28) and wait until an acknowledgement grants it.

        Raises:
            ServerRefused: The server keeps no such stream, or grants no such subscription.
        """
        if uri not in self._uris:
            self._uris.add(uri)
            if not self._wanted and self.state in ("unasked", "unsupported"):
                self._begin(forced=True)
            elif self._acked:
                self._ask_again()
        while uri not in self._granted:
            if self._stream == "unsupported" or (self._acked and uri in self._asked_for):
                self._uris.discard(uri)
                raise ServerRefused("the server does not grant the subscription; nothing runs for it")
            await self._news.wait()

    def unwatch(self, uri: str) -> None:
        """Subscribe to it no more; synchronous."""
        if uri in self._uris:
            self._uris.discard(uri)
            if self._acked:
                self._ask_again()

    def _ask_again(self) -> None:
        if self._once_scope is not None:
            if self._trip is not None and self.client.shared_stream:
                self.client.cancel(self._trip)  # the stream lives on: the server has to be told
            self._once_scope.cancel()

    def _tell(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    def stop(self) -> None:
        """Stop listening; synchronous."""
        if self._scope is not None:
            self._scope.cancel()

    def heard(self, message: Message) -> None:
        """Take a notification that is not about the list."""
        if message.method == ACKNOWLEDGED and self._is_ours(message):
            granted = honoured_uris(message.params)
            self._granted = self._asked_for if granted is None else granted
            self._acked = True
            self._became("listening")
            if self._uris != self._asked_for:  # more were wanted while it was on its way
                self._ask_again()

    def _is_ours(self, message: Message) -> bool:
        # on a shared stream the one before may still be heard
        mine = getattr(self._trip, "request_id", None)
        named = subscription_id(message.params)
        return mine is None or named is None or named == mine

    def _begin(self, *, forced: bool) -> None:
        client = self.client
        negotiated = client.negotiated
        assert negotiated is not None
        tools = negotiated.capabilities.get("tools")
        announced = isinstance(tools, dict) and bool(tools.get("listChanged"))
        self.hears_tools = announced or not negotiated.asked
        if not self.hears_tools and not forced and not self._tells_the_host():
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
        if state != "listening":
            self._granted = frozenset()
            self._acked = False
        self._tell()
        if self._wanted:
            self._now(state)

    def _tells_the_host(self) -> bool:
        wanted = self.client.settings.notices
        return bool(wanted) and (
            ("log" in wanted and self.client.offers("logging"))
            or any(self.client.offers(name, "listChanged") for name in wanted)
        )

    def _params(self) -> bytes:
        """What a `subscriptions/listen` asks for now."""
        self._asked_for = frozenset(self._uris)
        wanted, offers = self.client.settings.notices, self.client.offers
        return listen_params(
            self.client.meta,
            tools=self.hears_tools,
            prompts="prompts" in wanted and offers("prompts", "listChanged"),
            resources="resources" in wanted and offers("resources", "listChanged"),
            resource_uris=sorted(self._asked_for),
        )

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
                with trio.CancelScope() as self._once_scope:
                    told = await self._once()
                self._trip = None
                if self._once_scope.cancelled_caught:
                    self._became("lost")
                    continue  # for other subscriptions, by our own doing
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

        rpc = Rpc("subscriptions/listen", self._params())
        trip = self._trip = channel.trip(rpc, [])
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
            method, body = b"POST", encode_request(0, "subscriptions/listen", self._params())
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
