"""HTTP proxies: which one, whether at all, and the CONNECT that opens a tunnel through it.

* The proxy's credential is said to the proxy, in the CONNECT, and never inside the tunnel.
* The tunnel is opened before the request's gate is asked for the last time, so nothing of a request has left
  when it fails: every failure here is `ConnectFailed`, and its words say that it was the proxy's doing.
* `http` origins are reached by CONNECT as well: a proxy that would read and rewrite requests is none for us.
* A proxy that says anything beyond its answer is not used: those bytes would be taken for the server's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping  # noqa: TC003  (attrs and callers resolve the annotations)
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs
import h11

from afpool._base.credential import Basic, Bearer, Secret
from afpool._base.gate import OpenGate
from afpool.transports._connect_failed import ConnectFailed
from afpool.transports._origin import Origin, origin_of
from afpool.transports._request import HttpRequest, encode_head
from afpool.transports._tls_config import TlsConfig, fingerprint
from afpool.transports._wire import WireClosed

if TYPE_CHECKING:
    from afpool.transports._wire import Wire

MAX_PROXY_HEAD: Final = 64 * 1024
"""The most bytes that a proxy may say before its answer is complete."""

_WHY: Final = {
    403: "it does not allow this server (HTTP 403)",
    405: "it takes no CONNECT (HTTP 405)",
    407: "it wants a credential, or another one (HTTP 407)",
    502: "it cannot reach the server (HTTP 502)",
    503: "it is not available (HTTP 503)",
    504: "the server did not answer it in time (HTTP 504)",
}


def _credential_mark(credential: Basic | Bearer | None) -> bytes | None:
    return None if credential is None else fingerprint(Secret(credential.to_headers()[0][1]))


@attrs.frozen(kw_only=True)
class Proxy:
    """An HTTP proxy that tunnels by CONNECT.

    Attributes:
        url: `http://host:port` or `https://host:port`; with `https` the proxy itself is spoken to over TLS.
        credential: What the proxy wants, made by `basic` or `bearer`; said to the proxy and to nobody else.
        tls: How the proxy is verified, where its URL is `https`. The server's own TLS is the transport's.

    Raises:
        ValueError: The URL is none of a proxy: another scheme, a user name in it, a path.
        TypeError: The credential is neither of the two kinds.
    """

    url: str
    credential: Basic | Bearer | None = attrs.field(
        default=None,
        repr=False,
        eq=_credential_mark,
        validator=attrs.validators.optional(attrs.validators.instance_of((Basic, Bearer))),
    )
    tls: TlsConfig = attrs.field(factory=TlsConfig)

    def __attrs_post_init__(self) -> None:
        self.origin  # noqa: B018 -- parsing is the check

    @property
    def origin(self) -> Origin:
        """Where the proxy listens."""
        try:
            origin, target = origin_of(self.url)
        except ValueError as error:
            why = str(error).replace("the server's URL", "the proxy's URL")
        else:
            if target == b"/":
                return origin
            why = "the proxy's URL holds a path or a query"
        raise ValueError(f"{why}; SOCKS and others go through httpx_transport")

    def document(self) -> dict[str, object]:
        """Everything that decides through whom we talk; holds the credential in clear."""
        credential = self.credential
        return {
            "url": self.url,
            "credential": None if credential is None else [list(pair) for pair in credential.to_headers()],
            "tls": self.tls.document(),
        }

    async def open_tunnel(self, wire: Wire, origin: Origin) -> None:
        """Have the proxy connect this wire to `origin`. The caller owns the deadline and closes the wire.

        Raises:
            ConnectFailed: The proxy refused, answered something else than HTTP, or closed.
        """
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        target = f"{host}:{origin.port}".encode("ascii")
        headers: list[tuple[bytes, bytes]] = []
        if self.credential is not None:
            headers = [
                (b"proxy-authorization", value.encode("latin-1")) for _, value in self.credential.to_headers()
            ]
        reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_PROXY_HEAD)
        reader.send(h11.Request(method=b"CONNECT", target=target, headers=[(b"host", target)]))
        reader.send(h11.EndOfMessage())
        why = ""
        try:
            await wire.send(encode_head(HttpRequest(b"CONNECT", target, headers), target), OpenGate())
            status = await _answer(wire, reader)
        except WireClosed as error:
            why = f"the connection to it ended ({error})"
        except h11.RemoteProtocolError:
            why = "it does not answer in HTTP/1.1"
        else:
            if not 200 <= status < 300:
                why = _WHY.get(status, f"it answered HTTP {status}")
            elif reader.trailing_data[0]:
                why = "it sent bytes that belong to nobody"
        if why:
            # Raised out here: h11's error quotes what the proxy sent.
            raise ConnectFailed("proxy", f"the proxy gives no way to the server: {why}")


async def _answer(wire: Wire, reader: h11.Connection) -> int:
    read = 0
    while True:
        event = reader.next_event()
        if isinstance(event, h11.Response):
            return event.status_code
        if event is h11.NEED_DATA:
            data = await wire.receive()
            read += len(data)
            if read > MAX_PROXY_HEAD:
                raise h11.RemoteProtocolError("too long")
            if not data:
                raise WireClosed("closed without an answer", local=False)
            reader.receive_data(data)
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("not an answer")


# ---------------------------------------------------------------------------- what the environment says


def proxy_from_env(origin: Origin, environ: Mapping[str, str]) -> Proxy | None:
    """Choose the proxy for an origin as the environment says; `None` for a direct connection.

    `HTTPS_PROXY` decides for `https` and `http_proxy` for `http`, each followed by `ALL_PROXY`; names in
    lower case go first, and `HTTP_PROXY` in capitals is not read, because a CGI server fills it from a
    request's header. `NO_PROXY` names hosts to reach directly: a host, a domain (with or without the leading
    dot, with all below it), an address, a network, any of them with `:port`, or `*`. A user name and password
    in the proxy's URL become its credential.

    Raises:
        ValueError: The URL found is none of an HTTP proxy. The text does not quote it.
    """
    if _spared(origin, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    names = ["https_proxy", "HTTPS_PROXY"] if origin.secure else ["http_proxy"]
    for name in (*names, "all_proxy", "ALL_PROXY"):
        value = environ.get(name)
        if value:
            return _parse_proxy(value)
    return None


def _parse_proxy(value: str) -> Proxy:
    scheme, mark, rest = value.partition("://")
    if not mark:
        scheme, rest = "http", value
    userinfo, at, place = rest.rpartition("@")
    credential = None
    if at:
        user, _, password = userinfo.partition(":")
        credential = Basic(unquote(user), Secret(unquote(password)))
    return Proxy(url=f"{scheme}://{place}", credential=credential)


def _spared(origin: Origin, entries: str) -> bool:
    address = _address(origin.host)
    for raw in entries.split(","):
        entry = raw.strip().lower()
        if entry == "*":
            return True
        if not entry:
            continue
        if "/" in entry:
            if address is not None and _inside(address, entry):
                return True
            continue
        host, port = _host_and_port(entry)
        if port is not None and port != str(origin.port):
            continue
        if address is not None:
            if _address(host) == address:
                return True
            continue
        domain = host.removeprefix("*").removeprefix(".")
        if domain and (origin.host == domain or origin.host.endswith("." + domain)):
            return True
    return False


def _host_and_port(entry: str) -> tuple[str, str | None]:
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, port.removeprefix(":") or None
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _inside(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
