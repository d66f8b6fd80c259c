"""What the app decides for one identity at one server: how to get there, and with which credential."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import attrs

from .._base.canonical import canonical_json
from .._base.credential import CredentialRequirement
from ..protocol import era_of
from ..transports import StdioConfig, TlsConfig, Wire, origin_of


def _headers(value: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    pairs = tuple((str(name).lower(), text) for name, text in dict(value).items())
    for name, text in pairs:
        if not isinstance(text, str):
            raise TypeError(f"the value of the header {name!r} is {type(text).__name__}, not a string")
        if any(ord(char) < 0x20 or ord(char) == 0x7F for char in name + text):
            raise ValueError(f"the header {name!r} holds a control character")
    return pairs


@attrs.frozen(kw_only=True)
class HttpTransport:
    """Streamable HTTP.

    Attributes:
        url: The server's MCP endpoint.
        headers: Static headers; values may be secrets and are never shown.
        tls: How the server is verified.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_headers, repr=False)
    tls: TlsConfig = attrs.field(factory=TlsConfig)

    def __attrs_post_init__(self) -> None:
        origin_of(self.url)

    @property
    def endpoint(self) -> str:
        """Transport and origin."""
        origin, target = origin_of(self.url)
        return f"{origin.scheme}://{origin.authority.decode()}{target.decode()}"

    def document(self) -> dict[str, Any]:
        """Everything that decides whom and how we talk to."""
        return {
            "transport": "http",
            "url": self.url,
            "headers": [list(pair) for pair in self.headers],
            "tls": _plain(self.tls),
        }


@attrs.frozen(kw_only=True)
class StdioTransport:
    """A child process that speaks MCP on its stdin and stdout.

    Attributes:
        config: Command, environment and folder. A secret belongs into `env`, never on the command line.
    """

    config: StdioConfig

    @classmethod
    def of(
        cls, *command: str, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> StdioTransport:
        """Make one from a command and its arguments."""
        return cls(config=StdioConfig(command=command, env=env, cwd=cwd))

    @property
    def endpoint(self) -> str:
        """Transport and command."""
        return "stdio:" + "\x00".join(self.config.command)

    def document(self) -> dict[str, Any]:
        """Everything that decides whom and how we talk to."""
        return {"transport": "stdio", **_plain(self.config)}


@attrs.frozen(kw_only=True)
class MemoryTransport:
    """A server in this process, reached through a wire without a kernel.

    Attributes:
        name: Tells one such server from another.
        connect: Gives the client's end of a new pair; called once per incarnation.
    """

    name: str
    connect: Callable[[], Awaitable[Wire]] = attrs.field(eq=False, repr=False)

    @property
    def endpoint(self) -> str:
        """Transport and name."""
        return f"memory:{self.name}"

    def document(self) -> dict[str, Any]:
        """Everything that decides whom and how we talk to."""
        return {"transport": "memory", "name": self.name}


Transport: TypeAlias = HttpTransport | StdioTransport | MemoryTransport


def _plain(config: Any) -> dict[str, Any]:
    document = {}
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, bytes):
            value = value.hex()
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Mapping):
            value = dict(value)
        elif value is not None and not isinstance(value, str | int | float | bool):
            value = str(value)
        document[field.name] = value
    return document


def _known_version(_: object, __: object, value: str | None) -> None:
    if value is not None and era_of(value) is None:
        raise ValueError(f"protocol version {value!r} is not one that is spoken here")


@attrs.frozen(kw_only=True)
class Plan:
    """Transport configuration and credential requirement for one projection.

    Attributes:
        transport: How to get there.
        credential: What has to be vended for each HTTP request, or `None`.
        protocol_version: Pins the protocol version; found out and remembered per endpoint when absent.
    """

    transport: Transport = attrs.field(
        validator=attrs.validators.instance_of((HttpTransport, StdioTransport, MemoryTransport))
    )
    credential: CredentialRequirement | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(CredentialRequirement))
    )
    protocol_version: str | None = attrs.field(default=None, validator=_known_version)

    @property
    def endpoint(self) -> str:
        """What keys share under this plan: transport and origin or command."""
        return self.transport.endpoint

    def context(self, secret: bytes) -> str:
        """`pc:` and an HMAC over all that decides whom and how we talk to; no vended credential is in it."""
        credential = self.credential
        document = {
            "transport": self.transport.document(),
            "credential": None
            if credential is None
            else {"service": credential.service, "scopes": list(credential.scopes), "mode": credential.mode},
            "version": self.protocol_version,
        }
        return "pc:" + hmac.new(secret, canonical_json(document), hashlib.sha256).hexdigest()[:32]
