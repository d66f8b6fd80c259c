"""The data of one key's state machine: its limits, its incarnations, its opening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from .._base.errors import AfpoolError

if TYPE_CHECKING:
    from ._lists import ListState


class LeaseReturnedTwice(AfpoolError):
    """A place was given back that nobody holds; a fault of afpool, counted, never of a caller."""

    code = "lease-returned-twice"


@attrs.frozen
class KeyLimits:
    """What one key may hold.

    Attributes:
        max_operations: Places on the key's client.
        max_waiting: Waiters before further ones are refused.
        recheck_lists: Whether only a call's own definition counts when a list changes.
    """

    max_operations: int = 16
    max_waiting: int = 256
    recheck_lists: bool = False


@final
class ClientState:
    """What the key knows of one incarnation."""

    __slots__ = ("abandoned", "context", "handle", "id", "leases", "list", "silent", "wait_for_close")

    def __init__(self, client_id: int, context: str, handle: Any) -> None:
        self.id = client_id
        self.context = context
        self.handle = handle
        self.leases = 0
        self.list: ListState | None = None
        self.abandoned = 0  # in a row
        self.silent = 0  # in a row
        self.wait_for_close = False  # the next opening waits until it is gone


@final
class Opening:
    """The one opening of the key; its context is unknown until its plan is resolved."""

    __slots__ = ("context", "fresh", "token")

    def __init__(self, token: int, fresh: bool) -> None:
        self.token = token
        self.fresh = fresh
        self.context: str | None = None
