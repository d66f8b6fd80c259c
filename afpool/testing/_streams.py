"""The open notification streams of a server: GET streams, `subscriptions/listen`, a child's stdout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._envelope import Message, result_message
from ._exchange import LISTEN_FILTERS, Listen
from ._offers import UPDATED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ._exchange import Listener


class Streams:
    """Every open stream, oldest first. All of it is synchronous: sending means queueing.

    Args:
        changed: Called after a stream has come or gone.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.open: list[Listener] = []
        self._changed = changed

    def add(self, listener: Listener) -> None:
        """A stream has been opened; a session's pending messages go out on it."""
        self.open.append(listener)
        session = listener.session
        if session is not None:
            session.listener = listener
            for message in session.pending:
                listener.deliver(message)
            session.pending.clear()
        self._changed()

    def remove(self, listener: Listener) -> None:
        """A stream has ended."""
        if listener in self.open:
            self.open.remove(listener)
        if listener.session is not None and listener.session.listener is listener:
            listener.session.listener = None
        self._changed()

    def finish(self, listener: Listener, final: Message | None) -> None:
        """End a stream from our side, after a last message if there is one; it counts as closed at once."""
        listener.finish(final)
        self.remove(listener)

    def broadcast(self, method: str, params: Mapping[str, Any] | None) -> int:
        """Send a notification on every stream that wants it; says on how many."""
        return sum(listener.offer(method, params) for listener in tuple(self.open))

    def end(self, *, graceful: bool, result: Message) -> int:
        """End every notification stream; a graceful end of a listen is its result. Says how many."""
        ended = tuple(self.open)
        for listener in ended:
            final = None
            if graceful and listener.session is None:
                final = result_message(listener.subscription_id, result)
            self.finish(listener, final)
        return len(ended)


def honour(params: Mapping[str, Any], known: Collection[str] | None, *, list_changed: bool) -> Listen:
    """What a `subscriptions/listen` is granted.

    Args:
        params: Of the request.
        known: The URIs that can be subscribed to; None where there is no such thing.
        list_changed: Whether changes of lists are announced at all.
    """
    wanted = params.get("notifications")
    wanted = wanted if isinstance(wanted, Mapping) else {}
    honoured: Message = {}
    if list_changed:
        honoured = {name: True for name in LISTEN_FILTERS if wanted.get(name)}
    methods = {LISTEN_FILTERS[name] for name in honoured}
    uris = wanted.get("resourceSubscriptions")
    if isinstance(uris, list) and known is not None:
        granted = [uri for uri in uris if uri in known]
        honoured["resourceSubscriptions"] = granted
        methods |= {f"{UPDATED} {uri}" for uri in granted}
    return Listen(honoured, frozenset(methods))
