"""The messages that change a key actor, the replies to them, and the effects that its turns return.

Nothing else changes a key actor. Ids (tickets, tokens, clients, lists) come from one counter of the
process and are never used twice, so a message about something that is gone can be told from one about
what came after it: it is counted and dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from actors import Request

if TYPE_CHECKING:
    from .._base.definition import Catalog
    from .._base.errors import AfpoolError
    from ._key_state import KeyLimits
    from ._lists import ListState

# ---------------------------------------------------------------------------- requests (bounded lane)


@attrs.define
class Admit(Request[Any]):
    """Ask for the key's client, and for one of its places where `lease` is set.

    Answered with the client's handle. A call names the context it is bound to and the key epoch it was
    listed in; a list names neither and takes no place.
    """

    ticket: int
    lease: bool = True
    context: str | None = None
    epoch: int | None = None
    list: ListState | None = None
    generation: int = 0
    tool: str | None = None
    digest: str | None = None
    chain: tuple[int, ...] = ()
    fresh: bool = False


@attrs.frozen
class PlanChanged(Request[bool]):
    """A plan was resolved: by the opening `token`, or (without one) by a list that goes to the wire.

    Answered with whether the opening should go on. `retry_after` is set while a failed opening under the
    same context is being waited out. `event` is what made the plan another one, and `failed` that failed
    opening's, where there is such: what refusals name as their cause.
    """

    context: str
    token: int | None = None
    retry_after: float | None = None
    event: object = attrs.field(default=None, eq=False, repr=False)
    failed: object = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Drain(Request[None]):
    """Let what runs settle, then close the client; answered when nothing runs. Holds admission meanwhile."""


# ---------------------------------------------------------------------------- control (never refused)


@attrs.frozen
class Opened:
    """The opening `token` has a client."""

    token: int
    client_id: int
    context: str
    handle: Any


@attrs.frozen
class OpenFailed:
    """The opening `token` has none; `error` makes one exception per waiter."""

    token: int
    error: AfpoolError


@attrs.define
class Settle:
    """The holder of `ticket` is done with it: it stops waiting, or gives its place back."""

    ticket: int
    held: bool
    answered: bool = False


@attrs.frozen
class Abandon:
    """The holder of `ticket` gave up on the answer; `final` when afpool does so too and the place is free."""

    ticket: int
    final: bool


@attrs.frozen
class Listed:
    """A client's own list arrived; `notices` is how many changes had been announced when it was asked for."""

    client_id: int
    catalog: Catalog
    notices: int
    expires_at: float


@attrs.frozen
class ListChanged:
    """A client's own list, or the shared list `list`, is no longer known to be true."""

    client_id: int | None = None
    list: ListState | None = None
    why: str = "notice"


@attrs.frozen
class ClientLost:
    """A client is gone (`closed`), or must not be used any more."""

    client_id: int
    reason: str
    closed: bool = False


@attrs.frozen
class Evict:
    """Close the client if nobody uses it or waits for it."""


@attrs.frozen
class Revoke:
    """What the key was authorized for has changed: every binding and every waiter of this epoch ends."""

    reason: str
    event: object = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Reconfigure:
    """The configuration of the key's server has changed: every binding and every waiter of this epoch ends.

    `limits` are those from now on; `None` says that no server leads to the key any more, so that nobody is
    admitted before another `Reconfigure` says otherwise. `keep` leaves the client: it would be opened the
    same way again.
    """

    limits: KeyLimits | None
    keep: bool = False
    event: object = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Limit:
    """What the key may hold from now on; nothing that is bound ends for it."""

    limits: KeyLimits


@attrs.frozen
class Pause:
    """Hold admission."""


@attrs.frozen
class Resume:
    """Admit again."""


@attrs.frozen
class Close:
    """Refuse everybody from now on and close the client once nothing runs."""

    event: object = attrs.field(default=None, eq=False, repr=False)


# ---------------------------------------------------------------------------- effects


@attrs.frozen
class StartOpening:
    """Resolve a plan and connect, in the runtime's task and context."""

    token: int
    fresh: bool


@attrs.frozen
class CancelOpening:
    """Nobody waits for this opening any more."""

    token: int


@attrs.frozen
class CloseClient:
    """Close this client in the background and say so with `ClientLost(closed=True)`."""

    handle: Any
    reason: str


@attrs.frozen
class Bury:
    """The key takes nothing any more: end what there is of it and nothing runs on."""


@attrs.frozen
class PingClient:
    """Too many silences in a row: ask this client for a sign of life, replace it if there is none."""

    handle: Any


@attrs.frozen
class Active:
    """Whether the key has anything to live for besides bound tools."""

    active: bool
