"""What may stand in a header that somebody else made: an app's plan, a provider, a signer.

* Nothing reaches the HTTP layer unchecked, and what is refused is refused before anything was sent.
* A refusal names the header and says what is wrong; it holds no value, and no exception behind it does.
* What the protocol or the connection decides is afpool's own to say. A signer that gives back the headers it
  was shown, as many do, is not refused for it: a pair that is there already is passed over.
* One name, one header: a credential replaces a plan's static header, a signature replaces both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .._base.errors import CredentialFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..transports import Headers

MAX_VALUE: Final = 32 * 1024
"""The most bytes of one value."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
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
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
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


def checked(given: Iterable[tuple[str, str]], whose: str, there: Headers | None = None) -> Headers:
    """Make header pairs of what a provider or signer gave.

    Args:
        given: Names and values.
        whose: `the credential` or `the signer`, for the refusal.
        there: What the request has already; an equal pair in `given` is passed over.

    Raises:
        CredentialFailed: A name or value that cannot be sent; nothing was sent.
    """
    pairs, problem = _read(given, there)
    del given, there  # no local of a frame that something is raised through holds a value
    if problem is not None:
        raise _refused(whose, *problem)
    return pairs


def _read(given: Iterable[tuple[str, str]], there: Headers | None) -> tuple[Headers, tuple[str, str] | None]:
    """Give the pairs, or no pairs and what is wrong: a header's name and the words for it. Raises nothing."""
    pairs: Headers = []
    names: set[str] = set()
    for raw_name, value in given:
        name = raw_name.lower() if isinstance(raw_name, str) else ""
        problem = value_problem(value)
        if problem is not None:
            return [], (name, f"its value {problem}")
        pair = (name.encode("ascii", "replace"), value.encode("latin-1"))
        if there is not None and pair in there:
            continue
        problem = name_problem(name)
        if problem is not None:
            return [], (name, f"its name {problem}")
        if name in names:
            return [], (name, "it is given twice")
        names.add(name)
        pairs.append(pair)
    return pairs, None


def merged(below: Headers, above: Headers) -> Headers:
    """Both, without what `above` replaces in `below`."""
    if not above:
        return below
    names = {name for name, _ in above}
    return [*(pair for pair in below if pair[0] not in names), *above]


def _refused(whose: str, name: str, problem: str) -> CredentialFailed:
    shown = f" {name!r}" if _TOKEN.fullmatch(name) else ""
    return CredentialFailed(f"{whose} gives a header{shown} that cannot be sent: {problem}; nothing was sent")
