"""What a client is told by its owner and tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._base.credential import CredentialProvider, NeedsAuthorization, Signer
    from .._base.definition import Definition
    from .._base.identity import Identity
    from .._base.model import ProgressCallback
    from .._base.seams import Seams
    from .._base.use import Use
    from ..protocol import Message
    from ._client import Client


Unheard: TypeAlias = Literal["lost", "anew", "again", "late"]
"""How it came that nobody listened for a while."""


class Hooks(Protocol):
    """What a client tells its owner. Synchronous; must not raise."""

    def list_changed(self, client: Client, /) -> None:
        """The server announced another tool list."""
        ...

    def stream_lost(self, client: Client, why: Unheard, /) -> None:
        """Changes may not have been heard: the stream was lost or given up, is there again, or came late."""
        ...

    def lost(self, client: Client, reason: str, /) -> None:
        """The incarnation is over."""
        ...

    def told(self, client: Client, message: Message, /) -> None:
        """A notification came that is the host's: a log message, an update, a change of other lists."""
        ...


class ToolCaller(Protocol):
    """A tool call as a client sees it, beside being a `Caller`."""

    args: bytes
    use: Use
    on_progress: ProgressCallback | None
    call_id_key: str | None

    @property
    def definition(self) -> Definition:
        """The tool's listed definition."""
        ...


@attrs.frozen(kw_only=True)
class ClientSettings:
    """What all clients of a pool have in common.

    Attributes:
        control_timeout: Seconds that a notice or the closing of a session may take.
        on_authorization: Told the server's name, the projection and what is needed when somebody has to
            authorize first; the only place where the address goes.
        notices: What the host wants to hear of beside tool lists: `log`, `prompts`, `resources`.
    """

    seams: Seams
    credentials: CredentialProvider | None
    signer: Signer | None
    on_authorization: Callable[[str, Identity, NeedsAuthorization], object] | None
    client_name: str
    client_version: str
    max_operations: int
    max_message: int
    max_pages: int
    keepalive_expiry: float
    control_timeout: float
    notices: frozenset[str]


@attrs.frozen
class ListAnswer:
    """A whole tool list.

    Attributes:
        tools: The raw definitions, in listed order.
        ttl: Seconds for which the server lets it be believed; `None` where its era knows no such hint.
        left_out: Tools that the protocol says must not be offered here, and why.
    """

    tools: list[bytes]
    ttl: float | None
    left_out: tuple[tuple[str, str], ...] = ()
