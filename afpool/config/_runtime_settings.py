"""The `[runtime]`, `[artifacts]` and `[credentials.NAME]` tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import ClassVar, Final, Literal

import attrs

from .._base.header_rules import name_problem
from .._base.secret import Credential, Secret, api_key, basic, bearer, header_map
from ._checks import redis_problem, trusted_url_problem
from ._kinds import Boolean, Choice, Text
from ._kinds_of_many import FilePath, Named
from ._numbers import Number, count, seconds, size
from ._tables import Needs, OneOf, Record, Rule, When, setting
from ._written import fingerprint, fingerprints

_NONE: Final[Mapping[str, Secret]] = MappingProxyType({})
_HEADER: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$"
SECRET_LEAST: Final = 16
"""Characters of a key that digests and checkpoints are made with."""


@attrs.frozen(kw_only=True)
class PoolLimits:
    """What the pool may hold and how long it waits. See `afpool.Limits`."""

    max_operations: int = attrs.field(default=16, metadata=setting(count(), "Calls at once per key."))
    max_waiting: int = attrs.field(default=256, metadata=setting(count(), "Waiters per key."))
    max_waiting_total: int = attrs.field(default=4096, metadata=setting(count(), "Waiters in all."))
    max_in_flight: int = attrs.field(
        default=256, metadata=setting(count(), "Calls at once per server and in all.")
    )
    max_share: float = attrs.field(
        default=0.5, metadata=setting(Number(above=0, most=1), "The part of them that one tenant may have.")
    )
    max_clients: int = attrs.field(default=1000, metadata=setting(count(), "Clients open at once."))
    max_connecting: int = attrs.field(default=8, metadata=setting(count(), "Openings at once per endpoint."))
    open_timeout: float = attrs.field(default=30.0, metadata=setting(seconds(), "Of an opening."))
    idle_timeout: float = attrs.field(
        default=300.0, metadata=setting(seconds(), "An idle client is closed after this long.")
    )
    max_age: float = attrs.field(
        default=3600.0, metadata=setting(seconds(), "An older client is replaced once nothing runs on it.")
    )
    close_timeout: float = attrs.field(default=5.0, metadata=setting(seconds(), "Of closing."))
    settle_timeout: float = attrs.field(
        default=30.0, metadata=setting(seconds(), "How long an answer is waited for that nobody waits for.")
    )
    cancel_grace: float = attrs.field(
        default=5.0,
        metadata=setting(seconds(), "How long a cancelled call keeps its place on a shared stream."),
    )
    ping_timeout: float = attrs.field(
        default=5.0, metadata=setting(seconds(), "How long a suspect client may be silent.")
    )
    min_list_ttl: float = attrs.field(
        default=60.0, metadata=setting(seconds(), "A list is believed at least this long.")
    )
    list_ttl: float = attrs.field(
        default=300.0, metadata=setting(seconds(), "A list without a time to live of its own.")
    )
    max_subscriptions: int = attrs.field(
        default=64, metadata=setting(count(), "Resource subscriptions per key.")
    )
    max_message: int = attrs.field(
        default=16 * 2**20, metadata=setting(size(), "The largest answer that is read.")
    )
    max_pages: int = attrs.field(default=100, metadata=setting(count(), "Pages of one list."))
    keepalive_expiry: float = attrs.field(
        default=4.0, metadata=setting(seconds(), "A kept connection idle for longer is not used.")
    )
    backoff: float = attrs.field(
        default=0.5, metadata=setting(seconds(), "First delay after a failed opening; doubles.")
    )
    backoff_max: float = attrs.field(default=30.0, metadata=setting(seconds(), "Its ceiling."))
    records: int = attrs.field(
        default=4096, metadata=setting(count(least=0), "Calls that the record keeps; 0 keeps none.")
    )
    record_bytes: int = attrs.field(
        default=16 * 2**20, metadata=setting(size(), "What they may take, as estimated.")
    )


@attrs.frozen(kw_only=True)
class ResultSettings:
    """What is done with long results. See `afpool.tools.ResultLimits`."""

    max_inline_chars: int | None = attrs.field(
        default=None, metadata=setting(count(), "A longer result is stored as an artifact.")
    )
    max_chars: int | None = attrs.field(default=None, metadata=setting(count(), "A longer result is cut."))


@attrs.frozen(kw_only=True)
class RuntimeSettings:
    """How the runtime works. See `afpool.RuntimeConfig`.

    Attributes:
        secret: Key of the digests that stand for keys, and of checkpoints; made up for the process if absent.
        on_in_doubt: What is done with a call in doubt at a server with `repeat = "recognised"`.
    """

    qualify: Literal["when-needed", "always"] = attrs.field(
        default="when-needed",
        metadata=setting(Choice("when-needed", "always"), "When tools are called server__tool."),
    )
    repeat: Literal["never", "when-nothing-ran"] = attrs.field(
        default="never",
        metadata=setting(
            Choice("never", "when-nothing-ran"), "Whether a call of which nothing ran is made again."
        ),
    )
    deadline: float = attrs.field(default=60.0, metadata=setting(seconds(), "Of a call that brings none."))
    list_patience: float = attrs.field(
        default=5.0, metadata=setting(seconds(), "How long a listing waits for a silent server.")
    )
    secret: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(
            Text(hidden=True, least=SECRET_LEAST, expects=f"a key of at least {SECRET_LEAST} characters"),
            "Key of digests and checkpoints.",
        ),
    )
    client_name: str = attrs.field(
        default="afpool", metadata=setting(Text(), "How we call ourselves to servers.")
    )
    on_in_doubt: Literal["raise", "repeat"] = attrs.field(
        default="raise",
        metadata=setting(
            Choice("raise", "repeat"), 'A call in doubt where a server says `repeat = "recognised"`.'
        ),
    )
    results: ResultSettings = attrs.field(
        factory=ResultSettings, metadata=setting(Record(ResultSettings), "Long results.")
    )
    limits: PoolLimits = attrs.field(
        factory=PoolLimits, metadata=setting(Record(PoolLimits), "What the pool may hold.")
    )


_BACKENDS: Final = ("memory", "sqlite", "redis", "none")


@attrs.frozen(kw_only=True)
class ArtifactsConfig:
    """Where large results live.

    Attributes:
        backend: `memory`, `sqlite`, `redis`, or `none`.
        path: The file of SQLite.
        url: The address of Redis.
        password: Its password, where it is not in the address.
        prefix: Of its keys.
        ttl: Seconds that an artifact lives at most.
        max_bytes_per_scope: Bytes that a scope holds at most.
        max_count_per_scope: Artifacts that a scope holds at most.
        max_bytes: Bytes in all, in memory.
    """

    backend: Literal["memory", "sqlite", "redis", "none"] = attrs.field(
        default="memory", metadata=setting(Choice(*_BACKENDS, literal=True), "Where large results live.")
    )
    path: str | None = attrs.field(default=None, metadata=setting(FilePath(), "The file of SQLite."))
    url: Secret | None = attrs.field(
        default=None,
        repr=False,
        eq=fingerprint,
        metadata=setting(
            Text(
                hidden=True, expects="redis://host:port/db, rediss://… or unix:///path", check=redis_problem
            ),
            "The address of Redis.",
        ),
    )
    password: Secret | None = attrs.field(
        default=None, repr=False, eq=fingerprint, metadata=setting(Text(hidden=True), "Its password.")
    )
    prefix: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(pattern=r"^[^{}\s\x00]+$", expects="a word without blanks and braces"), "Of its keys."
        ),
    )
    ttl: float | None = attrs.field(
        default=None, metadata=setting(seconds(least=0.001), "How long an artifact lives at most.")
    )
    max_bytes_per_scope: int | None = attrs.field(
        default=None, metadata=setting(size(), "Bytes that a scope holds at most.")
    )
    max_count_per_scope: int | None = attrs.field(
        default=None, metadata=setting(count(), "Artifacts that a scope holds at most.")
    )
    max_bytes: int | None = attrs.field(default=None, metadata=setting(size(), "Bytes in all, in memory."))

    RULES: ClassVar[tuple[Rule, ...]] = (
        When("backend", "memory", barred=("path", "url", "password", "prefix"), default=True),
        When("backend", "sqlite", needed=("path",), barred=("url", "password", "prefix", "max_bytes")),
        When("backend", "redis", needed=("url",), barred=("path", "max_bytes")),
        When(
            "backend",
            "none",
            barred=(
                "path", "url", "password", "prefix", "ttl", "max_bytes", "max_bytes_per_scope",
                "max_count_per_scope",
            ),
        ),
    )  # fmt: skip


_FORM: Final = ("header", "username")
_OAUTH: Final = (
    "client_id",
    "client_secret",
    "issuer",
    "auth_method",
    "per",
    "allow_private",
    "legacy_endpoints",
)


@attrs.frozen(kw_only=True)
class CredentialConfig:
    """One credential that servers and fills name.

    Attributes:
        name: As they name it.
        type: `static`, `environment` (read at each request), `file` (read again when it changes), `oauth`
            (client credentials).
        token: The secret itself, of `static`.
        headers: Of `static`: several headers, instead of one secret.
        variable: The variable that holds the secret.
        path: The file that holds it.
        header: The header that the secret goes out in, instead of `Authorization: Bearer`.
        username: The secret is the password of this user, as `Basic`.
        client_id: Of `oauth`: the registered client.
        client_secret: Its secret.
        issuer: The authorization server, byte for byte.
        auth_method: How the client authenticates.
        per: Who shares a token: `principal` nobody, `tenant` its principals, `host` all.
        allow_private: Discovered addresses may be private ones.
        legacy_endpoints: Take a server without metadata for its own authorization server.
    """

    name: str = ""
    type: Literal["static", "environment", "file", "oauth"] = attrs.field(
        metadata=setting(
            Choice("static", "environment", "file", "oauth", literal=True), "Where it comes from."
        )
    )
    token: Secret | None = attrs.field(
        default=None, repr=False, eq=fingerprint, metadata=setting(Text(hidden=True), "The secret itself.")
    )
    headers: Mapping[str, Secret] = attrs.field(
        default=_NONE,
        repr=False,
        eq=fingerprints,
        metadata=setting(
            Named(Text(hidden=True), name=_HEADER, names="a header's name", least=1), "Several headers."
        ),
    )
    variable: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", expects="the name of a variable"),
            "The variable that holds the secret; read at each request.",
        ),
    )
    path: str | None = attrs.field(
        default=None, metadata=setting(FilePath(), "The file that holds it; read again when it changes.")
    )
    header: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(pattern=_HEADER, expects="a header's name"),
            "The header it goes out in, instead of a bearer token.",
        ),
    )
    username: str | None = attrs.field(
        default=None,
        metadata=setting(Text(pattern=r"^[^:\x00-\x1f\x7f]+$"), "The user whose password it is."),
    )
    client_id: str | None = attrs.field(default=None, metadata=setting(Text(), "The registered client."))
    client_secret: Secret | None = attrs.field(
        default=None, repr=False, eq=fingerprint, metadata=setting(Text(hidden=True), "Its secret.")
    )
    issuer: str | None = attrs.field(
        default=None, metadata=setting(Text(check=trusted_url_problem), "The authorization server.")
    )
    auth_method: Literal["client_secret_basic", "client_secret_post"] | None = attrs.field(
        default=None,
        metadata=setting(
            Choice("client_secret_basic", "client_secret_post"), "How the client authenticates."
        ),
    )
    per: Literal["principal", "tenant", "host"] = attrs.field(
        default="principal", metadata=setting(Choice("principal", "tenant", "host"), "Who shares a token.")
    )
    allow_private: bool = attrs.field(
        default=False, metadata=setting(Boolean(), "Discovered addresses may be private ones.")
    )
    legacy_endpoints: bool = attrs.field(
        default=True,
        metadata=setting(Boolean(), "A server without metadata is its own authorization server."),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        OneOf(("token", "headers", "variable", "path", "client_id")),
        OneOf(_FORM, needed=False),
        When("type", "static", barred=("variable", "path", *_OAUTH)),
        When("type", "environment", needed=("variable",), barred=_OAUTH),
        When("type", "file", needed=("path",), barred=_OAUTH),
        When("type", "oauth", needed=("client_id", "client_secret"), barred=_FORM),
        *(Needs(name, ("token", "variable", "path")) for name in _FORM),
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        names = [*self.headers, *([self.header] if self.header is not None else [])]
        for name in names:
            problem = name_problem(name.lower())
            if problem is not None:
                where = "header" if name == self.header else f"headers.{name}"
                yield where, f"the header cannot be configured: its name {problem}"
        if len({name.lower() for name in self.headers}) < len(self.headers):
            yield "headers", "one header stands there twice"
        problem = self.unusable()
        if problem is not None:
            yield ("token" if self.token is not None else "headers"), problem

    def unusable(self) -> str | None:
        """Say why what stands there in clear makes no credential; the text holds no value."""
        try:
            if self.token is not None:
                self.made(self.token)
            elif self.headers:
                header_map(dict(self.headers))
        except (TypeError, ValueError) as error:
            return str(error)
        return None

    def made(self, secret: Secret) -> Credential:
        """Make the credential of a secret.

        Raises:
            ValueError: It cannot go into a header.
        """
        if self.header is not None:
            return api_key(secret, self.header)
        return bearer(secret) if self.username is None else basic(self.username, secret)
