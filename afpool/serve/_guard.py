"""What is wrong with a request is seen in its head, before anything is read or proven.

Rules:

* A page in a browser can send anything to any address it can reach, and under a name of its own if it lets
  that name lead here (DNS rebinding). Two headers tell it apart that it cannot set itself: `Host` says under
  which name we were called, `Origin` whose page calls. A client that is no browser sends no `Origin`.
* Bound to loopback, `Host` may be a name of this machine; told nothing more, pages of this machine may call.
  Bound to a Unix socket, no browser gets here: any `Host` is taken. Bound to the world and told
  nothing, any `Host` is taken, with one warning; then no page may call, since a page's own host cannot be
  told from one that was rebound.
* `null` is nobody's origin and everybody's: it is never allowed. Without `Origin`, what a browser says of
  itself (`Sec-Fetch-Site`) still tells another site's request.
* A header that decides something comes once and is spelled one way. Whatever two readers of the same head
  could read differently is refused (400), from whomever it comes.
* A refusal says what rule was broken and never by what.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from .._base.web_names import DEFAULT_PORTS, HostPort, Origin, is_loopback, read_host, read_origin
from ._proof_types import Refused, RequestHead, UnsafeDoor, refuse

if TYPE_CHECKING:
    from ..config import ServeConfig

MAX_SESSION_ID: Final = 400
# What decides something here, in the SDK or in a proxy before us; each may come once.
SINGLE: Final = frozenset(
    {
        b"authorization", b"content-length", b"content-type", b"host", b"last-event-id", b"mcp-method",
        b"mcp-name", b"mcp-protocol-version", b"mcp-session-id", b"origin", b"sec-fetch-site",
        b"transfer-encoding",
    }
)  # fmt: skip
# Names that almost every request has, known to be well-formed.
_USUAL: Final = frozenset(
    {
        b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"connection", b"traceparent",
        b"user-agent", b"x-forwarded-for", b"x-forwarded-proto", b"x-real-ip", b"x-request-id",
    }
)  # fmt: skip
HOSTS_KEPT: Final = 256
_METHODS: Final = ("GET", "POST", "DELETE")
_READ: Final = ("GET", "HEAD")
_GET: Final = ("GET",)
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_SESSION_ID: Final = re.compile(rb"[\x21-\x7e]{1,%d}" % MAX_SESSION_ID)
_JSON: Final = re.compile(rb'(?i:application/json)(?:[ \t]*;[ \t]*(?i:charset)="?(?i:utf-8)"?)?[ \t]*')
_OTHER_SITE: Final = frozenset({b"cross-site", b"same-site"})
_MALFORMED: Final = refuse(400, "malformed-header", "a header holds what no header may hold")


@final
class Guard:
    """Judges heads by one configuration. Without I/O; a judgement costs microseconds.

    Args:
        config: The service's configuration.

    Attributes:
        warnings: What whoever starts the service should be told, one sentence each.

    Raises:
        UnsafeDoor: An entry of a list is no host, or no origin.
    """

    def __init__(self, config: ServeConfig) -> None:
        self._path = config.path
        self._websocket_path = config.websocket_path
        self._headers = config.limits.headers
        self._header_bytes = config.limits.header_bytes
        self._hosts = frozenset(_entry_host(entry) for entry in config.allowed_hosts)
        self._origins = frozenset(_entry_origin(entry) for entry in config.allowed_origins)
        self._local = _is_local(config.bind)
        self._unix = config.bind.startswith("unix:")
        self._loopback_pages = self._local and not self._origins and not self._hosts
        self._known_hosts: dict[bytes, tuple[HostPort, bool]] = {}  # as they are written, those that may call
        self.warnings: tuple[str, ...] = ()
        if not self._hosts and not self._local and not self._unix:
            warning = (
                f"bound to {config.bind} without `allowed_hosts`: requests under any host name are taken, "
                "those of a page whose name was made to lead here too; name the hosts of this service"
            )
            self.warnings = (warning,)

    # ------------------------------------------------------------------ judging

    def check(self, head: RequestHead) -> Refused | None:
        """Judge a head; `None` lets it through."""
        said = self._read(head)
        if isinstance(said, Refused):
            return said
        return self._host_and_origin(said) or self._request(head, said)

    def bounds(self, head: RequestHead) -> Refused | None:
        """Judge only its size and form: all that is asked of a probe, which calls us by an address."""
        said = self._read(head)
        return said if isinstance(said, Refused) else None

    def at_home(self, head: RequestHead) -> Refused | None:
        """Judge as `check`, but not what is asked for: of what the service answers for itself."""
        said = self._read(head)
        return said if isinstance(said, Refused) else self._host_and_origin(said)

    def _read(self, head: RequestHead) -> dict[bytes, bytes] | Refused:
        """Give the headers that decide something, if all are well-formed."""
        if len(head.headers) > self._headers:
            return refuse(431, "too-many-headers", f"more than {self._headers} headers")
        size = 0
        said: dict[bytes, bytes] = {}
        for name, value in head.headers:
            size += len(name) + len(value) + 4
            if size > self._header_bytes:
                return refuse(431, "headers-too-large", f"more than {self._header_bytes} bytes of headers")
            if _BAD_VALUE.search(value) is not None:
                return _MALFORMED
            if name in SINGLE:
                if name in said:
                    return refuse(400, "repeated-header", "a header that may come once came twice")
                said[name] = value
            elif name not in _USUAL:
                if _TOKEN.fullmatch(name) is None:
                    return _MALFORMED
                if b"_" in name and name.replace(b"_", b"-") in SINGLE:
                    words = "a header is spelled with `_` where others read it as `-`"
                    return refuse(400, "ambiguous-header", words)
        if b"content-length" in said and b"transfer-encoding" in said:
            return refuse(400, "ambiguous-length", "the body's length is told in two ways")
        return said

    def _host_and_origin(self, said: dict[bytes, bytes]) -> Refused | None:
        raw = said.get(b"host", b"")
        known = self._known_hosts.get(raw)
        if known is None:
            host = read_host(raw.decode("latin-1"))
            if host is None:
                return refuse(400, "malformed-host", "a request names one host, in the form of a host")
            checked = self._host_is_ours(host)
            if checked is False:
                words = "this service is not known by that host; add it to `allowed_hosts`"
                return refuse(421, "host-not-allowed", words)
            if len(self._known_hosts) >= HOSTS_KEPT:
                self._known_hosts.clear()
            known = self._known_hosts[raw] = (host, checked is True)
        origin = said.get(b"origin")
        if origin is None:
            allowed = said.get(b"sec-fetch-site", b"none").lower() not in _OTHER_SITE
        else:
            allowed = self._may_call(read_origin(origin.decode("latin-1")), known[0], trusted=known[1])
        if allowed:
            return None
        words = "pages of that origin may not call this service; see `allowed_origins`"
        return refuse(403, "origin-not-allowed", words)

    def _host_is_ours(self, host: HostPort) -> bool | None:
        """Whether it is; `None` where nobody said what is ours."""
        if host in self._hosts or HostPort(host.name, None) in self._hosts:
            return True
        if self._local:
            return is_loopback(host.name)
        return False if self._hosts else None

    def _may_call(self, origin: Origin | None, host: HostPort, *, trusted: bool) -> bool:
        if origin is None:
            return False
        if origin in self._origins or (self._loopback_pages and is_loopback(origin.name)):
            return True
        # A page of the host that it calls. Its scheme says which port a host without one means: TLS may have
        # ended before us.
        port = DEFAULT_PORTS[origin.scheme] if host.port is None else host.port
        return trusted and origin.name == host.name and origin.port == port

    def _request(self, head: RequestHead, said: dict[bytes, bytes]) -> Refused | None:
        usual = _METHODS if head.path == self._path else _READ
        allowed = _GET if head.path == self._websocket_path else usual
        if head.method not in allowed:
            # A preflight comes through where its page may call, which has been judged by now.
            if head.method == "OPTIONS" and allowed is _METHODS and b"origin" in said:
                return None
            return refuse(
                405,
                "method-not-allowed",
                f"here a request is one of {', '.join(allowed)}",
                headers=((b"allow", ", ".join(allowed).encode()),),
            )
        if allowed is not _METHODS:
            return None
        if head.method == "POST" and _JSON.fullmatch(said.get(b"content-type", b"")) is None:
            return refuse(415, "unsupported-media-type", "a message is sent as `application/json`")
        session = said.get(b"mcp-session-id")
        if session is not None and _SESSION_ID.fullmatch(session) is None:
            words = f"a session id is 1 to {MAX_SESSION_ID} visible ASCII characters"
            return refuse(400, "invalid-session-id", words)
        return None


def guard(head: RequestHead, config: ServeConfig) -> Refused | None:
    """Judge one head by a configuration; whoever judges many makes a `Guard` once.

    Raises:
        UnsafeDoor: As `Guard`.
    """
    return Guard(config).check(head)


# ------------------------------------------------------------------ what is configured


def _is_local(bind: str) -> bool:
    if bind.startswith("unix:"):
        return False
    host = read_host(bind)
    return host is not None and is_loopback(host.name)


def _entry_host(entry: str) -> HostPort:
    host = read_host(entry) if entry.isascii() else None
    if host is None:
        raise UnsafeDoor(
            f"`allowed_hosts` holds {entry!r}, which is no host; write `name` or `name:port` as in a "
            "Host header (no scheme, no wildcard, names beyond ASCII as xn--…)"
        )
    return host


def _entry_origin(entry: str) -> Origin:
    origin = read_origin(entry) if entry.isascii() else None
    if origin is None:
        raise UnsafeDoor(
            f"`allowed_origins` holds {entry!r}, which is no origin; write `https://name` or "
            "`https://name:port` as a browser sends it (no path, no wildcard, never `null`, which every "
            "sandboxed page has)"
        )
    return origin
