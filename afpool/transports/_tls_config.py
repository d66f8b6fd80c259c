"""How TLS is spoken with an endpoint, and the one context that the process keeps per configuration.

* Building a context costs about 18 ms and 750 KB, so all clients of one configuration share one.
* Certificates rotate: the files of a configuration are looked at before each new TLS connection, and when
  one has changed a new context is built. While a rotation is half done (a new certificate beside the old
  key) the context that worked goes on being used.
* A key's password is in a `Secret`, is part of what makes two configurations differ, and is never shown.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import ssl
import threading
from typing import Final, Literal, TypeAlias

import attrs

from afpool._base.secret import Secret

logger = logging.getLogger("afpool")

CONTEXTS_KEPT: Final = 256
"""How many configurations the process keeps a context for; the one built first goes first."""

_FINGERPRINT_KEY: Final = secrets.token_bytes(32)


def fingerprint(secret: Secret | None) -> bytes | None:
    """What two secrets of the same value have in common, within this process; tells nothing of the value."""
    if secret is None:
        return None
    return hashlib.blake2b(
        secret.reveal().encode("utf-8", "surrogatepass"), key=_FINGERPRINT_KEY, digest_size=16
    ).digest()


def _wrapped(value: str | Secret | None) -> Secret | None:
    return None if value is None else Secret(value)


@attrs.frozen
class TlsConfig:
    """How TLS is spoken with an endpoint.

    Attributes:
        ca_file: PEM file of the authorities to trust, instead of the system's.
        ca_data: The same as text; both may be given.
        client_cert: PEM file of our certificate chain, for servers that want to know who we are.
        client_key: PEM file of its key, where it is not in `client_cert`.
        insecure: Take any certificate of any name. For tests on one's own machine; every opening of a
            client under it logs a warning.
        min_version: The oldest protocol version spoken.
        ca_dir: A folder of authorities as `openssl rehash` lays it out; beside or instead of `ca_file`.
        client_key_password: Opens `client_key`; a string is taken into a `Secret`.
        hostname: The name that the certificate must be issued for, and that the server is told (SNI),
            instead of the URL's host. For servers behind an address, a tunnel or a Unix socket.

    Raises:
        ValueError: A key without a certificate, a password without either, or `insecure` together with
            something that says whom to trust.
    """

    ca_file: str | None = None
    ca_data: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    insecure: bool = False
    min_version: Literal["1.2", "1.3"] = attrs.field(
        default="1.2", validator=attrs.validators.in_(("1.2", "1.3"))
    )
    ca_dir: str | None = None
    client_key_password: Secret | None = attrs.field(
        default=None, converter=_wrapped, repr=False, eq=fingerprint
    )
    hostname: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key is given without client_cert")
        if self.client_key_password is not None and self.client_cert is None:
            raise ValueError("client_key_password is given without client_cert")
        if self.insecure and (self.ca_file or self.ca_data or self.ca_dir or self.hostname):
            raise ValueError("insecure=True verifies nothing; an authority or a name beside it is a mistake")

    def document(self) -> dict[str, str | bool | None]:
        """Everything in it that decides whom we trust and who we are; holds the password in clear."""
        password = self.client_key_password
        return {
            "ca_file": self.ca_file,
            "ca_data": self.ca_data,
            "ca_dir": self.ca_dir,
            "client_cert": self.client_cert,
            "client_key": self.client_key,
            "client_key_password": None if password is None else password.reveal(),
            "hostname": self.hostname,
            "insecure": self.insecure,
            "min_version": self.min_version,
        }

    @property
    def has_files(self) -> bool:
        """Whether files decide what it means, so that it may come to mean something else."""
        return bool(self.ca_file or self.client_cert or self.client_key)


_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
_contexts: dict[TlsConfig, tuple[_Stamp, ssl.SSLContext]] = {}
_contexts_lock = threading.Lock()


def shared_ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """Give the process's one context for a configuration; a new one when its files have changed.

    Blocking (about 18 ms for the first of a configuration) and safe in threads. Nobody may change the
    context afterwards. Where changed files cannot be used, the context that was built before is given,
    with a warning in the log; the next call tries again.

    Raises:
        OSError: A file cannot be read, and there is no context from before.
        ssl.SSLError: A file holds no certificate or key, or they do not fit each other; likewise.
    """
    with _contexts_lock:
        kept = _contexts.get(tls)
        try:
            stamp = _stamp(tls)
            if kept is not None and kept[0] == stamp:
                return kept[1]
            context = _build_context(tls)
        except OSError as error:  # ssl.SSLError is one too
            if kept is None:
                raise
            logger.warning(
                "changed TLS files cannot be used (%s); the ones read before stay in use",
                error.strerror or type(error).__name__,
            )
            return kept[1]
        _contexts.pop(tls, None)
        while len(_contexts) >= CONTEXTS_KEPT:
            del _contexts[next(iter(_contexts))]
        _contexts[tls] = (stamp, context)
        return context


def _stamp(tls: TlsConfig) -> _Stamp:
    stamps: list[tuple[int, int, int] | None] = []
    for path in (tls.ca_file, tls.client_cert, tls.client_key):
        if path is None:
            stamps.append(None)
        else:
            found = os.stat(path)  # noqa: PTH116
            # the inode as well: a file is best replaced by renaming another over it
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)


def _build_context(tls: TlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file, capath=tls.ca_dir, cadata=tls.ca_data)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    # A renegotiation would make a write wait for a read, which the send gate's single step cannot do.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.client_cert is not None:
        password = tls.client_key_password
        # Without a function OpenSSL would ask on the terminal for the password of an encrypted key.
        context.load_cert_chain(
            tls.client_cert, tls.client_key, password=(lambda: "") if password is None else password.reveal
        )
    return context
