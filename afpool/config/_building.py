"""What a runtime and its pool are opened with, made of what a file says.

Imports the runtime, which reading a file does not need. Whatever was read can be built; a test holds so.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (attrs resolves the annotations)
from typing import TYPE_CHECKING, Any, Literal

import attrs

from .._base.credential import CredentialRequirement, basic, bearer
from .._base.errors import PlanFailed
from .._base.secret import Secret
from ..client import HttpTransport, Plan, StdioTransport, WebSocketTransport
from ..pool import Server
from ..runtime import RuntimeConfig, ServerRules
from ..tools import RedactionPolicy, ResultCeiling, ResultLimits, from_credential, from_identity
from ..transports import Proxy, StdioConfig, TlsConfig
from ._templates import Misfit, header_value, url_value, variable_value, word_value

if TYPE_CHECKING:
    from .._base.identity import Identity
    from .._base.secret import Basic, Bearer
    from .._base.use import Use
    from ..client._plan import Transport
    from ..pool._server import PlanFunction, ShareFunction
    from ._config import Config
    from ._runtime_settings import RuntimeSettings
    from ._server_settings import ProxySettings, ServerConfig, TlsSettings


def pool_server(server: ServerConfig) -> Server:
    """Make what the pool is told of a server."""
    return Server(
        name=server.name,
        plan=None if server.identity_fields else plan_of(server, None),
        keyed_on=server.keyed_on,
        on_list_change=server.on_list_change,
        pins=dict(server.pins),
        compare_without=server.compare_without,
        call_id_key=server.call_id_key,
        repeat=server.repeat,
        max_repeats=server.max_repeats,
        validate_output=server.validate_output,
    )


def plan_of(server: ServerConfig, identity: Identity | None) -> Plan:
    """Make the plan of a server for an identity; `None` where it does not differ.

    Raises:
        PlanFailed: The identity lacks a field, or has a value that cannot stand in its place.
    """
    wanted = server.credential
    try:
        transport = _transport(server, identity)
    except Misfit as misfit:
        raise PlanFailed(
            f"the server {server.name!r} cannot be reached for this identity: {misfit}; nothing was sent"
        ) from None
    return Plan(
        transport=transport,
        credential=None
        if wanted is None
        else CredentialRequirement(wanted.service, wanted.scopes, wanted.mode),
        protocol_version=server.protocol_version,
    )


def _transport(server: ServerConfig, identity: Identity | None) -> Transport:
    if server.command is not None:
        return StdioTransport(
            config=StdioConfig(
                command=(server.command, *(word_value(text, identity) for text in server.args)),
                env={name: variable_value(text, identity) for name, text in server.env.items()} or None,
                cwd=None if server.cwd is None else word_value(server.cwd, identity),
                inherit_env=server.inherit_env,
            )
        )
    assert server.url is not None, "a server has a command or a url"
    url = url_value(server.url, identity)
    headers = tuple((name, header_value(text, identity)) for name, text in server.headers.items())
    tls = _tls(server.tls)
    if server.transport == "websocket":
        return WebSocketTransport(url=url, headers=headers, subprotocols=server.subprotocols, tls=tls)
    streaming: Any = {"sse": "sse", "streamable-http": "streamable", "streamableHttp": "streamable"}.get(
        server.type or "", "auto"
    )
    return HttpTransport(
        url=url,
        headers=headers,
        tls=tls,
        proxy=_proxy(server.proxy),
        uds=server.unix_socket,
        streaming=streaming,
    )


def _tls(tls: TlsSettings | None) -> TlsConfig:
    if tls is None:
        return TlsConfig()
    return TlsConfig(
        ca_file=tls.ca_file,
        ca_dir=tls.ca_dir,
        client_cert=tls.client_cert,
        client_key=tls.client_key,
        client_key_password=tls.client_key_password,
        hostname=tls.hostname,
        min_version=tls.min_version,
        insecure=tls.insecure,
    )


def _proxy(proxy: ProxySettings | None) -> Proxy | Any:
    if proxy is None or proxy.url == "env":
        return None if proxy is None else "env"
    credential: Basic | Bearer | None = None
    if proxy.token is not None:
        credential = bearer(proxy.token)
    elif proxy.username is not None and proxy.password is not None:
        credential = basic(proxy.username, proxy.password)
    return Proxy(url=proxy.url, credential=credential)


def server_rules(server: ServerConfig) -> ServerRules:
    """Make what is done to the tools of a server."""
    redact = server.redact
    return ServerRules(
        fill={
            name: from_identity(fill.identity)
            if fill.identity is not None
            else from_credential(fill.credential, scopes=fill.scopes, mode=fill.mode)
            for name, fill in server.fill.items()
        },
        wants=server.wants,
        redact=None
        if redact is None
        else RedactionPolicy(redact.keys, redact.patterns, redact.fields, deep=redact.deep),
        ceilings={
            name: ResultCeiling(ceiling.max_chars, ceiling.narrow_by)
            for name, ceiling in server.ceilings.items()
        },
    )


@attrs.frozen(repr=False)
class _Plans:
    """Gives the plans of servers that differ by identity. Two that give the same are equal."""

    servers: Mapping[str, ServerConfig]

    def __call__(self, name: str, identity: Identity) -> Plan:
        server = self.servers.get(name)
        if server is None:
            raise PlanFailed(f"the configuration has no plan for the server {name!r}; nothing was sent")
        return plan_of(server, identity)


def plan_function(config: Config) -> PlanFunction | None:
    """Make the function that gives the plans of servers that differ by identity; `None` where none does."""
    differing = {server.name: server for server in config.enabled if server.identity_fields}
    return _Plans(differing) if differing else None


@attrs.frozen(repr=False)
class _Shares:
    """Says who shares a list. Two that say the same are equal, and no list is asked for anew."""

    modes: Mapping[str, str]

    def __call__(self, name: str, identity: Identity) -> str | None:
        mode = self.modes.get(name)
        if mode == "everybody":
            return "everybody"
        return f"tenant {identity.tenant}" if mode == "tenant" and identity.tenant is not None else None


def share_function(config: Config) -> ShareFunction | None:
    """Make the function that says who shares a list; `None` where nobody does."""
    modes: dict[str, str] = {
        server.name: server.share for server in config.enabled if server.share != "nobody"
    }
    return _Shares(modes) if modes else None


def _repeat(_: Use) -> Literal["repeat"]:
    # one function for all configurations: another one would be another callback of the pool
    return "repeat"


def _pool_arguments(runtime: RuntimeSettings) -> dict[str, Any]:
    arguments = attrs.asdict(runtime.limits)
    arguments["deadline"] = runtime.deadline
    arguments["client_name"] = runtime.client_name
    if runtime.on_in_doubt == "repeat":
        arguments["on_in_doubt"] = _repeat
    return arguments


def runtime_config(config: Config, hooks: dict[str, Any]) -> RuntimeConfig:
    """Make what a runtime is opened with. See `Config.runtime_config`."""
    runtime = config.runtime
    secret = runtime.secret
    said: dict[str, Any] = {
        "servers": config.servers_for_pool(),
        "rules": config.rules(),
        "plan": plan_function(config),
        "share": share_function(config),
        "secret": secret.reveal().encode() if isinstance(secret, Secret) else None,
        "results": ResultLimits(
            max_inline_chars=runtime.results.max_inline_chars, max_chars=runtime.results.max_chars
        ),
        "qualify": runtime.qualify,
        "repeat": runtime.repeat,
        "deadline": runtime.deadline,
        "list_patience": runtime.list_patience,
        "console": config.console.settings() or False,
        "record": config.record.settings(),
    }
    pool = _pool_arguments(runtime) | dict(hooks.pop("pool", {}))
    return RuntimeConfig(**(said | hooks), pool=pool)
