"""URLs of OAuth discovery: canonical form, where documents stand, what may be asked. Without I/O.

Sources: MCP authorization 2025-11-25 and 2026-07-28; RFC 8414 § 3, RFC 9728 § 3, RFC 8707 § 2.

Rules:

* Endpoints of an authorization server are https; http only where the host is the loopback itself. A
  resource's own documents may be asked for in the way in which the resource itself is talked to.
* An address is public, private, loopback or other (link-local, multicast, reserved). Discovered URLs lead to
  public ones; to private or loopback ones only where the server itself stands there or the host allows it; to
  others never.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from ._trouble import Trouble

Kind: TypeAlias = Literal["public", "private", "loopback", "other"]

PRM_PATH: Final = "/.well-known/oauth-protected-resource"
AS_PATH: Final = "/.well-known/oauth-authorization-server"
OIDC_PATH: Final = "/.well-known/openid-configuration"
MAX_URL: Final = 2048
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_SHARED_ADDRESSES: Final = ipaddress.ip_network("100.64.0.0/10")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def parts_of(url: str, what: str) -> tuple[str, str, int, str]:
    """Take a URL apart: scheme, host in lower case, port, path.

    Raises:
        Trouble: It is no http(s) URL, names a user, has a fragment, or holds what two parsers read
            differently. The text does not quote it.
    """
    if len(url) > MAX_URL or "\\" in url or any(not "\x21" <= char <= "\x7e" for char in url):
        raise Trouble(f"the URL of {what} is not one that can be used")
    parts: SplitResult | None = None
    host: str | None = None
    port: int | None = None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if parts is None or not host or parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc or "#" in url:
        raise Trouble(f"the URL of {what} is not one that can be used")
    return parts.scheme, host, _DEFAULT_PORTS[parts.scheme] if port is None else port, parts.path


def origin_of(url: str, what: str) -> str:
    """Scheme, host and port of a URL, default ports left out.

    Raises:
        Trouble: As `parts_of`.
    """
    scheme, host, port, _ = parts_of(url, what)
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{name}:{port}"


def canonical_resource(url: str) -> str:
    """The URI that a server is known by: origin and path, no query, no slash alone (RFC 8707 § 2).

    Raises:
        Trouble: As `parts_of`.
    """
    bare = url.partition("#")[0].partition("?")[0]
    path = parts_of(bare, "the server")[3]
    return origin_of(bare, "the server") + ("" if path == "/" else path)


def resource_documents(resource: str) -> list[str]:
    """Where the metadata of a resource stands: below its path, then at the root (RFC 9728 § 3.1)."""
    origin = origin_of(resource, "the server")
    path = parts_of(resource, "the server")[3].rstrip("/")
    return [*([f"{origin}{PRM_PATH}{path}"] if path else []), f"{origin}{PRM_PATH}"]


def server_documents(issuer: str) -> list[str]:
    """Where the metadata of an issuer stands, in the order that MCP gives (RFC 8414 § 3.1 and § 5)."""
    origin = origin_of(issuer, "the authorization server")
    path = parts_of(issuer, "the authorization server")[3].rstrip("/")
    if not path:
        return [f"{origin}{AS_PATH}", f"{origin}{OIDC_PATH}"]
    return [f"{origin}{AS_PATH}{path}", f"{origin}{OIDC_PATH}{path}", f"{origin}{path}{OIDC_PATH}"]


def covers(named: str, resource: str) -> bool:
    """Whether a document about `named` speaks of `resource`: of one origin, and its path or above it."""
    if "?" in named:
        return False
    try:
        same = origin_of(named, "") == origin_of(resource, "")
        above, path = parts_of(named, "")[3].rstrip("/"), parts_of(resource, "")[3].rstrip("/")
    except Trouble:
        return False
    return same and (path == above or path.startswith(f"{above}/"))


def is_loopback_name(host: str) -> bool:
    """Whether a host of a URL is this machine by its very name."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = literal(host)
    return address is not None and kind_of(address) == "loopback"


def check_endpoint(url: str, what: str, *, resource: str | None = None) -> None:
    """Hold a URL to https, to http on the loopback, or to the way in which its own resource is talked to.

    Raises:
        Trouble: It may not be asked.
    """
    scheme, host, _, _ = parts_of(url, what)
    if scheme == "https" or is_loopback_name(host):
        return
    if resource is not None and origin_of(url, what) == origin_of(resource, "the server"):
        return
    raise Trouble(f"{what} must be reached over https")


def literal(host: str) -> IpAddress | None:
    """The address that a host is, or `None` for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def kind_of(address: IpAddress) -> Kind:
    """Classify an address, an embedded IPv4 address by what it is."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is not None:
            return kind_of(inner)
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "other"
    if isinstance(address, ipaddress.IPv4Address) and address in _SHARED_ADDRESSES:
        return "private"
    if address.is_reserved:
        return "other"
    return "private" if address.is_private else "public"


def admitted(kind: Kind, server: Kind, *, allow_private: bool) -> bool:
    """Whether a discovered URL may lead to an address of this kind, given where the server itself stands."""
    if kind == "public":
        return True
    if kind == "private":
        return allow_private or server in ("private", "loopback")
    return kind == "loopback" and (allow_private or server == "loopback")
