"""From an origin to a connected wire: names, addresses, sockets, a proxy on the way, TLS.

One `Connector` belongs to one endpoint configuration and is shared by all clients that talk to it: what
it keeps (addresses for 30 s, the TLS context) is true for every key. It holds no connection. A failure
says which step failed and never quotes a URL, whose query may be a secret.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from afpool._base.seams import Seams  # noqa: TC001
from afpool.transports._connect_failed import Address, ConnectFailed, ConnectReason
from afpool.transports._tls import TlsWire
from afpool.transports._tls_config import TlsConfig, shared_ssl_context
from afpool.transports._tls_tunnel import TlsInTlsWire
from afpool.transports._wire import SocketWire, Wire, WireClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from afpool.transports._origin import Origin
    from afpool.transports._proxy import Proxy

ADDRESSES_KEPT: Final = 30.0
"""Seconds for which the addresses of a name are used again."""

STAGGER: Final = 0.25
"""Seconds that one address gets before the next is tried beside it (RFC 8305, section 5)."""

_KEEPALIVE_IDLE: Final = 15
_KEEPALIVE_INTERVAL: Final = 5
_KEEPALIVE_PROBES: Final = 3
_USER_TIMEOUT_MS: Final = 30_000

Connected: TypeAlias = socket.socket | Wire
"""What the `connect` seam gives: a socket to be made a wire, or a wire that needs no kernel."""

_UNIX_WAIT: Final = 0.01
_UNIX_WAIT_MAX: Final = 0.2


@attrs.define(eq=False)
class _Name:
    """What is kept of one name.

    Its look-ups run in threads, a few at once. Many may ask at the same time (a server with a thousand keys
    has come back) and a look-up may take seconds (its first name server is gone): whoever had to wait for a
    thread takes what the look-up before it has found, or failed with, and makes none of its own.

    Attributes:
        limiter: How many threads it may occupy.
        addresses: What was found last, in the order in which they are tried.
        until: How long that counts.
        ended: How many look-ups have come to an end.
        failure: What the last of them failed with.
    """

    limiter: trio.CapacityLimiter
    addresses: list[Address] = attrs.field(factory=list)
    until: float = float("-inf")
    ended: int = 0
    failure: OSError | UnicodeError | None = None

    def look_up(
        self, resolve: Callable[[], list[Address]], ended: int
    ) -> list[Address] | OSError | UnicodeError:
        """Ask, unless a look-up has ended since `ended` was read; in a thread, and filed before it ends."""
        if self.ended == ended:
            try:
                self.addresses, self.failure = _alternate(resolve()), None
            except (OSError, UnicodeError) as error:
                self.failure = error
            self.ended += 1
        return self.addresses if self.failure is None else self.failure


class Connector:
    """Opens wires to the origins of one endpoint configuration.

    Args:
        seams: Clock, network and threads.
        tls: A configuration, or a ready context, used as it is.
        resolve_limit: How many look-ups of one name may occupy a thread at once.
        proxy: Every connection goes through it, by CONNECT.
        uds: Path of the Unix socket that every connection goes to, whatever the origin's host is.
    """

    __slots__ = ("_names", "_proxy", "_resolve_limit", "_seams", "_settled", "_tls", "_tls_limiter", "_uds")

    def __init__(
        self,
        seams: Seams,
        tls: TlsConfig | ssl.SSLContext | None = None,
        *,
        resolve_limit: int = 2,
        proxy: Proxy | None = None,
        uds: str | None = None,
    ) -> None:
        self._seams = seams
        self._tls: TlsConfig | ssl.SSLContext = TlsConfig() if tls is None else tls
        # Building a context reads files; the others who want it wait for the first to have built it.
        self._tls_limiter = trio.CapacityLimiter(1)
        self._resolve_limit = resolve_limit
        self._names: dict[tuple[str, int], _Name] = {}
        self._settled: dict[TlsConfig, ssl.SSLContext] = {}
        self._proxy = proxy
        self._uds = uds

    async def connect(self, origin: Origin) -> Wire:
        """Open a connection, with TLS where the origin is secure.

        The caller owns the deadline. Cancelled, every half-open socket is closed, and a look-up that
        occupies a thread is left to end by itself.

        Raises:
            ConnectFailed: With the step that failed. Nothing of any request was sent; to a proxy nothing
                but the CONNECT.
        """
        context = await self._context(self._tls) if origin.secure else None
        if self._uds is not None:
            wire = await self._unix(self._uds)
        elif self._proxy is not None:
            wire = await self._tunnel(self._proxy, origin)
        else:
            wire = await self._tcp(origin.host, origin.port, "server")
        if context is None:
            return wire
        named = self._tls.hostname if isinstance(self._tls, TlsConfig) else None
        return await _secured(wire, context, named or origin.host, "server")

    async def _tunnel(self, proxy: Proxy, origin: Origin) -> Wire:
        """Connect to the proxy and have it connect to the origin."""
        there = proxy.origin
        context = await self._context(proxy.tls) if there.secure else None
        wire = await self._tcp(there.host, there.port, "proxy")
        if context is not None:
            wire = await _secured(wire, context, proxy.tls.hostname or there.host, "proxy")
        try:
            await proxy.open_tunnel(wire, origin)
        except BaseException:
            wire.close()
            raise
        return wire

    async def _tcp(self, host: str, port: int, whom: str) -> Wire:
        sock = await self._first_of(await self._resolve(host, port, whom), whom)
        if isinstance(sock, Wire):
            return sock
        try:
            _tune(sock)
            return SocketWire(sock)
        except BaseException:
            sock.close()
            raise

    async def _unix(self, path: str) -> Wire:
        wait = _UNIX_WAIT
        while True:
            try:
                sock: Connected = await self._seams.connect(socket.AF_UNIX, path)
            except OSError as error:
                raise _connect_failed([error], "server") from error
            if isinstance(sock, Wire):
                return sock
            try:
                sock.getpeername()
            except OSError:
                # The server's queue is full: the kernel takes no waiter, so there is nothing to wait on.
                sock.close()
            else:
                return SocketWire(sock)
            await trio.sleep(wait)
            wait = min(wait * 2, _UNIX_WAIT_MAX)

    async def _context(self, tls: TlsConfig | ssl.SSLContext) -> ssl.SSLContext:
        if isinstance(tls, ssl.SSLContext):
            return tls
        settled = self._settled.get(tls)
        if settled is not None:
            return settled
        try:
            context: ssl.SSLContext = await self._seams.in_thread(
                lambda: shared_ssl_context(tls), self._tls_limiter
            )
        except OSError as error:  # ssl.SSLError is one too
            why = error.strerror or type(error).__name__
            raise ConnectFailed("tls", f"the TLS configuration cannot be used: {why}") from error
        if not tls.has_files:
            self._settled[tls] = context
        return context

    async def _resolve(self, host: str, port: int, whom: str) -> list[Address]:
        literal = _literal(host, port)
        if literal is not None:
            return [literal]
        seams = self._seams
        name = self._names.get((host, port))
        if name is None:
            name = self._names[host, port] = _Name(trio.CapacityLimiter(self._resolve_limit))
        elif seams.now() < name.until:
            return name.addresses
        ended = name.ended
        found: list[Address] | OSError | UnicodeError = await seams.in_thread(
            lambda: name.look_up(lambda: seams.resolve(host, port), ended), name.limiter
        )
        if not isinstance(found, list):
            why = getattr(found, "strerror", None) or type(found).__name__
            raise ConnectFailed("resolve", f"the {whom}'s name cannot be resolved: {why}") from found
        if not found:
            raise ConnectFailed("resolve", f"the {whom}'s name has no address")
        name.until = seams.now() + ADDRESSES_KEPT
        return found

    async def _first_of(self, addresses: list[Address], whom: str) -> Connected:
        """Connect to the first address that answers, each next one 250 ms behind the one before."""
        errors: list[OSError] = []
        made: list[Connected] = []
        if len(addresses) == 1:
            await self._try(addresses[0], made, errors)
        else:
            await self._race(addresses, made, errors)
        if made:
            return made[0]
        raise _connect_failed(errors, whom)

    async def _race(self, addresses: list[Address], made: list[Connected], errors: list[OSError]) -> None:
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

    async def _try(self, address: Address, made: list[Connected], errors: list[OSError]) -> bool:
        try:
            sock: Connected = await self._seams.connect(*address)
        except OSError as error:
            errors.append(error)
            return False
        if made:
            # Two came through in one pass of the loop; the later one is not needed.
            sock.close()
        else:
            made.append(sock)
        return True


async def _secured(wire: Wire, context: ssl.SSLContext, name: str, whom: str) -> TlsWire:
    """Shake hands on a wire, over the TLS that is spoken on it already if there is one."""
    if not isinstance(wire, SocketWire):
        wire.close()
        raise ConnectFailed("tls", f"TLS to the {whom} needs a socket, and the `connect` seam gave a wire")
    kind = TlsInTlsWire if isinstance(wire, TlsWire) else TlsWire
    try:
        return await kind.handshake(wire, context, name)
    except ssl.SSLCertVerificationError as error:
        why = f"the {whom}'s certificate is not accepted: {error.verify_message}"
    except ssl.SSLError as error:
        why = f"the TLS handshake with the {whom} failed: {error.reason or type(error).__name__}"
    except WireClosed as error:
        why = f"the TLS handshake with the {whom} failed: {error}"
    raise ConnectFailed("tls", why)


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


def _connect_failed(errors: list[OSError], whom: str) -> ConnectFailed:
    codes = {error.errno for error in errors}
    words = ", ".join(sorted({error.strerror or type(error).__name__ for error in errors}))
    reason: ConnectReason = "unreachable"
    if errno.ECONNREFUSED in codes:
        # One address that refuses is a machine that is there.
        reason = "refused"
    elif codes == {errno.ETIMEDOUT}:
        reason = "timeout"
    return ConnectFailed(reason, f"no connection to the {whom}: {words}")


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
