"""The `[servers.NAME]` tables: how a server is reached, whose a connection is, what is done to its tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

import attrs

from .._base.header_rules import name_problem
from .._base.identity import FIELDS
from .._base.secret import Secret
from ._arguments import Arguments
from ._checks import META_NAME, meta_problem, proxy_problem, socket_problem, version_problem
from ._kinds import Boolean, Choice, Text
from ._kinds_of_many import FilePath, FolderPhrase, Listing, Named, Phrase, UrlPhrase
from ._numbers import count
from ._rule_settings import CeilingConfig, FillConfig, RedactConfig
from ._tables import Needs, OneOf, Record, Rule, When, setting
from ._templates import header_judge, variable_judge, variable_name_problem
from ._written import Written, fingerprint

HTTP_TYPES: Final = ("http", "streamable-http", "streamableHttp", "sse")
SOCKET_TYPES: Final = ("websocket", "ws")
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_PROCESS: Final = ("args", "env", "env_file", "cwd", "inherit_env")
_ADDRESS: Final = ("headers", "tls", "proxy", "unix_socket", "subprotocols", "credential")
_PEM: Final = "the path of a PEM file"


@attrs.frozen(kw_only=True)
class TlsSettings:
    """How TLS is spoken with a server. See `afpool.TlsConfig`."""

    ca_file: str | None = attrs.field(
        default=None, metadata=setting(FilePath(there="file", expects=_PEM), "Authorities to trust.")
    )
    ca_dir: str | None = attrs.field(
        default=None,
        metadata=setting(
            FilePath(there="folder", expects="the path of a folder"), "A folder of authorities."
        ),
    )
    client_cert: str | None = attrs.field(
        default=None, metadata=setting(FilePath(there="file", expects=_PEM), "Our own certificate chain.")
    )
    client_key: str | None = attrs.field(
        default=None, metadata=setting(FilePath(there="file", expects=_PEM), "Its key, where it is apart.")
    )
    client_key_password: Secret | None = attrs.field(
        default=None, repr=False, eq=fingerprint, metadata=setting(Text(hidden=True), "Opens that key.")
    )
    hostname: str | None = attrs.field(
        default=None, metadata=setting(Text(), "The name that the certificate must be for.")
    )
    min_version: Literal["1.2", "1.3"] = attrs.field(
        default="1.2", metadata=setting(Choice("1.2", "1.3"), "The oldest version spoken.")
    )
    insecure: bool = attrs.field(
        default=False, metadata=setting(Boolean(), "Take any certificate; for tests on one's own machine.")
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Needs("client_key", ("client_cert",)),
        Needs("client_key_password", ("client_cert",)),
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot stand together: a setting and why."""
        if self.insecure and (self.ca_file or self.ca_dir or self.hostname):
            yield "insecure", "insecure verifies nothing; an authority or a name beside it is a mistake"


@attrs.frozen(kw_only=True)
class ProxySettings:
    """An HTTP proxy that a server is reached through.

    Attributes:
        url: `http://host:port`, `https://host:port`, or `env` for what the environment says.
        username: With `password`, what it wants as `Basic`.
        password: The same.
        token: What it wants as `Bearer`.
    """

    url: str = attrs.field(
        metadata=setting(
            Text(expects="http://host:port, https://host:port, or env", check=proxy_problem),
            "The proxy's address, or `env` for what the environment says.",
        )
    )
    username: str | None = attrs.field(
        default=None, metadata=setting(Text(pattern=r"^[^:\x00-\x1f\x7f]+$"), "Its user name.")
    )
    password: Secret | None = attrs.field(
        default=None, repr=False, eq=fingerprint, metadata=setting(Text(hidden=True), "Its password.")
    )
    token: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(Text(hidden=True), "A bearer token for it."),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Needs("username", ("password",)),
        Needs("password", ("username",)),
        OneOf(("token", "username"), needed=False),
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot stand together: a setting and why."""
        if self.url == "env" and (self.token or self.username):
            yield "url", "what the environment says of proxies brings its own credential"


@attrs.frozen(kw_only=True)
class CredentialUse:
    """The credential that a server wants.

    Attributes:
        service: Its name among `[credentials]`.
        scopes: The scopes that it must carry.
        mode: `machine` for one of the host's own, `user` for one of the principal's.
    """

    service: str = attrs.field(
        metadata=setting(Text(expects="the name of a credential"), "Its name among the credentials.")
    )
    scopes: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(Listing(Text(pattern=r"^\S+$", expects="a scope")), "Scopes it must carry."),
    )
    mode: Literal["machine", "user"] = attrs.field(
        default="machine", metadata=setting(Choice("machine", "user"), "Whose it is.")
    )


@attrs.frozen(kw_only=True)
class ServerConfig:
    """One server, as a file says it. Texts that may differ from identity to identity are `Written`."""

    name: str = ""
    type: str | None = attrs.field(
        default=None,
        metadata=setting(
            Choice("stdio", *HTTP_TYPES, *SOCKET_TYPES, literal=True),
            "How it is reached; seen from the rest.",
        ),
    )
    command: str | None = attrs.field(
        default=None, metadata=setting(Text(expects="a program"), "The program that is the server.")
    )
    args: tuple[Written, ...] = attrs.field(
        default=(),
        metadata=setting(Arguments(), "Its arguments. No secret belongs here."),
    )
    env: Mapping[str, Written] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(
                Phrase(variable_judge, hidden=True),
                name=r"^[^=\x00]{1,1024}$",
                names="the name of a variable",
            ),
            "Variables for it; the place for secrets.",
        ),
    )
    env_file: str | None = attrs.field(
        default=None,
        metadata=setting(
            FilePath(there="file", expects="the path of a .env file"), "More of them, in a file."
        ),
    )
    cwd: Written | None = attrs.field(
        default=None, metadata=setting(FolderPhrase(), "The folder that it starts in.")
    )
    inherit_env: bool = attrs.field(
        default=False, metadata=setting(Boolean(), "Give it the whole environment of this process.")
    )
    url: Written | None = attrs.field(
        default=None,
        metadata=setting(
            UrlPhrase(),
            "Where it listens.",
        ),
    )
    headers: Mapping[str, Written] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(
                Phrase(header_judge, hidden=True),
                name=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$",
                names="a header's name",
            ),
            "Headers of every request; never shown.",
        ),
    )
    tls: TlsSettings | None = attrs.field(
        default=None, metadata=setting(Record(TlsSettings), "How TLS is spoken with it.")
    )
    proxy: ProxySettings | None = attrs.field(
        default=None, metadata=setting(Record(ProxySettings, short="url"), "A proxy to go through.")
    )
    unix_socket: str | None = attrs.field(
        default=None,
        metadata=setting(FilePath(expects="the path of a socket"), "The socket that it listens on."),
    )
    subprotocols: tuple[str, ...] = attrs.field(
        default=("mcp",),
        metadata=setting(
            Listing(Text(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", expects="a token")),
            "What a WebSocket offers.",
        ),
    )
    protocol_version: str | None = attrs.field(
        default=None,
        metadata=setting(Text(expects="a version of MCP", check=version_problem), "Pins the version of MCP."),
    )
    credential: CredentialUse | None = attrs.field(
        default=None,
        metadata=setting(Record(CredentialUse, short="service"), "The credential that it wants."),
    )
    disabled: bool = attrs.field(default=False, metadata=setting(Boolean(), "Leave it out."))
    keyed_on: tuple[str, ...] = attrs.field(
        default=FIELDS,
        metadata=setting(
            Listing(Choice(*FIELDS)), "Identity fields that a connection belongs to; `[]` is everybody's."
        ),
    )
    share: Literal["nobody", "tenant", "everybody"] = attrs.field(
        default="nobody",
        metadata=setting(
            Choice("nobody", "tenant", "everybody"), "Who sees the same tools, by your promise."
        ),
    )
    on_list_change: Literal["refuse", "recheck"] = attrs.field(
        default="refuse", metadata=setting(Choice("refuse", "recheck"), "What a changed list ends.")
    )
    pins: Mapping[str, str] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(Text(pattern=r"^[0-9a-f]{64}$", expects="a digest of 64 hexadecimal digits")),
            "Tool to the digest of its approved definition.",
        ),
    )
    compare_without: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(Text(pattern=r"^(?:/.*)?$", expects="a JSON pointer such as /_meta", least=0)),
            "Left out when definitions are compared.",
        ),
    )
    call_id_key: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(pattern=META_NAME, expects="a name such as com.example/callId", check=meta_problem),
            "The `_meta` key of its id.",
        ),
    )
    repeat: Literal["never", "recognised"] = attrs.field(
        default="never",
        metadata=setting(Choice("never", "recognised"), "Whether it knows a repeated call id again."),
    )
    max_repeats: int = attrs.field(default=1, metadata=setting(count(), "How often at most."))
    validate_output: bool = attrs.field(
        default=False, metadata=setting(Boolean(), "Validate results against output schemas.")
    )
    fill: Mapping[str, FillConfig] = attrs.field(
        default=_NONE, metadata=setting(Named(Record(FillConfig)), "Arguments that the host fills.")
    )
    wants: Mapping[str, str] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(Text(pattern=r"\S", expects="a kind of artifact")), "Argument to the artifact it takes."
        ),
    )
    redact: RedactConfig | None = attrs.field(
        default=None, metadata=setting(Record(RedactConfig), "What records of arguments hide.")
    )
    ceilings: Mapping[str, CeilingConfig] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(Record(CeilingConfig, short="max_chars")), "Tool, or *, to the most its result may be."
        ),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        OneOf(("command", "url")),
        *(Needs(name, ("command",)) for name in _PROCESS),
        *(Needs(name, ("url",)) for name in _ADDRESS),
        When("type", "stdio", needed=("command",)),
        *(When("type", word, needed=("url",)) for word in (*HTTP_TYPES, *SOCKET_TYPES)),
        *(When("type", word, barred=("proxy", "unix_socket")) for word in SOCKET_TYPES),
        *(When("type", word, barred=("subprotocols",)) for word in HTTP_TYPES),
        OneOf(("proxy", "unix_socket"), needed=False),
    )

    @property
    def transport(self) -> Literal["stdio", "http", "websocket"]:
        """How it is reached."""
        if self.command is not None:
            return "stdio"
        return "websocket" if self._begins(("ws://", "wss://")) else "http"

    def _begins(self, with_: tuple[str, ...]) -> bool:
        first = self.url.pieces[0] if self.url is not None and self.url.pieces else ""
        return first.reveal().startswith(with_) if isinstance(first, Secret) else False

    @property
    def services(self) -> frozenset[str]:
        """The credentials that it names."""
        named = {fill.credential for fill in self.fill.values() if fill.credential is not None}
        return frozenset(named | ({self.credential.service} if self.credential else set()))

    @property
    def identity_fields(self) -> dict[str, tuple[str, ...]]:
        """Setting to the identity fields that stand in it, for those in which some do."""
        texts: dict[str, list[Written | None]] = {
            "url": [self.url],
            "cwd": [self.cwd],
            "args": [*self.args],
            "headers": [*self.headers.values()],
            "env": [*self.env.values()],
        }
        found = {
            name: tuple(dict.fromkeys(field for text in held if text is not None for field in text.fields))
            for name, held in texts.items()
        }
        return {name: fields for name, fields in found.items() if fields}

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot stand together: a setting and why."""
        yield from self._wrong_keys()
        yield from self._wrong_ways()
        for name in self.headers:
            problem = name_problem(name.lower())
            if problem is not None:
                yield f"headers.{name}", f"the header cannot be configured: its name {problem}"
        if len({name.lower() for name in self.headers}) < len(self.headers):
            yield "headers", "one header stands there twice"
        for name, text in self.env.items():
            problem = variable_name_problem(name, text)
            if problem is not None:
                yield f"env.{name}", problem
        for name in self.fill:
            if name in self.wants:
                yield f"fill.{name}", "it cannot be filled by the host and be an artifact that a model names"

    def _wrong_keys(self) -> Iterator[tuple[str, str]]:
        if len(set(self.keyed_on)) < len(self.keyed_on):
            yield "keyed_on", "one field stands there twice"
        for name, fields in self.identity_fields.items():
            missing = [field for field in fields if field not in self.keyed_on]
            if missing:
                yield name, f"it differs by {', '.join(missing)}: name that in keyed_on, too"
        if (
            self.credential is not None
            and self.credential.mode == "user"
            and "principal" not in self.keyed_on
        ):
            yield "credential", "one user's credential would serve others: name principal in keyed_on, too"
        if self.share == "tenant" and "tenant" not in self.keyed_on:
            yield "share", "tenants can be told apart only where keyed_on names tenant"
        if self.repeat == "recognised" and self.call_id_key is None:
            yield "repeat", "a server that is told no call id recognises none: name its call_id_key"

    def _wrong_ways(self) -> Iterator[tuple[str, str]]:
        socket = self.transport == "websocket"
        if self.url is not None and self.type in HTTP_TYPES and socket:
            yield "url", f'type = "{self.type}" is reached by http:// or https://'
        if self.url is not None and self.type in SOCKET_TYPES and not socket:
            yield "url", f'type = "{self.type}" is reached by ws:// or wss://'
        if socket and (self.proxy or self.unix_socket):
            yield "url", "a WebSocket is reached neither through a proxy nor at a Unix socket"
        if self.url is not None and not socket and self.subprotocols != ("mcp",):
            yield "subprotocols", "only a WebSocket offers them"
        if len(set(self.subprotocols)) < len(self.subprotocols):
            yield "subprotocols", "one stands there twice"
        if self.unix_socket is not None:
            problem = socket_problem(self.unix_socket)
            if problem is not None:
                yield "unix_socket", problem
        if self.type == "sse" and self.protocol_version is not None and self.protocol_version >= "2026":
            yield "protocol_version", "HTTP+SSE knows the versions before 2026 only"
