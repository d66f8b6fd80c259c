"""Links to resources of servers, under names of the service's own.

A tool's result may link to a resource of its server. Its client knows no such server, only this service, and
may read through it what it was shown and nothing else: so the name that it gets holds the server, the URI,
and a proof over both and the identity that it was given to. It opens nothing for anybody else, nor after a
restart of a service without a secret of its own.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, unquote

from .._base.canonical import canonical_json

if TYPE_CHECKING:
    from .._base.identity import Identity

ARTIFACT_PREFIX: Final = "afpool://artifact/"
_PREFIX: Final = "afpool://resource/"
_PURPOSE: Final = b"afpool resource link\0"
_DIGITS: Final = 32
_LONGEST: Final = 16_384


@final
class Links:
    """Makes and reads names of linked resources.

    Args:
        secret: Under which they are proven; drawn anew when absent.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def make(self, identity: Identity, server: str, uri: str) -> str:
        """Name a resource of a server for one identity."""
        return f"{_PREFIX}{quote(server, safe='')}/{self._proof(identity, server, uri)}/{quote(uri, safe='')}"

    def read(self, identity: Identity, name: str) -> tuple[str, str] | None:
        """Give server and URI of a name that was made for the identity; `None` for every other one."""
        if not name.startswith(_PREFIX) or len(name) > _LONGEST:
            return None
        parts = name.removeprefix(_PREFIX).split("/")
        if len(parts) != 3:
            return None
        server, uri = unquote(parts[0]), unquote(parts[2])
        proof = parts[1].encode("utf-8", "replace")
        if not hmac.compare_digest(proof, self._proof(identity, server, uri).encode()):
            return None
        return server, uri

    def _proof(self, identity: Identity, server: str, uri: str) -> str:
        said = [identity.tenant, identity.principal, identity.conversation_id, server, uri]
        return hmac.digest(self._secret, _PURPOSE + canonical_json(said), "sha256").hex()[:_DIGITS]
