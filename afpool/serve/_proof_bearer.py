"""The one bearer token of a head (RFC 6750 § 2.1), or why there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .._base.secret import Secret

if TYPE_CHECKING:
    from ._proof_types import RequestHead

MAX_TOKEN: Final = 16 * 1024
# Scheme, blanks, and what RFC 6750 lets a token be (b64token); the scheme in any case, no tabs.
_BEARER: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")
_IS_BEARER: Final = re.compile(rb"(?i:bearer)(?:[ \t]|\Z)")


def bearer_of(head: RequestHead) -> Secret | str | None:
    """Read the token.

    Only the header is looked at: tokens in a query or a form end up in logs, and are no tokens here.

    Returns:
        The token; `None` where no bearer token came (another scheme is none); words where what came cannot be
        read as one.
    """
    values = head.all(b"authorization")
    if not values:
        return None
    if len(values) > 1:
        return "more than one authorization header came"
    if _IS_BEARER.match(values[0]) is None:
        return None
    if len(values[0]) > MAX_TOKEN:
        return "the bearer token is longer than any that is read"
    found = _BEARER.fullmatch(values[0])
    return "the authorization header is not one bearer token" if found is None else Secret(found[1].decode())
