"""Where grants survive a restart: a port of the host's, and one in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import attrs
import trio

if TYPE_CHECKING:
    from .._base.credential import Mode
    from .._base.secret import Secret


@attrs.frozen
class GrantKey:
    """What a grant belongs to, and to nothing else.

    Attributes:
        service: As the requirement names it.
        resource: The server's canonical URI.
        scopes: The requirement's own scopes.
        mode: `machine` or `user`.
        tenant: Whose it is; `None` where it is shared.
        principal: The same.
    """

    service: str
    resource: str
    scopes: tuple[str, ...]
    mode: Mode
    tenant: str | None = attrs.field(repr=False)
    principal: str | None = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class StoredGrant:
    """A grant as it is stored. A store must encrypt what it writes: whoever reads it acts as the principal.

    Attributes:
        issuer: The authorization server; a grant is never used at another.
        resource: The resource that the tokens are for.
        metadata_url: Where the server's resource metadata stands, if not at a well-known place.
        client_id: The client that the tokens were given to.
        client_secret: Its secret, where it was registered dynamically.
        auth_method: How that client authenticates.
        dynamic: The client was registered dynamically.
        access_token: The token.
        refresh_token: What renews it.
        scopes: What was granted.
        requested: What was asked for.
        expires_at: When the access token ends, seconds since the Unix epoch.
    """

    issuer: str
    resource: str
    client_id: str
    auth_method: str
    access_token: Secret = attrs.field(repr=False)
    metadata_url: str | None = None
    client_secret: Secret | None = attrs.field(default=None, repr=False)
    dynamic: bool = False
    refresh_token: Secret | None = attrs.field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    expires_at: float | None = None


class TokenStore(Protocol):
    """Keeps grants. Called from one task per key at a time; what it raises must hold no secret."""

    async def load(self, key: GrantKey) -> StoredGrant | None:
        """Give what was saved last, or `None`."""
        ...

    async def save(self, key: GrantKey, grant: StoredGrant) -> None:
        """Keep a grant in place of what was there."""
        ...

    async def delete(self, key: GrantKey) -> None:
        """Forget a grant; nothing happens if there is none."""
        ...


@final
class MemoryTokenStore:
    """A store that lasts as long as the process, to carry grants from one provider to the next."""

    def __init__(self) -> None:
        self._grants: dict[GrantKey, StoredGrant] = {}

    async def load(self, key: GrantKey) -> StoredGrant | None:
        """See `TokenStore`. One checkpoint."""
        await trio.lowlevel.checkpoint()
        return self._grants.get(key)

    async def save(self, key: GrantKey, grant: StoredGrant) -> None:
        """See `TokenStore`. One checkpoint."""
        await trio.lowlevel.checkpoint()
        self._grants[key] = grant

    async def delete(self, key: GrantKey) -> None:
        """See `TokenStore`. One checkpoint."""
        await trio.lowlevel.checkpoint()
        self._grants.pop(key, None)

    def __len__(self) -> int:
        return len(self._grants)
