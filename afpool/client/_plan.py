"""What the app decides for one identity at one server: how to get there, and with which credential."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import attrs
import trio

from .._base.canonical import canonical_json
from .._base.credential import CredentialRequirement
from .._base.header_rules import name_problem, value_problem
from ..protocol import NOTHING_DECLARED, Capabilities, Era, era_of
from ..transports import Origin, Proxy, StdioConfig, TlsConfig, Wire, origin_of, proxy_from_env
from ._server_requests import ServerRequests

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UDS_MAX: Final = 107  # what `sockaddr_un` holds on Linux


def _headers(value: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    pairs = tuple((str(name).lower(), text) for name, text in dict(value).items())
    for name, text in pairs:
        problem = value_problem(text)
        if problem is not None:
            kind = ValueError if isinstance(text, str) else TypeError
            raise kind(f"the value of the header {name!r} {problem}")
        problem = name_problem(name)
        if problem is not None:
            raise ValueError(f"the header {name!r} cannot be configured: its name {problem}")
    return pairs


# Stands for the environment until the URL is known.
_ENVIRONMENT: Final[Any] = object()


def _proxy(value: Proxy | str | None) -> Proxy | None:
    if value is None or isinstance(value, Proxy):
        return value
    if not isinstance(value, str):
        raise TypeError(f"a proxy is a URL, 'env' or a Proxy, not {type(value).__name__}")
    return _ENVIRONMENT if value == "env" else Proxy(url=value)


_factories: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_factory_numbers = itertools.count(1)


def _factory_name(factory: Callable[[], Any]) -> str:
    """What tells one factory from another: its name where that is enough, otherwise a number of its own."""
    name = f"{getattr(factory, '__module__', '?')}.{getattr(factory, '__qualname__', type(factory).__name__)}"
    if isinstance(factory, FunctionType | type) and "<" not in name:
        return name
    number = _factories.get(factory)
    if number is None:
        number = _factories[factory] = next(_factory_numbers)
    return f"{name}#{number}"


def _shown(url: str) -> str:
    """An address as `repr` shows it: what stands in its query may open something."""
    before, mark, _ = url.partition("?")
    return repr(before + mark + ("…" if mark else ""))


@attrs.frozen(kw_only=True)
class HttpTransport:
    """Streamable HTTP, or the HTTP+SSE transport that it replaced.

    Attributes:
        url: The server's MCP endpoint; over HTTP+SSE the address of its event stream.
        headers: Static headers; values may be secrets and are never shown. What the protocol or the
            connection decides (`host`, `content-length`, `mcp-session-id` and their like) is refused.
        tls: How the server is verified, and who we are.
        proxy: An HTTP proxy to go through by CONNECT: a `Proxy`, the URL of one that wants no credential, or
            `"env"` for what the environment says, read when this object is made. Direct when absent,
            whatever the environment says.
        uds: Path of a Unix socket that the server listens on; the URL then says path and `Host` only.
        httpx_transport: Makes an `httpx.AsyncBaseTransport` to send requests with instead of afpool's own
            layer, one per client, closed with it. Its gate is weaker: see `docs/transports.md`. Use one
            function for one way: another factory is another plan.
        streaming: `streamable` or `sse` (2024-11-05) where it is known. `auto` tries Streamable HTTP, and
            where a server refuses both eras of it with 400, 404 or 405, HTTP+SSE; which one it was is
            remembered for all keys of the endpoint.

    Raises:
        ValueError: Something that cannot be, or two ways at once. The text quotes no URL and no value.
        TypeError: A header value that is no string, or a `proxy` that is none.
    """

    url: str = attrs.field(repr=_shown)
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_headers, repr=False)
    tls: TlsConfig = attrs.field(factory=TlsConfig)
    proxy: Proxy | None = attrs.field(default=None, converter=_proxy)
    uds: str | None = None
    httpx_transport: Callable[[], Any] | None = attrs.field(default=None, repr=False)
    streaming: Literal["auto", "streamable", "sse"] = attrs.field(
        default="auto", validator=attrs.validators.in_(("auto", "streamable", "sse"))
    )
    # The URL taken apart: each opening looks at it several times, which would be a tenth of its cost.
    _place: tuple[Origin, bytes] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_place", origin_of(self.url))
        origin = self.origin
        if self.proxy is _ENVIRONMENT:
            object.__setattr__(self, "proxy", proxy_from_env(origin, os.environ))
        if self.uds is not None:
            path = os.fsencode(self.uds)
            if not path or b"\x00" in path or len(path) > _UDS_MAX:
                raise ValueError(f"the path of a Unix socket has 1 to {_UDS_MAX} bytes, none of them zero")
        if self.uds is not None and self.proxy is not None:
            raise ValueError("a Unix socket is not reached through a proxy")
        if self.httpx_transport is not None and (
            self.uds is not None or self.proxy is not None or self.tls != TlsConfig()
        ):
            raise ValueError("an httpx transport brings its own proxy, socket and TLS: configure them there")

    @property
    def origin(self) -> Origin:
        """Whom to connect to."""
        return self._place[0]

    @property
    def target(self) -> bytes:
        """Path and query; the query may hold a secret."""
        return self._place[1]

    @property
    def endpoint(self) -> str:
        """Transport and origin, and the way to it where it is no direct one."""
        origin, target = self._place
        name = f"{origin.scheme}://{origin.authority.decode()}{target.decode()}"
        if self.proxy is not None:
            name += f" through {self.proxy.url}"
        if self.uds is not None:
            name += f" at {self.uds}"
        if self.httpx_transport is not None:
            name += f" by {_factory_name(self.httpx_transport)}"
        return name

    @property
    def resource(self) -> str:
        """The server's canonical URI: origin and path, without the query, which may hold a secret."""
        origin, target = self._place
        path = target.partition(b"?")[0]
        return f"{origin.scheme}://{origin.authority.decode()}{path.decode()}"

    def document(self) -> dict[str, Any]:
        """Everything that decides whom and how we talk to."""
        return {
            "transport": "http",
            "url": self.url,
            "headers": [list(pair) for pair in self.headers],
            "tls": self.tls.document(),
            "proxy": None if self.proxy is None else self.proxy.document(),
            "uds": self.uds,
            "httpx": None if self.httpx_transport is None else _factory_name(self.httpx_transport),
            "streaming": self.streaming,
        }


def _protocols(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError("subprotocols are several strings, not one")
    names = tuple(value)
    if not all(isinstance(name, str) and _TOKEN.fullmatch(name) for name in names):
        # Not quoted: some servers take a token as one.
        raise ValueError("a subprotocol is a token: letters, digits and a few signs")
    if len(set(names)) < len(names):
        raise ValueError("a subprotocol is offered twice")
    return names


@attrs.frozen(kw_only=True)
class WebSocketTransport:
    """WebSocket, one JSON-RPC message per text message. Custom: no part of the MCP specification.

    Static headers and the plan's credential go out once, with the upgrade request. So a new credential means
    a new connection; a server that wants one says so by answering an upgrade with 401.

    Attributes:
        url: The server's address, `ws://` or `wss://`.
        headers: Static headers of the upgrade request; values may be secrets and are never shown.
        subprotocols: Offered in this order; the server may choose one of them, or none. Never shown, since
            some servers take a token as one.
        tls: How the server is verified.
    """

    url: str = attrs.field(repr=_shown)
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_headers, repr=False)
    subprotocols: tuple[str, ...] = attrs.field(default=("mcp",), converter=_protocols, repr=False)
    tls: TlsConfig = attrs.field(factory=TlsConfig)

    def __attrs_post_init__(self) -> None:
        origin_of(self.url, schemes=("ws", "wss"))
        for name, _ in self.headers:
            if name.startswith("sec-websocket-"):
                raise ValueError(f"the header {name!r} belongs to the upgrade itself and cannot be set")

    @property
    def endpoint(self) -> str:
        """Transport and origin."""
        origin, target = origin_of(self.url, schemes=("ws", "wss"))
        return f"{origin.scheme}://{origin.authority.decode()}{target.decode()}"

    @property
    def resource(self) -> str:
        """The server's canonical URI, as the HTTP that its metadata is asked by; without the query."""
        return "http" + self.endpoint.removeprefix("ws").partition("?")[0]

    def document(self) -> dict[str, Any]:
        """Everything that decides whom and how we talk to."""
        return {
            "transport": "websocket",
            "url": self.url,
            "headers": [list(pair) for pair in self.headers],
            "subprotocols": list(self.subprotocols),
            "tls": self.tls.document(),
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
        connect: Gives the client's end of a new pair; called once per incarnation. Where the wire has a
            coroutine function `background`, the pool runs it in its background.
    """

    name: str
    connect: Callable[[], Awaitable[Wire]] = attrs.field(eq=False, repr=False)

    @classmethod
    def of_server(
        cls,
        server: object,
        *,
        name: str | None = None,
        nursery: trio.Nursery | None = None,
        initialization_options: object = None,
    ) -> MemoryTransport:
        """Reach a server object of the official SDK, line 1 or 2, that lives in this process.

        Each incarnation runs the server once, on streams of its own, by `run(read, write, options)`; so the
        server's lifespan is entered once per incarnation.

        Args:
            server: `FastMCP`, `MCPServer`, or a low-level `Server`.
            name: Tells the server from others; by default the server's own name and a number that no other
                server object of this process has.
            nursery: Where the server runs; it must outlive the pool. By default the pool's background.
            initialization_options: What the server says of itself; by default what it says by itself, which
                in line 1 is that it announces no changes of its list.

        Raises:
            TypeError: It is no server of the SDK.

        Where the SDK is missing or older than 1.8, openings fail.
        """
        from ..transports._sdk import SdkWire, lowlevel_server, server_name

        inner = lowlevel_server(server)

        async def connect() -> Wire:
            wire = SdkWire(inner, initialization_options)
            if nursery is None:
                wire.background = wire.serve
            else:
                nursery.start_soon(wire.serve)
            await trio.lowlevel.checkpoint()
            return wire

        return cls(name=server_name(server) if name is None else name, connect=connect)

    @property
    def endpoint(self) -> str:
        """Transport and name."""
        return f"memory:{self.name}"

    def document(self) -> dict[str, Any]:
        """Everything that decides whom and how we talk to."""
        return {"transport": "memory", "name": self.name}


Transport: TypeAlias = HttpTransport | WebSocketTransport | StdioTransport | MemoryTransport


def _plain(config: StdioConfig) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Mapping):
            value = dict(value)
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
        credential: What has to be vended for each HTTP request, or for the upgrade to WebSocket, or `None`.
        protocol_version: Pins the protocol version; found out and remembered per endpoint when absent.
        requests: What is answered when the server asks; without it nothing is declared and all is refused.
            What it declares belongs to the context, its callables do not: a client keeps those that it was
            opened with.
    """

    transport: Transport = attrs.field(
        validator=attrs.validators.instance_of(
            (HttpTransport, WebSocketTransport, StdioTransport, MemoryTransport)
        )
    )
    credential: CredentialRequirement | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(CredentialRequirement))
    )
    protocol_version: str | None = attrs.field(default=None, validator=_known_version)

    requests: ServerRequests | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(ServerRequests))
    )

    def __attrs_post_init__(self) -> None:
        transport, version = self.transport, self.protocol_version
        over_sse = isinstance(transport, HttpTransport) and transport.streaming == "sse"
        if over_sse and version is not None and era_of(version) is Era.STATELESS:
            raise ValueError(f"HTTP+SSE knows the handshake era only, not protocol version {version!r}")

    @property
    def capabilities(self) -> Capabilities:
        """What the client declares that it can be asked."""
        return NOTHING_DECLARED if self.requests is None else self.requests.capabilities

    @property
    def endpoint(self) -> str:
        """What keys share under this plan: transport and origin or command."""
        return self.transport.endpoint

    def context(self, secret: bytes) -> str:
        """`pc:` and an HMAC over all that decides whom and how we talk to; no vended credential is in it."""
        credential = self.credential
        document: dict[str, Any] = {
            "transport": self.transport.document(),
            "credential": None
            if credential is None
            else {"service": credential.service, "scopes": list(credential.scopes), "mode": credential.mode},
            "version": self.protocol_version,
        }
        if self.capabilities != NOTHING_DECLARED:
            document["requests"] = self.capabilities.document()
        return "pc:" + hmac.new(secret, canonical_json(document), hashlib.sha256).hexdigest()[:32]
