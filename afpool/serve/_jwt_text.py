"""A JSON Web Token taken apart, nothing of it believed yet.

Rules (RFC 7515, RFC 7519, RFC 8725):

* Three parts, each base64url in its one spelling, header and claims one JSON object each. A member that
  stands twice, a number that is none, nesting beyond all use: refused, since another reader might see
  something else.
* The header names an algorithm and a key, and nothing else it says is used: not `jwk`, `jku`, `x5c` or `x5u`,
  which would let a token bring the key that it is judged by. `crit` demands what we do not have: refused.
* What says of itself that it is no access token (`typ`) is none: an ID token is an answer to a login, a
  logout token a message. Many issuers say `JWT` or nothing.
* Every answer is words or the parts; nothing is raised where the parts are in sight.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from .._base.canonical import ContentError, parse_strict

if TYPE_CHECKING:
    from .._base.secret import Secret

MAX_KID: Final = 256
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
NO_JWT: Final = "the token is of no kind that this service takes"


@attrs.frozen(repr=False, eq=False)
class Unproven:
    """What a token says, without proof.

    Attributes:
        algorithm: By which it says it is signed.
        kid: The key by which it says so, if it names one.
        claims: What it claims.
        token: All of it.
    """

    algorithm: str
    kid: str | None
    claims: dict[str, Any]
    token: Secret

    @property
    def issuer(self) -> object:
        """Who it says issued it."""
        return self.claims.get("iss")

    def __repr__(self) -> str:
        return "<Unproven>"


def take_apart(token: Secret) -> Unproven | str:
    """Take a token apart, or say why it is none."""
    parts = token.reveal().split(".")
    if len(parts) == 5:
        return "the token is encrypted, and this service takes signed ones"
    if len(parts) != 3:
        return NO_JWT
    header, claims = _object(parts[0]), _object(parts[1])
    if header is None or claims is None or _PART.fullmatch(parts[2]) is None:
        return "the token is not a well-formed JWT"
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if "crit" in header or header.get("b64", True) is not True:
        return "the token demands an extension that this service does not have"
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        return "the token is no access token by its own `typ`"
    if not isinstance(algorithm, str):
        return "the token names no algorithm"
    if kid is not None and not (isinstance(kid, str) and len(kid) <= MAX_KID):
        return "the token names its key by something that is no name"
    return Unproven(algorithm, kid, claims, token)


def _object(part: str) -> dict[str, Any] | None:
    if _PART.fullmatch(part) is None:
        return None
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        read = parse_strict(raw)
    except (binascii.Error, ContentError):
        return None
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != part.encode():
        return None  # the bits behind the last character are not zero: a second spelling of the same
    return read if isinstance(read, dict) else None
