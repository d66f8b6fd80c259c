"""What a client tells its key: another list, a lost stream, its own end, and what is for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ..protocol import UPDATED_NOTICE
from . import _messages as m
from ._lists import STREAM_LOST
from ._subscriptions import missed, updated

if TYPE_CHECKING:
    from ..client import Client
    from ..client._settings import Unheard
    from ..protocol import Message
    from ._actor import KeyActor


@final
class ActorHooks:
    """What a client tells its key."""

    __slots__ = ("_actor",)

    def __init__(self, actor: KeyActor) -> None:
        self._actor = actor

    def list_changed(self, client: Client) -> None:
        """The server announced another tool list."""
        self._unsettle(client, "notice")

    def stream_lost(self, client: Client, why: Unheard) -> None:
        """Changes may not have been heard; the list is in doubt, and so is what is subscribed to."""
        if client.may_hear:
            self._unsettle(client, STREAM_LOST, why)
        missed(self._actor, client)

    def told(self, client: Client, message: Message) -> None:
        """A notification that is the host's."""
        if message.method == UPDATED_NOTICE:
            updated(self._actor, client, message)
        else:
            self._actor.pool.herald.told(self._actor, message)

    def lost(self, client: Client, reason: str) -> None:
        """The incarnation is over."""
        actor = self._actor
        client.ended = event = actor.pool.event("client-lost", actor, client=client.id, why=reason)
        actor.ended = event.number
        if client.entry is not None:
            actor.pool.shares.left(client.entry, client)  # another member has to listen
        actor.tell(m.ClientLost(client.id, reason))

    def _unsettle(self, client: Client, why: str, unheard: Unheard | None = None) -> None:
        actor = self._actor
        entry = client.entry
        current = actor.machine.client
        own = current.list if current is not None and current.handle is client else None
        lists = [each for each in (None if entry is None else entry.list, own) if each is not None]
        # A server that announces without end must not push other keys' events out of the record; what is said
        # of the list of a client that was replaced is nobody's news.
        if any(each.is_news(why) for each in lists):
            event = actor.pool.event(
                "list-changed" if unheard is None else "stream-lost", actor, client=client.id, why=unheard
            )
            for each in lists:
                each.event = event
            # whoever shares a list shares its news
            actor.pool.herald.tools_changed(actor, None if entry is None else entry.authorization)
        if entry is not None:
            entry.list.unsettle(why)
        if own is not None:
            actor.tell(m.ListChanged(client.id, why=why))


@final
class Gone:
    """Hooks of a client that was closed."""

    __slots__ = ()

    def list_changed(self, client: Client) -> None:
        """Nobody lists any more."""

    def stream_lost(self, client: Client, why: Unheard) -> None:
        """Nobody listens any more."""

    def lost(self, client: Client, reason: str) -> None:
        """Nobody has it any more."""

    def told(self, client: Client, message: Message) -> None:
        """Nobody is told any more."""


GONE: Final = Gone()
