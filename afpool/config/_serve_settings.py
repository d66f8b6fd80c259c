"""The `[serve]` table: where the service listens, who callers are, what they may use up."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

import attrs

from .._base.identity import FIELDS, Identity
from .._base.secret import Secret  # noqa: TC001  (attrs resolves the annotations)
from ._checks import address_problem, host_problem, origin_problem, trusted_url_problem
from ._kinds import Boolean, Choice, Number, Text, count, seconds, size
from ._kinds_of_many import AddressOrFile, FilePath, Listing, Named
from ._tables import Needs, OneOf, Record, Rule, setting
from ._written import fingerprint

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""Signatures that a token may carry: made with a private key that this service does not have."""

_HEADER: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_IDENTITY_FIELD: Final = rf"^(?:{'|'.join(FIELDS)})$"


def _lower_names(headers: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({field: name.lower() for field, name in headers.items()})


def _or_none(text: str | None) -> str | None:
    return text or None


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
class TokensConfig:
    """Bearer tokens of the service's own.

    Attributes:
        file: Holds their hashes; `afpool token new` writes it. It need not be there yet.
    """

    file: str = attrs.field(
        metadata=setting(
            FilePath(expects="the path of the file of hashed tokens"),
            "The file of hashed tokens that `afpool token new` writes.",
        )
    )


@attrs.frozen(kw_only=True)
class Claim:
    """Which claim of a token gives a field of the identity.

    Attributes:
        name: The claim; dots look inside (`org.id`), except in one that is a URL (`https://acme.example/org`).
        path: The same name by name, for names that hold dots (`["kubernetes.io", "namespace"]`).
        value: No claim at all: the field is this for every token of the issuer.
        required: Whether a token without the claim is refused; otherwise the field is absent.
    """

    name: str | None = attrs.field(
        default=None, metadata=setting(Text(expects="a claim's name"), "The claim; dots look inside.")
    )
    path: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(Text(expects="a claim's name"), least=1),
            "The claim, name by name, where names hold dots.",
        ),
    )
    value: str | None = attrs.field(
        default=None, metadata=setting(Text(), "What the field is for every token of this issuer.")
    )
    required: bool = attrs.field(
        default=True, metadata=setting(Boolean(), "Refuse a token that does not have the claim.")
    )

    RULES: ClassVar[tuple[Rule, ...]] = (OneOf(("name", "path", "value")),)

    @property
    def steps(self) -> tuple[str, ...]:
        """The names from the outside in; empty where the field is a constant."""
        if self.name is None:
            return self.path
        return (self.name,) if "://" in self.name else tuple(self.name.split("."))


class _ClaimKind(Record):
    """Reads a claim: a name, or a table."""

    def __init__(self) -> None:
        super().__init__(Claim, short="name")
        self.expects = "a claim's name, or a table with one of name, path, value"

    def shown(self, value: Any, raw: Any) -> Any:  # noqa: ARG002 -- as the port says
        """See `Kind.shown`."""
        return None if value is None else value.name or list(value.path) or value.value


@attrs.frozen(kw_only=True)
class JwtConfig:
    """One issuer of JSON Web Tokens.

    Attributes:
        issuer: The `iss` that a token must have, byte for byte.
        audience: The token's `aud` must hold one of these.
        algorithms: The signatures that are taken; asymmetric ones only.
        jwks: Where the issuer's keys are: an https address (http on loopback), or a file.
        leeway: Seconds by which clocks may differ.
        claims: Identity field to the claim that gives it.
    """

    issuer: str = attrs.field(
        metadata=setting(Text(expects="the issuer's identifier"), "The `iss` of its tokens.")
    )
    audience: tuple[str, ...] = attrs.field(
        metadata=setting(
            Listing(Text(expects="an audience"), least=1, single=True),
            "The `aud` that a token must have one of.",
        )
    )
    jwks: str = attrs.field(
        metadata=setting(
            AddressOrFile(),
            "Where its keys are: an https address (http on loopback only), or a file.",
        )
    )
    algorithms: tuple[str, ...] = attrs.field(
        default=("RS256", "ES256"),
        metadata=setting(
            Listing(Choice(*ALGORITHMS), least=1, single=True), "The signatures that are taken."
        ),
    )
    leeway: float = attrs.field(
        default=30.0, metadata=setting(seconds(least=0), "Seconds by which clocks may differ.")
    )
    claims: Mapping[str, Claim] = attrs.field(
        default=MappingProxyType({"principal": Claim(name="sub")}),
        metadata=setting(
            Named(
                _ClaimKind(),
                name=_IDENTITY_FIELD,
                names=f"one of {', '.join(FIELDS)}",
                least=1,
            ),
            "Identity field to the claim that gives it.",
        ),
    )


@attrs.frozen(kw_only=True)
class ProxyConfig:
    """A proxy in front that says who calls.

    Attributes:
        trusted: Networks that it calls from (`10.0.0.0/8`, `::1`), or `unix` for whoever may open the socket.
        headers: Identity field to the header that gives it, in lower case.
        required: The fields without whose header nobody is proven; all of `headers` where absent.
    """

    trusted: tuple[str, ...] = attrs.field(
        metadata=setting(
            Listing(
                Text(expects="a network such as 10.0.0.0/8, or unix", check=address_problem),
                least=1,
                single=True,
            ),
            "Networks that the proxy calls from, or `unix`.",
        )
    )
    headers: Mapping[str, str] = attrs.field(
        metadata=setting(
            Named(
                Text(pattern=_HEADER, expects="a header's name"),
                name=_IDENTITY_FIELD,
                names=f"one of {', '.join(FIELDS)}",
                least=1,
            ),
            "Identity field to the header that gives it.",
        ),
        converter=_lower_names,
    )
    required: tuple[str, ...] | None = attrs.field(
        default=None,
        metadata=setting(
            Listing(Choice(*FIELDS), least=1, single=True),
            "The fields whose header has to be there; all that have one where absent.",
        ),
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        if len(set(self.headers.values())) < len(self.headers):
            yield "headers", "one header stands for two fields"
        if self.required is not None and not set(self.required) <= self.headers.keys():
            yield "required", "it names a field that has no header"


@attrs.frozen(kw_only=True)
class AnonymousConfig:
    """Whom everybody is who proves nothing."""

    tenant: str | None = attrs.field(default=None, metadata=setting(Text(), "The tenant."))
    principal: str | None = attrs.field(default=None, metadata=setting(Text(), "The principal."))
    conversation_id: str | None = attrs.field(default=None, metadata=setting(Text(), "The conversation."))


class _AnonymousKind(Record):
    """Reads an identity."""

    def read_record(self, raw: Any, place: Any, layers: Any = None) -> Any:
        read = super().read_record(raw, place, layers)
        if not isinstance(read, AnonymousConfig):
            return read
        return Identity(read.tenant, read.principal, read.conversation_id)


@attrs.frozen(kw_only=True)
class IdentityConfig:
    """How callers prove who they are; each way that is configured may prove it.

    Attributes:
        tokens: Bearer tokens of the service's own.
        jwt: Issuers of JSON Web Tokens.
        proxy: A proxy that says so in headers.
        anonymous: Whom those are who prove nothing; without it they are refused.
        resource: The URL that callers know the service by. With it a refusal says where tokens come from
            (RFC 9728), and the document that says so is served.
    """

    tokens: TokensConfig | None = attrs.field(
        default=None, metadata=setting(Record(TokensConfig), "Bearer tokens of the service's own.")
    )
    jwt: tuple[JwtConfig, ...] = attrs.field(
        default=(), metadata=setting(Listing(Record(JwtConfig)), "Issuers of JSON Web Tokens.")
    )
    proxy: ProxyConfig | None = attrs.field(
        default=None,
        metadata=setting(Record(ProxyConfig), "A proxy in front that says in headers who calls."),
    )
    anonymous: Identity | None = attrs.field(
        default=None,
        metadata=setting(
            _AnonymousKind(AnonymousConfig), "Whom everybody is who proves nothing; refused without this."
        ),
    )

    resource: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(expects="an https address such as https://tools.example.com/mcp", check=trusted_url_problem),
            "The URL that callers know the service by.",
        ),
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        issuers = [each.issuer for each in self.jwt]
        if len(set(issuers)) < len(issuers):
            yield "jwt", "one issuer stands there twice; give it several audiences instead"

    @property
    def proves(self) -> bool:
        """Whether anybody can be told from anybody."""
        return bool(self.tokens or self.jwt or self.proxy)


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
