"""What may stand in a header that somebody else made: an app's plan, a provider, a signer, a file.

What the protocol or the connection decides is afpool's own to say. A refusal says what is wrong and holds no
value.
"""

from __future__ import annotations

import re
from typing import Final

MAX_VALUE: Final = 32 * 1024
"""The most bytes of one value."""

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RESERVED: Final = frozenset(
    {
        # the connection's
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer",
        "expect", "proxy-authorization", "proxy-connection", "http2-settings",
        # the message's
        "content-type", "content-encoding", "accept", "accept-encoding",
        # the protocol's
        "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id",
    }
)  # fmt: skip
_RESERVED_PREFIX: Final = "mcp-param-"


def reserved(name: str) -> bool:
    """Whether a header, by its lower-case name, is afpool's own to say."""
    return name in _RESERVED or name.startswith(_RESERVED_PREFIX)


def name_problem(name: object) -> str | None:
    """Say why a lower-case name can be no header of somebody else's; `None` when it can."""
    if not isinstance(name, str) or TOKEN.fullmatch(name) is None:
        return "is not a token (RFC 9110, section 5.6.2)"
    if reserved(name):
        return "is afpool's own to say"
    return None


def value_problem(value: object) -> str | None:
    """Say why a value cannot stand in a header (RFC 9110, section 5.5), without quoting it."""
    if not isinstance(value, str):
        return f"is {type(value).__name__}, not a string"
    if _CONTROL.search(value):
        return "holds a control character or a line break"
    if any(char > "\xff" for char in value):
        return "holds a character beyond Latin-1"
    if len(value) > MAX_VALUE:
        return f"is larger than {MAX_VALUE} bytes"
    if value != value.strip(" \t"):
        return "begins or ends with a blank"
    return None
