"""Hosts and origins, read exactly or not at all.

Rules:

* A name is compared as bytes of ASCII in lower case, one dot at its end dropped. Nothing else is made equal:
  a name beyond ASCII stands in a header as `xn--…`, and in a list as well.
* An address is compared as an address: `[::1]` and `[0:0:0:0:0:0:0:1]` are one.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9_.-]{0,252})(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(.+)", re.DOTALL)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class HostPort(NamedTuple):
    """A host, and the port where one is named."""

    name: str
    port: int | None


class Origin(NamedTuple):
    """A serialized origin (RFC 6454 § 6.2); its port is always there."""

    scheme: str
    name: str
    port: int


def read_host(text: str) -> HostPort | None:
    """Read a `Host` or an entry of a list; `None` for what is none."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = None if found[2] is None else int(found[2])
    if port is not None and not 0 < port < 65536:
        return None
    name = _name(found[1])
    return None if name is None else HostPort(name, port)


def _name(text: str) -> str | None:
    bare = text.lower()
    try:
        address = ipaddress.ip_address(bare.strip("[]"))
    except ValueError:
        bare = bare.removesuffix(".")
        return None if bare.startswith("[") or not bare or ".." in bare else bare
    if isinstance(address, ipaddress.IPv6Address):
        return f"[{address.compressed}]" if bare.startswith("[") else None
    return None if bare.startswith("[") else str(address)


def read_origin(text: str) -> Origin | None:
    """Read an `Origin` or an entry of a list; `None` for `null`, for several, and for what is none."""
    found = _ORIGIN.fullmatch(text)
    host = None if found is None else read_host(found[2])
    if found is None or host is None:
        return None
    return Origin(found[1], host.name, DEFAULT_PORTS[found[1]] if host.port is None else host.port)


def is_loopback(name: str) -> bool:
    """Whether a name that was read is this machine's own."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
