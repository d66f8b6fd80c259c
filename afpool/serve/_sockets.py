"""Where the service listens: sockets by the configuration, and the certificate that they show.

* A Unix socket that nobody answers at is left over and replaced; one that somebody answers at is not ours to
  take. It is made under another name and moved into place, readable and writable for its owner and group.
* What was moved into place is removed at the end, unless somebody else has put something there meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from .._base.errors import NOT_SENT, AfpoolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ..config import ServeConfig, TlsFiles

BACKLOG: Final = 1024
DESCRIPTORS: Final = 65_536
_MODE: Final = 0o660


class CannotListen(AfpoolError):
    """The service cannot listen where it is told to. Nothing listens."""

    code = "cannot-listen"
    deliveries = (NOT_SENT,)


class BadCertificate(AfpoolError):
    """The certificate that the service is to show cannot be used. Nothing listens."""

    code = "bad-certificate"
    deliveries = (NOT_SENT,)


def descriptors() -> int:
    """How many descriptors the process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_descriptors() -> None:
    """Let the process have as many descriptors as a service needs, if it may; for its owner only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tls_context(files: TlsFiles | None) -> ssl.SSLContext | None:
    """Make what TLS is spoken with; `None` where it is not.

    Raises:
        BadCertificate: A file is not there, or holds nothing that can be used.
    """
    if files is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    password = None if files.key_password is None else files.key_password.reveal()
    try:
        # without a password OpenSSL would ask the terminal for one
        context.load_cert_chain(files.certificate, files.key, password=lambda: password or "")
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise BadCertificate(
            f"the certificate {files.certificate} cannot be used ({reason}); nothing listens"
        ) from None
    return context


@contextlib.asynccontextmanager
async def open_listeners(config: ServeConfig) -> AsyncIterator[list[trio.SocketListener]]:
    """Listen for the time of the block.

    Raises:
        CannotListen: The address is taken, or cannot be used.
    """
    unix = config.unix_path
    if unix is not None:
        with _unix_listener(Path(unix)) as listener:
            async with listener:
                yield [listener]
        return
    address = config.host_and_port
    assert address is not None
    host, port = address
    try:
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(f"cannot listen at {config.bind} ({_reason(error)}); nothing listens") from None
    async with contextlib.AsyncExitStack() as stack:
        for one in listeners:
            await stack.enter_async_context(one)
        yield list(listeners)


@contextlib.contextmanager
def _unix_listener(path: Path) -> Iterator[trio.SocketListener]:
    _refuse_taken(path)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.unlink(missing_ok=True)
        sock.bind(str(made))
        made.chmod(_MODE)
        sock.listen(BACKLOG)
        sock.setblocking(False)
        made.rename(path)
    except OSError as error:
        sock.close()
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
        raise CannotListen(f"cannot listen at unix:{path} ({_reason(error)}); nothing listens") from None
    ours = path.stat().st_ino
    try:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    finally:
        with contextlib.suppress(OSError):
            if path.stat().st_ino == ours:
                path.unlink()


def _refuse_taken(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise CannotListen(f"cannot listen at unix:{path} (something else is there); nothing listens")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise CannotListen(f"cannot listen at unix:{path} (another service answers there); nothing listens")


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is taken"
    return os.strerror(error.errno) if error.errno else type(error).__name__


def address_of(listener: trio.SocketListener, *, tls: bool) -> str:
    """Where clients reach a listener: `http://host:port`, or `unix:/path`."""
    sock = listener.socket
    if sock.family == socket.AF_UNIX:
        return "unix"
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def port_of(listeners: list[trio.SocketListener]) -> int | None:
    """The port that is listened at; `None` where there is none."""
    for listener in listeners:
        if listener.socket.family != socket.AF_UNIX:
            return int(listener.socket.getsockname()[1])
    return None
