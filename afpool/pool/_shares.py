"""Shared lists: members of one authorization name and one plan context see the same tools.

Lists are shared, connections never. Invariants:

* S1 An entry's key is injective over (server, authorization name, plan context); what is shown is a digest.
* S2 A list is filed in an entry only under the name, context and entry that it was asked for under.
* S3 One member listens per entry; while none does the list is in doubt.
* S4 A member whose own list differs although nothing announced a change takes the entry out of sharing.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final, final

from .._base.identity import encode_field
from ._lists import LISTENER_GONE, ListState

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.definition import Catalog
    from ..client import Client
    from ._actor import KeyActor


UNSHARED_KEPT: Final = 10_000


def entry_key(server: str, authorization: str, context: str) -> str:
    """Encode injectively: `/` never stands unescaped inside a field (S1)."""
    return "/".join((encode_field(server), encode_field(authorization), encode_field(context)))


@final
class Entry:
    """One shared list, held by the bound tools that came from it and by its members.

    Attributes:
        list: The list; what bindings point to.
        listener: The member whose notification stream stands for all, or `None`.
        members: Clients that listed through this entry, by id.
    """

    __slots__ = ("__weakref__", "authorization", "context", "key", "list", "listener", "members", "server")

    def __init__(self, server: str, authorization: str, context: str, list_id: int) -> None:
        self.server = server
        self.authorization = authorization
        self.context = context
        self.key = entry_key(server, authorization, context)
        # the list holds its entry too, so that a living binding keeps the entry alive
        self.list = ListState(list_id, entry=self)
        self.listener: Client | None = None
        self.members: weakref.WeakValueDictionary[int, Client] = weakref.WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<Entry {self.list!r}: {len(self.members)} members>"


@final
class Shares:
    """All entries of a pool. An entry nobody holds is forgotten."""

    __slots__ = ("_entries", "_next_id", "_unshared")

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self._entries: weakref.WeakValueDictionary[str, Entry] = weakref.WeakValueDictionary()
        self._unshared: dict[str, None] = {}  # oldest first

    def find(self, server: str, authorization: str, context: str) -> Entry | None:
        """The living entry, if there is one."""
        return self._entries.get(entry_key(server, authorization, context))

    def may_share(self, server: str, authorization: str, context: str) -> bool:
        """Whether such an entry was not taken out of sharing before (S4)."""
        return entry_key(server, authorization, context) not in self._unshared

    def get(self, server: str, authorization: str, context: str) -> Entry:
        """The living entry, made if there is none."""
        entry = self.find(server, authorization, context)
        if entry is None:
            entry = Entry(server, authorization, context, self._next_id())
            self._entries[entry.key] = entry
        return entry

    def current(self, entry: Entry) -> bool:
        """Whether the entry is still the one in force under its key (S2)."""
        return entry.list.alive and self._entries.get(entry.key) is entry

    def file(
        self, entry: Entry, actor: KeyActor, client: Client, catalog: Catalog, notices: int, expires_at: float
    ) -> bool:
        """File a list that `client` received; return whether the generation moved.

        The caller has compared name and context; this compares the entry. `entry.list.alive` says afterwards
        whether the entry is still shared.
        """
        state = entry.list
        differs = state.catalog is not None and state.catalog.digest != catalog.digest
        # a forced refresh is no sign of a change
        quiet = state.doubt in (None, "refresh") and not state.noticed and state.notices == notices
        heard = entry.listener is not None and entry.listener.listening
        if differs and quiet and heard and entry.listener is not client:
            self.take_out(entry, actor)
            return True
        entry.members[client.id] = client
        return state.received(catalog, notices, expires_at)

    def take_out(self, entry: Entry, actor: KeyActor) -> None:
        """The app's promise does not hold for this entry: everybody lists for themselves from now on (S4)."""
        entry.list.end()
        self._unshared[entry.key] = None
        if len(self._unshared) > UNSHARED_KEPT:
            del self._unshared[next(iter(self._unshared))]
        self._entries.pop(entry.key, None)
        entry.list.event = actor.pool.event("unshared", actor, why="a member's own list differs")

    def end_server(self, server: str) -> None:
        """The server is configured otherwise: its lists are nobody's, and what was shared may be again."""
        for entry in [entry for entry in self._entries.values() if entry.server == server]:
            entry.list.end()
            self._entries.pop(entry.key, None)
        mark = f"{encode_field(server)}/"
        for key in [key for key in self._unshared if key.startswith(mark)]:
            del self._unshared[key]

    def left(self, entry: Entry, client: Client) -> None:
        """A member's client is gone; another takes over listening, the list is in doubt in between (S3)."""
        entry.members.pop(client.id, None)
        if entry.listener is client:
            entry.listener = None
            if client.may_hear:
                entry.list.unsettle(LISTENER_GONE)

    def entries(self) -> list[Entry]:
        """Every living entry."""
        return list(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)
