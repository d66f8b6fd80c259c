"""What only a program can judge of a text: addresses, URLs, headers. Each gives what is wrong, or `None`.

They say no more than what would be refused when a transport is made of the text; a test holds them equal. No
text quotes what it judges.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_PORT_MAX: Final = 65535
_UDS_MAX: Final = 107
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def host_problem(bind: str) -> str | None:
    """Judge an address to listen on."""
    if bind.startswith("unix:"):
        return socket_problem(bind.removeprefix("unix:"))
    host, _, port = bind.rpartition(":")
    if int(port) > _PORT_MAX:
        return "there is no such port"
    if host.startswith("["):
        return (
            None if _is_address(host[1:-1]) and host.endswith("]") else "it holds no IPv6 address in brackets"
        )
    if ":" in host:
        return "an IPv6 address stands in brackets: [::1]:8765"
    if re.fullmatch(r"[A-Za-z0-9._*-]+", host) is None:
        return "it names no host"
    return "write 0.0.0.0 for all addresses" if host == "*" else None


def socket_problem(path: str) -> str | None:
    """Judge the path of a Unix socket."""
    if not path or "\0" in path or len(path.encode("utf-8", "surrogatepass")) > _UDS_MAX:
        return f"the path of a Unix socket has 1 to {_UDS_MAX} bytes, none of them zero"
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_host(host: str) -> bool:
    if re.fullmatch(r"[A-Za-z0-9._-]+", host) and "xn--" not in host.lower():
        return True
    import idna  # rarely needed, and not quick

    try:
        idna.encode(host.lower())
        if "xn--" in host.lower():
            idna.decode(host)
    except idna.IDNAError:
        return False
    return True


def address_problem(text: str) -> str | None:
    """Judge a network that a proxy may call from."""
    if text == "unix":
        return None
    try:
        network = ipaddress.ip_network(text, strict=True)
    except ValueError:
        return "expected an address or a network without host bits, such as 10.0.0.0/8 or ::1, or unix"
    return "everybody would be trusted; name the proxy's own network" if network.prefixlen == 0 else None


def origin_problem(text: str) -> str | None:
    """Judge a web origin."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 -- reading it is the check
    except ValueError:
        return "expected an origin such as https://app.example.com"
    if not parts.scheme or not parts.hostname or parts.path or parts.query or parts.fragment or "@" in text:
        return "expected scheme, host and port and nothing more, such as https://app.example.com"
    return None


def trusted_url_problem(text: str) -> str | None:
    """Judge the address of something that has to be trusted: https, or http on loopback."""
    problem = url_problem(text, ("https", "http"))
    if problem is None and urlsplit(text).scheme == "http" and urlsplit(text).hostname not in _LOOPBACK:
        return "is asked for in clear; http is for loopback only"
    return problem


def url_problem(text: str, schemes: tuple[str, ...]) -> str | None:
    """Judge the URL of a server."""
    if any(char <= " " or char == "\x7f" for char in text):
        return "holds a blank or a control character"
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname
    except ValueError:
        return "cannot be parsed"
    if not text.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        return f"must start with one of {', '.join(scheme + '://' for scheme in schemes)}"
    if not host:
        return "names no host"
    if not (_is_address(host) if "[" in parts.netloc else _is_host(host)):
        return "names a host that cannot be one"
    if "@" in parts.netloc:
        return "holds a user name; credentials are configured beside it"
    if "#" in text:
        return "holds a fragment, which is never sent"
    if port == 0:
        return "holds a port that does not exist"
    return None


def proxy_problem(text: str) -> str | None:
    """Judge the address of a proxy."""
    if text == "env":
        return None
    problem = url_problem(text, ("http", "https"))
    if problem is not None:
        return f"the proxy's address {problem}; SOCKS is not spoken"
    parts = urlsplit(text)
    if parts.path not in {"", "/"} or parts.query or text.endswith("?"):
        return "the proxy's address holds a path or a query"
    return None


def redis_problem(text: str) -> str | None:
    """Judge the address of a Redis server."""
    if not re.match(r"(rediss?://[^/?#]|unix://.*/)", text):
        return "the address is redis://host:port/db, rediss://… or unix:///path"
    if set(re.findall(r"[?&]([^=&]+)", text)) - {"db"}:
        return "the address takes no option but db"
    return None


def version_problem(text: str) -> str | None:
    """Judge a version of the protocol."""
    from ..protocol._eras import HANDSHAKE_VERSIONS, STATELESS_VERSIONS

    known = (*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS)
    return None if text in known else f"the versions that are spoken are {', '.join(known)}"


def pattern_problem(text: str) -> str | None:
    """Judge a pattern of names."""
    if not patterns_fit((text,)):
        return "the expression cannot be read, or not be matched in linear time"
    return None


def patterns_fit(patterns: Iterable[str]) -> bool:
    """Say whether patterns can be matched in linear time, all together."""
    from ..tools._pattern_syntax import build_program, compile_pattern

    try:
        build_program([compile_pattern(pattern) for pattern in patterns])
    except (ValueError, RecursionError, Warning):  # a warning is one where the host has made it an error
        return False
    return True


META_NAME: Final = r"^(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$"
_RESERVED_META: Final = re.compile(
    r"(?:[^./]+\.)*(?:modelcontextprotocol|mcp)(?:\.[^./]+)*/"
    r"|(?:progressToken|traceparent|tracestate|baggage)\Z"
)


def meta_problem(text: str) -> str | None:
    """Judge a key of `_meta`."""
    return "the name is MCP's own" if _RESERVED_META.match(text) else None


def paths_problem(text: str) -> str | None:
    """Judge a dotted path inside an argument."""
    return "the path has more than 100 parts" if text.count(".") >= 100 else None
