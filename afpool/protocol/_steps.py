"""What an opening asks its driver to do: the steps of `Negotiation`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from ._eras import Era, Negotiated
    from ._jsonrpc import ErrorBody

TransportKind: TypeAlias = Literal["http", "stream"]
WaitKind: TypeAlias = Literal["probe", "handshake"]


@attrs.frozen
class Send:
    """Send this, and feed what comes of it.

    Attributes:
        method: Such as `server/discover`.
        params: Raw JSON, or `None`.
        era: In which era's framing it goes out (over HTTP: which headers).
        version: The value of `mcp-protocol-version`, or `None` for no such header.
        timeout: Which time-out is waited for: the short one of a probe, or the one of a handshake.
        notification: No answer is expected: feed `sent()` on a stream, the status over HTTP.
        session_id: The session to name, or `None`.
    """

    method: str
    params: bytes | None
    era: Era
    version: str | None
    timeout: WaitKind
    notification: bool = False
    session_id: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Done:
    """The server is open."""

    negotiated: Negotiated


class FailureKind(enum.Enum):
    """Why an opening failed."""

    OUTAGE = "outage"  # nothing learnt about the server: it may be tried again
    REFUSED = "refused"  # it answered the opening with an error
    INCOMPATIBLE = "incompatible"  # no version in common, or no MCP


@attrs.frozen
class Failed:
    """The opening is over.

    Attributes:
        reason: Our own words; quotes nothing of the peer.
        kind: What it says about the server.
        http_status: Of the answer behind it, where there was one.
        error: The peer's own error, where it sent one.
    """

    reason: str
    kind: FailureKind
    http_status: int | None = None
    error: ErrorBody | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Respawn:
    """End the peer, start it anew, then feed `respawned()`."""

    reason: str


@attrs.frozen
class NeedCredential:
    """The answer was 401 or 403. Feed `resumed()` with a new credential, or give up."""

    http_status: int


Step: TypeAlias = Send | Done | Failed | Respawn | NeedCredential
