"""The notification stream: one per client that listens, and what becomes of it.

* Losing it is not losing the session: calls go on, the list is in doubt until it is asked for again. The one
  exception is a 404 for a session whose stream was there before: the server no longer knows the session.
* Whatever the server does with it, it is asked for at most once a second, backing off to once in 30
  seconds, or as late as the server says (`retry`, `Retry-After`; at most five minutes); only a stream that
  lived for a while starts the round anew. A 409 says that somebody else has the stream: half a minute. A
  server that says it has none is believed.
* Resource subscriptions of 2026-07-28 are members of the stream's own request: another set of them is
  another stream. It is asked for at once, by our own doing; whoever waits for a subscription is told when an
  acknowledgement grants it.
* In the handshake era it is a GET (over HTTP) or the stream itself; in 2026-07-28 a `subscriptions/listen`
  request whose answer stays open. The GET names the last event that was seen (`Last-Event-ID`), unless the
  server has refused it for that.
* A subscription hears what the server acknowledged and nothing else: one without tools is none. Its messages
  are told by `subscriptionId`; those of another subscription are dropped. It ends by a result (in order), by
  the server's `notifications/cancelled`, or with its stream: either way nothing is heard until there is a
  new one, so either way it is lost.
* A GET stream is opened for questions too, where the plan offers to answer some: servers ask there, whether
  they announce changes or not. What becomes of it then says nothing of the list, unless that is listened to.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import trio

from .._base.errors import ServerRefused
from ..protocol import (
    CONTENT_TYPE,
    INTERNAL_ERROR,
    LAST_EVENT_ID,
    METHOD,
    RETRY_AFTER,
    UNSUPPORTED_VERSION,
    BodyKind,
    EventTooLarge,
    MalformedMessage,
    SseParser,
    body_kind,
    decode_error,
    decode_json,
    decode_message,
    decode_messages,
    encode_request,
    honoured_uris,
    listen_params,
    parse_retry_after,
    subscription_id,
)
from ..transports import HttpRequest
from ._attempt import Tries, new_credential
from ._control import Control
from ._http_channel import HttpChannel
from ._own import send_own
from ._resume import event_id_header, stream_request
from ._trip import Answer, Rpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import Message, SseEvent
    from ..transports import Headers
    from ._client import Client
    from ._sse_channel import SseChannel
    from ._stream_channel import StreamChannel
    from ._trip import Trip

State: TypeAlias = Literal["unasked", "connecting", "listening", "lost", "unsupported"]

FIRST_WAIT: Final = 0.5
RETRY: Final = 1.0
RETRY_MAX: Final = 30.0
TOLD_MAX: Final = 300.0
ACKNOWLEDGED_WITHIN: Final = 10.0
LIVED: Final = 30.0
CONFLICT: Final = 409
BODY_BYTES: Final = 16 * 1024
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


@final
class Listener:
    """The listening side of one client.

    Attributes:
        state: Whether changes of the list are heard of now.
        asked: How often the stream was asked for.
        hears_tools: Whether the server may announce changes of its tools on it.
        last_event_id: Of the GET stream, to go on from.
        retry: Seconds that the server wants to be left alone for after its stream has ended.
    """

    __slots__ = (
        "_acked",
        "_answered",
        "_asked_for",
        "_asking",
        "_decided",
        "_granted",
        "_heard",
        "_late",
        "_news",
        "_once_scope",
        "_scope",
        "_spawn",
        "_stream",
        "_subscription",
        "_tries",
        "_trip",
        "_uris",
        "_wanted",
        "asked",
        "client",
        "hears_tools",
        "last_event_id",
        "retry",
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
        self._tries = Tries()  # what the provider is to know of the stream's last answer
        self._heard = False  # the stream was there once
        self._subscription: int | None = None  # the id of the listen under way
        self._asking: trio.CancelScope | None = None  # around it, ended by the server's own cancel notice
        self.state: State = "unasked"
        self.asked = 0
        self.last_event_id: bytes | None = None
        self.retry = 0.0
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

    def belongs(self, message: Message) -> bool:
        """Whether a notification is for the subscription under way, or names none."""
        subscription = subscription_of(message)
        return subscription is None or subscription == self._subscription

    def heard(self, message: Message) -> None:
        """Take a notification that is not about the list."""
        if message.method == ACKNOWLEDGED and self.client.stateless and self.belongs(message):
            self._acknowledged(message)
        elif (
            message.method == "notifications/cancelled"
            and self._asking is not None
            and self._subscription is not None
            and cancelled_id(message) == self._subscription
        ):
            self._asking.cancel()

    def _acknowledged(self, message: Message) -> None:
        asking = self._asking
        if asking is not None:
            asking.deadline = float("inf")
        granted = honoured_uris(message.params)
        self._granted = self._asked_for if granted is None else granted
        self._acked = True
        self.hears_tools = self.hears_tools and acknowledges(message, "toolsListChanged")
        if not acknowledges(message):
            self._became("unsupported")
            if asking is not None:
                asking.cancel()
            return
        self._became("listening")
        if self._uris != self._asked_for:  # more were wanted while it was on its way
            self._ask_again()

    def _begin(self, *, forced: bool) -> None:
        client = self.client
        self.hears_tools = client.offers("tools", "listChanged")
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
        self._heard = self._heard or state == "listening"
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
            seams = self.client.settings.seams
            while self.client.lost is None:
                began = seams.now()
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
                if seams.now() - began >= LIVED:
                    delay = RETRY
                await trio.sleep(max(delay, told))
                delay = min(delay * 2, RETRY_MAX)

    async def _once(self) -> float:
        """Listen until the stream ends; return the seconds after which the server wants to be asked again."""
        channel = self.client.channel
        try:
            with trio.CancelScope() as self._asking:
                if self.client.stateless:
                    self._asking.deadline = self.client.settings.seams.now() + ACKNOWLEDGED_WITHIN
                if isinstance(channel, HttpChannel):
                    return await self._http(channel)
                await self._on_stream(channel)
        finally:
            self._asking = self._subscription = None
        return 0.0

    async def _on_stream(self, channel: StreamChannel | SseChannel) -> None:
        trip = self._trip = channel.trip(Rpc("subscriptions/listen", self._params()), [])
        self._subscription = trip.request_id
        caller = Control(self.client, float("inf"))
        try:
            answer = await trip.run(caller, float("inf"))
        except Exception:  # noqa: BLE001 -- the stream's end is the link's to tell
            return
        finally:
            trip.close()
        if answer.message is not None and answer.message.is_error:
            self._error(decode_error(answer.message.error).code)

    async def _http(self, channel: HttpChannel) -> float:
        sink = _StreamSink(self, channel)
        if self.client.stateless:
            self._subscription = channel.next_id()
            body = encode_request(self._subscription, "subscriptions/listen", self._params())
            headers: Headers = [*channel.headers, (METHOD, b"subscriptions/listen")]
            request = HttpRequest(b"POST", channel.target, headers, body)
        else:
            resume = [] if self.last_event_id is None else [(LAST_EVENT_ID, self.last_event_id)]
            request = stream_request(channel, resume)
        gate = Control(self.client, float("inf"))
        with contextlib.suppress(Exception):  # however it ends, it is lost and asked for again
            await send_own(
                self.client, request.method, [*request.headers], sink,
                lane="stream", gate=gate, deadline=float("inf"), body=request.body, tries=self._tries,
            )  # fmt: skip
        if sink.status == 401:
            new_credential(Answer(None, 401, sink.headers), self._tries)
        if not sink.good and sink.status:
            return self._refusal(sink, resumed=self.last_event_id is not None)
        return self.retry

    # ------------------------------------------------------------------ refusals

    def _refusal(self, sink: _StreamSink, *, resumed: bool) -> float:
        """Read an answer that is no event stream; return the seconds to leave the server alone for."""
        status, client = sink.status, self.client
        if client.stateless:
            message = sink.message()
            if status not in (200, 400, 404, 405, 406, 415, 501):
                pass  # an outage, or a credential: it may listen later
            elif message is not None and message.is_error:
                self._error(decode_error(message.error).code)
            else:
                self._became("unsupported")
        elif status == 404 and self._heard and client.has_session:
            client.lose("session expired")
        elif status == 400 and resumed:
            self.last_event_id = None  # it knows nothing of that event any more; without one it may listen
        elif status in (404, 405, 406, 415, 501):
            self._became("unsupported")
        if status == CONFLICT:
            return RETRY_MAX
        wait = parse_retry_after(sink.retry_after, client.settings.seams.unix_now())
        return 0.0 if wait is None else min(wait, TOLD_MAX)

    def _error(self, code: int | None) -> None:
        if code == UNSUPPORTED_VERSION:
            self.client.outdate()
        elif code not in (INTERNAL_ERROR, None):
            self._became("unsupported")

    # ------------------------------------------------------------------ told by the sink

    def streaming(self) -> None:
        """The server has opened the stream; a subscription is there when it is acknowledged."""
        if not self.client.stateless:
            self._became("listening")


def _document(message: Message) -> dict[str, Any]:
    try:
        params = decode_json(message.params)
    except MalformedMessage:
        return {}
    return params if isinstance(params, dict) else {}


def subscription_of(message: Message) -> object:
    """The subscription that a notification names, as the integer that we sent; `None` where it names none."""
    value = subscription_id(message.params)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return int(value)
    return value


def acknowledges(message: Message, what: str | None = None) -> bool:
    """Whether the honoured subset holds `what`, or anything; one that is not named is taken for all."""
    honoured = _document(message).get("notifications")
    if not isinstance(honoured, dict):
        return True
    return any(honoured.values()) if what is None else bool(honoured.get(what))


def cancelled_id(message: Message) -> object:
    """The request that a `notifications/cancelled` names."""
    return _document(message).get("requestId")


@final
class _StreamSink:
    """Reads the events of a notification stream, or the refusal of one.

    Attributes:
        good: It is an event stream.
    """

    __slots__ = ("_body", "_channel", "_listener", "_parser", "good", "headers", "retry_after", "status")

    def __init__(self, listener: Listener, channel: HttpChannel) -> None:
        self._listener = listener
        self._channel = channel
        self._parser = SseParser(channel.max_message)
        self._body = bytearray()
        self.good = False
        self.headers: Headers = []
        self.retry_after: bytes | None = None
        self.status = 0

    def head(self, status: int, headers: Headers, /) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        content_type = None
        for name, value in headers:
            if name == CONTENT_TYPE:
                content_type = value
            elif name == RETRY_AFTER:
                self.retry_after = value
        self.good = status == 200 and body_kind(content_type) is BodyKind.SSE
        if self.good:
            self._listener.streaming()

    def data(self, chunk: bytes, /) -> bool:
        """Take a piece; of a body that is no event stream, only its first bytes are of use."""
        if not self.good:
            self._body += chunk[: BODY_BYTES - len(self._body)]
            return len(self._body) >= BODY_BYTES
        events: list[SseEvent]
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as error:
            events = error.events
            over = True
        else:
            over = False
        listener = self._listener
        for event in events:
            if event.retry is not None:
                listener.retry = min(event.retry / 1000, TOLD_MAX)
            if event.id is not None and not listener.client.stateless:
                listener.last_event_id = event_id_header(event.id)
            if self._take(event):
                return True  # the subscription has ended in order
        return over

    def _take(self, event: SseEvent) -> bool:
        if not event.data:
            return False
        try:
            messages = decode_messages(event.data)
        except MalformedMessage:
            return False
        for message in messages:
            if message.is_response:
                return True
            if self._listener.belongs(message):
                self._channel.on_message(message)
        return False

    def message(self) -> Message | None:
        """The JSON-RPC message of a refusal, if it holds one."""
        try:
            return decode_message(bytes(self._body))
        except MalformedMessage:
            return None
