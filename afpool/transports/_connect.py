"""From an origin to a connected wire: names, addresses, sockets, TLS.

One `Connector` belongs to one endpoint configuration and is shared by all clients that talk to it: what
it keeps (addresses for 30 s, the TLS context) is true for every key. It holds no connection. A failure
says which step failed and never quotes a URL, whose query may be a secret.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
import threading
from typing import Final, Literal, TypeAlias

import attrs
import trio

from afpool._base.seams import Seams  # noqa: TC001
from afpool.transports._tls import TlsWire
from afpool.transports._wire import SocketWire, Wire, WireClosed

ADDRESSES_KEPT: Final = 30.0
"""Seconds for which the addresses of a name are used again."""

STAGGER: Final = 0.25
"""Seconds that one address gets before the next is tried beside it (RFC 8305, section 5)."""

_KEEPALIVE_IDLE: Final = 15
_KEEPALIVE_INTERVAL: Final = 5
_KEEPALIVE_PROBES: Final = 3
_USER_TIMEOUT_MS: Final = 30_000

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}

ConnectReason: TypeAlias = Literal["resolve", "refused", "unreachable", "tls", "timeout"]
Address: TypeAlias = tuple[int, object]


class ConnectFailed(Exception):
    """No connection came about. Nothing of any request was sent.

    Args:
        reason: Which step failed.
        message: What happened, without secrets.
    """

    def __init__(self, reason: ConnectReason, message: str) -> None:
        super().__init__(message)
        self.reason: ConnectReason = reason


@attrs.frozen
class Origin:
    """Whom to connect to.

    Attributes:
        scheme: `http` or `https` (`ws` or `wss` where the caller of `origin_of` admits them).
        host: A name in its ASCII form, or an IP address without brackets.
        port: Given, or the scheme's own.
    """

    scheme: str
    host: str
    port: int

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme in {"https", "wss"}

    @property
    def authority(self) -> bytes:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}").encode("ascii")


def origin_of(url: str, *, schemes: tuple[str, ...] = ("http", "https")) -> tuple[Origin, bytes]:
    """Part a URL into whom to connect to and what to ask for.

    Args:
        url: Absolute. International names are brought into their ASCII form.
        schemes: Which ones are admitted, of `http`, `https`, `ws`, `wss`.

    Returns:
        The origin, and path with query as the request target.

    Raises:
        ValueError: Another scheme, no host, a user name or password, a fragment, or no URL at all. The
            message does not quote the URL.
    """
    import httpx

    parsed: httpx.URL | None = None
    with contextlib.suppress(httpx.InvalidURL, TypeError):
        parsed = httpx.URL(url)
    if parsed is None:
        # Raised out here, so that no context of the exception quotes the URL.
        raise ValueError("the server's URL cannot be parsed")
    if parsed.scheme not in schemes:
        raise ValueError(f"the server's URL must start with one of {', '.join(s + '://' for s in schemes)}")
    if not parsed.host:
        raise ValueError("the server's URL names no host")
    if parsed.userinfo:
        raise ValueError("the server's URL holds a user name; credentials are configured beside the URL")
    if parsed.fragment or "#" in url:
        raise ValueError("the server's URL holds a fragment, which is never sent")
    port = parsed.port
    if port is None:
        port = _DEFAULT_PORTS[parsed.scheme]
    if not 0 < port < 65536:
        raise ValueError("the server's URL holds a port that does not exist")
    host = parsed.raw_host.decode("ascii")
    return Origin(parsed.scheme, host, port), parsed.raw_path


@attrs.frozen
class TlsConfig:
    """How TLS is spoken with an endpoint.

    Attributes:
        ca_file: PEM file of the authorities to trust, instead of the system's.
        ca_data: The same as text; both may be given.
        client_cert: PEM file of our certificate chain.
        client_key: PEM file of its key, where it is not in `client_cert`.
        insecure: Take any certificate of any name. For tests on one's own machine.
        min_version: The oldest protocol version spoken.
    """

    ca_file: str | None = None
    ca_data: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    insecure: bool = False
    min_version: Literal["1.2", "1.3"] = "1.2"


_Stamp: TypeAlias = tuple[tuple[int, int] | None, ...]
_contexts: dict[TlsConfig, tuple[_Stamp, ssl.SSLContext]] = {}
_contexts_lock = threading.Lock()


def shared_ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """Give the process's one context for a configuration; a new one when its files have changed.

    Blocking (about 18 ms for the first of a configuration) and safe in threads. Nobody may change the
    context afterwards.

    Raises:
        OSError: A file cannot be read.
        ssl.SSLError: A file holds no certificate or key, or they do not fit each other.
    """
    stamp = _stamp(tls)
    with _contexts_lock:
        kept = _contexts.get(tls)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        context = _build_context(tls)
        _contexts[tls] = (stamp, context)
        return context


def _stamp(tls: TlsConfig) -> _Stamp:
    stamps: list[tuple[int, int] | None] = []
    for path in (tls.ca_file, tls.client_cert, tls.client_key):
        if path is None:
            stamps.append(None)
        else:
            found = os.stat(path)  # noqa: PTH116
            stamps.append((found.st_mtime_ns, found.st_size))
    return tuple(stamps)


def _build_context(tls: TlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_data)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    # A renegotiation would make a write wait for a read, which the send gate's single step cannot do.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.client_cert is not None:
        context.load_cert_chain(tls.client_cert, tls.client_key)
    return context


@attrs.define(eq=False)
class _Name:
    """What is kept of one name."""

    limiter: trio.CapacityLimiter
    addresses: list[Address] = attrs.field(factory=list)
    until: float = float("-inf")


class Connector:
    """Opens wires to the origins of one endpoint configuration.

    Args:
        seams: Clock, network and threads.
        tls: A configuration, or a ready context, used as it is.
        resolve_limit: How many look-ups of one name may occupy a thread at once.
    """

    __slots__ = ("_names", "_resolve_limit", "_seams", "_tls", "_tls_limiter")

    def __init__(
        self, seams: Seams, tls: TlsConfig | ssl.SSLContext | None = None, *, resolve_limit: int = 2
    ) -> None:
        self._seams = seams
        self._tls: TlsConfig | ssl.SSLContext = TlsConfig() if tls is None else tls
        # Building a context reads files; the others who want it wait for the first to have built it.
        self._tls_limiter = trio.CapacityLimiter(1)
        self._resolve_limit = resolve_limit
        self._names: dict[tuple[str, int], _Name] = {}

    async def connect(self, origin: Origin) -> Wire:
        """Open a connection, with TLS where the origin is secure.

        The caller owns the deadline. Cancelled, every half-open socket is closed, and a look-up that
        occupies a thread is left to end by itself.

        Raises:
            ConnectFailed: With the step that failed.
        """
        context = await self._context() if origin.secure else None
        addresses = await self._resolve(origin.host, origin.port)
        sock = await self._first_of(addresses)
        try:
            _tune(sock)
            wire = SocketWire(sock)
        except BaseException:
            sock.close()
            raise
        if context is None:
            return wire
        try:
            return await TlsWire.handshake(wire, context, origin.host)
        except ssl.SSLCertVerificationError as error:
            failed = ConnectFailed("tls", f"the server's certificate is not accepted: {error.verify_message}")
        except ssl.SSLError as error:
            failed = ConnectFailed("tls", f"the TLS handshake failed: {error.reason or type(error).__name__}")
        except WireClosed as error:
            failed = ConnectFailed("tls", f"the TLS handshake failed: {error}")
        raise failed

    async def _context(self) -> ssl.SSLContext:
        tls = self._tls
        if isinstance(tls, ssl.SSLContext):
            return tls
        try:
            context: ssl.SSLContext = await self._seams.in_thread(
                lambda: shared_ssl_context(tls), self._tls_limiter
            )
        except OSError as error:  # ssl.SSLError is one too
            why = error.strerror or type(error).__name__
            raise ConnectFailed("tls", f"the TLS configuration cannot be used: {why}") from error
        # Kept for this connector's life: a client opened after a file changed brings a connector of its own.
        self._tls = context
        return context

    async def _resolve(self, host: str, port: int) -> list[Address]:
        literal = _literal(host, port)
        if literal is not None:
            return [literal]
        seams = self._seams
        name = self._names.get((host, port))
        if name is None:
            name = self._names[host, port] = _Name(trio.CapacityLimiter(self._resolve_limit))
        elif seams.now() < name.until:
            return name.addresses
        try:
            found: list[Address] = await seams.in_thread(lambda: seams.resolve(host, port), name.limiter)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise ConnectFailed("resolve", f"the server's name cannot be resolved: {why}") from error
        if not found:
            raise ConnectFailed("resolve", "the server's name has no address")
        name.addresses = _alternate(found)
        name.until = seams.now() + ADDRESSES_KEPT
        return name.addresses

    async def _first_of(self, addresses: list[Address]) -> socket.socket:
        """Connect to the first address that answers, each next one 250 ms behind the one before."""
        errors: list[OSError] = []
        made: list[socket.socket] = []
        if len(addresses) == 1:
            await self._try(addresses[0], made, errors)
        else:
            await self._race(addresses, made, errors)
        if made:
            return made[0]
        raise _connect_failed(errors)

    async def _race(self, addresses: list[Address], made: list[socket.socket], errors: list[OSError]) -> None:
        async def attempt(index: int) -> None:
            failed = trio.Event()
            if index + 1 < len(addresses):
                nursery.start_soon(after, failed, index + 1)
            if await self._try(addresses[index], made, errors):
                nursery.cancel_scope.cancel()
            failed.set()

        async def after(failed: trio.Event, index: int) -> None:
            with trio.move_on_after(STAGGER):
                await failed.wait()
            await attempt(index)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attempt, 0)
        except BaseExceptionGroup as group:
            for sock in made:
                sock.close()
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or rest is not None:
                raise
            # A cancelled caller expects the bare exception, whether one or five addresses were tried.
            single = _first_leaf(cancelled)
        else:
            return
        raise single

    async def _try(self, address: Address, made: list[socket.socket], errors: list[OSError]) -> bool:
        try:
            sock: socket.socket = await self._seams.connect(*address)
        except OSError as error:
            errors.append(error)
            return False
        if made:
            # Two came through in one pass of the loop; the later one is not needed.
            sock.close()
        else:
            made.append(sock)
        return True


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _literal(host: str, port: int) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return socket.AF_INET, (str(address), port)
    if address.scope_id is not None:
        # The number of an interface is the resolver's to find.
        return None
    return socket.AF_INET6, (str(address), port, 0, 0)


def _alternate(addresses: list[Address]) -> list[Address]:
    """Families in turn, beginning with the resolver's first choice (RFC 8305, section 4)."""
    first = [each for each in addresses if each[0] == addresses[0][0]]
    other = [each for each in addresses if each[0] != addresses[0][0]]
    mixed: list[Address] = []
    for index in range(max(len(first), len(other))):
        mixed += first[index : index + 1]
        mixed += other[index : index + 1]
    return mixed


def _connect_failed(errors: list[OSError]) -> ConnectFailed:
    codes = {error.errno for error in errors}
    words = ", ".join(sorted({error.strerror or type(error).__name__ for error in errors}))
    reason: ConnectReason = "unreachable"
    if errno.ECONNREFUSED in codes:
        # One address that refuses is a machine that is there.
        reason = "refused"
    elif codes == {errno.ETIMEDOUT}:
        reason = "timeout"
    return ConnectFailed(reason, f"no connection to the server: {words}")


def _tune(sock: socket.socket) -> None:
    """Send small requests at once, and notice a peer that vanished within half a minute."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
