"""JSON-RPC as a client speaks it to the service: read strictly, written by splicing.

The id of a request is given back byte for byte as it came. A message that is none is refused before anything
is looked up, and no refusal repeats what was sent.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, final

import attrs
import msgspec

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REFUSED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002
REQUEST_CANCELLED: Final = -32800

_NOTHING: Final = msgspec.Raw(b"")
_MAX_METHOD: Final = 128


class RpcError(Exception):
    """A request that is answered with an error.

    Attributes:
        code: Of JSON-RPC.
        message: Our own words.
        data: JSON, or `None`.
        status: Of HTTP, where it is not the usual one for the code.
        retry_after: Seconds, where asking again later may help.
    """

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.retry_after = retry_after


class _Envelope(msgspec.Struct):
    jsonrpc: str
    id: msgspec.Raw = _NOTHING
    method: str | None = None
    params: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


@final
@attrs.frozen
class Message:
    """One message of a client.

    Attributes:
        method: Of a request or a notification; `None` for a response.
        id_raw: The id as it was written; empty for a notification.
        id: The id.
        params: Decoded; an empty object where there are none.
        result: Of a response: the result as it was written, empty where it is an error.
    """

    method: str | None
    id_raw: bytes
    id: str | int | None
    params: dict[str, Any] = attrs.field(repr=False)
    result: bytes = attrs.field(default=b"", repr=False)

    @property
    def is_request(self) -> bool:
        """Whether it wants an answer."""
        return self.method is not None and self.id is not None


_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_id = msgspec.json.Decoder(str | int).decode
_read_any = msgspec.json.Decoder().decode
_write = msgspec.json.encode


def read_message(body: bytes | str) -> Message:
    """Read one message.

    Raises:
        RpcError: It is no JSON, or no single JSON-RPC 2.0 message.
    """
    try:
        envelope = _read_envelope(body)
    except msgspec.ValidationError:
        _no_message()
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise RpcError(PARSE_ERROR, "the body is no JSON that can be read; nothing was run") from None
    if envelope.jsonrpc != "2.0":
        _no_message()
    id_raw = bytes(envelope.id)
    key: str | int | None = None
    if id_raw:
        try:
            key = _read_id(id_raw)
        except (msgspec.DecodeError, UnicodeError):
            _no_message()
    params: Any = {}
    if envelope.params:
        try:
            params = _read_any(envelope.params)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            raise RpcError(PARSE_ERROR, "the body is no JSON that can be read; nothing was run") from None
        if params is None:
            params = {}
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object; nothing was run")
    if envelope.method is None:
        if key is None or bool(envelope.result) == bool(envelope.error):
            _no_message()
        return Message(None, id_raw, key, params, bytes(envelope.result))
    if len(envelope.method) > _MAX_METHOD:
        _no_message()
    return Message(envelope.method, id_raw, key, params)


def _no_message() -> NoReturn:
    raise RpcError(INVALID_REQUEST, "the body is no single JSON-RPC message; nothing was run") from None


def result_message(id_raw: bytes, result: bytes) -> bytes:
    """Write a response.

    Args:
        id_raw: The id as the request had it.
        result: The result, raw JSON.
    """
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_raw, result)


def error_message(id_raw: bytes, error: RpcError) -> bytes:
    """Write an error response; without an id where the request had none that could be read."""
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        told["data"] = error.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_raw or b"null", _write(told))


def notification(method: str, params: Any = None) -> bytes:
    """Write a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return _write(message)


def request_message(key: str, method: str, params: Any) -> bytes:
    """Write a request of the service's own."""
    return _write({"jsonrpc": "2.0", "id": key, "method": method, "params": params})
