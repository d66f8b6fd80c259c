"""Results made: of text, of a value that a tool returned, of a refusal, of a failure.

Rules:

* Every result is an MCP result object in JSON, a refusal too, so that whoever passes results on knows one
  form.
* A value becomes text for the model. An object is beside that the structured content, once and the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from .._base.errors import ProtocolError, ToolFailed
from .._base.model import ToolResult
from ..protocol import NotJson, encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.errors import AfpoolError, Delivery

ERROR_CHARS: Final = 8_192

_encode = msgspec.json.encode
EMPTY: Final = b'{"content":[]}'


def text_result(
    text: str,
    call_id: str,
    *,
    is_error: bool = False,
    code: str | None = None,
    delivery: Delivery = "answered",
    error: AfpoolError | None = None,
) -> ToolResult:
    """Make a result of one text block."""
    end = b'}],"isError":true}' if is_error else b"}]}"
    raw = b'{"content":[{"type":"text","text":' + _text_json(text) + end
    return ToolResult.made(raw, call_id, is_error=is_error, code=code, delivery=delivery, error=error)


def error_result(error: AfpoolError, call_id: str, text: str | None = None) -> ToolResult:
    """Make a result of a refusal or a failure; the model reads the error's message, or `text` instead."""
    if error.call_id is None:
        error.call_id = call_id
    return text_result(
        error.message if text is None else text,
        call_id,
        is_error=True,
        code=error.code,
        delivery=error.delivery,
        error=error,
    )


def failed(tool: str, error: Exception) -> ToolFailed:
    """Make the failure of a tool that raised: its words are the model's to read, cut."""
    words = str(error).strip()
    said = f": {words[:ERROR_CHARS]}" if words else ""
    failure = ToolFailed(f"The tool {tool} failed ({type(error).__name__}){said}")
    failure.__cause__ = error
    return failure


def value_result(value: Any, call_id: str) -> ToolResult:
    """Make a result of what a tool of the host's own returned.

    Args:
        value: A string is the text. `None` is an empty result. A `ToolResult` stays what it is. Anything else
            is written as JSON: plain values, dataclasses, attrs classes, msgspec structs, dates, enums and
            UUIDs; an object is the structured content as well.
        call_id: Of the call.

    Raises:
        TypeError: JSON cannot hold it. Says where and of what type, never the value.
    """
    if type(value) is str:
        raw = b'{"content":[{"type":"text","text":' + _text_json(value) + b"}]}"
        return ToolResult.made(raw, call_id)
    if value is None:
        return ToolResult.made(EMPTY, call_id)
    if isinstance(value, ToolResult):
        if value.call_id == call_id:
            return value
        return ToolResult(
            value.raw,
            call_id,
            code=None if value.error is None else value.code,
            delivery=value.delivery,
            error=value.error,
        )
    if isinstance(value, str):
        return text_result(str.__str__(value), call_id)
    written = json_of(value)
    raw = b'{"content":[{"type":"text","text":' + _encode(written.decode()) + b"}]"
    raw += b',"structuredContent":' + written + b"}" if written.startswith(b"{") else b"}"
    return ToolResult.made(raw, call_id)


def content_result(
    content: list[Mapping[str, Any]],
    *,
    structured: Mapping[str, Any] | None = None,
    is_error: bool = False,
    call_id: str = "",
) -> ToolResult:
    """Make a result of MCP content blocks, for a tool that answers with more than text.

    Args:
        content: Blocks as MCP writes them, such as `{"type": "image", "data": ..., "mimeType": ...}`.
        structured: The structured content, if there is one.
        is_error: Whether the tool failed.
        call_id: Of the call; a door that runs the tool fills it in.

    Raises:
        TypeError: Something in it is not JSON.
    """
    document: dict[str, Any] = {"content": content}
    if structured is not None:
        document["structuredContent"] = structured
    if is_error:
        document["isError"] = True
    return ToolResult(json_of(document), call_id)


def is_sound(result: ToolResult) -> bool:
    """Say whether a result that somebody made by hand is one: bytes that are read as a tool's result."""
    if type(result.raw) is not bytes:
        return False
    try:
        return result.has_form and isinstance(result.document, dict)
    except ProtocolError:
        return False


def json_of(value: Any) -> bytes:
    """Write a value as JSON, with what Python has beyond it turned into it.

    Raises:
        TypeError: JSON cannot hold it. Says where and of what type, never the value.
    """
    try:
        return encode_json(value)
    except NotJson as first:
        refusal = first
    try:
        return encode_json(mended(msgspec.to_builtins(value, str_keys=True)))
    except NotJson as error:
        refusal = error
    except (TypeError, ValueError, RecursionError):
        pass  # what msgspec says of it may quote it
    raise TypeError(f"the value is not JSON at {refusal.path}: {refusal.kind}")


def mended(value: Any) -> Any:
    """Put the replacement character in the place of lone surrogates, which no UTF-8 can carry."""
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        )
    if isinstance(value, dict):
        return {mended(key): mended(member) for key, member in value.items()}
    if isinstance(value, list):
        return [mended(member) for member in value]
    return value


def _text_json(text: str) -> bytes:
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(mended(text))
