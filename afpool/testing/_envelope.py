"""MCP as a server sees it: versions, error codes, the JSON on the wire and the checks of the stateless era.

Rules kept here:

* A request of the stateless era describes itself in `params._meta` and, over HTTP, once more in headers.
  Both must agree; the check that fails first decides the error: version header (-32020), envelope (-32602),
  version (-32022), method, name and parameter headers (-32020).
* A header value that plain ASCII cannot carry travels as `=?base64?...?=`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

Message: TypeAlias = dict[str, Any]
RpcId: TypeAlias = str | int | None
Era: TypeAlias = Literal["handshake", "stateless"]
Dialect: TypeAlias = Literal["python", "typescript"]

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS: Final = ("2026-07-28",)

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022
CANCELLED: Final = 0

# The HTTP status that the stateless era gives an error; everything else is 200.
STATELESS_STATUS: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


class RpcError(Exception):
    """A JSON-RPC error that answers one request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def encode(value: Any) -> bytes:
    """JSON as compact UTF-8; a lone surrogate, which UTF-8 cannot carry, becomes an escape."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def result_message(rpc_id: RpcId, result: Any) -> Message:
    """A JSON-RPC response that holds a result."""
    return {"jsonrpc": "2.0", "id": rpc_id, "result": result}


def error_message(rpc_id: RpcId, code: int, message: str, data: Any = None) -> Message:
    """A JSON-RPC response that holds an error; `data` of None is left out."""
    error: Message = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": rpc_id, "error": error}


def notification(method: str, params: Mapping[str, Any] | None = None) -> Message:
    """A JSON-RPC notification; `params` of None are left out."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = dict(params)
    return message


def meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `_meta` object of a request's parameters, or an empty one."""
    meta = params.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def decode_header(value: str) -> str | None:
    """A routing header's value in clear, or None for a sentinel that is not canonical base64 of UTF-8."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    coded = value[len("=?base64?") : -len("?=")]
    try:
        raw = base64.b64decode(coded, validate=True)
        if base64.b64encode(raw).decode() != coded:
            return None
        return raw.decode()
    except (binascii.Error, ValueError):
        return None


def check_envelope(params: Mapping[str, Any], supported: Sequence[str], accepted: Sequence[str]) -> str:
    """Check the `_meta` of a stateless request and return the version that it names.

    Args:
        params: The request's parameters.
        supported: Every version to tell the client about when its own is refused.
        accepted: The stateless versions that are served.

    Raises:
        RpcError: -32602 where a required member is missing, -32022 for a version that is not served.
    """
    meta = meta_of(params)
    version = meta.get(META_VERSION)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"Invalid params: missing _meta member {META_VERSION}")
    if not isinstance(meta.get(META_CAPABILITIES), Mapping):
        raise RpcError(INVALID_PARAMS, f"Invalid params: missing _meta member {META_CAPABILITIES}")
    if version not in accepted:
        raise unsupported_version(version, supported)
    return version


def unsupported_version(requested: Any, supported: Sequence[str]) -> RpcError:
    """The error that tells a client which versions there are."""
    data = {"supported": list(supported), "requested": requested}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def check_version_header(headers: Mapping[str, str], params: Mapping[str, Any]) -> None:
    """Refuse (-32020) a version header that is absent or differs from the envelope."""
    inside = meta_of(params).get(META_VERSION)
    if isinstance(inside, str) and headers.get("mcp-protocol-version") != inside:
        raise RpcError(HEADER_MISMATCH, "Header mismatch: mcp-protocol-version differs from _meta")


def check_routing_headers(
    headers: Mapping[str, str],
    method: str,
    params: Mapping[str, Any],
    input_schema: Mapping[str, Any] | None,
) -> None:
    """Refuse (-32020) routing headers that are absent, doubled or different from the body.

    Args:
        headers: Lower-case names; a doubled header arrives joined by a comma and so never matches.
        method: The request's JSON-RPC method.
        params: Its parameters.
        input_schema: Of the called tool, for its `x-mcp-header` parameters; None for other methods.
    """
    if headers.get("mcp-method") != method:
        raise RpcError(HEADER_MISMATCH, "Header mismatch: mcp-method differs from the body")
    routed = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(method)
    if routed is not None:
        header = headers.get("mcp-name")
        if header is None or decode_header(header) != params.get(routed):
            raise RpcError(HEADER_MISMATCH, "Header mismatch: mcp-name differs from the body")
    if input_schema is not None:
        _check_parameters(headers, input_schema, params.get("arguments"))


def _check_parameters(headers: Mapping[str, str], schema: Mapping[str, Any], arguments: Any) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, inner in properties.items():
        if not isinstance(inner, Mapping):
            continue
        value = arguments.get(name) if isinstance(arguments, Mapping) else None
        wanted = inner.get("x-mcp-header")
        if isinstance(wanted, str):
            header = headers.get(f"mcp-param-{wanted.lower()}")
            found = None if header is None else decode_header(header)
            if found != _as_header(value):
                raise RpcError(HEADER_MISMATCH, f"Header mismatch: mcp-param-{wanted} differs from the body")
        _check_parameters(headers, inner, value)


def _as_header(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
