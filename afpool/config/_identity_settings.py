"""The `[serve.identity]` table: how callers prove who they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import Any, ClassVar, Final

import attrs

from .._base.identity import FIELDS, Identity
from ._checks import address_problem, trusted_url_problem
from ._kinds import Boolean, Choice, Text
from ._kinds_of_many import AddressOrFile, FilePath, Listing, Named
from ._numbers import seconds
from ._tables import OneOf, Record, Rule, setting

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""Signatures that a token may carry: made with a private key that this service does not have."""

_HEADER: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"
_IDENTITY_FIELD: Final = rf"^(?:{'|'.join(FIELDS)})$"


def _lower_names(headers: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({field: name.lower() for field, name in headers.items()})


SPOKEN_FOR: Final = frozenset({
    "accept", "authorization", "connection", "content-length", "content-type", "host", "mcp-protocol-version",
    "mcp-session-id", "origin", "transfer-encoding", "upgrade",
})  # fmt: skip
"""Headers that every request may bring by itself: none of them is a proxy's word about who calls."""


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
        if spoken_for := sorted(SPOKEN_FOR & set(self.headers.values())):
            yield "headers", f"{spoken_for[0]} says something else; an identity needs its own"
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
