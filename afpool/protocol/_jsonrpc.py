"""The JSON-RPC envelope, read lazily and written by joining bytes.

A `Message` is what stands between the braces: `params`, `result` and `error` stay bytes until somebody
asks. Peers send wrong ids, ids as text, `error: null` beside a result, errors that are strings: what can
be understood is understood, and what cannot is a `MalformedMessage` whose reason quotes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, Raw

from ._json import (
    MalformedMessage,
    RawJson,
    checked_text,
    decode_json,
    decode_members,
    encode_json,
    split_array,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042

_MAX_ERROR_TEXT = 4096
_MAX_ID = 512
MAX_BATCH = 1024
"""The most messages of one batch."""


class ErrorBody(NamedTuple):
    """A JSON-RPC error as far as it could be read.

    `code` is `None` where the peer sent none that is an integer; `message` is the peer's own words, cut at
    4096 characters, to be shown as such and never as ours; `data` is raw JSON.
    """

    code: int | None
    message: str
    data: bytes | None

    def __repr__(self) -> str:
        # what the peer says may quote what it was sent; this is in frames that a traceback shows
        size = 0 if self.data is None else len(self.data)
        return f"ErrorBody(code={self.code}, message of {len(self.message)} characters, data of {size} bytes)"


class Message(msgspec.Struct, frozen=True, gc=False):
    """One JSON-RPC message. Members that are absent are `UNSET` (id), `None` (method) or empty (raw ones).

    The raw members are views that keep the whole text alive; `bytes(raw)` makes a copy of one.
    """

    id: object = UNSET
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()

    @property
    def is_response(self) -> bool:
        """A result or an error, and no method."""
        return self.method is None and bool(self.result or self.error)

    @property
    def is_request(self) -> bool:
        """A method and an id to answer to. `id: null` cannot be answered, so it makes a notification.

        Nor can an id that is neither text nor number, or of more than 512 characters: it would be sent back.
        """
        return self.method is not None and _can_answer(self.id)

    @property
    def is_notification(self) -> bool:
        """A method that wants no answer."""
        return self.method is not None and (self.id is UNSET or self.id is None)

    @property
    def is_error(self) -> bool:
        """An error response. `error: null` beside a result is none."""
        return self.method is None and bool(self.error) and not (self.result and bytes(self.error) == b"null")

    @property
    def response_id(self) -> int | None:
        """The id as the integer that we sent, where it is one: `7`, `7.0` and `"7"` are the same id."""
        value = self.id
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer():
            return int(value)
        if type(value) is str and len(value) < 20 and value.isascii() and value.isdigit():
            return int(value)
        return None


def _can_answer(value: object) -> bool:
    if type(value) is str:
        return len(value) <= _MAX_ID
    return type(value) is int or type(value) is float


_decode_message = msgspec.json.Decoder(Message).decode


class _ErrorMembers(msgspec.Struct):
    code: Raw = Raw()
    message: Raw = Raw()
    data: Raw = Raw()


_decode_error = msgspec.json.Decoder(_ErrorMembers).decode


def decode_message(data: bytes) -> Message:
    """Read one message.

    Raises:
        MalformedMessage: Not JSON in UTF-8, not an object, or neither method nor result nor error.
    """
    return _one(checked_text(data))


def _one(data: RawJson) -> Message:
    message = decode_members(data, _decode_message, Message)
    if message.method is None and not message.result and not message.error:
        raise MalformedMessage("neither a method nor a result nor an error")
    return message


def decode_messages(data: bytes, on_unreadable: Callable[[], None] | None = None) -> list[Message]:
    """Read one message or a batch of them (2025-03-26 lets a server send an array).

    Args:
        data: UTF-8 text.
        on_unreadable: Called for each message of a batch that cannot be read: it spoils only itself.

    Raises:
        MalformedMessage: As `decode_message`; for a batch, where it is empty, longer than `MAX_BATCH`
            messages, or holds none that can be read.
    """
    data = checked_text(data)
    if data.lstrip()[:1] != b"[":
        return [_one(data)]
    items = split_array(data)
    if not items:
        raise MalformedMessage("an empty batch")
    if len(items) > MAX_BATCH:
        raise MalformedMessage(f"a batch of more than {MAX_BATCH} messages")
    found: list[Message] = []
    for item in items:
        try:
            found.append(_one(item))
        except MalformedMessage:
            if on_unreadable is not None:
                on_unreadable()
    if not found:
        raise MalformedMessage("a batch without a message that can be read")
    return found


def decode_error(raw: RawJson) -> ErrorBody:
    """Read the `error` member of a response; never raises, whatever it holds."""
    try:
        members = decode_members(raw, _decode_error, _ErrorMembers)
    except MalformedMessage:
        # Some servers send a bare string.
        return ErrorBody(None, _as_text(raw), None)
    data = bytes(members.data)
    return ErrorBody(
        _as_code(members.code),
        _as_text(members.message) if members.message else "",
        data or None,
    )


def _as_code(raw: Raw) -> int | None:
    if not raw:
        return None
    try:
        value = decode_json(raw)
    except MalformedMessage:
        return None
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and len(value) < 20:
        try:
            return int(value)
        except ValueError:
            return None
    return None


def _as_text(raw: RawJson) -> str:
    try:
        value = decode_json(raw)
    except MalformedMessage:
        return ""
    if not isinstance(value, str):
        return ""
    # It becomes part of an exception's text, which has to be writable wherever it is logged.
    return value[:_MAX_ERROR_TEXT].encode("utf-8", "replace").decode()


# Encoding. Everything that can be known before the call is a byte string before the call.

_METHODS = (
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "subscriptions/listen",
    "notifications/initialized",
    "notifications/cancelled",
)


def _heads(method: str) -> tuple[bytes, bytes]:
    name = encode_json(method)
    return b',"method":' + name, b',"method":' + name + b',"params":'


_known = {method: _heads(method) for method in _METHODS}


def _one_line(raw: bytes) -> bytes:
    # A raw line break in valid JSON is white space between tokens, so a blank says the same.
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\n", b" ").replace(b"\r", b" ")
    return raw


def encode_request(id: int, method: str, params: bytes | None = None) -> bytes:  # noqa: A002 - JSON-RPC's name
    """Write a request on a single line.

    Args:
        id: Unique among the sender's requests in flight.
        method: Such as `tools/call`.
        params: Raw JSON of an object, or `None` for none.
    """
    bare, full = _known.get(method) or _heads(method)
    if params is None:
        return b'{"jsonrpc":"2.0","id":%d%b}' % (id, bare)
    return b'{"jsonrpc":"2.0","id":%d%b%b}' % (id, full, _one_line(params))


def encode_notification(method: str, params: bytes | None = None) -> bytes:
    """Write a notification on a single line; `params` is raw JSON of an object, or `None`."""
    bare, full = _known.get(method) or _heads(method)
    if params is None:
        return b'{"jsonrpc":"2.0"%b}' % bare
    return b'{"jsonrpc":"2.0"%b%b}' % (full, _one_line(params))


def encode_result(id: object, result: bytes = b"{}") -> bytes:  # noqa: A002 - JSON-RPC's name
    """Write the answer to a peer's request, on a single line.

    Args:
        id: The request's own id, as it was read.
        result: Raw JSON.

    Raises:
        NotJson: The id is nothing that came out of JSON.
    """
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_json(id), _one_line(result))


def encode_error(id: object, code: int, message: str) -> bytes:  # noqa: A002 - JSON-RPC's name
    """Write an error answer to a peer's request, on a single line.

    Raises:
        NotJson: The id is nothing that came out of JSON, or the message holds a lone surrogate.
    """
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b}}' % (
        encode_json(id),
        code,
        encode_json(message),
    )
