"""HTTP header fields: names, values that survive the wire, and the ones an answer is read by.

Names are lower-case bytes. Readers are tolerant, linear in their input, and answer `None` where a field says
nothing that can be used; none of them raises.
"""

from __future__ import annotations

import base64
import datetime as dt
import email.utils
import enum
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

CONTENT_TYPE: Final = b"content-type"
ACCEPT: Final = b"accept"
AUTHORIZATION: Final = b"authorization"
RETRY_AFTER: Final = b"retry-after"
WWW_AUTHENTICATE: Final = b"www-authenticate"
LOCATION: Final = b"location"
# Both eras; absent on `initialize`.
PROTOCOL_VERSION: Final = b"mcp-protocol-version"
# Handshake era.
SESSION_ID: Final = b"mcp-session-id"
LAST_EVENT_ID: Final = b"last-event-id"
# Stateless era.
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAM_PREFIX: Final = b"mcp-param-"

JSON_TYPE: Final = b"application/json"
SSE_TYPE: Final = b"text/event-stream"
ACCEPT_BOTH: Final = b"application/json, text/event-stream"

_SAFE = re.compile(r"[\x20-\x7e]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_DATE = 64
_MAX_CHALLENGES = 8192


def header_value(text: str) -> bytes:
    """Write a text as a header value (`mcp-name`, `mcp-param-*`).

    Printable ASCII goes as it is. Anything else, blanks at an edge, and a text that looks like the
    sentinel itself go as `=?base64?...?=` over UTF-8 (2026-07-28, transports, custom headers).

    Raises:
        UnicodeEncodeError: The text holds a lone surrogate; JSON has refused it before.
    """
    if (
        _SAFE.fullmatch(text)
        and text == text.strip(" ")
        and not (text.startswith("=?base64?") and text.endswith("?="))
    ):
        return text.encode("ascii")
    return b"=?base64?%b?=" % base64.b64encode(text.encode())


class BodyKind(enum.Enum):
    """What an HTTP body is, by its `content-type`; `EMPTY` is for a body of no bytes."""

    JSON = "json"
    SSE = "sse"
    OTHER = "other"
    EMPTY = "empty"


def body_kind(content_type: bytes | str | None) -> BodyKind:
    """Classify a `content-type`, whatever its case and parameters. Absent is `OTHER`."""
    if content_type is None:
        return BodyKind.OTHER
    text = content_type.decode("latin-1") if isinstance(content_type, bytes) else content_type
    media = text.partition(";")[0].strip().lower()
    if media == "text/event-stream":
        return BodyKind.SSE
    if media == "application/json" or (media.startswith("application/") and media.endswith("+json")):
        return BodyKind.JSON
    return BodyKind.OTHER


def parse_retry_after(value: bytes | str | None, now_unix: float) -> float | None:
    """Read `retry-after`: seconds from now, never negative, or `None`.

    Args:
        value: The field: whole seconds or an HTTP date.
        now_unix: The wall clock, seconds since the epoch; only a date needs it.
    """
    if value is None:
        return None
    text = (value.decode("latin-1") if isinstance(value, bytes) else value).strip()
    if len(text) > _MAX_DATE:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        return max(0.0, moment.timestamp() - now_unix)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


class Challenge(NamedTuple):
    """One challenge of `www-authenticate`: scheme in lower case, parameters by lower-case name."""

    scheme: str
    params: dict[str, str]


_SEPARATOR = re.compile(r"[ \t,]*")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_BLANK = re.compile(r"[ \t]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)', re.DOTALL)
_BARE = re.compile(r"[^,\s]*")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*(?=[ \t]*(?:,|\Z))")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_challenges(value: bytes | str | None) -> list[Challenge]:
    """Read every challenge of a `www-authenticate` field, in order. The first of equal parameters wins.

    What cannot be read is stepped over up to the next comma, and what is beyond 8192 characters is not read.
    """
    if value is None:
        return []
    text = (value.decode("latin-1") if isinstance(value, bytes) else value)[:_MAX_CHALLENGES]
    found: list[Challenge] = []
    at = 0
    while True:
        at = _end(_SEPARATOR, text, at)
        if at >= len(text):
            return found
        name = _TOKEN.match(text, at)
        if name is None:
            comma = text.find(",", at)
            if comma < 0:
                return found
            at = comma
            continue
        at = name.end()
        equals = _EQUALS.match(text, at)
        if equals is None:
            found.append(Challenge(name.group().lower(), {}))
            blank = _BLANK.match(text, at)
            # A token68 (Basic, Negotiate) instead of parameters: nothing here uses it.
            blob = _TOKEN68.match(text, blank.end()) if blank else None
            at = blob.end() if blob else at
            continue
        at = equals.end()
        quoted = _QUOTED.match(text, at)
        if quoted is not None:
            content = _ESCAPE.sub(r"\1", quoted.group(1))
            at = quoted.end()
        else:
            bare = _BARE.match(text, at)
            assert bare is not None
            content = bare.group()
            at = bare.end()
        if found:
            found[-1].params.setdefault(name.group().lower(), content)


def parse_challenge(value: bytes | str | None) -> Challenge | None:
    """Choose the challenge that an MCP client answers: `bearer`, else `dpop`, else the first one."""
    challenges = parse_challenges(value)
    for scheme in ("bearer", "dpop"):
        for challenge in challenges:
            if challenge.scheme == scheme:
                return challenge
    return challenges[0] if challenges else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def same_origin_redirect(url: str, location: bytes | str | None) -> str | None:
    """Resolve the target of a 307 or 308 against the request's URL.

    Returns:
        The absolute URL, without a fragment, where scheme, host and port are the request's own, or where
        only `http` on its usual port has become `https` on its usual port. `None` where they differ
        otherwise, where the target names a user, or where it is no URL: it is not followed.
    """
    if location is None:
        return None
    text = location.decode("latin-1") if isinstance(location, bytes) else location
    # Anything a URL cannot hold is a way to be read differently by two parsers.
    if not text or "\\" in text or any(not "\x21" <= c <= "\x7e" for c in text):
        return None
    try:
        target = urlsplit(urljoin(url, text))
        origin = urlsplit(url)
        there, here = _origin(target), _origin(origin)
        if "@" in target.netloc or (there != here and not _upgraded(here, there)):
            return None
    except ValueError:
        return None
    return target._replace(fragment="").geturl()


def _upgraded(here: tuple[str, str, int], there: tuple[str, str, int]) -> bool:
    return here == ("http", here[1], 80) and there == ("https", here[1], 443)


def _origin(parts: Any) -> tuple[str, str, int]:
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError
    return parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port


def param_value(value: object) -> bytes | None:
    """Write an argument as a `mcp-param-*` value, or `None` where it is left out.

    Strings as they are, integers in decimal, booleans as `true` and `false`; `null`, absent and structured
    values are left out.
    """
    if isinstance(value, str):
        return header_value(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        # JSON does not tell 5.0 from 5, and an integer is what the annotation stands on.
        return b"%d" % int(value) if value.is_integer() else repr(value).encode()
    if isinstance(value, int):
        try:
            return b"%d" % value
        except ValueError:
            return None
    return None


def value_at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Read an argument at a path of property names; `None` where it is absent."""
    node: Any = arguments
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = node.get(key)
    return node
