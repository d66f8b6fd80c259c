"""What the engine and its fronts (HTTP, stdio) hand to each other: sessions, streams, exchanges, answers.

Who may end an exchange while it waits:

* a `notifications/cancelled` that names it, unless the tool is not cancellable or the server hangs;
* the end of its connection: in the stateless era always (closing the response stream is the cancel), in
  the handshake era only while nothing but the stream itself is left (`ends_with_connection`), because
  there a disconnect is no cancel and a tool runs on without its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

from ._envelope import META_SUBSCRIPTION, Era, Message, RpcId, notification
from ._offers import UPDATED

if TYPE_CHECKING:
    from ._ledger import Arrival

LostSpelling: TypeAlias = Literal["404", "404-text", "400-json", "400-text"]
CursorMode: TypeAlias = Literal["strict", "lenient", "loop", "empty-string"]

LIST_CHANGED: Final = "notifications/tools/list_changed"

# What a `subscriptions/listen` may ask for, and the notification behind each name.
LISTEN_FILTERS: Final[Mapping[str, str]] = {
    "toolsListChanged": LIST_CHANGED,
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


@attrs.define(eq=False)
class Advertise:
    """What the server says about itself and its lists. May be changed at any time.

    Attributes:
        name: Server name.
        instructions: Text for the client, None for none.
        list_changed: Whether the tools capability says `listChanged`.
        list_changed_after_initialized: Announce a change as soon as a session is initialized, on its
            notification stream, though nothing has changed.
        page_size: Tools per page of `tools/list`; None lists all at once.
        cursors: `strict` answers an unknown cursor with -32602, `lenient` with the first page; `loop` gives
            the same next cursor for ever; `empty-string` names the second page by an empty cursor.
        ttl_ms: `ttlMs` of stateless lists and of `server/discover`, milliseconds; None leaves it out.
        cache_scope: `cacheScope` beside it.
        result_type: `resultType` of stateless results; None leaves it out.
        capabilities: Further members of the capabilities object.
    """

    name: str = "afpool-fake"
    instructions: str | None = None
    list_changed: bool = True
    list_changed_after_initialized: bool = False
    page_size: int | None = None
    cursors: CursorMode = "strict"
    ttl_ms: int | None = 0
    cache_scope: str = "private"
    result_type: str | None = "complete"
    capabilities: Mapping[str, Any] = attrs.field(factory=dict)


class Session:
    """One handshake session: what an `initialize` opened, or the whole life of a stdio child."""

    __slots__ = ("id", "initialized", "listener", "locked", "log_level", "pending", "subscribed", "version")

    def __init__(self, session_id: str | None) -> None:
        self.id = session_id
        self.version: str | None = None
        self.initialized = False
        self.locked: Era | None = None
        self.listener: Listener | None = None
        self.pending: list[Message] = []
        self.subscribed: set[str] = set()
        self.log_level: str | None = None


class Listener:
    """An open stream to a client, on which notifications (and requests, handshake era) are sent.

    Args:
        deliver: Queues a message; never blocks.
        finish: Ends the stream, after a last message if there is one; never blocks.
        session: Whose notification stream it is; None for a `subscriptions/listen`.
        subscription_id: The id of the `subscriptions/listen` request.
        methods: The notifications that it asked for; None for all. A subscription to a resource is the name
            of its notification and the URI, parted by a blank.
    """

    __slots__ = ("deliver", "finish", "methods", "session", "subscription_id")

    def __init__(
        self,
        deliver: Callable[[Message], None],
        finish: Callable[[Message | None], None],
        *,
        session: Session | None = None,
        subscription_id: RpcId = None,
        methods: frozenset[str] | None = None,
    ) -> None:
        self.deliver = deliver
        self.finish = finish
        self.session = session
        self.subscription_id = subscription_id
        self.methods = methods

    def offer(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Send a notification if the stream asked for it; says whether it did."""
        if method == UPDATED and not self._subscribed((params or {}).get("uri")):
            return False
        if self.methods is None:
            self.deliver(notification(method, params))
            return True
        if method != UPDATED and method not in self.methods:
            return False
        self.deliver(notification(method, tag_subscription(params, self.subscription_id)))
        return True

    def _subscribed(self, uri: object) -> bool:
        if self.session is not None:
            return uri in self.session.subscribed
        return self.methods is None or f"{UPDATED} {uri}" in self.methods


def tag_subscription(params: Mapping[str, Any] | None, subscription_id: RpcId) -> Message:
    """Parameters with the subscription id in their `_meta`."""
    tagged = dict(params or {})
    meta = tagged.get("_meta")
    tagged["_meta"] = {
        **(meta if isinstance(meta, Mapping) else {}),
        META_SUBSCRIPTION: subscription_id,
    }
    return tagged


class Exchange:
    """One message on its way through the server, and the way back to who sent it."""

    __slots__ = (
        "answered",
        "arrival",
        "cancellable",
        "ends_with_connection",
        "era",
        "opened_session",
        "peer",
        "scope",
        "session",
    )

    def __init__(self, arrival: Arrival, era: Era, session: Session | None, peer: str | None) -> None:
        self.arrival = arrival
        self.era: Era = era
        self.session = session
        # Cancellation notices are looked up by (peer, id); None where a notice cannot be attributed.
        self.peer = peer
        self.scope = trio.CancelScope()
        self.cancellable = True
        self.ends_with_connection = False
        self.answered = False
        self.opened_session = False

    async def emit(self, message: Message) -> None:
        """Send a message ahead of the answer, on the stream of the answer."""
        raise NotImplementedError


@attrs.frozen(eq=False)
class Answer:
    """What the engine has to say to a request.

    Attributes:
        message: The JSON-RPC message; for a `listen` the acknowledgement that opens its stream.
        status: The HTTP status around it.
        listen: The notification methods of a stream to be opened, None for a plain answer.
    """

    message: Message
    status: int = 200
    listen: frozenset[str] | None = None


@attrs.frozen(eq=False)
class Listen:
    """What a `subscriptions/listen` was granted: as it is acknowledged, and as notification methods."""

    honoured: Message
    methods: frozenset[str]
