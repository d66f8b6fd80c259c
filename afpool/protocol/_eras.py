"""The protocol versions as data, and the parameters that a client sends in each era.

A *handshake* server keeps a session that `initialize` opened; a *stateless* one is told everything with
every request, in `params._meta`. What can be known when a client opens is encoded then: builders here only
join bytes.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

import attrs

from ._json import encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST_STATELESS: Final = STATELESS_VERSIONS[-1]

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"


class Era(enum.Enum):
    """How a server is opened and what it remembers between two requests."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


def era_of(version: str) -> Era | None:
    """Say which era a protocol version belongs to; `None` for a version that is not spoken here."""
    if version in STATELESS_VERSIONS:
        return Era.STATELESS
    if version in HANDSHAKE_VERSIONS:
        return Era.HANDSHAKE
    return None


def resumes(version: str) -> bool:
    """Say whether an event stream of this version may be taken up again (`Last-Event-ID`).

    So it is from 2025-03-26 to the end of the handshake era; the stateless era has no event ids.
    """
    return version in HANDSHAKE_VERSIONS and version >= "2025-03-26"


@attrs.frozen
class Negotiated:
    """What an opening found out.

    Attributes:
        era: The era that the server is spoken to in.
        version: The protocol version, one of those above.
        server_name: As the server calls itself, for display only.
        server_version: The same.
        capabilities: The server's own, raw; empty where it was not asked.
        instructions: The server's text for the model, untrusted.
        session_id: Only from a successful `initialize` over HTTP. A secret: never shown.
        ttl_ms: For how long the server lets this be kept, milliseconds; 0 where it says nothing.
        cache_scope: `public` or `private`.
        asked: False where a pin or a recognised error stood in for the server's own description.
        probe_hostile: The server died or stayed silent on a probe: send it none again.
    """

    era: Era
    version: str
    server_name: str | None = None
    server_version: str | None = None
    capabilities: dict[str, Any] = attrs.field(factory=dict)
    instructions: str | None = attrs.field(default=None, repr=False)
    session_id: str | None = attrs.field(default=None, repr=False)
    ttl_ms: int = 0
    cache_scope: str = "private"
    asked: bool = True
    probe_hostile: bool = False

    def offers(self, *path: str) -> bool:
        """Whether the capabilities hold a member; an object counts, `false` does not.

        A server that was not asked, such as one of a pinned version, may offer anything.
        """
        node: object = self.capabilities
        for name in path:
            node = node.get(name) if isinstance(node, dict) else None
        return not self.asked or isinstance(node, dict) or node is True


def initialize_params(
    client_name: str,
    client_version: str,
    capabilities: bytes = b"{}",
    *,
    version: str = LATEST_HANDSHAKE,
) -> bytes:
    """Build the parameters of `initialize`; `capabilities` is a raw JSON object."""
    return b'{"protocolVersion":%b,"capabilities":%b,"clientInfo":%b}' % (
        encode_json(version),
        capabilities,
        _client_info(client_name, client_version),
    )


def stateless_meta(
    version: str,
    client_name: str,
    client_version: str,
    capabilities: bytes = b"{}",
) -> bytes:
    """Build the `_meta` members that every stateless request carries, once per client.

    Returns:
        Members without the braces around them, for the `meta` of the builders below.
    """
    return b"%b:%b,%b:%b,%b:%b" % (
        encode_json(VERSION_KEY),
        encode_json(version),
        encode_json(CAPABILITIES_KEY),
        capabilities,
        encode_json(CLIENT_INFO_KEY),
        _client_info(client_name, client_version),
    )


def _client_info(name: str, version: str) -> bytes:
    return b'{"name":%b,"version":%b}' % (encode_json(name), encode_json(version))


def meta_member(key: str, value: str | int) -> bytes:
    """Build one `_meta` member, such as a call id under a configured key or a `traceparent`."""
    return b"%b:%b" % (encode_json(key), encode_json(value))


def trace_members(parent: str, state: str | None) -> bytes:
    """Build the `_meta` members that tell a server of the span that a request belongs to (W3C, SEP-414)."""
    told = meta_member("traceparent", parent)
    return told if state is None else join_meta(told, meta_member("tracestate", state))


def join_meta(*members: bytes) -> bytes:
    """Join members of `_meta`, leaving out empty ones."""
    return b",".join(filter(None, members))


def meta_params(meta: bytes = b"") -> bytes | None:
    """Build parameters that hold nothing but `_meta` (`server/discover`, `ping`); `None` without any."""
    return b'{"_meta":{%b}}' % meta if meta else None


def list_params(cursor: str | None = None, meta: bytes = b"") -> bytes | None:
    """Build the parameters of `tools/list`. The empty string is a cursor; `None` asks for the first page."""
    if cursor is None:
        return meta_params(meta)
    if meta:
        return b'{"cursor":%b,"_meta":{%b}}' % (encode_json(cursor), meta)
    return b'{"cursor":%b}' % encode_json(cursor)


def call_params(
    name: str,
    arguments: bytes | None,
    *,
    meta: bytes = b"",
    progress_token: int | str | None = None,
    call_id_key: str | None = None,
    call_id: str | None = None,
    input_responses: bytes | None = None,
    request_state: bytes | None = None,
) -> bytes:
    """Build the parameters of `tools/call`.

    Args:
        name: The tool, as listed.
        arguments: A raw JSON object, or `None` to leave the member out.
        meta: Members of `_meta` without braces: `stateless_meta`, and others joined by `join_meta`.
        progress_token: Unique among the calls in flight, or `None` for no progress.
        call_id_key: Under which `_meta` key the call id goes out; `None` sends it nowhere.
        call_id: The call's id, the same on every attempt.
        input_responses: Answers to an `input_required` result, a raw JSON object.
        request_state: The state that came with it, raw and echoed byte for byte; `None` if none came.

    Raises:
        NotJson: A text holds a lone surrogate.
    """
    if progress_token is not None:
        token = b"%d" % progress_token if type(progress_token) is int else encode_json(progress_token)
        meta = b'%b,"progressToken":%b' % (meta, token) if meta else b'"progressToken":%b' % token
    if call_id_key is not None and call_id is not None:
        meta = join_meta(meta, meta_member(call_id_key, call_id))
    parts = [b'{"name":', encode_json(name)]
    if arguments is not None:
        parts += (b',"arguments":', arguments)
    if input_responses is not None:
        parts += (b',"inputResponses":', input_responses)
    if request_state is not None:
        parts += (b',"requestState":', request_state)
    if meta:
        parts += (b',"_meta":{', meta, b"}")
    parts.append(b"}")
    return b"".join(parts)


def cancelled_params(request_id: int, reason: str | None = None, meta: bytes = b"") -> bytes:
    """Build the parameters of `notifications/cancelled`. Never for `initialize`; not over stateless HTTP."""
    parts = [b'{"requestId":%d' % request_id]
    if reason is not None:
        parts += (b',"reason":', encode_json(reason))
    if meta:
        parts += (b',"_meta":{', meta, b"}")
    parts.append(b"}")
    return b"".join(parts)


def listen_params(
    meta: bytes,
    *,
    tools: bool = True,
    prompts: bool = False,
    resources: bool = False,
    resource_uris: Sequence[str] = (),
) -> bytes:
    """Build the parameters of `subscriptions/listen` (stateless era): which changes to be told of."""
    wanted: dict[str, Any] = {}
    if tools:
        wanted["toolsListChanged"] = True
    if prompts:
        wanted["promptsListChanged"] = True
    if resources:
        wanted["resourcesListChanged"] = True
    if resource_uris:
        wanted["resourceSubscriptions"] = list(resource_uris)
    return b'{"notifications":%b,"_meta":{%b}}' % (encode_json(wanted), meta)
