"""The notification stream: one per client that listens, and what becomes of it.

* Losing it is not losing the session: calls go on, the list is in doubt until it is asked for again.
* Whatever the server does with it, it is asked for at most once a second, backing off to once in 30
  seconds, or as late as the server says (`retry`, `Retry-After`; at most five minutes); only a stream that
  lived for a while starts the round anew. A server that says it has none is asked no more.
* In the handshake era it is a GET (over HTTP, `_listen_http.py`) or the stream itself; in 2026-07-28 a
  `subscriptions/listen` request whose answer stays open.
* A subscription hears what the server acknowledged and nothing else: one without tools is none. Its messages
  are told by `subscriptionId` (`_subscription.py`); those of another subscription are dropped. It ends by a
  result (in order), by the server's `notifications/cancelled`, or with its stream: either way nothing is
  heard until there is a new one, so either way it is lost.
* Resource subscriptions of 2026-07-28 are members of the stream's own request: another set of them is
  another stream. It is asked for at once, by our own doing; whoever waits for a subscription is told when an
  acknowledgement grants it.
* A GET stream is opened for questions too, where the plan offers to answer some: servers ask there, whether
  they announce changes or not. What becomes of it then says nothing of the list, unless that is listened to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

import trio

from .._base.errors import NOT_SENT, LocalSessionHandleLostError, ServerRefused
from ..protocol import (
    INTERNAL_ERROR,
    UNSUPPORTED_VERSION,
    decode_error,
    honoured_uris,
    listen_params,
)
from ._attempt import Tries
from ._control import Control
from ._http_channel import HttpChannel
from ._listen_http import listen_over_http
from ._subscription import acknowledges, cancelled_id, subscription_of
from ._trip import Rpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol import Message
    from ._client import Client
    from ._settings import Unheard
    from ._sse_channel import SseChannel
    from ._stream_channel import StreamChannel

State: TypeAlias = Literal["unasked", "connecting", "listening", "lost", "unsupported"]

FIRST_WAIT: Final = 0.5
RETRY: Final = 1.0
RETRY_MAX: Final = 30.0
ACKNOWLEDGED_WITHIN: Final = 10.0
LIVED: Final = 30.0
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
        subscription: The id of the `subscriptions/listen` under way.
        was_there: The server has opened the stream once.
    """

    __slots__ = (
        "_acked",
        "_anew",
        "_answered",
        "_asked_for",
        "_asking",
        "_bare",
        "_decided",
        "_granted",
        "_idle",
        "_late",
        "_news",
        "_once_scope",
        "_scope",
        "_spawn",
        "_stopped",
        "_stream",
        "_tries",
        "_uris",
        "_wanted",
        "_withdrawn",
        "asked",
        "client",
        "hears_tools",
        "last_event_id",
        "retry",
        "state",
        "subscription",
        "was_there",
    )  # fmt: skip

    def __init__(self, client: Client, spawn: Callable[..., None]) -> None:
        self.client = client
        self._spawn = spawn
        self._decided = trio.Event()
        self._scope: trio.CancelScope | None = None
        self._answered = trio.Event()  # it is known whether there is a stream
        self._stream: State = "unasked"  # of the stream itself, whatever it was opened for
        self._wanted = False  # it is listened to for more than questions
        self._anew = False  # the stream is given up to be asked for anew
        self._late = False  # a list was asked for before it was known whether its changes are heard
        self._tries = Tries()  # what the provider is to know of the stream's last answer
        self.was_there = False
        self.subscription: int | None = None
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
        self._withdrawn = False  # the server itself has ended the listen under way
        self._stopped = False  # its client is over
        self._bare = False  # the server keeps such streams, and granted nothing on this one
        self._idle = False  # nobody asks for a stream any more

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
            LocalSessionHandleLostError: The client has ended.
        """
        if uri not in self._uris:
            self._uris.add(uri)
            if not self._wanted and self.state in ("unasked", "unsupported"):
                self._begin(forced=True)
            elif self._bare:
                # it was granted nothing of what was asked for: this is something else
                self._bare = False
                self._stream = "connecting"
                if self._idle:
                    self._connect()
            elif self._acked:
                self._ask_again()
        while uri not in self._granted:
            if self._stream == "unsupported" or (self._acked and uri in self._asked_for):
                self._uris.discard(uri)
                raise ServerRefused("the server does not grant the subscription; nothing runs for it")
            if self._stopped:
                raise LocalSessionHandleLostError(
                    "the client ended before the subscription was acknowledged; nothing runs for it",
                    delivery=NOT_SENT,
                )
            await self._news.wait()

    def unwatch(self, uri: str) -> None:
        """Subscribe to it no more; synchronous."""
        if uri in self._uris:
            self._uris.discard(uri)
            if self._acked:
                self._ask_again()

    def _ask_again(self) -> None:
        if self._once_scope is not None:
            self._once_scope.cancel()

    def _tell(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    def stop(self) -> None:
        """Stop listening, and tell whoever waits for a subscription; synchronous."""
        self._stopped = True
        self._tell()
        if self._scope is not None:
            self._scope.cancel()

    def belongs(self, message: Message) -> bool:
        """Whether a notification is for the subscription under way, or names none."""
        subscription = subscription_of(message)
        return subscription is None or subscription == self.subscription

    def heard(self, message: Message) -> None:
        """Take a notification that is not about the list."""
        if message.method == ACKNOWLEDGED and self.client.stateless and self.belongs(message):
            self._acknowledged(message)
        elif (
            message.method == "notifications/cancelled"
            and self._asking is not None
            and self.subscription is not None
            and cancelled_id(message) == self.subscription
        ):
            self._withdrawn = True
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
            self._bare = True
            self.became("unsupported")
            if asking is not None:
                asking.cancel()
            return
        self.became("listening")
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
        self._idle = False
        self._scope = trio.CancelScope()
        self._spawn(self._run)

    def became(self, state: State) -> None:
        """Take in what has become of the stream itself."""
        self._stream = state
        self.was_there = self.was_there or state == "listening"
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

    def params(self) -> bytes:
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
        self._decided.set()
        # what was announced while nobody listened has not been heard
        if state == "lost" and was == "listening":
            why: Unheard = "anew" if self._anew else "lost"
        elif state == "listening" and (was == "lost" or self._late):
            why = "again" if was == "lost" else "late"
        else:
            return
        self._late = False
        self.client.hooks.stream_lost(self.client, why)

    async def _run(self) -> None:
        assert self._scope is not None
        with self._scope:
            delay = RETRY
            seams = self.client.settings.seams
            while self.client.lost is None:
                began = seams.now()
                self.asked += 1
                told = 0.0
                with trio.CancelScope() as self._once_scope:
                    told = await self._once()
                if self._once_scope.cancelled_caught:
                    self._anew = True  # for other subscriptions, by our own doing
                    self.became("lost")
                    self._anew = False
                    continue
                if self._stream == "unsupported":
                    self._idle = True
                    return
                self.became("lost")
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
                    return await listen_over_http(self, channel, self._tries)
                await self._on_stream(channel)
        finally:
            self._asking = self.subscription = None
            self._withdrawn = False
        return 0.0

    async def _on_stream(self, channel: StreamChannel | SseChannel) -> None:
        client = self.client
        trip = channel.trip(Rpc("subscriptions/listen", self.params()), [])
        self.subscription = trip.request_id
        caller = Control(client, float("inf"))
        try:
            answer = await trip.run(caller, float("inf"))
        except Exception:  # noqa: BLE001 -- the stream's end is the link's to tell
            return
        finally:
            if trip.begun and not trip.over and client.lost is None and not self._withdrawn:
                client.cancel(trip)  # given up, and the stream lives on: the server has to be told
            trip.close()
        if answer.message is not None and answer.message.is_error:
            self.failed(decode_error(answer.message.error).code)

    def failed(self, code: int | None) -> None:
        """The ask for the stream was answered with an error."""
        if code == UNSUPPORTED_VERSION:
            self.client.outdate()
        elif code not in (INTERNAL_ERROR, None):
            self.became("unsupported")

    # ------------------------------------------------------------------ told by the stream

    def streaming(self) -> None:
        """The server has opened the stream; a subscription is there when it is acknowledged."""
        if not self.client.stateless:
            self.became("listening")
