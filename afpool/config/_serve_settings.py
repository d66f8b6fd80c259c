"""The `[serve]` table: where the service listens and what callers may use up; who they are is beside."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator  # noqa: TC003  (attrs resolves the annotations)
from typing import ClassVar, Final, Literal

import attrs

from .._base.secret import Secret  # noqa: TC001  (attrs resolves the annotations)
from ._checks import host_problem, origin_problem
from ._identity_settings import IdentityConfig
from ._kinds import Boolean, Choice, Text
from ._kinds_of_many import FilePath, Listing
from ._numbers import Number, count, seconds, size
from ._record_settings import MetricsConfig
from ._tables import Needs, Record, Rule, setting
from ._written import fingerprint


def _or_none(text: str | None) -> str | None:
    return text or None


OWN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/.well-known"})
"""Where the service answers for itself."""


@attrs.frozen(kw_only=True)
class TlsFiles:
    """The certificate that the service shows.

    Attributes:
        certificate: PEM file of the chain.
        key: PEM file of its key; in the certificate's file where absent.
        key_password: Opens the key.
        client_ca: PEM file of the authorities whose certificates callers have to show; nobody has to without.
    """

    certificate: str = attrs.field(
        metadata=setting(
            FilePath(there="file", expects="the path of a PEM file"), "PEM file of the certificate chain."
        )
    )
    key: str | None = attrs.field(
        default=None,
        metadata=setting(
            FilePath(there="file", expects="the path of a PEM file"),
            "PEM file of its private key, where it is not in the certificate's file.",
        ),
    )
    key_password: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(Text(hidden=True), "Opens the private key."),
    )
    client_ca: str | None = attrs.field(
        default=None,
        metadata=setting(
            FilePath(there="file", expects="the path of a PEM file"),
            "PEM file of the authorities whose certificates callers have to show.",
        ),
    )


@attrs.frozen(kw_only=True)
class ServeLimits:
    """What callers may use up. Sizes are bytes, times seconds; `None` sets no limit.

    Attributes:
        body: The largest request body.
        header_bytes: All headers of a request together.
        headers: How many of them.
        calls: Calls at once of everybody. Where all are taken the next one is of the tenant that has fewest.
        call_wait: How long a call waits for such a place.
        calls_per_principal: Calls at once of one principal.
        calls_per_tenant: Calls at once of one tenant.
        rate_per_principal: Calls a second of one principal.
        rate_per_tenant: Calls a second of one tenant.
        burst: Calls that one may make at once before the rate counts; twice the rate where absent.
        sessions: Sessions in all.
        sessions_per_principal: Sessions of one principal.
        idle_session: A session that nobody uses for so long ends.
        header_timeout: How long the headers of a request may take to come.
        body_timeout: How long its body may.
    """

    body: int = attrs.field(default=4 * 2**20, metadata=setting(size(), "The largest request body."))
    header_bytes: int = attrs.field(
        default=32 * 2**10, metadata=setting(size(least=256), "All headers of a request together.")
    )
    headers: int = attrs.field(default=100, metadata=setting(count(), "Headers of a request."))
    calls: int = attrs.field(default=1024, metadata=setting(count(), "Calls at once of everybody."))
    call_wait: float = attrs.field(
        default=5.0, metadata=setting(seconds(least=0), "How long a call waits for a place among those.")
    )
    calls_per_principal: int = attrs.field(
        default=16, metadata=setting(count(), "Calls at once of one principal.")
    )
    calls_per_tenant: int = attrs.field(default=64, metadata=setting(count(), "Calls at once of one tenant."))
    rate_per_principal: float | None = attrs.field(
        default=None, metadata=setting(Number(above=0), "Calls a second of one principal.")
    )
    rate_per_tenant: float | None = attrs.field(
        default=None, metadata=setting(Number(above=0), "Calls a second of one tenant.")
    )
    burst: int | None = attrs.field(
        default=None, metadata=setting(count(), "Calls that one may make at once before the rate counts.")
    )
    sessions: int = attrs.field(default=10_000, metadata=setting(count(), "Sessions in all."))
    sessions_per_principal: int = attrs.field(
        default=100, metadata=setting(count(), "Sessions of one principal.")
    )
    idle_session: float = attrs.field(
        default=3600.0, metadata=setting(seconds(), "A session that nobody uses for so long ends.")
    )
    header_timeout: float = attrs.field(
        default=10.0, metadata=setting(seconds(), "How long the headers of a request may take to come.")
    )
    body_timeout: float = attrs.field(default=30.0, metadata=setting(seconds(), "How long its body may."))

    RULES: ClassVar[tuple[Rule, ...]] = (Needs("burst", ("rate_per_principal", "rate_per_tenant")),)


@attrs.frozen(kw_only=True)
class ServeConfig:
    """How the service stands at its door.

    Attributes:
        bind: `host:port`, or `unix:` and the path of a socket.
        path: Where MCP over HTTP is.
        websocket_path: Where MCP over WebSocket is; `None` is nowhere (`""` in a file).
        tls: The certificate; plain where absent.
        allowed_hosts: What `Host` may say, with or without port; on loopback, names of this machine too.
        allowed_origins: What `Origin` may say, such as `https://app.example.com`; no wildcard, never `null`.
        identity: How callers prove who they are.
        limits: What they may use up.
        metrics: `/metrics`, and who may read it.
        drain: Seconds that calls have to end when the service is to end.
        qualify: As in `RuntimeConfig`, for what the service lists; the runtime's where absent.
        reload: Whether files are watched and read again when they change.
    """

    bind: str = attrs.field(
        default="127.0.0.1:8765",
        metadata=setting(
            Text(
                pattern=r"^(?:unix:.+|.+:[0-9]{1,5})$", expects="host:port, or unix:/path", check=host_problem
            ),
            "Where to listen: `host:port`, `[::1]:port`, or `unix:/path`.",
        ),
    )
    path: str = attrs.field(
        default="/mcp",
        metadata=setting(
            Text(pattern=r"^/[A-Za-z0-9._~/-]{0,200}$", expects="a path such as /mcp"),
            "Where MCP over HTTP is.",
        ),
    )
    websocket_path: str | None = attrs.field(
        default="/ws",
        metadata=setting(
            Text(
                pattern=r"^(?:/[A-Za-z0-9._~/-]{0,200})?$",
                expects="a path such as /ws, or an empty string",
                least=0,
            ),
            "Where MCP over WebSocket is; an empty string is nowhere.",
        ),
        converter=_or_none,
    )
    tls: TlsFiles | None = attrs.field(default=None, metadata=setting(Record(TlsFiles), "Speak TLS."))
    allowed_hosts: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(
                Text(pattern=r"^[A-Za-z0-9.:\[\]_-]{1,255}$", expects="a host such as mcp.example.com"),
                least=1,
            ),
            "What `Host` may say; bound to loopback, names of this machine too.",
        ),
    )
    allowed_origins: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(Text(expects="an origin such as https://app.example.com", check=origin_problem), least=1),
            "What `Origin` may say.",
        ),
    )
    identity: IdentityConfig = attrs.field(
        factory=IdentityConfig, metadata=setting(Record(IdentityConfig), "How callers prove who they are.")
    )
    limits: ServeLimits = attrs.field(
        factory=ServeLimits, metadata=setting(Record(ServeLimits), "What callers may use up.")
    )
    metrics: MetricsConfig = attrs.field(
        factory=MetricsConfig, metadata=setting(Record(MetricsConfig), "/metrics, for Prometheus.")
    )
    drain: float = attrs.field(
        default=30.0,
        metadata=setting(seconds(least=0), "How long calls have to end when the service is to end."),
    )
    qualify: Literal["when-needed", "always"] | None = attrs.field(
        default=None,
        metadata=setting(
            Choice("when-needed", "always"),
            "When tools are called server__tool; as the runtime where absent.",
        ),
    )
    reload: bool = attrs.field(
        default=True, metadata=setting(Boolean(), "Watch the files and read them again when they change.")
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        if self.websocket_path is not None and self.websocket_path == self.path:
            yield "websocket_path", "it is the same as path"
        for name, path in (("path", self.path), ("websocket_path", self.websocket_path)):
            if path in OWN_PATHS or (path or "").startswith("/.well-known/"):
                yield name, "something else of the service answers there"

    @property
    def unix_path(self) -> str | None:
        """The path of the socket, where it is one."""
        return self.bind.removeprefix("unix:") if self.bind.startswith("unix:") else None

    @property
    def host_and_port(self) -> tuple[str, int] | None:
        """Address and port, where there are; an IPv6 address without brackets."""
        if self.unix_path is not None:
            return None
        host, _, port = self.bind.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def loopback_only(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host_and_port is None or self.host_and_port[0] == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host_and_port[0]).is_loopback
        except ValueError:
            return False
